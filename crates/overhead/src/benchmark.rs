//! The measurement of a layer as one of the benchmarks.

use std::path::PathBuf;

use harness::{Benchmark, Context, Ended, Figures, Step, Surroundings};
use measure::{MetricDeclaration, RankPart};

use crate::floor::FloorCommand;
use crate::run::{Progress, run};
use crate::{METRICS, OverheadConfig, OverheadError, Part};

/// The measurement with its settings.
#[derive(Clone, Debug)]
pub struct Overhead {
    /// What is asked of it.
    pub config: OverheadConfig,
}

/// The two directories.
#[derive(Clone, Debug)]
pub struct Sides {
    /// In the file system below.
    pub lower: PathBuf,
    /// Where the layer shows it.
    pub mount: PathBuf,
    /// The program that serves the floor; none without it.
    pub floor: Option<FloorCommand>,
}

impl Benchmark for Overhead {
    const NAME: &'static str = "overhead";
    const METRICS: &'static [MetricDeclaration] = METRICS;
    type Config = OverheadConfig;
    type Storage = Sides;
    type Part = Part;
    type Error = OverheadError;

    fn config(&self) -> &OverheadConfig {
        &self.config
    }

    fn run(&self, sides: &mut Sides, context: &mut Context<'_>) -> Ended<Part, OverheadError> {
        run(&self.config, sides, context.stop, &mut |progress| match progress {
            Progress::Round(round, of) => {
                let (done, of) = (u64::from(round), Some(u64::from(of)));
                context.tell(harness::Event::Step(Step {
                    work: "round".to_owned(),
                    done,
                    of,
                    ..Step::default()
                }));
            }
            Progress::Note(text) => context.tell(harness::Event::Note(text)),
            Progress::Kept(part) => context.checkpoint(part.figures(&self.config)),
        })
    }

    /// Several at once would be another question: no verb runs this with ranks.
    fn merge(&self, mut parts: Vec<(RankPart, Part)>) -> Part {
        parts.swap_remove(0).1
    }

    fn figures(&self, whole: &Part, _around: &Surroundings) -> Figures {
        whole.figures(&self.config)
    }
}

#[cfg(test)]
mod tests {
    use harness::Events;
    use harness::ranks::RankGroup;

    use super::*;

    #[test]
    fn two_directories_of_one_file_system_are_refused_and_nothing_is_left() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut sides = Sides { lower: one.path().into(), mount: two.path().into(), floor: None };
        let benchmark = Overhead { config: OverheadConfig::new("t") };
        let mut group = RankGroup::solo();
        let ran = harness::run(&benchmark, &mut sides, &mut group, &Default::default(), Events::unheard());
        let error = measure::error_chain(&ran.error.unwrap());
        assert!(error.contains("nothing lies between them"), "{error}");
        assert_eq!(std::fs::read_dir(one.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_part_that_was_written_and_read_back_gives_the_same_figures() {
        let part = Part { pairs: [(crate::Work::List, vec![(1.0, 3.0); 7])].into(), ..Part::default() };
        let again: Part = serde_json::from_str(&serde_json::to_string(&part).unwrap()).unwrap();
        let benchmark = Overhead { config: OverheadConfig::new("t") };
        let around = Surroundings::default();
        assert_eq!(
            format!("{:?}", benchmark.figures(&part, &around)),
            format!("{:?}", benchmark.figures(&again, &around))
        );
    }
}
