//! Replicas of a closed-loop benchmark, one a rank, each on files of its own: their phases begin together, and a figure
//! counts while all of them work.
//!
//! ```text
//! rank 0  begin --#################                 first to end
//! rank 1  begin --########################--         last to end
//!                 |-- all work ----|-tail-|
//! ```
//!
//! The rate of the whole is what all had done when the first came to its end, through that time: afterwards the storage
//! bears less than it was asked to. It is known from each rank's own steps; nothing crosses for it while they work.
//!
//! Always holds: ranks begin a phase at a common moment or not at all; once one of them does not go on, each goes its own way
//! to its end, where all meet again; only what went wrong stops the others, as the time of all is up at about the same moment.
//! Not here: what a phase does (`postmark`, `netnews`).
//! Source: the stonewall of IOR and mdtest, as their manuals describe it.

use std::sync::atomic::{AtomicBool, Ordering};

use measure::{Phase, RankPart};
use quanta::Clock;
use serde::{Deserialize, Serialize};

use super::{RankGroup, RanksError};
use crate::{Entry, PhaseGate, RankState};

/// The replicas as one of their ranks sees them. Alone it does nothing.
pub struct Replicas<'a> {
    group: &'a mut RankGroup,
    clock: Clock,
    stop: &'a AtomicBool,
    /// Each goes its own way.
    apart: bool,
    /// Another one fails or is stopped: no use to go on.
    in_vain: bool,
    wrong: Option<RanksError>,
    skew_ns_max: i64,
}

/// How far a phase had come, step by step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Steps {
    /// Seconds since its begin, and how much was done by then, both rising; whatever it is counted in.
    pub done: Vec<(f64, f64)>,
}

/// Counters that [`merge_phases`] puts into a phase.
const ALL_WORKED_S: &str = "all_worked_s";
const ALL_WORKED_ITEMS: &str = "all_worked_items";
const ALL_WORKED_PER_SEC: &str = "all_worked_items_per_sec";
const TAIL_S: &str = "tail_s";

impl Steps {
    /// What of `items` was done after `at_s` of `wall_s` seconds; between two steps as if it had been done evenly.
    pub fn items_by(&self, at_s: f64, wall_s: f64, items: u64) -> f64 {
        if at_s >= wall_s {
            return items as f64;
        }
        let all = self.done.last().map_or(0.0, |(_, done)| *done);
        if all <= 0.0 {
            return items as f64 * at_s / wall_s;
        }
        let mut before = (0.0, 0.0);
        // After the last step seen there is only the end.
        let end = (wall_s.max(self.done.last().map_or(0.0, |(at, _)| *at)), all);
        for &(after_s, done) in self.done.iter().chain([&end]) {
            if at_s <= after_s {
                let share = if after_s > before.0 { (at_s - before.0) / (after_s - before.0) } else { 1.0 };
                return items as f64 * (before.1 + share * (done - before.1)) / all;
            }
            before = (after_s, done);
        }
        items as f64
    }
}

impl PhaseGate for Replicas<'_> {
    fn is_joined(&self) -> bool {
        self.group.is_joined()
    }

    fn enter(&mut self, phase: &str, state: RankState) -> Entry {
        self.begin(phase, state);
        match (self.in_vain, self.apart || !self.group.is_joined()) {
            (true, _) => Entry::Stop,
            (false, true) => Entry::Alone,
            (false, false) => Entry::Go,
        }
    }
}

impl<'a> Replicas<'a> {
    /// Sets `stop` when another rank fails or is stopped.
    pub fn new(group: &'a mut RankGroup, stop: &'a AtomicBool) -> Self {
        Self { group, clock: Clock::new(), stop, apart: false, in_vain: false, wrong: None, skew_ns_max: 0 }
    }

    /// Waits until all are ready for `phase` and begins it with them; one that does not go on, or has been asked to stop,
    /// lets all go their own ways.
    fn begin(&mut self, phase: &str, state: RankState) {
        let was_in_vain = self.in_vain;
        if self.ready(phase, state)
            && let Some(joined) = &mut self.group.0
        {
            match joined.agree_on_begin(&self.clock) {
                Ok(begin) => {
                    joined.wait_for(begin, &self.clock);
                    self.skew_ns_max = self.skew_ns_max.max(joined.skew_ns);
                    tracing::debug!(rank = joined.exchange.rank(), phase, "a phase begins");
                }
                Err(error) => self.part(true, Some(error)),
            }
        }
        if self.in_vain && !was_in_vain {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    /// Whether all go on together.
    fn ready(&mut self, phase: &str, state: RankState) -> bool {
        let Some(joined) = self.group.0.as_mut().filter(|_| !self.apart) else { return false };
        let state = if self.stop.load(Ordering::Relaxed) { RankState::Failed } else { state };
        let mine = (phase.to_owned(), state);
        let met = joined.collective("the next phase", mine, None, |all: Vec<(String, RankState)>| {
            let first = &all[0].0;
            let elsewhere = all.iter().position(|(phase, _)| phase != first);
            let any = |state| all.iter().any(|(_, its)| *its == state);
            (any(RankState::Failed), any(RankState::TimeUp), elsewhere.map(|rank| rank as u32))
        });
        match met {
            Ok((false, false, None)) => return true,
            Ok((true, ..)) => self.part(true, None),
            Ok((false, true, _)) => self.part(false, None),
            Ok((false, false, Some(rank))) => {
                let why = format!("is not at the same phase as rank 0; here it is {phase}");
                let host = joined.host(rank);
                joined.all_know = true;
                self.part(true, Some(RanksError::Elsewhere { rank, host, why }));
            }
            Err(error) => self.part(true, Some(error)),
        }
        false
    }

    fn part(&mut self, in_vain: bool, why: Option<RanksError>) {
        self.apart = true;
        self.in_vain |= in_vain;
        self.wrong = self.wrong.take().or(why);
    }

    /// After this rank's own end: how it went on all of them. `problem` is what went wrong here.
    ///
    /// # Errors
    /// What went wrong on another rank, or that one is lost.
    pub fn end(&mut self, problem: Option<String>) -> Result<(), RanksError> {
        if !self.is_joined() {
            return Ok(());
        }
        // A rank that still waits to begin a phase hears that this one is at its end.
        self.ready("the end", if problem.is_some() { RankState::Failed } else { RankState::TimeUp });
        match self.wrong.take() {
            Some(error) => Err(error),
            None => self.group.all_did("its run", problem),
        }
    }

    /// This rank's own name for what each rank has for itself, such as a folder.
    pub fn own_name(&self, name: &str) -> String {
        if self.group.is_joined() { format!("{name}-r{}", self.group.rank()) } else { name.to_owned() }
    }

    /// This rank's row, filled in with who it is and how late it began at worst.
    pub fn row(&self, mine: RankPart) -> RankPart {
        let Some(joined) = &self.group.0 else { return mine };
        let rank = joined.exchange.rank();
        RankPart {
            rank,
            host: joined.host(rank),
            start_skew_us: self.skew_ns_max as f64 / 1e3,
            clock_uncertainty_us: joined.clocks.uncertainty_ns as f64 / 1e3,
            ..mine
        }
    }

    /// See [`RankGroup::add_up`].
    pub fn group(&mut self) -> &mut RankGroup {
        self.group
    }
}

/// Name, pass and seconds of a phase.
type Wall = (String, u32, f64);
/// What a rank did in a phase; when the first rank ended it, and how much this one had done by then.
type PartOfPhase = (Phase, Option<(f64, f64)>);

/// The phases of all ranks as one list, from those of each with how far they had come when: items, bytes, processor time and
/// counters are added, the time is that of the last to end. What was done while all worked stands in the counters
/// `all_worked_s`, `all_worked_items`, `all_worked_items_per_sec`, and the rest of the time in `tail_s`; a phase that not all
/// have is without them.
pub fn merge_phases(all: Vec<Vec<(Phase, Steps)>>) -> Vec<Phase> {
    let wall = |(phase, _): &(Phase, Steps)| (phase.name.clone(), phase.pass, phase.wall_s);
    let walls = all.iter().map(|phases| phases.iter().map(wall).collect()).collect();
    let firsts = first_ends(walls, all.len() as u32);
    let part = |(phase, steps): (Phase, Steps)| {
        let first = firsts.iter().find(|(name, pass, _)| *name == phase.name && *pass == phase.pass);
        let by_then = first.map(|(_, _, at_s)| (*at_s, steps.items_by(*at_s, phase.wall_s, phase.items)));
        (phase, by_then)
    };
    sum_of_phases(all.into_iter().map(|phases| phases.into_iter().map(part).collect()).collect())
}

/// For each phase that all ranks have, when the first of them ended it.
fn first_ends(all: Vec<Vec<Wall>>, ranks: u32) -> Vec<Wall> {
    let mut firsts: Vec<(Wall, u32)> = Vec::new();
    for (name, pass, wall_s) in all.into_iter().flatten() {
        match firsts.iter_mut().find(|((known, at, _), _)| *known == name && *at == pass) {
            Some(((_, _, first_s), seen)) => {
                *first_s = first_s.min(wall_s);
                *seen += 1;
            }
            None => firsts.push(((name, pass, wall_s), 1)),
        }
    }
    firsts.into_iter().filter(|(_, seen)| *seen == ranks).map(|(wall, _)| wall).collect()
}

fn sum_of_phases(all: Vec<Vec<PartOfPhase>>) -> Vec<Phase> {
    let mut sums: Vec<PartOfPhase> = Vec::new();
    for (phase, by_then) in all.into_iter().flatten() {
        let known = sums.iter_mut().find(|(sum, _)| sum.name == phase.name && sum.pass == phase.pass);
        let Some((sum, sum_by_then)) = known else {
            sums.push((phase, by_then));
            continue;
        };
        sum.wall_s = sum.wall_s.max(phase.wall_s);
        sum.user_s += phase.user_s;
        sum.sys_s += phase.sys_s;
        sum.items += phase.items;
        sum.bytes += phase.bytes;
        for (name, count) in phase.counters {
            *sum.counters.entry(name).or_default() += count;
        }
        if let (Some((_, items)), Some((_, more))) = (sum_by_then, by_then) {
            *items += more;
        }
    }
    let finished = |(mut phase, by_then): PartOfPhase| {
        let per_sec = |items: f64, seconds: f64| if seconds > 0.0 { items / seconds } else { 0.0 };
        phase.items_per_sec = per_sec(phase.items as f64, phase.wall_s);
        if let Some((at_s, items)) = by_then {
            let counters = [
                (ALL_WORKED_S, at_s),
                (ALL_WORKED_ITEMS, items),
                (ALL_WORKED_PER_SEC, per_sec(items, at_s)),
                (TAIL_S, phase.wall_s - at_s),
            ];
            phase.counters.extend(counters.map(|(name, value)| (name.to_owned(), value)));
        }
        phase
    };
    sums.into_iter().map(finished).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_by_a_moment_lies_between_the_steps_around_it() {
        // 10 batches that held 100 articles; the last step was seen 0.5 s before the end.
        let steps = Steps { done: vec![(1.0, 2.0), (2.0, 8.0), (3.5, 10.0)] };
        let by = |at_s| steps.items_by(at_s, 4.0, 100);
        assert_eq!([by(0.0), by(0.5), by(1.0), by(1.5), by(2.0)], [0.0, 10.0, 20.0, 50.0, 80.0]);
        assert_eq!([by(3.5), by(3.9), by(4.0), by(9.0)], [100.0; 4]);
        // Without steps: evenly.
        assert_eq!(Steps::default().items_by(1.0, 4.0, 100), 25.0);
        assert_eq!(Steps::default().items_by(1.0, 1.0, 0), 0.0);
    }

    fn phase(name: &str, wall_s: f64, items: u64) -> Phase {
        let counters = [("links".to_owned(), 3.0)].into();
        Phase { name: name.to_owned(), pass: 1, wall_s, items, counters, user_s: 1.0, ..Phase::default() }
    }

    #[test]
    fn a_rate_counts_until_the_first_rank_ends_and_the_tail_is_told_apart() {
        // Rank 0 does 100 in 10 s. Rank 1 does 100 in 20 s, 30 of them in the first 10.
        let walls = vec![
            vec![("create".to_owned(), 1, 10.0)],
            vec![("create".to_owned(), 1, 20.0), ("delete".to_owned(), 1, 1.0)],
        ];
        assert_eq!(first_ends(walls, 2), [("create".to_owned(), 1, 10.0)]);
        let slow = Steps { done: vec![(10.0, 30.0), (20.0, 100.0)] };
        let parts = vec![
            vec![(phase("create", 10.0, 100), Some((10.0, 100.0)))],
            vec![
                (phase("create", 20.0, 100), Some((10.0, slow.items_by(10.0, 20.0, 100)))),
                (phase("delete", 1.0, 7), None),
            ],
        ];
        let sum = sum_of_phases(parts);
        let create = &sum[0];
        assert_eq!(
            (create.items, create.wall_s, create.user_s, create.items_per_sec),
            (200, 20.0, 2.0, 10.0)
        );
        let counter = |name| create.counters[name];
        assert_eq!((counter(ALL_WORKED_S), counter(ALL_WORKED_ITEMS)), (10.0, 130.0));
        assert_eq!((counter(ALL_WORKED_PER_SEC), counter(TAIL_S), counter("links")), (13.0, 10.0, 6.0));
        assert!(!sum[1].counters.contains_key(ALL_WORKED_S), "not all ranks had it");
    }
}
