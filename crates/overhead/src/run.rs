//! The rounds.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use harness::Ended;
use measure::{CpuMeter, MachineMeter, MeterScope, Phase, error_chain};
use rustix::fs::{stat, statfs};
use rustix::process::geteuid;

use crate::build::Builder;
use crate::floor::{FloorCommand, FloorDaemon};
use crate::requests::{Counter, FUSE};
use crate::side::{Cut, Side};
use crate::{OverheadConfig, OverheadError, Part, Sides, Sources, Work};

/// What is reported on the way.
pub(crate) enum Progress {
    /// A round begins: its number, and how many there are.
    Round(u32, u32),
    /// For the user.
    Note(String),
    /// What is measured so far.
    Kept(Box<Part>),
}

type Tell<'a> = dyn FnMut(Progress) + 'a;

/// Operations of each kind whose requests are counted.
const COUNTED: usize = 100;
const NAMES: [&str; 3] = ["lower", "mount", "floor"];
const LOWER: usize = 0;
const MOUNT: usize = 1;
const FLOOR: usize = 2;

/// Measures; `stop` ends it soon and cleanly.
pub(crate) fn run(
    config: &OverheadConfig,
    sides: &Sides,
    stop: &AtomicBool,
    tell: &mut Tell<'_>,
) -> Ended<Part, OverheadError> {
    let opened = looked_at(sides).and_then(|places| Ok((places, Bench::open(config, sides)?)));
    let (places, mut bench) = match opened {
        Ok(opened) => opened,
        Err(error) => return Ended::failed(error),
    };
    let mut part = Part { no_floor: bench.no_floor.clone(), ..Part::default() };
    if places.are_both_fuse {
        tell(Progress::Note(format!(
            "{} is a FUSE mount as well: what that layer costs is on both sides",
            sides.lower.display()
        )));
    }
    if let Some(why) = &part.no_floor {
        tell(Progress::Note(format!("there is no floor to compare with: {why}")));
    }
    let mut error = match measure_all(config, places.device, &mut bench, stop, &mut part, tell) {
        Ok(()) => {
            part.complete = true;
            None
        }
        Err(Cut::Stopped) => {
            part.stopped = true;
            None
        }
        Err(Cut::Failed(error)) => Some(error),
    };
    error = bench.remove(error);
    part.complete &= error.is_none();
    Ended { part: Some(part), error }
}

/// What a run works with.
struct Bench<'a> {
    config: &'a OverheadConfig,
    places: &'a Sides,
    /// Below, through the mount, and on the floor where there is one.
    sides: Vec<Side>,
    floor: Option<FloorDaemon>,
    no_floor: Option<String>,
    builder: Option<Builder>,
}

impl<'a> Bench<'a> {
    fn open(config: &'a OverheadConfig, places: &'a Sides) -> Result<Self, OverheadError> {
        let builder = config.build.as_ref().map(|sources| Builder::new(sources, config)).transpose()?;
        let lower = Side::open(&places.lower, NAMES[LOWER], config)?;
        let mount = match Side::open(&places.mount, NAMES[MOUNT], config) {
            Ok(mount) => mount,
            Err(error) => {
                drop(lower.remove());
                return Err(error);
            }
        };
        let mut bench =
            Self { config, places, sides: vec![lower, mount], floor: None, no_floor: None, builder };
        if let Some(command) = places.floor {
            bench.no_floor = bench.mount_floor(command).err();
        }
        Ok(bench)
    }

    fn mount_floor(&mut self, command: FloorCommand) -> Result<(), String> {
        let floor = FloorDaemon::start(&self.places.lower, self.config, command)?;
        let side = Side::open(floor.place(), NAMES[FLOOR], self.config);
        match side {
            Ok(side) => {
                self.sides.push(side);
                self.floor = Some(floor);
                Ok(())
            }
            Err(error) => {
                drop(floor.stop());
                Err(error_chain(&error))
            }
        }
    }

    /// Removes what the run made. `error` is what it failed with; with that, or with what cannot be removed, it ends.
    fn remove(self, error: Option<OverheadError>) -> Option<OverheadError> {
        let mut done = Ok(());
        if let Some(builder) = &self.builder {
            for side in &self.sides[..FLOOR] {
                if let Err(Cut::Failed(left)) = builder.remove(side.path(), error.is_some()) {
                    done = done.and(Err(left));
                }
            }
        }
        let mut sides = self.sides.into_iter();
        let (lower, mount, floor) = (sides.next(), sides.next(), sides.next());
        for side in [floor, lower].into_iter().flatten() {
            done = done.and(side.remove());
        }
        // Not before its side is closed.
        done = done.and(self.floor.map_or(Ok(()), FloorDaemon::stop));
        let Some(mount) = mount else { return error.or(done.err()) };
        let folder = mount.folder_text();
        if let Err(left) = mount.remove() {
            let source = Box::new(error.unwrap_or(left));
            let lower = self.places.lower.display().to_string();
            let mount = self.places.mount.display().to_string();
            return Some(OverheadError::Left { folder, mount, lower, source });
        }
        error.or(done.err())
    }
}

/// What is known of the two directories.
struct Places {
    /// The device number of the mount.
    device: u64,
    are_both_fuse: bool,
}

const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

impl Sides {
    /// Refuses what cannot be compared, and where root would not be safe.
    ///
    /// # Errors
    /// When one is not there, both are on one file system, they look exchanged, other users may change one, or there is nothing to
    /// build with.
    pub fn check(&self, config: &OverheadConfig) -> Result<(), OverheadError> {
        looked_at(self)?;
        config.build.as_ref().map_or(Ok(()), Sources::check)?;
        Ok(())
    }
}

fn looked_at(sides: &Sides) -> Result<Places, OverheadError> {
    let texts = || (sides.lower.display().to_string(), sides.mount.display().to_string());
    let of = |place: &Path| {
        let failed = |call| {
            move |source| OverheadError::Call {
                place: place.display().to_string(),
                call,
                name: ".".to_owned(),
                source,
            }
        };
        let device = stat(place).map_err(failed("stat"))?.st_dev;
        let is_fuse = statfs(place).map_err(failed("statfs"))?.f_type as u64 == FUSE;
        Ok::<_, OverheadError>((device, is_fuse))
    };
    let ((lower, is_lower_fuse), (mount, is_mount_fuse)) = (of(&sides.lower)?, of(&sides.mount)?);
    if lower == mount {
        let (lower, mount) = texts();
        return Err(OverheadError::SameFileSystem { lower, mount });
    }
    if is_lower_fuse && !is_mount_fuse {
        let (lower, mount) = texts();
        return Err(OverheadError::Exchanged { lower, mount });
    }
    for place in [&sides.lower, &sides.mount] {
        refuse_what_others_change(place)?;
    }
    Ok(Places { device: mount, are_both_fuse: is_lower_fuse && is_mount_fuse })
}

/// A daemon resolves paths by itself, as root: a user who can rename this run's directory and put a link in its place leads it
/// elsewhere. So root works only where nobody else can rename.
fn refuse_what_others_change(place: &Path) -> Result<(), OverheadError> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let Ok(real) = place.canonicalize() else { return Ok(()) };
    for above in real.ancestors() {
        let found = stat(above).map_err(|source| OverheadError::Call {
            place: above.display().to_string(),
            call: "stat",
            name: ".".to_owned(),
            source,
        })?;
        let by_others = found.st_mode & OTHERS_WRITE != 0 && found.st_mode & STICKY == 0;
        if found.st_uid != 0 || by_others {
            return Err(OverheadError::OthersChange { place: above.display().to_string() });
        }
    }
    Ok(())
}

fn measure_all(
    config: &OverheadConfig,
    device: u64,
    bench: &mut Bench<'_>,
    stop: &AtomicBool,
    part: &mut Part,
    tell: &mut Tell<'_>,
) -> Result<(), Cut> {
    let rounds = config.rounds.get();
    for round in 1..=rounds {
        tell(Progress::Round(round, rounds));
        let meter = MachineMeter::start(MeterScope::of_threads(1));
        for work in Work::ALL {
            turn(config, &mut bench.sides, work, round, stop, part)?;
        }
        if let Some(builder) = &bench.builder {
            build(builder, &bench.sides, round, stop, part)?;
        }
        part.machine.push(&format!("round {round}"), meter.stop());
        tell(Progress::Kept(Box::new(part.clone())));
    }
    if let Some(text) = part.not_cold_text() {
        tell(Progress::Note(text));
    }
    let of_mount = requests_of(&bench.places.mount, device, &mut bench.sides[MOUNT], stop)?;
    part.uncounted = of_mount.uncounted;
    part.requests = of_mount.requests;
    if let Some(why) = &part.uncounted {
        tell(Progress::Note(format!("requests are not counted: {why}")));
    }
    if let Some(side) = bench.sides.get_mut(FLOOR) {
        let place = side.path().to_owned();
        let device = stat(&place).map(|found| found.st_dev).unwrap_or_default();
        let of_floor = requests_of(&place, device, side, stop)?.requests;
        part.floor_requests = of_floor.into_iter().map(|(work, (waited, _))| (work, waited)).collect();
    }
    Ok(())
}

/// The sides in the order of a round, which changes from one to the next: below and through the mount are always neighbours.
fn order_of(round: u32, sides: usize) -> Vec<usize> {
    let forward = 0..sides;
    if round.is_multiple_of(2) { forward.rev().collect() } else { forward.collect() }
}

/// One kind of operation on each side, one right after the other.
fn turn(
    config: &OverheadConfig,
    sides: &mut [Side],
    work: Work,
    round: u32,
    stop: &AtomicBool,
    part: &mut Part,
) -> Result<(), Cut> {
    let count = config.files.get() as usize;
    let mut took = [0.0; NAMES.len()];
    let mut phases = Vec::new();
    for at in order_of(round, sides.len()) {
        if stop.load(Ordering::Relaxed) {
            return Err(Cut::Stopped);
        }
        if let Some(why) = sides[at].prepare(work, count, stop)? {
            part.not_cold = Some(why);
            part.rounds_not_cold += 1;
            return Ok(());
        }
        let (phase, wall_s) = timed(work.name(), at, round, count, || sides[at].perform(work, count, stop))?;
        took[at] = wall_s * 1e6 / count as f64;
        phases.push(phase);
    }
    part.phases.extend(phases);
    part.pairs.entry(work).or_default().push((took[LOWER], took[MOUNT]));
    if sides.len() > FLOOR {
        part.floor.entry(work).or_default().push(took[FLOOR]);
    }
    Ok(())
}

/// A build below and one through the mount.
fn build(
    builder: &Builder,
    sides: &[Side],
    round: u32,
    stop: &AtomicBool,
    part: &mut Part,
) -> Result<(), Cut> {
    let mut took = [0.0; 2];
    let mut phases = Vec::new();
    for at in order_of(round, took.len()) {
        let place = builder.prepare(sides[at].path(), stop)?;
        let (phase, wall_s) = timed("build", at, round, 1, || builder.build(&place, stop))?;
        builder.remove_tree(sides[at].path())?;
        took[at] = wall_s;
        phases.push(phase);
    }
    part.phases.extend(phases);
    part.builds.push((took[LOWER], took[MOUNT]));
    Ok(())
}

/// Does it, and says how long it took.
fn timed(
    name: &str,
    at: usize,
    round: u32,
    count: usize,
    work: impl FnOnce() -> Result<(), Cut>,
) -> Result<(Phase, f64), Cut> {
    let (cpu, begun) = (CpuMeter::start(), Instant::now());
    work()?;
    let (wall_s, cpu) = (begun.elapsed().as_secs_f64(), cpu.used());
    let phase = Phase {
        name: format!("{name} {}", NAMES[at]),
        pass: round,
        wall_s,
        user_s: cpu.user.as_secs_f64(),
        sys_s: cpu.sys.as_secs_f64(),
        items: count as u64,
        items_per_sec: count as f64 / wall_s.max(f64::MIN_POSITIVE),
        ..Phase::default()
    };
    Ok((phase, wall_s))
}

/// Requests of one operation: those that a program waits for, and all.
#[derive(Default)]
struct Requests {
    requests: BTreeMap<Work, (f64, f64)>,
    uncounted: Option<String>,
}

/// A few operations of each kind on one side, not timed.
fn requests_of(place: &Path, device: u64, side: &mut Side, stop: &AtomicBool) -> Result<Requests, Cut> {
    let mut counted_here = Requests::default();
    let counter = match Counter::of(place, device) {
        Ok(counter) => counter,
        Err(error) => {
            counted_here.uncounted = Some(error_chain(&error));
            return Ok(counted_here);
        }
    };
    let count = COUNTED.min(side.files());
    for work in Work::ALL {
        if side.prepare(work, count, stop)?.is_some() {
            continue;
        }
        match counter.count(|| side.perform(work, count, stop))? {
            Ok(counted) => {
                let each = |requests: u64| requests as f64 / count as f64;
                counted_here.requests.insert(work, (each(counted.waited()), each(counted.all())));
            }
            Err(error) => {
                counted_here.uncounted = Some(error_chain(&error));
                break;
            }
        }
    }
    Ok(counted_here)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_and_through_the_mount_are_neighbours_in_each_round_and_change_places() {
        assert_eq!((order_of(1, 2), order_of(2, 2)), (vec![0, 1], vec![1, 0]));
        assert_eq!((order_of(1, 3), order_of(2, 3)), (vec![0, 1, 2], vec![2, 1, 0]));
    }
}
