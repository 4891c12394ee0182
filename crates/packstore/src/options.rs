//! What a store is made and opened with.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use disk::Disk;

use crate::clock::Clock;
use crate::error::StoreError;
use crate::index::address::Address;

/// A directory that takes part in a store (disk splicing).
#[derive(Clone)]
pub struct VolumeSpec {
    /// Where.
    pub disk: Arc<dyn Disk>,
    /// Bytes of it that the store may use, index files included.
    pub size_bytes: u64,
}

/// What the store promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// A put that returned survives power loss; nothing is evicted; a full store says so.
    #[default]
    Store,
    /// Puts are written behind, within bounds; a full store evicts.
    Cache,
}

/// How the objects to evict are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Eviction {
    /// The oldest segment is emptied, whatever was asked for.
    Cyclic,
    /// As [`Eviction::Cyclic`], but what was asked for since the last round stays where it is (CLOCK; each request is worth
    /// a round, up to three; a quarter of a byte an object).
    Clock,
    /// S3-FIFO by segments: new objects go to a fifth of the files, and stay if they are asked for twice there; those put
    /// again soon after they went come to the others, where it is as with [`Eviction::Clock`]. 2.3 bytes an object. In volumes
    /// of less than [`crate::eviction::SEGMENTS_FOR_QUEUES`] files it is [`Eviction::Clock`].
    #[default]
    S3Fifo,
}

/// Which objects a cache stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Admission {
    /// All.
    #[default]
    All,
    /// Those that are put for the second time (2 bytes an object to know them): saves most writes, costs 4 to 7 points of hits.
    /// A put that is not stored is reported by [`crate::Usage::refused`] alone. What replaces an object is stored always.
    SecondRequest,
}

/// Bounds of a cache.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Objects not yet written: puts wait above this. Default 64 MB.
    pub behind_bytes_max: u64,
    /// A put is durable after this at the latest. Default 5 s.
    pub behind_max: Duration,
    /// Who goes when it is full.
    pub eviction: Eviction,
    /// Who is stored at all.
    pub admission: Admission,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self {
            behind_bytes_max: 64 << 20,
            behind_max: Duration::from_secs(5),
            eviction: Eviction::default(),
            admission: Admission::default(),
        }
    }
}

/// How often a body's checksum is compared on reading. Heads are compared always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Verify {
    /// Each time.
    #[default]
    Always,
    /// Once in this many reads.
    OneIn(u32),
}

/// How to make a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Durable or cache.
    pub mode: Mode,
    /// Objects with a time to live ([`PutOptions::expires_s`]) are gone when it is over. Only in store mode: what replies of a cache
    /// expire by is for its user to judge, and a stale one may still be of use.
    pub expires: bool,
    /// When it is full, the oldest objects are overwritten, in the order of their puts: the newest ones stay, up to 95% of the size if
    /// objects are of 10 KB or more. Only in store mode. Each volume goes round for itself. A second name of an object is a copy of
    /// it here, and no object may be larger than half of the smallest volume.
    pub cyclic: bool,
    /// Unit of space, a power of two from 64 to 65,536, in bytes. Default 64: little is lost at the ends of small objects.
    pub block_bytes: u32,
    /// Blocks in a segment; `None`: as many as make 256 files of the largest volume, of 16 MB to 1 GB each, and at
    /// least 16 files of a small one.
    pub packed_blocks: Option<u32>,
    /// Mean object for which the table in memory is laid out, in bytes: body, attributes, and the key twice. What heads and
    /// index records take comes besides. Default 8192.
    pub object_bytes_mean: u32,
    /// Bounds in cache mode.
    pub cache: CacheOptions,
    /// Checking on reads.
    pub verify: Verify,
    /// Whether long writes bypass the page cache (O_DIRECT): no copy in the kernel, no pages taken from other programs, no
    /// bursts of write-back. But the first read of what was just put then waits for the disk. `None`, the default: a cache
    /// does, as its memory tier serves what is read soon; a store does not. Without effect on a file system that has no
    /// O_DIRECT.
    pub direct_writes: Option<bool>,
    /// Bodies that were requested recently, kept in memory: at most this many bytes. Default 64 MB; 0: none.
    pub memory_bytes_max: u64,
    /// As [`OpenOptions::clock`].
    pub clock: Clock,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Store,
            expires: false,
            cyclic: false,
            block_bytes: 64,
            packed_blocks: None,
            object_bytes_mean: 8192,
            cache: CacheOptions::default(),
            verify: Verify::Always,
            direct_writes: None,
            memory_bytes_max: MEMORY_BYTES_MAX,
            clock: Clock::default(),
        }
    }
}

impl StoreOptions {
    /// KOTETU's: a cache of 1500 blocks of 8 KB a segment.
    pub fn kotetu() -> Self {
        Self { mode: Mode::Cache, block_bytes: 8192, packed_blocks: Some(1500), ..Self::default() }
    }

    /// Whether the store's mode has what is asked for.
    fn properties_fit(&self) -> Result<(), StoreError> {
        let wrong = |name, why: &'static str| Err(StoreError::Setting { name, given: 1, why: why.into() });
        match self.mode {
            Mode::Cache if self.expires => wrong(
                "expires",
                "store mode alone has it: a cache evicts, and a stale reply may still be of use",
            ),
            Mode::Cache if self.cyclic => {
                wrong("cyclic", "store mode alone has it: a cache evicts what was not requested")
            }
            _ => Ok(()),
        }
    }

    /// Of a segment, where the largest volume has this many.
    fn segment_bytes(&self, largest: u64) -> u64 {
        match self.packed_blocks {
            Some(blocks) => u64::from(blocks) * u64::from(self.block_bytes),
            // Up to two of a volume's segments are empty: few of them must be little.
            None if self.cyclic => {
                ((largest / 256).next_power_of_two() / 2).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
            }
            // Files of some size, as each costs a few syncs; but enough of them to choose from in a small volume.
            None => {
                let most = (largest / 16 + 1).next_power_of_two() / 2;
                (largest / 256).next_power_of_two().clamp(16 << 20, SEGMENT_BYTES_MAX).min(most).max(1 << 20)
            }
        }
    }

    /// Whether each volume has room for what it needs at least.
    fn volumes_fit(&self, volumes: &[VolumeSpec], segment_bytes: u64) -> Result<(), StoreError> {
        let for_segment = segment_bytes * 5 / 4;
        let bytes_min = match self.cyclic && self.packed_blocks.is_none() {
            true => segment_bytes * CYCLIC_SEGMENTS_MIN,
            false => for_segment,
        };
        let Some(small) = volumes.iter().find(|volume| volume.size_bytes < bytes_min) else { return Ok(()) };
        let what = match small.size_bytes < for_segment {
            true => "a segment and its index do not fit",
            false => "16 segments do not fit, which a cyclic store needs",
        };
        let why = format!("{what}; at least {bytes_min} bytes are needed").into();
        Err(StoreError::Setting { name: "the size of a volume in bytes", given: small.size_bytes, why })
    }

    /// Block bytes and blocks of a segment for volumes of these sizes.
    pub(crate) fn shape(&self, volumes: &[VolumeSpec]) -> Result<Shape, StoreError> {
        self.properties_fit()?;
        let wrong =
            |name, given, why: &'static str| StoreError::Setting { name, given, why: Cow::Borrowed(why) };
        if volumes.is_empty() {
            return Err(wrong("the number of volumes", 0, "at least one is needed"));
        }
        if !self.block_bytes.is_power_of_two() || !(64..=65_536).contains(&self.block_bytes) {
            return Err(wrong(
                "the block size in bytes",
                self.block_bytes.into(),
                "it must be a power of two from 64 to 65536",
            ));
        }
        if self.object_bytes_mean == 0 {
            return Err(wrong("the mean size of an object", 0, "it must be at least 1 byte"));
        }
        let largest = volumes.iter().map(|volume| volume.size_bytes).max().unwrap_or(0);
        let total = volumes.iter().map(|volume| volume.size_bytes).sum::<u64>();
        let block_bytes = u64::from(self.block_bytes);
        let segment_bytes = self.segment_bytes(largest);
        if !(SEGMENT_BYTES_MIN..=4 << 30).contains(&segment_bytes) {
            return Err(wrong(
                "a segment's size in bytes (block size times blocks)",
                segment_bytes,
                "it must be 512 KiB to 4 GiB",
            ));
        }
        self.volumes_fit(volumes, segment_bytes)?;
        if total / block_bytes >= crate::index::address::BLOCKS_MAX / 2 {
            return Err(wrong(
                "the size of all volumes in bytes",
                total,
                "a store has at most 2^33 blocks: take larger blocks",
            ));
        }
        Ok(Shape { block_bytes: self.block_bytes, segment_blocks: (segment_bytes / block_bytes) as u32 })
    }
}

/// How to open a store.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Look, change nothing; goes beside a process that writes, and then sees what was there when it opened.
    pub read_only: bool,
    /// Open a store for writing though a volume is away. What is on it is lost with that: it is refused when it comes back.
    /// A cache does so anyway.
    pub without_missing: bool,
    /// Open for [`crate::Store::repair`]. What is in the place of the store's files and is no regular file gets another name; otherwise
    /// the store is not opened for writing then. Damaged indexes are rewritten before the file `table` of the last clean stop is
    /// removed, as it says which objects they lack.
    pub move_aside: bool,
    /// Bounds in cache mode.
    pub cache: CacheOptions,
    /// Checking on reads.
    pub verify: Verify,
    /// As [`StoreOptions::direct_writes`].
    pub direct_writes: Option<bool>,
    /// As [`StoreOptions::memory_bytes_max`].
    pub memory_bytes_max: u64,
    /// After an unclean stop: memory for records found, at most, before they go to a file of a volume until all are known; 32
    /// bytes each. Read-only all stay in memory. Default 64 MB.
    pub rebuild_bytes_max: u64,
    /// By which objects expire. Default: the system's time of day.
    pub clock: Clock,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            without_missing: false,
            move_aside: false,
            cache: CacheOptions::default(),
            verify: Verify::Always,
            direct_writes: None,
            memory_bytes_max: MEMORY_BYTES_MAX,
            rebuild_bytes_max: 64 << 20,
            clock: Clock::default(),
        }
    }
}

const SEGMENT_BYTES_MIN: u64 = 512 << 10;
const SEGMENT_BYTES_MAX: u64 = 1 << 30;
const CYCLIC_SEGMENTS_MIN: u64 = 16;
const MEMORY_BYTES_MAX: u64 = 64 << 20;

/// What a put is given besides its key and body.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOptions<'a> {
    /// Attributes, kept with the body: at most 64 KB.
    pub meta: &'a [u8],
    /// When it expires, in seconds since 1970; 0: never. From then on it is gone in a store made with [`StoreOptions::expires`], by
    /// [`Store::now_s`](crate::Store::now_s); put with a time that has passed, it is gone at once. Other stores keep the time, and do
    /// nothing about it.
    pub expires_s: u32,
    /// When it was created, in seconds since 1970; `None`: now.
    pub created_s: Option<u32>,
}

/// Sizes that all segments of a store share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub block_bytes: u32,
    pub segment_blocks: u32,
}

impl Shape {
    pub(crate) fn blocks(self, bytes: usize) -> u32 {
        bytes.div_ceil(self.block_bytes as usize) as u32
    }

    /// Where a block begins in its file.
    pub(crate) fn offset(self, block: u32) -> u64 {
        u64::from(block) * u64::from(self.block_bytes)
    }

    /// To be read to have all of what lies there.
    pub(crate) fn bytes_at_most(self, address: Address) -> usize {
        address.blocks_max as usize * self.block_bytes as usize
    }

    pub(crate) fn segment_bytes(self) -> u64 {
        u64::from(self.block_bytes) * u64::from(self.segment_blocks)
    }

    /// Longest body in one extent; longer ones are cut into pieces of this.
    pub(crate) fn piece_bytes(self) -> usize {
        (self.segment_bytes() / 8).min(256 << 10) as usize
    }
}
