//! `crumb run dirscale`: what a directory costs by its size, and from which size a layout pays.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use clap::Args;
use dirscale::{Cache, DirscaleConfig, Event, Frequencies, Keep, Sizes, Work};
use files::{FileSystem, Layout, Target};
use measure::{CacheControl, KernelCaches, RunId, RunRecord, UnreachableCaches};

use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::{grid, wrapped};
use crate::names::kept_name;
use crate::openers::FileSystemArgs;
use crate::outcome::{Begun, OutputArgs, Run};
use crate::progress::Progress;
use crate::series::{SeriesArgs, Sides, Turn};
use crate::{signals, tables};

/// Measure what a directory costs by its size, flat and laid out in subdirectories.
///
/// At each size: 1000 random and 1000 sequential lookups, add 1000 files, remove the 1000 oldest, read it whole. The
/// directories grow from size to size and are removed at the end. With --cold (the default) the caches of the whole
/// machine are dropped before each measurement, and proven cold; that takes root.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DirscaleArgs {
    /// A directory, or nfs://host[:port]/export[?proto=udp|tcp&mountport=N]
    target: Target,

    /// Layouts to compare: flat, 345, 34/56, 56/34, 456: the digits of 123456 that name its subdirectory; or hash:2, its hash
    #[arg(long, value_name = "LAYOUTS", value_delimiter = ',', default_value = "flat,345")]
    layout: Vec<Layout>,

    /// Files in the directory: FROM..TO by doubling, or a list such as 1000,10000,100000
    #[arg(long, value_name = "SIZES", default_value_t = Sizes::default())]
    sizes: Sizes,

    /// Drop the caches before each measurement and prove it; the default
    #[arg(long, conflicts_with = "warm")]
    cold: bool,

    /// Drop names and inodes only: directories are read from memory, as on a server that is in use, their entries are not
    #[arg(long, conflicts_with_all = ["cold", "warm"])]
    cold_names: bool,

    /// Look at what is about to be measured once before, instead of dropping the caches
    #[arg(long)]
    warm: bool,

    /// Bytes in a file
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(0..=1 << 20), value_name = "BYTES")]
    file_bytes: u32,

    /// Lookups in a measurement, and files added and removed
    #[arg(long, default_value = "1000", value_parser = operations, value_name = "N")]
    operations: NonZeroU32,

    /// Measure each size this often; figures are medians, and intervals cover what differs from time to time
    #[arg(long, default_value = "3", value_name = "N")]
    rounds: NonZeroU32,

    /// Readings of the whole directory in a round
    #[arg(long, default_value = "3", value_name = "N")]
    readings: NonZeroU32,

    /// Operations a day, which the day's cost is weighed by [default: the paper's table 1]
    #[arg(long, value_name = "lookup=N,unlink=N,create=N,readdir=N")]
    frequencies: Option<Frequencies>,

    /// Same seed, same files looked up
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// Keep the directories under this name for later runs with --reuse
    #[arg(long, value_name = "NAME", conflicts_with = "reuse", value_parser = kept_name)]
    keep: Option<String>,

    /// Go on with the directories that --keep left under this name, or a run that was killed; they are kept
    #[arg(long, value_name = "NAME", value_parser = kept_name)]
    reuse: Option<String>,

    #[command(flatten)]
    storage: FileSystemArgs,

    #[command(flatten)]
    series: SeriesArgs,

    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  From which size does a layout pay on my disk? (as root, to drop caches)
    crumb run dirscale /mnt/disk --sizes 1..131072 --report layout.html
  What do 100,000 files in one directory cost, when all is in memory?
    crumb run dirscale /mnt/disk --sizes 100000 --warm
  All layouts of the paper, each size five times:
    crumb run dirscale /mnt/disk --layout flat,345,34/56,56/34,456 --rounds 5
  Go on to larger sizes another day, without making the files again:
    crumb run dirscale /mnt/disk --sizes 1..65536 --keep spool
    crumb run dirscale /mnt/disk --sizes 1..524288 --reuse spool

Ctrl-C ends the run early: what was measured is kept and the directories removed.
Exit status: 0 fine, 1 the run failed, 2 wrong usage, 3 done but the verdict is INVALID, 130 interrupted.";

/// Places of all operations of a measurement are made before it begins.
const OPERATIONS_MAX: u32 = 1_000_000;

/// Runs the verb.
pub fn run(args: DirscaleArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let targets = 1 + args.series.vs.len();
    if let (Some(name), true) = (&args.keep, targets > 1 || args.series.repeat.is_some_and(|n| n.get() > 1)) {
        let wrong = anyhow::anyhow!("--keep {name} is for a run made alone; leave --repeat and --vs out");
        return Err(wrong.context(crate::exit::BadUsage));
    }
    let stop = signals::stop_flag_of(context)?;
    let measure_one = |turn: Turn<'_>| args.measure_one(&turn, context, &stop);
    let sides = Sides::parse(&args.target, &args.series.vs, &[])?.in_order_of(args.seed);
    args.series.run_sides(&sides, &args.output, context, &stop, measure_one, tables_of)
}

impl DirscaleArgs {
    fn measure_one(&self, turn: &Turn<'_>, context: &Context, stop: &Arc<AtomicBool>) -> anyhow::Result<Run> {
        let begun = Begun::now("dirscale", turn.target);
        let config = self.config(&begun.id);
        let fs = self.storage.open(turn.target, stop)?;
        let mut caches = caches_of(&*fs)?;
        if !context.quiet {
            self.announce(turn.target, &config);
        }
        let set = format!("{}{}", dirscale::SET_PREFIX, config.set_name);
        let leaving = context.interruption.would_leave(match config.keep {
            Keep::Remove => format!("{set} in {}; remove it with rm -r", turn.target),
            Keep::Keep | Keep::Reuse => {
                format!("{set} in {}; --reuse {} goes on with it", turn.target, config.set_name)
            }
        });
        let mut progress = Progress::new(context.quiet);
        let mut tell = |event: Event| show(&mut progress, &event);
        let outcome = dirscale::run(&config, Arc::clone(&fs), &mut *caches, stop, &mut tell);
        progress.finish();
        let label = turn.label.clone().unwrap_or_else(|| format!("directories on {}", turn.target));
        let record = RunRecord {
            config: self.config_json(&config, turn.target),
            seed: config.seed,
            complete: outcome.complete,
            phases: outcome.phases,
            curves: outcome.curves,
            metrics: outcome.metrics,
            verdict: outcome.verdict,
            ..begun.record(context, label)
        };
        let interrupted = stop.load(Ordering::Relaxed);
        let error = outcome.error.map(|error| leaving.said_in(error.into()));
        let any_measured =
            record.curves.iter().flat_map(|curve| &curve.lines).any(|line| !line.points.is_empty());
        Ok(Run { record, any_measured, error, interrupted })
    }

    fn config(&self, id: &RunId) -> DirscaleConfig {
        let entropy = id.0.rsplit('-').next().unwrap_or_default();
        let (keep, name) = match (&self.keep, &self.reuse) {
            (Some(name), _) => (Keep::Keep, name.as_str()),
            (None, Some(name)) => (Keep::Reuse, name.as_str()),
            (None, None) => (Keep::Remove, entropy),
        };
        DirscaleConfig {
            layouts: self.layout.clone(),
            sizes: self.sizes.clone(),
            file_bytes: self.file_bytes,
            operations: self.operations,
            cache: match (self.warm, self.cold_names) {
                (true, _) => Cache::Warm,
                (_, true) => Cache::ColdNames,
                _ => Cache::Cold,
            },
            seed: self.seed,
            rounds: self.rounds,
            readings: self.readings,
            frequencies: self.frequencies.unwrap_or_default(),
            keep,
            ..DirscaleConfig::new(name)
        }
    }

    fn config_json(&self, config: &DirscaleConfig, target: &Target) -> serde_json::Value {
        let layouts: Vec<String> = config.layouts.iter().map(ToString::to_string).collect();
        serde_json::json!({
            "layouts": layouts,
            "sizes": config.sizes.to_string(),
            "file_bytes": config.file_bytes,
            "operations": config.operations,
            "cache": config.cache.to_string(),
            "rounds": config.rounds,
            "readings": config.readings,
            "frequencies_per_day": config.frequencies.to_string(),
            // One that is removed has another name each time, which is no setting that differs.
            "set": (config.keep != Keep::Remove).then(|| format!("{}{}", dirscale::SET_PREFIX, config.set_name)),
            "storage": self.storage.config_json(target),
        })
    }

    fn announce(&self, target: &Target, config: &DirscaleConfig) {
        let layouts: Vec<String> = config.layouts.iter().map(ToString::to_string).collect();
        eprintln!(
            "directories of {} files on {target}: {}; {}, seed {}",
            config.sizes,
            layouts.join(", "),
            config.cache,
            config.seed,
        );
        eprintln!("Ctrl-C ends it with what it has");
    }
}

/// What can drop the caches under this storage.
fn caches_of(fs: &dyn FileSystem) -> anyhow::Result<Box<dyn CacheControl>> {
    Ok(match fs.local_root() {
        Some(root) => Box::new(
            KernelCaches::open(root).with_context(|| format!("cannot use directory {}", root.display()))?,
        ),
        None => {
            Box::new(UnreachableCaches { why: "the server's caches cannot be dropped from here".to_owned() })
        }
    })
}

fn show(progress: &mut Progress, event: &Event) {
    let count = report::count_text;
    match event {
        Event::Note(text) => progress.say(wrapped("", text).trim_end()),
        Event::Progress { work: Work::Fill(layout), done, of } => {
            progress.step(*done, *of, format!("{layout}: making files: {} of {}", count(*done), count(*of)));
        }
        Event::Progress { work: Work::Remove, done, of } => {
            progress.step(*done, *of, format!("removing files: {} of {}", count(*done), count(*of)));
        }
        Event::SizeBegins { files, number, sizes } => {
            let text = format!("{} files, size {number} of {sizes}", count(*files));
            progress.step(*number as u64 - 1, *sizes as u64, text);
        }
        _ => {}
    }
}

/// A table for each layout; what the layouts pay for stands in the verdict.
fn tables_of(record: &RunRecord) -> String {
    let columns = [
        ("lookup_random_us", "random"),
        ("lookup_sequential_us", "sequential"),
        ("add_us", "add"),
        ("remove_us", "remove"),
        ("readdir_us", "read whole"),
        ("day_us", "day's mean"),
    ];
    let mut labels: Vec<&str> = Vec::new();
    for label in record.curves.iter().flat_map(|curve| &curve.lines).map(|line| line.label.as_str()) {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let mut text = String::new();
    for label in labels {
        let points = |name: &str| {
            let curve = record.curves.iter().find(|curve| curve.name == name);
            let line = curve.and_then(|curve| curve.lines.iter().find(|line| line.label == label));
            line.map_or(&[][..], |line| &line.points)
        };
        let rows: Vec<Vec<String>> = points("day_us")
            .iter()
            .map(|at| {
                let cell = |name: &str| {
                    let point = points(name).iter().find(|point| point.x == at.x);
                    point.map_or_else(|| "-".to_owned(), |point| us_text(point.y))
                };
                let files = report::count_text(at.x as u64);
                std::iter::once(files).chain(columns.iter().map(|(name, _)| cell(name))).collect()
            })
            .collect();
        let heads: Vec<&str> =
            std::iter::once("files").chain(columns.iter().map(|(_, head)| *head)).collect();
        text.push_str(&format!("{label}: microseconds an operation\n{}\n", grid(&heads, 0, &rows)));
    }
    if record.curves.iter().any(|curve| curve.name == "day_us") {
        text.push_str(&wrapped(
            "",
            "read whole: one reading of the whole directory; day's mean: an operation of the day on average, each kind as \
             often as --frequencies says",
        ));
        text.push('\n');
    }
    // The tables have told the metrics.
    text + &tables::summary(&RunRecord { metrics: Default::default(), ..record.clone() })
}

/// Three digits, or all before the point.
fn us_text(us: f64) -> String {
    match us {
        us if us >= 100.0 => report::count_text(us.round() as u64),
        us if us >= 10.0 => format!("{us:.1}"),
        us => format!("{us:.2}"),
    }
}

fn operations(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse::<u32>().ok().filter(|count| *count <= OPERATIONS_MAX);
    number.and_then(NonZeroU32::new).ok_or_else(|| format!("expected a number from 1 to {OPERATIONS_MAX}"))
}
