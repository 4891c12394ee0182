//! Flags of `crumb run fstress`, and the settings that they ask for.

use std::num::{NonZeroU16, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use clap::builder::ArgPredicate;
use files::{NfsProto, Target};
use fstress::knobs::{self, KnobRange, Setting};
use fstress::{Arrivals, FileCount, FstressConfig, Keep, LatencyBound, Load, Workload};
use measure::RunId;

use crate::cpus::CpuList;
use crate::names::kept_name;
use crate::openers::{TransportOptions, proto};
use crate::outcome::OutputArgs;
use crate::quantities::{count, count_in, number_in, time};
use crate::series::{SeriesArgs, Sides};
use crate::verbs::run::SEED_DEFAULT;
use crate::waiting::WaitArgs;

/// Measure the latency of a file service against offered load (open loop).
///
/// Requests leave on a schedule, whatever the replies do. Latency counts from the moment a request was sent, and the record says how
/// late the generator sent. The file set is created in the target before the first load level, grows with the load, and is removed at
/// the end.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FstressArgs {
    /// nfs://host[:port]/export[?proto=udp|tcp&mountport=N], a directory, a file tree (pack:/path, made by `crumb pack create
    /// --tree`), or `null:` for no storage at all
    pub(super) target: Target,

    /// Workload: a built-in name (`crumb workload list`), a TOML file, or a directory of value:weight files
    #[arg(
        long,
        short,
        default_value = "web-server",
        default_value_if("vary", ArgPredicate::IsPresent, "web-proxy")
    )]
    pub(super) workload: String,

    /// Set a number of the workload, such as memory-hit=0.4 or file-size=16KiB; may be given several times. `crumb workload
    /// knobs` lists them
    #[arg(long, value_name = "KNOB=VALUE")]
    pub(super) set: Vec<Setting>,

    /// Take a first look, done in less than a minute: 2000 files and 4 levels of 5 seconds. Sets defaults only; flags that are
    /// given win
    #[arg(long)]
    pub(super) quick: bool,

    /// Requests a second: 1000 or 20k, or 500,1000,4000, or FROM..TO/STEP, or auto[:FIRST] to find saturation, or max
    /// for a closed loop (see --outstanding). 20,300 could mean 20300 and is refused: write 20300, or '20, 300' for two rates. With
    /// --quick: 500,1000,2000,4000; with --vary: 1000
    #[arg(long, short, default_value = "auto", default_value_ifs = quick_rate(), value_name = "RATES", value_parser = rates)]
    pub(super) rate: String,

    /// Find the highest rate that meets this latency bound, such as p99<20ms; --rate then sets the first rate
    #[arg(long, value_name = "BOUND")]
    pub(super) find_max: Option<LatencyBound>,

    /// Warm-up before each measured interval, such as 30s or 2m; with --quick 1s
    #[arg(long, default_value = "120s", default_value_if("quick", "true", "1s"), value_parser = time, value_name = "TIME")]
    warm: Duration,

    /// Length of each measured interval; with --quick 4s
    #[arg(long, default_value = "240s", default_value_if("quick", "true", "4s"), value_parser = time, value_name = "TIME")]
    measure: Duration,

    /// Arrival process: uniform, poisson, bursty or bursty:N (mean requests per burst)
    #[arg(long, default_value = "uniform", value_name = "PROCESS")]
    arrivals: Arrivals,

    /// Requests kept outstanding with --rate max [default: 64]
    #[arg(long, value_parser = count_in::<u32>(1..=60_000), value_name = "N")]
    outstanding: Option<u32>,

    /// Seed of all random choices; the same seed gives the same operations
    #[arg(long, default_value_t = u64::from(SEED_DEFAULT), value_name = "N", value_parser = count::<u64>)]
    pub(super) seed: u64,

    /// Files in the set, the same at every rate; with --quick 2000 [default: as many as --files-per-op asks for at the rate]
    #[arg(long, value_name = "N", conflicts_with = "files_per_op", default_value_ifs = quick_files(), value_parser = count::<NonZeroU64>)]
    files: Option<NonZeroU64>,

    /// Files for each offered request per second [default: the workload's number]
    #[arg(long, value_name = "N", value_parser = number_in(0.0..=1e9))]
    files_per_op: Option<f64>,

    /// Size of every file, such as 64KiB [default: the workload's distribution]
    #[arg(long, value_name = "SIZE", value_parser = file_size)]
    pub(super) file_size: Option<String>,

    /// Keep the file set under this name for later runs with --reuse
    #[arg(long, value_name = "NAME", conflicts_with = "reuse", value_parser = kept_name)]
    pub(super) keep: Option<String>,

    /// Use the file set that --keep left under this name; create missing files, and keep it
    #[arg(long, value_name = "NAME", value_parser = kept_name, visible_alias = "resume")]
    pub(super) reuse: Option<String>,

    /// Transport protocol, if the target does not name it [default: tcp]
    #[arg(long, value_parser = proto, value_name = "udp|tcp")]
    proto: Option<NfsProto>,

    /// Connections to an NFS server [default: 1]
    #[arg(long, value_name = "N", value_parser = count::<NonZeroU16>)]
    connections: Option<NonZeroU16>,

    /// Worker threads for a directory or a file tree [default: four for each processor, and up to 256 when requests wait]
    #[arg(long, value_name = "N", value_parser = count::<NonZeroUsize>)]
    pub(super) threads: Option<NonZeroUsize>,

    /// Time-out of a UDP request before it is sent again; doubles each time [default: 700ms]
    #[arg(long, value_parser = time, value_name = "TIME")]
    udp_timeout: Option<Duration>,

    /// Retransmissions of a UDP request before it is cancelled [default: 5]
    #[arg(long, value_name = "N", value_parser = count::<u8>)]
    udp_retransmits: Option<u8>,

    /// Longest time without a TCP connection, or without any reply while requests wait, before the run ends
    /// [default: 30s]
    #[arg(long, value_parser = time, value_name = "TIME")]
    reconnect_timeout: Option<Duration>,

    /// Run the generator on these processors only, such as 1 or 2-3
    #[arg(long, value_name = "CPUS")]
    pub(super) pin: Option<CpuList>,

    #[command(flatten)]
    pub(super) wait: WaitArgs,

    /// Write every measured request to RUN-rank-N.csv in this directory: load level, operation, nanoseconds from the start
    /// of the interval until it was due, nanoseconds from sending to reply, outcome
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) raw: Option<PathBuf>,

    /// Measure latency against this number of the workload at one rate: KNOB=FROM..TO/STEP or KNOB=VALUE,VALUE,…, such as
    /// memory-hit=0..1/0.1. Each value is a run; --workload is then web-proxy by default
    #[arg(long, value_name = "KNOB=VALUES", help_heading = "Sensitivity")]
    pub(super) vary: Option<KnobRange>,

    /// With --vary: a line of the figure for each value of this one, such as disk-hit=0,0.5,1
    #[arg(long, value_name = "KNOB=VALUES", requires = "vary", help_heading = "Sensitivity")]
    pub(super) lines: Option<KnobRange>,

    /// With --vary: write every point as CSV to this file, - for standard output
    #[arg(long, value_name = "FILE", requires = "vary", help_heading = "Sensitivity")]
    pub(super) csv: Option<PathBuf>,

    /// With --vary: write the picture as SVG to this file, - for standard output
    #[arg(long, value_name = "FILE", requires = "vary", help_heading = "Sensitivity")]
    pub(super) svg: Option<PathBuf>,

    #[command(flatten)]
    pub(super) series: SeriesArgs,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  A first look, in less than a minute:
    crumb run fstress /mnt/disk --quick
  Where does my filer saturate under web traffic?
    crumb run fstress nfs://filer/vol --workload web-server
  A sweep as in the paper, with its plot:
    crumb run fstress nfs://filer/vol --rate 500..8000/500 --report filer.html
  How much mail can it take with 99% of the requests below 20 ms?
    crumb run fstress nfs://filer/vol --workload mail --find-max 'p99<20ms'
  A quick look at a local disk:
    crumb run fstress /mnt/disk --rate 200..2000/200 --warm 5s --measure 10s
  Every request in a file, for plots of your own:
    crumb run fstress nfs://filer/vol --rate 1000 --measure 1m --raw samples
  How does latency depend on the hit ratios of a web proxy (the paper's figure 9)?
    crumb run fstress nfs://filer/vol --rate 1000 --vary memory-hit=0..1/0.1 --lines disk-hit=0,0.5,1 --report hits.html
  What can the server do at most (closed loop)?
    crumb run fstress nfs://filer/vol --workload sfs97 --rate max --outstanding 64

Ctrl-C ends the run early: what was measured is kept and the file set removed. Each load point is stored as soon as it
is measured, so that a run that is killed keeps those it had.
Exit codes: 0 fine, 1 the run failed, 2 wrong usage, 3 done but the verdict is INVALID, 130 interrupted.";

/// Lengths that no run needs and that arithmetic on clocks does not like.
const SPAN_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// What file numbers of 32 bits leave room for, with as many again for files made in a run.
const FILES_MAX: u64 = 1 << 31;
const OUTSTANDING: u32 = 64;
const UDP_TIMEOUT: Duration = Duration::from_millis(700);
const UDP_RETRANSMITS: u8 = 5;
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const DRAIN: Duration = Duration::from_secs(10);
const DRAIN_QUICK: Duration = Duration::from_secs(3);
const BUILD_IN_FLIGHT: usize = 64;
/// Some servers lose what does not fit their receive buffer.
const BUILD_IN_FLIGHT_UDP: usize = 8;

impl FstressArgs {
    pub(super) fn transport_options(&self) -> TransportOptions {
        TransportOptions {
            connections: self.connections.unwrap_or(NonZeroU16::MIN),
            proto: self.proto,
            udp_timeout: self.udp_timeout.unwrap_or(UDP_TIMEOUT),
            udp_retransmits: self.udp_retransmits.unwrap_or(UDP_RETRANSMITS),
            reconnect_timeout: self.reconnect_timeout.unwrap_or(RECONNECT_TIMEOUT),
            threads: self.threads,
        }
    }

    /// One point of the figure that `--vary` asks for: a run with these settings.
    pub(super) fn of_point(&self, set: Vec<Setting>) -> Self {
        Self { vary: None, lines: None, csv: None, svg: None, set, ..self.clone() }
    }

    /// A flag that changes nothing on any of the sides was meant for something else.
    pub(super) fn flags_without_use(&self, sides: &Sides) -> anyhow::Result<()> {
        let mut targets = sides.variants.iter().map(|variant| &variant.target);
        let any = |is: fn(&Target) -> bool| sides.variants.iter().any(|variant| is(&variant.target));
        let nfs = any(|target| matches!(target, Target::Nfs(_)));
        let local = any(|target| matches!(target, Target::Directory(_) | Target::Pack(_)));
        let udp = targets.any(|target| match target {
            Target::Nfs(nfs) => nfs.proto.or(self.proto) == Some(NfsProto::Udp),
            _ => false,
        });
        let closed = self.rate == "max";
        for (flag, is_given, has_use, is_for) in [
            ("--outstanding", self.outstanding.is_some(), closed, "--rate max"),
            ("--threads", self.threads.is_some(), local, "a directory or a file tree"),
            ("--proto", self.proto.is_some(), nfs, "an nfs:// target"),
            ("--connections", self.connections.is_some(), nfs, "an nfs:// target"),
            ("--reconnect-timeout", self.reconnect_timeout.is_some(), nfs, "an nfs:// target"),
            ("--udp-timeout", self.udp_timeout.is_some(), udp, "an nfs:// target over UDP (--proto udp)"),
            (
                "--udp-retransmits",
                self.udp_retransmits.is_some(),
                udp,
                "an nfs:// target over UDP (--proto udp)",
            ),
        ] {
            if is_given && !has_use {
                bail!("{flag} is for {is_for}: here it would change nothing, leave it out");
            }
        }
        Ok(())
    }

    pub(super) fn config(
        &self,
        own: &str,
        id: &RunId,
        proto: Option<NfsProto>,
    ) -> anyhow::Result<FstressConfig> {
        let mut workload = knobs::apply(&Workload::find(&self.workload)?, &self.set)?;
        if let Some(files) = self.files_per_op {
            workload.scale.files_per_op = fstress::FilesPerOp::new(files)
                .map_err(|problem| anyhow::anyhow!("--files-per-op: {problem}"))?;
        }
        if let Some(size) = &self.file_size {
            workload.sizes.file = fstress::Distribution::parse(size, fstress::Dimension::Bytes)
                .map_err(|problem| anyhow::anyhow!("--file-size: {problem}"))?;
        }
        for (flag, span) in [("--warm", self.warm), ("--measure", self.measure)] {
            if span > SPAN_MAX {
                bail!("{flag}: {} is more than 30 days", humantime::format_duration(span));
            }
        }
        if self.files.is_some_and(|files| files.get() > FILES_MAX) {
            bail!("--files: a set can have at most {FILES_MAX} files");
        }
        if self.measure < Duration::from_millis(100) {
            bail!("--measure: an interval must last at least 100ms");
        }
        let load = match (self.rate.as_str(), self.find_max) {
            ("max", None) => Load::Max { outstanding: self.outstanding.unwrap_or(OUTSTANDING) },
            ("max", Some(_)) => bail!("--find-max searches with an open loop; leave --rate max out"),
            (rate, bound) => {
                let load = Load::parse(rate).map_err(|wrong| anyhow::anyhow!("--rate: {wrong}"))?;
                match (load, bound) {
                    (load, None) => load,
                    (Load::Auto { first }, Some(bound)) => Load::FindMax { first, bound },
                    (Load::Sweep(rates), Some(bound)) if rates.len() == 1 => {
                        Load::FindMax { first: rates[0], bound }
                    }
                    (Load::Sweep(_), Some(_)) => {
                        bail!(
                            "--find-max finds its own rates: give --rate the first one only, such as --rate 1000"
                        )
                    }
                    (other, Some(_)) => other,
                }
            }
        };
        let (keep, set) = match (&self.keep, &self.reuse) {
            (Some(name), _) => (Keep::Keep, name.as_str()),
            (None, Some(name)) => (Keep::Reuse, name.as_str()),
            (None, None) => (Keep::Remove, own),
        };
        Ok(FstressConfig {
            workload,
            load,
            arrivals: self.arrivals,
            warm: self.warm,
            measure: self.measure,
            drain: if self.quick { DRAIN_QUICK } else { DRAIN },
            wait: self.wait.wait(),
            files: self.files.map_or(FileCount::Scaled, FileCount::Fixed),
            seed: self.seed,
            keep,
            set_name: format!("crumb-fstress-{set}"),
            build_in_flight: if proto == Some(NfsProto::Udp) { BUILD_IN_FLIGHT_UDP } else { BUILD_IN_FLIGHT },
            raw: self.raw.as_ref().map(|folder| folder.join(&id.0)),
        })
    }
}

/// What [`Load::parse`] reads, or `max`, as it was written.
fn rates(text: &str) -> Result<String, measure::ValueError> {
    if text != "max" {
        Load::parse(text)?;
    }
    Ok(text.to_owned())
}

/// What a distribution of sizes is read from, as it was written.
fn file_size(text: &str) -> Result<String, measure::ValueError> {
    match fstress::Distribution::parse(text, fstress::Dimension::Bytes) {
        Ok(_) => Ok(text.to_owned()),
        Err(problem) => Err(problem.to_string().into()),
    }
}

/// A search has rates of its own, and a first one.
fn quick_rate() -> [(&'static str, ArgPredicate, &'static str); 3] {
    [
        ("find_max", ArgPredicate::IsPresent, "auto"),
        // The rate of the paper's figure 9.
        ("vary", ArgPredicate::IsPresent, "1000"),
        ("quick", "true".into(), "500,1000,2000,4000"),
    ]
}

/// A number of files for each request is a number of files.
fn quick_files() -> [(&'static str, ArgPredicate, Option<&'static str>); 2] {
    [("files_per_op", ArgPredicate::IsPresent, None), ("quick", "true".into(), Some("2000"))]
}
