//! What spoils a load point besides the generator: errors for answers, and what is no answer at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use files::{Request, Status, SubmitError, Ticket, Transport, TransportCounters};
use fstress::{Arrivals, FileCount, FstressConfig, Keep, LatencyBound, Load, RunOutcome, Workload};
use harness::Event;
use measure::LoadPoint;
use testkit::{Fault, HeldUp, Law, LawTransport};

fn config(load: Load) -> FstressConfig {
    FstressConfig {
        workload: Workload::builtin("null").unwrap(),
        load,
        arrivals: Arrivals::Uniform,
        warm: Duration::from_secs(1),
        measure: Duration::from_secs(10),
        drain: Duration::from_secs(10),
        wait: Default::default(),
        files: FileCount::Scaled,
        seed: 42,
        keep: Keep::Remove,
        set_name: "crumb-fstress-test".to_owned(),
        build_in_flight: 64,
        raw: None,
    }
}

fn run(load: Load, faults: &[Fault]) -> RunOutcome {
    let (mut transport, clock) = LawTransport::new(Law::Constant(Duration::from_millis(1)), faults, 7);
    fstress::run(&config(load), &mut transport, &clock, &AtomicBool::new(false), &mut |_| {})
}

/// Symptom: a server that answered every tenth request with an error "held" any load, so that a search for saturation rose
/// and rose. Cause: errors counted as answers, and nothing else was looked at.
#[test]
fn a_level_with_many_errors_is_not_held() {
    let outcome = run(Load::Auto { first: 500.0 }, &[Fault::Fail(10, Status::IO)]);
    assert_eq!(outcome.metrics.get("held_per_sec"), None, "{:?}", outcome.metrics);
    assert_eq!(outcome.metrics.get("saturation_per_sec"), None);
    assert!(!outcome.verdict.valid);
    // It goes down from where it began, and ends.
    assert!(outcome.points.iter().all(|point| point.offered_per_sec <= Some(500.0)));
    let point = &outcome.points[0];
    assert!(!point.saturated && point.verdict.has("errors"), "{}", point.verdict);
    let few = run(Load::Sweep(vec![500.0]), &[Fault::Fail(500, Status::IO)]);
    assert_eq!(few.metrics["held_per_sec"], 500.0);
}

/// Symptom: Ctrl-C soon after a level began ended it as "past saturation; start with a lower rate". Cause: requests that were
/// under way at that moment counted as not answered in time. Fix: a level that was stopped says so and nothing else.
#[test]
fn a_level_that_was_interrupted_is_not_called_saturated() {
    let (mut transport, clock) = LawTransport::new(Law::Constant(Duration::from_secs(3)), &[], 7);
    let stop = AtomicBool::new(false);
    let asked = config(Load::Auto { first: 100.0 });
    let warm = asked.warm;
    let outcome = fstress::run(&asked, &mut transport, &clock, &stop, &mut |event| {
        if matches!(event, Event::Live(live) if live.elapsed > warm) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let [point] = outcome.points.as_slice() else { panic!("{:?}", outcome.points.len()) };
    assert!(
        !point.saturated && !point.verdict.valid && point.verdict.has("interrupted"),
        "{}",
        point.verdict
    );
    assert!(!point.verdict.has("rate-off"), "{}", point.verdict);
    let verdict = &outcome.verdict;
    assert!(!outcome.complete && verdict.has("interrupted") && !verdict.has("all-saturated"), "{verdict}");
    for figure in ["saturation_per_sec", "held_per_sec", "overall_response_us"] {
        assert_eq!(outcome.metrics.get(figure), None, "{figure}");
    }
}

/// Symptom: a server that was killed within a level was reported as "past saturation; start with a lower rate", and what was due
/// afterwards as sent late. Fix: a level in which the storage went away says that and nothing else.
#[test]
fn a_level_in_which_the_storage_went_away_is_not_called_saturated() {
    let outcome = run(Load::Sweep(vec![500.0]), &[Fault::Vanish(Duration::from_millis(1500))]);
    assert!(outcome.error.is_some() && !outcome.complete);
    assert_eq!(outcome.points.len(), 1);
    for point in &outcome.points {
        assert!(
            !point.saturated && !point.verdict.valid && point.verdict.has("storage-gone"),
            "{}",
            point.verdict
        );
        assert!(!point.verdict.has("rate-off") && !point.verdict.has("generator-late"), "{}", point.verdict);
    }
    let verdict = &outcome.verdict;
    assert!(!verdict.has("all-saturated") && !verdict.valid, "{verdict}");
    for figure in ["saturation_per_sec", "held_per_sec"] {
        assert_eq!(outcome.metrics.get(figure), None, "{figure}");
    }
}

/// Symptom: a server that was killed in a level made it INVALID as `transport-full`, and the dead half of the level was in no
/// percentile. Cause: without a connection requests are refused like those that find no free slot. Fix: the transport says when it
/// has no connection; requests that were lost or could not be sent count with the time that was waited for them.
#[test]
fn a_storage_that_dies_in_a_level_is_gone_and_what_it_left_unanswered_counts() {
    let (killed_at, for_ever) = (Duration::from_secs(6), Duration::from_secs(3600));
    for fault in [Fault::Away(killed_at, for_ever), Fault::Stall(killed_at, for_ever)] {
        let outcome = run(Load::Sweep(vec![500.0]), &[fault]);
        let point = &outcome.points[0];
        assert!(point.verdict.has("storage-gone") && !point.verdict.valid, "{fault:?}: {}", point.verdict);
        for code in ["transport-full", "generator-late", "rate-off", "errors"] {
            assert!(!point.verdict.has(code), "{fault:?}: {}", point.verdict);
        }
        assert!(!point.saturated && !outcome.verdict.valid, "{fault:?}: {}", outcome.verdict);
        assert!(outcome.verdict.has("storage-gone"), "{fault:?}: {}", outcome.verdict);
        let latency = &point.latency_us;
        assert_eq!(latency.count, 5000, "{fault:?}: each request that was due counts");
        assert!(latency.p50 < 9e6 && latency.p90 >= 9.99e6, "{fault:?}: {latency:?}");
        let pacing = point.pacing.unwrap();
        assert!((2490..=2510).contains(&pacing.unanswered), "{fault:?}: {}", pacing.unanswered);
        assert!(pacing.transport_full_share < 0.01, "{fault:?}: {}", pacing.transport_full_share);
        assert!(!outcome.metrics.contains_key("held_per_sec"), "{fault:?}: {:?}", outcome.metrics);
    }
}

#[test]
fn a_connection_that_comes_back_in_time_is_a_stall_that_all_met_that_were_due_in_it() {
    // One request is under way then.
    let away = Fault::Away(Duration::from_micros(6_000_500), Duration::from_secs(2));
    let outcome = run(Load::Sweep(vec![500.0]), &[away]);
    let point = &outcome.points[0];
    assert!(point.verdict.valid && point.verdict.has("errors"), "{}", point.verdict);
    assert!(!point.verdict.has("transport-full"), "{}", point.verdict);
    assert!((1.5e6..2.1e6).contains(&point.latency_us.p99), "{:?}", point.latency_us);
}

#[test]
fn to_be_asked_later_is_no_answer() {
    let outcome = run(Load::Sweep(vec![1000.0]), &[Fault::Fail(100, Status::JUKEBOX)]);
    let point = &outcome.points[0];
    assert!(point.saturated && point.verdict.has("rate-off"), "{}", point.verdict);
}

/// Counts messages that are none, one to so many requests.
struct Noisy {
    inner: LawTransport,
    requests: u64,
    one_in: u64,
}

impl Transport for Noisy {
    left_to_inner!(flush poll in_flight root io_bytes_max);

    fn submit(&mut self, ticket: Ticket, request: &Request<'_>) -> Result<(), SubmitError> {
        self.requests += 1;
        self.inner.submit(ticket, request)
    }

    fn counters(&self) -> TransportCounters {
        let garbage = self.requests / self.one_in;
        TransportCounters { bad_replies: garbage, garbage, ..TransportCounters::default() }
    }
}

/// Symptom: a UDP server of whose replies one in ten was garbage made VALID runs, with a counter in the JSON only.
#[test]
fn garbage_for_replies_is_told_and_much_of_it_spoils_the_run() {
    for (one_in, valid) in [(10, false), (1000, true)] {
        let (inner, clock) = LawTransport::new(Law::Constant(Duration::from_millis(1)), &[], 7);
        let mut transport = Noisy { inner, requests: 0, one_in };
        let load = Load::Sweep(vec![1000.0]);
        let outcome =
            fstress::run(&config(load), &mut transport, &clock, &AtomicBool::new(false), &mut |_| {});
        let point = &outcome.points[0];
        assert!(point.verdict.has("garbage"), "{}", point.verdict);
        assert_eq!(point.verdict.valid, valid, "{}", point.verdict);
    }
}

/// A sweep with a generator that is held up: what came of it, and the numbers of the levels in the order in which they began.
fn held_up(law: Law, rates: &[f64], held_up: HeldUp, stop_in: usize) -> (RunOutcome, Vec<u32>) {
    let (transport, clock) = LawTransport::new(law, &[], 7);
    let (mut transport, load) = (transport.with_generator_held_up(held_up), Load::Sweep(rates.to_vec()));
    let (stop, mut begun) = (AtomicBool::new(false), Vec::new());
    let asked = config(load);
    let outcome = fstress::run(&asked, &mut transport, &clock, &stop, &mut |event| match event {
        Event::LevelBegins(level) => begun.push(level.number),
        Event::Live(live) if begun.len() == stop_in && live.elapsed > 2 * asked.warm => {
            stop.store(true, Ordering::Relaxed);
        }
        _ => {}
    });
    (outcome, begun)
}

const LEVELS: [f64; 2] = [500.0, 1000.0];
const QUICK: Law = Law::Constant(Duration::from_millis(1));

/// The generator stands still for 200 ms, once. Levels last 11 s.
fn once_at(second: u64) -> HeldUp {
    HeldUp::Once(Duration::from_secs(second), Duration::from_millis(200))
}

const EACH_SECOND: HeldUp = HeldUp::Pauses(Duration::from_secs(1), Duration::from_millis(40));

/// Symptom: of three demo runs one workload in six was VALID, as one late low level spoilt a run. Fix: a verdict rests on the
/// levels that the answer rests on, and the others keep their mark.
#[test]
fn a_level_that_was_spoilt_below_the_answer_keeps_its_mark_and_leaves_the_run_valid() {
    let (outcome, begun) = held_up(QUICK, &LEVELS, once_at(5), 0);
    assert_eq!(begun, [1, 2], "nothing rests on the first");
    let valid: Vec<_> = outcome.points.iter().map(|point| point.verdict.valid).collect();
    assert_eq!(valid, [false, true], "{}", outcome.points[0].verdict);
    assert!(outcome.verdict.valid && outcome.verdict.has("other-levels"), "{}", outcome.verdict);
    assert_eq!(outcome.metrics["held_per_sec"], 1000.0);
}

/// Symptom: two of six demo runs were INVALID, as the generator was late in the level that the answer rested on. Cause: only a
/// search measured such a level again. Fix: a sweep does, too.
#[test]
fn a_late_level_that_the_answer_rests_on_is_measured_again() {
    let (outcome, begun) = held_up(QUICK, &LEVELS, once_at(16), 0);
    assert_eq!(begun, [1, 2, 2]);
    let [first, second] = outcome.points.as_slice() else { panic!("{} levels", outcome.points.len()) };
    assert!(!first.verdict.has("measured-again"), "{}", first.verdict);
    let remark = second.verdict.reasons.iter().find(|reason| reason.code == "measured-again").unwrap();
    assert!(!remark.fatal && remark.text.contains("sent late"), "{}", remark.text);
    assert!(second.verdict.valid && outcome.verdict.valid, "{} {}", second.verdict, outcome.verdict);
    assert_eq!(outcome.metrics["held_per_sec"], 1000.0);
}

#[test]
fn a_level_is_measured_again_once_and_a_headline_never_comes_from_one_that_stays_invalid() {
    let (outcome, begun) = held_up(QUICK, &LEVELS, EACH_SECOND, 0);
    assert_eq!(begun, [1, 2, 2]);
    assert!(outcome.points.iter().all(|point| point.verdict.has("generator-late")));
    assert!(!outcome.verdict.valid && outcome.verdict.has("generator-late"), "{}", outcome.verdict);
    assert_eq!(outcome.metrics.get("held_per_sec"), None);
}

#[test]
fn what_the_storage_did_has_no_level_measured_again() {
    let (outcome, begun) = held_up(Law::Queue(Duration::from_millis(1)), &[500.0, 1500.0], once_at(3600), 0);
    assert_eq!(begun, [1, 2]);
    assert!(outcome.points[1].saturated && outcome.verdict.valid, "{}", outcome.verdict);
}

#[test]
fn a_repeat_that_is_cut_short_leaves_the_level_as_it_was_measured_before() {
    let (outcome, begun) = held_up(QUICK, &LEVELS, once_at(16), 3);
    assert_eq!(begun, [1, 2, 2]);
    assert!(!outcome.complete && outcome.points.len() == 2);
    let verdict = &outcome.points[1].verdict;
    assert!(verdict.has("generator-late") && !verdict.has("measured-again"), "{verdict}");
    assert!(!verdict.has("stopped") && !outcome.verdict.valid, "{verdict} {}", outcome.verdict);
}

/// Symptom: with 10% of its requests lost a level "achieved" its rate, as what had piled up in the warm-up was answered in the
/// interval. Cause: any reply in the interval counted. Fix: replies to the interval's own requests count.
#[test]
fn a_backlog_from_the_warm_up_makes_up_for_nothing_that_was_lost() {
    // From 0.5 s to 1.1 s nothing is answered, so that 250 requests of the warm-up are answered in the interval.
    let stall = Fault::Stall(Duration::from_millis(500), Duration::from_millis(600));
    let outcome = run(Load::Sweep(vec![500.0]), &[stall, Fault::Lose(50)]);
    let point = &outcome.points[0];
    assert!(point.saturated && point.verdict.has("rate-off"), "{}", point.verdict);
    assert!((485.0..=491.0).contains(&point.achieved_per_sec), "{}", point.achieved_per_sec);
}

#[test]
fn a_storage_that_keeps_up_holds_its_rate_however_long_it_takes_and_short_the_interval() {
    let (mut transport, clock) = LawTransport::new(Law::Constant(Duration::from_millis(800)), &[], 7);
    let asked = FstressConfig { measure: Duration::from_secs(1), ..config(Load::Sweep(vec![500.0])) };
    let outcome = fstress::run(&asked, &mut transport, &clock, &AtomicBool::new(false), &mut |_| {});
    let point = &outcome.points[0];
    assert!(!point.saturated && (499.0..=501.0).contains(&point.achieved_per_sec), "{}", point.verdict);
}

#[test]
fn a_bound_that_few_samples_judge_is_said_to_be() {
    // Levels of 10 s: a p99.9 of 500/s has five samples above it.
    let below = |quantile: &str| {
        let bound = quantile.parse().unwrap();
        let load = Load::FindMax { first: 20.0, bound };
        let (mut transport, clock) = LawTransport::new(Law::Queue(Duration::from_millis(10)), &[], 7);
        fstress::run(&config(load), &mut transport, &clock, &AtomicBool::new(false), &mut |_| {}).verdict
    };
    let few = below("p99.9<50ms");
    let remark = few.reasons.iter().find(|reason| reason.code == "few-samples").unwrap();
    assert!(!remark.fatal && remark.text.contains("p99.9 < 50ms"), "{}", remark.text);
    assert!(!below("p90<50ms").has("few-samples"));
}

/// Symptom: a level of `--find-max` that was held but too slow had no mark, and its rate was the "Peak rate". Cause: only a level
/// that was not held counted as failed.
#[test]
fn a_level_that_missed_the_bound_carries_a_mark_and_is_no_peak() {
    // Gaps are exponential: near capacity the wait grows before too little is answered.
    let bound: LatencyBound = "p99<8ms".parse().unwrap();
    let load = Load::FindMax { first: 100.0, bound };
    let asked = FstressConfig { arrivals: Arrivals::Poisson, ..config(load) };
    let (mut transport, clock) = LawTransport::new(Law::Queue(Duration::from_millis(1)), &[], 7);
    let outcome = fstress::run(&asked, &mut transport, &clock, &AtomicBool::new(false), &mut |_| {});
    let over: Vec<_> = outcome.points.iter().filter(|point| point.verdict.has("bound-missed")).collect();
    let is_within = |point: &LoadPoint| point.histogram.quantile(0.99) < Duration::from_millis(8);
    assert!(!over.is_empty(), "{:?}", outcome.metrics);
    for point in &outcome.points {
        let is_over = !point.saturated && !is_within(point);
        assert_eq!(
            point.verdict.has("bound-missed"),
            is_over,
            "{:?}: {}",
            point.offered_per_sec,
            point.verdict
        );
    }
    let reason = over[0].verdict.reasons.iter().find(|reason| reason.code == "bound-missed").unwrap();
    assert!(!reason.fatal && reason.text.starts_with("over the bound p99 < 8ms: p99 is "), "{}", reason.text);
    let peak = outcome.metrics["peak_per_sec"];
    assert!(over.iter().all(|point| point.achieved_per_sec > peak), "{peak}: {:?}", outcome.metrics);
}

#[test]
fn the_reasons_of_each_level_are_said_by_themselves() {
    // Each twentieth request takes 12 ms to send: those behind it are late in the first level, and cannot all be sent in the second.
    let slow = HeldUp::Sends(20, Duration::from_millis(12));
    let (outcome, begun) = held_up(QUICK, &[200.0, 4000.0], slow, 0);
    assert_eq!(begun, [1, 2, 1, 2]);
    let texts: Vec<&str> = outcome
        .verdict
        .reasons
        .iter()
        .filter(|reason| reason.code == "generator-late")
        .map(|reason| reason.text.as_str())
        .collect();
    assert!(texts.len() == 2 && texts[0].starts_with("at 200/s: "), "{texts:?}");
    assert!(texts[1].starts_with("at 4000/s: ") && texts[1].contains("did not send"), "{texts:?}");
}

/// Symptom: a level interrupted after 1 s of 10 counted as held, as all that was due by then was answered.
#[test]
fn a_part_of_an_interval_is_no_level_that_was_held() {
    let (mut transport, clock) = LawTransport::new(Law::Constant(Duration::from_millis(1)), &[], 7);
    let stop = AtomicBool::new(false);
    let asked = config(Load::Sweep(vec![500.0]));
    let until = asked.warm + Duration::from_secs(1);
    let outcome = fstress::run(&asked, &mut transport, &clock, &stop, &mut |event| {
        if matches!(event, Event::Live(live) if live.elapsed > until) {
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert_eq!(outcome.points.len(), 1);
    assert!(outcome.points[0].verdict.has("stopped"), "{}", outcome.points[0].verdict);
    assert!(!outcome.verdict.valid && outcome.verdict.has("interrupted"), "{}", outcome.verdict);
    for figure in ["held_per_sec", "peak_per_sec", "overall_response_us"] {
        assert_eq!(outcome.metrics.get(figure), None, "{figure}");
    }
}

#[test]
fn a_run_interrupted_in_its_warm_up_beside_a_silent_server_says_what_it_waited_for() {
    let (mut transport, clock) =
        LawTransport::new(Law::Constant(Duration::from_millis(1)), &[Fault::Lose(1)], 7);
    let stop = AtomicBool::new(false);
    let mut notes = Vec::new();
    let outcome =
        fstress::run(&config(Load::Sweep(vec![500.0])), &mut transport, &clock, &stop, &mut |event| {
            match event {
                Event::Live(_) => stop.store(true, Ordering::Relaxed),
                Event::Note(note) => notes.push(note),
                _ => {}
            }
        });
    assert!(outcome.points.is_empty() && !outcome.complete);
    assert!(notes.iter().any(|note| note.contains("has not answered")), "{notes:?}");
}
