//! Bytes on disk: a volume's head, the records of a body file, the control blocks of an index file.
//!
//! Always holds: what is decoded was whole by its checksum, and its lengths fit into what was read.
//! Not here: where records go (`filling`), which of them still count (`rebuild`).
//! Layout: `docs/design/packstore-format.md`, the only place that tells it.

/// The format's version, in each head.
pub const FORMAT_VERSION: u32 = 1;
/// Longest key.
pub const KEY_BYTES_MAX: usize = 4096;
/// Longest attributes.
pub const META_BYTES_MAX: usize = 65_536;
pub(crate) const RECORD_HEAD_BYTES: usize = 48;
pub(crate) const INDEX_HEAD_BYTES: usize = 64;
pub(crate) const VOLUME_HEAD_BYTES: usize = 96;
pub(crate) const CONTROL_FIXED_BYTES: usize = 52;
pub(crate) const TOMBSTONE_BYTES: usize = 40;
pub(crate) const MARK_BYTES: usize = 24;
const CONTROL_BYTES_MAX: usize = CONTROL_FIXED_BYTES + KEY_BYTES_MAX + 16 + 8;

pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// What kind of record an object's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The whole object in one extent.
    Whole,
    /// The list of an object's pieces.
    Manifest,
    /// A key that names a shared object.
    Alias,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Whole => 1,
            Self::Manifest => 2,
            Self::Alias => 3,
        }
    }

    fn of(code: u8) -> Option<Self> {
        [Self::Whole, Self::Manifest, Self::Alias].into_iter().find(|kind| kind.code() == code)
    }

    fn has_extension(self) -> bool {
        self != Self::Whole
    }
}

const TOMBSTONE: u8 = 16;
const MARK: u8 = 17;
/// The key is one of ours (a piece, a shared object), not a user's.
const INTERNAL: u8 = 1;

/// What a name within the store is: a user's key, or one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    pub internal: bool,
    pub key: &'a [u8],
}

impl<'a> Name<'a> {
    pub(crate) fn of(key: &'a [u8]) -> Self {
        Self { internal: false, key }
    }

    pub(crate) fn hash(self, seed: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(self.key, if self.internal { !seed } else { seed })
    }
}

/// Our own key: part `part` of the object with this number; [`SHARED`] for one with several names.
pub(crate) fn internal_key(id: u64, part: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.to_le_bytes());
    key[8..].copy_from_slice(&part.to_le_bytes());
    key
}

pub(crate) const SHARED: u32 = u32::MAX;

/// Head of a record in a body file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub kind: Kind,
    pub internal: bool,
    pub key_len: u16,
    pub sequence: u64,
    pub meta_len: u32,
    pub body_len: u32,
    pub body_crc: u32,
    pub created_s: u32,
    pub requested_s: u32,
    pub expires_s: u32,
}

impl RecordHead {
    /// Bytes of the whole record.
    pub(crate) fn record_bytes(&self) -> usize {
        RECORD_HEAD_BYTES + self.key_len as usize + self.meta_len as usize + self.body_len as usize
    }

    /// Appends head, key and attributes; the body follows.
    pub(crate) fn encode(&self, key: &[u8], meta: &[u8], salt: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&[self.kind.code(), u8::from(self.internal) * INTERNAL]);
        out.extend_from_slice(&self.key_len.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        for word in [self.meta_len, self.body_len, self.body_crc, self.created_s] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&encode_times(self.sequence, self.requested_s, self.expires_s));
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(key);
        out.extend_from_slice(meta);
        let sum = record_crc(&out[start..], salt);
        out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    }

    /// The head at the start of `bytes`, without its checksum's proof.
    pub(crate) fn peek(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..RECORD_HEAD_BYTES)?;
        let sequence = u64_at(head, 8);
        let (requested_s, expires_s) = decode_times(sequence, &head[32..44]).unwrap_or((0, 0));
        let head = Self {
            kind: Kind::of(head[4])?,
            internal: match head[5] {
                0 => false,
                INTERNAL => true,
                _ => return None,
            },
            key_len: u16_at(head, 6),
            sequence,
            meta_len: u32_at(head, 16),
            body_len: u32_at(head, 20),
            body_crc: u32_at(head, 24),
            created_s: u32_at(head, 28),
            requested_s,
            expires_s,
        };
        let fits = head.key_len as usize <= KEY_BYTES_MAX && head.meta_len as usize <= META_BYTES_MAX;
        (fits && head.key_len > 0).then_some(head)
    }

    /// The head, when its checksum, which covers key and attributes too, is right. `None` also when `bytes` end before.
    pub(crate) fn decode(bytes: &[u8], salt: u32) -> Option<Self> {
        let head = Self::peek(bytes)?;
        let end = RECORD_HEAD_BYTES + head.key_len as usize + head.meta_len as usize;
        (record_crc(bytes.get(..end)?, salt) == u32_at(bytes, 0)).then_some(head)
    }
}

/// The times are left out: they alone change in place.
fn record_crc(head: &[u8], salt: u32) -> u32 {
    let mut fixed = [0; 28];
    fixed.copy_from_slice(&head[4..32]);
    // Two sums, so that no copy has to be made of a long key.
    crc(&fixed).rotate_left(1) ^ crc(&head[44..]) ^ salt
}

/// Where the times lie within a record: inside its first 64 bytes, hence inside one sector.
pub(crate) const TIMES_AT: u64 = 32;

pub(crate) fn encode_times(sequence: u64, requested_s: u32, expires_s: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&requested_s.to_le_bytes());
    bytes[4..8].copy_from_slice(&expires_s.to_le_bytes());
    let sum = crc(&bytes[..8]) ^ sequence as u32;
    bytes[8..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode_times(sequence: u64, bytes: &[u8]) -> Option<(u32, u32)> {
    let whole = crc(&bytes[..8]) ^ sequence as u32 == u32_at(bytes, 8);
    whole.then(|| (u32_at(bytes, 0), u32_at(bytes, 4)))
}

/// The list of an object's pieces, as the body of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub id: u64,
    pub piece_lens: Vec<u32>,
}

impl Manifest {
    pub(crate) fn length(&self) -> u64 {
        self.piece_lens.iter().map(|&len| u64::from(len)).sum()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.id.to_le_bytes().to_vec();
        for len in &self.piece_lens {
            bytes.extend_from_slice(&len.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        if body.len() < 8 || !body.len().is_multiple_of(4) {
            return None;
        }
        let piece_lens = body[8..].chunks_exact(4).map(|word| u32_at(word, 0)).collect();
        Some(Self { id: u64_at(body, 0), piece_lens })
    }
}

/// An index file whose earlier record a new one makes void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub file: u32,
    pub generation: u64,
}

const NOBODY: u32 = u32::MAX;

/// A control block: one entry of an index file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control<'a> {
    Put(Put<'a>),
    /// Objects with this hash and at most this sequence number are gone.
    Tombstone {
        sequence: u64,
        hash: u64,
        victim: Victim,
    },
    /// All before this offset of the index is durable, and the bodies that it names.
    Mark {
        durable_end: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Put<'a> {
    pub kind: Kind,
    pub name: Name<'a>,
    pub sequence: u64,
    pub victim: Option<Victim>,
    pub block: u32,
    pub meta_len: u32,
    pub body_len: u32,
    pub created_s: u32,
    pub expires_s: u32,
    /// Manifest: number of the pieces' owner. Alias: number of the shared object. Else 0.
    pub id: u64,
    /// Manifest: number of pieces and length. Alias: length. Else 0.
    pub length: u64,
}

impl Put<'_> {
    pub(crate) fn record_bytes(&self) -> usize {
        RECORD_HEAD_BYTES + self.name.key.len() + self.meta_len as usize + self.body_len as usize
    }

    /// Length of the object as its user sees it.
    pub(crate) fn object_bytes(&self) -> u64 {
        if self.kind == Kind::Whole { u64::from(self.body_len) } else { self.length }
    }

    /// Pieces of a manifest.
    pub(crate) fn pieces(&self) -> u32 {
        self.body_len.saturating_sub(8) / 4
    }
}

impl Control<'_> {
    /// Appends the control block to an index whose checksums are salted so.
    pub(crate) fn encode(&self, salt: u32, out: &mut Vec<u8>) {
        let start = out.len();
        let (kind, flags, sequence) = match self {
            Self::Put(put) => (put.kind.code(), u8::from(put.name.internal) * INTERNAL, put.sequence),
            Self::Tombstone { sequence, .. } => (TOMBSTONE, 0, *sequence),
            Self::Mark { durable_end } => (MARK, 0, *durable_end),
        };
        out.extend_from_slice(&[0, 0, 0, 0, 0, 0, kind, flags]);
        out.extend_from_slice(&sequence.to_le_bytes());
        match self {
            Self::Put(put) => {
                out.extend_from_slice(&put.victim.map_or(NOBODY, |victim| victim.file).to_le_bytes());
                out.extend_from_slice(&put.body_len.to_le_bytes());
                out.extend_from_slice(&put.victim.map_or(0, |victim| victim.generation).to_le_bytes());
                for word in [put.block, put.meta_len, put.created_s, put.expires_s] {
                    out.extend_from_slice(&word.to_le_bytes());
                }
                out.extend_from_slice(&(put.name.key.len() as u16).to_le_bytes());
                out.extend_from_slice(&[0; 2]);
                out.extend_from_slice(put.name.key);
                if put.kind.has_extension() {
                    out.extend_from_slice(&put.id.to_le_bytes());
                    out.extend_from_slice(&put.length.to_le_bytes());
                }
            }
            Self::Tombstone { hash, victim, .. } => {
                out.extend_from_slice(&victim.file.to_le_bytes());
                out.extend_from_slice(&[0; 4]);
                out.extend_from_slice(&victim.generation.to_le_bytes());
                out.extend_from_slice(&hash.to_le_bytes());
            }
            Self::Mark { .. } => out.extend_from_slice(&[0; 8]),
        }
        while !(out.len() - start).is_multiple_of(8) {
            out.push(0);
        }
        let units = ((out.len() - start) / 8) as u16;
        out[start + 4..start + 6].copy_from_slice(&units.to_le_bytes());
        let sum = crc(&out[start + 4..]) ^ salt;
        out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The control block at the start of `bytes`, and its length; `None` when it is not whole.
pub(crate) fn decode_control(bytes: &[u8], salt: u32) -> Option<(Control<'_>, usize)> {
    let len = u16_at(bytes.get(..MARK_BYTES)?, 4) as usize * 8;
    if !(MARK_BYTES..=CONTROL_BYTES_MAX).contains(&len) {
        return None;
    }
    let bytes = bytes.get(..len)?;
    if crc(&bytes[4..]) ^ salt != u32_at(bytes, 0) {
        return None;
    }
    let sequence = u64_at(bytes, 8);
    let control = match bytes[6] {
        MARK => Control::Mark { durable_end: sequence },
        TOMBSTONE if len == TOMBSTONE_BYTES => Control::Tombstone {
            sequence,
            hash: u64_at(bytes, 32),
            victim: Victim { file: u32_at(bytes, 16), generation: u64_at(bytes, 24) },
        },
        code => {
            let kind = Kind::of(code)?;
            let key_len = u16_at(bytes.get(..CONTROL_FIXED_BYTES)?, 48) as usize;
            let end = CONTROL_FIXED_BYTES + key_len;
            let key = bytes.get(CONTROL_FIXED_BYTES..end)?;
            let (id, length) = match bytes.get(end..end + 16) {
                Some(extension) if kind.has_extension() => (u64_at(extension, 0), u64_at(extension, 8)),
                None if kind.has_extension() => return None,
                _ => (0, 0),
            };
            let file = u32_at(bytes, 16);
            let put = Put {
                kind,
                name: Name { internal: bytes[7] & INTERNAL != 0, key },
                sequence,
                victim: (file != NOBODY).then(|| Victim { file, generation: u64_at(bytes, 24) }),
                block: u32_at(bytes, 32),
                meta_len: u32_at(bytes, 36),
                body_len: u32_at(bytes, 20),
                created_s: u32_at(bytes, 40),
                expires_s: u32_at(bytes, 44),
                id,
                length,
            };
            if key.is_empty() || key_len > KEY_BYTES_MAX || put.meta_len as usize > META_BYTES_MAX {
                return None;
            }
            Control::Put(put)
        }
    };
    Some((control, len))
}

/// Head of an index file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexHead {
    pub store: u128,
    pub file: u32,
    pub generation: u64,
    /// What makes records void that were here at this generation or later must be kept elsewhere.
    pub since: u64,
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
        let sum = crc(&bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        checked_head(bytes, INDEX_HEAD_BYTES, b"CRUMBIDX")?;
        Ok(Self {
            file: u32_at(bytes, 12),
            generation: u64_at(bytes, 16),
            since: u64_at(bytes, 40),
            store: u128::from(u64_at(bytes, 24)) | u128::from(u64_at(bytes, 32)) << 64,
        })
    }

    /// As [`Self::decode`]; one flipped bit is put right, in `bytes` too. Also whether there was one.
    pub(crate) fn decode_mending(bytes: &mut [u8]) -> Result<(Self, bool), String> {
        let wrong = match Self::decode(bytes) {
            Ok(head) => return Ok((head, false)),
            Err(wrong) => wrong,
        };
        for bit in 0..bytes.len().min(INDEX_HEAD_BYTES) * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(head) = Self::decode(bytes) {
                return Ok((head, true));
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        Err(wrong)
    }

    /// With what the control blocks' checksums are salted, so that those of other files and times do not pass.
    pub(crate) fn salt(&self) -> u32 {
        salt(self.store, self.file, self.generation)
    }
}

/// With what the checksums of a body file's records are salted. No stranger knows the store's number.
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

/// Head of a volume: the file `volume`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeHead {
    pub store: u128,
    pub hash_seed: u64,
    pub volume: u32,
    pub volumes: u32,
    pub block_bytes: u32,
    pub packed_blocks: u32,
    pub size_bytes: u64,
    pub object_bytes_mean: u32,
    pub durable: bool,
    /// How often the store was opened for writing.
    pub openings: u64,
    /// As `openings`, counted before the other volumes' heads are: a volume whose `begun` is below another's `openings`
    /// was away meanwhile.
    pub begun: u64,
}

impl VolumeHead {
    pub(crate) fn encode(&self) -> [u8; VOLUME_HEAD_BYTES] {
        let mut bytes = [0; VOLUME_HEAD_BYTES];
        bytes[..8].copy_from_slice(b"CRUMBVOL");
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.volume.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.hash_seed.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.block_bytes.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.packed_blocks.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.size_bytes.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.openings.to_le_bytes());
        bytes[64..68].copy_from_slice(&self.volumes.to_le_bytes());
        bytes[68..72].copy_from_slice(&self.object_bytes_mean.to_le_bytes());
        bytes[72] = u8::from(self.durable);
        bytes[80..88].copy_from_slice(&self.begun.to_le_bytes());
        let sum = crc(&bytes[..92]);
        bytes[92..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        checked_head(bytes, VOLUME_HEAD_BYTES, b"CRUMBVOL")?;
        Ok(Self {
            volume: u32_at(bytes, 12),
            store: u128::from(u64_at(bytes, 16)) | u128::from(u64_at(bytes, 24)) << 64,
            hash_seed: u64_at(bytes, 32),
            block_bytes: u32_at(bytes, 40),
            packed_blocks: u32_at(bytes, 44),
            size_bytes: u64_at(bytes, 48),
            openings: u64_at(bytes, 56),
            volumes: u32_at(bytes, 64),
            object_bytes_mean: u32_at(bytes, 68),
            durable: bytes[72] == 1,
            begun: u64_at(bytes, 80),
        })
    }
}

fn checked_head(bytes: &[u8], len: usize, magic: &[u8; 8]) -> Result<(), String> {
    if bytes.len() < len {
        return Err(format!("its head is cut off after {} of {len} bytes", bytes.len()));
    }
    if &bytes[..8] != magic {
        return Err("it does not begin as one".to_owned());
    }
    let version = u32_at(bytes, 8);
    if version != FORMAT_VERSION {
        return Err(format!("its format is version {version}, this program knows {FORMAT_VERSION}"));
    }
    if crc(&bytes[..len - 4]) != u32_at(bytes, len - 4) {
        return Err("its head fails its checksum".to_owned());
    }
    Ok(())
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// All control blocks of an index file's bytes after its head; damaged stretches are passed over.
pub(crate) struct Controls<'a> {
    bytes: &'a [u8],
    at: usize,
    salt: u32,
    /// Offsets of stretches that were no control blocks.
    pub damaged: Vec<u64>,
}

impl<'a> Controls<'a> {
    /// `bytes`: the whole file.
    pub(crate) fn new(bytes: &'a [u8], salt: u32) -> Self {
        Self { bytes, at: INDEX_HEAD_BYTES, salt, damaged: Vec::new() }
    }
}

impl<'a> Iterator for Controls<'a> {
    /// Offset and what is there.
    type Item = (u64, Control<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let mut damaged = false;
        while self.at + MARK_BYTES <= self.bytes.len() {
            if let Some((control, len)) = decode_control(&self.bytes[self.at..], self.salt) {
                let at = self.at as u64;
                self.at += len;
                return Some((at, control));
            }
            // Zeros are room that was taken and never written.
            if !damaged && self.bytes[self.at..self.at + 8] != [0; 8] {
                damaged = true;
                self.damaged.push(self.at as u64);
            }
            self.at += 8;
        }
        None
    }
}

/// Puts right what one flipped bit made of each control block; at most one try for each damaged stretch. Returns where.
pub(crate) fn mend_controls(bytes: &mut [u8], salt: u32) -> Vec<u64> {
    let (mut at, mut mended, mut tried) = (INDEX_HEAD_BYTES, Vec::new(), false);
    while at + MARK_BYTES <= bytes.len() {
        if let Some((_, len)) = decode_control(&bytes[at..], salt) {
            (at, tried) = (at + len, false);
        } else if bytes[at..at + 8] == [0; 8] || tried {
            at += 8;
        } else if mend_control(&mut bytes[at..], salt) {
            mended.push(at as u64);
        } else {
            tried = true;
        }
    }
    mended
}

/// One flipped bit at most: as a checksum of 32 bits goes wrong differently for each bit of a block this short, it is the
/// block that was written. Two bits are never taken for one.
fn mend_control(bytes: &mut [u8], salt: u32) -> bool {
    // First its length, which tells how far the checksum reaches.
    for bit in 32..48 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        if decode_control(bytes, salt).is_some() {
            return true;
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    let len = u16_at(bytes, 4) as usize * 8;
    if !(MARK_BYTES..=CONTROL_BYTES_MAX.min(bytes.len())).contains(&len) {
        return false;
    }
    for bit in (0..32).chain(48..len * 8) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        if decode_control(bytes, salt).is_some() {
            return true;
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &[u8]) -> Put<'_> {
        Put {
            kind: Kind::Manifest,
            name: Name::of(key),
            sequence: 7,
            victim: Some(Victim { file: 3, generation: 9 }),
            block: 12,
            meta_len: 13,
            body_len: 16,
            created_s: 15,
            expires_s: 16,
            id: 17,
            length: 18,
        }
    }

    #[test]
    fn every_control_block_comes_back_as_it_was_and_no_flipped_bit_passes() {
        let long = vec![b'k'; KEY_BYTES_MAX];
        let all = [
            Control::Put(put(b"http://example.org/")),
            Control::Put(put(&long)),
            Control::Put(Put { kind: Kind::Whole, victim: None, id: 0, length: 0, ..put(b"x") }),
            Control::Tombstone { sequence: 1, hash: 2, victim: Victim { file: 3, generation: 4 } },
            Control::Mark { durable_end: 99 },
        ];
        for control in all {
            let mut bytes = Vec::new();
            control.encode(5, &mut bytes);
            assert_eq!(decode_control(&bytes, 5), Some((control, bytes.len())));
            assert_eq!(decode_control(&bytes, 6), None, "another file's");
            for bit in (0..bytes.len() * 8).step_by(if bytes.len() > 1000 { 37 } else { 1 }) {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode_control(&bytes, 5), None, "{control:?} bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn a_damaged_control_block_costs_only_itself() {
        let mut bytes = IndexHead { store: 1, file: 2, generation: 3, since: 3 }.encode().to_vec();
        let mut ends = Vec::new();
        for key in [b"a", b"b", b"c"] {
            Control::Put(put(key)).encode(5, &mut bytes);
            ends.push(bytes.len());
        }
        bytes[ends[0] + 20] ^= 1;
        let mut controls = Controls::new(&bytes, 5);
        assert_eq!(controls.by_ref().count(), 2);
        assert_eq!(controls.damaged, [ends[0] as u64]);
    }

    #[test]
    fn one_flipped_bit_of_an_index_is_put_right_and_two_are_not() {
        let head = IndexHead { store: 1, file: 2, generation: 3, since: 3 };
        let salt = head.salt();
        let mut whole = head.encode().to_vec();
        Control::Put(put(b"a")).encode(salt, &mut whole);
        Control::Tombstone { sequence: 1, hash: 2, victim: Victim { file: 3, generation: 4 } }
            .encode(salt, &mut whole);
        Control::Mark { durable_end: 99 }.encode(salt, &mut whole);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (found, head_mended) = IndexHead::decode_mending(&mut bytes).expect("mended");
            assert_eq!(found, head, "bit {bit}");
            let mended = mend_controls(&mut bytes, salt);
            assert_eq!(mended.len() + usize::from(head_mended), 1, "bit {bit}");
            assert!(bytes == whole, "bit {bit}");
            // Another in the same block.
            let other = if bit % 64 < 32 { bit + 32 } else { bit - 32 };
            bytes[bit / 8] ^= 1 << (bit % 8);
            bytes[other / 8] ^= 1 << (other % 8);
            if IndexHead::decode_mending(&mut bytes).is_ok() {
                assert_eq!(mend_controls(&mut bytes, salt), [], "bits {bit} and {other}");
            }
        }
    }

    #[test]
    fn a_records_head_covers_key_and_attributes_but_not_the_times() {
        let head = RecordHead {
            kind: Kind::Whole,
            internal: false,
            key_len: 3,
            sequence: 4,
            meta_len: 2,
            body_len: 6,
            body_crc: 7,
            created_s: 8,
            requested_s: 9,
            expires_s: 10,
        };
        let mut bytes = Vec::new();
        head.encode(b"key", b"me", 11, &mut bytes);
        assert_eq!(RecordHead::decode(&bytes, 11), Some(head));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = RecordHead::decode(&bytes, 11);
            if (32..44).contains(&(bit / 8)) {
                assert_eq!(
                    found,
                    Some(RecordHead { requested_s: 0, expires_s: 0, ..head }),
                    "times are dropped"
                );
            } else {
                assert_eq!(found, None, "bit {bit}");
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
