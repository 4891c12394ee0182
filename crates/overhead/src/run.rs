//! The rounds.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use harness::Ended;
use measure::{CpuMeter, MachineMeter, MeterScope, Phase, error_chain};
use rustix::fs::stat;

use crate::requests::Counter;
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
    let device = match device_between(sides) {
        Ok(device) => device,
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
    let mut error = match measure_all(config, sides, device, &mut both, stop, &mut part, tell) {
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
    for side in both {
        if let Err(left) = side.remove() {
            error.get_or_insert(left);
        }
    }
    part.complete &= error.is_none();
    Ended { part: Some(part), error }
}

/// The device number of the mount, which is not that of the directory below.
fn device_between(sides: &Sides) -> Result<u64, OverheadError> {
    let of = |place: &Path| {
        stat(place).map(|found| found.st_dev).map_err(|source| OverheadError::Call {
            place: place.display().to_string(),
            call: "stat",
            name: ".".to_owned(),
            source,
        })
    };
    let (lower, mount) = (of(&sides.lower)?, of(&sides.mount)?);
    if lower == mount {
        return Err(OverheadError::SameFileSystem {
            lower: sides.lower.display().to_string(),
            mount: sides.mount.display().to_string(),
        });
    }
    Ok(mount)
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
    if let Some(why) = &part.not_cold {
        tell(Progress::Note(format!("cold lookups are left out: {why}")));
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
        if let Some(why) = both[at].prepare(work, count)? {
            part.not_cold.get_or_insert(why);
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
        if side.prepare(work, count)?.is_some() {
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
