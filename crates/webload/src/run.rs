//! A run: what is asked of whom, by how many generators, and what comes of it.
//!
//! `again` measures a level again when the generator was late, `limits` checks its settings, `config` writes them into the record, `through` is the way to the
//! server.

mod again;
pub(super) mod config;
pub(super) mod limits;
pub(super) mod through;

use std::net::{SocketAddr, TcpStream};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use harness::open_loop::{Wait, WaitChoice};
use measure::{
    CpuMeter, Curve, EndedThreads, LoadPoint, MachineLog, MachineMeter, MeterScope, Phase as PhaseRecord,
    Verdict,
};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::Serialize;

use self::config::Fields;
use crate::error::WebloadError;
use crate::generator::{Counted, Generator};
use crate::plan::phases::Phase;
use crate::plan::{Plan, Share};
use crate::results::curves::Moments;
use crate::results::part::Part;
use crate::results::tally::Tally;

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Whom the robots connect to: proxy or server.
    pub peer: SocketAddr,
    /// Whether requests carry whole URLs, as a forward proxy wants them.
    pub forward: bool,
    /// Host and port that requests name: the origin's for a forward proxy, the server's own otherwise.
    pub authority: String,
}

impl Route {
    pub(crate) fn prefix(&self) -> String {
        if self.forward { format!("http://{}", self.authority) } else { String::new() }
    }
}

/// Which connections requests travel on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// Each robot has its own, as many as it needs.
    Robots {
        /// How many.
        robots: u32,
        /// Requests a connection carries follow Zipf's law up to this; no end when none.
        requests_zipf: Option<u32>,
        /// A connection at rest is closed after this.
        idle_timeout: Duration,
    },
    /// All requests share this many connections; a request that finds none free waits.
    Shared {
        /// How many.
        connections: u32,
    },
}

/// A run; as JSON the fields of a record's configuration.
#[derive(Clone, Debug, Serialize)]
#[serde(into = "Fields")]
pub struct WebloadConfig {
    /// What is requested.
    pub plan: Plan,
    /// When.
    pub phases: Vec<Phase>,
    /// From which proxy or server.
    pub route: Route,
    /// On which connections.
    pub pool: Pool,
    /// Generators, one a core.
    pub threads: NonZeroUsize,
    /// A request is given up after this.
    pub timeout: Duration,
    /// How long to wait for replies after the last request.
    pub drain: Duration,
    /// How a generator waits for the moment of the next request.
    pub wait: Wait,
    /// Of how many replies one has its bytes compared; of the others only the length.
    pub check_one_in: NonZeroU32,
    /// Same seed, same requests.
    pub seed: u64,
    /// The proxy's process, if it runs on this machine and the record should hold its use of CPU and disk.
    pub watch: Option<u32>,
}

/// How far the phases of a run have come.
#[derive(Clone, Copy, Debug)]
pub struct PhaseProgress {
    /// Name of the phase under way.
    pub phase: &'static str,
    /// Which one, from 1.
    pub number: u32,
    /// Of how many.
    pub of: u32,
    /// How far it has come, 0 to 1.
    pub done: f64,
    /// Until the last one ends; none where that is no matter of time.
    pub run_left: Option<Duration>,
}

/// The state of a run, reported a few times a second.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// The phase under way.
    pub progress: PhaseProgress,
    /// Since the begin.
    pub elapsed: Duration,
    /// Requests due, a second, since the last look.
    pub offered_per_sec: f64,
    /// Good replies a second.
    pub achieved_per_sec: f64,
    /// Mean response time since the last look.
    pub response_mean: Duration,
    /// Median response time since the last look.
    pub p50: Duration,
    /// 99th percentile of the response time since the last look.
    pub p99: Duration,
    /// 99th percentile of how late requests were sent since the last look.
    pub late_p99: Duration,
    /// Share of good replies that came from a cache, 0 to 1.
    pub hit_share: f64,
    /// Requests sent and not answered yet.
    pub in_flight: u64,
    /// Requests that ended badly, since the begin.
    pub failed: u64,
}

/// What a run reports while it runs.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event {
    /// How the generators wait between requests, chosen as the first phases end.
    Waits(WaitChoice),
    /// The state of the run.
    Live(Live),
}

/// What a record says of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The phases that are load points.
    pub points: Vec<LoadPoint>,
    /// All phases.
    pub phases: Vec<PhaseRecord>,
    /// Over the time.
    pub curves: Vec<Curve>,
    /// The flat list of figures.
    pub metrics: std::collections::BTreeMap<String, f64>,
    /// Whether to believe it.
    pub verdict: Verdict,
    /// False when the user ended it.
    pub complete: bool,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs it to its end, or until stopped. `tell` is called a few times a second and holds no generator up.
///
/// # Errors
/// When a setting cannot be, the peer is not there, or the machine gives no sockets or threads.
pub fn run(
    config: &WebloadConfig,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Result<Part, WebloadError> {
    config.check()?;
    let address = config.route.peer;
    reach(address)?;
    raise_file_limit();
    let ended = EndedThreads::default();
    let scope = MeterScope {
        ended: ended.clone(),
        servers: vec![address],
        ..MeterScope::of_threads(config.threads.get())
    };
    let meter = MachineMeter::start(scope);
    let cpu = CpuMeter::start();
    let begin = Instant::now();
    let threads = config.threads.get() as u64;
    let (events, heard) = mpsc::sync_channel::<Event>(64);
    let counted = std::thread::scope(|scope| {
        let mut generators = Vec::new();
        for number in 0..threads {
            let share = Share { number, of: threads, seed: config.seed };
            let events = (number == 0).then(|| events.clone());
            let ended = &ended;
            let work = move || {
                let _measuring = ended.measuring_thread();
                // A full channel drops a line of progress and never holds up the generator.
                let mut tell = |event: Event| {
                    if let Some(events) = &events {
                        let _ = events.try_send(event);
                    }
                };
                Generator::new(config, share, begin)?.run(stop, &mut tell)
            };
            let thread = std::thread::Builder::new().name(format!("webload-{number}"));
            generators
                .push(thread.spawn_scoped(scope, work).map_err(WebloadError::setup("a generator's thread"))?);
        }
        drop(events);
        for event in heard {
            tell(event);
        }
        let mut counted: Vec<Counted> = Vec::new();
        for generator in generators {
            counted.push(generator.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(counted)
    })?;
    let mut machine = MachineLog::default();
    machine.push("the run", meter.stop());
    let mut whole = Part {
        machine,
        measured_again: None,
        waited: counted.first().and_then(|counted| counted.waited),
        complete: counted.iter().all(|counted| !counted.stopped),
        tallies: vec![Tally::default(); config.phases.len()],
        moments: Moments::default(),
        cpu: cpu.used(),
    };
    for counted in counted {
        whole.tallies.iter_mut().zip(&counted.tallies).for_each(|(sum, tally)| sum.merge(tally));
        whole.moments.merge(counted.moments);
    }
    Ok(whole)
}

/// Finds out whether something listens there.
fn reach(address: SocketAddr) -> Result<(), WebloadError> {
    TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)
        .map(drop)
        .map_err(|source| WebloadError::Unreachable { address, source })
}

/// Robots have thousands of connections; the usual soft limit is 1024.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}
