//! What is measured. The field types leave no invalid value to check for, but for layouts named twice.

use std::num::{NonZeroU32, NonZeroU64};

use files::{Fsstat, Layout};
use serde::Serialize;

use crate::room::{Need, Room};
use crate::{Frequencies, SET_PREFIX, Sizes};

/// One run's question; as JSON the fields of a record's configuration.
#[derive(Clone, Debug, Serialize)]
#[serde(into = "Fields")]
pub struct DirscaleConfig {
    /// Layouts to measure, in this order at the first size and in turns backwards and forwards from there. Default
    /// `flat` and `345`, the paper's pair. One named twice is measured once.
    pub layouts: Vec<Layout>,
    /// Files in the directory. Default 1, 2, 4 … 524288, as in the paper.
    pub sizes: Sizes,
    /// Bytes in a file. Default 2048, the paper's most common article.
    pub file_bytes: u32,
    /// Bytes in the files that only fill a directory up to its size, which are looked up, listed and removed but never
    /// read. Default `None`: as many as [`Self::file_bytes`]. 0 takes no blocks of the storage. Heeded only in a set that is
    /// removed: a kept one has files of one size.
    pub fill_bytes: Option<u32>,
    /// Operations in one measurement, and files added and removed. Default 1000, as in the paper.
    pub operations: NonZeroU32,
    /// What the kernel's caches hold when a measurement begins. Default cold.
    pub cache: Cache,
    /// Same seed, same files looked up in the same order.
    pub seed: u64,
    /// How often each size is measured. Default 3: figures are medians then, and intervals cover what differs from one
    /// time to the next. On a busy machine a single round has made a crossing out of another program's work.
    pub rounds: NonZeroU32,
    /// Readings of the whole directory in a round. Default 3: one reading has no interval.
    pub readings: NonZeroU32,
    /// What a day consists of, for `day_us`. Default the paper's table 1.
    pub frequencies: Frequencies,
    /// What becomes of the directories.
    pub keep: Keep,
    /// Folder in the target that holds the directories is [`crate::SET_PREFIX`] and this: letters, digits, `-`, `_`
    /// and `.`.
    pub set_name: String,
}

/// What the kernel's caches hold when a measurement begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Nothing of the storage: dropped before each measurement.
    Cold,
    /// No names and inodes, which are dropped before each measurement; blocks of directories and of inode tables may be
    /// in memory.
    ColdNames,
    /// What is about to be used, which is looked at once before.
    Warm,
}

/// What becomes of the directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Removed at the end, also after an error and after Ctrl-C.
    Remove,
    /// Created, and kept for [`Keep::Reuse`].
    Keep,
    /// Taken up as an earlier run left them, grown further, and kept.
    Reuse,
}

/// By the names in records.
#[derive(Serialize)]
struct Fields {
    layouts: Vec<&'static str>,
    sizes: String,
    file_bytes: u32,
    operations: NonZeroU32,
    cache: String,
    rounds: NonZeroU32,
    readings: NonZeroU32,
    frequencies_per_day: String,
    /// None for a set that is removed: it has another name each time, which is no setting that differs.
    set: Option<String>,
}

impl From<DirscaleConfig> for Fields {
    fn from(config: DirscaleConfig) -> Self {
        let kept = config.keep != Keep::Remove;
        Self {
            layouts: config.layouts.iter().map(|layout| layout.name()).collect(),
            sizes: config.sizes.to_string(),
            file_bytes: config.file_bytes,
            operations: config.operations,
            cache: config.cache.to_string(),
            rounds: config.rounds,
            readings: config.readings,
            frequencies_per_day: config.frequencies.to_string(),
            set: kept.then(|| config.folder()),
        }
    }
}

impl DirscaleConfig {
    /// The paper's measurements in a folder of this name.
    pub fn new(set_name: impl Into<String>) -> Self {
        Self {
            layouts: vec![Layout::Flat, Layout::D345],
            sizes: Sizes::default(),
            file_bytes: 2048,
            fill_bytes: None,
            operations: NonZeroU32::new(1000).expect("1000 is not 0"),
            cache: Cache::Cold,
            seed: 1,
            rounds: NonZeroU32::new(3).expect("3 is not 0"),
            readings: NonZeroU32::new(3).expect("3 is not 0"),
            frequencies: Frequencies::default(),
            keep: Keep::Remove,
            set_name: set_name.into(),
        }
    }

    /// The layouts, each once.
    pub(crate) fn distinct_layouts(&self) -> Vec<Layout> {
        let mut layouts: Vec<Layout> = Vec::new();
        for layout in &self.layouts {
            if !layouts.contains(layout) {
                layouts.push(*layout);
            }
        }
        layouts
    }

    /// Files in all directories together at the largest size.
    pub fn files_max(&self) -> u64 {
        self.sizes.largest().saturating_mul(self.distinct_layouts().len() as u64)
    }

    /// The sizes that a run on storage with this room will measure: what does not fit is left out, and where nothing does the
    /// run is refused. Of a set that is taken up again all, as what it has already takes no more room.
    pub fn sizes_in(&self, space: &Fsstat) -> Sizes {
        let (room, layouts) = (Room::of(space), self.distinct_layouts());
        let fits = |size: &&u64| room.holds(Need::of(self, &layouts, **size));
        match self.sizes.as_slice().iter().rfind(fits) {
            Some(largest) if self.keep != Keep::Reuse => self.sizes.up_to(*largest),
            _ => self.sizes.clone(),
        }
    }

    /// The folder in the target that holds the directories.
    pub fn folder(&self) -> String {
        format!("{SET_PREFIX}{}", self.set_name)
    }

    /// Bytes in a file that fills a directory.
    pub(crate) fn fill_bytes(&self) -> u32 {
        match self.keep {
            Keep::Remove => self.fill_bytes.unwrap_or(self.file_bytes),
            Keep::Keep | Keep::Reuse => self.file_bytes,
        }
    }

    pub(crate) fn operations(&self) -> u64 {
        NonZeroU64::from(self.operations).get()
    }
}

impl std::fmt::Display for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cold => "cold",
            Self::ColdNames => "cold names",
            Self::Warm => "warm",
        })
    }
}
