//! The rounds.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use harness::Ended;
use measure::{CpuMeter, MachineMeter, MeterScope, Phase, error_chain};
use rustix::fs::{stat, statfs};
use rustix::process::geteuid;

use crate::requests::{Counter, FUSE};
use crate::side::{Cut, Side};
use crate::{OverheadConfig, OverheadError, Part, Sides, Work};

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
const NAMES: [&str; 2] = ["lower", "mount"];

/// Measures; `stop` ends it soon and cleanly.
pub(crate) fn run(
    config: &OverheadConfig,
    sides: &Sides,
    stop: &AtomicBool,
    tell: &mut Tell<'_>,
) -> Ended<Part, OverheadError> {
    let places = match looked_at(sides) {
        Ok(places) => places,
        Err(error) => return Ended::failed(error),
    };
    let opened = Side::open(&sides.lower, NAMES[0], config).and_then(|lower| {
        match Side::open(&sides.mount, NAMES[1], config) {
            Ok(mount) => Ok([lower, mount]),
            Err(error) => {
                drop(lower.remove());
                Err(error)
            }
        }
    });
    let mut both = match opened {
        Ok(both) => both,
        Err(error) => return Ended::failed(error),
    };
    let mut part = Part::default();
    if places.are_both_fuse {
        tell(Progress::Note(format!(
            "{} is a FUSE mount as well: what that layer costs is on both sides",
            sides.lower.display()
        )));
    }
    let mut error = match measure_all(config, sides, places.device, &mut both, stop, &mut part, tell) {
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
    let [lower, mount] = both;
    let folder = mount.folder_text();
    if let Err(left) = lower.remove() {
        error.get_or_insert(left);
    }
    if let Err(left) = mount.remove() {
        let source = Box::new(error.take().unwrap_or(left));
        let lower = sides.lower.display().to_string();
        error = Some(OverheadError::Left { folder, mount: sides.mount.display().to_string(), lower, source });
    }
    part.complete &= error.is_none();
    Ended { part: Some(part), error }
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
    /// When one is not there, both are on one file system, they look exchanged, or other users may change one.
    pub fn check(&self) -> Result<(), OverheadError> {
        looked_at(self).map(drop)
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
    sides: &Sides,
    device: u64,
    both: &mut [Side; 2],
    stop: &AtomicBool,
    part: &mut Part,
    tell: &mut Tell<'_>,
) -> Result<(), Cut> {
    let rounds = config.rounds.get();
    for round in 1..=rounds {
        tell(Progress::Round(round, rounds));
        let meter = MachineMeter::start(MeterScope::of_threads(1));
        for work in Work::ALL {
            pair(config, both, work, round, stop, part)?;
        }
        part.machine.push(&format!("round {round}"), meter.stop());
        tell(Progress::Kept(Box::new(part.clone())));
    }
    if let Some(text) = part.not_cold_text() {
        tell(Progress::Note(text));
    }
    count_requests(sides, device, &mut both[1], stop, part)?;
    if let Some(why) = &part.uncounted {
        tell(Progress::Note(format!("requests are not counted: {why}")));
    }
    Ok(())
}

/// One kind of operation on both sides, one right after the other; which comes first changes from round to round.
fn pair(
    config: &OverheadConfig,
    both: &mut [Side; 2],
    work: Work,
    round: u32,
    stop: &AtomicBool,
    part: &mut Part,
) -> Result<(), Cut> {
    let count = config.files.get() as usize;
    let order = if round.is_multiple_of(2) { [1, 0] } else { [0, 1] };
    let mut took = [0.0; 2];
    let mut phases = Vec::new();
    for at in order {
        if stop.load(Ordering::Relaxed) {
            return Err(Cut::Stopped);
        }
        if let Some(why) = both[at].prepare(work, count, stop)? {
            part.not_cold = Some(why);
            part.rounds_not_cold += 1;
            return Ok(());
        }
        let (cpu, begun) = (CpuMeter::start(), Instant::now());
        both[at].perform(work, count, stop)?;
        let (wall_s, cpu) = (begun.elapsed().as_secs_f64(), cpu.used());
        took[at] = wall_s * 1e6 / count as f64;
        phases.push(Phase {
            name: format!("{} {}", work.name(), NAMES[at]),
            pass: round,
            wall_s,
            user_s: cpu.user.as_secs_f64(),
            sys_s: cpu.sys.as_secs_f64(),
            items: count as u64,
            items_per_sec: count as f64 / wall_s.max(f64::MIN_POSITIVE),
            ..Phase::default()
        });
    }
    part.phases.extend(phases);
    part.pairs.entry(work).or_default().push((took[0], took[1]));
    Ok(())
}

/// A few operations of each kind through the mount, not timed.
fn count_requests(
    sides: &Sides,
    device: u64,
    side: &mut Side,
    stop: &AtomicBool,
    part: &mut Part,
) -> Result<(), Cut> {
    let counter = match Counter::of(&sides.mount, device) {
        Ok(counter) => counter,
        Err(error) => {
            part.uncounted = Some(error_chain(&error));
            return Ok(());
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
                part.requests.insert(work, (each(counted.waited()), each(counted.all())));
            }
            Err(error) => {
                part.uncounted = Some(error_chain(&error));
                return Ok(());
            }
        }
    }
    Ok(())
}
