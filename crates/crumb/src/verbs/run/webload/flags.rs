//! Flags of `crumb run webload`, and the settings that they ask for.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use webload::{Authority, Peer, Route, Through, WebloadConfig};

use super::workload::{Traffic, WorkloadArgs};
use crate::cpus::CpuList;
use crate::outcome::OutputArgs;
use crate::series::SeriesArgs;
use crate::verbs::serve_origin::Manner;
use crate::waiting::WaitArgs;

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
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "origin_listen")]
    pub(super) origin: Option<Authority>,

    /// Where the run's own origin listens; port 0 takes a free one, and so a new set of URLs each time
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub(super) origin_listen: SocketAddr,

    #[command(flatten)]
    pub(super) workload: WorkloadArgs,

    /// Generators, one a core; up to 256
    #[arg(long, default_value = "1", value_name = "N", value_parser = threads)]
    pub(super) threads: NonZeroUsize,

    /// Run the generators on these processors only, such as 1 or 2-3
    #[arg(long, value_name = "CPUS")]
    pub(super) pin: Option<CpuList>,

    #[command(flatten)]
    pub(super) wait: WaitArgs,

    /// A request without a whole reply fails after this
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(super) timeout: Duration,

    /// Compare the bytes of one reply in N, of the others only the length
    #[arg(long, default_value = "1", value_name = "N")]
    pub(super) check_one_in: NonZeroU32,

    /// Same seed, same requests
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(super) seed: u64,

    /// Report CPU, bytes written and memory of this process too: the proxy's, when it runs on this machine
    #[arg(long, value_name = "PID", conflicts_with = "vs")]
    pub(super) watch: Option<u32>,

    #[command(flatten)]
    pub(super) manner: Manner,

    /// Event loops of the run's own origin; up to 256
    #[arg(long, default_value = "1", value_name = "N", value_parser = threads, help_heading = "Origin")]
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

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let count = text.parse::<NonZeroUsize>().ok().filter(|count| count.get() <= webload::THREADS_MAX);
    count.ok_or_else(|| format!("expected a number of threads from 1 to {}", webload::THREADS_MAX))
}
