//! A run that is stopped while it makes its file set, or that never gets all requests out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use files::{DirectoryTransport, DirectoryTransportOptions};
use fstress::{Arrivals, FileCount, FstressConfig, Keep, Load, Workload};
use harness::Event;
use quanta::Clock;
use testkit::{Law, LawTransport};

fn config(workload: &str, rates: &[f64], files: u64) -> FstressConfig {
    FstressConfig {
        workload: Workload::builtin(workload).unwrap(),
        load: Load::Sweep(rates.to_vec()),
        arrivals: Arrivals::Uniform,
        warm: Duration::from_secs(1),
        measure: Duration::from_secs(5),
        drain: Duration::from_secs(1),
        wait: Default::default(),
        files: FileCount::Fixed(files.try_into().unwrap()),
        seed: 42,
        keep: Keep::Remove,
        set_name: "crumb-fstress-test".to_owned(),
        build_in_flight: 64,
        raw: None,
    }
}

/// Symptom: directories could stay behind after Ctrl-C while building. Cause: tickets began anew after an
/// interruption, so that a late reply to a CREATE ended the RMDIR that had its ticket. Fix: one counter a run.
#[test]
fn stopping_while_files_are_made_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let options = DirectoryTransportOptions::default();
    let mut transport = DirectoryTransport::open(dir.path(), options, clock.clone()).unwrap();
    let stop = AtomicBool::new(false);
    let outcome =
        fstress::run(&config("web-server", &[100.0], 50_000), &mut transport, &clock, &stop, &mut |event| {
            if matches!(event, Event::Step(step) if step.done > 0) {
                stop.store(true, Ordering::Relaxed);
            }
        });
    assert!(!outcome.complete && outcome.error.is_none(), "{:?}", outcome.error);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_request_that_never_went_out_ends_with_its_load_point() {
    let (transport, clock) = LawTransport::new(Law::Queue(Duration::from_millis(1)), &[], 7);
    let mut transport = transport.with_in_flight_max(70);
    let asked = config("web-proxy", &[3000.0, 3000.0, 200.0], 2000);
    let outcome = fstress::run(&asked, &mut transport, &clock, &AtomicBool::new(false), &mut |_| {});
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    for point in &outcome.points {
        for (name, stats) in &point.ops {
            let ended = stats.ok + stats.cancelled + stats.errors.values().sum::<u64>();
            assert_eq!(ended, stats.attempted, "{name} at {:?}/s", point.offered_per_sec);
        }
    }
    // Without a lighter level before it, nothing says whether the storage or its 70 slots were the limit.
    let first = &outcome.points[0];
    assert!(first.verdict.has("transport-full") && first.unsent > 0, "{}", first.verdict);
    assert!(!outcome.points[2].saturated, "{}", outcome.points[2].verdict);
}
