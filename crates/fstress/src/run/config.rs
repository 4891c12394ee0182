//! What to run: the checked settings of a run.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use harness::open_loop::Wait;
use serde::Serialize;

use crate::load::Load;
use crate::open_loop::arrivals::Arrivals;
use crate::workload::Workload;

/// What to run; as JSON the fields of a record's configuration.
#[derive(Clone, Debug, Serialize)]
#[serde(into = "ConfigFields")]
pub struct FstressConfig {
    /// What to ask.
    pub workload: Workload,
    /// How much of it.
    pub load: Load,
    /// How requests follow each other in an open loop. Default uniform, as in the paper.
    pub arrivals: Arrivals,
    /// Warm-up before each measured interval. The paper: 120 s.
    pub warm: Duration,
    /// Measured interval. The paper: 240 s.
    pub measure: Duration,
    /// How long to wait for replies after it. Default 10 s.
    pub drain: Duration,
    /// How the generator waits for the moment of the next request.
    pub wait: Wait,
    /// How many files.
    pub files: FileCount,
    /// Same seed, same operations.
    pub seed: u64,
    /// What becomes of the file set.
    pub keep: Keep,
    /// Name of the set's root directory in the target.
    pub set_name: String,
    /// Requests in flight while building. Default 64 over TCP and locally; 8 over UDP, where some servers lose
    /// what does not fit their receive buffer.
    pub build_in_flight: usize,
    /// Where every measured request is written to by itself: this path, and behind it `-rank-N.csv`, 0 for a generator alone.
    pub raw: Option<PathBuf>,
}

/// By the names in records.
#[derive(Serialize)]
struct ConfigFields {
    workload: String,
    workload_toml: String,
    load: String,
    arrivals: String,
    warm_s: f64,
    measure_s: f64,
    drain_s: f64,
    raw_samples: bool,
    file_set: String,
}

impl From<FstressConfig> for ConfigFields {
    fn from(config: FstressConfig) -> Self {
        Self {
            workload_toml: config.workload.to_toml(),
            workload: config.workload.name,
            load: config.load.to_string(),
            arrivals: config.arrivals.to_string(),
            warm_s: config.warm.as_secs_f64(),
            measure_s: config.measure.as_secs_f64(),
            drain_s: config.drain.as_secs_f64(),
            raw_samples: config.raw.is_some(),
            file_set: config.set_name,
        }
    }
}

impl FstressConfig {
    /// Files at the highest load, where that is known before the run.
    pub fn files_max(&self) -> Option<u64> {
        if !self.workload.needs_files() {
            return Some(0);
        }
        match (self.files, &self.load) {
            (FileCount::Fixed(files), _) => Some(files.get()),
            (FileCount::Scaled, Load::Sweep(rates)) => {
                rates.iter().map(|rate| self.workload.scale.files_at(*rate)).max()
            }
            (FileCount::Scaled, Load::Max { .. }) => Some(self.workload.scale.files_at(CLOSED_LOOP_RATE)),
            (FileCount::Scaled, Load::Auto { .. } | Load::FindMax { .. }) => None,
        }
    }

    /// The rate that a search begins with, requests a second, and how many files its set has then: it grows with the rate. None
    /// where [`Self::files_max`] is known.
    pub fn files_first(&self) -> Option<(f64, u64)> {
        match self.load {
            Load::Auto { first } | Load::FindMax { first, .. } if self.files_max().is_none() => {
                Some((first, self.workload.scale.files_at(first)))
            }
            _ => None,
        }
    }
}

/// How many files a set has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FileCount {
    /// As the workload scales with the rate.
    Scaled,
    /// This number, the same at every rate.
    Fixed(NonZeroU64),
}

/// What becomes of the file set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// A new one is made, and removed at the end.
    Remove,
    /// A new one is made and kept.
    Keep,
    /// Taken as it is, made where it is missing, kept.
    Reuse,
}

/// A closed loop has no rate to scale the file set by; this one is taken.
pub(super) const CLOSED_LOOP_RATE: f64 = 1000.0;
