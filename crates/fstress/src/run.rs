//! One run from its begin to its end: file set, load points, removal, metrics, verdict.
//!
//! Always holds: what was measured is kept, however the run ends; the file set is removed unless it is to be
//! kept, also after an error or Ctrl-C, as long as the storage still answers.

mod config;
mod costs;
mod level;
mod levels;
mod metrics;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use files::{Fsstat, Outcome, Ticket, Transport};
use harness::Event;
use harness::open_loop::{Pacer, WaitChoice};
use harness::ranks::RankGroup;
use measure::{CpuMeter, CpuTimes, LoadPoint, MachineLog, MachineUse, Phase, Verdict};
use quanta::Clock;

pub use self::config::{FileCount, FstressConfig, Keep};
pub(crate) use self::costs::{CostCounts, Reach};
pub(crate) use self::level::place;
pub use self::metrics::METRICS;
pub(crate) use self::metrics::metrics;
use crate::benchmark::{Part, figures_of};
use crate::error::FstressError;
use crate::file_set::builder::{Builder, BuilderOptions, free_space};
use crate::file_set::crew::{FIRST_TICKET, Site};
use crate::load::Load;
use crate::objects::{Maker, ObjectSets};
use crate::open_loop::metronome::Flights;
use crate::open_loop::planner::Planner;
use crate::ranks::{FstressRanks as _, Work};
use crate::results::judge;
use crate::results::raw::RawFile;

/// What came of it.
#[derive(Debug)]
pub struct RunOutcome {
    /// Load points, in the order measured.
    pub points: Vec<LoadPoint>,
    /// Building and removing.
    pub phases: Vec<Phase>,
    /// The flat list for comparing.
    pub metrics: BTreeMap<String, f64>,
    /// Whether to believe it.
    pub verdict: Verdict,
    /// False when it was cut short.
    pub complete: bool,
    /// How the generator waited between requests; none when no level came to its measured interval.
    pub waited: Option<WaitChoice>,
    /// What else the machine did while the levels ran.
    pub machine: MachineLog,
    /// What operations and files cost.
    pub(crate) costs: CostCounts,
    /// What cut it short, if it was not the user.
    pub error: Option<FstressError>,
    /// Why the file set, or a part of it, is still there, when that is not the error itself.
    pub left_behind: Option<FstressError>,
}

/// Runs `config` on `transport`, telling `tell` how it goes, until done or `stop` is set.
pub fn run(
    config: &FstressConfig,
    transport: &mut dyn Transport,
    clock: &Clock,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> RunOutcome {
    run_together(config, transport, clock, stop, tell, &mut RankGroup::solo())
}

/// The same as one rank of `group`: the load is that of the whole, and so is what comes out, on every rank the same.
/// The group sets `stop` when another rank has come to an early end, and this sets it when this one has.
pub fn run_together(
    config: &FstressConfig,
    transport: &mut dyn Transport,
    clock: &Clock,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
    group: &mut RankGroup,
) -> RunOutcome {
    run_watched(config, transport, clock, stop, tell, group, false)
}

/// The same, and with `watches_machine` each level is judged by what else the machine did meanwhile. That is read from the machine
/// itself, so that it has no place in a run on a simulated clock.
pub(crate) fn run_watched(
    config: &FstressConfig,
    transport: &mut dyn Transport,
    clock: &Clock,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
    group: &mut RankGroup,
    watches_machine: bool,
) -> RunOutcome {
    let seed = group.seed(config.seed);
    let mut session = Session {
        seed,
        config,
        transport,
        clock,
        stop,
        tell,
        builder: Builder::new(
            config.workload.clone(),
            BuilderOptions {
                root_name: group.set_name(&config.set_name),
                in_flight_max: config.build_in_flight,
                adopt: config.keep == Keep::Reuse,
                kept: config.keep != Keep::Remove,
                seed,
            },
        ),
        group,
        pacer: Pacer::new(config.wait, 1),
        flights: Flights::default(),
        points: Vec::new(),
        watches_machine,
        machine: BTreeMap::new(),
        costs: CostCounts::default(),
        phases: Vec::new(),
        late: Vec::new(),
        next_ticket: FIRST_TICKET,
        levels_begun: 0,
        raw: None,
        set_bytes_made: 0,
    };
    session.costs = CostCounts::of(session.reach());
    let (set, result) = session.all_points();
    let result = session.in_its_words(result);
    if config.keep == Keep::Remove
        && let Some(set) = &set
    {
        session.tell_measured(&result, set.file_count());
    }
    let removed = match set {
        Some(set) if config.keep == Keep::Remove => session.remove(set),
        // It was not even begun, but its directory may be there.
        Some(set) => session.leave(set),
        None if config.keep == Keep::Remove => {
            (None, session.at_site(true, |builder, site| builder.remove_root(site)))
        }
        _ => (None, Ok(())),
    };
    let removed = (removed.0, session.in_its_words(removed.1));
    let (ended, mut left_behind) = session.removed(removed, result);
    if config.keep == Keep::Remove
        && let Some(name) = session.group.orphaned_set_name(&config.set_name)
    {
        let removed = session.at_site(true, |builder, site| builder.remove_of_another(&name, site));
        left_behind = session.in_its_words(removed).err().or(left_behind);
    }
    let (complete, error) = match ended {
        // Of several ranks each would have its own moment to look.
        Ok(()) => (session.group.is_joined() || !stop.load(Ordering::Relaxed), None),
        Err(FstressError::Interrupted) => (false, None),
        Err(error) => (false, Some(error)),
    };
    let machine = session.machine_log();
    let Session { points, phases, pacer, costs, .. } = session;
    RunOutcome {
        costs,
        metrics: metrics(&points, &machine, &config.load),
        machine,
        verdict: judge::run_verdict(&points, complete, &config.load),
        points,
        phases,
        complete,
        waited: pacer.choice(),
        error,
        left_behind,
    }
}

struct Session<'a> {
    config: &'a FstressConfig,
    group: &'a mut RankGroup,
    /// This rank's own.
    seed: u64,
    transport: &'a mut dyn Transport,
    clock: &'a Clock,
    stop: &'a AtomicBool,
    tell: &'a mut dyn FnMut(Event),
    builder: Builder,
    pacer: Pacer,
    flights: Flights,
    points: Vec<LoadPoint>,
    watches_machine: bool,
    /// What else the machine did, by the number of the load point.
    machine: BTreeMap<u32, MachineUse>,
    costs: CostCounts,
    phases: Vec<Phase>,
    late: Vec<Ticket>,
    next_ticket: u32,
    /// Repeats among them, so that a late reply to a level never counts in its repeat.
    levels_begun: u32,
    raw: Option<RawFile>,
    /// Bytes that the file set was made with, as of its present number of files.
    set_bytes_made: u64,
}

impl Session<'_> {
    fn all_points(&mut self) -> (Option<ObjectSets>, Result<(), FstressError>) {
        if let Err(error) = self.begin_raw() {
            return (None, Err(error));
        }
        let needs_files = self.config.workload.needs_files();
        // A set that is taken up is there already.
        if needs_files && self.config.keep != Keep::Reuse {
            let space = self.free_space();
            self.costs.begins(space);
        }
        let (set, begun) = if needs_files {
            match self.with_site(|builder, site| builder.begin(site)) {
                Ok(set) => (Some(set), Ok(())),
                Err(error) => (None, Err(error)),
            }
        } else {
            (Some(self.set_without_files()), Ok(()))
        };
        let begun = self.together("the directory of the file set", begun, None).1;
        let set = match (set, begun) {
            (Some(set), Ok(())) => set,
            (None, Ok(())) => unreachable!("a set that could not be begun is an error on all ranks"),
            (set, Err(error)) => return (set.filter(|_| needs_files), Err(error)),
        };
        let mut planner = Planner::new(
            self.config.workload.clone(),
            set,
            self.transport.io_bytes_max(),
            self.seed,
            self.clock.now(),
        );
        let result = levels::measure_all(self, &mut planner, needs_files);
        planner.settle_all();
        (needs_files.then_some(planner.set), result)
    }

    fn begin_raw(&mut self) -> Result<(), FstressError> {
        let Some(prefix) = &self.config.raw else { return Ok(()) };
        let rates: Vec<f64> = match &self.config.load {
            Load::Sweep(rates) => rates.iter().map(|rate| self.group.rate_of(*rate)).collect(),
            // How far a search goes shows when it is there.
            Load::Auto { .. } | Load::FindMax { .. } | Load::Max { .. } => vec![],
        };
        let (raw, made) = match RawFile::create(prefix, self.group.rank(), &rates, self.config.measure) {
            Ok(raw) => (Some(raw), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.raw = raw;
        self.together("the file of raw samples", made, None).1
    }

    /// Files of this rank while the whole has `rate`.
    fn files_at(&self, rate: f64) -> u64 {
        self.group.part_of(match self.config.files {
            FileCount::Scaled => self.config.workload.scale.files_at(rate),
            FileCount::Fixed(files) => files.get(),
        })
    }

    /// Brings the set to the size that `rate` calls for.
    fn resize(&mut self, planner: &mut Planner, rate: f64) -> Result<(), FstressError> {
        let files = self.files_at(rate);
        planner.settle_all();
        let (before, bytes_before) = (planner.set.file_count(), planner.set.file_bytes());
        let (result, work) = if files == before {
            // The others may have some to make, and then there is work of the whole.
            (Ok(()), None)
        } else {
            let (begun, cpu) = (self.clock.now(), CpuMeter::start());
            tracing::debug!(rank = self.group.rank(), files, "making files");
            planner.set.number_names_of(Maker::Builder);
            let result = self.with_site(|builder, site| builder.resize(&mut planner.set, files, site));
            planner.set.number_names_of(Maker::Operations);
            let wall_s = self.clock.now().saturating_duration_since(begun).as_secs_f64();
            let items = planner.set.file_count().abs_diff(before);
            let bytes = planner.set.file_bytes().saturating_sub(bytes_before);
            self.set_bytes_made = if files > before {
                self.set_bytes_made + bytes
            } else {
                (self.set_bytes_made as f64 * files as f64 / before as f64) as u64
            };
            (result, Some(work(files > before, wall_s, cpu.used(), items, bytes)))
        };
        let (work, result) = self.together("making files", result, work);
        if let Some(work) = work {
            self.phase(if work.grew { "build" } else { "shrink" }, &work);
        }
        for ticket in std::mem::take(&mut self.late) {
            self.flights.settle_late(ticket, planner, &Outcome::Cancelled);
        }
        if result.is_ok() {
            let space = self.free_space();
            self.costs.has_grown(planner.set.file_count(), planner.set.file_bytes(), space);
        }
        result
    }

    /// Where the system under test works, as far as costs go.
    fn reach(&mut self) -> Reach {
        // A clock that is simulated says nothing of this machine.
        match (self.watches_machine, self.group.is_joined(), self.transport.is_local()) {
            (false, ..) => Reach::Nowhere,
            (_, true, _) => Reach::Ranks,
            (_, _, true) => Reach::Here,
            _ => {
                let asked = self.with_site(|_, site| free_space(site)).is_ok();
                // Without bytes on a wire there is nothing behind the requests.
                if asked && self.transport.counters().sent_bytes > 0 { Reach::Server } else { Reach::Nowhere }
            }
        }
    }

    /// As the storage reports it, where that is of use.
    fn free_space(&mut self) -> Option<Fsstat> {
        if !self.costs.wants_space() || self.transport.has_room_of_its_own() {
            return None;
        }
        self.with_site(|_, site| free_space(site)).ok().flatten()
    }

    fn remove(&mut self, mut set: ObjectSets) -> (Option<Work>, Result<(), FstressError>) {
        // Interrupted or not, the set goes; a second Ctrl-C ends the process.
        let (begun, cpu, items) = (self.clock.now(), CpuMeter::start(), set.file_count());
        let result = self.at_site(true, |builder, site| builder.remove(&mut set, site));
        let wall_s = self.clock.now().saturating_duration_since(begun).as_secs_f64();
        (Some(work(false, wall_s, cpu.used(), items, 0)), result)
    }

    /// Hands over what was measured before the files are removed, which may take longer than it.
    fn tell_measured(&mut self, result: &Result<(), FstressError>, files: u64) {
        let part = Part {
            points: self.points.clone(),
            phases: self.phases.clone(),
            complete: result.is_ok() && !self.stop.load(Ordering::Relaxed),
            machine: self.machine_log(),
            costs: self.costs.clone(),
            waited: self.pacer.choice(),
        };
        let figures = Box::new(figures_of(&part, &self.config.load));
        (self.tell)(Event::Measured { figures, files });
    }

    fn machine_log(&self) -> MachineLog {
        let mut log = MachineLog::default();
        self.machine.values().for_each(|level| log.push("a level", level.clone()));
        log
    }

    /// Leaves a set that is kept as it was made, as far as names go, and free for others.
    fn leave(&mut self, mut set: ObjectSets) -> (Option<Work>, Result<(), FstressError>) {
        let makes_names = self.config.workload.requests().shares().iter().any(|(kind, _)| {
            use files::OpKind::{Create, Link, Mkdir, Mknod, Rename, Symlink};
            matches!(kind, Create | Mkdir | Symlink | Mknod | Rename | Link)
        });
        (None, self.at_site(true, |builder, site| builder.leave(&mut set, makes_names, site)))
    }

    /// The end of all ranks: how removing went, and before it the load points.
    fn removed(
        &mut self,
        (work, removed): (Option<Work>, Result<(), FstressError>),
        measured: Result<(), FstressError>,
    ) -> (Result<(), FstressError>, Option<FstressError>) {
        let (work, together) = self.group.all_went("the end", removed, work);
        // What could not be removed has no rate.
        if let (Some(work), Ok(())) = (&work, &together) {
            self.phase("remove", work);
        }
        match (measured, together) {
            // That the user asked for the end is no reason for what is left.
            (Ok(()) | Err(FstressError::Interrupted), Err(left)) => (Err(left), None),
            (measured, together) => (measured, together.err()),
        }
    }

    /// Continues once all ranks have done `step` without error.
    fn together(
        &mut self,
        step: &str,
        went: Result<(), FstressError>,
        work: Option<Work>,
    ) -> (Option<Work>, Result<(), FstressError>) {
        if went.is_err() {
            self.end_others();
        }
        self.group.all_went(step, went, work)
    }

    /// An error in the words of the storage.
    fn in_its_words(&self, result: Result<(), FstressError>) -> Result<(), FstressError> {
        let is_local = self.transport.is_local();
        result.map_err(|error| if is_local { error.in_local_words() } else { error })
    }

    /// What spoils the run here spoils it everywhere: the others need not go on until they hear of it.
    fn end_others(&self) {
        if self.group.is_joined() {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn phase(&mut self, name: &str, work: &Work) {
        let &Work { wall_s, user_s, sys_s, items, bytes, .. } = work;
        let pass = 1 + self.phases.iter().filter(|phase| phase.name == name).count() as u32;
        self.phases.push(Phase {
            name: name.to_owned(),
            pass,
            wall_s,
            user_s,
            sys_s,
            items,
            bytes,
            items_per_sec: if wall_s > 0.0 { items as f64 / wall_s } else { 0.0 },
            ..Phase::default()
        });
    }

    fn with_site<T>(&mut self, work: impl FnOnce(&mut Builder, &mut Site<'_>) -> T) -> T {
        self.at_site(false, work)
    }

    fn at_site<T>(&mut self, is_cleanup: bool, work: impl FnOnce(&mut Builder, &mut Site<'_>) -> T) -> T {
        let mut site = Site {
            transport: &mut *self.transport,
            clock: self.clock,
            stop: self.stop,
            is_cleanup,
            tell: &mut *self.tell,
            late: &mut self.late,
            next_ticket: &mut self.next_ticket,
        };
        work(&mut self.builder, &mut site)
    }

    /// For workloads such as NULL: nothing is made on the storage.
    fn set_without_files(&mut self) -> ObjectSets {
        let mut set = ObjectSets::new("", 1);
        let kept = set.set_directory_handle(crate::objects::DirectoryId::ROOT, self.transport.root().0);
        assert!(kept, "a root handle is a handle");
        set
    }
}

fn work(grew: bool, wall_s: f64, cpu: CpuTimes, items: u64, bytes: u64) -> Work {
    Work { grew, wall_s, user_s: cpu.user.as_secs_f64(), sys_s: cpu.sys.as_secs_f64(), items, bytes }
}
