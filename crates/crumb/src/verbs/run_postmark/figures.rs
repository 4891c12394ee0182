//! What a PostMark run's outcome says: one load level, PostMark's own report as metrics, a verdict, the table of 2001.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use measure::{LatencyHistogram, LoadPoint, LoopKind, OpStats, RunRecord, Usage, Verdict};
use postmark::engine::{self, Ending, Outcome};
use postmark::{Settings, SizeRange};

use crate::layout::grid;

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

/// The comparison of 2001, which a user tuned RAID arrays by, with this run as its last row.
pub fn beside_2001(record: &RunRecord, settings: &Settings) -> String {
    // total s, transactions/s, creation alone files/s, deletion alone files/s, read KB/s, written KB/s; published.
    const PUBLISHED: [(&str, [f64; 6]); 5] = [
        ("RAID 5, chunk 32, read-ahead", [3480.0, 29.0, 95.0, 292.0, 232.05, 280.10]),
        ("  without read-ahead", [3526.0, 29.0, 80.0, 254.0, 229.02, 276.45]),
        ("RAID 5, chunk 64, read-ahead", [3609.0, 28.0, 107.0, 381.0, 223.75, 270.09]),
        ("  without read-ahead", [3506.0, 29.0, 84.0, 320.0, 230.33, 278.03]),
        ("one Ultra-Wide disk", [6488.0, 17.0, 30.0, 30.0, 124.46, 150.24]),
    ];
    let metric = |name: &str| record.metrics.get(name).copied().unwrap_or(0.0);
    let ours = [
        metric("total_s"),
        metric("transactions_per_sec"),
        metric("created_alone_per_sec"),
        metric("deleted_alone_per_sec"),
        metric("read_bytes_per_sec") / 1024.0,
        metric("written_bytes_per_sec") / 1024.0,
    ];
    let row = |name: &str, figures: &[f64; 6]| {
        let mut cells = vec![name.to_owned()];
        cells.extend(figures.iter().map(|figure| match figure {
            small if *small < 100.0 => format!("{small:.1}"),
            large => report::count_text(large.round() as u64),
        }));
        cells
    };
    let mut rows: Vec<Vec<String>> = PUBLISHED.iter().map(|(name, figures)| row(name, figures)).collect();
    rows.push(row("this run", &ours));
    let heads = ["2001, PostMark 1.13", "total s", "trans/s", "creat/s", "delet/s", "read KB/s", "writ KB/s"];
    let same = settings_of_2001();
    let note = if (settings.number, settings.transactions, settings.size, settings.subdirectories)
        == (same.number, same.transactions, same.size, same.subdirectories)
    {
        ""
    } else {
        "This run had other settings than those of 2001: compare with --preset 2001.\n"
    };
    format!("{}{note}\n", grid(&heads, 1, &rows))
}

/// `size 10240 20480, transactions 100000, subdirectories 10, number 10000`.
pub fn settings_of_2001() -> Settings {
    let count = |count| NonZeroU32::new(count).expect("none of the settings of 2001 is 0");
    Settings {
        size: SizeRange::new(count(10_240), count(20_480)),
        number: count(10_000),
        transactions: count(100_000),
        subdirectories: 10,
        ..Settings::default()
    }
}

/// 0 when no time passed.
pub fn per_sec(count: u64, wall: Duration) -> f64 {
    if wall.is_zero() { 0.0 } else { count as f64 / wall.as_secs_f64() }
}
