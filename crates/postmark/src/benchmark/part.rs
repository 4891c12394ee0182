//! Raw counts, times and latencies of one rank, or of all ranks together.
//!
//! Always holds: counts and latencies are added exactly; the rates that lead are those while all ranks worked, and beside
//! them stand the rate until the last one ended and how long that tail was; everything else counts until the last one ended.

use std::time::Duration;

use harness::Surroundings;
use harness::ranks::{Steps, merge_phases};
use measure::{
    COST_OF_RANKS, CpuTimes, DiskUse, KeptFiles, LatencyHistogram, MachineLog, NO_DEVICE, Phase, RankPart,
    StorageCost, Usage, Verdict,
};
use serde::{Deserialize, Serialize};

use super::watch::{Watch, name_of};
use crate::engine::{self, Counts, Ending, Latencies, Outcome, PhaseTimes};
use crate::figures::per_sec;

/// From this share of a phase on its tail is worth a word.
const TAIL_SHARE: f64 = 0.1;

/// What one rank measured, or all of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// What was done.
    pub counts: Counts,
    /// Transactions begun and ended.
    pub transactions_done: u64,
    /// Why the transactions ended.
    pub ending: Ending,
    /// Of the operations on files.
    pub latencies: Latencies,
    /// Each phase's time, the longest of all ranks, and CPU time, of all ranks.
    pub times: Vec<(engine::Phase, Duration, CpuTimes)>,
    /// Workers.
    pub threads: usize,
    /// What the device did, where all that worked on it is known.
    pub disk: Option<DiskUse>,
    /// What the files took when the transactions had ended; none of several ranks, which share a file system.
    pub kept: Option<KeptFiles>,
    /// A server did the work, out of sight.
    pub remote: bool,
    /// As a record has them.
    pub phases: Vec<Phase>,
    /// How far each of `phases` had come when; nothing for a process alone, or after merging.
    pub steps: Vec<Steps>,
    /// What else the machines did meanwhile.
    pub machine: MachineLog,
    /// How each rank fared; nothing before merging.
    pub rows: Vec<RankPart>,
}

impl Part {
    pub(super) fn of(outcome: Outcome, watch: &Watch, threads: usize, remote: bool) -> Self {
        let phases = watch.phases(&outcome);
        let time = |times: &PhaseTimes| (times.phase, times.wall(), times.cpu);
        Self {
            steps: phases.iter().map(|phase| watch.steps(phase, &outcome)).collect(),
            phases,
            times: outcome.phases.iter().map(time).collect(),
            counts: outcome.counts,
            transactions_done: outcome.transactions_done,
            ending: outcome.ending,
            latencies: outcome.latencies.map(|latencies| *latencies).unwrap_or_default(),
            threads,
            disk: watch.disk(),
            machine: watch.machine(),
            remote,
            kept: None,
            rows: vec![],
        }
    }

    /// All transactions were done.
    pub fn is_complete(&self) -> bool {
        self.ending == Ending::Complete
    }

    /// How long a phase took; nothing for one that did not run.
    pub fn wall(&self, phase: engine::Phase) -> Duration {
        self.times.iter().find(|times| times.0 == phase).map(|times| times.1).unwrap_or_default()
    }

    /// The phases with how each went over its time.
    pub fn recorded_phases(&self) -> Vec<Phase> {
        let with_series = |phase: &Phase| {
            let steps = self.latencies.steps.iter().find(|(of, _)| name_of(*of) == phase.name);
            let wall = Duration::try_from_secs_f64(phase.wall_s).unwrap_or_default();
            let time_series = steps.and_then(|(_, steps)| steps.clone().series(wall));
            Phase { time_series, ..phase.clone() }
        };
        self.phases.iter().map(with_series).collect()
    }

    /// From the first file made to the last one removed; making and removing subdirectories is not part of it.
    pub fn wall_of_files(&self) -> Duration {
        use engine::Phase::{Create, Delete, Transactions};
        [Create, Transactions, Delete].map(|phase| self.wall(phase)).iter().sum()
    }

    /// What storing cost.
    pub fn cost(&self) -> StorageCost {
        use engine::Phase::{Create, Delete, Transactions};
        let of_files = |phase: &engine::Phase| matches!(phase, Create | Transactions | Delete);
        let sys = self.times.iter().filter(|(phase, ..)| of_files(phase)).map(|(_, _, cpu)| cpu.sys).sum();
        let (operations, stored) = (self.all_latencies().count(), self.counts.bytes_written);
        let machine = &self.machine.whole;
        let (cpu, written) = match (&self.disk, self.remote) {
            (_, true) => (
                StorageCost::cpu_of_server(machine, operations),
                StorageCost::written_by_server(machine, stored),
            ),
            (Some(disk), false) => (Ok((sys, operations)), Ok((disk.written_bytes, stored))),
            (None, false) => (Ok((sys, operations)), Err(NO_DEVICE.to_owned())),
        };
        let kept = if self.rows.is_empty() {
            StorageCost::kept_of(self.kept)
        } else {
            Err(COST_OF_RANKS.to_owned())
        };
        StorageCost { cpu, written, kept }
    }

    /// What the run used.
    pub fn usage(&self) -> Usage {
        Usage {
            wall: self.times.iter().map(|times| times.1).sum(),
            cpu: self.times.iter().map(|times| times.2).sum(),
            threads: self.threads,
            bytes_asked: self.counts.bytes_read + self.counts.bytes_written,
            disk: self.disk.clone(),
            remote: self.remote,
        }
    }

    /// Latencies of all operations.
    pub fn all_latencies(&self) -> LatencyHistogram {
        let Latencies { create, read, append, delete, .. } = &self.latencies;
        let mut all = LatencyHistogram::new();
        [create, read, append, delete].iter().for_each(|of_kind| all.merge(of_kind));
        all
    }
}

/// As if one process had done it all, each phase as long as on the slowest rank.
pub(super) fn merged(mut parts: Vec<(RankPart, Part)>) -> Part {
    let one_host = parts.iter().all(|(row, _)| row.host == parts[0].0.host);
    // A device's counters are those of all ranks on its host: they do not add up.
    let device: Vec<Phase> = parts[0].1.phases.clone();
    let steps_of = |(_, part): &mut (RankPart, Part)| -> Vec<(Phase, Steps)> {
        let phases = part.phases.iter().cloned().zip(std::mem::take(&mut part.steps));
        phases.map(|(phase, steps)| (Phase { counters: Default::default(), ..phase }, steps)).collect()
    };
    let mut phases = merge_phases(parts.iter_mut().map(steps_of).collect());
    if one_host {
        for phase in &mut phases {
            let own = device.iter().find(|own| own.name == phase.name);
            phase.counters.extend(own.into_iter().flat_map(|own| own.counters.clone()));
        }
    }
    let rows = parts.iter().map(|(row, part)| fared(row, part, &phases)).collect();
    let mut sum = Part { phases, rows, ..Part::default() };
    sum.disk = parts[0].1.disk.take().filter(|_| one_host);
    for (_, part) in parts {
        sum.counts.add(&part.counts);
        sum.transactions_done += part.transactions_done;
        sum.ending = sum.ending.max(part.ending);
        sum.latencies.merge(&part.latencies);
        sum.threads += part.threads;
        sum.remote |= part.remote;
        sum.machine.merge(part.machine);
        for (phase, wall, cpu) in part.times {
            match sum.times.iter_mut().find(|known| known.0 == phase) {
                Some(known) => *known = (phase, known.1.max(wall), known.2 + cpu),
                None => sum.times.push((phase, wall, cpu)),
            }
        }
    }
    sum
}

/// How a rank fared: `held` is the share of its time that all worked, 1 for the first to end.
fn fared(row: &RankPart, part: &Part, phases: &[Phase]) -> RankPart {
    let all = part.all_latencies();
    let all_per_sec = per_sec(all.count(), part.wall_of_files());
    let all_worked_s: f64 = phases.iter().filter_map(|phase| phase.counters.get("all_worked_s")).sum();
    let own_s: f64 = part.phases.iter().map(|phase| phase.wall_s).sum();
    RankPart {
        sent_per_sec: all_per_sec,
        achieved_per_sec: all_per_sec,
        held: if own_s > 0.0 { (all_worked_s / own_s).min(1.0) } else { 0.0 },
        latency_us: all.summary(),
        generator_busy: part.usage().cpu_share(),
        ..row.clone()
    }
}

/// What a verdict says of several ranks: nothing of devices that rank 0 does not see, and where ranks came to their ends
/// far apart, who was the last.
pub(super) fn judge_ranks(whole: &Part, around: &Surroundings, verdict: &mut Verdict) {
    if !around.is_joined() {
        return;
    }
    if !around.one_host() && !whole.remote {
        let bound = whole.usage().bound().0.code();
        verdict.reasons.retain(|reason| reason.code != bound);
    }
    let tail_s: f64 = whole.phases.iter().filter_map(|phase| phase.counters.get("tail_s")).sum();
    let wall_s: f64 = whole.phases.iter().map(|phase| phase.wall_s).sum();
    let slowest = whole.rows.iter().min_by(|a, b| a.held.total_cmp(&b.held));
    if let Some(slowest) = slowest.filter(|_| tail_s > TAIL_SHARE * wall_s) {
        let percent = 100.0 * tail_s / wall_s;
        verdict.remark(
            "uneven-ranks",
            format!(
                "the ranks came to their ends {tail_s:.1} s apart ({percent:.0}% of the time), rank {} on {} as the \
                 last; the leading rates count while all worked",
                slowest.rank, slowest.host
            ),
        );
    }
}
