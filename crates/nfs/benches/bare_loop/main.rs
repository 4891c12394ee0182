//! How fast a client on this machine can be at all: prebuilt calls, XIDs matched, nothing else; beside it
//! Crumb's transport driven in the same closed loop, in the same run.
//!
//! ```text
//! cargo bench -p nfs --bench bare_loop -- [--addr HOST:PORT] [--proto tcp|udp] [--mix null|sfs97]
//!     [--outstanding N] [--seconds S] [--cpu N] [--server-cpu N] [--who bare|bare-spinning|transport|spinning]
//! cargo bench -p nfs --bench bare_loop -- --serve HOST:PORT
//! ```
//!
//! `--addr`: a running `crumb serve null`; without it a thread of this program answers, on `--server-cpu`.
//! `--serve`: that thread alone, for other clients. Prints one line a run: who, proto, mix, outstanding, calls a
//! second, CPU time a call (steadier than the rate when others run beside). Without `--bench`, as `cargo test`
//! starts it, each run is short and its figures mean nothing.
#![allow(clippy::print_stdout)]

mod bare;
mod mix;
mod responder;
mod transport;

use std::{
    net::SocketAddr,
    num::NonZeroU16,
    time::{Duration, Instant},
};

use files::NfsProto;
use mix::Mix;

/// One run.
#[derive(Clone, Copy)]
struct Run {
    addr: SocketAddr,
    proto: NfsProto,
    mix: Mix,
    outstanding: NonZeroU16,
    warm: Duration,
    measure: Duration,
    /// Look for replies all the time instead of sleeping.
    spin: bool,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str| {
        args.iter()
            .position(|arg| arg == flag)
            .map(|at| args.get(at + 1).unwrap_or_else(|| panic!("{flag} wants a value")).as_str())
    };
    if let Some(addr) = value("--serve") {
        pin(value("--server-cpu").map(number));
        let responder = responder::Responder::start(addr.parse().expect("an address"), None);
        println!("answering on {}", responder.addr());
        responder.wait();
        return;
    }
    let measured = args.iter().any(|arg| arg == "--bench");
    let seconds = value("--seconds").map_or(if measured { 3.0 } else { 0.02 }, |text| text.parse().unwrap());
    let own = value("--addr").is_none().then(|| {
        responder::Responder::start(
            "127.0.0.1:0".parse().unwrap(),
            Some(value("--server-cpu").map_or(1, number)),
        )
    });
    let addr = value("--addr").map_or_else(|| own.as_ref().unwrap().addr(), |addr| addr.parse().unwrap());
    pin(measured.then(|| value("--cpu").map_or(0, number)));
    for proto in [NfsProto::Tcp, NfsProto::Udp] {
        for mix in [Mix::Null, Mix::Sfs97] {
            if value("--proto").is_some_and(|only| only != proto.to_string())
                || value("--mix").is_some_and(|only| only != mix.name())
            {
                continue;
            }
            let run = Run {
                addr,
                proto,
                mix,
                outstanding: value("--outstanding").map_or("64", |text| text).parse().unwrap(),
                warm: Duration::from_secs_f64(seconds / 10.0),
                measure: Duration::from_secs_f64(seconds),
                spin: false,
            };
            let wanted = |who: &str| value("--who").is_none_or(|only| only == who);
            // The limit is the better of the two ways to wait.
            let mut bare: Option<Rate> = None;
            for (who, spin) in [("bare", false), ("bare-spinning", true)] {
                if wanted(who) {
                    let rate = bare::run(&Run { spin, ..run });
                    print(who, &run, &rate);
                    if bare.as_ref().is_none_or(|best| best.calls_per_sec < rate.calls_per_sec) {
                        bare = Some(rate);
                    }
                }
            }
            for (who, spins) in [("transport", false), ("spinning", true)] {
                if wanted(who) {
                    let rate = transport::run(&run, spins);
                    print(who, &run, &rate);
                    if let Some(bare) = &bare {
                        let share = rate.calls_per_sec / bare.calls_per_sec;
                        println!("{who:<22}{share:>39.2} of the bare loop");
                    }
                }
            }
        }
    }
}

fn print(who: &str, run: &Run, rate: &Rate) {
    let (proto, mix, outstanding) = (run.proto.to_string(), run.mix.name(), run.outstanding);
    println!(
        "{who:<22}{proto:<5}{mix:<7}{outstanding:>6} outstanding {:>12.0} calls/s {:>8.3} us CPU a call",
        rate.calls_per_sec, rate.cpu_us_per_call
    );
}

/// What a run comes to.
struct Rate {
    calls_per_sec: f64,
    cpu_us_per_call: f64,
}

/// A moment of a run: time, CPU time of this thread, calls answered.
#[derive(Clone, Copy)]
struct Moment {
    at: Instant,
    cpu_s: f64,
    answered: u64,
}

impl Moment {
    fn now(answered: u64) -> Self {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Self { at: Instant::now(), cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9, answered }
    }

    fn rate_until(self, end: Self) -> Rate {
        let answered = (end.answered - self.answered) as f64;
        Rate {
            calls_per_sec: answered / (end.at - self.at).as_secs_f64(),
            cpu_us_per_call: 1e6 * (end.cpu_s - self.cpu_s) / answered,
        }
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a CPU's number")
}

/// Binds this thread to a CPU, where there is one of that number.
fn pin(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}
