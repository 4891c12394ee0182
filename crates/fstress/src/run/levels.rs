//! Which levels a run measures, and which of them again.
//!
//! 1. A sweep measures its rates in their order; a search chooses each rate by how the one before went.
//! 2. A level that the generator or a disturbed machine spoilt says nothing about the storage. A search measures one that was not held
//!    again at once, as the next rate depends on it.
//! 3. At the end each spoilt level that the answer rests on is measured again, once. Others keep their mark.
//!
//! Always holds: what the storage did has no level measured again.

use harness::{Event, LevelsAfter};
use measure::LoadPoint;

use super::Session;
use super::config::CLOSED_LOOP_RATE;
use super::level::{self, LevelAsked};
use crate::error::FstressError;
use crate::load::{Load, SEARCH_RULE, Search};
use crate::open_loop::planner::Planner;
use crate::results::judge;

/// How often a search measures a level that the generator kept from being held, as the next rate depends on it.
const TRIES_MAX: u32 = 3;

/// Measures all levels that `load` asks for.
pub(super) fn measure_all(
    session: &mut Session<'_>,
    planner: &mut Planner,
    needs_files: bool,
) -> Result<(), FstressError> {
    match session.config.load.clone() {
        Load::Sweep(rates) => {
            let of = rates.len() as u32;
            for (rate, after) in rates.into_iter().zip((0..of).rev()) {
                if needs_files {
                    session.resize(planner, rate)?;
                }
                let after = LevelsAfter::About(after);
                let level = LevelAsked { of: Some(of), after, ..next_level(session, rate) };
                level::measure(session, planner, level)?;
            }
            repeat_spoilt_answers(session, planner, needs_files)
        }
        Load::Auto { first } => search(session, planner, first, needs_files, "held", judge::was_held),
        Load::FindMax { first, bound } => {
            let goal = format!("held with {bound}");
            search(session, planner, first, needs_files, &goal, |point| {
                judge::was_held(point) && judge::is_within(point, &bound)
            })
        }
        Load::Max { outstanding } => {
            if needs_files {
                session.resize(planner, CLOSED_LOOP_RATE)?;
            }
            let outstanding = Some(outstanding);
            let after = LevelsAfter::About(0);
            level::measure(
                session,
                planner,
                LevelAsked { number: 1, of: Some(1), after, rate: None, outstanding, spoilt: None },
            )
        }
    }
}

fn search(
    session: &mut Session<'_>,
    planner: &mut Planner,
    first: f64,
    needs_files: bool,
    goal: &str,
    holds: impl Fn(&LoadPoint) -> bool,
) -> Result<(), FstressError> {
    (session.tell)(Event::Note(format!("searching for the highest rate {goal}: {SEARCH_RULE}")));
    let mut search = Search::from(first);
    while let Some(rate) = search.next_rate() {
        if needs_files {
            session.resize(planner, rate)?;
        }
        let mut level = LevelAsked { after: search.levels_after(), ..next_level(session, rate) };
        let (number, level_after) = (level.number, level.after);
        let mut tries_left = TRIES_MAX;
        loop {
            level::measure(session, planner, level)?;
            tries_left -= 1;
            let point = &session.points[number as usize - 1];
            // A level that the generator spoilt says nothing about the storage.
            if holds(point) || !judge::was_spoilt_by_others(point) || tries_left == 0 {
                break;
            }
            let why = judge::briefly(point);
            (session.tell)(Event::Note(format!("{rate}/s is measured again: {why}")));
            level = LevelAsked { number, after: level_after, spoilt: Some(why), ..next_level(session, rate) };
        }
        search.learn(rate, holds(session.points.last().expect("a load point was just measured")));
    }
    repeat_spoilt_answers(session, planner, needs_files)
}

/// Measures again what the answer rests on and the generator spoilt, each level once: such a level says nothing about the
/// storage. What the storage did has no level measured again.
fn repeat_spoilt_answers(
    session: &mut Session<'_>,
    planner: &mut Planner,
    needs_files: bool,
) -> Result<(), FstressError> {
    // The set has the size of the level that was measured last.
    let mut last = session.points.len().saturating_sub(1);
    while let Some(index) = judge::answer_to_repeat(&session.points, &session.config.load) {
        let point = &session.points[index];
        let Some(rate) = point.offered_per_sec else { return Ok(()) };
        let why = judge::briefly(point);
        (session.tell)(Event::Note(format!("{rate}/s is measured again, as the answer rests on it: {why}")));
        if needs_files && index != last {
            session.resize(planner, rate)?;
        }
        last = index;
        let (number, of) = (index as u32 + 1, Some(session.points.len() as u32));
        level::measure(
            session,
            planner,
            LevelAsked { number, of, spoilt: Some(why), ..next_level(session, rate) },
        )?;
    }
    Ok(())
}

/// The level after those measured so far, in an open loop.
fn next_level(session: &Session<'_>, rate: f64) -> LevelAsked {
    let number = session.points.len() as u32 + 1;
    let after = LevelsAfter::Unknown;
    LevelAsked { number, of: None, after, rate: Some(rate), outstanding: None, spoilt: None }
}
