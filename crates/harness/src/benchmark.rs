//! The path of a run, the same for every benchmark.
//!
//! ```text
//! on each rank: Benchmark::run -> Ended { part }  --+
//!                                                   |  all have come to their end (or none is waited for)
//! on rank 0:    merge(parts) -> whole ------------- +
//! on each rank: figures(whole) -> Figures              what a record says
//! ```
//!
//! Always holds: one process is the case of one part; a figure is computed from the whole and never merged from the figures
//! of ranks; what was measured survives an error; nothing blocks in [`Context::tell`].
//! Not here: opening storage, storing and showing what came of it (the binary).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use measure::{Curve, LoadPoint, MetricDeclaration, Phase, RankPart, Verdict};
use serde::{Serialize, de::DeserializeOwned};

use crate::ranks::{RankGroup, RanksError, Replicas};
use crate::{Event, Events};

/// A benchmark with its settings.
///
/// ```
/// use std::convert::Infallible;
///
/// use harness::ranks::RankGroup;
/// use harness::{Benchmark, Context, Ended, Events, Figures, Surroundings};
/// use measure::{MetricDeclaration, RankPart, Verdict};
///
/// /// Counts to a number; its storage has to be counted to nothing.
/// struct Counting(u64);
///
/// impl Benchmark for Counting {
///     const NAME: &'static str = "counting";
///     const METRICS: &'static [MetricDeclaration] = &[MetricDeclaration::rate("counted_per_sec", "Counted").answers()];
///     type Config = u64;
///     type Storage = ();
///     type Part = u64;
///     type Error = Infallible;
///
///     fn config(&self) -> &u64 {
///         &self.0
///     }
///
///     fn run(&self, _storage: &mut (), _context: &mut Context<'_>) -> Ended<u64, Infallible> {
///         Ended::complete((1..=self.0).count() as u64)
///     }
///
///     fn merge(&self, parts: Vec<(RankPart, u64)>) -> u64 {
///         parts.into_iter().map(|(_, counted)| counted).sum()
///     }
///
///     fn figures(&self, whole: &u64, _around: &Surroundings) -> Figures {
///         Figures {
///             metrics: [("counted_per_sec".to_owned(), *whole as f64)].into(),
///             any_measured: *whole > 0,
///             ..Figures::of(Verdict::valid())
///         }
///     }
/// }
///
/// let stop = Default::default();
/// let ran = harness::run(&Counting(3), &mut (), &mut RankGroup::solo(), &stop, Events::unheard());
/// assert_eq!(ran.figures.unwrap().metrics["counted_per_sec"], 3.0);
/// ```
pub trait Benchmark: Sync {
    /// What records call it.
    const NAME: &'static str;
    /// Its metrics, the best first.
    const METRICS: &'static [MetricDeclaration];
    /// The ranks merge each load level before they choose the next: all return the same part, and nothing is left to merge.
    const MERGES_AS_IT_RUNS: bool = false;
    /// Settings, as a record keeps them. Ranks of one run have equal ones, so nothing in here is of one rank alone.
    type Config: Serialize;
    /// What it works on, opened.
    type Storage: Send;
    /// Raw counts and times of one rank, or of all.
    type Part: Serialize + DeserializeOwned + Send;
    /// What ends it early.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Its settings.
    fn config(&self) -> &Self::Config;

    /// Runs as one rank, or alone. Removes what it made, whatever happens.
    fn run(&self, storage: &mut Self::Storage, context: &mut Context<'_>) -> Ended<Self::Part, Self::Error>;

    /// Makes one part of those of all ranks, which come in the order of ranks, each with who it is and how late it began.
    /// Not called for a process alone, nor where [`Self::MERGES_AS_IT_RUNS`].
    fn merge(&self, parts: Vec<(RankPart, Self::Part)>) -> Self::Part;

    /// What a record says of the whole.
    fn figures(&self, whole: &Self::Part, around: &Surroundings) -> Figures;
}

/// What surrounds one rank while it runs.
pub struct Context<'a> {
    /// The other ranks: the gate before each phase, and collectives through [`Replicas::group`].
    pub ranks: Replicas<'a>,
    /// Raised when the run is to end early: by a signal, or by another rank.
    pub stop: &'a Arc<AtomicBool>,
    /// Receives events while the run continues.
    pub events: Events,
}

impl Context<'_> {
    /// Keeps what is measured so far, in case that the process is killed.
    pub fn checkpoint(&self, figures: Figures) {
        self.tell(Event::Checkpoint(Box::new(figures)));
    }

    /// Reports what went wrong and does not end the run.
    pub fn warn(&self, error: &dyn std::error::Error) {
        self.tell(Event::Warning(measure::error_chain(error)));
    }

    /// Reports progress. Returns at once.
    pub fn tell(&self, event: Event) {
        self.events.send(event);
    }
}

/// How a run ended on one rank.
#[derive(Debug)]
pub struct Ended<P, E> {
    /// What was measured, also when it ended early.
    pub part: Option<P>,
    /// What ended it early.
    pub error: Option<E>,
}

impl<P, E> Ended<P, E> {
    /// It came to its end.
    pub fn complete(part: P) -> Self {
        Self { part: Some(part), error: None }
    }

    /// It failed before anything was measured.
    pub fn failed(error: E) -> Self {
        Self { part: None, error: Some(error) }
    }
}

/// What figures depend on besides the part.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The hosts in the order of ranks; none for a process alone.
    pub hosts: Vec<String>,
}

impl Surroundings {
    /// Whether several ranks ran.
    pub fn is_joined(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// Whether all ranks ran on one host, so that what that host counts is theirs.
    pub fn one_host(&self) -> bool {
        self.hosts.iter().all(|host| *host == self.hosts[0])
    }
}

/// What a record says of a run.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Load levels.
    pub points: Vec<LoadPoint>,
    /// Phases.
    pub phases: Vec<Phase>,
    /// Curves over something else than load.
    pub curves: Vec<Curve>,
    /// Figures by name, as declared.
    pub metrics: BTreeMap<String, f64>,
    /// Why figures that the run was to have could not be seen, by name.
    pub not_seen: BTreeMap<String, String>,
    /// Settings that the run itself chose, by their names in a record's configuration.
    pub chosen: Vec<(&'static str, serde_json::Value)>,
    /// Metrics that answer the run's question, the best first; none: those that the declarations say.
    pub headline: Vec<String>,
    /// Whether to believe them.
    pub verdict: Verdict,
    /// Whether the run came to its end.
    pub complete: bool,
    /// Whether anything was measured. Making files ready for it is not.
    pub any_measured: bool,
}

impl Figures {
    /// Nothing yet but a verdict; complete.
    pub fn of(verdict: Verdict) -> Self {
        Self {
            points: vec![],
            phases: vec![],
            curves: vec![],
            metrics: BTreeMap::new(),
            not_seen: BTreeMap::new(),
            chosen: vec![],
            headline: vec![],
            verdict,
            complete: true,
            any_measured: false,
        }
    }
}

/// What came of a run.
#[derive(Debug)]
pub struct Ran<E: std::error::Error + 'static> {
    /// Of all ranks together, the same on each; none where nothing was measured, or a rank is lost.
    pub figures: Option<Figures>,
    /// What ended it early.
    pub error: Option<RunError<E>>,
}

/// What ends a run early.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E: std::error::Error + 'static> {
    /// Something here.
    #[error(transparent)]
    Benchmark(E),
    /// Something on another rank.
    #[error(transparent)]
    Ranks(RanksError),
}

/// Runs a benchmark as one rank of `group`, or alone. All ranks return at about the same moment with the same figures.
pub fn run<B: Benchmark>(
    benchmark: &B,
    storage: &mut B::Storage,
    group: &mut RankGroup,
    stop: &Arc<AtomicBool>,
    events: Events,
) -> Ran<B::Error> {
    let around = Surroundings { hosts: group.hosts().to_vec() };
    let mut context = Context { ranks: Replicas::new(group, stop), stop, events };
    let Ended { part, error } = benchmark.run(storage, &mut context);
    let Context { ranks: mut replicas, .. } = context;
    let problem = error.as_ref().map(|error| measure::error_chain(error));
    let own_error = error.map(RunError::Benchmark);
    if !around.is_joined() || B::MERGES_AS_IT_RUNS {
        let figures = part.map(|part| benchmark.figures(&part, &around));
        return Ran { figures, error: own_error };
    }
    let all_well = replicas.end(problem);
    // The part of this rank is not the whole, and the whole is lost with a rank.
    let whole =
        if replicas.group().lost().is_some() { Ok(None) } else { whole(benchmark, &mut replicas, part) };
    let error = own_error.or(all_well.err().map(RunError::Ranks));
    match whole {
        Ok(whole) => Ran { figures: whole.map(|whole| benchmark.figures(&whole, &around)), error },
        Err(lost) => Ran { figures: None, error: error.or(Some(RunError::Ranks(lost))) },
    }
}

/// One part of those of all ranks that have one.
fn whole<B: Benchmark>(
    benchmark: &B,
    replicas: &mut Replicas<'_>,
    part: Option<B::Part>,
) -> Result<Option<B::Part>, RanksError> {
    let row = replicas.row(RankPart::default());
    let merge = |parts: Vec<(RankPart, Option<B::Part>)>| {
        let parts: Vec<(RankPart, B::Part)> =
            parts.into_iter().filter_map(|(row, part)| Some((row, part?))).collect();
        (!parts.is_empty()).then(|| benchmark.merge(parts))
    };
    replicas.group().add_up("what the ranks measured", (row, part), merge)
}
