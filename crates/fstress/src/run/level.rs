//! One load level: begun by all ranks together, measured, merged, judged.
//!
//! Always holds: a level that was measured is in the run, also one that was cut short; a repeat that was cut short replaces nothing.

use std::time::Duration;

use harness::{Event, Level, LevelsAfter};
use measure::{CpuMeter, FileSetRecord, LoadPoint, MachineMeter, MeterScope};

use super::Session;
use super::config::CLOSED_LOOP_RATE;
use crate::error::FstressError;
use crate::load::Load;
use crate::open_loop::arrivals::{Arrivals, stream};
use crate::open_loop::metronome::{CutShort, Measured, Metronome, Pace, Spans};
use crate::open_loop::planner::Planner;
use crate::ranks::FstressRanks as _;
use crate::results::judge::{self, Asked};

/// A load level to measure.
pub(super) struct LevelAsked {
    /// Its place among the levels of the run, from 1.
    pub number: u32,
    /// Of how many, where that is known.
    pub of: Option<u32>,
    /// How many follow.
    pub after: LevelsAfter,
    /// Requests a second; none in a closed loop.
    pub rate: Option<f64>,
    /// Requests outstanding; none in an open loop.
    pub outstanding: Option<u32>,
    /// What spoilt the measurement that this one replaces.
    pub spoilt: Option<String>,
}

/// Measures one level, and puts it in its place.
pub(super) fn measure(
    session: &mut Session<'_>,
    planner: &mut Planner,
    level: LevelAsked,
) -> Result<(), FstressError> {
    let config = session.config;
    let LevelAsked { number, of, after, rate, outstanding, spoilt } = level;
    session.levels_begun += 1;
    let (warm, measure) = (config.warm, config.measure);
    (session.tell)(Event::LevelBegins(Level { offered_per_sec: rate, number, of, warm, measure, after }));
    let seed_of_point =
        session.seed ^ rand::Rng::next_u64(&mut stream(session.seed, 100 + u64::from(number)));
    let pace = match rate {
        Some(rate) => {
            let later = match config.arrivals {
                Arrivals::Uniform => session.group.phase_of(rate),
                // What is random already is independent of the other ranks.
                _ => Duration::ZERO,
            };
            Pace::Open(config.arrivals.schedule(session.group.rate_of(rate), seed_of_point), later)
        }
        None => Pace::Closed(session.group.part_of(outstanding.unwrap_or(1).into()) as u32),
    };
    if let Some(raw) = &mut session.raw {
        let ready = raw.begin(rate.map(|rate| session.group.rate_of(rate)), config.measure);
        session.together("room for raw samples", ready, None).1?;
    }
    // Before the common begin, as it takes some milliseconds.
    let scope = MeterScope { has_ranks: session.group.is_joined(), ..MeterScope::of_threads(1) };
    let meter = session.watches_machine.then(|| (MachineMeter::start(scope), CpuMeter::start()));
    let begin = session.group.begin(session.clock, config.warm, config.measure)?;
    let tell = &mut session.tell;
    let mut measured = Metronome {
        transport: &mut *session.transport,
        planner,
        flights: &mut session.flights,
        clock: session.clock,
        pacer: &mut session.pacer,
        stop: session.stop,
        tell: &mut |event| tell(event),
        point: session.levels_begun,
        set_bytes_made: session.set_bytes_made,
        samples: session.raw.as_mut().map(|raw| &mut raw.samples),
    }
    .run(begin, pace, Spans { warm: config.warm, measure: config.measure, drain: config.drain });

    if let Some((meter, cpu)) = meter {
        session.costs.level_done(number, cpu.used().sys, measured.steps.total(), rate.is_some());
        measured.machine = meter.stop();
    }
    if measured.cut_short.is_some() {
        session.end_others();
    }
    let set = &planner.set;
    let file_set = FileSetRecord {
        files_asked: if config.workload.needs_files() {
            session.files_at(rate.unwrap_or(CLOSED_LOOP_RATE))
        } else {
            0
        },
        files: set.file_count(),
        directories: set.directory_count(),
        symlinks: set.symlink_count(),
        bytes: set.file_bytes(),
    };
    let (measured, file_set, parts) = session.group.merge(measured, rate, file_set, config.drain)?;
    let is_local = session.transport.is_local();
    let others = session.points.iter().enumerate().filter(|(index, _)| *index + 1 != number as usize);
    let light = others.filter_map(|(_, point)| point.pacing.as_ref());
    let light_p50_us =
        light.map(|pacing| pacing.latency_from_sent_us.p50).filter(|p50| *p50 > 0.0).min_by(f64::total_cmp);
    let (mix, chains) = (&config.workload.requests(), &config.workload.chains);
    let drain = config.drain;
    let asked = Asked { rate, outstanding, mix, chains, file_set, drain, light_p50_us, is_local };
    let mut point = judge::load_point(&measured, &asked, parts);
    if let Some(why) = spoilt {
        judge::note_repeat(&mut point, &why);
    }
    if let Load::FindMax { bound, .. } = &config.load {
        judge::note_bound(&mut point, bound);
    }
    let Measured { cut_short, measured, machine, .. } = measured;
    let mut kept = Ok(());
    // Cut short in its warm-up it has nothing to say but what it waited for.
    let unanswered = session.transport.in_flight();
    if measured.is_zero() && unanswered > 0 {
        (session.tell)(Event::Note(format!(
            "interrupted in the warm-up with {unanswered} requests that the storage has not answered; is the server still \
             running?"
        )));
    }
    // A repeat that was cut short replaces nothing.
    let is_better = cut_short.is_none() || session.points.len() < number as usize;
    if !measured.is_zero() && is_better {
        (session.tell)(Event::LevelDone(Box::new(point.clone())));
        place(&mut session.points, number, point);
        session.machine.insert(number, machine);
        if let Some(raw) = &mut session.raw {
            let written = raw.write(number);
            kept = session.together("writing raw samples", written, None).1;
        }
    }
    match cut_short {
        Some(CutShort::Gone(error)) => Err(error),
        Some(CutShort::Stopped) => Err(FstressError::Interrupted),
        None => kept,
    }
}

/// Puts a level in its place, also of one measured before.
pub(crate) fn place(points: &mut Vec<LoadPoint>, number: u32, point: LoadPoint) {
    match points.get_mut((number as usize).saturating_sub(1)) {
        Some(before) => *before = point,
        None => points.push(point),
    }
}
