//! The figures of all ranks that ran PostMark as replicas of each other.
//!
//! Always holds: counts and buckets are added exactly; the three rates that lead are those while all ranks worked, and
//! beside them stand the rate until the last one ended and how long that tail was; everything else counts until the last
//! one ended.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use harness::ranks::{Replicas, Steps};
use measure::{CpuTimes, LatencyHistogram, Phase, RankPart, Usage, Verdict};
use postmark::engine::{self, Counts, Ending, Latencies, Outcome, PhaseTimes};
use postmark::figures::{load_point, metrics, per_sec, verdict};
use serde::{Deserialize, Serialize};

use super::Figures;

/// Phase of a record, its rate while all worked, until the last ended, and what came after the first.
const RATES: [(&str, &str, &str, &str); 3] = [
    ("create", "created_alone_per_sec", "created_alone_to_last_per_sec", "create_tail_s"),
    ("transactions", "transactions_per_sec", "transactions_to_last_per_sec", "transactions_tail_s"),
    ("delete", "deleted_alone_per_sec", "deleted_alone_to_last_per_sec", "delete_tail_s"),
];
/// From this share of a phase on its tail is worth a word.
const TAIL_SHARE: f64 = 0.1;

/// What the ranks give each other.
#[derive(Default, Serialize, Deserialize)]
struct Part {
    counts: Counts,
    transactions_done: u64,
    /// By its place in [`ENDINGS`].
    ending: usize,
    /// Of creating, reading, appending, deleting.
    buckets: [Vec<(u64, u64)>; 4],
    /// By place in the run, with wall, user and system seconds.
    times: Vec<(usize, f64, f64, f64)>,
    threads: usize,
    bytes_asked: u64,
}

/// The worst stands for all.
const ENDINGS: [Ending; 3] = [Ending::Complete, Ending::OutOfFiles, Ending::Interrupted];

/// Adds up what all ranks have; each gets the same.
///
/// # Errors
/// When a rank is lost.
pub(super) fn figures(
    replicas: &mut Replicas<'_>,
    mine: &Outcome,
    usage: &Usage,
    phases: Vec<(Phase, Steps)>,
    hosts: &[String],
) -> anyhow::Result<Figures> {
    let one_host = hosts.iter().all(|host| *host == hosts[0]);
    // A device's counters are those of all ranks on its host: they do not add up.
    let own_phases: Vec<Phase> = phases.iter().map(|(phase, _)| phase.clone()).collect();
    let without = |(phase, steps): (Phase, Steps)| (Phase { counters: Default::default(), ..phase }, steps);
    let mut sums = replicas.sum(phases.into_iter().map(without).collect())?;
    if one_host {
        for sum in &mut sums {
            let own = own_phases.iter().find(|phase| phase.name == sum.name);
            sum.counters.extend(own.into_iter().flat_map(|phase| phase.counters.clone()));
        }
    }
    let rows = replicas.rows(row(mine, usage, &own_phases, &sums))?;
    let part: Part = replicas.group().add_up("counts and latencies", part(mine, usage), sum_of_parts)?;
    let (threads, bytes_asked) = (part.threads, part.bytes_asked);
    let outcome = outcome_of(part);
    let usage = Usage {
        wall: outcome.phases.iter().map(PhaseTimes::wall).sum(),
        cpu: cpu_of(&outcome),
        threads,
        bytes_asked,
        disk: usage.disk.clone().filter(|_| one_host),
        remote: usage.remote,
    };
    let mut metrics = metrics(&outcome, &usage);
    for (name, rate, to_last, tail) in RATES {
        let Some(sum) = sums.iter().find(|phase| phase.name == name) else { continue };
        let counter = |name: &str| sum.counters.get(name).copied();
        if let (Some(while_all), Some(tail_s)) = (counter("all_worked_items_per_sec"), counter("tail_s")) {
            metrics.insert(to_last.to_owned(), sum.items_per_sec);
            metrics.insert(rate.to_owned(), while_all);
            metrics.insert(tail.to_owned(), tail_s);
        }
    }
    let mut verdict = verdict(&outcome, &usage);
    if !one_host && !usage.remote {
        // Each host has devices of its own, and rank 0 sees only its.
        let bound = usage.bound().0.code();
        verdict.reasons.retain(|reason| reason.code != bound);
    }
    remark_tails(&mut verdict, &sums, &rows);
    let mut point = load_point(&outcome, NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN));
    point.parts = rows;
    Ok(Figures { points: vec![point], phases: sums, metrics, verdict, complete: outcome.complete() })
}

fn cpu_of(outcome: &Outcome) -> CpuTimes {
    outcome.phases.iter().fold(CpuTimes::default(), |sum, times| CpuTimes {
        user: sum.user + times.cpu.user,
        sys: sum.sys + times.cpu.sys,
    })
}

/// How this rank fared: `held` is the share of its time that all worked, 1 for the first to end.
fn row(mine: &Outcome, usage: &Usage, own: &[Phase], sums: &[Phase]) -> RankPart {
    let latencies = mine.latencies.as_deref().cloned().unwrap_or_default();
    let mut all = LatencyHistogram::new();
    [&latencies.create, &latencies.read, &latencies.append, &latencies.delete]
        .iter()
        .for_each(|of_kind| all.merge(of_kind));
    let all_per_sec = per_sec(all.count(), mine.wall_of_files());
    let all_worked_s: f64 = sums.iter().filter_map(|phase| phase.counters.get("all_worked_s")).sum();
    let own_s: f64 = own.iter().map(|phase| phase.wall_s).sum();
    RankPart {
        sent_per_sec: all_per_sec,
        achieved_per_sec: all_per_sec,
        held: if own_s > 0.0 { (all_worked_s / own_s).min(1.0) } else { 0.0 },
        latency_us: all.summary(),
        generator_busy: usage.cpu_share(),
        ..RankPart::default()
    }
}

fn part(mine: &Outcome, usage: &Usage) -> Part {
    let latencies = mine.latencies.as_deref().cloned().unwrap_or_default();
    let buckets = [latencies.create, latencies.read, latencies.append, latencies.delete];
    let place = |phase| engine::Phase::ALL.iter().position(|known| *known == phase).unwrap_or_default();
    let times = mine.phases.iter().map(|times| {
        let (wall, cpu) = (times.wall().as_secs_f64(), times.cpu);
        (place(times.phase), wall, cpu.user.as_secs_f64(), cpu.sys.as_secs_f64())
    });
    Part {
        counts: mine.counts,
        transactions_done: mine.transactions_done,
        ending: ENDINGS.iter().position(|ending| *ending == mine.ending).unwrap_or_default(),
        buckets: buckets.map(|of_kind| of_kind.buckets()),
        times: times.collect(),
        threads: usage.threads,
        bytes_asked: usage.bytes_asked,
    }
}

fn sum_of_parts(parts: Vec<Part>) -> Part {
    let mut histograms: [LatencyHistogram; 4] = Default::default();
    let mut sum = Part::default();
    for part in parts {
        sum.counts.add(&part.counts);
        sum.transactions_done += part.transactions_done;
        sum.ending = sum.ending.max(part.ending);
        histograms.iter_mut().zip(&part.buckets).for_each(|(all, more)| all.add_buckets(more));
        for (phase, wall_s, user_s, sys_s) in part.times {
            match sum.times.iter_mut().find(|known| known.0 == phase) {
                Some(known) => *known = (phase, known.1.max(wall_s), known.2 + user_s, known.3 + sys_s),
                None => sum.times.push((phase, wall_s, user_s, sys_s)),
            }
        }
        sum.threads += part.threads;
        sum.bytes_asked += part.bytes_asked;
    }
    sum.buckets = histograms.map(|of_kind| of_kind.buckets());
    sum
}

/// As if one process had done it all, each phase as long as on the slowest rank.
fn outcome_of(part: Part) -> Outcome {
    let [create, read, append, delete] = part.buckets.map(|of_kind| {
        let mut histogram = LatencyHistogram::new();
        histogram.add_buckets(&of_kind);
        histogram
    });
    let started = Instant::now();
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let phases = part.times.into_iter().filter_map(|(phase, wall_s, user_s, sys_s)| {
        Some(PhaseTimes {
            phase: *engine::Phase::ALL.get(phase)?,
            started,
            ended: started + seconds(wall_s),
            cpu: CpuTimes { user: seconds(user_s), sys: seconds(sys_s) },
        })
    });
    Outcome {
        counts: part.counts,
        transactions_done: part.transactions_done,
        phases: phases.collect(),
        latencies: Some(Box::new(Latencies { create, read, append, delete })),
        ending: ENDINGS.get(part.ending).copied().unwrap_or(Ending::Interrupted),
    }
}

/// Where ranks came to their ends far apart, and who was the last.
fn remark_tails(verdict: &mut Verdict, sums: &[Phase], rows: &[RankPart]) {
    let tail_s: f64 = sums.iter().filter_map(|phase| phase.counters.get("tail_s")).sum();
    let wall_s: f64 = sums.iter().map(|phase| phase.wall_s).sum();
    let slowest = rows.iter().min_by(|a, b| a.held.total_cmp(&b.held));
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
