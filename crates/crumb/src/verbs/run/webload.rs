//! `crumb run webload`: HTTP traffic through a caching proxy, every reply checked.

mod figures;
mod workload;

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use files::Target;
use harness::open_loop::chosen_waiting;
use measure::RunRecord;
use webload::{Event, Origin, Route, WebloadConfig};

use crate::context::Context;
use crate::cpus::CpuList;
use crate::exit::{BadUsage, ExitStatus};
use crate::outcome::{Begun, OutputArgs, Run};
use crate::pipeline::with_chosen;
use crate::progress::Progress;
use crate::series::{SeriesArgs, Sides, Turn, Variant};
use crate::verbs::serve_origin::Manner;
use crate::waiting::WaitArgs;
use crate::{signals, tables};
use workload::{Traffic, WorkloadArgs};

/// Send HTTP traffic through a caching proxy and see how fast it answers, what it hits, and whether it tells the truth.
///
/// Robots ask as the schedule says, whatever the replies do, and response times count from the scheduled moment. The
/// origin behind the proxy is started by this program unless --origin names one. Every reply is compared with what
/// its URL and version must give.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct WebloadArgs {
    /// A forward proxy, such as http://127.0.0.1:3128
    #[arg(long, value_name = "URL", conflicts_with = "target")]
    proxy: Option<String>,

    /// A reverse proxy or server, such as http://127.0.0.1:8080; it must know the origin (see --origin-listen)
    #[arg(long, value_name = "URL")]
    target: Option<String>,

    /// Ask the origin itself, nothing between
    #[arg(long, conflicts_with_all = ["proxy", "target", "vs"])]
    direct: bool,

    /// An origin that runs already (`crumb serve origin`); as the proxy reaches it, such as 10.0.0.2:8008
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "origin_listen", value_parser = host_and_port)]
    origin: Option<String>,

    /// Where the run's own origin listens; port 0 takes a free one, and so a new set of URLs each time
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    origin_listen: SocketAddr,

    #[command(flatten)]
    workload: WorkloadArgs,

    /// Generators, one a core
    #[arg(long, default_value = "1", value_name = "N")]
    threads: NonZeroUsize,

    /// Run the generators on these processors only, such as 1 or 2-3
    #[arg(long, value_name = "CPUS")]
    pin: Option<CpuList>,

    #[command(flatten)]
    wait: WaitArgs,

    /// A request without a whole reply fails after this
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration, value_name = "TIME")]
    timeout: Duration,

    /// Compare the bytes of one reply in N, of the others only the length
    #[arg(long, default_value = "1", value_name = "N")]
    check_one_in: NonZeroU32,

    /// Same seed, same requests
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// The proxy's process, when it is on this machine: its CPU, bytes written and memory are told too
    #[arg(long, value_name = "PID", conflicts_with = "vs")]
    watch: Option<u32>,

    #[command(flatten)]
    manner: Manner,

    /// Event loops of the run's own origin
    #[arg(long, default_value = "1", value_name = "N", help_heading = "Origin")]
    origin_threads: NonZeroUsize,

    /// Run the origin on these processors only
    #[arg(long, value_name = "CPUS", help_heading = "Origin")]
    origin_pin: Option<CpuList>,

    #[command(flatten)]
    series: SeriesArgs,

    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  A forward proxy under PolyMix-3, everything 60 times shorter than published:
    crumb run webload --proxy http://127.0.0.1:3128 --peak 300 --cache-size 1GB --time-scale 60
  How many hits a second from its disk, 150,000 objects of 10.7 KB asked for by Zipf's law?
    crumb run webload --proxy http://127.0.0.1:3128 --workload hits --connections 64
  How late are hits at 5,000 requests a second?
    crumb run webload --proxy http://127.0.0.1:3128 --workload hits --rate 5000
  A reverse proxy that has http://127.0.0.1:8008 as its origin:
    crumb run webload --target http://127.0.0.1:8080 --origin-listen 127.0.0.1:8008 --workload hits
  Two proxies, in turns, with the answer and how sure it is:
    crumb run webload --proxy http://127.0.0.1:3128 --vs http://127.0.0.1:3129 --repeat 6 --workload hits
  A day of a real server in ten minutes:
    crumb run webload --proxy http://127.0.0.1:3128 --workload trace --trace access.log --time-scale 144

Ctrl-C ends the run early: what was measured is kept.
Exit status: 0 fine, 1 the run failed, 2 wrong usage, 3 done but the verdict is INVALID, 130 interrupted.";

/// A URL's authority. A whole URL is refused: put into the targets of requests, every server would answer 400.
fn host_and_port(text: &str) -> Result<String, String> {
    let is_host = |host: &str| {
        let is_ipv6 = host.starts_with('[') && host.ends_with(']');
        !host.is_empty()
            && !host.contains(|letter: char| "/@?#".contains(letter) || letter.is_whitespace())
            && (is_ipv6 || !host.contains(':'))
    };
    match text.rsplit_once(':') {
        Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Ok(text.to_owned())
        }
        _ => Err("expected HOST:PORT without http://, such as 10.0.0.2:8008".to_owned()),
    }
}

/// Who stands between robots and origin.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Through {
    /// Nobody.
    Nothing,
    /// A forward proxy.
    Proxy(Peer),
    /// A reverse proxy.
    Server(Peer),
}

/// A proxy or server by its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Peer {
    url: String,
    authority: String,
    address: SocketAddr,
}

/// Runs the verb.
pub fn run(args: WebloadArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let usage = |error: anyhow::Error| error.context(BadUsage);
    let traffic = args.workload.traffic().map_err(usage)?;
    let sides = args.through().map_err(usage)?;
    let stop = signals::stop_flag_of(context)?;
    // A series knows its sides by number; what they are is known here alone.
    let variants = sides.iter().map(|through| Variant {
        target: Target::Null,
        settings: Vec::new(),
        mount: None,
        label: (sides.len() > 1).then(|| format!("{} through {}", traffic.name(), through.name())),
        metrics: Vec::new(),
    });
    let variants = Sides { variants: variants.collect(), seed: args.seed };
    let measure_one =
        |turn: Turn<'_>| args.measure_one(turn.label, &sides[turn.side], &traffic, context, &stop);
    args.series.run_sides(&variants, &args.output, context, &stop, measure_one, |record| {
        let mut text = figures::phases(record) + &figures::curves_hint(record) + &tables::load_points(record);
        if let Some(point) = tables::telling_point(record) {
            text.push_str(&tables::operations(point));
        }
        text + &tables::summary(record)
    })
}

impl WebloadArgs {
    /// All sides, the first one what the command line says by itself.
    fn through(&self) -> anyhow::Result<Vec<Through>> {
        let forward = self.target.is_none();
        let side = |url: &str| {
            let peer = Peer::parse(url)?;
            anyhow::Ok(if forward { Through::Proxy(peer) } else { Through::Server(peer) })
        };
        let first = match self.proxy.as_deref().or(self.target.as_deref()) {
            Some(url) => side(url)?,
            None if !self.series.vs.is_empty() => {
                bail!("--vs compares proxies: name the first one with --proxy or --target")
            }
            None if self.direct => Through::Nothing,
            None => bail!("name what to ask: --proxy URL, --target URL, or --direct for the origin itself"),
        };
        let rivals = self.series.vs.iter().map(|url| side(url).with_context(|| format!("--vs {url}")));
        std::iter::once(Ok(first)).chain(rivals).collect()
    }

    fn measure_one(
        &self,
        label: Option<String>,
        through: &Through,
        traffic: &Traffic,
        context: &Context,
        stop: &Arc<AtomicBool>,
    ) -> anyhow::Result<Run> {
        let begun = Begun::on("webload", through.name(), None);
        let own = self.own_origin(traffic)?;
        let authority = match (&own, &self.origin) {
            (Some(origin), _) => origin.address().to_string(),
            (None, Some(named)) => named.clone(),
            (None, None) => bail!("no origin"),
        };
        let config = WebloadConfig {
            plan: traffic.plan.clone(),
            phases: traffic.phases.clone(),
            route: through.route(&authority)?,
            pool: traffic.pool,
            threads: self.threads,
            timeout: self.timeout,
            drain: self.timeout.min(DRAIN_MAX),
            wait: self.wait.wait(),
            check_one_in: self.check_one_in,
            seed: self.seed,
            watch: self.watch,
        };
        if !context.quiet {
            eprintln!("{} {}; origin {authority}, seed {}", traffic.name(), through.words(), self.seed);
            eprintln!("{}; Ctrl-C ends it with what it has", traffic.takes());
        }
        let mut progress = Progress::new(context.quiet);
        let done = std::thread::scope(|scope| {
            let drive = || {
                if let Some(cpus) = &self.pin {
                    cpus.pin().map_err(|error| error.context(BadUsage))?;
                }
                let mut tell = |event| match event {
                    Event::Live(live) => figures::show(&mut progress, &live),
                    Event::Waits(choice) => progress.say(&choice.to_string()),
                    _ => {}
                };
                anyhow::Ok(webload::run(&config, stop, &mut tell)?)
            };
            // A thread of its own, so that what it is pinned to is not for the rest of this program.
            let runner = std::thread::Builder::new().name("webload".to_owned()).spawn_scoped(scope, drive);
            let runner = runner.context("cannot start the run's thread")?;
            runner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        progress.finish();
        let outcome = done?;
        let served = own.map(Origin::stop);
        let config = self.config_json(traffic, through, &authority, served.is_some());
        let record = RunRecord {
            config: with_chosen(config, chosen_waiting(outcome.waited)),
            seed: self.seed,
            complete: outcome.complete,
            points: outcome.points,
            phases: outcome.phases,
            curves: outcome.curves,
            metrics: outcome.metrics,
            headline: traffic.headline().map(str::to_owned).collect(),
            verdict: outcome.verdict,
            ..begun
                .record(context, label.unwrap_or_else(|| format!("{} {}", traffic.name(), through.words())))
        };
        let any_measured = !record.phases.is_empty();
        Ok(Run { record, any_measured, error: None, interrupted: stop.load(Ordering::Relaxed) })
    }

    /// The origin that this run needs to start itself.
    fn own_origin(&self, traffic: &Traffic) -> anyhow::Result<Option<Origin>> {
        if self.origin.is_some() {
            return Ok(None);
        }
        let (think, requests_zipf) = traffic.origin_manner();
        let options =
            self.manner.options(self.origin_listen, self.origin_threads, think, requests_zipf, self.seed);
        let start = || {
            if let Some(cpus) = &self.origin_pin {
                cpus.pin().map_err(|error| error.context(BadUsage))?;
            }
            anyhow::Ok(Origin::start(&options)?)
        };
        // Its threads stay where the thread that starts them is.
        let started = std::thread::scope(|scope| scope.spawn(start).join());
        started.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(Some)
    }

    fn config_json(
        &self,
        traffic: &Traffic,
        through: &Through,
        authority: &str,
        own_origin: bool,
    ) -> serde_json::Value {
        let think = self.manner.think.unwrap_or(traffic.origin_manner().0);
        serde_json::json!({
            "workload": traffic.name(),
            "parameters": traffic.json(),
            "through": through.words(),
            "origin": authority,
            "own_origin": own_origin,
            "think_mean_s": think.mean.as_secs_f64(),
            "think_sd_s": think.sd.as_secs_f64(),
            "chunked": self.manner.chunked,
            "threads": self.threads,
            "timeout_s": self.timeout.as_secs_f64(),
            "check_one_in": self.check_one_in,
            "pinned_to_cpus": self.pin.as_ref().map(ToString::to_string),
            "origin_pinned_to_cpus": self.origin_pin.as_ref().map(ToString::to_string),
        })
    }
}

/// How long to wait for the last replies.
const DRAIN_MAX: Duration = Duration::from_secs(15);

impl Through {
    fn name(&self) -> String {
        match self {
            Self::Nothing => "origin".to_owned(),
            Self::Proxy(peer) | Self::Server(peer) => peer.url.clone(),
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Nothing => "straight to the origin".to_owned(),
            Self::Proxy(peer) => format!("through proxy {}", peer.url),
            Self::Server(peer) => format!("from {}", peer.url),
        }
    }

    fn route(&self, origin: &str) -> anyhow::Result<Route> {
        Ok(match self {
            Self::Nothing => Route { peer: resolved(origin)?, forward: false, authority: origin.to_owned() },
            Self::Proxy(peer) => Route { peer: peer.address, forward: true, authority: origin.to_owned() },
            Self::Server(peer) => {
                Route { peer: peer.address, forward: false, authority: peer.authority.clone() }
            }
        })
    }
}

impl Peer {
    fn parse(url: &str) -> anyhow::Result<Self> {
        let authority = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
        let authority =
            authority.filter(|rest| !rest.is_empty() && !rest.contains('/')).ok_or_else(|| {
                anyhow!("`{url}`: expected http://HOST:PORT, without a path; only plain HTTP is spoken")
            })?;
        let with_port = if authority.rsplit(']').next().is_some_and(|end| end.contains(':')) {
            authority.to_owned()
        } else {
            format!("{authority}:80")
        };
        Ok(Self { url: url.to_owned(), authority: authority.to_owned(), address: resolved(&with_port)? })
    }
}

fn resolved(authority: &str) -> anyhow::Result<SocketAddr> {
    let mut addresses =
        authority.to_socket_addrs().with_context(|| format!("`{authority}`: expected HOST:PORT"))?;
    addresses.next().ok_or_else(|| anyhow!("`{authority}` has no address"))
}
