//! Does VALID mean right on this machine? Runs Fstress against a server whose delays are known, holds up the generator, and
//! compares each figure that Fstress prints with what the server logged for the same requests.
//!
//! ```text
//! Fstress -> HeldUp (stalls) -> NFS over UDP -> relay: holds each reply by a law, logs -> null responder, once a call
//! ```
//!
//! 1. The relay keeps the null responder's reply to each call that it sees for the first time, and patches the XID afterwards.
//! 2. A delay counts from the arrival of a request's first datagram, which the kernel stamps, to the sending of the reply. The relay
//!    looks at the clock before and after it sends: the reply left in between, and a relay that was stopped there knows no more.
//! 3. The way there and back, which the server cannot log, is the median difference of the undisturbed levels of the same
//!    law and rate. It is taken off, and printed.
//! 4. A level is wrong when a figure is below what the earliest moments give or above what the latest give, by more than 1% and 5 us
//!    beyond that way. Which requests Fstress counted is known but for one at either end: all three windows are looked at.
//! 5. A level is VALID when Fstress says so and the machine was not disturbed meanwhile, as in `crumb run`.
//!
//! Prints a line a level and then the counts. Exit status 1 when a level was VALID and wrong.

#![expect(clippy::print_stdout, reason = "its table is what it is for")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use files::{
    Completion, HandleRef, Request, SubmitError, Target, Ticket, Transport, TransportCounters, TransportError,
};
use fstress::{Arrivals, FileCount, FstressConfig, Keep, Load, Workload};
use harness::open_loop::FIGURES_LATE;
use harness::series::MEASURED_AGAIN;
use measure::{LoadPoint, MachineMeter, MeterScope};
use nfs::client::ClientOptions;
use nfs::server::{ServerOptions, serve_null};
use quanta::Clock;
use sys::{receive_stamped, stamp_arrivals};

const WARM: Duration = Duration::from_millis(500);
/// Long enough for two pauses, and for a p99.9 at the higher rate.
const MEASURE: Duration = Duration::from_millis(2_500);
const DRAIN: Duration = Duration::from_secs(3);
const RATES: [u64; 2] = [500, 2000];
const US_MAX: f64 = 5.0;
const SHARE_MAX: f64 = 0.01;
const FIGURES: [&str; 5] = ["mean", "p50", "p90", "p99", "p99.9"];

/// How long the relay holds replies.
#[derive(Clone, Copy, Debug)]
enum Law {
    Constant(Duration),
    /// Exponential with this mean.
    Exponential(Duration),
}

const LAWS: [Law; 4] = [
    Law::Constant(Duration::from_micros(200)),
    Law::Constant(Duration::from_millis(20)),
    Law::Exponential(Duration::from_micros(500)),
    Law::Exponential(Duration::from_millis(5)),
];

/// What disturbs a level.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Disturbance {
    None,
    /// One send in a hundred is this much later.
    Sends(Duration),
    /// The generator stands still so long once a second.
    Pauses(Duration),
    /// One request in N is dropped once.
    Lost(u64),
    /// A busy process beside the generator.
    Busy,
}

const DISTURBANCES: [Disturbance; 7] = [
    Disturbance::None,
    Disturbance::Sends(Duration::from_micros(50)),
    Disturbance::Sends(Duration::from_millis(1)),
    Disturbance::Sends(Duration::from_millis(10)),
    Disturbance::Pauses(Duration::from_millis(40)),
    Disturbance::Lost(300),
    Disturbance::Busy,
];

/// Argument by which this program is the busy process.
const BUSY: &str = "busy";

fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).is_some_and(|first| first == BUSY) {
        loop {
            std::hint::spin_loop();
        }
    }
    let rounds: usize =
        std::env::args().nth(1).map_or(Ok(4), |text| text.parse()).context("ROUNDS is a number")?;
    let mut levels = Vec::new();
    println!("law\trate\tdisturbance\tverdict\tmean\tp50\tp90\tp99\tp99.9 (us, printed - logged)");
    for round in 0..rounds {
        for (at, law) in LAWS.into_iter().enumerate() {
            for rate in RATES {
                for disturbance in DISTURBANCES {
                    let level = level(law, rate, disturbance, (round * LAWS.len() + at) as u64)?;
                    println!("{}", level.line());
                    levels.push(level);
                }
            }
        }
    }
    let wrong_and_valid = summary(&levels);
    if wrong_and_valid > 0 {
        return Err(anyhow!("{wrong_and_valid} levels were VALID and wrong"));
    }
    Ok(())
}

/// A level with its figures as printed and as logged, in microseconds.
struct Level {
    law: Law,
    rate: u64,
    disturbance: Disturbance,
    point: LoadPoint,
    printed: [f64; 5],
    /// By the moment before each reply was sent, and by that after it.
    logged: [[f64; 5]; 2],
}

impl Level {
    fn line(&self) -> String {
        let off = (0..FIGURES.len()).map(|at| {
            let [low, high] = self.logged.map(|logged| self.printed[at] - logged[at]);
            if low - high < 1.0 { format!("{low:.1}") } else { format!("{high:.1}..{low:.1}") }
        });
        let verdict = match self.point.verdict.valid {
            true => "VALID".to_owned(),
            false => {
                let fatal = self.point.verdict.reasons.iter().filter(|reason| reason.fatal);
                fatal.map(|reason| reason.code.as_str()).collect::<Vec<_>>().join(",")
            }
        };
        let off = off.collect::<Vec<_>>().join("\t");
        format!("{:?}\t{}\t{:?}\t{verdict}\t{off}", self.law, self.rate, self.disturbance)
    }

    fn is_like(&self, other: &Self) -> bool {
        format!("{:?}{}", self.law, self.rate) == format!("{:?}{}", other.law, other.rate)
    }

    /// Whether a remark names the mean or p99.9.
    fn is_marked(&self, at: usize) -> bool {
        let remark = self.point.verdict.reasons.iter().find(|reason| reason.code == FIGURES_LATE);
        remark.is_some_and(|remark| remark.text.contains(&format!("{} ", FIGURES[at])))
    }

    /// The first figure without a mark that is off by too much, given the way there and back.
    fn wrong(&self, way_us: f64) -> Option<&'static str> {
        let beyond = |at: &usize| {
            let (seen, [low, high]) = (self.printed[*at] - way_us, self.logged.map(|logged| logged[*at]));
            let is_off = seen < low - US_MAX - SHARE_MAX * low || seen > high + US_MAX + SHARE_MAX * high;
            is_off && !self.is_marked(*at)
        };
        (0..FIGURES.len()).find(beyond).map(|at| FIGURES[at])
    }
}

/// Prints what came of it; how many levels were VALID and wrong.
fn summary(levels: &[Level]) -> usize {
    let (mut counts, mut wrong_and_valid) = (HashMap::<_, [usize; 4]>::new(), 0);
    println!();
    for level in levels {
        let mut ways: Vec<f64> = levels
            .iter()
            .filter(|other| other.disturbance == Disturbance::None && other.is_like(level))
            .map(|other| other.printed[1] - other.logged[0][1])
            .collect();
        ways.sort_by(f64::total_cmp);
        let way_us = ways[ways.len() / 2];
        let (valid, wrong) = (level.point.verdict.valid, level.wrong(way_us));
        let at = 2 * usize::from(!valid) + usize::from(wrong.is_some());
        counts.entry(format!("{:?}", level.disturbance)).or_default()[at] += 1;
        if let (true, Some(figure)) = (valid, wrong) {
            wrong_and_valid += 1;
            println!("VALID and wrong in its {figure} (way there and back {way_us:.1} us): {}", level.line());
        }
    }
    println!("\ndisturbance\tVALID, right\tVALID, wrong\tINVALID, right\tINVALID, wrong");
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort();
    for (disturbance, [a, b, c, d]) in counts {
        println!("{disturbance}\t{a}\t{b}\t{c}\t{d}");
    }
    wrong_and_valid
}

fn level(law: Law, rate: u64, disturbance: Disturbance, seed: u64) -> anyhow::Result<Level> {
    let lose_one_in = if let Disturbance::Lost(one_in) = disturbance { one_in } else { u64::MAX };
    let relay = Relay::start(law, lose_one_in, seed)?;
    let busy = if disturbance == Disturbance::Busy { Some(Busy::start()?) } else { None };
    let clock = Clock::new();
    let url = format!("nfs://{}/?proto=udp&mountport={}", relay.addr, relay.addr.port());
    let Target::Nfs(target) = url.parse::<Target>().map_err(|error| anyhow!("{url}: {error}"))? else {
        return Err(anyhow!("{url} is no NFS target"));
    };
    let inner = nfs::client::connect(&target, &ClientOptions::default(), clock.clone())?;
    relay.log.lock().expect("nothing panics with it").clear();
    let mut transport = HeldUp { inner, clock: clock.clone(), begun: clock.now(), disturbance, requests: 0 };
    let config = FstressConfig {
        workload: Workload::builtin("null").context("the NULL workload is built in")?,
        load: Load::Sweep(vec![rate as f64]),
        arrivals: Arrivals::Uniform,
        warm: WARM,
        measure: MEASURE,
        drain: DRAIN,
        wait: Default::default(),
        files: FileCount::Scaled,
        seed,
        keep: Keep::Remove,
        set_name: "crumb-valid-means-right".to_owned(),
        build_in_flight: 8,
        raw: None,
    };
    let meter = MachineMeter::start(MeterScope::of_threads(2));
    let outcome = fstress::run(&config, &mut transport, &clock, &AtomicBool::new(false), &mut |_| {});
    let machine = meter.stop();
    drop(busy);
    let mut point =
        outcome.points.into_iter().next().ok_or_else(|| anyhow!("no level: {}", outcome.verdict))?;
    machine.judge(&mut point.verdict);
    let log = relay.log.lock().expect("nothing panics with it").clone();
    let [warm, measure] = [WARM, MEASURE].map(|span| (span.as_secs_f64() * rate as f64) as usize);
    // A late level is measured again, and its figures are those of the second time.
    let earlier =
        if point.verdict.has(MEASURED_AGAIN) { log.len().saturating_sub(warm + measure) } else { 0 };
    // Which request was the first that counted is known but for one: the windows beside it are right as well.
    let windows: Vec<&[Delay]> = (earlier + warm.saturating_sub(1)..=earlier + warm + 1)
        .map(|begin| &log[begin.min(log.len())..(begin + measure).min(log.len())])
        .collect();
    if windows.iter().any(|window| window.is_empty()) {
        return Err(anyhow!("the relay saw no requests"));
    }
    let of = point.latency_us;
    Ok(Level {
        law,
        rate,
        disturbance,
        printed: [of.mean, of.p50, of.p90, of.p99, of.p999],
        logged: [
            extremes(
                windows.iter().map(|window| figures(window.iter().map(|delay| delay.earliest))),
                f64::min,
            ),
            extremes(windows.iter().map(|window| figures(window.iter().map(|delay| delay.latest))), f64::max),
        ],
        point,
    })
}

/// The least or the greatest of each figure.
fn extremes(of: impl Iterator<Item = [f64; 5]>, pick: fn(f64, f64) -> f64) -> [f64; 5] {
    of.reduce(|a, b| std::array::from_fn(|at| pick(a[at], b[at]))).expect("there are windows")
}

/// [`FIGURES`] of some delays, in microseconds.
fn figures(delays: impl Iterator<Item = Duration>) -> [f64; 5] {
    let mut us: Vec<f64> = delays.map(|delay| delay.as_secs_f64() * 1e6).collect();
    us.sort_by(f64::total_cmp);
    let rank = |quantile: f64| us[((quantile * us.len() as f64).ceil() as usize).clamp(1, us.len()) - 1];
    [us.iter().sum::<f64>() / us.len() as f64, rank(0.5), rank(0.9), rank(0.99), rank(0.999)]
}

/// How long the relay kept a request, from its arrival to a moment before its reply left, and to one after.
#[derive(Clone, Copy, Debug)]
struct Delay {
    earliest: Duration,
    latest: Duration,
}

/// A server of known delays.
struct Relay {
    addr: SocketAddr,
    /// Delays of the requests, in the order in which they first came.
    log: Arc<Mutex<Vec<Delay>>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Relay {
    fn start(law: Law, lose_one_in: u64, seed: u64) -> anyhow::Result<Self> {
        let server =
            serve_null(ServerOptions { listen: ([127, 0, 0, 1], 0).into(), ..ServerOptions::default() })?;
        let front = UdpSocket::bind("127.0.0.1:0").context("a socket for the relay")?;
        front.set_nonblocking(true)?;
        stamp_arrivals(&front, true).context("the kernel stamps no arrivals")?;
        let addr = front.local_addr()?;
        let back = UdpSocket::bind("127.0.0.1:0").context("a socket to the responder")?;
        back.connect(server.addr())?;
        back.set_read_timeout(Some(Duration::from_secs(5)))?;
        let (log, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let mut work = Relaying {
            front,
            back,
            law,
            lose_one_in,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            replies: HashMap::new(),
            waiting: BinaryHeap::new(),
            seen: HashMap::new(),
            log: Arc::clone(&log),
        };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("relay".to_owned()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                work.step();
            }
            server.stop();
        })?;
        Ok(Self { addr, log, stop, thread: Some(thread) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic was printed where it happened.
            let _ = thread.join();
        }
    }
}

/// The relay's thread, which spins.
struct Relaying {
    front: UdpSocket,
    back: UdpSocket,
    law: Law,
    lose_one_in: u64,
    random: u64,
    /// Replies by call, both without their XID.
    replies: HashMap<Vec<u8>, Vec<u8>>,
    waiting: BinaryHeap<Reverse<(Instant, Vec<u8>, SocketAddr)>>,
    /// By XID: when it first came, and its place in the log.
    seen: HashMap<[u8; 4], (Instant, usize)>,
    log: Arc<Mutex<Vec<Delay>>>,
}

impl Relaying {
    fn step(&mut self) {
        let mut datagram = [0; 2048];
        // The sender is known by a look ahead; the call with the stamp does not say it.
        if let Ok((_, from)) = self.front.peek_from(&mut datagram)
            && let Ok(received) = receive_stamped(&self.front, &mut datagram)
        {
            let came = Instant::now() - received.waited.unwrap_or_default();
            self.take(&datagram[..received.bytes], from, came);
        }
        while self.waiting.peek().is_some_and(|first| first.0.0 <= Instant::now()) {
            let Some(Reverse((_, reply, to))) = self.waiting.pop() else { break };
            let before = Instant::now();
            // One that is lost is asked for again.
            let _ = self.front.send_to(&reply, to);
            let after = Instant::now();
            if let Some((came, place)) = self.seen.remove(&reply[..4])
                && let Some(delay) = self.log.lock().expect("nothing panics with it").get_mut(place)
            {
                *delay = Delay { earliest: before - came, latest: after - came };
            }
        }
    }

    fn take(&mut self, call: &[u8], from: SocketAddr, now: Instant) {
        let Some((xid, rest)) = call.split_first_chunk::<4>() else { return };
        if !self.seen.contains_key(xid) {
            let mut log = self.log.lock().expect("nothing panics with it");
            // What is never answered took the longest.
            log.push(Delay { earliest: DRAIN, latest: DRAIN });
            let number = log.len() as u64;
            self.seen.insert(*xid, (now, log.len() - 1));
            if number.is_multiple_of(self.lose_one_in) {
                return;
            }
        }
        if !self.replies.contains_key(rest) {
            let mut reply = [0; 2048];
            if self.back.send(call).is_err() {
                return;
            }
            let Ok(bytes) = self.back.recv(&mut reply) else { return };
            self.replies.insert(rest.to_vec(), reply[4..bytes].to_vec());
        }
        let reply = [xid.as_slice(), &self.replies[rest]].concat();
        let delay = self.delay();
        self.waiting.push(Reverse((now + delay, reply, from)));
    }

    fn delay(&mut self) -> Duration {
        // Marsaglia's xorshift: good enough for delays, which are logged anyway.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let uniform = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        match self.law {
            Law::Constant(delay) => delay,
            Law::Exponential(mean) => mean.mul_f64(-(1.0 - uniform).ln()),
        }
    }
}

/// A process that uses a CPU while this lives.
struct Busy(std::process::Child);

impl Busy {
    fn start() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?;
        let child = std::process::Command::new(program).arg(BUSY).spawn().context("a busy process")?;
        Ok(Self(child))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // One that has ended already is no longer busy.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A transport under a generator that is held up.
struct HeldUp {
    inner: Box<dyn Transport>,
    clock: Clock,
    begun: quanta::Instant,
    disturbance: Disturbance,
    requests: u64,
}

impl HeldUp {
    /// Stands still to the end of a pause, if there is one.
    fn pause(&self) {
        let Disturbance::Pauses(length) = self.disturbance else { return };
        let into = (self.clock.now() - self.begun).as_micros() % 1_000_000;
        if into < length.as_micros() {
            std::thread::sleep(length - Duration::from_micros(into as u64));
        }
    }
}

impl Transport for HeldUp {
    fn submit(&mut self, ticket: Ticket, request: &Request<'_>) -> Result<(), SubmitError> {
        self.pause();
        self.requests += 1;
        if let Disturbance::Sends(later) = self.disturbance
            && self.requests.is_multiple_of(100)
        {
            let until = self.clock.now() + later;
            while self.clock.now() < until {
                std::hint::spin_loop();
            }
        }
        self.inner.submit(ticket, request)
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        self.inner.flush()
    }

    fn poll(
        &mut self,
        until: Option<quanta::Instant>,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> Result<usize, TransportError> {
        self.pause();
        self.inner.poll(until, deliver)
    }

    fn stamp_arrivals(&mut self, wanted: bool) {
        self.inner.stamp_arrivals(wanted);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn root(&self) -> HandleRef<'_> {
        self.inner.root()
    }

    fn io_bytes_max(&self) -> u32 {
        self.inner.io_bytes_max()
    }

    fn counters(&self) -> TransportCounters {
        self.inner.counters()
    }
}
