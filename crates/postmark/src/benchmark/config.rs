//! What a run of the benchmark is asked to do, as a record keeps it.

use std::num::{NonZeroU32, NonZeroUsize};

use serde::Serialize;

use super::watch::Expected;
use crate::Settings;
use crate::engine::SyncMode;

/// Settings of a run; as JSON the fields of a record's configuration.
#[derive(Clone, Debug, Serialize)]
#[serde(into = "Fields")]
pub struct PostmarkConfig {
    /// PostMark's own; its locations and form of report are not used.
    pub settings: Settings,
    /// Workers side by side, each with its own files and table.
    pub threads: NonZeroUsize,
    /// When data must be durable.
    pub sync: SyncMode,
}

/// By the names in records.
#[derive(Serialize)]
struct Fields {
    number: NonZeroU32,
    transactions: NonZeroU32,
    size_low_bytes: u32,
    size_high_bytes: u32,
    subdirectories: u32,
    read_block_bytes: NonZeroU32,
    write_block_bytes: NonZeroU32,
    read_bias: i32,
    create_bias: i32,
    buffered: bool,
    threads: NonZeroUsize,
    sync: SyncMode,
}

impl From<PostmarkConfig> for Fields {
    fn from(config: PostmarkConfig) -> Self {
        let PostmarkConfig { settings, threads, sync } = config;
        Self {
            number: settings.number,
            transactions: settings.transactions,
            size_low_bytes: settings.size.low(),
            size_high_bytes: settings.size.high(),
            subdirectories: settings.subdirectories,
            read_block_bytes: settings.read_block,
            write_block_bytes: settings.write_block,
            read_bias: settings.read_bias.value(),
            create_bias: settings.create_bias.value(),
            buffered: settings.buffered,
            threads,
            sync,
        }
    }
}

impl PostmarkConfig {
    /// Files and bytes that are there when the transactions begin, at least; what they add and remove is even, by the
    /// defaults.
    pub fn set_of_files(&self) -> (u64, u64) {
        let files = u64::from(self.settings.number.get()) * self.threads.get() as u64;
        let sizes = u64::from(self.settings.size.low()) + u64::from(self.settings.size.high());
        // Nine tenths: sizes are drawn, and the mean of few may be below that of the law.
        (files, files.saturating_mul(sizes / 2) / 10 * 9)
    }

    /// Each rank's workers draw otherwise: two ranks of one thread do what one process of two threads does.
    pub(super) fn settings_of_rank(&self, rank: u32) -> Settings {
        let seeds_before = rank.wrapping_mul(self.threads.get() as u32);
        Settings { seed: self.settings.seed.wrapping_add(seeds_before), ..self.settings.clone() }
    }

    pub(super) fn expected(&self) -> Expected {
        let all = |each: NonZeroU32| u64::from(each.get()) * self.threads.get() as u64;
        Expected { files: all(self.settings.number), transactions: all(self.settings.transactions) }
    }
}
