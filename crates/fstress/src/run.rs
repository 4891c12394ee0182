//! One run from its begin to its end: file set, load points, removal, metrics, verdict.
//!
//! Always holds: what was measured is kept, however the run ends; the file set is removed unless it is to be
//! kept, also after an error or Ctrl-C, as long as the storage still answers.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use files::{Outcome, Ticket, Transport};
use harness::open_loop::{Pacer, Wait, WaitChoice};
use harness::ranks::RankGroup;
use harness::{Event, Level};
use measure::{
    CpuMeter, CpuTimes, FileSetRecord, LoadPoint, MACHINE_METRICS, MachineLog, MachineMeter, MachineUse,
    MeterScope, MetricDeclaration, Phase, Verdict,
};
use quanta::Clock;
use serde::Serialize;

use crate::benchmark::{Part, figures_of};
use crate::error::FstressError;
use crate::file_set::builder::{Builder, BuilderOptions};
use crate::file_set::crew::{FIRST_TICKET, Site};
use crate::load::{Load, SEARCH_RULE, Search};
use crate::objects::{Maker, ObjectSets};
use crate::open_loop::arrivals::{Arrivals, stream};
use crate::open_loop::metronome::{CutShort, Flights, Measured, Metronome, Pace, Spans};
use crate::open_loop::planner::Planner;
use crate::ranks::{FstressRanks as _, Work};
use crate::results::judge::{self, Asked};
use crate::results::raw::RawFile;
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
    /// What happens to the file set at the end of the run.
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
}

/// How many files a set has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FileCount {
    /// As the workload scales with the rate.
    Scaled,
    /// This many, at any rate.
    Fixed(NonZeroU64),
}

/// What happens to the file set at the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Created by the run, and removed at its end.
    Remove,
    /// Created by the run, and kept.
    Keep,
    /// Taken as it is, made where it is missing, kept.
    Reuse,
}

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
    /// What cut it short, if it was not the user.
    pub error: Option<FstressError>,
    /// Why the file set, or a part of it, is still there, when that is not the error itself.
    pub left_behind: Option<FstressError>,
}

/// How often a search measures a level that the generator kept from being held, as the next rate depends on it.
const TRIES_MAX: u32 = 3;
/// A closed loop has no rate to scale the file set by; this one is taken.
const CLOSED_LOOP_RATE: f64 = 1000.0;

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
        phases: Vec::new(),
        late: Vec::new(),
        next_ticket: FIRST_TICKET,
        levels_begun: 0,
        raw: None,
        set_bytes_made: 0,
    };
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
    let Session { points, phases, pacer, .. } = session;
    RunOutcome {
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

/// A load level to measure.
struct LevelAsked {
    /// Its place among the levels of the run, from 1.
    number: u32,
    /// Of how many, where that is known.
    of: Option<u32>,
    /// Requests a second; none in a closed loop.
    rate: Option<f64>,
    /// Requests outstanding; none in an open loop.
    outstanding: Option<u32>,
    /// What spoilt the measurement that this one replaces.
    spoilt: Option<String>,
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
        let result = self.points_of(&mut planner, needs_files);
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

    fn points_of(&mut self, planner: &mut Planner, needs_files: bool) -> Result<(), FstressError> {
        match self.config.load.clone() {
            Load::Sweep(rates) => {
                let of = rates.len() as u32;
                for rate in rates {
                    if needs_files {
                        self.resize(planner, rate)?;
                    }
                    let level = LevelAsked { of: Some(of), ..self.next_level(rate) };
                    self.point(planner, level)?;
                }
                self.repeat_spoilt_answers(planner, needs_files)
            }
            Load::Auto { first } => self.search(planner, first, needs_files, "held", judge::was_held),
            Load::FindMax { first, bound } => {
                let goal = format!("held with {bound}");
                self.search(planner, first, needs_files, &goal, |point| {
                    judge::was_held(point) && judge::is_within(point, &bound)
                })
            }
            Load::Max { outstanding } => {
                if needs_files {
                    self.resize(planner, CLOSED_LOOP_RATE)?;
                }
                let outstanding = Some(outstanding);
                self.point(
                    planner,
                    LevelAsked { number: 1, of: Some(1), rate: None, outstanding, spoilt: None },
                )
            }
        }
    }

    fn search(
        &mut self,
        planner: &mut Planner,
        first: f64,
        needs_files: bool,
        goal: &str,
        holds: impl Fn(&LoadPoint) -> bool,
    ) -> Result<(), FstressError> {
        (self.tell)(Event::Note(format!("searching for the highest rate {goal}: {SEARCH_RULE}")));
        let mut search = Search::from(first);
        while let Some(rate) = search.next_rate() {
            if needs_files {
                self.resize(planner, rate)?;
            }
            let mut level = self.next_level(rate);
            let number = level.number;
            let mut tries_left = TRIES_MAX;
            loop {
                self.point(planner, level)?;
                tries_left -= 1;
                let point = &self.points[number as usize - 1];
                // A level that the generator spoilt says nothing about the storage.
                if holds(point) || !judge::was_spoilt_by_others(point) || tries_left == 0 {
                    break;
                }
                let why = point.verdict.to_string();
                (self.tell)(Event::Note(format!("{rate}/s is measured again: {why}")));
                level = LevelAsked { number, spoilt: Some(why), ..self.next_level(rate) };
            }
            search.learn(rate, holds(self.points.last().expect("a load point was just measured")));
        }
        self.repeat_spoilt_answers(planner, needs_files)
    }

    /// Measures again what the answer rests on and the generator spoilt, each level once: such a level says nothing about the
    /// storage. What the storage did has no level measured again.
    fn repeat_spoilt_answers(
        &mut self,
        planner: &mut Planner,
        needs_files: bool,
    ) -> Result<(), FstressError> {
        while let Some(index) = judge::answer_to_repeat(&self.points, &self.config.load) {
            let point = &self.points[index];
            let Some(rate) = point.offered_per_sec else { return Ok(()) };
            let why = point.verdict.to_string();
            (self.tell)(Event::Note(format!("{rate}/s is measured again, as the answer rests on it: {why}")));
            if needs_files {
                self.resize(planner, rate)?;
            }
            let (number, of) = (index as u32 + 1, Some(self.points.len() as u32));
            self.point(planner, LevelAsked { number, of, spoilt: Some(why), ..self.next_level(rate) })?;
        }
        Ok(())
    }

    /// The level after those measured so far, in an open loop.
    fn next_level(&self, rate: f64) -> LevelAsked {
        let number = self.points.len() as u32 + 1;
        LevelAsked { number, of: None, rate: Some(rate), outstanding: None, spoilt: None }
    }

    fn point(&mut self, planner: &mut Planner, level: LevelAsked) -> Result<(), FstressError> {
        let config = self.config;
        let LevelAsked { number, of, rate, outstanding, spoilt } = level;
        self.levels_begun += 1;
        let (warm, measure) = (config.warm, config.measure);
        (self.tell)(Event::LevelBegins(Level { offered_per_sec: rate, number, of, warm, measure }));
        let seed_of_point = self.seed ^ rand::Rng::next_u64(&mut stream(self.seed, 100 + u64::from(number)));
        let pace = match rate {
            Some(rate) => {
                let later = match config.arrivals {
                    Arrivals::Uniform => self.group.phase_of(rate),
                    // What is random already is independent of the other ranks.
                    _ => Duration::ZERO,
                };
                Pace::Open(config.arrivals.schedule(self.group.rate_of(rate), seed_of_point), later)
            }
            None => Pace::Closed(self.group.part_of(outstanding.unwrap_or(1).into()) as u32),
        };
        if let Some(raw) = &mut self.raw {
            let ready = raw.begin(rate.map(|rate| self.group.rate_of(rate)), config.measure);
            self.together("room for raw samples", ready, None).1?;
        }
        // Before the common begin, as it takes some milliseconds.
        let scope = MeterScope { has_ranks: self.group.is_joined(), ..MeterScope::of_threads(1) };
        let meter = self.watches_machine.then(|| MachineMeter::start(scope));
        let begin = self.group.begin(self.clock, config.warm, config.measure)?;
        let tell = &mut self.tell;
        let mut measured = Metronome {
            transport: &mut *self.transport,
            planner,
            flights: &mut self.flights,
            clock: self.clock,
            pacer: &mut self.pacer,
            stop: self.stop,
            tell: &mut |event| tell(event),
            point: self.levels_begun,
            set_bytes_made: self.set_bytes_made,
            samples: self.raw.as_mut().map(|raw| &mut raw.samples),
        }
        .run(begin, pace, Spans { warm: config.warm, measure: config.measure, drain: config.drain });

        measured.machine = meter.map(MachineMeter::stop).unwrap_or_default();
        if measured.cut_short.is_some() {
            self.end_others();
        }
        let set = &planner.set;
        let file_set = FileSetRecord {
            files_asked: if config.workload.needs_files() {
                self.files_at(rate.unwrap_or(CLOSED_LOOP_RATE))
            } else {
                0
            },
            files: set.file_count(),
            directories: set.directory_count(),
            symlinks: set.symlink_count(),
            bytes: set.file_bytes(),
        };
        let (measured, file_set, parts) = self.group.merge(measured, rate, file_set, config.drain)?;
        let is_local = self.transport.is_local();
        let others = self.points.iter().enumerate().filter(|(index, _)| *index + 1 != number as usize);
        let light = others.filter_map(|(_, point)| point.pacing.as_ref());
        let light_p50_us = light
            .map(|pacing| pacing.latency_from_sent_us.p50)
            .filter(|p50| *p50 > 0.0)
            .min_by(f64::total_cmp);
        let mix = &config.workload.mix;
        let drain = config.drain;
        let asked = Asked { rate, outstanding, mix, file_set, drain, light_p50_us, is_local };
        let mut point = judge::load_point(&measured, &asked, parts);
        if let Some(why) = spoilt {
            judge::note_repeat(&mut point, &why);
        }
        let Measured { cut_short, measured, machine, .. } = measured;
        let mut kept = Ok(());
        // Cut short in its warm-up it has nothing to say but what it waited for.
        let unanswered = self.transport.in_flight();
        if measured.is_zero() && unanswered > 0 {
            (self.tell)(Event::Note(format!(
                "interrupted in the warm-up with {unanswered} requests that the storage has not answered; is the server still \
                 running?"
            )));
        }
        // A repeat that was cut short replaces nothing.
        let is_better = cut_short.is_none() || self.points.len() < number as usize;
        if !measured.is_zero() && is_better {
            (self.tell)(Event::LevelDone(Box::new(point.clone())));
            place(&mut self.points, number, point);
            self.machine.insert(number, machine);
            if let Some(raw) = &mut self.raw {
                let written = raw.write(number);
                kept = self.together("writing raw samples", written, None).1;
            }
        }
        match cut_short {
            Some(CutShort::Gone(error)) => Err(error),
            Some(CutShort::Stopped) => Err(FstressError::Interrupted),
            None => kept,
        }
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
        result
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
        let makes_names = self.config.workload.mix.shares().iter().any(|(kind, _)| {
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

/// Puts a level in its place, also of one measured before.
pub(crate) fn place(points: &mut Vec<LoadPoint>, number: u32, point: LoadPoint) {
    match points.get_mut((number as usize).saturating_sub(1)) {
        Some(before) => *before = point,
        None => points.push(point),
    }
}

fn work(grew: bool, wall_s: f64, cpu: CpuTimes, items: u64, bytes: u64) -> Work {
    Work { grew, wall_s, user_s: cpu.user.as_secs_f64(), sys_s: cpu.sys.as_secs_f64(), items, bytes }
}

/// What [`metrics`] emits, by order of interest.
pub const METRICS: &[MetricDeclaration] = &[
    MetricDeclaration::rate("within_bound_per_sec", "Highest within bound"),
    MetricDeclaration::rate("saturation_per_sec", "Saturation point").answers(),
    MetricDeclaration::rate("held_per_sec", "Highest rate held").answers(),
    MetricDeclaration::rate("peak_per_sec", "Peak rate").answers(),
    MetricDeclaration::micros("overall_response_us", "Overall response time"),
    MACHINE_METRICS[0],
    MACHINE_METRICS[1],
    MACHINE_METRICS[2],
    MACHINE_METRICS[3],
    MACHINE_METRICS[4],
];

pub(crate) fn metrics(points: &[LoadPoint], machine: &MachineLog, load: &Load) -> BTreeMap<String, f64> {
    let mut metrics = machine.metrics();
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            metrics.insert(name.to_owned(), value);
        }
    };
    let most = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
    let any_failed = points.iter().any(judge::was_failed_by_storage);
    let held = most(
        &mut points.iter().filter(|point| judge::is_answer(point)).filter_map(|point| point.offered_per_sec),
    );
    // Without a point that failed nobody knows where it saturates; then this is only the highest rate held.
    put("saturation_per_sec", held.filter(|_| any_failed));
    // A search under a bound stops before saturation and says its own answer.
    put("held_per_sec", held.filter(|_| !matches!(load, Load::FindMax { .. })));
    if let Load::FindMax { bound, .. } = load {
        let within = |point: &&LoadPoint| judge::is_answer(point) && judge::is_within(point, bound);
        put(
            "within_bound_per_sec",
            most(&mut points.iter().filter(within).filter_map(|point| point.offered_per_sec)),
        );
    }
    let whole = |point: &&LoadPoint| !judge::was_spoilt_by_others(point) && !judge::was_interrupted(point);
    put("peak_per_sec", most(&mut points.iter().filter(whole).map(|point| point.achieved_per_sec)));
    put("overall_response_us", judge::overall_response_time_us(points));
    metrics
}
