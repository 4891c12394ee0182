//! What a run timed and found, and what a record says of it.
//!
//! Always holds: every figure is computed from the samples, so that a part which was written and read back gives the same
//! record.

use files::Layout;
use harness::Figures;
use measure::{KeptFiles, MachineLog, NO_DEVICE, Phase, StorageCost, Verdict};
use serde::{Deserialize, Serialize};

use crate::results::{Measure, Paying, Results};
use crate::{Cache, DirscaleConfig};

/// Samples and phases of a run, raw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub(crate) results: Results,
    /// `fill LAYOUT FILES` and `MEASURE LAYOUT FILES`, in order; `pass` is the round.
    pub(crate) phases: Vec<Phase>,
    pub(crate) cache_log: CacheLog,
    /// What no figure shows: sizes without room, files that were not there.
    pub(crate) found: Verdict,
    /// What else the machine did while each size was made and measured.
    pub(crate) machine: MachineLog,
    /// A server did the work, out of sight.
    pub(crate) remote: bool,
    /// Bytes that the device wrote from the run's begin on, until the last size was measured; none without a device.
    pub(crate) written_bytes: Option<u64>,
    /// What the files of the largest size took.
    pub(crate) kept: Option<KeptFiles>,
    pub(crate) ending: Ending,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ending {
    /// All was measured.
    Complete,
    /// The user wanted no more, or it is not over.
    #[default]
    Interrupted,
    /// An error.
    Failed,
}

/// How the caches turned out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CacheLog {
    pub drops: u64,
    pub proven: u64,
    pub always_warm: Option<String>,
    /// Why pages are not proven cold with the names.
    pub names_alone: Option<String>,
    pub unknown: Option<String>,
}

/// From which size the layouts pay.
struct Conclusions {
    paying: Vec<Paying>,
    /// The largest size, where it is too small to conclude anything.
    too_small: Option<u64>,
}

/// Files in the largest directory below which nothing is concluded.
const FILES_MIN: u64 = 32;

impl Part {
    /// From which size each layout pays; empty when all sizes were too small to tell.
    pub fn paying(&self, config: &DirscaleConfig) -> Vec<Paying> {
        self.conclusions(config).paying
    }

    fn conclusions(&self, config: &DirscaleConfig) -> Conclusions {
        let paying = self.results.paying(&config.distinct_layouts(), &config.frequencies, config.seed);
        match self.results.largest().filter(|largest| *largest < files_least(config)) {
            Some(_) if !paying.is_empty() => {
                Conclusions { paying: vec![], too_small: self.results.largest() }
            }
            _ => Conclusions { paying, too_small: None },
        }
    }

    pub(crate) fn figures(&self, config: &DirscaleConfig) -> Figures {
        let (layouts, day) = (config.distinct_layouts(), &config.frequencies);
        let conclusions = self.conclusions(config);
        let mut metrics = self.results.metrics(&layouts, day, &conclusions.paying, config.seed);
        if !self.phases.is_empty() {
            metrics.insert("cache_drops".to_owned(), self.cache_log.drops as f64);
            metrics.insert("cache_drops_proven_cold".to_owned(), self.cache_log.proven as f64);
        }
        metrics.extend(self.machine.metrics());
        let cost = self.cost();
        metrics.extend(cost.metrics());
        let curves = self.results.curves(&layouts, day, config.seed).into_iter();
        let curves: Vec<_> =
            curves.filter(|curve| curve.lines.iter().any(|line| !line.points.is_empty())).collect();
        Figures {
            any_measured: !curves.is_empty(),
            curves,
            phases: self.phases.clone(),
            metrics,
            not_seen: cost.not_seen(),
            complete: self.ending == Ending::Complete,
            ..Figures::of(self.verdict(config, &layouts, &conclusions))
        }
    }

    /// What files and operations cost. Reading a whole directory is no operation on a file.
    fn cost(&self) -> StorageCost {
        let is_reading = |phase: &&Phase| phase.name.starts_with(Measure::Readdir.name());
        let of_files = || self.phases.iter().filter(|phase| !is_reading(phase));
        let stored = of_files().map(|phase| phase.bytes).sum();
        let (cpu, written) = if self.remote {
            let (machine, operations) =
                (&self.machine.whole, self.phases.iter().map(|phase| phase.items).sum());
            (StorageCost::cpu_of_server(machine, operations), StorageCost::written_by_server(machine, stored))
        } else {
            let written = self.written_bytes.map(|written| (written, stored));
            (StorageCost::cpu_of_phases(of_files()), written.ok_or_else(|| NO_DEVICE.to_owned()))
        };
        StorageCost { cpu, written, kept: StorageCost::kept_of(self.kept) }
    }

    fn verdict(&self, config: &DirscaleConfig, layouts: &[Layout], conclusions: &Conclusions) -> Verdict {
        let mut verdict = self.found.clone();
        self.machine.judge(&mut verdict);
        if let Some(largest) = conclusions.too_small {
            let least = files_least(config);
            verdict.remark(
                "sizes-too-small",
                format!(
                    "the size from which a layout pays is unknown: the largest directory had {largest} files, and \
                     {least} are the least; measure larger --sizes"
                ),
            );
        }
        if !self.phases.is_empty() {
            self.cache_log.judge(config.cache, &mut verdict);
        }
        for layout in layouts {
            let answers = conclusions.paying.iter().filter(|answer| answer.layout == *layout);
            let answers = answers.map(ToString::to_string).collect::<Vec<_>>().join("; ");
            if !answers.is_empty() {
                verdict.remark("pays-from", format!("{layout} against flat: pays {answers}"));
            }
        }
        if self.ending == Ending::Interrupted {
            verdict.invalidate("interrupted", "the run was interrupted");
        }
        if config.rounds.get() == 1 && !self.phases.is_empty() {
            let text = "each size was measured once: the intervals do not cover what differs from one time to the next";
            verdict.remark("one-round", format!("{text}; measure with --rounds 3 or more"));
        }
        if cfg!(debug_assertions) {
            verdict.remark("debug-build", "measured with a debug build: do not trust the figures");
        }
        verdict
    }
}

/// Files in the largest directory that conclusions need. While `operations` files are added the directory has up to that many
/// more: below that it is not one of its size.
fn files_least(config: &DirscaleConfig) -> u64 {
    config.operations().max(FILES_MIN)
}

impl CacheLog {
    fn judge(&self, asked: Cache, verdict: &mut Verdict) {
        if asked == Cache::Warm {
            return;
        }
        if let Some(why) = &self.always_warm {
            verdict.remark("cache-always-warm", format!("measured warm though cold was asked for: {why}"));
        } else if let Some(why) = &self.unknown {
            let unknown = self.drops - self.proven;
            let text = format!("cache state unknown in {unknown} of {} measurements: {why}", self.drops);
            verdict.remark("cache-state-unknown", text);
        }
        if let Some(why) = &self.names_alone {
            let text = format!("pages were dropped too, but only names are proven cold: {why}");
            verdict.remark("cold-pages-unproven", text);
        }
    }
}
