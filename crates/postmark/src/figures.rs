//! What a run says: one load level, PostMark's own report as metrics, a verdict.
//!
//! Not here: adding up ranks (see `benchmark`), drawing tables (the binary).

use std::collections::BTreeMap;
use std::time::Duration;

use measure::{
    COST_METRICS as COST, DEVICE_METRICS as DEVICE, LoadPoint, LoopKind, MACHINE_METRICS as MACHINE,
    MetricDeclaration, OpStats, Phase, Verdict,
};

use crate::benchmark::Part;
use crate::engine::{self, Ending};

/// What [`metrics`] emits, by order of interest; the names with `to_last` and `tail` where several ranks ran.
pub const METRICS: &[MetricDeclaration] = &[
    MetricDeclaration::rate("transactions_per_sec", "Transactions").answers(),
    MetricDeclaration::seconds("total_s", "Total time").tile(),
    MetricDeclaration::rate("created_per_sec", "Files created"),
    MetricDeclaration::rate("created_alone_per_sec", "Files created, alone").tile(),
    MetricDeclaration::rate("created_mixed_per_sec", "Files created, with transactions"),
    MetricDeclaration::rate("deleted_per_sec", "Files deleted"),
    MetricDeclaration::rate("deleted_alone_per_sec", "Files deleted, alone").tile(),
    MetricDeclaration::rate("deleted_mixed_per_sec", "Files deleted, with transactions"),
    MetricDeclaration::rate("read_per_sec", "Files read").tile(),
    MetricDeclaration::rate("appended_per_sec", "Files appended to"),
    MetricDeclaration::bytes_rate("read_bytes_per_sec", "Read"),
    MetricDeclaration::bytes_rate("written_bytes_per_sec", "Written"),
    MetricDeclaration::percent("cpu_percent", "CPU used, of its threads' time"),
    MetricDeclaration::micros("{op}_p50_us", "{op} latency p50"),
    MetricDeclaration::micros("{op}_p99_us", "{op} latency p99"),
    MetricDeclaration::rate("transactions_to_last_per_sec", "Transactions, to the last rank's end"),
    MetricDeclaration::rate("created_alone_to_last_per_sec", "Files created, alone, to the last rank's end"),
    MetricDeclaration::rate("deleted_alone_to_last_per_sec", "Files deleted, alone, to the last rank's end"),
    MetricDeclaration::seconds("{phase}_tail_s", "{phase}: from the first rank's end to the last one's"),
    COST[0],
    COST[1],
    COST[2],
    COST[3],
    COST[4],
    COST[5],
    DEVICE[0],
    DEVICE[1],
    DEVICE[2],
    DEVICE[3],
    DEVICE[4],
    DEVICE[5],
    DEVICE[6],
    MACHINE[0],
    MACHINE[1],
    MACHINE[2],
    MACHINE[3],
    MACHINE[4],
];

/// Phase of a record, its rate while all ranks worked, until the last ended, and what came after the first.
const RATES_OF_RANKS: [(&str, &str, &str, &str); 3] = [
    ("create", "created_alone_per_sec", "created_alone_to_last_per_sec", "create_tail_s"),
    ("transactions", "transactions_per_sec", "transactions_to_last_per_sec", "transactions_tail_s"),
    ("delete", "deleted_alone_per_sec", "deleted_alone_to_last_per_sec", "delete_tail_s"),
];

/// Below this a run is mostly noise: PostMark's own clock ticked in seconds.
const RUN_MIN: Duration = Duration::from_secs(1);

/// The operations of the whole run as one load level of a closed loop.
pub fn load_point(whole: &Part) -> LoadPoint {
    let wall = whole.wall_of_files();
    let latencies = &whole.latencies;
    let kinds = [
        ("create", &latencies.create),
        ("read", &latencies.read),
        ("append", &latencies.append),
        ("delete", &latencies.delete),
    ];
    let all = whole.all_latencies();
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
        outstanding: Some(whole.threads as u32),
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
        chains: Default::default(),
        file_set: Default::default(),
        saturated: false,
        verdict: Verdict::valid(),
        parts: whole.rows.clone(),
        pacing: None,
        // Its phases have them.
        time_series: None,
    }
}

/// PostMark's own report as metrics, by a clock finer than its seconds, and the latencies that matter most.
pub fn metrics(whole: &Part) -> BTreeMap<String, f64> {
    let (counts, usage) = (&whole.counts, whole.usage());
    let (create, mixed, delete, all) = (
        whole.wall(engine::Phase::Create),
        whole.wall(engine::Phase::Transactions),
        whole.wall(engine::Phase::Delete),
        whole.wall_of_files(),
    );
    let rates = [
        ("transactions_per_sec", whole.transactions_done, mixed),
        ("created_per_sec", counts.created(), all),
        ("created_alone_per_sec", counts.created_alone, create),
        ("created_mixed_per_sec", counts.created_mixed, mixed),
        ("read_per_sec", counts.read, mixed),
        ("appended_per_sec", counts.appended, mixed),
        ("deleted_per_sec", counts.deleted(), all),
        ("deleted_alone_per_sec", counts.deleted_alone, delete),
        ("deleted_mixed_per_sec", counts.deleted_mixed, mixed),
        ("read_bytes_per_sec", counts.bytes_read, all),
        ("written_bytes_per_sec", counts.bytes_written, all),
    ];
    // A phase that did not run has no rate.
    let rates = rates.iter().filter(|(_, _, wall)| !wall.is_zero());
    let mut metrics: BTreeMap<String, f64> =
        rates.map(|(name, count, wall)| ((*name).to_owned(), per_sec(*count, *wall))).collect();
    metrics.insert("total_s".to_owned(), all.as_secs_f64());
    metrics.insert("cpu_percent".to_owned(), 100.0 * usage.cpu_share());
    if let Some(disk) = &usage.disk {
        metrics.extend(disk.counters());
    }
    let latencies = &whole.latencies;
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
    metrics.extend(rates_of_ranks(&whole.phases));
    if matches!(whole.ending, Ending::Interrupted | Ending::Failed) {
        // The run's answer: half a phase is not to be taken for one. The phase itself is in the record.
        metrics.remove("transactions_per_sec");
    }
    metrics.extend(whole.cost().metrics());
    metrics.extend(whole.machine.metrics());
    metrics
}

/// Where several ranks ran: the rates while all of them worked, in place of those until the last one ended, which get
/// names of their own.
fn rates_of_ranks(phases: &[Phase]) -> Vec<(String, f64)> {
    let rates = RATES_OF_RANKS.iter().filter_map(|(name, rate, to_last, tail)| {
        let phase = phases.iter().find(|phase| phase.name == *name)?;
        let counter = |name: &str| phase.counters.get(name).copied();
        let (while_all, tail_s) = (counter("all_worked_items_per_sec")?, counter("tail_s")?);
        Some([(*to_last, phase.items_per_sec), (*rate, while_all), (*tail, tail_s)])
    });
    rates.flatten().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Whether to believe the run, and what held it up.
pub fn verdict(whole: &Part) -> Verdict {
    let usage = whole.usage();
    let mut verdict = Verdict::valid();
    match whole.ending {
        Ending::Complete => {}
        Ending::OutOfFiles => verdict.invalidate(
            "out-of-files",
            "as many files were deleted as created, and the transactions ended early; raise --number or --create-bias, or \
             lower --transactions",
        ),
        Ending::Interrupted => verdict.invalidate("interrupted", "the run was interrupted"),
        Ending::Failed => verdict.invalidate(
            "incomplete",
            "the storage refused an operation and the run ended there; it holds what was measured until then",
        ),
    }
    whole.machine.judge(&mut verdict);
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
