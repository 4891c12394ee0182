//! The measurements of directories as one of the benchmarks.
//!
//! Always holds: what is known is kept as soon as a size is measured in all layouts.

use std::sync::Arc;

use files::FileSystem;
use harness::{Benchmark, Context, Ended, Figures, Step, Surroundings};
use measure::{CacheControl, MetricDeclaration, RankPart};

use crate::run::{Event, Work, run};
use crate::{DirscaleConfig, DirscaleError, METRICS, Part};

/// The measurements with their settings.
#[derive(Clone, Debug)]
pub struct Dirscale {
    /// What is asked of it.
    pub config: DirscaleConfig,
}

/// Storage, and what empties the caches above it.
pub struct Reached {
    /// The storage; the run makes a folder in it.
    pub fs: Arc<dyn FileSystem>,
    /// Its caches.
    pub caches: Box<dyn CacheControl + Send>,
}

impl Benchmark for Dirscale {
    const NAME: &'static str = "dirscale";
    const METRICS: &'static [MetricDeclaration] = METRICS;
    type Config = DirscaleConfig;
    type Storage = Reached;
    type Part = Part;
    type Error = DirscaleError;

    fn config(&self) -> &DirscaleConfig {
        &self.config
    }

    fn run(&self, storage: &mut Reached, context: &mut Context<'_>) -> Ended<Part, DirscaleError> {
        let Reached { fs, caches } = storage;
        let mut tell = |event: Event| match event {
            Event::SizeMeasured(part) => context.checkpoint(part.figures(&self.config)),
            Event::AllMeasured(part, files) => {
                let figures = Box::new(part.figures(&self.config));
                context.tell(harness::Event::Measured { figures, files });
            }
            event => event.shown().into_iter().for_each(|event| context.tell(event)),
        };
        run(&self.config, Arc::clone(fs), &mut **caches, context.stop, &mut tell)
    }

    /// One directory in use by several at once would be another question: no verb runs this with ranks.
    fn merge(&self, mut parts: Vec<(RankPart, Part)>) -> Part {
        parts.swap_remove(0).1
    }

    fn figures(&self, whole: &Part, _around: &Surroundings) -> Figures {
        whole.figures(&self.config)
    }
}

impl Event {
    /// The same for a reporter of any benchmark; none for what a user need not see.
    pub fn shown(self) -> Option<harness::Event> {
        let step = |work: String, done, of| {
            Some(harness::Event::Step(Step { work, done, of: Some(of), ..Step::default() }))
        };
        match self {
            Self::Note(text) => Some(harness::Event::Note(text)),
            Self::Progress { work: Work::Fill(layout), done, of } => {
                step(format!("{layout}: making files"), done, of)
            }
            Self::Progress { work: Work::Remove, done, of } => step("removing files".to_owned(), done, of),
            Self::SizeBegins { files, number, sizes } => {
                step(format!("measuring {files} files, size"), number as u64, sizes as u64)
            }
            Self::Measured { .. } | Self::SizeMeasured(_) | Self::AllMeasured(..) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use files::LocalFs;
    use harness::Events;
    use harness::ranks::RankGroup;
    use measure::UnreachableCaches;

    use super::*;
    use crate::Cache;

    fn short() -> Dirscale {
        let config = DirscaleConfig {
            sizes: "16,64".parse().unwrap(),
            cache: Cache::Warm,
            operations: std::num::NonZeroU32::new(20).unwrap(),
            rounds: std::num::NonZeroU32::MIN,
            ..DirscaleConfig::new("t")
        };
        Dirscale { config }
    }

    fn reached(root: &std::path::Path) -> Reached {
        let caches = Box::new(UnreachableCaches { why: "a test".to_owned() });
        Reached { fs: Arc::new(LocalFs::open(root).unwrap()), caches }
    }

    #[test]
    fn a_part_that_was_written_and_read_back_gives_the_same_figures() {
        let bench = tempfile::tempdir().unwrap();
        let (benchmark, stop) = (short(), Arc::default());
        let mut group = RankGroup::solo();
        let mut context = Context {
            ranks: harness::ranks::Replicas::new(&mut group, &stop),
            stop: &stop,
            events: Events::unheard(),
        };
        let ended = benchmark.run(&mut reached(bench.path()), &mut context);
        let part = ended.part.unwrap();
        let again: Part = serde_json::from_str(&serde_json::to_string(&part).unwrap()).unwrap();
        let around = Surroundings::default();
        let (first, second) = (benchmark.figures(&part, &around), benchmark.figures(&again, &around));
        assert!(first.complete && first.any_measured && !first.metrics.is_empty());
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
    }

    #[test]
    fn a_run_reports_each_size_and_what_it_makes() {
        let bench = tempfile::tempdir().unwrap();
        let (events, heard) = Events::new();
        let config = DirscaleConfig { sizes: "16, 600".parse().unwrap(), ..short().config };
        let benchmark = Dirscale { config };
        let ran = harness::run(
            &benchmark,
            &mut reached(bench.path()),
            &mut RankGroup::solo(),
            &Arc::default(),
            events,
        );
        assert!(ran.error.is_none() && ran.figures.unwrap().complete);
        let steps: Vec<String> = heard
            .filter_map(|event| match event {
                harness::Event::Step(step) => Some(format!("{}: {} of {}", step.work, step.done, step.of?)),
                _ => None,
            })
            .collect();
        for expected in ["measuring 600 files, size: 2 of 2", "flat: making files: 512 of 600"] {
            assert!(steps.iter().any(|step| step == expected), "{expected}: {steps:?}");
        }
    }

    #[test]
    fn each_size_is_kept_once_it_is_measured_in_case_that_the_process_is_killed() {
        let bench = tempfile::tempdir().unwrap();
        let (events, heard) = Events::new();
        let (mut group, stop) = (RankGroup::solo(), Arc::default());
        let ran = harness::run(&short(), &mut reached(bench.path()), &mut group, &stop, events);
        assert!(ran.figures.unwrap().complete);
        let kept: Vec<Figures> = heard
            .filter_map(|event| match event {
                harness::Event::Checkpoint(figures) => Some(*figures),
                _ => None,
            })
            .collect();
        let sizes: Vec<usize> = kept.iter().map(|kept| kept.curves[0].lines[0].points.len()).collect();
        assert_eq!(sizes, [1, 2]);
        assert!(kept.iter().all(|kept| !kept.complete && kept.verdict.has("interrupted")));
    }

    #[test]
    fn settings_are_written_by_the_names_that_records_have() {
        let kept = DirscaleConfig { keep: crate::Keep::Keep, ..short().config };
        let json = serde_json::to_value(&kept).unwrap();
        assert_eq!(json["layouts"], serde_json::json!(["flat", "345"]));
        assert_eq!((&json["sizes"], &json["cache"]), (&"16, 64".into(), &"warm".into()));
        assert_eq!(json["set"], "crumb-dirscale-t");
        // A set that is removed has another name each time, which is no setting that differs.
        assert!(serde_json::to_value(&short().config).unwrap()["set"].is_null());
    }
}
