//! Fstress as one of the benchmarks.
//!
//! Always holds: each load level is merged over all ranks before the next is chosen, so that every rank ends with the same
//! part; a level is kept as soon as it is measured.

use files::Transport;
use harness::open_loop::{WaitChoice, chosen_waiting};
use harness::{Benchmark, Context, Ended, Event, Figures, Surroundings};
use measure::{LoadPoint, MachineLog, MetricDeclaration, Phase, RankPart, StorageCost};
use quanta::Clock;
use serde::{Deserialize, Serialize};

use crate::error::FstressError;
use crate::load::Load;
use crate::results::judge;
use crate::run::{CostCounts, FstressConfig, METRICS, RunOutcome, metrics, place, run_watched};

/// Fstress with its settings.
#[derive(Clone, Debug)]
pub struct Fstress {
    /// What to run.
    pub config: FstressConfig,
}

/// Storage for an open loop, reached.
pub struct Reached {
    /// Carries the requests.
    pub transport: Box<dyn Transport>,
    /// The clock that it counts by.
    pub clock: Clock,
}

/// What was measured, of all ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// Load levels, in the order measured.
    pub points: Vec<LoadPoint>,
    /// Building and removing.
    pub phases: Vec<Phase>,
    /// False when it was cut short.
    pub complete: bool,
    /// What else the machines did while the levels ran.
    pub machine: MachineLog,
    /// What operations and files cost, as far as it is known before the end.
    #[serde(default)]
    pub(crate) costs: CostCounts,
    /// How the generator waited between requests; none when no level came to its measured interval. Of this rank.
    pub waited: Option<WaitChoice>,
}

impl Benchmark for Fstress {
    const NAME: &'static str = "fstress";
    const METRICS: &'static [MetricDeclaration] = METRICS;
    const MERGES_AS_IT_RUNS: bool = true;
    type Config = FstressConfig;
    type Storage = Reached;
    type Part = Part;
    type Error = FstressError;

    fn config(&self) -> &FstressConfig {
        &self.config
    }

    fn run(&self, storage: &mut Reached, context: &mut Context<'_>) -> Ended<Part, FstressError> {
        let events = context.events.clone();
        let (mut so_far, mut level) = (Part::default(), 1);
        let mut tell = |event: Event| {
            match &event {
                Event::Waits(choice) => so_far.waited = Some(*choice),
                Event::LevelBegins(begun) => level = begun.number,
                Event::LevelDone(point) => {
                    place(&mut so_far.points, level, (**point).clone());
                    let figures = self.figures(&so_far, &Surroundings::default());
                    events.send(Event::Checkpoint(Box::new(figures)));
                }
                _ => {}
            }
            events.send(event);
        };
        let Reached { transport, clock } = storage;
        let group = context.ranks.group();
        let outcome =
            run_watched(&self.config, &mut **transport, clock, context.stop, &mut tell, group, true);
        let RunOutcome { points, phases, complete, waited, machine, costs, error, left_behind, .. } = outcome;
        if let Some(left) = left_behind {
            context.warn(&left);
        }
        Ended { part: Some(Part { points, phases, complete, machine, costs, waited }), error }
    }

    fn merge(&self, mut parts: Vec<(RankPart, Part)>) -> Part {
        parts.swap_remove(0).1
    }

    fn figures(&self, whole: &Part, _around: &Surroundings) -> Figures {
        figures_of(whole, &self.config.load)
    }
}

/// What a record says of the whole.
pub(crate) fn figures_of(whole: &Part, load: &Load) -> Figures {
    let cost = whole.costs.cost(&whole.machine);
    let mut metrics = metrics(&whole.points, &whole.machine, load);
    metrics.extend(cost.iter().flat_map(StorageCost::metrics));
    Figures {
        metrics,
        not_seen: cost.as_ref().map(StorageCost::not_seen).unwrap_or_default(),
        points: whole.points.clone(),
        phases: whole.phases.clone(),
        chosen: chosen_waiting(whole.waited),
        complete: whole.complete,
        any_measured: !whole.points.is_empty(),
        ..Figures::of(judge::run_verdict(&whole.points, whole.complete, load))
    }
}
