//! What generator and origin can do on one core each: requests a second, and CPU a request.
//!
//! `cargo bench -p webload --bench capacity` prints a table; as a test it runs for an instant, so that it cannot rot.
//! On a machine with other work on it, only the CPU a request means something: one core does a million over it.

#![allow(clippy::print_stdout)]

use std::fs;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use harness::{Benchmark as _, Surroundings};
use measure::CpuMeter;
use webload::{
    End, ObjectSet, Origin, OriginOptions, Pace, Phase, Plan, Pool, Route, SetUse, Webload, WebloadConfig,
    run,
};

fn main() {
    let is_bench = std::env::args().any(|word| word == "--bench");
    let span = if is_bench { Duration::from_secs(5) } else { Duration::from_millis(100) };
    println!("reply bytes  checked   requests/s  generator us  origin us");
    for (mean_bytes, check_one_in) in [(100, 1), (10_700, 1), (10_700, 1_000_000), (100_000, 1)] {
        let origin = Origin::start(&OriginOptions::default()).expect("an origin on a free port");
        let peer = origin.address();
        let set = ObjectSet {
            count: NonZeroU64::new(10_000).expect("not zero"),
            mean_bytes,
            used: SetUse::Again { zipf: 0.8 },
            fill_phases: 0,
        };
        let config = WebloadConfig {
            plan: Plan::Objects(set),
            phases: vec![Phase::new("hits", Pace::Closed, End::Time(span)).measured()],
            route: Route { peer, forward: false, authority: peer.to_string() },
            pool: Pool::Shared { connections: 64 },
            threads: NonZeroUsize::MIN,
            timeout: Duration::from_secs(10),
            drain: Duration::from_secs(10),
            wait: Default::default(),
            check_one_in: NonZeroU32::new(check_one_in).expect("not zero"),
            seed: 1,
            watch: None,
        };
        let (cpu, origin_before) = (CpuMeter::start(), origin_cpu_s());
        let part = run(&config, &AtomicBool::new(false), &mut |_| {}).expect("a run");
        let origin_s = origin_cpu_s() - origin_before;
        let used = cpu.used();
        let outcome = Webload { config }.figures(&part, &Surroundings::default());
        let requests = outcome.phases[0].items as f64;
        assert_eq!(outcome.metrics["errors_percent"], 0.0);
        let generator_s = (used.user + used.sys).as_secs_f64() - origin_s;
        println!(
            "{mean_bytes:>11}  {:>7}  {:>11.0}  {:>12.2}  {:>9.2}",
            if check_one_in == 1 { "all" } else { "lengths" },
            outcome.metrics["requests_per_sec"],
            1e6 * generator_s / requests,
            1e6 * origin_s / requests,
        );
    }
}

/// CPU of the origin's thread, seconds, to a hundredth.
fn origin_cpu_s() -> f64 {
    let tick_s = 1.0 / rustix::param::clock_ticks_per_second() as f64;
    let tasks = fs::read_dir("/proc/self/task").expect("this process has threads");
    let mut ticks = 0;
    for task in tasks.flatten() {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let Some((name, fields)) = stat.rsplit_once(')') else { continue };
        if name.contains("(origin-") {
            let numbers: Vec<u64> =
                fields.split_whitespace().skip(11).take(2).filter_map(|n| n.parse().ok()).collect();
            ticks += numbers.iter().sum::<u64>();
        }
    }
    ticks as f64 * tick_s
}
