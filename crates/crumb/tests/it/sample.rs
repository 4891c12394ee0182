//! A RunRecord such as a small sweep yields, written out by hand: three levels, the last one saturated.

#![allow(dead_code, reason = "every test binary takes what it needs")]

use std::collections::BTreeMap;
use std::time::Duration;

use measure::{
    Environment, FileSetRecord, LatencyHistogram, LoadPoint, LoopKind, MetricDeclaration, OpStats, Phase,
    RECORD_SCHEMA, RunId, RunRecord, Verdict,
};

/// Name, share in percent, latency relative to the others.
const MIX: [(&str, f64, f64); 4] =
    [("lookup", 42.5, 0.5), ("read", 50.0, 1.5), ("readdirplus", 6.5, 2.0), ("setattr", 1.0, 1.0)];

/// A valid run.
pub fn record(id: &str, label: &str) -> RunRecord {
    RunRecord {
        schema: RECORD_SCHEMA,
        id: RunId(id.to_owned()),
        benchmark: "fstress".to_owned(),
        label: label.to_owned(),
        target: "nfs://filer.example.net/export".to_owned(),
        started: "2026-11-21T18:00:00Z".parse().unwrap(),
        ended: "2026-11-21T18:18:07Z".parse().unwrap(),
        command: ["crumb", "run", "fstress", "nfs://filer.example.net/export", "--find-max", "p99<20ms"]
            .map(str::to_owned)
            .to_vec(),
        config: serde_json::json!({
            "workload": "web-server", "workload_toml": "name = \"web-server\"\n", "rate": "2000..6000/2000",
            "warm_s": 120.0, "measure_s": 240.0, "connections": 1,
        }),
        environment: Environment {
            crumb_version: "0.1.0".to_owned(),
            build_profile: "release".to_owned(),
            host: "generator-1".to_owned(),
            kernel: "Linux 6.18.1".to_owned(),
            cpu_model: "Example Processor 9000".to_owned(),
            cpus: 8,
            memory_bytes: 64 << 30,
            clock_source: Some("tsc".to_owned()),
            load_average: 0.12,
            ..Environment::default()
        },
        seed: 42,
        complete: true,
        points: vec![point(2_000.0, 300.0), point(4_000.0, 700.0), saturated(point(6_000.0, 2_400_000.0))],
        curves: vec![],
        series: None,
        annotations: vec![],
        not_seen: Default::default(),
        headline: vec![],
        declarations: [MetricDeclaration::rate("saturation_per_sec", "Saturation point").answers()]
            .iter()
            .filter_map(|one| one.metric(one.name))
            .collect(),
        phases: vec![Phase {
            name: "build".to_owned(),
            pass: 1,
            wall_s: 31.4,
            user_s: 2.2,
            sys_s: 4.1,
            items: 120_000,
            bytes: 1_228_800_000,
            items_per_sec: 3821.7,
            ..Phase::default()
        }],
        metrics: BTreeMap::from([
            ("saturation_per_sec".to_owned(), 4_000.0),
            ("held_per_sec".to_owned(), 4_000.0),
            ("peak_per_sec".to_owned(), 4_731.5),
            ("overall_response_us".to_owned(), 412.0),
        ]),
        verdict: Verdict::valid(),
    }
}

/// The same run with a verdict against it, cut short.
pub fn invalid_record(id: &str, label: &str) -> RunRecord {
    let mut record = record(id, label);
    let late = "the generator sent 140 us late on average (p99 2100 us), 46% of the mean latency; give it a core \
                of its own (--pin) or lower the rate";
    record.points.truncate(2);
    record.points[1].verdict.invalidate("generator-late", late);
    record.verdict.invalidate("generator-late", format!("at 4000/s: {late}"));
    record.verdict.remark("interrupted", "interrupted by the user: not all load points were measured");
    record.complete = false;
    record
}

/// A closed-loop run.
pub fn closed_record(id: &str, label: &str) -> RunRecord {
    let mut record = record(id, label);
    let mut point = point(412_345.6, 155.0);
    (point.loop_kind, point.offered_per_sec, point.outstanding) = (LoopKind::Closed, None, Some(64));
    record.points = vec![point];
    record.metrics = BTreeMap::from([("peak_per_sec".to_owned(), 412_345.6)]);
    record
}

fn saturated(mut point: LoadPoint) -> LoadPoint {
    point.achieved_per_sec = 4_731.5;
    point.saturated = true;
    point.unsent = 304_440;
    point.verdict.invalidate(
        "rate-off",
        "21.1% of the 1440000 requests due were not answered in time: the storage did not keep up",
    );
    point
}

fn point(rate: f64, mean_us: f64) -> LoadPoint {
    let mut ops = BTreeMap::new();
    let mut histogram = LatencyHistogram::new();
    for (name, share, weight) in MIX {
        let count = (share * 40.0) as u32;
        let mut own = LatencyHistogram::new();
        for at in 0..count {
            // Exponential, by its quantiles.
            let quantile = (f64::from(at) + 0.5) / f64::from(count);
            own.record(Duration::from_nanos((-(1.0 - quantile).ln() * mean_us * weight * 1e3) as u64));
        }
        histogram.merge(&own);
        let op = OpStats {
            attempted: u64::from(count) * 300,
            ok: u64::from(count) * 300,
            share_percent: share + 0.02,
            share_asked_percent: share,
            latency_us: own.summary(),
            histogram: own,
            ..OpStats::default()
        };
        ops.insert(name.to_owned(), op);
    }
    let total_s = histogram.total_s();
    for op in ops.values_mut() {
        op.time_share_percent = 100.0 * op.histogram.total_s() / total_s;
    }
    if let Some(lookup) = ops.get_mut("lookup") {
        lookup.errors = BTreeMap::from([("NFS3ERR_NOENT".to_owned(), 2), ("NFS3ERR_STALE".to_owned(), 1)]);
        (lookup.retransmitted, lookup.cancelled) = (12, 3);
    }
    let mut lateness = LatencyHistogram::new();
    (0..100).for_each(|at| lateness.record(Duration::from_nanos(2_000 + at * 210)));
    let files = (rate * 12.0) as u64;
    LoadPoint {
        loop_kind: LoopKind::Open,
        offered_per_sec: Some(rate),
        outstanding: None,
        sent_per_sec: rate,
        achieved_per_sec: rate - 0.4,
        warm_s: 120.0,
        measured_s: 240.0,
        unsent: 0,
        reconnects: 0,
        bad_replies: 0,
        generator_busy: rate / 60_000.0,
        overtaken: 17,
        operations_digest: "9e3779b97f4a7c15".to_owned(),
        lateness_us: lateness.summary(),
        latency_us: histogram.summary(),
        histogram,
        ops,
        chains: Default::default(),
        file_set: FileSetRecord {
            files_asked: files,
            files,
            directories: 400,
            symlinks: 0,
            bytes: files * 10_240,
        },
        saturated: false,
        verdict: Verdict::valid(),
        parts: vec![],
        pacing: None,
        time_series: None,
    }
}
