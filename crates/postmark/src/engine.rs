//! One run of the benchmark: five phases, by one worker or by several side by side.
//!
//! ```text
//! settings, seed -> Worker 0 --+                                  each worker: own table, own draws
//! settings, seed+1 -> Worker 1 +--> subdirectories | create | transactions | delete | subdirectories
//!                              |     all workers end a phase before any begins the next
//!                              `--> Outcome: counts added up, times of the phases, latencies merged
//! ```
//!
//! Always holds: after a failure or an interrupt the removing phases still run, so that no file of the run stays;
//! the clock is read only between phases, once, or twice if ranks wait for each other; one worker's counts are PostMark 1.51's.
//! Not here: what a worker does (see `worker`), words for people (see `report` and `Session`).

mod outcome;
mod worker;

use std::fmt;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use files::{FileSystem, FsError, Status};
use harness::{Entry, NoGate, PhaseGate, RankState};
use measure::{CpuMeter, EndedThreads};
use serde::{Deserialize, Serialize};

pub use outcome::{Counts, Ending, Latencies, Outcome, PhaseTimes, RunEnd};

use crate::clock::{Clock, SystemClock};
use crate::{PostmarkError, Settings};
use worker::Worker;

/// A location, opened.
#[derive(Clone)]
pub struct Place {
    /// Storage with its root at the location.
    pub fs: Arc<dyn FileSystem>,
    /// How often it is chosen relative to the others.
    pub weight: NonZeroU32,
}

/// What a run does besides the original's work.
#[derive(Clone)]
pub struct RunOptions {
    /// When data must be durable.
    pub sync: SyncMode,
    /// Times each operation on a file, which costs two readings of the system's clock each.
    pub latencies: bool,
    /// Times the phases.
    pub clock: Arc<dyn Clock>,
    /// Counts up during the run, for a progress display: files created before the transactions, transactions, files
    /// removed after them.
    pub done: Arc<AtomicU64>,
    /// Where threads of workers leave behind how long they waited for a CPU.
    pub ended: EndedThreads,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            sync: SyncMode::None,
            latencies: false,
            clock: Arc::new(SystemClock),
            done: Arc::default(),
            ended: EndedThreads::default(),
        }
    }
}

/// When data must be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncMode {
    /// When the system likes. The original's way.
    #[default]
    None,
    /// Before a file that was written to is closed (fsync).
    Close,
    /// After each call that writes (fsync).
    Every,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Making `s0`, `s1`, …; left out without subdirectories.
    MakeDirectories,
    /// Making the files.
    Create,
    /// Reading or appending, and creating or deleting.
    Transactions,
    /// Removing the files that are left.
    Delete,
    /// Removing `s0`, `s1`, …
    RemoveDirectories,
}

impl Phase {
    /// All, in order.
    pub const ALL: [Self; 5] =
        [Self::MakeDirectories, Self::Create, Self::Transactions, Self::Delete, Self::RemoveDirectories];

    fn removes(self) -> bool {
        matches!(self, Self::Delete | Self::RemoveDirectories)
    }

    fn about_directories(self) -> bool {
        matches!(self, Self::MakeDirectories | Self::RemoveDirectories)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MakeDirectories => "creating subdirectories",
            Self::Create => "creating files",
            Self::Transactions => "performing transactions",
            Self::Delete => "deleting files",
            Self::RemoveDirectories => "deleting subdirectories",
        })
    }
}

/// How a run gets on.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A phase begins.
    Begins(Phase),
    /// About a tenth of the first worker's transactions is done.
    Tenth,
    /// No file is left to work on; the transactions end.
    OutOfFiles,
    /// A phase is over.
    Ends {
        /// Which.
        phase: Phase,
        /// Nothing went wrong.
        well: bool,
        /// It ran out of files, as [`Event::OutOfFiles`] has reported.
        out_of_files: bool,
    },
    /// Something else went wrong besides what the run returns: most often when cleaning up.
    Trouble(PostmarkError),
}

/// Runs the benchmark once, as PostMark 1.51 would. `stop` ends it early; what it made is removed all the same.
///
/// # Errors
/// When the storage refuses something, or something is in the way. What the run had made is removed by then; what
/// could not be removed was reported as [`Event::Trouble`].
pub fn run(
    settings: &Settings,
    places: &[Place],
    how: &RunOptions,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Result<Outcome, PostmarkError> {
    alone(settings, places, how, &mut NoGate, stop, tell)?.whole()
}

/// Runs the benchmark by `threads` workers side by side, a closed loop of as many operations at a time. Each has
/// its own table, its own seed (`seed` and up), and its own directory `t0`, `t1`, … in each place.
///
/// # Errors
/// As [`run`].
pub fn run_threads(
    settings: &Settings,
    places: &[Place],
    how: &RunOptions,
    threads: NonZeroUsize,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Result<Outcome, PostmarkError> {
    side_by_side(settings, places, how, threads, &mut NoGate, stop, tell)?.whole()
}

/// Runs the benchmark as one rank of several, by one worker as [`run`] or by more as [`run_threads`]. Before each phase
/// the rank enters `gate`; the phase's time counts from when it came through. A failure here sets `stop`, and so does the
/// gate when another rank failed. What was done until a failure is kept beside it.
///
/// # Errors
/// When nothing could begin.
pub fn run_as_rank(
    settings: &Settings,
    places: &[Place],
    how: &RunOptions,
    threads: NonZeroUsize,
    gate: &mut dyn PhaseGate,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Result<RunEnd, PostmarkError> {
    match threads.get() {
        1 => alone(settings, places, how, gate, stop, tell),
        _ => side_by_side(settings, places, how, threads, gate, stop, tell),
    }
}

fn alone(
    settings: &Settings,
    places: &[Place],
    how: &RunOptions,
    gate: &mut dyn PhaseGate,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Result<RunEnd, PostmarkError> {
    let mut workers = [Worker::new(settings, places, how, settings.seed, stop)?];
    Ok(drive(&mut workers, settings, how, gate, stop, tell))
}

fn side_by_side(
    settings: &Settings,
    places: &[Place],
    how: &RunOptions,
    threads: NonZeroUsize,
    gate: &mut dyn PhaseGate,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Result<RunEnd, PostmarkError> {
    let mut homes = Homes { places, made: Vec::new() };
    let result = homes.make(threads).and_then(|homes| {
        let mut workers = homes
            .iter()
            .enumerate()
            .map(|(index, home)| {
                Worker::new(settings, home, how, settings.seed.wrapping_add(index as u32), stop)
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(drive(&mut workers, settings, how, gate, stop, tell))
    });
    match (result, homes.remove()) {
        (Ok(cut), Some(left)) if cut.error.is_none() => Ok(RunEnd { error: Some(left), ..cut }),
        (result, left) => {
            left.into_iter().for_each(|left| tell(Event::Trouble(left)));
            result
        }
    }
}

/// The directories `t0`, `t1`, … that workers live in.
struct Homes<'a> {
    places: &'a [Place],
    made: Vec<(usize, usize)>,
}

impl Homes<'_> {
    /// For each worker, the places it works in.
    fn make(&mut self, threads: NonZeroUsize) -> Result<Vec<Vec<Place>>, PostmarkError> {
        let mut homes = Vec::with_capacity(threads.get());
        for worker in 0..threads.get() {
            let name = format!("t{worker}");
            let mut home = Vec::with_capacity(self.places.len());
            for (index, place) in self.places.iter().enumerate() {
                place.fs.mkdir(name.as_ref()).map_err(|source| refused(source, Phase::MakeDirectories))?;
                self.made.push((worker, index));
                let fs = place.fs.below(name.as_ref());
                let fs = fs.map_err(|source| refused(source, Phase::MakeDirectories))?;
                home.push(Place { fs, weight: place.weight });
            }
            homes.push(home);
        }
        Ok(homes)
    }

    fn remove(&self) -> Option<PostmarkError> {
        let mut left = None;
        for (worker, index) in self.made.iter().rev() {
            let fs = &self.places[*index].fs;
            if let Err(source) = fs.rmdir(format!("t{worker}").as_ref()) {
                left.get_or_insert(PostmarkError::Left { place: fs.place(), left: 1, source });
            }
        }
        left
    }
}

/// Turns an existing name into [`PostmarkError::Taken`]; passes on all other errors of the storage.
fn refused(source: FsError, phase: Phase) -> PostmarkError {
    match &source {
        FsError::Failed { path, status: Status::EXIST, .. } => {
            PostmarkError::Taken { name: path.display().to_string(), source }
        }
        _ => PostmarkError::Storage { phase, source },
    }
}

fn drive(
    workers: &mut [Worker<'_>],
    settings: &Settings,
    how: &RunOptions,
    gate: &mut dyn PhaseGate,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> RunEnd {
    let mut failed = None;
    let mut phases = Vec::with_capacity(Phase::ALL.len());
    let mut started = how.clock.now();
    for phase in Phase::ALL {
        let needless = phase.about_directories() && settings.directories_made() == 0;
        let given_up = failed.is_some() || stop.load(Ordering::Relaxed);
        if needless || given_up && !phase.removes() {
            continue;
        }
        let state = if failed.is_some() { RankState::Failed } else { RankState::On };
        if gate.enter(&phase.to_string(), state) == Entry::Stop {
            stop.store(true, Ordering::Relaxed);
        }
        tell(Event::Begins(phase));
        if gate.is_joined() {
            started = how.clock.now();
        }
        let meter = CpuMeter::start();
        let errors = match &mut *workers {
            [worker] => worker.work(phase, &mut || tell(Event::Tenth)).err().into_iter().collect(),
            workers => work_at_once(workers, phase, &how.ended, tell),
        };
        let ended = how.clock.now();
        phases.push(PhaseTimes { phase, started, ended, cpu: meter.used() });
        started = ended;
        let out_of_files = phase == Phase::Transactions && workers.iter().any(|worker| worker.out_of_files);
        if out_of_files {
            tell(Event::OutOfFiles);
        }
        tell(Event::Ends { phase, well: errors.is_empty(), out_of_files });
        if !errors.is_empty() && gate.is_joined() {
            // The other ranks need not continue until they hear of it.
            stop.store(true, Ordering::Relaxed);
        }
        for error in errors {
            match failed {
                None => failed = Some(error),
                Some(_) => tell(Event::Trouble(error)),
            }
        }
    }
    let asked = u64::from(settings.transactions.get()) * workers.len() as u64;
    let mut outcome = Outcome::new(phases, how.latencies);
    for worker in workers {
        outcome.add(worker);
    }
    if failed.is_some() {
        outcome.ending = Ending::Failed;
    } else if stop.load(Ordering::Relaxed) && outcome.complete() && outcome.transactions_done < asked {
        outcome.ending = Ending::Interrupted;
    }
    RunEnd { outcome, error: failed }
}

/// Runs one phase by all workers, each in a thread of its own, and waits for all of them.
fn work_at_once(
    workers: &mut [Worker<'_>],
    phase: Phase,
    ended: &EndedThreads,
    tell: &mut dyn FnMut(Event),
) -> Vec<PostmarkError> {
    let (tenths, heard) = mpsc::channel();
    std::thread::scope(|scope| {
        let mut running = Vec::with_capacity(workers.len());
        let mut errors = Vec::new();
        for (index, worker) in workers.iter_mut().enumerate() {
            let tenths = (index == 0).then(|| tenths.clone());
            let work = move || {
                let _measuring = ended.measuring_thread();
                worker.work(phase, &mut || {
                    if let Some(tenths) = &tenths {
                        // Progress alone: when nobody listens any more nothing is lost.
                        let _ = tenths.send(());
                    }
                })
            };
            match std::thread::Builder::new().name(format!("postmark-{index}")).spawn_scoped(scope, work) {
                Ok(thread) => running.push(thread),
                Err(source) => errors.push(PostmarkError::Thread { worker: index, source }),
            }
        }
        drop(tenths);
        heard.iter().for_each(|()| tell(Event::Tenth));
        for thread in running {
            match thread.join() {
                Ok(done) => errors.extend(done.err()),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        errors
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use files::LocalFs;

    use super::*;

    /// A clock that goes only when it is moved.
    struct ByHand(Mutex<Instant>);

    impl ByHand {
        fn passes(&self, time: Duration) {
            *self.0.lock().unwrap() += time;
        }
    }

    impl Clock for ByHand {
        fn now(&self) -> Instant {
            *self.0.lock().unwrap()
        }
    }

    /// The others come 100 s later, each time.
    struct SlowGate(Arc<ByHand>);

    impl PhaseGate for SlowGate {
        fn is_joined(&self) -> bool {
            true
        }

        fn enter(&mut self, _phase: &str, _state: RankState) -> Entry {
            self.0.passes(Duration::from_secs(100));
            Entry::Go
        }
    }

    #[test]
    fn the_time_that_a_rank_waits_for_others_is_not_counted() {
        let dir = tempfile::tempdir().unwrap();
        let fs: Arc<dyn FileSystem> = Arc::new(LocalFs::open(dir.path().to_owned()).unwrap());
        let places = [Place { fs, weight: NonZeroU32::MIN }];
        let clock = Arc::new(ByHand(Mutex::new(Instant::now())));
        let how = RunOptions { clock: clock.clone(), ..RunOptions::default() };
        let mut gate = SlowGate(clock.clone());
        // Only the transactions report their tenths.
        let mut tell = |event: Event| {
            if let Event::Tenth = event {
                clock.passes(Duration::from_secs(1));
            }
        };
        let (one, stop) = (NonZeroUsize::MIN, AtomicBool::new(false));
        let outcome = run_as_rank(&Settings::default(), &places, &how, one, &mut gate, &stop, &mut tell);
        let outcome = outcome.and_then(RunEnd::whole).unwrap();
        let walls: Vec<_> = outcome.phases.iter().map(PhaseTimes::wall).collect();
        assert_eq!(walls, [0, 10, 0].map(Duration::from_secs));
    }

    #[test]
    fn a_rank_whose_gate_says_stop_only_cleans_up() {
        struct Stopping;
        impl PhaseGate for Stopping {
            fn is_joined(&self) -> bool {
                true
            }

            fn enter(&mut self, phase: &str, _state: RankState) -> Entry {
                if phase == Phase::Transactions.to_string() { Entry::Stop } else { Entry::Go }
            }
        }

        let dir = tempfile::tempdir().unwrap();
        let fs: Arc<dyn FileSystem> = Arc::new(LocalFs::open(dir.path().to_owned()).unwrap());
        let places = [Place { fs, weight: NonZeroU32::MIN }];
        let (one, stop) = (NonZeroUsize::MIN, AtomicBool::new(false));
        let (settings, how) = (Settings::default(), RunOptions::default());
        let outcome = run_as_rank(&settings, &places, &how, one, &mut Stopping, &stop, &mut |_| {});
        let outcome = outcome.and_then(RunEnd::whole).unwrap();
        assert_eq!((outcome.ending, outcome.transactions_done), (Ending::Interrupted, 0));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    }
}
