//! VALID must mean right: whenever a level is VALID, each figure that no remark names is near what the storage itself
//! logged, whatever held up the generator. Bar: 1% and 5 us, and what the histogram rounds.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fstress::{Arrivals, FileCount, FstressConfig, Keep, Load, Workload};
use harness::open_loop::{FIGURES_LATE, GENERATOR_LATE, SENDS_LATE};
use harness::series::MEASURED_AGAIN;
use measure::{LatencySummary, LoadPoint};
use testkit::{Fault, HeldUp, Law, LawTransport};

const WARM_S: u64 = 2;
const MEASURE_S: u64 = 5;
const DRAIN: Duration = Duration::from_secs(10);
const US_MAX: f64 = 5.0;
const SHARE_MAX: f64 = 0.01;
/// A stall that parts the latencies from the planned moments from the log by more than the bar and this is called.
const MOST_JITTER_US: f64 = 15.0;
/// Histograms have three digits.
const ROUNDING: f64 = 0.001;

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// A level as reported, and what the storage logged for the requests that were due in its measured interval, in
/// microseconds and in order; one that was never answered took the time that was waited for it.
fn level(law: Law, faults: &[Fault], held_up: Option<HeldUp>, rate: u64) -> (LoadPoint, Vec<f64>) {
    let config = FstressConfig {
        workload: Workload::builtin("null").unwrap(),
        load: Load::Sweep(vec![rate as f64]),
        arrivals: Arrivals::Uniform,
        warm: Duration::from_secs(WARM_S),
        measure: Duration::from_secs(MEASURE_S),
        drain: DRAIN,
        wait: Default::default(),
        files: FileCount::Scaled,
        seed: 42,
        keep: Keep::Remove,
        set_name: "crumb-fstress-test".to_owned(),
        build_in_flight: 64,
        raw: None,
    };
    let (mut transport, clock) = LawTransport::new(law, faults, 7);
    if let Some(held_up) = held_up {
        transport = transport.with_generator_held_up(held_up);
    }
    let outcome = fstress::run(&config, &mut transport, &clock, &AtomicBool::new(false), &mut |_| {});
    let point = outcome.points.into_iter().next().unwrap();
    let (log, measured) = (transport.log(), (MEASURE_S * rate) as usize);
    // The last attempt counts, where a level was measured again: what it sent is the end of the log.
    let counted = if point.verdict.has(MEASURED_AGAIN) {
        let sent: u64 = point.ops.values().map(|op| op.attempted).sum();
        &log[log.len() - sent as usize..]
    } else {
        &log[(WARM_S * rate) as usize..][..measured]
    };
    let mut log: Vec<f64> = counted.iter().map(|took| took.unwrap_or(DRAIN).as_secs_f64() * 1e6).collect();
    log.sort_by(f64::total_cmp);
    (point, log)
}

/// The figures that rare stalls move without spoiling the level: a remark names them.
fn is_marked_when_moved(figure: &str) -> bool {
    ["mean", "p99.9"].contains(&figure)
}

/// Whether a remark names a figure that is off.
fn is_marked(point: &LoadPoint, figure: &str) -> bool {
    let remark = point.verdict.reasons.iter().find(|reason| reason.code == FIGURES_LATE);
    is_marked_when_moved(figure) && remark.is_some_and(|remark| remark.text.contains(&format!("{figure} ")))
}

/// Figures of latencies with how far beyond the bar each is off, in microseconds; negative within it.
fn off(latency: &LatencySummary, log: &[f64]) -> Vec<(&'static str, f64, f64, f64)> {
    let rank = |quantile: f64| log[((quantile * log.len() as f64).ceil() as usize).clamp(1, log.len()) - 1];
    let mean = log.iter().sum::<f64>() / log.len() as f64;
    [
        ("mean", latency.mean, mean),
        ("p50", latency.p50, rank(0.5)),
        ("p90", latency.p90, rank(0.9)),
        ("p99", latency.p99, rank(0.99)),
        ("p99.9", latency.p999, rank(0.999)),
    ]
    .map(|(name, printed, logged)| {
        (name, printed, logged, (printed - logged).abs() - US_MAX - (SHARE_MAX + ROUNDING) * logged)
    })
    .to_vec()
}

const LAWS: [Law; 4] = [
    Law::Constant(Duration::from_millis(20)),
    Law::Exponential(Duration::from_millis(5)),
    Law::Uniform(Duration::from_micros(50), Duration::from_micros(150)),
    Law::Constant(Duration::from_micros(100)),
];

#[test]
fn whenever_a_level_is_valid_its_figures_are_those_that_the_storage_logged() {
    let held_up = [
        None,
        Some(HeldUp::Sends(100, us(50))),
        Some(HeldUp::Sends(100, us(1_000))),
        Some(HeldUp::Sends(100, us(10_000))),
        Some(HeldUp::Sends(1, us(3))),
        Some(HeldUp::Sends(1, us(7))),
        Some(HeldUp::Sends(1000, us(10_000))),
        Some(HeldUp::Pauses(us(1_000_000), us(40_000))),
        Some(HeldUp::Pauses(us(10_000), us(100))),
    ];
    let faults: [&[Fault]; 3] = [&[], &[Fault::Lose(10_000)], &[Fault::Lose(500)]];
    let (mut valid, mut called) = (0, 0);
    for law in LAWS {
        for faults in faults {
            for held_up in held_up {
                for rate in [500, 2_000] {
                    let (point, log) = level(law, faults, held_up, rate);
                    let what = format!("{law:?}, {faults:?}, {held_up:?} at {rate}/s: {}", point.verdict);
                    let from_planned = point.pacing.unwrap().latency_from_planned_us;
                    let is_held_up =
                        off(&from_planned, &log).iter().any(|(.., beyond)| *beyond > MOST_JITTER_US);
                    let is_called = [GENERATOR_LATE, SENDS_LATE].iter().any(|code| point.verdict.has(code));
                    assert!(!is_held_up || is_called, "a stall that nobody is told of: {what}");
                    let off = off(&point.latency_us, &log);
                    let is_said =
                        off.iter().all(|(figure, .., beyond)| *beyond <= 0.0 || is_marked(&point, figure));
                    assert!(is_said || !point.verdict.valid, "VALID, wrong and not marked: {what}\n{off:?}");
                    if held_up.is_none() {
                        assert!(point.verdict.valid, "nothing held it up: {what}");
                    }
                    valid += u32::from(point.verdict.valid);
                    called += u32::from(is_called);
                }
            }
        }
    }
    assert!(
        valid > 50 && called > 50,
        "{valid} VALID, {called} with a stall that is called: both must be seen"
    );
}

#[test]
fn one_request_in_five_hundred_that_is_never_answered_is_beyond_any_bound_on_the_highest_percentile() {
    let (point, log) = level(LAWS[1], &[Fault::Lose(500)], None, 2_000);
    assert!(log[log.len() - 1] >= DRAIN.as_secs_f64() * 1e6);
    assert!(point.verdict.valid && point.verdict.has("unanswered"), "{}", point.verdict);
    let Some(pacing) = point.pacing else { panic!("an open loop has it") };
    assert_eq!(pacing.unanswered, 20);
    assert!(point.latency_us.p999 >= 9.99e6, "{:?}", point.latency_us);
}
