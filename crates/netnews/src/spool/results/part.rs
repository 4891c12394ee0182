//! What one rank measured, or all ranks together: raw, so that every figure is computed from the whole.
//!
//! ```text
//! rank 0   Part { phases: unbatch 1, flush 1, unbatch 2 (cut short) }  --+
//! rank 1   Part { phases: unbatch 1, flush 1, unbatch 2 }              --+-- merged --> Part --> figures, verdict
//! ```
//!
//! Always holds: counts and latencies of ranks are added exactly; a phase that any rank ended early, or did not do from its
//! begin, is not whole, and a phase that not all ranks have is left out; what a device did is of one machine and is not
//! added up.
//! Not here: what is computed from it (see `figures`, `verdict`).

use std::collections::BTreeMap;
use std::time::Duration;

use harness::ranks::{Steps, merge_phases};
use measure::{MachineLog, MachineUse, Phase, RankPart, StepCounts};
use serde::{Deserialize, Serialize};

use super::outcome::RunCounts;
use crate::spool::passes::costs::StoringCosts;
use crate::spool::passes::readers::Readings;
use crate::spool::recovery::Recovered;

/// How a run ended, the better before the worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ending {
    /// All passes were done.
    #[default]
    Complete,
    /// Its time limit was reached.
    OutOfTime,
    /// It was asked to stop.
    Interrupted,
    /// An error ended it.
    Failed,
}

/// A phase of a pass.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MeasuredPhase {
    /// Time, items, and as counters what adds up over ranks.
    pub phase: Phase,
    /// Counters that do not add up: what the devices of one machine did.
    pub of_machine: BTreeMap<String, f64>,
    /// What else the machine did meanwhile; nothing when an earlier run measured it.
    pub machine: MachineUse,
    /// What the readers did meanwhile; none without readers, or when an earlier run measured it.
    pub readings: Option<Readings>,
    /// How it went over its time: articles or names; nothing of phases that are one piece of work.
    pub timed: StepCounts,
    /// How far it had come when; nothing for a process alone.
    pub steps: Steps,
    /// It was done from its begin to its end, by all ranks together.
    pub whole: bool,
    /// An earlier run of a resumed spool measured it.
    pub earlier: bool,
}

/// A finding that shows on one rank's machine alone, such as how a disk is mounted there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalFinding {
    /// Short name, as in a verdict.
    pub code: String,
    /// One sentence with the numbers.
    pub text: String,
}

/// How often caches were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheDrops {
    /// Places whose caches were dropped before a phase.
    pub dropped: u64,
    /// Of these, the ones that were proven to be empty.
    pub proven: u64,
}

/// What one of several ranks did by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OfRank {
    /// Its number.
    pub rank: u32,
    /// Where it ran.
    pub host: String,
    /// Its passes of storing: number, articles, articles a second.
    pub stored: Vec<(u32, u64, f64)>,
}

/// What one rank measured, or all of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// `unbatch`, `batch`, `expire-scan`, `expire` and `flush` of each pass; on a resumed spool those of before too.
    pub phases: Vec<MeasuredPhase>,
    /// How it ended.
    pub ending: Ending,
    /// Sums over the passes of this run.
    pub counts: RunCounts,
    /// Batches of the feed.
    pub feed_batches: u64,
    /// Of these, the ones that the passes take.
    pub batches_taken: u64,
    /// What opening a resumed spool took.
    pub recovered: Option<Recovered>,
    /// Caches dropped before phases.
    pub cache_drops: CacheDrops,
    /// Rules that no group of the feed follows, one sentence each; known when all passes were done.
    pub idle_rules: Vec<String>,
    /// What shows on one machine alone.
    pub local: Vec<LocalFinding>,
    /// What storing cost; nothing of several ranks.
    #[serde(default)]
    pub costs: StoringCosts,
    /// Each of several ranks by itself; nothing for a process alone.
    pub ranks: Vec<OfRank>,
}

/// Counters of phases that add up: all others of an earlier run's phases may be of a device, or percentiles.
const COUNTS_OF_PHASES: [&str; 11] = [
    "offered",
    "duplicates",
    "broken",
    "cancelled",
    "superseded",
    "hard_links",
    "symlinks",
    "missing",
    "batches",
    "articles",
    "names_missing",
];

/// On how many ranks a phase was not whole, as a counter of it.
const CUT_SHORT: &str = "ranks_cut_short";

impl LocalFinding {
    pub(crate) fn new(code: &str, text: String) -> Self {
        Self { code: code.to_owned(), text }
    }
}

impl MeasuredPhase {
    /// One that an earlier run of a resumed spool measured.
    pub(crate) fn of_earlier_run(mut phase: Phase) -> Self {
        let counters = std::mem::take(&mut phase.counters);
        let (counts, of_machine) =
            counters.into_iter().partition(|(name, _)| COUNTS_OF_PHASES.contains(&name.as_str()));
        phase.counters = counts;
        Self { phase, of_machine, whole: true, earlier: true, ..Self::default() }
    }

    /// As a record has it.
    pub fn recorded(&self) -> Phase {
        let mut phase = self.phase.clone();
        phase.counters.extend(self.of_machine.clone());
        if let Some(readings) = &self.readings {
            phase.counters.extend(readings.counters(phase.wall_s));
        }
        let wall = Duration::try_from_secs_f64(phase.wall_s).unwrap_or_default();
        phase.time_series = self.timed.clone().series(wall);
        phase
    }

    fn is(&self, other: &Phase) -> bool {
        (&self.phase.name, self.phase.pass) == (&other.name, other.pass)
    }
}

impl Part {
    /// Whether all passes were done.
    pub fn is_complete(&self) -> bool {
        self.ending == Ending::Complete
    }

    /// Whether a resumed spool was complete already, so that this run measured nothing.
    pub fn had_nothing_left(&self) -> bool {
        self.is_complete() && !self.phases.is_empty() && self.phases.iter().all(|phase| phase.earlier)
    }

    /// All phases, as a record has them.
    pub fn recorded_phases(&self) -> Vec<Phase> {
        self.phases.iter().map(MeasuredPhase::recorded).collect()
    }

    /// The phases that figures are computed from: those that are whole, or all where none is.
    pub fn counting_phases(&self) -> impl Iterator<Item = &MeasuredPhase> {
        let any_whole = self.phases.iter().any(|phase| phase.whole);
        self.phases.iter().filter(move |phase| phase.whole || !any_whole)
    }

    /// What else the machine did in the phases of this run.
    pub fn machine(&self) -> MachineLog {
        let mut log = MachineLog::default();
        for measured in &self.phases {
            let name = format!("{} of pass {}", measured.phase.name, measured.phase.pass);
            log.push(&name, measured.machine.clone());
        }
        log
    }

    fn passes_of_storing(&self) -> Vec<(u32, u64, f64)> {
        let unbatch = self.phases.iter().map(|phase| &phase.phase).filter(|phase| phase.name == "unbatch");
        unbatch.map(|phase| (phase.pass, phase.items, phase.items_per_sec)).collect()
    }

    fn add(&mut self, row: &RankPart, part: Self) {
        self.ending = self.ending.max(part.ending);
        self.counts += part.counts;
        self.feed_batches += part.feed_batches;
        self.batches_taken += part.batches_taken;
        self.recovered = match (self.recovered.take(), part.recovered) {
            (Some(one), Some(other)) => Some(one.and(other)),
            (one, other) => one.or(other),
        };
        self.cache_drops.dropped += part.cache_drops.dropped;
        self.cache_drops.proven += part.cache_drops.proven;
        self.ranks.push(OfRank { rank: row.rank, host: row.host.clone(), stored: part.passes_of_storing() });
        for LocalFinding { code, text } in part.local {
            // What many have is said once.
            if !self.local.iter().any(|known| known.code == code) {
                let text = format!("rank {} on {}: {text}", row.rank, row.host);
                self.local.push(LocalFinding { code, text });
            }
        }
    }
}

/// One part of those of all ranks: as if one process had done it all, each phase as long as on the slowest rank.
pub(crate) fn merged(mut parts: Vec<(RankPart, Part)>) -> Part {
    for (_, part) in &mut parts {
        part.phases = once_each(std::mem::take(&mut part.phases));
    }
    let phases = merged_phases(&parts);
    // A rule is idle when no rank has a group that follows it.
    let idle_on_all = |rule: &&String| parts.iter().all(|(_, part)| part.idle_rules.contains(rule));
    let idle_rules = parts[0].1.idle_rules.iter().filter(idle_on_all).cloned().collect();
    let mut whole = Part { phases, idle_rules, ..Part::default() };
    for (row, part) in parts {
        whole.add(&row, part);
    }
    whole
}

fn merged_phases(parts: &[(RankPart, Part)]) -> Vec<MeasuredPhase> {
    let of_rank = |(_, part): &(RankPart, Part)| -> Vec<(Phase, Steps)> {
        let marked = part.phases.iter().map(|measured| {
            let mut phase = measured.phase.clone();
            if !measured.whole {
                phase.counters.insert(CUT_SHORT.to_owned(), 1.0);
            }
            (phase, measured.steps.clone())
        });
        marked.collect()
    };
    let phases = merge_phases(parts.iter().map(of_rank).collect());
    // One that some had and others not, because the run ended early, is no phase of the whole.
    let of_all = phases.into_iter().filter(|phase| phase.counters.contains_key("all_worked_s"));
    let measured = of_all.map(|phase| {
        let mut sum = MeasuredPhase { whole: true, earlier: true, ..MeasuredPhase::default() };
        for one in parts.iter().flat_map(|(_, part)| &part.phases).filter(|one| one.is(&phase)) {
            sum.whole &= one.whole;
            sum.earlier &= one.earlier;
            sum.machine += &one.machine;
            sum.timed.merge(one.timed.clone());
            if let Some(readings) = &one.readings {
                sum.readings.get_or_insert_default().merge(readings);
            }
        }
        MeasuredPhase { phase, ..sum }
    });
    measured.collect()
}

/// Each phase as it was done last: one that a run was killed in, and that a later run did again, was begun before.
fn once_each(phases: Vec<MeasuredPhase>) -> Vec<MeasuredPhase> {
    let mut last: Vec<MeasuredPhase> = Vec::with_capacity(phases.len());
    for phase in phases {
        last.retain(|before| !before.is(&phase.phase));
        last.push(phase);
    }
    last
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn phase(name: &str, pass: u32, items: u64) -> MeasuredPhase {
        let phase = Phase {
            name: name.to_owned(),
            pass,
            wall_s: 2.0,
            items,
            items_per_sec: items as f64 / 2.0,
            counters: [("offered".to_owned(), items as f64)].into(),
            ..Phase::default()
        };
        let of_machine = [("device_busy_percent".to_owned(), 50.0)].into();
        MeasuredPhase { phase, of_machine, whole: true, ..MeasuredPhase::default() }
    }

    fn of_ranks(parts: Vec<Part>) -> Part {
        let rows = (0..).map(|rank| RankPart { rank, host: format!("host{rank}"), ..RankPart::default() });
        merged(rows.zip(parts).collect())
    }

    fn part(phases: Vec<MeasuredPhase>) -> Part {
        Part { phases, ..Part::default() }
    }

    #[test]
    fn counts_add_up_and_what_a_device_did_is_of_no_whole() {
        let both = of_ranks(vec![part(vec![phase("unbatch", 1, 10)]), part(vec![phase("unbatch", 1, 30)])]);
        let whole = both.phases[0].recorded();
        assert_eq!((whole.items, whole.counters["offered"]), (40, 40.0));
        assert!(!whole.counters.contains_key("device_busy_percent"), "{whole:?}");
        let stored: Vec<_> = both.ranks.iter().map(|rank| rank.stored.clone()).collect();
        assert_eq!(stored, [vec![(1, 10, 5.0)], vec![(1, 30, 15.0)]]);
    }

    /// Symptom: a phase of a run by ranks had no read latencies. Cause: percentiles do not add up, and were all that ranks gave
    /// each other. Fix: the latencies themselves are added up.
    #[test]
    fn percentiles_of_reading_are_those_of_all_ranks_together() {
        let reading = |ms: u64, count: usize| {
            let mut readings = Readings::default();
            (0..count).for_each(|_| readings.latency.record(Duration::from_millis(ms)));
            part(vec![MeasuredPhase { readings: Some(readings), ..phase("unbatch", 1, 10) }])
        };
        // Half of all take 1 ms; the mean of the medians would be near 7.
        let both = of_ranks(vec![reading(1, 60), reading(13, 40)]);
        let counters = both.phases[0].recorded().counters;
        let near = |name: &str, ms: f64| (counters[name] / 1e3 - ms).abs() < 0.1;
        assert!(near("read_latency_p50_us", 1.0) && near("read_latency_p99_us", 13.0), "{counters:?}");
        assert_eq!(counters["read_articles_per_sec"], 50.0);
    }

    #[test]
    fn a_phase_that_not_all_ranks_have_is_left_out_and_one_cut_short_on_any_is_not_whole() {
        let cut = |phase: MeasuredPhase| MeasuredPhase { whole: false, ..phase };
        let both = of_ranks(vec![
            part(vec![phase("unbatch", 1, 10), phase("unbatch", 2, 10), phase("flush", 2, 0)]),
            part(vec![phase("unbatch", 1, 10), cut(phase("unbatch", 2, 3))]),
        ]);
        let names: Vec<_> = both.phases.iter().map(|phase| (phase.phase.pass, phase.whole)).collect();
        assert_eq!(names, [(1, true), (2, false)]);
        assert_eq!(both.phases[1].recorded().counters[CUT_SHORT], 1.0);
        assert_eq!(both.counting_phases().count(), 1);
        let nothing_else = part(vec![cut(phase("unbatch", 1, 3))]);
        assert_eq!(nothing_else.counting_phases().count(), 1);
    }

    #[test]
    fn of_a_phase_that_was_begun_before_a_kill_only_the_last_counts() {
        let phases = ["unbatch", "expire-scan", "expire-scan", "expire"].map(|name| phase(name, 3, 1));
        let mut phases: Vec<MeasuredPhase> = phases.into();
        phases[2].phase.items = 7;
        let once: Vec<(String, u64)> =
            once_each(phases).into_iter().map(|phase| (phase.phase.name, phase.phase.items)).collect();
        assert_eq!(once.len(), 3);
        assert_eq!(once[1], ("expire-scan".to_owned(), 7));
    }

    #[test]
    fn of_an_earlier_runs_phase_only_what_is_known_to_add_up_does() {
        let counters = [("offered", 10.0), ("read_latency_p50_us", 3.0), ("device_queue_mean", 2.0)];
        let counters = counters.map(|(name, value)| (name.to_owned(), value)).into();
        let before = Phase { counters, ..phase("unbatch", 1, 10).phase };
        let measured = MeasuredPhase::of_earlier_run(before.clone());
        assert_eq!(measured.recorded(), before);
        let both = of_ranks(vec![part(vec![measured.clone()]), part(vec![measured])]);
        let counters = both.phases[0].recorded().counters;
        assert_eq!(counters["offered"], 20.0);
        assert!(!counters.contains_key("read_latency_p50_us") && !counters.contains_key("device_queue_mean"));
        assert!(both.phases[0].earlier);
    }

    #[test]
    fn a_rule_is_idle_when_it_is_on_all_ranks_and_a_finding_of_many_is_said_once() {
        let finding = |code: &str| LocalFinding { code: code.to_owned(), text: "x".to_owned() };
        let with = |rules: &[&str], local: Vec<LocalFinding>| Part {
            idle_rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
            local,
            ..Part::default()
        };
        let both = of_ranks(vec![
            with(&["alt", "comp"], vec![finding("discard")]),
            with(&["comp"], vec![finding("discard"), finding("cache-bound")]),
        ]);
        assert_eq!(both.idle_rules, ["comp"]);
        let said: Vec<&str> = both.local.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(said, ["rank 0 on host0: x", "rank 1 on host1: x"]);
    }

    #[test]
    fn the_worst_end_of_any_rank_is_that_of_the_whole() {
        let ended = |ending| Part { ending, ..Part::default() };
        let all =
            of_ranks(vec![ended(Ending::Complete), ended(Ending::Interrupted), ended(Ending::OutOfTime)]);
        assert_eq!(all.ending, Ending::Interrupted);
        assert!(!all.is_complete());
    }
}
