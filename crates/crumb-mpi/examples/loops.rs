//! Closed loops of one process, a thread and a connection each, against the null responder: what as many ranks of
//! `crumb-mpi` are measured beside (`scripts/measure-mpi.sh`).
//!
//!   loops nfs://127.0.0.1:PORT/ LOOPS OUTSTANDING_IN_ALL SECONDS
//!
//! Always holds: each loop is the generator of `crumb run fstress -w null --rate max`; all begin at the same moment; what
//! is printed is the sum of their rates.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program of its own")]

use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use files::{NfsTarget, Target};
use fstress::{Arrivals, FileCount, FstressConfig, Keep, Load, Workload};
use nfs::client::{ClientOptions, connect};
use quanta::Clock;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &String| text.parse::<u32>().ok().filter(|&number| number > 0);
    let asked = match &args[..] {
        [url, numbers @ ..] => url.parse().ok().zip(numbers.iter().map(number).collect::<Option<Vec<_>>>()),
        [] => None,
    };
    let Some((Target::Nfs(target), numbers)) = asked else { return usage() };
    let [loops, outstanding, seconds] = numbers[..] else { return usage() };
    let together = Barrier::new(loops as usize);
    let rate: f64 = std::thread::scope(|threads| {
        let running: Vec<_> = (0..loops)
            .map(|_| threads.spawn(|| rate_of_one(&target, outstanding.div_ceil(loops), seconds, &together)))
            .collect();
        running.into_iter().map(|one| one.join().expect("a loop")).sum()
    });
    println!("{rate:.1}");
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: loops nfs://HOST:PORT/ LOOPS OUTSTANDING_IN_ALL SECONDS");
    ExitCode::from(2)
}

fn rate_of_one(target: &NfsTarget, outstanding: u32, seconds: u32, together: &Barrier) -> f64 {
    let clock = Clock::new();
    let mut transport = connect(target, &ClientOptions::default(), clock.clone()).expect("a null responder");
    let config = FstressConfig {
        workload: Workload::builtin("null").expect("built in"),
        load: Load::Max { outstanding },
        arrivals: Arrivals::Uniform,
        warm: Duration::from_millis(300),
        measure: Duration::from_secs(seconds.into()),
        drain: Duration::from_secs(10),
        wait: Default::default(),
        files: FileCount::Scaled,
        seed: 1,
        keep: Keep::Remove,
        set_name: String::new(),
        build_in_flight: 1,
        raw: None,
    };
    together.wait();
    let never = AtomicBool::new(false);
    let outcome = fstress::run(&config, &mut *transport, &clock, &never, &mut |_| {});
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    outcome.points[0].achieved_per_sec
}
