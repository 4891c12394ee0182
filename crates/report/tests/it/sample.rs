//! Builds RunRecords such as a sweep over a file server yields: latencies of a queue, rising to a knee.

#![allow(dead_code, reason = "every test binary takes what it needs")]

use std::collections::BTreeMap;
use std::time::Duration;

use measure::{
    Environment, FileSetRecord, LatencyHistogram, LoadPoint, LoopKind, MountPoint, OpStats, Phase, RunId,
    RunRecord, SeriesPlace, Verdict,
};

/// Name, share of the mix in percent, service time relative to the mean, bytes an operation.
const MIX: [(&str, f64, f64, u64); 6] = [
    ("getattr", 12.0, 0.3, 0),
    ("lookup", 31.0, 0.5, 0),
    ("read", 38.0, 1.7, 7_800),
    ("readdir", 8.0, 1.1, 0),
    ("create", 3.0, 2.4, 0),
    ("write", 8.0, 1.2, 8_192),
];
const SAMPLES: u32 = 2_000;
/// The benchmark of a [`Sweep`].
pub const SWEEPING: &str = "fstress";

/// A server of which one request takes `service_us` on the mean and that saturates at `capacity_per_sec`.
pub struct Sweep {
    label: String,
    id: String,
    service_us: f64,
    capacity_per_sec: f64,
    rates: Vec<f64>,
    outstanding: Vec<u32>,
}

impl Sweep {
    pub fn new(label: &str, service_us: f64, capacity_per_sec: f64) -> Self {
        let id = format!("20261121-180000-fstress-{:04x}", capacity_per_sec as u16);
        Self {
            label: label.to_owned(),
            id,
            service_us,
            capacity_per_sec,
            rates: (1..=8).map(|step| 500.0 * f64::from(step)).collect(),
            outstanding: Vec::new(),
        }
    }

    pub fn named(mut self, id: &str) -> Self {
        self.id = id.to_owned();
        self
    }

    pub fn rates(mut self, rates: &[f64]) -> Self {
        self.rates = rates.to_vec();
        self
    }

    /// Adds closed-loop points.
    pub fn outstanding(mut self, outstanding: &[u32]) -> Self {
        self.outstanding = outstanding.to_vec();
        self
    }

    pub fn record(&self) -> RunRecord {
        let mut points: Vec<LoadPoint> = self.rates.iter().map(|&rate| self.open_point(rate)).collect();
        points.extend(self.outstanding.iter().map(|&many| self.closed_point(many)));
        let mut verdict = Verdict::valid();
        verdict.remark("cache-unknown", "the state of the server's cache was not set before the run");
        with_declarations(RunRecord {
            schema: measure::RECORD_SCHEMA,
            id: RunId(self.id.clone()),
            benchmark: SWEEPING.to_owned(),
            label: self.label.clone(),
            target: "nfs://filer.example.net/export?proto=tcp".to_owned(),
            started: "2026-11-21T18:00:00Z".parse().unwrap(),
            ended: "2026-11-21T18:48:12Z".parse().unwrap(),
            command: [
                "crumb",
                "run",
                "fstress",
                "nfs://filer.example.net/export",
                "--workload",
                "web-server",
            ]
            .map(str::to_owned)
            .to_vec(),
            config: serde_json::json!({
                "workload": {"name": "web-server", "file_bytes": [[1024, 40], [10_240, 60]]},
                "connections": 4, "arrivals": "poisson", "warm_s": 120, "measure_s": 240, "keep": null,
            }),
            environment: Environment {
                crumb_version: "0.1.0".to_owned(),
                crumb_commit: Some("8f3a2b1c9d0e".to_owned()),
                build_profile: "release".to_owned(),
                host: "generator-1".to_owned(),
                kernel: "Linux 6.18.1".to_owned(),
                cpu_model: "Example Processor 9000 @ 3.2 GHz".to_owned(),
                cpus: 8,
                cpu_governor: Some("performance".to_owned()),
                memory_bytes: 64 << 30,
                clock_source: Some("tsc".to_owned()),
                load_average: 0.12,
                mount: Some(MountPoint {
                    path: "/mnt/filer".to_owned(),
                    device: "filer:/export".to_owned(),
                    fs_type: "nfs".to_owned(),
                    options: "rw,vers=3,proto=tcp,rsize=65536".to_owned(),
                }),
            },
            seed: 42,
            complete: true,
            points,
            curves: vec![],
            series: None,
            annotations: vec![],
            not_seen: Default::default(),
            headline: vec![],
            declarations: vec![],
            phases: vec![Phase {
                name: "build".to_owned(),
                pass: 1,
                wall_s: 31.4,
                user_s: 2.2,
                sys_s: 4.1,
                items: 120_000,
                bytes: 1_228_800_000,
                items_per_sec: 3821.7,
                counters: BTreeMap::from([("nfs_calls".to_owned(), 391_000.0)]),
                time_series: None,
            }],
            metrics: BTreeMap::from([
                ("saturation_per_sec".to_owned(), self.capacity_per_sec * 0.96),
                ("overall_response_us".to_owned(), self.service_us * 1.9),
                ("p99_at_half_load_us".to_owned(), self.service_us * 6.1),
                ("files".to_owned(), 120_000.0),
            ]),
            verdict,
        })
    }

    fn open_point(&self, rate: f64) -> LoadPoint {
        let saturated = rate >= self.capacity_per_sec;
        let achieved = rate.min(self.capacity_per_sec * 0.97);
        // As in an M/M/1 queue, mean wait = service / (1 - load); past the knee it grows with the interval.
        let load = rate / self.capacity_per_sec;
        let scale = if saturated { 4_000.0 * load } else { 1.0 / (1.0 - load).max(0.02) };
        let mut point = self.point(scale, rate);
        point.offered_per_sec = Some(rate);
        point.sent_per_sec = rate * 0.9999;
        point.achieved_per_sec = achieved * 0.9998;
        point.saturated = saturated;
        if saturated {
            point.unsent = 311;
            point.verdict.remark("saturated", "the server answered 3% less than was offered");
        }
        point
    }

    fn closed_point(&self, outstanding: u32) -> LoadPoint {
        let busy = f64::from(outstanding) / (f64::from(outstanding) + 3.0);
        let mut point = self.point(1.0 / (1.0 - busy), self.capacity_per_sec);
        point.loop_kind = LoopKind::Closed;
        point.outstanding = Some(outstanding);
        point.achieved_per_sec = self.capacity_per_sec * busy;
        point.sent_per_sec = point.achieved_per_sec;
        point
    }

    fn point(&self, scale: f64, rate: f64) -> LoadPoint {
        let mut histogram = LatencyHistogram::new();
        let mut lateness = LatencyHistogram::new();
        let mut ops = BTreeMap::new();
        for (name, share, weight, bytes) in MIX {
            let mut own = LatencyHistogram::new();
            let count = (f64::from(SAMPLES) * share / 100.0) as u32;
            for at in 0..count {
                // Evenly spaced quantiles of an exponential law above a floor: no chance involved.
                let quantile = (f64::from(at) + 0.5) / f64::from(count);
                let us = self.service_us * weight * (0.35 + 0.65 * scale * -(1.0 - quantile).ln());
                own.record(Duration::from_nanos((us * 1e3) as u64));
            }
            histogram.merge(&own);
            let mut op = OpStats {
                attempted: u64::from(count) + 3,
                ok: u64::from(count),
                share_percent: share + 0.02,
                share_asked_percent: share,
                bytes: bytes * u64::from(count),
                latency_us: own.summary(),
                histogram: own,
                ..OpStats::default()
            };
            if name == "lookup" {
                op.errors =
                    BTreeMap::from([("NFS3ERR_NOENT".to_owned(), 2), ("NFS3ERR_STALE".to_owned(), 1)]);
            } else {
                (op.retransmitted, op.cancelled) = (2, 3);
            }
            ops.insert(name.to_owned(), op);
        }
        let total_s = histogram.total_s();
        for op in ops.values_mut() {
            op.time_share_percent = 100.0 * op.histogram.total_s() / total_s;
        }
        for at in 0..1000 {
            lateness.record(Duration::from_nanos(2_000 + at * 21));
        }
        LoadPoint {
            loop_kind: LoopKind::Open,
            offered_per_sec: None,
            outstanding: None,
            sent_per_sec: rate,
            achieved_per_sec: rate,
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
                files_asked: (rate * 30.0) as u64,
                files: (rate * 30.0) as u64,
                directories: 400,
                symlinks: 120,
                bytes: (rate * 30.0 * 10_240.0) as u64,
            },
            saturated: false,
            verdict: Verdict::valid(),
            parts: vec![],
            pacing: None,
            time_series: None,
        }
    }
}

/// Two servers under the same sweep, one of them with an INVALID point and cut short.
pub fn two_runs() -> Vec<RunRecord> {
    let first = Sweep::new("filer A, web-server", 420.0, 3_800.0).record();
    let mut second = Sweep::new("filer B, web-server", 610.0, 2_700.0).record();
    second.points.truncate(7);
    second.complete = false;
    let late =
        "send lateness p99 was 2.1 ms, above the bound of 1 ms: the generator was the limit at 3,500/s";
    second.points[6].verdict.invalidate("generator-late", late);
    second.verdict.invalidate("generator-late", late);
    vec![first, second]
}

/// A search for the highest rate held: levels far apart at first, two of them saturated.
pub fn search_run() -> RunRecord {
    let rates = [100.0, 200.0, 400.0, 800.0, 1_600.0, 2_400.0, 3_200.0, 3_600.0, 3_900.0, 6_400.0];
    let mut run = Sweep::new("filer", 420.0, 3_800.0).rates(&rates).record();
    run.config["search"] = true.into();
    run
}

/// Ten runs of postmark in turns on two sides, of which B does `ratio` times as many transactions: phases and
/// metrics, no load points.
pub fn postmark_series(ratio: f64) -> Vec<RunRecord> {
    // A B B A and so on.
    let sides = ["A", "B", "B", "A", "A", "B", "B", "A", "A", "B"];
    let run = |(at, side): (usize, &&str)| {
        let wobble = 1.0 + 0.012 * ((at * 7 % 10) as f64 - 4.5) / 4.5;
        let speed = wobble * if *side == "B" { ratio } else { 1.0 };
        let mut record = Sweep::new(if *side == "A" { "ext4" } else { "XFS, new log" }, 400.0, 3_000.0)
            .rates(&[])
            .record();
        record.id = RunId(format!("20261122-1800{at:02}-postmark-{:04x}", 0xa0 + at));
        record.benchmark = "postmark".to_owned();
        record.target = if *side == "A" { "/mnt/ext4" } else { "/mnt/xfs" }.to_owned();
        record.started += std::time::Duration::from_secs(80 * at as u64);
        record.ended = record.started + std::time::Duration::from_secs(70);
        record.command = ["crumb", "run", "postmark", "/mnt/ext4", "--vs", "/mnt/xfs", "--repeat", "5"]
            .map(str::to_owned)
            .to_vec();
        record.config = serde_json::json!({"files": 20_000, "transactions": 50_000, "threads": 1});
        record.series = Some(SeriesPlace {
            of: RunId("20261122-180000-postmark-00a0".to_owned()),
            side: (*side).to_owned(),
            turn: at as u32 + 1,
        });
        let phase = |name: &str, items: u64, per_sec: f64| Phase {
            name: name.to_owned(),
            pass: 1,
            wall_s: items as f64 / per_sec,
            user_s: 0.1 * items as f64 / per_sec,
            sys_s: 0.3 * items as f64 / per_sec,
            items,
            bytes: items * 5_000,
            items_per_sec: per_sec,
            counters: BTreeMap::from([
                ("device_busy_percent".to_owned(), 61.0),
                ("device_requests".to_owned(), 18_411.0),
            ]),
            time_series: None,
        };
        record.phases = vec![
            phase("create", 20_000, 4_100.0 * speed),
            phase("transactions", 50_000, 1_210.0 * speed),
            phase("delete", 20_000, 9_800.0 * wobble),
        ];
        record.metrics = [
            ("transactions_per_sec", 1_210.0 * speed),
            ("created_alone_per_sec", 4_100.0 * speed),
            ("created_mixed_per_sec", 603.0 * speed),
            ("deleted_alone_per_sec", 9_800.0 * wobble),
            ("read_per_sec", 601.0 * speed * wobble),
            ("read_bytes_per_sec", 3.1e6 * speed),
            ("written_bytes_per_sec", 8.4e6 * speed),
            ("total_s", 48.0 / speed),
            ("create_p50_us", 41.0 / wobble),
            ("create_p99_us", 2_410.0 / speed / speed),
            ("read_p99_us", 390.0 * wobble * wobble),
            ("device_busy_percent", 61.0 * wobble),
            ("cpu_percent", 38.0 * speed),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        record.verdict = Verdict::valid();
        with_declarations(record)
    };
    sides.iter().enumerate().map(run).collect()
}

/// As benchmarks declare them.
pub const DECLARED: [measure::MetricDeclaration; 11] = {
    use measure::MetricDeclaration as Declared;
    [
        Declared::rate("saturation_per_sec", "Saturation point").answers(),
        Declared::micros("overall_response_us", "Overall response time"),
        Declared::rate("transactions_per_sec", "Transactions").answers(),
        Declared::seconds("total_s", "Total time"),
        Declared::rate("store_per_sec", "Storing files").answers(),
        Declared::micros("day_cost_{layout}_us", "Mean operation of a day, {layout}"),
        Declared::count("pays_from_files_{layout}", "Pays from, files, {layout}"),
        Declared::micros("lookup_random_us", "Lookup, random order"),
        Declared::micros("lookup_sequential_us", "Lookup, sequential order"),
        Declared::micros("add_us", "Add a file"),
        Declared::micros("day_us", "Mean operation of a day"),
    ]
};

/// Declares what the record has, as `crumb` does.
fn with_declarations(mut record: RunRecord) -> RunRecord {
    record.declarations.clear();
    record.declare(&DECLARED);
    record
}

/// A run of dirscale: lookups and the day's cost over the number of files, by layout; flat grows with the directory.
pub fn dirscale_run(label: &str, hashed: bool) -> RunRecord {
    let mut record = Sweep::new(label, 400.0, 3_000.0).rates(&[]).record();
    record.id = RunId(format!("20261122-190000-dirscale-{:04x}", if hashed { 1 } else { 2 }));
    record.benchmark = "dirscale".to_owned();
    record.config = serde_json::json!({"sizes": "1..524288", "layouts": ["flat", "345", "34/56"]});
    let layouts = [("flat", 4.0, 0.012), ("345", 7.0, 0.00002), ("34/56", 10.0, 0.0)];
    let curve = |name: &str, scale: f64, intervals: bool| measure::Curve {
        name: name.to_owned(),
        over: "files".to_owned(),
        lines: layouts
            .iter()
            .map(|(layout, base, slope)| measure::CurveLine {
                label: (*layout).to_owned(),
                points: (0..20)
                    .map(|power| {
                        let files = f64::from(1 << power);
                        let y = scale * (base + if hashed { 0.4 * files.ln() } else { slope * files });
                        let bounds = intervals.then_some((y * 0.9, y * 1.12));
                        measure::CurvePoint {
                            x: files,
                            y,
                            low: bounds.map(|b| b.0),
                            high: bounds.map(|b| b.1),
                        }
                    })
                    .collect(),
            })
            .collect(),
    };
    let mut few = curve("day_us", 5_000.0, false);
    few.lines.iter_mut().for_each(|line| line.points.retain(|point| (2e3..1e5).contains(&point.x)));
    record.curves = vec![
        curve("lookup_random_us", 1.0, true),
        curve("lookup_sequential_us", 0.6, false),
        curve("add_us", 4.0, true),
        few,
    ];
    record.metrics = [
        ("day_cost_flat_us", 4.1e7),
        ("day_cost_345_us", 3.1e5),
        ("day_cost_34_56_us", 2.2e5),
        ("pays_from_files_345", 512.0),
        ("pays_from_files_34_56", 1_024.0),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    record.verdict = Verdict::valid();
    with_declarations(record)
}

/// A run of the made-up benchmark `rounds` (see `made_up`): `passes` passes of which the first stores `per_sec` files a second and
/// each later one `ageing` percent of that less. From pass 7 on files are deleted.
pub fn rounds_run(target: &str, passes: u32, per_sec: f64, ageing: f64) -> RunRecord {
    let mut record = Sweep::new(&format!("rounds on {target}"), 400.0, 3_000.0).rates(&[]).record();
    record.id = RunId(format!("20261122-200000-rounds-{:04x}", per_sec as u64 & 0xffff));
    record.benchmark = "rounds".to_owned();
    record.target = target.to_owned();
    record.command = ["crumb", "run", "rounds", target].map(str::to_owned).to_vec();
    record.config = serde_json::json!({ "passes": passes, "place": format!("crumb-{}", record.id.0) });
    let phase = |name: &str, pass: u32, items: u64, per_sec: f64| Phase {
        name: name.to_owned(),
        pass,
        wall_s: items as f64 / per_sec,
        user_s: 0.1 * items as f64 / per_sec,
        sys_s: 0.8 * items as f64 / per_sec,
        items,
        bytes: items * 3_000,
        items_per_sec: per_sec,
        counters: BTreeMap::new(),
        time_series: None,
    };
    record.phases = Vec::new();
    for pass in 1..=passes {
        let left = 1.0 - ageing / 100.0 * f64::from(pass - 1);
        record.phases.push(phase("store", pass, 20_000, per_sec * left));
        record.phases.push(phase("delete", pass, if pass >= 7 { 30_000 } else { 0 }, 4.0 * per_sec));
    }
    let point = |pass: u32| measure::CurvePoint { x: f64::from(pass), y: per_sec, low: None, high: None };
    record.curves = vec![measure::Curve {
        name: "store_per_sec".to_owned(),
        over: "pass".to_owned(),
        lines: vec![measure::CurveLine {
            label: "store".to_owned(),
            points: (1..=passes).map(point).collect(),
        }],
    }];
    record.metrics = BTreeMap::from([("store_per_sec".to_owned(), per_sec)]);
    record.verdict = Verdict::valid();
    with_declarations(record)
}

/// A run of the made-up benchmark `tally`: what a server was asked, as counters of one phase, and its rate over the minutes.
pub fn tally_run(label: &str) -> RunRecord {
    let mut record = Sweep::new(label, 400.0, 3_000.0).rates(&[]).record();
    record.id = RunId(format!("20261122-210000-tally-{:04x}", label.len()));
    record.benchmark = "tally".to_owned();
    record.metrics.clear();
    let mut phase = Phase { name: "asked".to_owned(), pass: 1, wall_s: 3600.0, ..Phase::default() };
    for (name, count, [p50, p99, max]) in [
        ("find", 294_535.0, [4.3, 41.0, 18_400.0]),
        ("drop", 18_011.0, [24.0, 180.0, 41_000.0]),
        ("list", 1_599.0, [410.0, 6_800.0, 21_500.0]),
    ] {
        let figures = [("count", count), ("p50_us", p50), ("p99_us", p99), ("max_us", max)];
        phase.counters.extend(figures.map(|(what, value)| (format!("{name}_{what}"), value)));
    }
    record.phases = vec![phase];
    let line = |label: &str, scale: f64| measure::CurveLine {
        label: label.to_owned(),
        points: (0..60)
            .map(|minute| {
                let y = scale * (80.0 + 10.0 * (f64::from(minute) / 9.0).sin());
                measure::CurvePoint { x: f64::from(minute), y, low: None, high: None }
            })
            .collect(),
    };
    record.curves = vec![measure::Curve {
        name: "asked_per_sec".to_owned(),
        over: "minutes".to_owned(),
        lines: vec![line("done", 1.0), line("wanted", 1.1)],
    }];
    record.verdict = Verdict::valid();
    with_declarations(record)
}
