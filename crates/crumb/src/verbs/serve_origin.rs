//! `crumb serve origin`: the web server behind the proxy under test.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use report::{bytes_text, count_text, rate_text};
use webload::{Origin, OriginCounters, OriginOptions, ThinkTime, WebloadError};

use crate::addresses::listen_address;
use crate::context::Context;
use crate::cpus::CpuList;
use crate::exit::{BadUsage, ExitStatus};
use crate::output::print;
use crate::progress::Progress;
use crate::quantities::{count, count_in, time};
use crate::signals;

/// Serve the objects that `crumb run webload` requests, to any client
///
/// An object follows from its URL alone: /i/1f3a is an image, /h/7 HTML, /d/7 a download, /o/7 anything else, with
/// sizes, lives and cacheable shares as in PolyMix; /f/2a/s10700 is 10,700 bytes that do not change. Behind the
/// number: /sBYTES sets the size, /pSECONDS how often it changes, /u keeps caches from storing it, /c lets them, and
/// what follows /-/ is ignored. Replies carry Last-Modified, ETag, Expires and Cache-Control; conditional requests are
/// answered with 304.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct OriginArgs {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8008", value_parser = listen_address)]
    listen: SocketAddr,

    /// Allow an address that other machines can reach
    #[arg(long)]
    allow_remote: bool,

    #[command(flatten)]
    manner: Manner,

    /// Event loops, one per core
    #[arg(long, default_value = "1", value_name = "N", value_parser = count::<NonZeroUsize>)]
    threads: NonZeroUsize,

    /// CPUs to run on, such as 2 or 0-3,6 [default: all]
    #[arg(long, value_name = "CPUS")]
    pin: Option<CpuList>,

    /// Show requests per second on the terminal
    #[arg(long)]
    status: bool,
}

/// How an origin answers; the same for one that a run starts for itself.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Origin")]
pub struct Manner {
    /// Think time before each reply: mean, and after a comma the standard deviation, such as 2.5s,1s
    /// [default: none; of PolyMix in a run 2.5s,1s]
    #[arg(long, value_name = "MEAN,SD", value_parser = think)]
    pub think: Option<ThinkTime>,

    /// Send bodies chunked instead of with Content-Length
    #[arg(long)]
    pub chunked: bool,

    /// Close each connection after requests by Zipf's law up to this [default: never; of PolyMix in a run 16]
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(1..=u64::from(u32::MAX)))]
    pub requests_zipf: Option<u32>,

    /// Close a connection that has been idle for this long
    #[arg(long, default_value = "15s", value_parser = time, value_name = "TIME")]
    pub idle_timeout: Duration,
}

const EXAMPLES: &str = "\
Examples:
  crumb serve origin
  curl -i http://127.0.0.1:8008/h/7
  A distant server, to compare a proxy with and without its cache:
    crumb serve origin --think 2.5s,1s
  What a client can do at most, 10.7 KB a reply:
    crumb serve origin --pin 0
    wrk -c 64 http://127.0.0.1:8008/f/2a/s10700

Clients cannot change anything; with --allow-remote other machines can make it send without limit.";

const STATUS_EVERY: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// An error of the library; a setting that cannot be is a wrong flag.
pub fn wrong_or_failed(error: WebloadError) -> anyhow::Error {
    let is_usage = matches!(error, WebloadError::Asked { .. });
    let error = anyhow::Error::from(error);
    if is_usage { error.context(BadUsage) } else { error }
}

/// Runs the verb, until SIGINT or SIGTERM.
pub fn run(args: &OriginArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    if !args.listen.ip().to_canonical().is_loopback() && !args.allow_remote {
        let error = anyhow!(
            "--listen {}: other machines could reach this server; if that is meant, add --allow-remote",
            args.listen
        );
        return Err(error.context(BadUsage));
    }
    if let Some(cpus) = &args.pin {
        cpus.pin().map_err(|error| error.context(BadUsage))?;
    }
    // Before the ready line: a caller that has read it may send a signal.
    let stop = signals::stop_flag()?;
    let options = args.manner.options(args.listen, args.threads, ThinkTime::default(), None, 1);
    let origin = Origin::start(&options).map_err(wrong_or_failed)?;
    let began = Instant::now();
    // Without a reader of the line it serves all the same.
    let announced = print(&format!("serving objects at http://{}/ ; Ctrl-C stops\n", origin.address()));
    let mut status = Progress::new(!args.status || context.quiet || !std::io::stderr().is_terminal());
    let (mut before, mut at) = (origin.counters(), Instant::now());
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_EVERY);
        if at.elapsed() >= STATUS_EVERY {
            let (now, seconds) = (origin.counters(), at.elapsed().as_secs_f64());
            let per_sec = |now: u64, before: u64| (now - before) as f64 / seconds;
            let text = format!(
                "{} requests/s, {}/s out",
                rate_text(per_sec(now.requests, before.requests)),
                bytes_text(per_sec(now.body_bytes, before.body_bytes) as u64)
            );
            status.step(0, 1, text);
            (before, at) = (now, Instant::now());
        }
    }
    status.finish();
    let counters = origin.stop();
    announced?;
    if !context.quiet {
        print(&totals(&counters, began.elapsed()))?;
    }
    Ok(ExitStatus::Fine)
}

impl Manner {
    /// The origin's options; what was not said is as given here.
    pub fn options(
        &self,
        listen: SocketAddr,
        threads: NonZeroUsize,
        think: ThinkTime,
        requests_zipf: Option<u32>,
        seed: u64,
    ) -> OriginOptions {
        OriginOptions {
            listen,
            threads,
            think: self.think.unwrap_or(think),
            chunked: self.chunked,
            requests_zipf: self.requests_zipf.or(requests_zipf),
            idle_timeout: self.idle_timeout,
            seed,
        }
    }
}

fn totals(counters: &OriginCounters, elapsed: Duration) -> String {
    format!(
        "stopped after {:.1} s: {} requests ({} answered with 304, {} refused), {} out, {} connections\n",
        elapsed.as_secs_f64(),
        count_text(counters.requests),
        count_text(counters.not_modified),
        count_text(counters.refused),
        bytes_text(counters.body_bytes),
        count_text(counters.accepted),
    )
}

fn think(text: &str) -> Result<ThinkTime, measure::ValueError> {
    let span = |text: &str| {
        time(text).map_err(|wrong| {
            format!("{wrong}; expected a mean and a deviation such as 2.5s,1s, or one time alone")
        })
    };
    let (mean, sd) = text.split_once(',').unwrap_or((text, "0s"));
    Ok(ThinkTime { mean: span(mean)?, sd: span(sd)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_think_time_is_a_mean_with_or_without_its_deviation() {
        assert_eq!(think("2.5s,1s"), Ok(ThinkTime::POLYMIX));
        let alone = ThinkTime { mean: Duration::from_millis(20), sd: Duration::ZERO };
        assert_eq!(think("20ms"), Ok(alone));
        assert!(think("soon").unwrap_err().to_string().contains("2.5s,1s") && think("-1s").is_err());
    }
}
