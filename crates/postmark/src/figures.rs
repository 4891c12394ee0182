//! What a run's outcome says: one load level, PostMark's own report as metrics, a verdict.
//!
//! Not here: adding up ranks, drawing tables (the binary).

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use measure::{
    DEVICE_METRICS as DEVICE, LatencyHistogram, LoadPoint, LoopKind, MetricDeclaration, OpStats, Usage,
    Verdict,
};

use crate::engine::{self, Ending, Outcome};

/// What [`metrics`] emits, by order of interest; the names with `to_last` and `tail` where several ranks ran.
pub const METRICS: &[MetricDeclaration] = &[
    MetricDeclaration::rate("transactions_per_sec", "Transactions").answers(),
    MetricDeclaration::seconds("total_s", "Total time"),
    MetricDeclaration::rate("created_per_sec", "Files created"),
    MetricDeclaration::rate("created_alone_per_sec", "Files created, alone"),
    MetricDeclaration::rate("created_mixed_per_sec", "Files created, with transactions"),
    MetricDeclaration::rate("deleted_per_sec", "Files deleted"),
    MetricDeclaration::rate("deleted_alone_per_sec", "Files deleted, alone"),
    MetricDeclaration::rate("deleted_mixed_per_sec", "Files deleted, with transactions"),
    MetricDeclaration::rate("read_per_sec", "Files read"),
    MetricDeclaration::rate("appended_per_sec", "Files appended to"),
    MetricDeclaration::bytes_rate("read_bytes_per_sec", "Read"),
    MetricDeclaration::bytes_rate("written_bytes_per_sec", "Written"),
    MetricDeclaration::percent("cpu_percent", "CPU used"),
    MetricDeclaration::micros("{op}_p50_us", "{op} latency p50"),
    MetricDeclaration::micros("{op}_p99_us", "{op} latency p99"),
    MetricDeclaration::rate("transactions_to_last_per_sec", "Transactions, to the last rank's end"),
    MetricDeclaration::rate("created_alone_to_last_per_sec", "Files created, alone, to the last rank's end"),
    MetricDeclaration::rate("deleted_alone_to_last_per_sec", "Files deleted, alone, to the last rank's end"),
    MetricDeclaration::seconds("{phase}_tail_s", "{phase}: from the first rank's end to the last one's"),
    DEVICE[0],
    DEVICE[1],
    DEVICE[2],
    DEVICE[3],
    DEVICE[4],
    DEVICE[5],
    DEVICE[6],
];

/// Below this a run is mostly noise: PostMark's own clock ticked in seconds.
const RUN_MIN: Duration = Duration::from_secs(1);

/// The operations of the whole run as one load level of a closed loop.
pub fn load_point(outcome: &Outcome, threads: NonZeroUsize) -> LoadPoint {
    let wall = outcome.wall_of_files();
    let latencies = outcome.latencies.as_deref().cloned().unwrap_or_default();
    let kinds = [
        ("create", &latencies.create),
        ("read", &latencies.read),
        ("append", &latencies.append),
        ("delete", &latencies.delete),
    ];
    let mut all = LatencyHistogram::new();
    kinds.iter().for_each(|(_, of_kind)| all.merge(of_kind));
    let (count, total_s) = (all.count().max(1) as f64, all.total_s().max(1e-9));
    let ops = kinds.iter().filter(|(_, of_kind)| of_kind.count() > 0).map(|(name, of_kind)| {
        let share_percent = 100.0 * of_kind.count() as f64 / count;
        let stats = OpStats {
            attempted: of_kind.count(),
            ok: of_kind.count(),
            share_percent,
            // What the biases and the seed asked for is what was done: each failure ends the run.
            share_asked_percent: share_percent,
            time_share_percent: 100.0 * of_kind.total_s() / total_s,
            latency_us: of_kind.summary(),
            histogram: (*of_kind).clone(),
            ..OpStats::default()
        };
        ((*name).to_owned(), stats)
    });
    let achieved_per_sec = per_sec(all.count(), wall);
    LoadPoint {
        loop_kind: LoopKind::Closed,
        offered_per_sec: None,
        outstanding: Some(threads.get() as u32),
        sent_per_sec: achieved_per_sec,
        achieved_per_sec,
        warm_s: 0.0,
        measured_s: wall.as_secs_f64(),
        unsent: 0,
        reconnects: 0,
        bad_replies: 0,
        generator_busy: 0.0,
        overtaken: 0,
        operations_digest: String::new(),
        lateness_us: Default::default(),
        latency_us: all.summary(),
        ops: ops.collect(),
        histogram: all,
        file_set: Default::default(),
        saturated: false,
        verdict: Verdict::valid(),
        parts: vec![],
    }
}

/// PostMark's own report as metrics, by a clock finer than its seconds, and the latencies that matter most.
pub fn metrics(outcome: &Outcome, usage: &Usage) -> BTreeMap<String, f64> {
    let counts = &outcome.counts;
    let (create, mixed, delete, all) = (
        outcome.wall(engine::Phase::Create),
        outcome.wall(engine::Phase::Transactions),
        outcome.wall(engine::Phase::Delete),
        outcome.wall_of_files(),
    );
    let mut metrics: BTreeMap<String, f64> = [
        ("transactions_per_sec", per_sec(outcome.transactions_done, mixed)),
        ("created_per_sec", per_sec(counts.created(), all)),
        ("created_alone_per_sec", per_sec(counts.created_alone, create)),
        ("created_mixed_per_sec", per_sec(counts.created_mixed, mixed)),
        ("read_per_sec", per_sec(counts.read, mixed)),
        ("appended_per_sec", per_sec(counts.appended, mixed)),
        ("deleted_per_sec", per_sec(counts.deleted(), all)),
        ("deleted_alone_per_sec", per_sec(counts.deleted_alone, delete)),
        ("deleted_mixed_per_sec", per_sec(counts.deleted_mixed, mixed)),
        ("read_bytes_per_sec", per_sec(counts.bytes_read, all)),
        ("written_bytes_per_sec", per_sec(counts.bytes_written, all)),
        ("total_s", all.as_secs_f64()),
        ("cpu_percent", 100.0 * usage.cpu_share()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if let Some(disk) = &usage.disk {
        metrics.extend(disk.counters());
    }
    let latencies = outcome.latencies.as_deref().cloned().unwrap_or_default();
    for (name, of_kind) in [
        ("create", &latencies.create),
        ("read", &latencies.read),
        ("append", &latencies.append),
        ("delete", &latencies.delete),
    ] {
        if of_kind.count() > 0 {
            let us = of_kind.summary();
            metrics.insert(format!("{name}_p50_us"), us.p50);
            metrics.insert(format!("{name}_p99_us"), us.p99);
        }
    }
    metrics
}

/// Whether to believe the run, and what held it up.
pub fn verdict(outcome: &Outcome, usage: &Usage) -> Verdict {
    let mut verdict = Verdict::valid();
    match outcome.ending {
        Ending::Complete => {}
        Ending::OutOfFiles => verdict.invalidate(
            "out-of-files",
            "as many files were deleted as created, and the transactions ended early; raise --number or --create-bias, or \
             lower --transactions",
        ),
        Ending::Interrupted => verdict.invalidate("interrupted", "the run was interrupted"),
    }
    if usage.wall < RUN_MIN {
        verdict.remark(
            "short",
            format!(
                "the run took {:.2} s only: caches and noise decide; raise --number and --transactions",
                usage.wall.as_secs_f64()
            ),
        );
    }
    if cfg!(debug_assertions) {
        verdict.remark("debug-build", "measured with a debug build: do not trust the figures");
    }
    let (bound, text) = usage.bound();
    verdict.remark(bound.code(), text);
    verdict
}

/// 0 when no time passed.
pub fn per_sec(count: u64, wall: Duration) -> f64 {
    if wall.is_zero() { 0.0 } else { count as f64 / wall.as_secs_f64() }
}
