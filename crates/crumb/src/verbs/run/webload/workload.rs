//! What `crumb run webload` asks for: flags in, a plan with its phases out.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use report::{bytes_text, count_text, rate_text};
use webload::{End, Generation, ObjectSet, Pace, Phase, Plan, PolyMix, Pool, SetUse, Trace, TraceFormat};

use crate::quantities::{QuantityError, count, count_in, number_in, percent_in, size, time};
use crate::quick;

/// What is asked for.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Workload")]
pub struct WorkloadArgs {
    /// Take a first look, done in less than a minute: hits among 2000 objects for 10 seconds; PolyMix in memory and 1500 times
    /// shorter. Sets defaults only; flags that are given win
    #[arg(long)]
    pub quick: bool,

    /// Requests of the robots; with --quick hits
    #[arg(
        long,
        short,
        value_enum,
        default_value = "polymix-3",
        default_value_if("quick", "true", "hits"),
        value_name = "NAME"
    )]
    workload: Name,

    /// PolyMix: requests per second on the plateaus
    #[arg(long, default_value_t = 300.0, value_name = "RATE", value_parser = rate)]
    peak: f64,

    /// PolyMix: what the cache under test can hold; twice as much is asked for to fill it; with --quick 20MB
    #[arg(long, default_value = "1GB", default_value_if("quick", "true", "20MB"), value_name = "SIZE", value_parser = size::<u64>)]
    cache_size: u64,

    /// PolyMix: size of the working set that is requested repeatedly [default: half the cache]
    #[arg(long, value_name = "SIZE", value_parser = size::<u64>)]
    working_set: Option<u64>,

    /// PolyMix: rate of filling in percent of the peak [default: 75; PolyMix-4: 50]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fill_share: Option<f64>,

    /// PolyMix and traces: factor by which times, and the lives of objects, are shorter [default: 1; PolyMix with
    /// --quick: 1500]
    #[arg(long, value_name = "TIMES", value_parser = number_in(0.001..=1_000_000.0))]
    time_scale: Option<f64>,

    /// Sets: how many objects; with --quick 2000
    #[arg(long, default_value = "150000", default_value_if("quick", "true", "2000"), value_name = "N", value_parser = count::<NonZeroU64>)]
    objects: NonZeroU64,

    /// Sets, and traces without sizes: mean object size; lognormal, with an equal standard deviation
    #[arg(long, default_value = "10.7kB", value_name = "SIZE", value_parser = size::<u64>)]
    object_size: u64,

    /// Hits: exponent of Zipf's law of object popularity; 0 makes all alike
    #[arg(long, default_value_t = 0.8, value_name = "ALPHA", value_parser = number_in(0.0..=5.0))]
    zipf: f64,

    /// Hits: assume that all objects are stored already, and do not request each once first (same seed and origin address)
    #[arg(long)]
    no_fill: bool,

    /// Sets and traces: connections that all requests share
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = count_in::<u32>(1..=60_000))]
    connections: u32,

    /// Sets and traces: requests per second, or max for as fast as replies arrive (a closed loop), or recorded for a
    /// trace's own times [default: max; for a trace with times: recorded]
    #[arg(long, short, value_name = "RATE", value_parser = pace)]
    rate: Option<String>,

    /// Sets: warm-up before the measured interval; with --quick 2s
    #[arg(long, default_value = "5s", default_value_if("quick", "true", "2s"), value_parser = time, value_name = "TIME")]
    warm: Duration,

    /// Sets: length of the measured interval; with --quick 10s
    #[arg(long, default_value = "30s", default_value_if("quick", "true", "10s"), value_parser = time, value_name = "TIME")]
    measure: Duration,

    /// Log to replay; plain, gzip or zstd
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Format of the log: tsv (named columns), common (Common Log Format), squid (native), or ids (32 bits, big-endian)
    /// [default: detected from name and first line]
    #[arg(long, value_name = "FORMAT")]
    trace_format: Option<TraceFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Web Polygraph's workload of the third cache-off
    #[value(name = "polymix-3")]
    PolyMix3,
    /// Its successor: other phases, filling at half the peak
    #[value(name = "polymix-4")]
    PolyMix4,
    /// Objects of a set that were requested before: measures serving from the cache
    Hits,
    /// A new object each time: measures storing
    Stores,
    /// A recorded log, see --trace
    Trace,
}

/// A plan and all that goes with it.
pub struct Traffic {
    pub plan: Plan,
    pub phases: Vec<Phase>,
    pub pool: Pool,
}

/// Of a robot's connection, as PolyMix has it.
const ROBOT_REQUESTS_ZIPF: u32 = 64;
/// 11.5 hours become 28 seconds.
const QUICK_TIME_SCALE: f64 = 1500.0;
const ROBOT_IDLE: Duration = Duration::from_secs(15);
const SPAN_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

impl WorkloadArgs {
    /// Checks the flags and makes the plan.
    pub fn traffic(&self) -> anyhow::Result<Traffic> {
        for (flag, span) in [("--warm", self.warm), ("--measure", self.measure)] {
            ensure!(span <= SPAN_MAX, "{flag}: {} is more than 30 days", humantime::format_duration(span));
        }
        ensure!(
            self.measure >= Duration::from_millis(100),
            "--measure: an interval must last at least 100ms"
        );
        match self.workload {
            Name::PolyMix3 => self.polymix(Generation::Three),
            Name::PolyMix4 => self.polymix(Generation::Four),
            Name::Hits => self.hits(),
            Name::Stores => self.stores(),
            Name::Trace => self.replay(),
        }
    }

    /// What a run with `--quick` does not show; none for others.
    pub fn limits_of_quick(&self) -> Option<String> {
        self.quick.then(|| match self.workload {
            Name::PolyMix3 | Name::PolyMix4 => {
                quick::limits(2 * self.cache_size, "objects live and plateaus last for seconds, not hours")
            }
            Name::Hits | Name::Stores => {
                let bytes = self.objects.get().saturating_mul(self.object_size);
                quick::limits(bytes, "and a cache that is full or has run for hours may be slower")
            }
            Name::Trace => "a quick run: the trace is replayed as always".to_owned(),
        })
    }

    fn polymix(&self, generation: Generation) -> anyhow::Result<Traffic> {
        ensure!(self.rate.is_none(), "--rate: PolyMix has its rate from --peak");
        ensure!(self.cache_size >= 1_000_000, "--cache-size: at least 1MB");
        let mut config = PolyMix::new(generation, self.peak, self.cache_size);
        config.fill_share = self.fill_share.unwrap_or(config.fill_share);
        config.working_set_bytes = self.working_set;
        config.time_scale = self.time_scale.unwrap_or(if self.quick { QUICK_TIME_SCALE } else { 1.0 });
        let pool = Pool::Robots {
            robots: config.robots(),
            requests_zipf: Some(ROBOT_REQUESTS_ZIPF),
            idle_timeout: ROBOT_IDLE,
        };
        Ok(Traffic { phases: config.phases(), plan: Plan::PolyMix(config), pool })
    }

    fn shared(&self) -> Pool {
        Pool::Shared { connections: self.connections }
    }

    fn pace(&self) -> anyhow::Result<Pace> {
        match self.rate.as_deref().unwrap_or("max") {
            "max" => Ok(Pace::Closed),
            text => {
                let rate = rate(text).map_err(|wrong| anyhow::anyhow!("--rate: {wrong}"))?;
                Ok(Pace::Open { from_per_sec: rate, to_per_sec: rate })
            }
        }
    }

    fn set(&self, used: SetUse, fill_phases: usize) -> Plan {
        let mean_bytes = self.object_size.max(1);
        Plan::Objects(ObjectSet { count: self.objects, mean_bytes, used, fill_phases })
    }

    fn hits(&self) -> anyhow::Result<Traffic> {
        let pace = self.pace()?;
        let fill = Phase::new("fill", Pace::Closed, End::Requests(self.objects.get()));
        let mut phases = if self.no_fill { vec![] } else { vec![fill] };
        let plan = self.set(SetUse::Again { zipf: self.zipf }, phases.len());
        phases.extend(self.warm_and("hits", pace));
        Ok(Traffic { plan, phases, pool: self.shared() })
    }

    fn stores(&self) -> anyhow::Result<Traffic> {
        let phases = self.warm_and("stores", self.pace()?).to_vec();
        Ok(Traffic { plan: self.set(SetUse::New, 0), phases, pool: self.shared() })
    }

    fn warm_and(&self, name: &'static str, pace: Pace) -> [Phase; 2] {
        [
            Phase::new("warm", pace, End::Time(self.warm)),
            Phase::new(name, pace, End::Time(self.measure)).measured(),
        ]
    }

    fn replay(&self) -> anyhow::Result<Traffic> {
        let Some(path) = &self.trace else { bail!("--workload trace needs --trace FILE") };
        let trace = Trace::read(path, self.trace_format, self.object_size.max(1))?;
        let trace = Arc::new(trace.faster(self.time_scale.unwrap_or(1.0)));
        let recorded = match self.rate.as_deref() {
            Some("recorded") if !trace.has_times() => {
                bail!("--rate recorded: the trace has no times; give a rate or max")
            }
            Some("recorded") => true,
            Some(_) => false,
            None => trace.has_times(),
        };
        let pace = if recorded { Pace::OfPlan } else { self.pace()? };
        let end = if recorded { End::OfPlan } else { End::Requests(trace.len() as u64) };
        let phases = vec![Phase::new("replay", pace, end).measured()];
        Ok(Traffic { plan: Plan::Trace(trace), phases, pool: self.shared() })
    }
}

impl Traffic {
    /// How long the phases with a length of their own take together.
    pub fn timed(&self) -> Duration {
        let timed = self.phases.iter().filter_map(|phase| match phase.end {
            End::Time(span) => Some(span),
            _ => None,
        });
        let recorded = match &self.plan {
            Plan::Trace(trace) if self.phases.iter().any(|phase| matches!(phase.end, End::OfPlan)) => {
                trace.span()
            }
            _ => Duration::ZERO,
        };
        timed.sum::<Duration>() + recorded
    }

    /// What takes time besides, in words; empty for nothing.
    pub fn besides(&self) -> String {
        match &self.plan {
            Plan::PolyMix(config) => {
                let asked = bytes_text(2 * config.cache_bytes);
                format!(
                    "the time to fill the cache: {asked} at {} requests/s",
                    rate_text(config.peak_per_sec * config.fill_share)
                )
            }
            Plan::Objects(set) if set.fill_phases > 0 => {
                format!("the time to ask for {} objects once", count_text(set.count.get()))
            }
            Plan::Objects(_) => String::new(),
            Plan::Trace(trace) => {
                format!(
                    "{} requests for {} objects of {}; {} lines are no requests to replay",
                    count_text(trace.len() as u64),
                    count_text(trace.objects() as u64),
                    bytes_text(trace.object_bytes()),
                    count_text(trace.skipped())
                )
            }
        }
    }
}

fn rate(text: &str) -> Result<f64, measure::ValueError> {
    number_in(0.1..=10_000_000.0)(text).map_err(|wrong| match wrong {
        QuantityError::Grouped { .. } => wrong.to_string().into(),
        _ => "expected requests a second from 0.1 to 10000000, such as 300, or max".into(),
    })
}

/// `max`, `recorded`, or a rate, as it was written.
fn pace(text: &str) -> Result<String, measure::ValueError> {
    if !["max", "recorded"].contains(&text) {
        rate(text)?;
    }
    Ok(text.to_owned())
}

fn percent(text: &str) -> Result<f64, QuantityError> {
    percent_in(1.0..=100.0)(text).map(|percent| percent / 100.0)
}
