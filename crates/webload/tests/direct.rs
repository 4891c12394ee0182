//! Robots and origin against each other without a proxy between, and servers that lie.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::{Benchmark as _, Figures, Surroundings};
use measure::LoopKind;
use webload::{
    Body, End, Event, Generation, Object, ObjectSet, Origin, OriginOptions, Pace, Phase, Plan, PolyMix, Pool,
    Route, SetUse, ThinkTime, Trace, Webload, WebloadConfig, run,
};

fn config(peer: SocketAddr, plan: Plan, phases: Vec<Phase>, pool: Pool) -> WebloadConfig {
    WebloadConfig {
        plan,
        phases,
        route: Route { peer, forward: false, authority: peer.to_string() },
        pool,
        threads: NonZeroUsize::MIN,
        timeout: Duration::from_secs(20),
        drain: Duration::from_secs(20),
        wait: Default::default(),
        check_one_in: NonZeroU32::MIN,
        seed: 1,
        watch: None,
    }
}

fn set(used: SetUse) -> Plan {
    Plan::Objects(ObjectSet {
        count: NonZeroU64::new(300).unwrap(),
        mean_bytes: 10_700,
        used,
        fill_phases: 1,
    })
}

fn fill_and(requests: u64, pace: Pace) -> Vec<Phase> {
    vec![
        Phase::new("fill", Pace::Closed, End::Requests(300)),
        Phase::new("hits", pace, End::Requests(requests)).measured(),
    ]
}

const SHARED: Pool = Pool::Shared { connections: 8 };
const AGAIN: SetUse = SetUse::Again { zipf: 0.8 };

fn done(config: &WebloadConfig) -> Figures {
    done_until(config, &AtomicBool::new(false), &mut |_| {})
}

fn done_until(config: &WebloadConfig, stop: &AtomicBool, tell: &mut dyn FnMut(Event)) -> Figures {
    let part = run(config, stop, tell).unwrap();
    Webload { config: config.clone() }.figures(&part, &Surroundings::default())
}

fn is_clean(outcome: &Figures) {
    let fatal: Vec<_> = outcome
        .verdict
        .reasons
        .iter()
        .filter(|reason| !["debug-build", "few-samples", "other-levels"].contains(&reason.code.as_str()))
        // Requests of a trace come in bursts and share few connections; as a remark it spoils nothing.
        .filter(|reason| reason.fatal || reason.code != "transport-full")
        // A busy machine disturbs a run and makes its generator late; that is not what is tested.
        .filter(|reason| !reason.code.starts_with("generator") && !reason.code.ends_with("-late"))
        .filter(|reason| reason.code != "machine-disturbed")
        .collect();
    assert!(fatal.is_empty(), "{fatal:?}");
    assert_eq!(outcome.metrics["errors_percent"], 0.0);
}

#[test]
fn every_reply_of_the_origin_is_what_its_url_says_however_it_is_framed() {
    for (chunked, requests_zipf) in [(false, None), (true, None), (false, Some(4)), (true, Some(1))] {
        let options = OriginOptions { chunked, requests_zipf, ..OriginOptions::default() };
        let origin = Origin::start(&options).unwrap();
        let outcome = done(&config(origin.address(), set(AGAIN), fill_and(1000, Pace::Closed), SHARED));
        is_clean(&outcome);
        let point = &outcome.points[0];
        assert_eq!((point.loop_kind, point.outstanding), (LoopKind::Closed, Some(8)));
        assert_eq!((point.ops["plain"].ok, point.latency_us.count), (1000, 1000));
        assert_eq!(outcome.metrics["document_hit_percent"], 0.0, "the origin is no cache");
        assert_eq!(outcome.metrics["document_hit_offered_percent"], 100.0);
        let counters = origin.stop();
        assert_eq!((counters.requests, counters.refused), (1300, 0));
    }
}

#[test]
fn equal_seeds_ask_for_the_same_and_the_digest_says_so() {
    let origin = Origin::start(&OriginOptions::default()).unwrap();
    let digest = |seed| {
        let pace = Pace::Open { from_per_sec: 2000.0, to_per_sec: 2000.0 };
        let config =
            WebloadConfig { seed, ..config(origin.address(), set(AGAIN), fill_and(200, pace), SHARED) };
        done(&config).points[0].operations_digest.clone()
    };
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
    // Connections that end after chance numbers of requests drew from the arrivals' dice once.
    let polymix = PolyMix { time_scale: 60_000.0, ..PolyMix::new(Generation::Four, 500.0, 1_000_000) };
    let pool = Pool::Robots { robots: 9, requests_zipf: Some(4), idle_timeout: Duration::from_secs(15) };
    let digests = || {
        let phases = polymix.phases();
        let outcome = done(&config(origin.address(), Plan::PolyMix(polymix.clone()), phases, pool));
        outcome.points.into_iter().map(|point| point.operations_digest).collect::<Vec<_>>()
    };
    assert_eq!(digests(), digests());
}

#[test]
fn polymix_offers_its_rate_and_thinking_is_told_apart_from_waiting() {
    let think = ThinkTime { mean: Duration::from_millis(80), sd: Duration::from_millis(20) };
    let options = OriginOptions { think, requests_zipf: Some(16), ..OriginOptions::default() };
    let origin = Origin::start(&options).unwrap();
    let polymix = PolyMix { time_scale: 6000.0, ..PolyMix::new(Generation::Three, 400.0, 2_000_000) };
    let pool = Pool::Robots {
        robots: polymix.robots(),
        requests_zipf: Some(64),
        idle_timeout: Duration::from_secs(15),
    };
    let phases = polymix.phases();
    let outcome = done(&config(origin.address(), Plan::PolyMix(polymix), phases, pool));
    is_clean(&outcome);
    assert_eq!(outcome.points.len(), 2);
    for point in &outcome.points {
        assert_eq!(point.offered_per_sec, Some(400.0));
        assert!((point.sent_per_sec / 400.0 - 1.0).abs() < 0.15, "{}", point.sent_per_sec);
        assert!(point.ops.contains_key("reload") && point.ops.contains_key("if-modified-304"));
    }
    let names: Vec<&str> = outcome.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert!(names.contains(&"fill") && names.contains(&"top-2"), "{names:?}");
    let (all, without) = (outcome.metrics["response_mean_us"], outcome.metrics["response_without_think_us"]);
    assert!(all > 75_000.0 && without < all - 70_000.0, "{all} {without}");
    let offered = outcome.metrics["document_hit_offered_percent"];
    assert!((offered - 55.0).abs() < 8.0, "{offered}");
    assert_eq!(outcome.metrics["document_hit_percent"], 0.0, "304 of the origin's own is no hit");
    let curve = outcome.curves.iter().find(|curve| curve.name == "requests_per_sec").unwrap();
    assert_eq!((curve.over.as_str(), curve.lines.len()), ("minutes", 2));
}

#[test]
fn what_was_under_way_when_a_run_was_cut_short_is_no_failure() {
    let think = ThinkTime { mean: Duration::from_millis(200), sd: Duration::ZERO };
    let origin = Origin::start(&OriginOptions { think, ..OriginOptions::default() }).unwrap();
    let pace = Pace::Open { from_per_sec: 400.0, to_per_sec: 400.0 };
    let phases = vec![Phase::new("hits", pace, End::Requests(100_000)).measured()];
    let pool = Pool::Shared { connections: 500 };
    let stop = AtomicBool::new(false);
    let config = config(origin.address(), set(AGAIN), phases, pool);
    let outcome = done_until(&config, &stop, &mut |event| {
        stop.store(matches!(event, Event::Live(_)), Ordering::Relaxed);
    });
    assert!(!outcome.complete);
    let plain = &outcome.points[0].ops["plain"];
    assert!(plain.ok > 0 && plain.cancelled > 0, "{} {}", plain.ok, plain.cancelled);
    assert_eq!((outcome.metrics["errors_percent"], outcome.phases[0].counters["errors"]), (0.0, 0.0));
    let codes: Vec<_> = outcome.verdict.reasons.iter().map(|reason| reason.code.as_str()).collect();
    assert!(!codes.contains(&"errors") && !codes.contains(&"rate-off"), "{codes:?}");
}

#[test]
fn a_trace_is_replayed_with_its_urls_and_sizes_by_several_generators() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("access.log");
    let line = |n: u64| {
        format!(
            "{}.000 1 10.0.0.1 TCP_MISS/200 {} GET http://a/d/{n}.gif - -/- -\n",
            1000 + n / 50,
            300 + n % 7
        )
    };
    let text: String = (0..100).chain(0..100).map(line).collect();
    std::fs::write(&path, text).unwrap();
    let trace = Trace::read(&path, None, 1000).unwrap().faster(100.0);
    let origin = Origin::start(&OriginOptions::default()).unwrap();
    let phases = vec![Phase::new("replay", Pace::OfPlan, End::OfPlan).measured()];
    let config = config(origin.address(), Plan::Trace(trace.into()), phases, SHARED);
    let outcome = done(&WebloadConfig { threads: NonZeroUsize::new(2).unwrap(), ..config });
    is_clean(&outcome);
    assert_eq!(outcome.points[0].ops["plain"].ok, 200);
    assert_eq!(outcome.metrics["document_hit_offered_percent"], 50.0);
}

/// Answers every request on its own thread with what `reply` makes of its path.
fn liar(reply: impl Fn(&Object, &mut Vec<u8>) + Copy + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream: TcpStream = stream.unwrap();
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let mut stream = stream;
                while let Some(Ok(line)) = lines.next() {
                    let path = line.split(' ').nth(1).unwrap().to_owned();
                    while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                    let mut out = Vec::new();
                    reply(&Object::of_path(path.as_bytes()).unwrap(), &mut out);
                    if stream.write_all(&out).is_err() || out.is_empty() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn with_body(object: &Object, length: u64, change: impl Fn(&mut Vec<u8>), out: &mut Vec<u8>) {
    let mut bytes = vec![0; object.size_bytes as usize];
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Body::new(object, object.version_at(now.as_secs_f64())).fill(0, &mut bytes);
    change(&mut bytes);
    write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").unwrap();
    out.extend_from_slice(&bytes);
}

fn errors_of(address: SocketAddr) -> Vec<String> {
    let phases = vec![Phase::new("lies", Pace::Closed, End::Requests(20)).measured()];
    let outcome = done(&config(address, set(AGAIN), phases, Pool::Shared { connections: 2 }));
    assert!(!outcome.verdict.valid);
    outcome.points[0].ops["plain"].errors.keys().cloned().collect()
}

#[test]
fn each_lie_of_a_server_is_found_and_named() {
    let size = |object: &Object| object.size_bytes;
    let whole = liar(move |object, out| with_body(object, size(object), |_| {}, out));
    let phases = vec![Phase::new("truth", Pace::Closed, End::Requests(20)).measured()];
    let outcome = done(&config(whole, set(AGAIN), phases, SHARED));
    assert_eq!((outcome.metrics["errors_percent"], outcome.metrics["document_hit_percent"]), (0.0, 100.0));

    let other = liar(|object, out| {
        with_body(&Object { number: object.number ^ 1, ..*object }, size_of(object), |_| {}, out)
    });
    assert_eq!(errors_of(other), ["WRONG_BODY"]);
    let flipped = liar(move |object, out| {
        with_body(
            object,
            size(object),
            |bytes| {
                if let Some(byte) = bytes.last_mut() {
                    *byte ^= 1
                }
            },
            out,
        )
    });
    assert!(errors_of(flipped).iter().all(|name| name == "MIXED_BODY" || name == "WRONG_BODY"));
    let longer = liar(move |object, out| with_body(object, size(object) + 1, |bytes| bytes.push(0), out));
    assert_eq!(errors_of(longer), ["WRONG_LENGTH"]);
    let shorter = liar(move |object, out| {
        with_body(object, size(object) - 1, |bytes| bytes.truncate(bytes.len() - 1), out)
    });
    assert_eq!(errors_of(shorter), ["CUT_BODY"]);
    assert_eq!(
        errors_of(liar(|_, out| out.extend_from_slice(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"))),
        ["HTTP_503"]
    );
    assert_eq!(
        errors_of(liar(|_, out| out.extend_from_slice(b"HTTP/1.1 304 Not Modified\r\n\r\n"))),
        ["UNASKED_304"]
    );
    assert_eq!(errors_of(liar(|_, out| out.extend_from_slice(b"what?\r\n\r\n"))), ["BAD_REPLY"]);
    assert_eq!(errors_of(liar(|_, _| {})), ["CONNECTION_LOST"]);
}

fn size_of(object: &Object) -> u64 {
    object.size_bytes
}

#[test]
fn nobody_there_is_said_before_anything_is_sent() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = config(address, set(AGAIN), fill_and(10, Pace::Closed), SHARED);
    let error = run(&config, &AtomicBool::new(false), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains(&address.to_string()) && error.contains("start the proxy"), "{error}");
}

/// Symptom: requests that time out make a proxy look faster, and the run is VALID. Cause: they were in no histogram. Fix: they
/// are counted with the time that was waited for them, and too many of them make the figures those of no proxy.
#[test]
fn requests_without_a_reply_in_their_time_are_in_mean_and_maximum_and_the_run_is_not_valid() {
    let address = liar(|object, out| {
        if object.number % 10 == 0 {
            // Longer than is waited for, which ends the connection.
            std::thread::sleep(Duration::from_secs(20));
        }
        with_body(object, size_of(object), |_| {}, out)
    });
    let phases = vec![Phase::new("silence", Pace::Closed, End::Requests(60)).measured()];
    let timeout = Duration::from_millis(400);
    let config = WebloadConfig { timeout, ..config(address, set(AGAIN), phases, SHARED) };
    let outcome = done(&config);
    let (point, plain) = (&outcome.points[0], &outcome.points[0].ops["plain"]);
    let timed_out = plain.errors["TIMED_OUT"];
    assert!(timed_out > 0 && plain.ok > 0, "{timed_out} {}", plain.ok);
    assert_eq!(point.latency_us.count, plain.ok + timed_out);
    assert!(point.latency_us.max >= 400_000.0, "{:?}", point.latency_us);
    assert!(outcome.metrics["response_mean_us"] >= 400_000.0 * timed_out as f64 / 60.0);
    let reason = outcome.verdict.reasons.iter().find(|reason| reason.code == "timed-out");
    assert!(reason.is_some_and(|reason| reason.fatal), "{:?}", outcome.verdict);
}

/// Symptom: 100,000 threads ended the machine, and a process that was not there had figures of zero. Cause: nothing was
/// checked. Fix: settings that no run can have are refused before anything starts.
#[test]
fn settings_that_no_run_can_have_are_refused_before_anything_starts() {
    // Nothing listens there, so that a setting that passed would be the error of another kind.
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let of = |plan| config(nowhere, plan, fill_and(1, Pace::Closed), SHARED);
    let objects = |count: u64, mean_bytes: u64| {
        let count = NonZeroU64::new(count).unwrap();
        Plan::Objects(ObjectSet { count, mean_bytes, used: AGAIN, fill_phases: 1 })
    };
    let mut mix = PolyMix::new(Generation::Four, 10.0, 1 << 30);
    mix.working_set_bytes = Some(0);
    let many = NonZeroUsize::new(100_000).unwrap();
    for (config, named) in [
        (WebloadConfig { threads: many, ..of(set(AGAIN)) }, "threads: 100000 are more than 256"),
        (of(objects(300, 99_000_000_000_000)), "object size"),
        (of(objects(300, 0)), "object size"),
        (of(objects(99_999_999_999_999, 1)), "objects: "),
        (of(Plan::PolyMix(mix)), "working set"),
        (WebloadConfig { watch: Some(0), ..of(set(AGAIN)) }, "no process 0"),
        (WebloadConfig { watch: Some(u32::MAX), ..of(set(AGAIN)) }, "no process 4294967295"),
    ] {
        let error = run(&config, &AtomicBool::new(false), &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    let options = OriginOptions { threads: many, ..OriginOptions::default() };
    assert!(Origin::start(&options).err().unwrap().to_string().contains("origin threads"));
}

#[test]
fn the_figures_of_a_watched_process_that_ended_are_left_out_and_that_is_said() {
    let origin = Origin::start(&OriginOptions::default()).unwrap();
    let of = |watch| {
        let phases = fill_and(300, Pace::Closed);
        WebloadConfig { watch: Some(watch), ..config(origin.address(), set(AGAIN), phases, SHARED) }
    };
    let kept = done(&of(std::process::id()));
    assert!(kept.metrics.contains_key("proxy_resident_bytes") && !kept.verdict.has("watched-process-ended"));
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let config = of(child.id());
    let slow = Phase::new("hits", Pace::Open { from_per_sec: 100.0, to_per_sec: 100.0 }, End::Requests(150));
    let config = WebloadConfig { phases: vec![slow.measured()], ..config };
    let outcome = run(&config, &AtomicBool::new(false), &mut |event| {
        // The load has begun by now. Killed again it is an error, which is none here.
        if let Event::Live(_) = event {
            let _ = child.kill().and_then(|()| child.wait());
        }
    });
    let _ = child.kill().and_then(|()| child.wait());
    let figures = Webload { config: config.clone() }.figures(&outcome.unwrap(), &Surroundings::default());
    assert!(figures.verdict.has("watched-process-ended"), "{:?}", figures.verdict);
    assert!(!figures.metrics.contains_key("proxy_resident_bytes"));
}
