//! `crumb run postmark`: PostMark's run on any target, with latencies, threads, and what held it up.

mod figures;
mod folder;
mod watch;
mod whole;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use anyhow::Context as _;
use bytesize::ByteSize;
use clap::Args;
use files::{FileSystem, Target};
use harness::PhaseGate as _;
use harness::ranks::{RankGroup, Replicas};
use measure::{CpuTimes, LoadPoint, Phase, RunId, RunRecord, Usage, Verdict};
use postmark::engine::{self, Event, Outcome, Place, RunOptions, SyncMode};
use postmark::figures::{load_point, metrics, verdict};
use postmark::{Bias, Settings, SizeRange};

use super::ranks::{self, Series, on_all};
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::counted;
use crate::openers::FileSystemArgs;
use crate::outcome::{Begun, OutputArgs, Run};
use crate::room::{self, Need};
use crate::series::{SeriesArgs, Turn};
use crate::{signals, tables};
use figures::{beside_2001, settings_of_2001};
use folder::Folder;
use watch::{Expected, Watch};

/// Make, read, grow and remove many small files, as a busy mail server does it (PostMark).
///
/// A closed loop: each thread asks for the next operation when the one before is done. With one thread the counts are
/// those of PostMark 1.51 with equal settings and seed. All is done in a folder of its own, removed at the end.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunPostmarkArgs {
    /// A directory, or nfs://host[:port]/export[?proto=udp|tcp&mountport=N]
    target: Target,

    /// Settings to begin with: those of PostMark, or of the comparison of 2001 (10,000 files of 10 to 20 KiB, 100,000
    /// transactions, 10 subdirectories)
    #[arg(long, value_enum, default_value = "defaults", value_name = "NAME")]
    preset: Preset,

    /// Files made before the transactions
    #[arg(long, value_name = "N")]
    number: Option<NonZeroU32>,

    /// Transactions: each reads or appends, and creates or deletes
    #[arg(long, value_name = "N")]
    transactions: Option<NonZeroU32>,

    /// Sizes of files, such as 500..10000, 10KiB..20KiB or 4KiB
    #[arg(long, value_name = "LOW..HIGH", value_parser = sizes)]
    size: Option<SizeRange>,

    /// Spread the files over this many subdirectories
    #[arg(long, value_name = "N")]
    subdirectories: Option<u32>,

    /// Bytes asked for by one read
    #[arg(long, value_name = "SIZE", value_parser = block)]
    read_block: Option<NonZeroU32>,

    /// Bytes handed over by one write
    #[arg(long, value_name = "SIZE", value_parser = block)]
    write_block: Option<NonZeroU32>,

    /// Reading rather than appending, in tenths: 0 to 10, -1 for neither
    #[arg(long, value_name = "TENTHS", value_parser = bias, allow_negative_numbers = true)]
    read_bias: Option<Bias>,

    /// Creating rather than deleting, in tenths: 0 to 10, -1 for neither
    #[arg(long, value_name = "TENTHS", value_parser = bias, allow_negative_numbers = true)]
    create_bias: Option<Bias>,

    /// One system call a block, instead of a stream buffer as stdio has it
    #[arg(long)]
    unbuffered: bool,

    /// Same seed, same operations [default: 42]
    #[arg(long, value_name = "N")]
    seed: Option<u32>,

    /// Workers side by side, each with its own files and table
    #[arg(long, default_value = "1", value_name = "N")]
    threads: NonZeroUsize,

    /// When data must be durable: none (when the system likes), close (before each file is closed), every (after each
    /// write)
    #[arg(long, value_enum, default_value = "none", value_name = "WHEN")]
    sync: SyncFlag,

    /// Show the published figures of 2001 beside the result
    #[arg(long)]
    beside_2001: bool,

    #[command(flatten)]
    file_system: FileSystemArgs,

    #[command(flatten)]
    series: SeriesArgs,

    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  A first look at a disk:
    crumb run postmark /mnt/disk
  The settings of the 2001 comparison, its figures beside ours:
    crumb run postmark /mnt/disk --preset 2001 --beside-2001
  A filer, spoken to directly, by eight workers:
    crumb run postmark nfs://filer/vol --threads 8
  Does every file survive a power cut, and at what price?
    crumb run postmark /mnt/disk --sync close
  Is the new volume faster? Interleaved runs, with the answer and how sure it is:
    crumb run postmark /mnt/old --vs /mnt/new --repeat 10

The old program's commands and reports: `crumb postmark --help`.
Exit status: 0 fine, 1 the run failed, 2 wrong usage, 3 done but the verdict is INVALID, 130 interrupted.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Preset {
    /// PostMark's own defaults: 500 files of 500 to 10,000 bytes, 500 transactions
    Defaults,
    /// The comparison of 2001
    #[value(name = "2001")]
    Of2001,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SyncFlag {
    None,
    Close,
    Every,
}

/// Runs the verb.
pub fn run(args: RunPostmarkArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    args.run_in(&mut RankGroup::solo(), &signals::stop_flag_of(context)?, context)
}

impl RunPostmarkArgs {
    /// Runs the verb as one rank of `group`, each a copy with its own files; or alone. `stop` ends it early and is set
    /// when another rank does.
    ///
    /// # Errors
    /// What ended the run, on whichever rank.
    pub fn run_in(
        self,
        group: &mut RankGroup,
        stop: &Arc<AtomicBool>,
        context: &Context,
    ) -> anyhow::Result<ExitStatus> {
        let settings = self.settings();
        let sides = ranks::sides(group, &self.target, &self.series.vs, &[], u64::from(settings.seed))?;
        let series = Series { args: &self.series, sides: &sides, output: &self.output, context, stop };
        let measure_one =
            |turn: Turn<'_>, group: &mut RankGroup| self.measure_one(turn, &settings, context, stop, group);
        series.run(group, measure_one, |record| {
            let mut text = tables::load_points(record) + &tables::phases(&record.phases);
            text.push_str(&record.points.iter().map(tables::operations).collect::<String>());
            text.push_str(&record.points.iter().map(tables::ranks).collect::<String>());
            if self.beside_2001 {
                text.push_str(&beside_2001(record, &settings));
            }
            text + &tables::summary(record)
        })
    }

    fn settings(&self) -> Settings {
        let mut settings = match self.preset {
            Preset::Defaults => Settings::default(),
            Preset::Of2001 => settings_of_2001(),
        };
        fn set<T: Copy>(place: &mut T, value: Option<T>) {
            *place = value.unwrap_or(*place);
        }
        set(&mut settings.number, self.number);
        set(&mut settings.transactions, self.transactions);
        set(&mut settings.size, self.size);
        set(&mut settings.subdirectories, self.subdirectories);
        set(&mut settings.read_block, self.read_block);
        set(&mut settings.write_block, self.write_block);
        set(&mut settings.read_bias, self.read_bias);
        set(&mut settings.create_bias, self.create_bias);
        set(&mut settings.seed, self.seed);
        settings.buffered = !self.unbuffered;
        settings
    }

    fn measure_one(
        &self,
        turn: Turn<'_>,
        settings: &Settings,
        context: &Context,
        stop: &Arc<AtomicBool>,
        group: &mut RankGroup,
    ) -> anyhow::Result<Run> {
        let mut begun = Begun::now("postmark", turn.target);
        begun.id = RunId(group.broadcast(begun.id.0)?);
        group.same_terms(self.terms(turn.target, settings))?;
        let storage = on_all(group, "reaching the storage", self.file_system.open(turn.target, stop))?;
        let less = "ask for less (--number, --size, --threads)";
        let room = room::ensure(&*storage, self.need(settings), less);
        on_all(group, "room on the storage", room)?;
        let made = Folder::make(&storage, &ranks::own_name(group, Folder::name_of(&begun.id)));
        let all_made = group.all_did("making a folder", problem_of(&made));
        let folder = made?;
        let leaving = context.interruption.would_leave(format!(
            "{} in {}; remove it with rm -r",
            folder.name().display(),
            turn.target
        ));
        let told = |error| leaving.said_in(error);
        if let Err(error) = all_made {
            folder.remove().map_err(told)?;
            return Err(error.into());
        }
        if group.is_joined() && !context.quiet {
            let threads = counted(self.threads.get(), "thread", "threads");
            eprintln!("PostMark on {}, {threads} a rank; seed {} and up", turn.target, settings.seed);
            ranks::announce(group);
        }
        let of_rank = self.settings_of_rank(settings, group.rank());
        let hosts = group.hosts().to_vec();
        let mut replicas = Replicas::new(group, stop);
        let mut watch = Watch::new(&*storage, context.quiet, replicas.is_joined());
        let how = RunOptions {
            sync: match self.sync {
                SyncFlag::None => SyncMode::None,
                SyncFlag::Close => SyncMode::Close,
                SyncFlag::Every => SyncMode::Every,
            },
            latencies: true,
            ..RunOptions::default()
        };
        let drive = |events: mpsc::Sender<Event>, replicas: &mut Replicas<'_>| -> anyhow::Result<Outcome> {
            let place = Place { fs: Arc::clone(&folder.inside), weight: NonZeroU32::MIN };
            // The receiver is gone only when this thread is not waited for any more.
            let mut tell = |event| drop(events.send(event));
            Ok(engine::run_as_rank(&of_rank, &[place], &how, self.threads, replicas, stop, &mut tell)?)
        };
        let (events, heard) = mpsc::channel();
        let outcome = std::thread::scope(|scope| {
            let engine = std::thread::Builder::new().name("postmark".to_owned());
            let (drive, replicas) = (&drive, &mut replicas);
            let engine = engine
                .spawn_scoped(scope, move || drive(events, replicas))
                .context("cannot start the run's thread")?;
            watch.listen(&heard, &how.done, &self.expected(settings));
            engine.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        watch.finish();
        // Also after an error: the folder is ours and empty, unless something in it could not be removed.
        let removed = folder.remove();
        let all_well = replicas.end(problem_of(&outcome).or(problem_of(&removed)));
        let outcome = outcome.map_err(told)?;
        removed.map_err(told)?;
        all_well?;

        let label = turn.label.unwrap_or_else(|| format!("postmark on {}", turn.target));
        let usage = self.usage(&outcome, &watch, &*storage);
        let phases = watch.phases(&outcome);
        let figures = if hosts.is_empty() {
            Figures {
                points: vec![load_point(&outcome, self.threads)],
                metrics: metrics(&outcome, &usage),
                verdict: verdict(&outcome, &usage),
                complete: outcome.complete(),
                phases,
            }
        } else {
            whole::figures(&mut replicas, &outcome, &usage, watch.with_steps(phases, &outcome), &hosts)?
        };
        let record = RunRecord {
            config: ranks::with_hosts(self.config_json(settings, turn.target), &hosts),
            seed: u64::from(settings.seed),
            complete: figures.complete,
            metrics: figures.metrics,
            verdict: figures.verdict,
            phases: figures.phases,
            points: figures.points,
            ..begun.record(context, label)
        };
        Ok(Run { record, any_measured: true, error: None, interrupted: stop.load(Ordering::Relaxed) })
    }

    /// Each rank's workers draw otherwise: two ranks of one thread do what one process of two threads does.
    fn settings_of_rank(&self, settings: &Settings, rank: u32) -> Settings {
        let seeds_before = rank.wrapping_mul(self.threads.get() as u32);
        Settings { seed: settings.seed.wrapping_add(seeds_before), ..settings.clone() }
    }

    /// What must be the same on all ranks, by name.
    fn terms(&self, target: &Target, settings: &Settings) -> Vec<(String, String)> {
        let terms = [
            ("target", target.to_string()),
            ("settings", format!("{settings:?}")),
            ("threads and --sync", format!("{} {:?}", self.threads, self.sync)),
            ("way to the storage", format!("{:?}", self.file_system)),
            ("repeats", format!("{:?}", self.series)),
        ];
        terms.into_iter().map(|(name, term)| (name.to_owned(), term)).collect()
    }

    /// Of what is there when the transactions begin; what they add and remove is even, by the defaults.
    fn need(&self, settings: &Settings) -> Need {
        let files = u64::from(settings.number.get()) * self.threads.get() as u64;
        let sizes = u64::from(settings.size.low()) + u64::from(settings.size.high());
        // Nine tenths: sizes are drawn, and the mean of few may be below that of the law.
        Need { bytes: files.saturating_mul(sizes / 2) / 10 * 9, files }
    }

    fn expected(&self, settings: &Settings) -> Expected {
        let all = |each: NonZeroU32| u64::from(each.get()) * self.threads.get() as u64;
        Expected { files: all(settings.number), transactions: all(settings.transactions) }
    }

    fn usage(&self, outcome: &Outcome, watch: &Watch, storage: &dyn FileSystem) -> Usage {
        let cpu = outcome.phases.iter().fold(CpuTimes::default(), |sum, times| CpuTimes {
            user: sum.user + times.cpu.user,
            sys: sum.sys + times.cpu.sys,
        });
        Usage {
            wall: outcome.phases.iter().map(engine::PhaseTimes::wall).sum(),
            cpu,
            threads: self.threads.get(),
            bytes_asked: outcome.counts.bytes_read + outcome.counts.bytes_written,
            disk: watch.disk(),
            remote: storage.local_root().is_none(),
        }
    }

    fn config_json(&self, settings: &Settings, target: &Target) -> serde_json::Value {
        serde_json::json!({
            "number": settings.number,
            "transactions": settings.transactions,
            "size_low_bytes": settings.size.low(),
            "size_high_bytes": settings.size.high(),
            "subdirectories": settings.subdirectories,
            "read_block_bytes": settings.read_block,
            "write_block_bytes": settings.write_block,
            "read_bias": settings.read_bias.value(),
            "create_bias": settings.create_bias.value(),
            "buffered": settings.buffered,
            "threads": self.threads,
            "sync": format!("{:?}", self.sync).to_lowercase(),
            "nfs": self.file_system.config_json(target),
        })
    }
}

/// What a record says of a run, of one process or of all ranks.
struct Figures {
    points: Vec<LoadPoint>,
    phases: Vec<Phase>,
    metrics: BTreeMap<String, f64>,
    verdict: Verdict,
    complete: bool,
}

fn problem_of<T>(done: &anyhow::Result<T>) -> Option<String> {
    done.as_ref().err().map(|error| format!("{error:#}"))
}

fn block(text: &str) -> Result<NonZeroU32, String> {
    let size: ByteSize = text.parse().map_err(|_| "expected a size such as 512 or 4KiB".to_owned())?;
    u32::try_from(size.as_u64())
        .ok()
        .and_then(NonZeroU32::new)
        .filter(|size| size.get() <= 1 << 30)
        .ok_or_else(|| "expected a size from 1 byte to 1 GiB".to_owned())
}

fn sizes(text: &str) -> Result<SizeRange, String> {
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    let (low, high) = (block(low)?, block(high)?);
    if low > high {
        return Err(format!("the first size, {low}, is larger than the second, {high}"));
    }
    Ok(SizeRange::new(low, high))
}

fn bias(text: &str) -> Result<Bias, String> {
    let value = text.parse().ok().and_then(Bias::new);
    value.ok_or_else(|| "expected 0 to 10 (tenths), or -1 for neither".to_owned())
}
