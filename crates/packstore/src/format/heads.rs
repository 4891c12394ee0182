//! Heads of an index file and of a volume, and what the checksums of all else are salted with.

use super::{EXTENDED_VERSION, FORMAT_VERSION, INDEX_HEAD_BYTES, VOLUME_HEAD_BYTES, crc, u32_at, u64_at};

/// Why bytes are no head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadError {
    /// There are too few.
    #[error("its head is cut off after {bytes} of {wanted} bytes")]
    CutOff { bytes: usize, wanted: usize },
    /// They begin otherwise.
    #[error("it does not begin as one")]
    Magic,
    /// Of a format of another time.
    #[error("its format is version {0}, this program knows {FORMAT_VERSION} and {EXTENDED_VERSION}")]
    Version(u32),
    /// It has a property that this program does not know, so it cannot keep what the property promises.
    #[error("it has properties that this program does not know (bits {0:#x}); use the program that made it")]
    Properties(u8),
    /// Some of them are not what was written.
    #[error("its head fails its checksum")]
    Checksum,
}

/// Head of an index file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexHead {
    pub store: u128,
    pub file: u32,
    pub generation: u64,
    /// What supersedes records that were here at this generation or later must be kept elsewhere.
    pub since: u64,
    /// Which queue of a cache it belongs to: 1 for the main queue.
    pub queue_kind: u8,
    /// It was never rewritten: it names all records of the data file.
    pub is_first: bool,
    /// The store's clock when the head was written, in seconds since 1970, where objects expire; else 0.
    pub time_s: u32,
}

impl IndexHead {
    pub(crate) fn encode(&self) -> [u8; INDEX_HEAD_BYTES] {
        let mut bytes = [0; INDEX_HEAD_BYTES];
        bytes[..8].copy_from_slice(b"CRUMBIDX");
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.file.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.store.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.since.to_le_bytes());
        bytes[48] = self.queue_kind;
        bytes[49] = u8::from(self.is_first);
        bytes[52..56].copy_from_slice(&self.time_s.to_le_bytes());
        let sum = crc(&bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeadError> {
        checked_head(bytes, INDEX_HEAD_BYTES, b"CRUMBIDX", FORMAT_VERSION)?;
        Ok(Self {
            file: u32_at(bytes, 12),
            generation: u64_at(bytes, 16),
            since: u64_at(bytes, 40),
            queue_kind: bytes[48],
            is_first: bytes[49] == 1,
            time_s: u32_at(bytes, 52),
            store: u128::from(u64_at(bytes, 24)) | u128::from(u64_at(bytes, 32)) << 64,
        })
    }

    /// As [`Self::decode`]; one flipped bit is repaired, in `bytes` too. Also whether there was one.
    pub(crate) fn decode_repairing(bytes: &mut [u8]) -> Result<(Self, bool), HeadError> {
        decode_repairing(bytes, INDEX_HEAD_BYTES, Self::decode)
    }

    /// With what the index records' checksums are salted, so that those of other files and times do not pass.
    pub(crate) fn salt(&self) -> u32 {
        salt(self.store, self.file, self.generation)
    }
}

/// With what the checksums of a data file's records are salted. No stranger knows the store's number.
pub(crate) fn body_salt(store: u128, file: u32) -> u32 {
    salt(store, file, u64::MAX)
}

fn salt(store: u128, file: u32, generation: u64) -> u32 {
    let mut bytes = [0; 28];
    bytes[..16].copy_from_slice(&store.to_le_bytes());
    bytes[16..20].copy_from_slice(&file.to_le_bytes());
    bytes[20..].copy_from_slice(&generation.to_le_bytes());
    xxhash_rust::xxh3::xxh3_64(&bytes) as u32
}

/// A property of a store, in its volumes' heads: objects have a time to live.
const EXPIRES: u8 = 1;
/// Another: when it is full, the oldest objects are overwritten.
const CYCLIC: u8 = 2;

/// Head of a volume: the file `volume`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeHead {
    pub store: u128,
    pub hash_seed: u64,
    pub volume: u32,
    pub volumes: u32,
    pub block_bytes: u32,
    pub segment_blocks: u32,
    pub size_bytes: u64,
    pub object_bytes_mean: u32,
    pub durable: bool,
    /// Objects are gone when their time to live is over.
    pub expires: bool,
    /// Overwrites its oldest objects when it is full.
    pub cyclic: bool,
    /// How often the store was opened for writing.
    pub openings: u64,
    /// As `openings`, counted before the other volumes' heads are: a volume whose `begun` is below another's `openings`
    /// was away meanwhile.
    pub begun: u64,
    /// Checksum of the index files' lengths, when the last stop was a clean one.
    pub closed: Option<u32>,
}

impl VolumeHead {
    pub(crate) fn encode(&self) -> [u8; VOLUME_HEAD_BYTES] {
        let mut bytes = [0; VOLUME_HEAD_BYTES];
        bytes[..8].copy_from_slice(b"CRUMBVOL");
        let properties = (u8::from(self.expires) * EXPIRES) | (u8::from(self.cyclic) * CYCLIC);
        // A program of before would serve what has expired, or fill holes: it must refuse.
        let version = if properties == 0 { FORMAT_VERSION } else { EXTENDED_VERSION };
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.volume.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.hash_seed.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.block_bytes.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.segment_blocks.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.openings.to_le_bytes());
        bytes[64..68].copy_from_slice(&self.volumes.to_le_bytes());
        bytes[68..72].copy_from_slice(&self.object_bytes_mean.to_le_bytes());
        bytes[72] = u8::from(self.durable);
        bytes[73] = u8::from(self.closed.is_some());
        bytes[74] = properties;
        bytes[80..88].copy_from_slice(&self.begun.to_le_bytes());
        bytes[88..92].copy_from_slice(&self.closed.unwrap_or(0).to_le_bytes());
        let sum = crc(&bytes[..92]);
        bytes[92..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// As [`Self::decode`]; one flipped bit is repaired. Also whether there was one.
    pub(crate) fn decode_repairing(bytes: &[u8]) -> Result<(Self, bool), HeadError> {
        decode_repairing(&mut bytes.to_vec(), VOLUME_HEAD_BYTES, Self::decode)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HeadError> {
        let version = checked_head(bytes, VOLUME_HEAD_BYTES, b"CRUMBVOL", EXTENDED_VERSION)?;
        let properties = if version == EXTENDED_VERSION { bytes[74] } else { 0 };
        if properties & !(EXPIRES | CYCLIC) != 0 {
            return Err(HeadError::Properties(properties & !(EXPIRES | CYCLIC)));
        }
        Ok(Self {
            volume: u32_at(bytes, 12),
            store: u128::from(u64_at(bytes, 16)) | u128::from(u64_at(bytes, 24)) << 64,
            hash_seed: u64_at(bytes, 32),
            block_bytes: u32_at(bytes, 40),
            segment_blocks: u32_at(bytes, 44),
            size_bytes: u64_at(bytes, 48),
            openings: u64_at(bytes, 56),
            volumes: u32_at(bytes, 64),
            object_bytes_mean: u32_at(bytes, 68),
            durable: bytes[72] == 1,
            expires: properties & EXPIRES != 0,
            cyclic: properties & CYCLIC != 0,
            begun: u64_at(bytes, 80),
            closed: (bytes[73] == 1).then(|| u32_at(bytes, 88)),
        })
    }

    /// Whether both are heads of one volume at different times.
    pub(crate) fn is_of_same_volume(&self, other: &Self) -> bool {
        let identity = |head: &Self| {
            let shape = (head.block_bytes, head.segment_blocks);
            let properties = (head.durable, head.expires, head.cyclic);
            (head.store, head.hash_seed, head.volume, shape, properties)
        };
        identity(self) == identity(other)
    }

    /// As it is while the store is open.
    pub(crate) fn unclosed(self) -> Self {
        Self { closed: None, ..self }
    }
}

fn decode_repairing<T>(
    bytes: &mut [u8],
    len: usize,
    decode: impl Fn(&[u8]) -> Result<T, HeadError>,
) -> Result<(T, bool), HeadError> {
    let wrong = match decode(bytes) {
        Ok(head) => return Ok((head, false)),
        Err(wrong) => wrong,
    };
    for bit in 0..bytes.len().min(len) * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(head) = decode(bytes) {
            return Ok((head, true));
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    Err(wrong)
}

/// The version of a head that is whole, and of version 1 to `newest`.
fn checked_head(bytes: &[u8], len: usize, magic: &[u8; 8], newest: u32) -> Result<u32, HeadError> {
    if bytes.len() < len {
        return Err(HeadError::CutOff { bytes: bytes.len(), wanted: len });
    }
    if &bytes[..8] != magic {
        return Err(HeadError::Magic);
    }
    let version = u32_at(bytes, 8);
    if !(FORMAT_VERSION..=newest).contains(&version) {
        return Err(HeadError::Version(version));
    }
    if crc(&bytes[..len - 4]) != u32_at(bytes, len - 4) {
        return Err(HeadError::Checksum);
    }
    Ok(version)
}
