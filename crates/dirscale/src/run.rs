//! One run from the empty folder to the last size.
//!
//! Order: sizes rising; within a size as many rounds as asked for; within a round each layout in turn, backwards in
//! every other one, so that what drifts in the machine hits all alike. The same places in the row are looked up in
//! each layout.
//!
//! Always holds: caches are dropped right before each measurement of a cold run, and what came of it is reported; the
//! folder is removed, or kept and written down, however the run ends.
//! Not here: what the figures say (see `part`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use files::{FileSystem, Fsstat, Layout};
use harness::Ended;
use measure::{
    CacheControl, CacheState, CpuMeter, DiskMeter, DiskUse, Forget, KeptFiles, LapRecorder, MachineMeter,
    MeterScope, Phase, StepCounts, TimeSeries,
};
use quanta::Clock;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::part::{Ending, Part};
use crate::results::Measure;
use crate::room::{Need, Room};
use crate::set::{Set, leftovers};
use crate::window::{Articles, Cut, Tools, Window};
use crate::{Cache, DirscaleConfig, DirscaleError, Keep};

/// What happens, step by step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Something the user should know.
    Note(String),
    /// Long work under way.
    Progress {
        /// What is done.
        work: Work,
        /// Files there, or gone.
        done: u64,
        /// Files there are to be, or to go.
        of: u64,
    },
    /// A size's measurements begin.
    SizeBegins {
        /// Files in each directory.
        files: u64,
        /// Which of the sizes, from 1.
        number: usize,
        /// Of how many.
        sizes: usize,
    },
    /// One measurement is done.
    Measured {
        /// Of which directory.
        layout: Layout,
        /// Files in it.
        files: u64,
        /// What was measured.
        measure: Measure,
        /// Microseconds an operation.
        mean_us: f64,
    },
    /// A size is measured in all layouts: this is what is known so far.
    SizeMeasured(Box<Part>),
    /// All that will be measured is: what follows is the removal of that many files.
    AllMeasured(Box<Part>, u64),
}

/// Long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Making files up to the next size.
    Fill(Layout),
    /// Removing everything.
    Remove,
}

struct Bench<'a> {
    config: &'a DirscaleConfig,
    tools: Tools<'a>,
    caches: &'a mut dyn CacheControl,
    tell: &'a mut dyn FnMut(Event),
    disk: Option<DiskMeter>,
    /// From the run's begin on, with what is written between the phases.
    whole_disk: Option<DiskMeter>,
    /// Space of the storage before the set was made.
    free_before: Option<Fsstat>,
    part: Part,
}

/// Phases shorter than this have no time series: there are hundreds of them.
const SERIES_WALL_MIN_S: f64 = 1.0;
/// Names that the proof of coldness looks at.
const PROBES: u64 = 32;

/// Measures; `stop` ends it soon and cleanly. `tell` is called at each step, and the run continues when it returns.
pub fn run(
    config: &DirscaleConfig,
    fs: Arc<dyn FileSystem>,
    caches: &mut dyn CacheControl,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Ended<Part, DirscaleError> {
    let articles = Articles::new(config.file_bytes, config.fill_bytes(), config.seed);
    let tools = Tools { clock: Clock::new(), stop, articles };
    let disk = fs.local_root().and_then(DiskMeter::start);
    let whole_disk = disk.clone();
    let is_unknown = config.keep == Keep::Reuse || fs.has_room_of_its_own();
    let free_before = if is_unknown { None } else { fs.statfs().ok() };
    let part = Part { remote: fs.local_root().is_none(), ..Part::default() };
    let mut bench = Bench { config, tools, caches, tell, disk, whole_disk, free_before, part };
    let mut error = None;
    match bench.open(&fs) {
        Err(Cut::Stopped) => {}
        Err(Cut::Failed(failed)) => error = Some(failed),
        Ok(mut set) => {
            match bench.sizes(&fs, &mut set) {
                Ok(()) => bench.part.ending = Ending::Complete,
                Err(Cut::Stopped) => {}
                Err(Cut::Failed(failed)) => {
                    bench.part.ending = Ending::Failed;
                    error = Some(failed);
                }
            }
            if config.keep == Keep::Remove {
                (bench.tell)(Event::AllMeasured(Box::new(bench.part.clone()), set.files()));
            }
            if let Err(failed) = bench.leave(&set) {
                error.get_or_insert(failed);
            }
        }
    }
    let mut part = bench.part;
    if error.is_some() {
        part.ending = Ending::Failed;
    }
    Ended { part: Some(part), error }
}

impl Bench<'_> {
    fn open(&mut self, fs: &Arc<dyn FileSystem>) -> Result<Set, Cut> {
        let mine = &self.config.set_name;
        for name in leftovers(&**fs)?.into_iter().filter(|name| name != mine) {
            (self.tell)(Event::Note(format!(
                "{place} holds {SET_PREFIX}{name} of another run, kept or cut off; if none is under way, go on with it \
                 by --reuse {name} or remove it (rm -r {place}/{SET_PREFIX}{name})",
                place = fs.place(),
                SET_PREFIX = crate::SET_PREFIX,
            )));
        }
        let tell = &mut self.tell;
        Set::open(self.config, fs, &self.tools, &mut |text| tell(Event::Note(text)))
    }

    fn sizes(&mut self, fs: &Arc<dyn FileSystem>, set: &mut Set) -> Result<(), Cut> {
        let sizes = self.sizes_that_fit(&**fs, set)?;
        for (index, size) in sizes.iter().enumerate() {
            (self.tell)(Event::SizeBegins { files: *size, number: index + 1, sizes: sizes.len() });
            let open: Vec<usize> = self.open_layouts(set, *size);
            // One look at each end: single measurements are shorter than the kernel's clock of CPU time.
            let meter = MachineMeter::start(MeterScope::of_threads(1));
            for place in &open {
                self.fill(&mut set.directories[*place].1, *size)?;
            }
            self.count_kept(&**fs, set);
            for round in 0..self.config.rounds.get() {
                let backwards = (index as u32 + round) % 2 == 1;
                let order: Vec<usize> =
                    if backwards { open.iter().rev().copied().collect() } else { open.clone() };
                for place in order {
                    self.round(&mut set.directories[place].1, *size, round + 1)?;
                }
            }
            self.part.machine.push(&format!("the size of {size} files"), meter.stop());
            self.part.written_bytes = self.whole_disk.as_ref().map(|disk| disk.used().written_bytes);
            for place in open {
                set.directories[place].0 = *size;
            }
            set.save(false)?;
            (self.tell)(Event::SizeMeasured(Box::new(self.part.clone())));
        }
        Ok(())
    }

    /// What the files of a size take, of all layouts together.
    fn count_kept(&mut self, fs: &dyn FileSystem, set: &Set) {
        let Some((before, now)) = self.free_before.zip(fs.statfs().ok()) else { return };
        let files = set.files();
        self.part.kept = Some(KeptFiles {
            files,
            bytes: files * u64::from(self.config.fill_bytes()),
            disk_bytes: before.bytes_free.saturating_sub(now.bytes_free),
            inodes: before.files_free.saturating_sub(now.files_free),
        });
    }

    /// Sizes to measure: what a reused set has behind it and what has no room is left out, with a word.
    fn sizes_that_fit(&mut self, fs: &dyn FileSystem, set: &Set) -> Result<Vec<u64>, DirscaleError> {
        let asked = self.config.sizes.as_slice();
        let ahead: Vec<u64> =
            asked.iter().copied().filter(|size| !self.open_layouts(set, *size).is_empty()).collect();
        if ahead.is_empty() {
            let largest = self.config.sizes.largest();
            return Err(DirscaleError::SetOutgrown { name: set.name.clone(), largest });
        }
        if ahead.len() < asked.len() {
            let text = format!("going on with {} files; smaller sizes were measured before", ahead[0]);
            (self.tell)(Event::Note(text));
        }
        let layouts: Vec<Layout> = set.directories.iter().map(|(_, window)| window.layout).collect();
        let room = Room::of(&fs.statfs()?);
        // Subdirectories are made by now; they are counted on both sides.
        let there = Need::of_files(self.config, &layouts, set.files());
        let need = |size| Need::of(self.config, &layouts, size).beyond(there);
        let fit: Vec<u64> = ahead.iter().copied().filter(|size| room.holds(need(*size))).collect();
        let Some(largest) = fit.last() else {
            let need = need(ahead[0]);
            return Err(DirscaleError::NoRoom {
                place: fs.place(),
                size: ahead[0],
                layouts: layouts.len(),
                bytes_needed: need.bytes,
                inodes_needed: need.inodes,
                bytes_available: room.bytes,
                inodes_available: room.inodes,
            });
        };
        if fit.len() < ahead.len() {
            let text = format!(
                "{} has room for {largest} files in each layout; larger sizes are left out",
                fs.place()
            );
            (self.tell)(Event::Note(text.clone()));
            self.part.found.remark("no-room", text);
        }
        Ok(fit)
    }

    /// Layouts to measure at a size, by their place: those that have not grown past it. A size measured already is
    /// measured again only when nothing larger is asked for.
    fn open_layouts(&self, set: &Set, size: u64) -> Vec<usize> {
        let again = self.config.sizes.largest() == size;
        let open = |measured: u64| size > measured || again && size == measured;
        let places = set.directories.iter().enumerate();
        places.filter(|(_, (measured, _))| open(*measured)).map(|(place, _)| place).collect()
    }

    fn fill(&mut self, window: &mut Window, size: u64) -> Result<(), Cut> {
        let (layout, before) = (window.layout, window.files);
        let clocks = Clocks::start(&self.tools, &mut self.disk);
        let tell = &mut self.tell;
        let mut laps = LapRecorder::start();
        let filled = window.grow_to(size, &self.tools, &mut laps, &mut |done| {
            tell(Event::Progress { work: Work::Fill(layout), done, of: size });
        });
        let items = window.files.saturating_sub(before);
        let mut phase = clocks.phase(&self.tools, &mut self.disk, format!("fill {layout} {size}"), 1, items);
        phase.bytes = items * u64::from(self.config.fill_bytes());
        phase.time_series = series(laps.stop(), &phase);
        if items > 0 {
            self.part.phases.push(phase);
        }
        filled
    }

    /// All measurements on one directory.
    fn round(&mut self, window: &mut Window, size: u64, round: u32) -> Result<(), Cut> {
        let mut rng =
            Xoshiro256PlusPlus::seed_from_u64(self.config.seed ^ size.rotate_left(20) ^ u64::from(round));
        let operations = self.config.operations();
        let random: Vec<u64> = (0..operations).map(|_| rng.random_range(0..size)).collect();
        let begin = rng.random_range(0..=size.saturating_sub(operations));
        let sequential: Vec<u64> = (0..operations).map(|at| (begin + at) % size).collect();
        for (measure, offsets) in [(Measure::LookupRandom, random), (Measure::LookupSequential, sequential)] {
            let places: Vec<PathBuf> = offsets.iter().map(|at| window.place(window.first + at)).collect();
            self.prepare(window, &places)?;
            self.measured(window, size, round, measure, |window, tools| window.look_up(&places, tools))?;
        }
        self.prepare(window, &[])?;
        self.measured(window, size, round, Measure::Add, |window, tools| window.add(operations, tools))?;
        let oldest = window.oldest(operations);
        self.prepare(window, &oldest)?;
        self.measured(window, size, round, Measure::Remove, |window, tools| {
            window.remove_oldest(operations, tools)
        })?;
        let mut spent = Vec::new();
        for reading in 0..self.config.readings.get() {
            if self.config.cache != Cache::Warm {
                self.prepare(window, &[])?;
            } else if reading == 0 {
                window.read(&self.tools)?;
            }
            let clocks = Clocks::start(&self.tools, &mut self.disk);
            let (found, took_ns) = window.read(&self.tools)?;
            if found != window.files {
                let (layout, files) = (window.layout, window.files);
                self.part.found.invalidate(
                    "files-missing",
                    format!("{layout}: reading a directory of {files} files gave {found}"),
                );
            }
            let name = format!("{} {} {size}", Measure::Readdir.name(), window.layout);
            self.part.phases.push(clocks.phase(&self.tools, &mut self.disk, name, round, found));
            spent.push(took_ns);
        }
        self.took(window.layout, size, Measure::Readdir, &spent);
        Ok(())
    }

    fn measured(
        &mut self,
        window: &mut Window,
        size: u64,
        round: u32,
        measure: Measure,
        operate: impl FnOnce(&mut Window, &Tools<'_>) -> Result<Vec<u64>, Cut>,
    ) -> Result<(), Cut> {
        let clocks = Clocks::start(&self.tools, &mut self.disk);
        let spent = operate(window, &self.tools)?;
        let name = format!("{} {} {size}", measure.name(), window.layout);
        let mut phase = clocks.phase(&self.tools, &mut self.disk, name, round, spent.len() as u64);
        if measure == Measure::Add {
            phase.bytes = phase.items * u64::from(self.config.file_bytes);
        }
        phase.counters.extend(percentiles(&spent));
        phase.time_series = series(StepCounts::of_row(&spent), &phase);
        self.part.phases.push(phase);
        self.took(window.layout, size, measure, &spent);
        Ok(())
    }

    fn took(&mut self, layout: Layout, files: u64, measure: Measure, spent_ns: &[u64]) {
        self.part.results.add(layout, files, measure, spent_ns);
        let mean_us = spent_ns.iter().sum::<u64>() as f64 / 1e3 / spent_ns.len().max(1) as f64;
        (self.tell)(Event::Measured { layout, files, measure, mean_us });
    }

    /// Makes the caches as they are to be: cold, or warm of what is about to be looked up.
    fn prepare(&mut self, window: &Window, places: &[PathBuf]) -> Result<(), Cut> {
        self.tools.go_on()?;
        let forget = match self.config.cache {
            Cache::Warm => return window.look_up(places, &self.tools).map(drop),
            Cache::Cold => Forget::All,
            Cache::ColdNames => Forget::Names,
        };
        if self.part.cache_log.always_warm.is_some() {
            return Ok(());
        }
        let step = (window.files / PROBES).max(1);
        let probes: BTreeSet<u64> =
            (0..PROBES.min(window.files)).map(|probe| window.first + probe * step).collect();
        let names: Vec<PathBuf> = probes.into_iter().map(|number| window.place_in_target(number)).collect();
        self.part.cache_log.drops += 1;
        match self.caches.chill(forget, &names) {
            CacheState::Cold => self.part.cache_log.proven += 1,
            CacheState::NamesCold { why } => {
                self.part.cache_log.proven += 1;
                self.part.cache_log.names_alone = Some(why);
            }
            CacheState::AlwaysWarm { why } => self.part.cache_log.always_warm = Some(why),
            CacheState::Unknown { why } => {
                if self.part.cache_log.unknown.is_none() {
                    (self.tell)(Event::Note(format!("cache state unknown: {why}")));
                    self.part.cache_log.unknown = Some(why);
                }
            }
        }
        Ok(())
    }

    /// Removes the set, or leaves it at rest.
    fn leave(&mut self, set: &Set) -> Result<(), DirscaleError> {
        if self.config.keep != Keep::Remove {
            return Ok(set.save(true)?);
        }
        let (tell, of) = (&mut self.tell, set.files());
        set.remove(&mut |done| tell(Event::Progress { work: Work::Remove, done, of }))?;
        Ok(())
    }
}

/// Clocks and counters at the beginning of a phase.
struct Clocks {
    begun: quanta::Instant,
    cpu: CpuMeter,
}

impl Clocks {
    fn start(tools: &Tools<'_>, disk: &mut Option<DiskMeter>) -> Self {
        drop(disk.as_mut().map(DiskMeter::lap));
        Self { cpu: CpuMeter::start(), begun: tools.clock.now() }
    }

    fn phase(
        self,
        tools: &Tools<'_>,
        disk: &mut Option<DiskMeter>,
        name: String,
        pass: u32,
        items: u64,
    ) -> Phase {
        let wall: Duration = tools.clock.now().saturating_duration_since(self.begun);
        let cpu = self.cpu.used();
        let wall_s = wall.as_secs_f64();
        Phase {
            name,
            pass,
            wall_s,
            user_s: cpu.user.as_secs_f64(),
            sys_s: cpu.sys.as_secs_f64(),
            items,
            items_per_sec: if wall_s > 0.0 { items as f64 / wall_s } else { 0.0 },
            counters: disk.as_mut().map(|disk| counters(&disk.lap())).unwrap_or_default(),
            ..Phase::default()
        }
    }
}

/// Of a phase that is long enough for one.
fn series(steps: StepCounts, phase: &Phase) -> Option<TimeSeries> {
    let wall = Duration::try_from_secs_f64(phase.wall_s).unwrap_or_default();
    if phase.wall_s < SERIES_WALL_MIN_S { None } else { steps.series(wall) }
}

/// What the device did, and how much was read: a cold measurement that reads nothing was none.
fn counters(used: &DiskUse) -> BTreeMap<String, f64> {
    let mut counters = used.counters();
    counters.insert("device_read_bytes".to_owned(), used.read_bytes as f64);
    counters
}

/// How single operations were spread, microseconds.
fn percentiles(spent_ns: &[u64]) -> BTreeMap<String, f64> {
    let mut sorted = spent_ns.to_vec();
    sorted.sort_unstable();
    let at = |share: f64| {
        let place = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
        sorted.get(place).map(|ns| *ns as f64 / 1e3)
    };
    let named = [("p50_us", 0.5), ("p99_us", 0.99), ("max_us", 1.0)];
    named.into_iter().filter_map(|(name, share)| Some((name.to_owned(), at(share)?))).collect()
}
