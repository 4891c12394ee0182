//! Flags of `crumb run webload`, and the settings that they ask for.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use webload::{Authority, Peer, Route, Through, WebloadConfig};

use super::workload::{Traffic, WorkloadArgs};
use crate::addresses::listen_address;
use crate::cpus::CpuList;
use crate::outcome::OutputArgs;
use crate::quantities::{count, count_in, time};
use crate::series::SeriesArgs;
use crate::verbs::run::SEED_DEFAULT;
use crate::verbs::serve_origin::Manner;
use crate::waiting::WaitArgs;

/// Measure a caching proxy: rate, response time, hit ratio, and whether each reply is right.
///
/// Simulated clients (robots) send requests on schedule, whatever the replies do. Response times count from the moment a request was
/// sent, and the record says how late the generator sent. The run starts its own origin unless --origin names one. It compares every
/// reply with the content that its URL and version must give.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct WebloadArgs {
    /// Forward proxy to measure, such as http://127.0.0.1:3128
    #[arg(long, value_name = "URL", conflicts_with = "target")]
    proxy: Option<String>,

    /// Reverse proxy or server to measure, such as http://127.0.0.1:8080; it must know the origin (see --origin-listen)
    #[arg(long, value_name = "URL")]
    target: Option<String>,

    /// Send requests to the origin itself, without a proxy
    #[arg(long, conflicts_with_all = ["proxy", "target", "vs"])]
    direct: bool,

    /// Running origin (`crumb serve origin`), at the address where the proxy reaches it, such as 10.0.0.2:8008
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "origin_listen")]
    pub(super) origin: Option<Authority>,

    /// Address of the run's own origin; port 0 takes a free one, and so a new set of URLs each time
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", value_parser = listen_address)]
    pub(super) origin_listen: SocketAddr,

    #[command(flatten)]
    pub(super) workload: WorkloadArgs,

    /// Generator threads, one per core, up to 256
    #[arg(long, default_value = "1", value_name = "N", value_parser = count_in::<NonZeroUsize>(THREADS))]
    pub(super) threads: NonZeroUsize,

    /// Run the generators on these processors only, such as 1 or 2-3
    #[arg(long, value_name = "CPUS")]
    pub(super) pin: Option<CpuList>,

    #[command(flatten)]
    pub(super) wait: WaitArgs,

    /// Time after which a request without a complete reply fails
    #[arg(long, default_value = "60s", value_parser = time, value_name = "TIME")]
    pub(super) timeout: Duration,

    /// Compare every byte of one reply in N, and only the length of the others
    #[arg(long, default_value = "1", value_name = "N", value_parser = count::<NonZeroU32>)]
    pub(super) check_one_in: NonZeroU32,

    /// Seed of all random choices; the same seed gives the same requests
    #[arg(long, default_value_t = u64::from(SEED_DEFAULT), value_name = "N", value_parser = count::<u64>)]
    pub(super) seed: u64,

    /// Report CPU time, bytes written and memory of this process, such as a proxy on this machine
    #[arg(long, value_name = "PID", conflicts_with = "vs")]
    pub(super) watch: Option<u32>,

    #[command(flatten)]
    pub(super) manner: Manner,

    /// Event loops of the run's own origin; up to 256
    #[arg(long, default_value = "1", value_name = "N", value_parser = count_in::<NonZeroUsize>(THREADS), help_heading = "Origin")]
    pub(super) origin_threads: NonZeroUsize,

    /// Run the origin on these processors only
    #[arg(long, value_name = "CPUS", help_heading = "Origin")]
    pub(super) origin_pin: Option<CpuList>,

    #[command(flatten)]
    pub(super) series: SeriesArgs,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  A forward proxy under PolyMix-3, 60 times shorter than published:
    crumb run webload --proxy http://127.0.0.1:3128 --peak 300 --cache-size 1GB --time-scale 60
  How many hits per second from its disk, with 150,000 objects of 10.7 KB requested by Zipf's law?
    crumb run webload --proxy http://127.0.0.1:3128 --workload hits --connections 64
  What latency do hits have at 5,000 requests per second?
    crumb run webload --proxy http://127.0.0.1:3128 --workload hits --rate 5000
  A reverse proxy that has http://127.0.0.1:8008 as its origin:
    crumb run webload --target http://127.0.0.1:8080 --origin-listen 127.0.0.1:8008 --workload hits
  Which of two proxies is faster? Runs in turns, with a confidence interval:
    crumb run webload --proxy http://127.0.0.1:3128 --vs http://127.0.0.1:3129 --repeat 6 --workload hits
  A day of a real server in ten minutes:
    crumb run webload --proxy http://127.0.0.1:3128 --workload trace --trace access.log --time-scale 144

Ctrl-C ends the run early: what was measured is kept.
Exit codes: 0 fine, 1 the run failed, 2 wrong usage, 3 done but the verdict is INVALID, 130 interrupted.";

const THREADS: RangeInclusive<u64> = 1..=webload::THREADS_MAX as u64;
/// How long to wait for the last replies.
const DRAIN_MAX: Duration = Duration::from_secs(15);

impl WebloadArgs {
    /// All sides, the first one what the command line says by itself.
    pub(super) fn through(&self) -> anyhow::Result<Vec<Through>> {
        let forward = self.target.is_none();
        let side = |url: &str| {
            let peer: Peer = url.parse()?;
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

    /// The settings of a run that goes this way.
    pub(super) fn config(&self, traffic: &Traffic, route: Route) -> WebloadConfig {
        WebloadConfig {
            plan: traffic.plan.clone(),
            phases: traffic.phases.clone(),
            route,
            pool: traffic.pool,
            threads: self.threads,
            timeout: self.timeout,
            drain: self.timeout.min(DRAIN_MAX),
            wait: self.wait.wait(),
            check_one_in: self.check_one_in,
            seed: self.seed,
            watch: self.watch,
        }
    }
}
