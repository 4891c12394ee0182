//! `crumb run fstress`: latency against offered load, until the storage saturates.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::{NonZeroU16, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use files::{NfsProto, Patience, Target};
use fstress::{Arrivals, Event, FileCount, FstressConfig, Keep, LatencyBound, Load, RunOutcome, Workload};
use harness::ranks::RankGroup;
use measure::{RunId, RunRecord};
use quanta::Clock;

use super::ranks::{self, Series, on_all};
use crate::context::Context;
use crate::cpus::CpuList;
use crate::exit::ExitStatus;
use crate::names::kept_name;
use crate::openers::{TransportOptions, open_transport, proto, proto_of};
use crate::outcome::{Begun, OutputArgs, Run};
use crate::output::say;
use crate::progress::Progress;
use crate::series::{SeriesArgs, Sides, Turn};
use crate::{signals, tables};

/// Offer rising load to a file service and measure how its latency answers.
///
/// Requests leave on a schedule, whatever the replies do, and latency counts from the scheduled moment. The file
/// set is made in the target before the first load point, grows with the load, and is removed at the end.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct FstressArgs {
    /// nfs://host[:port]/export[?proto=udp|tcp&mountport=N], a directory, or null: for the generator itself
    target: Target,

    /// Workload: a built-in name (`crumb workload list`), a TOML file, or a directory of value:weight files
    #[arg(long, short, default_value = "web-server")]
    workload: String,

    /// Requests a second: 1000, or 500,1000,4000, or FROM..TO/STEP, or auto[:FIRST] to find saturation, or max
    /// for a closed loop (see --outstanding). What may be one number, such as 20,300, is refused: write 20300 or '20, 300'
    #[arg(long, short, default_value = "auto", value_name = "RATES")]
    rate: String,

    /// Find the highest rate that meets this latency bound, such as p99<20ms; --rate then says where to begin
    #[arg(long, value_name = "BOUND")]
    find_max: Option<LatencyBound>,

    /// Warm-up before each measured interval, such as 30s or 2m
    #[arg(long, default_value = "120s", value_parser = humantime::parse_duration, value_name = "TIME")]
    warm: Duration,

    /// Length of each measured interval
    #[arg(long, default_value = "240s", value_parser = humantime::parse_duration, value_name = "TIME")]
    measure: Duration,

    /// How requests follow each other: uniform, poisson, bursty or bursty:N (mean requests in a burst)
    #[arg(long, default_value = "uniform", value_name = "PROCESS")]
    arrivals: Arrivals,

    /// Requests kept outstanding with --rate max [default: 64]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=60_000), value_name = "N")]
    outstanding: Option<u32>,

    /// Same seed, same operations
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// Files in the set at any rate, instead of the workload's number for each request a second
    #[arg(long, value_name = "N", conflicts_with = "files_per_op")]
    files: Option<NonZeroU64>,

    /// Files for each offered request a second, instead of the workload's own
    #[arg(long, value_name = "N")]
    files_per_op: Option<f64>,

    /// Size of every file, such as 64GiB, instead of the workload's distribution
    #[arg(long, value_name = "SIZE")]
    file_size: Option<String>,

    /// Keep the file set under this name for later runs with --reuse
    #[arg(long, value_name = "NAME", conflicts_with = "reuse", value_parser = kept_name)]
    keep: Option<String>,

    /// Use the file set that --keep left under this name; what is missing is made, and it is kept
    #[arg(long, value_name = "NAME", value_parser = kept_name)]
    reuse: Option<String>,

    /// UDP or TCP, where the target does not say; TCP when neither does
    #[arg(long, value_parser = proto, value_name = "udp|tcp")]
    proto: Option<NfsProto>,

    /// Connections to an NFS server [default: 1]
    #[arg(long, value_name = "N")]
    connections: Option<NonZeroU16>,

    /// Worker threads for a directory target; by default four for each processor
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    /// Time-out of a UDP request before it is sent again; doubles each time [default: 700ms]
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    udp_timeout: Option<Duration>,

    /// Retransmissions of a UDP request before it is cancelled [default: 5]
    #[arg(long, value_name = "N")]
    udp_retransmits: Option<u8>,

    /// How long the server may be away before the run ends: a TCP connection that is not regained, or no reply at all,
    /// over UDP or TCP, while requests wait [default: 30s]
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    reconnect_timeout: Option<Duration>,

    /// Run the generator on these processors only, such as 1 or 2-3
    #[arg(long, value_name = "CPUS")]
    pin: Option<CpuList>,

    /// Spin instead of sleeping between requests: exact to below a microsecond, and takes a whole core
    #[arg(long)]
    spin: bool,

    /// Write every measured request by itself into this directory, as RUN-rank-N.csv: load point, operation, nanoseconds from
    /// the begin of the interval until it was due and from then to its end, and how it ended
    #[arg(long, value_name = "DIRECTORY")]
    raw: Option<PathBuf>,

    #[command(flatten)]
    series: SeriesArgs,

    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  Where does my filer saturate under web traffic?
    crumb run fstress nfs://filer/vol --workload web-server
  A sweep as in the paper, with its picture:
    crumb run fstress nfs://filer/vol --rate 500..8000/500 --report filer.html
  How much mail can it take with 99% of the requests below 20 ms?
    crumb run fstress nfs://filer/vol --workload mail --find-max 'p99<20ms'
  A quick look at a local disk:
    crumb run fstress /mnt/disk --rate 200..2000/200 --warm 5s --measure 10s
  Each request by itself, for figures of your own:
    crumb run fstress nfs://filer/vol --rate 1000 --measure 1m --raw samples
  What can the server do at most (closed loop)?
    crumb run fstress nfs://filer/vol --workload sfs97 --rate max --outstanding 64

Ctrl-C ends the run early: what was measured is kept and the file set removed. Each load point is stored as soon as it
is measured, so that a run that is killed keeps those it had.
Exit status: 0 fine, 1 the run failed, 2 wrong usage, 3 done but the verdict is INVALID, 130 interrupted.";

/// Lengths that no run needs and that arithmetic on clocks does not like.
const SPAN_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// What file numbers of 32 bits leave room for, with as many again for files made in a run.
const FILES_MAX: u64 = 1 << 31;
const OUTSTANDING: u32 = 64;
const UDP_TIMEOUT: Duration = Duration::from_millis(700);
const UDP_RETRANSMITS: u8 = 5;
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const DRAIN: Duration = Duration::from_secs(10);
const BUILD_IN_FLIGHT: usize = 64;
/// Some servers lose what does not fit their receive buffer.
const BUILD_IN_FLIGHT_UDP: usize = 8;

/// Runs the verb.
pub fn run(args: FstressArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    args.run_in(&mut RankGroup::solo(), &signals::stop_flag_of(context)?, context)
}

impl FstressArgs {
    /// Runs the verb as one rank of `group`, or alone; `stop` ends it early and is set when another rank does.
    ///
    /// # Errors
    /// What ended the run, on whichever rank.
    pub fn run_in(
        self,
        group: &mut RankGroup,
        stop: &Arc<AtomicBool>,
        context: &Context,
    ) -> anyhow::Result<ExitStatus> {
        let args = self;
        let sides = ranks::sides(group, &args.target, &args.series.vs, &[], args.seed)?;
        let idle = args.flags_without_use(&sides).map_err(|wrong| wrong.context(crate::exit::BadUsage));
        on_all(group, "its flags", idle)?;
        let transport_options = TransportOptions {
            connections: args.connections.unwrap_or(NonZeroU16::MIN),
            proto: args.proto,
            udp_timeout: args.udp_timeout.unwrap_or(UDP_TIMEOUT),
            udp_retransmits: args.udp_retransmits.unwrap_or(UDP_RETRANSMITS),
            reconnect_timeout: args.reconnect_timeout.unwrap_or(RECONNECT_TIMEOUT),
            threads: args.threads,
            patience: if args.spin { Patience::Spin } else { Patience::default() },
        };
        let series = Series { args: &args.series, sides: &sides, output: &args.output, context, stop };
        let measure_one = |turn: Turn<'_>, group: &mut RankGroup| {
            args.measure_one(turn, &transport_options, context, stop, group)
        };
        series.run(group, measure_one, |record| {
            let mut text = tables::load_points(record);
            if let Some(point) = tables::telling_point(record) {
                text.push_str(&tables::operations(point));
                text.push_str(&tables::ranks(point));
            }
            text + &tables::summary(record)
        })
    }

    fn measure_one(
        &self,
        turn: Turn<'_>,
        transport_options: &TransportOptions,
        context: &Context,
        stop: &Arc<AtomicBool>,
        group: &mut RankGroup,
    ) -> anyhow::Result<Run> {
        let mut begun = Begun::now("fstress", turn.target);
        begun.id = RunId(group.broadcast(begun.id.0)?);
        let target = turn.target;
        let config = self
            .config(&begun.id, proto_of(target, transport_options))
            .and_then(|config| match config.load {
                Load::Max { outstanding } if outstanding < group.ranks() => {
                    bail!("--outstanding {outstanding}: each of {} ranks keeps at least one", group.ranks())
                }
                _ => Ok(config),
            })
            .map_err(|error| error.context(crate::exit::BadUsage));
        let config = on_all(group, "its flags", config)?;
        group.same_terms(terms(target, &config, self))?;
        let clock = Clock::new();
        let transport = open_transport(target, transport_options, &clock);
        let mut transport = on_all(group, "reaching the storage", transport)?;
        if !context.quiet {
            announce(target, &config, group);
        }
        let label = turn.label.unwrap_or_else(|| format!("{} on {target}", config.workload.name));
        let config_json = config_json(&config, transport_options, self, group.hosts());
        let record_of = |outcome: RunOutcome| RunRecord {
            config: config_json.clone(),
            seed: config.seed,
            complete: outcome.complete,
            points: outcome.points,
            phases: outcome.phases,
            metrics: outcome.metrics,
            verdict: outcome.verdict,
            ..begun.clone().record(context, label.clone())
        };

        let _leaving = context.interruption.would_leave(match config.keep {
            Keep::Remove => format!("{} in {target}; remove it with rm -r", config.set_name),
            _ => format!("{} in {target}, which is kept; --reuse takes it up again", config.set_name),
        });
        let (events, heard) = mpsc::sync_channel(1024);
        let mut any_kept = false;
        let outcome = std::thread::scope(|threads| {
            let (config, clock, stop, pin) = (&config, &clock, &**stop, self.pin.as_ref());
            let (transport, group) = (&mut *transport, &mut *group);
            let generator = std::thread::Builder::new().name("metronome".to_owned());
            let generator = generator.spawn_scoped(threads, move || {
                let pinned = pin.map_or(Ok(()), |cpus| cpus.pin());
                on_all(group, "its processors", pinned)?;
                // A full channel drops a line of progress and never holds up the metronome.
                let mut tell = |event: Event| match event {
                    Event::PointDone(_) | Event::Note(_) | Event::PointBegins { .. } => {
                        drop(events.send(event))
                    }
                    _ => drop(events.try_send(event)),
                };
                anyhow::Ok(fstress::run_together(config, transport, clock, stop, &mut tell, group))
            });
            let generator = generator.context("cannot start the generator's thread")?;
            let mut progress = Progress::new(context.quiet);
            let mut so_far = Vec::new();
            for event in heard {
                // The process may be killed at any moment, and removing the files takes its time: each level is in the
                // store before it is shown.
                match &event {
                    // What a search measured anew does not count.
                    Event::PointBegins { number, .. } => so_far.truncate(*number as usize - 1),
                    Event::PointDone(point) => {
                        so_far.push((**point).clone());
                        let outcome = RunOutcome::so_far(so_far.clone(), &config.load);
                        any_kept |= self.output.keep(context, &record_of(outcome));
                    }
                    _ => {}
                }
                progress.show(&event);
            }
            progress.finish();
            match generator.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        let mut outcome = outcome?;
        let error = outcome.error.take().map(anyhow::Error::from);
        if let Some(left) = outcome.left_behind.take().filter(|_| !context.silent) {
            say(&format!("crumb: {:#}", anyhow::Error::from(left)));
        }
        let record = record_of(outcome);
        let interrupted = stop.load(Ordering::Relaxed);
        let any_measured = !record.points.is_empty();
        if !any_measured && any_kept {
            self.output.forget(context, &record.id);
        }
        Ok(Run { record, any_measured, error, interrupted })
    }

    /// A flag that changes nothing on any of the sides was meant for something else.
    fn flags_without_use(&self, sides: &Sides) -> anyhow::Result<()> {
        let mut targets = sides.variants.iter().map(|variant| &variant.target);
        let any = |is: fn(&Target) -> bool| sides.variants.iter().any(|variant| is(&variant.target));
        let nfs = any(|target| matches!(target, Target::Nfs(_)));
        let directory = any(|target| matches!(target, Target::Directory(_)));
        let udp = targets.any(|target| match target {
            Target::Nfs(nfs) => nfs.proto.or(self.proto) == Some(NfsProto::Udp),
            _ => false,
        });
        let closed = self.rate == "max";
        for (flag, is_given, has_use, is_for) in [
            ("--outstanding", self.outstanding.is_some(), closed, "--rate max"),
            ("--threads", self.threads.is_some(), directory, "a directory"),
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

    fn config(&self, id: &RunId, proto: Option<NfsProto>) -> anyhow::Result<FstressConfig> {
        let mut workload = Workload::find(&self.workload)?;
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
        let entropy = id.0.rsplit('-').next().unwrap_or_default();
        let (keep, set) = match (&self.keep, &self.reuse) {
            (Some(name), _) => (Keep::Keep, name.as_str()),
            (None, Some(name)) => (Keep::Reuse, name.as_str()),
            (None, None) => (Keep::Remove, entropy),
        };
        Ok(FstressConfig {
            workload,
            load,
            arrivals: self.arrivals,
            warm: self.warm,
            measure: self.measure,
            drain: DRAIN,
            files: self.files.map_or(FileCount::Scaled, FileCount::Fixed),
            seed: self.seed,
            keep,
            set_name: format!("crumb-fstress-{set}"),
            build_in_flight: if proto == Some(NfsProto::Udp) { BUILD_IN_FLIGHT_UDP } else { BUILD_IN_FLIGHT },
            raw: self.raw.as_ref().map(|folder| folder.join(&id.0)),
        })
    }
}

fn load_text(load: &Load) -> String {
    match load {
        Load::Sweep(rates) if rates.len() == 1 => format!("{} requests/s", rates[0]),
        Load::Sweep(rates) => {
            format!("{} load points from {} to {} requests/s", rates.len(), rates[0], rates[rates.len() - 1])
        }
        Load::Auto { first } => format!("load rising from {first} requests/s to saturation"),
        Load::FindMax { first, bound } => format!("load rising from {first} requests/s while {bound}"),
        Load::Max { outstanding } => format!("a closed loop with {outstanding} outstanding"),
    }
}

/// What must be the same on all ranks, by name.
fn terms(target: &Target, config: &FstressConfig, args: &FstressArgs) -> Vec<(String, String)> {
    let mut hasher = DefaultHasher::new();
    config.workload.to_toml().hash(&mut hasher);
    let workload = format!("{} (digest {:016x})", config.workload.name, hasher.finish());
    let FstressConfig { load, arrivals, warm, measure, files, seed, keep, set_name, .. } = config;
    let FstressArgs { file_size, threads, .. } = args;
    let terms = [
        ("target", target.to_string()),
        ("workload", workload),
        ("load", load_text(load)),
        ("rates", format!("{load:?}")),
        ("arrivals", arrivals.to_string()),
        ("warm-up and interval", format!("{warm:?} and {measure:?}")),
        ("files", format!("{files:?} {file_size:?}")),
        ("seed", seed.to_string()),
        ("file set", format!("{keep:?} {set_name}")),
        ("way to the storage", format!("{:?} {:?} {threads:?}", args.proto, args.connections)),
        ("raw samples", args.raw.as_ref().map_or("none", |_| "written").to_owned()),
        ("repeats", format!("{:?}", args.series)),
    ];
    terms.into_iter().map(|(name, term)| (name.to_owned(), term)).collect()
}

fn announce(target: &Target, config: &FstressConfig, group: &RankGroup) {
    let point = config.warm + config.measure;
    let takes = match config.load.points() {
        Some(points) => format!("about {}", humantime::format_duration(point * points)),
        None => format!("{} for each load point", humantime::format_duration(point)),
    };
    say(&format!("{} on {target}, {}; seed {}", config.workload.name, load_text(&config.load), config.seed));
    ranks::announce(group);
    if let Some(raw) = &config.raw {
        say(&format!("every measured request goes to {}-rank-{}.csv", raw.display(), group.rank()));
    }
    say(&format!("this takes {takes} and the time to make the files; Ctrl-C ends it with what it has"));
}

fn config_json(
    config: &FstressConfig,
    options: &TransportOptions,
    args: &FstressArgs,
    hosts: &[String],
) -> serde_json::Value {
    let json = serde_json::json!({
        "workload": config.workload.name,
        "workload_toml": config.workload.to_toml(),
        "load": load_text(&config.load),
        "rate": args.rate,
        "arrivals": config.arrivals.to_string(),
        "warm_s": config.warm.as_secs_f64(),
        "measure_s": config.measure.as_secs_f64(),
        "drain_s": config.drain.as_secs_f64(),
        "proto": proto_of(&args.target, options).map(|proto| proto.to_string()),
        "connections": options.connections.get(),
        "udp_timeout_ms": options.udp_timeout.as_millis() as u64,
        "udp_retransmits_max": options.udp_retransmits,
        "pinned_to_cpus": args.pin.as_ref().map(ToString::to_string),
        "spin": args.spin,
        "raw_samples": args.raw.is_some(),
        "file_set": config.set_name,
    });
    ranks::with_hosts(json, hosts)
}
