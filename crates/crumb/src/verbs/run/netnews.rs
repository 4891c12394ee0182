//! `crumb run netnews`: a news feed stored, fed on and expired in passes.

mod course;
mod figures;
mod made_up;
mod resumed;
mod sides;
mod whole;

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytesize::ByteSize;
use clap::Args;
use files::Target;
use harness::ranks::{RankGroup, Replicas};
use harness::{PhaseGate as _, RankState};
use measure::{RunId, RunRecord};
use netnews::feed::synthesize::{SynthesisConfig, synthesize};
use netnews::feed::{Feed, FeedProgress, Watch};
use netnews::spool::{
    self, BatchSink, Event, HistoryIndex, Keep, LinkKind, NetnewsConfig, PlaceRule, Removal, Storage,
    SyncWhen, Work,
};

use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::names::kept_name;
use crate::openers::FileSystemArgs;
use crate::outcome::{Begun, OutputArgs, Run};
use crate::progress::Progress;
use crate::ranks::{self, Series, on_all};
use crate::room::{self, Need};
use crate::series::{SeriesArgs, Sides, Turn, try_mounts};
use crate::signals;
use course::Course;
use made_up::MadeUp;
use resumed::Resumed;

/// Store a news feed as numbered files, feed it on and expire it, pass after pass.
///
/// One article after another, as a news server does: look it up, number it in its groups, make its file and the links
/// of a cross-post, note it in history. Every third pass writes outgoing batches of the pass before, and from the
/// seventh on each pass deletes what is older than six: the paper's week. The spool is removed at the end.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct NetnewsArgs {
    /// A directory, or nfs://host[:port]/export[?proto=udp|tcp&mountport=N]
    target: Target,

    /// Store this feed (`crumb feed`) [default: one made up for the run, see --articles]
    #[arg(long, value_name = "FEED")]
    feed: Option<PathBuf>,

    /// Articles to make up when there is no --feed [default: 300000; with --quick 20000]
    #[arg(long, value_name = "N", conflicts_with = "feed")]
    articles: Option<NonZeroU64>,

    /// Make up articles of this size together instead, such as 4GiB; auto: as much as there is memory in each pass, so
    /// that no pass is batched from memory
    #[arg(long, value_name = "auto|SIZE", conflicts_with_all = ["feed", "articles"], value_parser = feed_bytes)]
    feed_bytes: Option<FeedBytes>,

    /// Same seed, same articles made up and same ones read
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// A small feed in 5 passes that keep 2, ended after 100 s at the latest
    #[arg(long)]
    quick: bool,

    /// Passes [default: 14; with --quick 5]
    #[arg(long, value_name = "N")]
    passes: Option<NonZeroU32>,

    /// Passes that articles are kept [default: 6; with --quick 2]
    #[arg(long, value_name = "PASSES")]
    retention: Option<NonZeroU32>,

    /// Write outgoing batches every so many passes, 0 for never [default: 3; with --quick 2]
    #[arg(long, value_name = "PASSES")]
    batch_every: Option<u32>,

    /// Batches of the feed a pass, the last of which may have fewer [default: all of the feed, spread evenly]
    #[arg(long, value_name = "N")]
    batches_per_pass: Option<NonZeroU64>,

    /// Write the outgoing batches to files in this directory instead of nowhere; of several ranks (crumb-mpi) each into its
    /// own folder rank-N. It is made when it is missing, but no directory above it
    #[arg(long, value_name = "DIRECTORY", value_parser = crate::output::results_directory)]
    batches_to: Option<PathBuf>,

    /// How expired files are deleted: one by one in the order of history, or sorted by directory
    #[arg(long, default_value = "fastrm", value_parser = Removal::from_str, value_name = "dumbrm|fastrm")]
    rm: Removal,

    /// When articles must be durable: none (when the system likes), article (each file before it is closed), batch (all
    /// of a batch at its end)
    #[arg(long, default_value = "none", value_parser = SyncWhen::from_str, value_name = "none|article|batch")]
    sync: SyncWhen,

    /// Drop the kernel's caches before each batching and each expiry, and prove that they are empty (root only)
    #[arg(long)]
    cold: bool,

    /// Threads that read articles at random while others are stored
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=i64::from(READERS_MAX)), value_name = "N")]
    readers: u32,

    /// Keep history, active and the batch file on another target
    #[arg(long, value_name = "TARGET")]
    history: Option<Target>,

    /// Where ids are looked up: in memory, or slot by slot in the index file on the storage, as C News' dbz did
    #[arg(long, default_value = "memory", value_parser = HistoryIndex::from_str, value_name = "memory|file")]
    history_index: HistoryIndex,

    /// Put hierarchies on other targets, such as 'alt.*=/disk2,comp.*=/disk3'
    #[arg(long, value_name = "HIERARCHY=TARGET", value_delimiter = ',')]
    place: Vec<PlaceRule>,

    /// How a cross-post gets its other names
    #[arg(long, default_value = "hard", value_parser = LinkKind::from_str, value_name = "hard|symlink")]
    link: LinkKind,

    /// Leave the spool under this name, to be verified or resumed
    #[arg(long, value_name = "NAME", conflicts_with = "resume", value_parser = kept_name)]
    keep: Option<String>,

    /// Go on with the spool that --keep left under this name, or a run that was killed; it is kept
    #[arg(long, value_name = "NAME", value_parser = kept_name)]
    resume: Option<String>,

    #[command(flatten)]
    storage: FileSystemArgs,

    #[command(flatten)]
    series: SeriesArgs,

    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  A first look at a disk, within two minutes:
    crumb run netnews /mnt/disk --quick
  The paper's week on a filer, with its pictures:
    crumb run netnews nfs://filer/vol --report filer.html
  Does it pay to spread hierarchies over disks by hand?
    crumb run netnews /disk1 --place 'alt.*=/disk2,comp.*=/disk3'
  What does the disk do when memory does not help: articles on it before the next batch, and read back cold (root)
    crumb run netnews /mnt/disk --sync batch --cold
  What does it cost to keep history on the filer, as C News kept it?
    crumb run netnews /mnt/disk --history-index file --vs history=nfs://filer/vol
  Which way of deleting, which links, which mount option? Each against the first:
    crumb run netnews /mnt/disk --vs rm=dumbrm --vs link=symlink --vs mount=noatime
  How do eight people who read feel it?
    crumb run netnews /mnt/disk --readers 8
  Keep what was stored, and check every file of it:
    crumb run netnews /mnt/disk --feed feed --keep mine
    crumb feed verify /mnt/disk/crumb-netnews-mine

Ctrl-C ends the run early: what was measured is kept and the spool removed, or left with --keep.
Exit status: 0 fine, 1 the run failed, 2 wrong usage, 3 done but the verdict is INVALID, 130 interrupted.";

const READERS_MAX: u32 = 1024;
/// Of an article of the default model, about.
const ARTICLE_BYTES_MEAN: u64 = 3_000;
/// The paper's half week.
const ARTICLES: NonZeroU64 = NonZeroU64::new(300_000).expect("not 0");
const ARTICLES_QUICK: NonZeroU64 = NonZeroU64::new(20_000).expect("not 0");
/// With making the feed and removing the spool this stays below two minutes.
const QUICK_LIMIT: Duration = Duration::from_secs(100);

/// Runs the verb.
pub fn run(args: NetnewsArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    // Before the feed, which may take minutes to make.
    args.output.check(context)?;
    args.run_in(&mut RankGroup::solo(), &signals::stop_flag_of(context)?, context)
}

impl NetnewsArgs {
    /// Runs the verb as one rank of `group`, each a copy with a spool of its own; or alone. `stop` ends it early and is
    /// set when another rank does.
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
        let several = !args.series.vs.is_empty()
            || args.series.until_ci.is_some()
            || args.series.repeat.is_some_and(|rounds| rounds.get() > 1);
        if let (Some(name), true) = (args.keep.as_ref().or(args.resume.as_ref()), several) {
            let wrong = anyhow::anyhow!(
                "a spool that is kept ({name}) is for a run made alone; leave --repeat and --vs out"
            );
            return Err(wrong.context(BadUsage));
        }
        let sides = ranks::sides(group, &args.target, &args.series.vs, &args.keys(), args.seed)?;
        group.same_terms(args.terms())?;
        // What each side is to do, checked before anything is made up or measured.
        let mut asked = Vec::new();
        for variant in &sides.variants {
            let varied = args.varied(&variant.settings)?;
            let storage = on_all(group, "reaching the storage", varied.storage(&variant.target, stop))?;
            on_all(group, "room on the storage", varied.ensure_room(&storage))?;
            asked.push(varied);
        }
        args.something_to_judge(&sides)?;
        on_all(group, "mounting each side", try_mounts(&sides))?;
        // Made once, so that all runs of a series store the same bytes.
        let made_up = MadeUp::folder(group.rank(), &args.local_directories(&sides), args.feed_bytes());
        let _leaving = (args.feed.is_none()).then(|| {
            let path = made_up.path.parent().unwrap_or(&made_up.path).display();
            context
                .interruption
                .would_leave(format!("the feed made up for the run, {path}; remove it with rm -r"))
        });
        let feed = args.feed(&made_up, group.rank(), context, stop);
        let feed = on_all(group, "the feed", feed)?;
        let series = Series { args: &args.series, sides: &sides, output: &args.output, context, stop };
        let measure_one = |turn: Turn<'_>, group: &mut RankGroup| {
            asked[turn.side].measure_one(&turn, &feed, context, stop, group)
        };
        series.run(group, measure_one, figures::shown)
    }

    /// What must be the same on all ranks, by name.
    fn terms(&self) -> Vec<(String, String)> {
        // All of it: what is missing here would show as figures that mean nothing.
        let output = OutputArgs { label: None, json: None, report: None, no_store: false };
        let everything = format!("{:?}", Self { output, ..self.clone() });
        let terms = [
            ("target", self.target.to_string()),
            ("seed", self.seed.to_string()),
            ("repeats", format!("{:?}", self.series)),
            ("flags", everything),
        ];
        terms.into_iter().map(|(name, term)| (name.to_owned(), term)).collect()
    }
}

impl NetnewsArgs {
    fn articles_to_make_up(&self) -> NonZeroU64 {
        let default = if self.quick { ARTICLES_QUICK } else { ARTICLES };
        let of_bytes = |bytes: u64| NonZeroU64::new(bytes / ARTICLE_BYTES_MEAN).unwrap_or(NonZeroU64::MIN);
        match self.feed_bytes {
            None => self.articles.unwrap_or(default),
            Some(FeedBytes::Size(bytes)) => of_bytes(bytes),
            // What a pass stores pushes what the pass before stored out of memory, whatever is cached.
            Some(FeedBytes::Auto) => {
                let passes = u64::from(self.config(&RunId(String::new())).passes.get());
                of_bytes(measure::memory_bytes().unwrap_or(0).saturating_mul(passes))
            }
        }
    }

    /// Bytes of the feed's articles, about; 0 for a feed that cannot be opened, which is told when it is its turn.
    fn feed_bytes(&self) -> u64 {
        match &self.feed {
            Some(path) => Feed::open(path.clone()).map_or(0, |feed| feed.bytes()),
            None => self.articles_to_make_up().get().saturating_mul(ARTICLE_BYTES_MEAN),
        }
    }

    /// The passes that are kept are there together with the one under way. One in ten articles is a duplicate, a cancel or
    /// is cancelled.
    fn ensure_room(&self, storage: &Storage) -> anyhow::Result<()> {
        // Which hierarchies go elsewhere, and how much they have, shows only when they are stored.
        if self.resume.is_some() || !storage.places.is_empty() {
            return Ok(());
        }
        let config = self.config(&RunId(String::new()));
        let passes = u64::from(config.passes.get());
        let at_once = (u64::from(config.retention.get()) + 1).min(passes);
        let share =
            |all: u64| u64::try_from(u128::from(all) * u128::from(at_once * 9) / u128::from(passes * 10));
        let bytes = share(self.feed_bytes()).unwrap_or(u64::MAX);
        let need = Need { bytes, files: bytes / ARTICLE_BYTES_MEAN };
        // How large the articles of a feed are the feed alone knows.
        let need = if self.feed.is_some() { Need { files: 0, ..need } } else { need };
        room::ensure(&*storage.spool, need, "ask for fewer --articles or a shorter --retention")
    }

    /// Directories of this machine that are written to or measured.
    fn local_directories(&self, sides: &Sides) -> Vec<PathBuf> {
        let places = self.place.iter().filter_map(|rule| Target::from_str(&rule.target).ok());
        let targets = sides.variants.iter().map(|variant| variant.target.clone()).chain(self.history.clone());
        let directory = |target| match target {
            Target::Directory(path) | Target::Pack(path) => Some(path),
            Target::Nfs(_) | Target::Null => None,
        };
        targets.chain(places).filter_map(directory).collect()
    }

    /// Runs that differ in how they delete and delete nothing have no figure to be judged by, which would show only
    /// after the last of them.
    fn something_to_judge(&self, sides: &Sides) -> anyhow::Result<()> {
        let config = self.config(&RunId(String::new()));
        let judged_by_deleting =
            sides.variants.iter().any(|variant| variant.settings.iter().any(|setting| setting.key == "rm"));
        if judged_by_deleting && config.passes <= config.retention {
            let (passes, retention) = (config.passes, config.retention);
            let wrong = anyhow::anyhow!(
                "--vs rm=…: nothing is ever deleted in {passes} passes that keep {retention}; ask for more --passes, or \
                 for a --retention below them"
            );
            return Err(wrong.context(BadUsage));
        }
        Ok(())
    }

    /// Each rank makes up other articles.
    fn feed(
        &self,
        made_up: &MadeUp,
        rank: u32,
        context: &Context,
        stop: &AtomicBool,
    ) -> anyhow::Result<Feed> {
        if let Some(path) = &self.feed {
            return crate::verbs::feed::opened(path);
        }
        made_up.make(self.feed_bytes(), context)?;
        let articles = self.articles_to_make_up();
        let mut progress = Progress::new(context.quiet);
        let mut tell = |now: FeedProgress| {
            let of = now.articles_total.unwrap_or(0);
            let count = report::count_text;
            progress.step(
                now.articles,
                of,
                format!("making up articles: {} of {}", count(now.articles), count(of)),
            );
        };
        let config = SynthesisConfig::new(articles, self.seed.wrapping_add(rank.into()));
        let made = synthesize(&config, &made_up.path, &mut Watch { progress: &mut tell, stop });
        progress.finish();
        Ok(made.with_context(|| format!("cannot make up a feed in {}", made_up.path.display()))?.feed)
    }

    fn measure_one(
        &self,
        turn: &Turn<'_>,
        feed: &Feed,
        context: &Context,
        stop: &Arc<AtomicBool>,
        group: &mut RankGroup,
    ) -> anyhow::Result<Run> {
        let mut begun = Begun::now("netnews", turn.target);
        begun.id = RunId(group.broadcast(begun.id.0)?);
        let mut config = self.config(&begun.id);
        let common_name = std::mem::take(&mut config.name);
        config.name = ranks::own_name(group, common_name.clone());
        if let (BatchSink::Folder(folder), true) = (&mut config.batches_to, group.is_joined()) {
            folder.push(format!("rank-{}", group.rank()));
        }
        let storage = on_all(group, "reaching the storage", self.storage(turn.target, stop))?;
        let directory = spool::directory_of(&config.name);
        let leaving = context.interruption.would_leave(match config.keep {
            Keep::Remove => format!("{} in {}; remove it with rm -r", directory.display(), turn.target),
            Keep::Keep | Keep::Resume => {
                format!("{} in {}; --resume {common_name} goes on with it", directory.display(), turn.target)
            }
        });
        if !context.quiet {
            announce(turn.target, &config, feed);
            ranks::announce(group);
        }
        let resumed = if config.keep == Keep::Resume && group.is_joined() {
            Resumed::agree(group, &common_name, &config, &storage)?
        } else {
            Resumed::default()
        };
        let hosts = group.hosts().to_vec();
        let mut replicas = Replicas::new(group, stop);
        let mut progress = Progress::new(context.quiet);
        replicas.enter("the first pass", RankState::On);
        for (phase, pass) in resumed.done_before {
            replicas.enter(&format!("what follows {phase} of pass {pass}"), RankState::On);
        }
        let mut course = replicas.is_joined().then(|| Course::new(resumed.not_whole));
        let mut tell = |event: Event| {
            show(&mut progress, &event);
            if let Some(course) = &mut course {
                course.hear(&event);
            }
        };
        let mut outcome = spool::run_as_rank(&config, &storage, feed, &mut replicas, stop, &mut tell);
        progress.finish();
        let mut error = outcome.error.take().map(|error| leaving.said_in(error.into()));
        if outcome.had_nothing_left() && !replicas.is_joined() {
            bail!("cannot continue spool {}: {}", config.name, resumed::nothing_left(&config));
        }
        if let Some(course) = &course {
            let all_well = replicas.end(error.as_ref().map(|error| format!("{error:#}")));
            if replicas.group().lost().is_some() {
                // What is left are this rank's figures, and those of one copy are not those of the whole.
                outcome = spool::Outcome::default();
            } else {
                whole::sum(&mut replicas, &mut outcome, course, &config)?;
            }
            error = error.or(all_well.err().map(Into::into));
        }
        let label = turn.label.clone().unwrap_or_else(|| format!("news on {}", turn.target));
        let record = RunRecord {
            config: ranks::with_hosts(self.config_json(&config, turn.target, feed), &hosts),
            seed: config.seed,
            complete: outcome.complete && error.is_none(),
            phases: outcome.phases,
            curves: outcome.curves,
            metrics: outcome.metrics,
            verdict: outcome.verdict,
            ..begun.record(context, label)
        };
        let interrupted = stop.load(Ordering::Relaxed);
        if config.keep != Keep::Remove && !context.quiet && error.is_none() {
            eprintln!(
                "left as {}; --resume {} goes on with it",
                spool::directory_of(&config.name).display(),
                common_name
            );
        }
        let any_measured = !record.phases.is_empty();
        Ok(Run { record, any_measured, error, interrupted })
    }

    fn storage(&self, target: &Target, stop: &Arc<AtomicBool>) -> anyhow::Result<Storage> {
        let mut places = Vec::new();
        for (at, rule) in self.place.iter().enumerate() {
            if let Some(before) = self.place[..at].iter().find(|before| before.hierarchy == rule.hierarchy) {
                let wrong = anyhow::anyhow!(
                    "--place names {} twice, for {} and for {}; a hierarchy is in one place",
                    rule.hierarchy,
                    before.target,
                    rule.target
                );
                return Err(wrong.context(BadUsage));
            }
            let target = Target::from_str(&rule.target)
                .map_err(|error| anyhow::Error::from(error).context(BadUsage))
                .with_context(|| format!("--place {}={}", rule.hierarchy, rule.target))?;
            places.push((rule.hierarchy.clone(), self.storage.open(&whole(&target), stop)?));
        }
        let history =
            self.history.as_ref().map(|target| self.storage.open(&whole(target), stop)).transpose()?;
        Ok(Storage { spool: self.storage.open(&whole(target), stop)?, history, places })
    }

    fn config(&self, id: &RunId) -> NetnewsConfig {
        let entropy = id.0.rsplit('-').next().unwrap_or_default();
        let (keep, name) = match (&self.keep, &self.resume) {
            (Some(name), _) => (Keep::Keep, name.as_str()),
            (None, Some(name)) => (Keep::Resume, name.as_str()),
            (None, None) => (Keep::Remove, entropy),
        };
        let paper = NetnewsConfig::paper(name);
        let number = |asked: Option<NonZeroU32>, full: NonZeroU32, quick: u32| {
            let quick = NonZeroU32::new(quick).filter(|_| self.quick);
            asked.or(quick).unwrap_or(full)
        };
        NetnewsConfig {
            passes: number(self.passes, paper.passes, 5),
            retention: number(self.retention, paper.retention, 2),
            batch_every: match self.batch_every {
                Some(every) => NonZeroU32::new(every),
                None => paper.batch_every.map(|every| number(None, every, 2)),
            },
            batches_per_pass: self.batches_per_pass,
            removal: self.rm,
            link: self.link,
            history_index: self.history_index,
            readers: self.readers,
            sync: self.sync,
            cold: self.cold,
            seed: self.seed,
            batches_to: self.batches_to.clone().map_or(BatchSink::Discard, BatchSink::Folder),
            time_limit: self.quick.then_some(QUICK_LIMIT),
            keep,
            ..paper
        }
    }

    fn config_json(&self, config: &NetnewsConfig, target: &Target, feed: &Feed) -> serde_json::Value {
        serde_json::json!({
            "feed": self.feed.as_ref().map(|path| path.display().to_string()),
            "feed_articles": feed.articles(),
            "feed_bytes": feed.bytes(),
            "feed_batches": feed.batch_count(),
            "passes": config.passes,
            "retention_passes": config.retention,
            "batch_every_passes": config.batch_every,
            "batches_per_pass": config.batches_per_pass,
            "rm": config.removal.name(),
            "link": config.link.name(),
            "readers": config.readers,
            "sync": config.sync.name(),
            "cold": config.cold,
            "history_index": config.history_index.name(),
            "history": self.history.as_ref().map(ToString::to_string),
            "places": self.place.iter().map(|rule| format!("{}={}", rule.hierarchy, rule.target)).collect::<Vec<_>>(),
            // One that is removed has another name each time, which is no setting that differs.
            "spool": (config.keep != Keep::Remove).then(|| spool::directory_of(&config.name).display().to_string()),
            "storage": self.storage.config_json(target),
        })
    }
}

/// A directory by its whole path: symbolic links between places hold it, and `crumb feed verify` looks there.
fn whole(target: &Target) -> Target {
    match target {
        Target::Directory(path) => {
            Target::Directory(std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        }
        other => other.clone(),
    }
}

/// How much to make up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FeedBytes {
    /// By the memory.
    Auto,
    /// This.
    Size(u64),
}

fn feed_bytes(text: &str) -> Result<FeedBytes, String> {
    if text == "auto" {
        return Ok(FeedBytes::Auto);
    }
    match text.parse::<ByteSize>() {
        Ok(size) if size.as_u64() >= 1 << 20 => Ok(FeedBytes::Size(size.as_u64())),
        _ => Err("expected auto, or a size of 1MiB or more, such as 4GiB".to_owned()),
    }
}

fn announce(target: &Target, config: &NetnewsConfig, feed: &Feed) {
    let count = report::count_text;
    eprintln!(
        "{} articles, {}, on {target}: {} passes, kept for {}; {}, seed {}",
        count(feed.articles()),
        report::bytes_text(feed.bytes()),
        config.passes,
        config.retention,
        config.removal.name(),
        config.seed,
    );
    eprintln!("Ctrl-C ends it with what it has");
}

fn show(progress: &mut Progress, event: &Event) {
    let count = report::count_text;
    match event {
        Event::Note(text) => progress.say(crate::layout::wrapped("", text).trim_end()),
        Event::Step { work, pass, passes, done, of } => {
            let what = match work {
                Work::Unbatch => format!("storing batch {} of {}", count(*done), count(*of)),
                Work::Batch => format!("writing outgoing batches: {} articles", count(*done)),
                Work::ExpireScan => format!("reading history: {} lines", count(*of)),
                Work::Expire => format!("deleting expired files: {} of {}", count(*done), count(*of)),
                Work::Remove => format!("removing the spool: {} files", count(*done)),
            };
            progress.step(*done, (*of).max(*done), format!("[{pass}/{passes}] {what}"));
        }
        _ => {}
    }
}
