//! Flags of `crumb run netnews`, and the settings that they ask for.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use clap::Args;
use files::Target;
use netnews::feed::Feed;
use netnews::spool::{BatchSink, HistoryIndex, Keep, LinkKind, NetnewsConfig, PlaceRule, Removal, SyncWhen};

use crate::exit::BadUsage;
use crate::names::kept_name;
use crate::openers::FileSystemArgs;
use crate::outcome::OutputArgs;
use crate::quantities::{QuantityError, count, count_in, size_in};
use crate::series::{SeriesArgs, Sides};
use crate::verbs::run::SEED_DEFAULT;

/// Measure a news spool: store, feed and expire articles, pass after pass.
///
/// For each article, as a news server does: look up its id, number it in its groups, create its file and the links
/// of a cross-post, write a line of history. Every third pass writes outgoing batches of the previous pass, and from the
/// seventh on each pass deletes the oldest pass, so that six are kept, as in Swartz's paper on news servers (LISA 1996). The spool is
/// removed at the end.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct NetnewsArgs {
    /// A directory, nfs://host[:port]/export[?proto=udp|tcp&mountport=N], or a packed store: pack:/path
    pub(super) target: Target,

    /// Feed to store (`crumb feed`) [default: synthesized for the run, see --articles]
    #[arg(long, value_name = "FEED")]
    pub(super) feed: Option<PathBuf>,

    /// Articles to synthesize without --feed [default: 300000; with --quick 20000]
    #[arg(long, value_name = "N", conflicts_with = "feed", value_parser = count::<NonZeroU64>)]
    pub(super) articles: Option<NonZeroU64>,

    /// Total size of the synthesized articles, such as 4GiB; auto: in each pass as much as there is memory, so that no
    /// pass is batched from memory
    #[arg(long, value_name = "auto|SIZE", conflicts_with_all = ["feed", "articles"], value_parser = feed_bytes)]
    pub(super) feed_bytes: Option<FeedBytes>,

    /// Seed of all random choices; the same seed synthesizes and reads the same articles
    #[arg(long, default_value_t = u64::from(SEED_DEFAULT), value_name = "N", value_parser = count::<u64>)]
    pub(super) seed: u64,

    /// Take a first look, done in less than a minute: a small feed in 5 passes, of which 2 are kept, ended after 30 s at the latest. Sets
    /// defaults only; flags that are given win
    #[arg(long)]
    pub(super) quick: bool,

    /// Passes [default: 14; with --quick 5]
    #[arg(long, value_name = "N", value_parser = count::<NonZeroU32>)]
    pub(super) passes: Option<NonZeroU32>,

    /// Passes for which articles are kept [default: 6; with --quick 2]
    #[arg(long, value_name = "PASSES", value_parser = count::<NonZeroU32>)]
    pub(super) retention: Option<NonZeroU32>,

    /// Write outgoing batches every N passes, 0 for never [default: 3; with --quick 2]
    #[arg(long, value_name = "PASSES", value_parser = count::<u32>)]
    pub(super) batch_every: Option<u32>,

    /// Batches of the feed per pass; the last pass may have fewer [default: the whole feed, spread evenly]
    #[arg(long, value_name = "N", value_parser = count::<NonZeroU64>)]
    pub(super) batches_per_pass: Option<NonZeroU64>,

    /// Directory for the outgoing batches, which are discarded otherwise; each rank of crumb-mpi writes to a folder rank-N.
    /// Created if missing, but not its parents
    #[arg(long, value_name = "DIRECTORY", value_parser = crate::output::results_directory)]
    pub(super) batches_to: Option<PathBuf>,

    /// Deletion of expired files: one by one in the order of history (dumbrm), or sorted by directory (fastrm)
    #[arg(long, default_value = "fastrm", value_parser = Removal::from_str, value_name = "dumbrm|fastrm")]
    pub(super) rm: Removal,

    /// Make articles durable: none (when the system writes them), article (each file before it is closed), batch (all
    /// files of a batch at its end)
    #[arg(long, default_value = "none", value_parser = SyncWhen::from_str, value_name = "none|article|batch")]
    pub(super) sync: SyncWhen,

    /// Drop the kernel's caches before each batching and each expiry, and prove that they are empty (root only)
    #[arg(long)]
    pub(super) cold: bool,

    /// Threads that read articles at random while others are stored
    #[arg(long, default_value_t = 0, value_parser = count_in::<u32>(0..=u64::from(READERS_MAX)), value_name = "N")]
    pub(super) readers: u32,

    /// Keep history, active and the batch file on another target
    #[arg(long, value_name = "TARGET")]
    pub(super) history: Option<Target>,

    /// Index of message ids: in memory, or a file on the storage read slot by slot, as in C News' dbz
    #[arg(long, default_value = "memory", value_parser = HistoryIndex::from_str, value_name = "memory|file")]
    pub(super) history_index: HistoryIndex,

    /// Put hierarchies on other targets, such as 'alt.*=/disk2,comp.*=/disk3'
    #[arg(long, value_name = "HIERARCHY=TARGET", value_delimiter = ',')]
    pub(super) place: Vec<PlaceRule>,

    /// Further names of a cross-post: hard links or symbolic links
    #[arg(long, default_value = "hard", value_parser = LinkKind::from_str, value_name = "hard|symlink")]
    pub(super) link: LinkKind,

    /// Keep the spool under this name, for `crumb feed verify` or --resume
    #[arg(long, value_name = "NAME", conflicts_with = "resume", value_parser = kept_name)]
    pub(super) keep: Option<String>,

    /// Continue the spool that --keep, or a killed run, left under this name; keep it
    #[arg(long, value_name = "NAME", value_parser = kept_name, visible_alias = "reuse")]
    pub(super) resume: Option<String>,

    #[command(flatten)]
    pub(super) storage: FileSystemArgs,

    #[command(flatten)]
    pub(super) series: SeriesArgs,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  A first look at a disk, in less than a minute:
    crumb run netnews /mnt/disk --quick
  The paper's week on a filer, with its pictures:
    crumb run netnews nfs://filer/vol --report filer.html
  Does it pay to spread hierarchies over disks by hand?
    crumb run netnews /disk1 --place 'alt.*=/disk2,comp.*=/disk3'
  Without the help of memory: each batch durable before the next, and read back cold (root):
    crumb run netnews /mnt/disk --sync batch --cold
  What does it cost to keep history on the filer, as C News kept it?
    crumb run netnews /mnt/disk --history-index file --vs history=nfs://filer/vol
  Which way of deleting, which links, which mount option? Each against the first:
    crumb run netnews /mnt/disk --vs rm=dumbrm --vs link=symlink --vs mount=noatime
  What latency do eight readers see?
    crumb run netnews /mnt/disk --readers 8
  Keep what was stored, and check every file of it:
    crumb run netnews /mnt/disk --feed feed --keep mine
    crumb feed verify /mnt/disk/crumb-netnews-mine

Ctrl-C ends the run early: what was measured is kept and the spool removed, or left with --keep.
Exit codes: 0 fine, 1 the run failed, 2 wrong usage, 3 done but the verdict is INVALID, 130 interrupted.";

/// Readers at most.
pub(super) const READERS_MAX: u32 = 1024;
/// Of an article of the default model, about.
pub(super) const ARTICLE_BYTES_MEAN: u64 = 3_000;
/// The paper's half week.
const ARTICLES: NonZeroU64 = NonZeroU64::new(300_000).expect("not 0");
const ARTICLES_QUICK: NonZeroU64 = NonZeroU64::new(20_000).expect("not 0");
/// With making the feed and removing the spool this stays below a minute.
const QUICK_LIMIT: Duration = Duration::from_secs(30);

impl NetnewsArgs {
    pub(super) fn config(&self, own_part: &str) -> NetnewsConfig {
        let (keep, name) = match (&self.keep, &self.resume) {
            (Some(name), _) => (Keep::Keep, name.as_str()),
            (None, Some(name)) => (Keep::Resume, name.as_str()),
            (None, None) => (Keep::Remove, own_part),
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

    /// What must be the same on all ranks, by name.
    pub(super) fn terms(&self) -> Vec<(String, String)> {
        // All of it: what is missing here would show as figures that mean nothing.
        let output = OutputArgs {
            label: None,
            json: None,
            report: None,
            dry_run: false,
            no_live: false,
            no_store: false,
        };
        let everything = format!("{:?}", Self { output, ..self.clone() });
        let terms = [
            ("target", self.target.to_string()),
            ("seed", self.seed.to_string()),
            ("repeats", format!("{:?}", self.series)),
            ("flags", everything),
        ];
        terms.into_iter().map(|(name, term)| (name.to_owned(), term)).collect()
    }

    pub(super) fn articles_to_make_up(&self) -> NonZeroU64 {
        let default = if self.quick { ARTICLES_QUICK } else { ARTICLES };
        let of_bytes = |bytes: u64| NonZeroU64::new(bytes / ARTICLE_BYTES_MEAN).unwrap_or(NonZeroU64::MIN);
        match self.feed_bytes {
            None => self.articles.unwrap_or(default),
            Some(FeedBytes::Size(bytes)) => of_bytes(bytes),
            // What a pass stores pushes what the pass before stored out of memory, whatever is cached.
            Some(FeedBytes::Auto) => {
                let passes = u64::from(self.config("").passes.get());
                of_bytes(measure::memory_bytes().unwrap_or(0).saturating_mul(passes))
            }
        }
    }

    /// Bytes of the feed's articles, about; 0 for a feed that cannot be opened, which is reported when it is its turn.
    pub(super) fn feed_bytes(&self) -> u64 {
        match &self.feed {
            Some(path) => Feed::open(path.clone()).map_or(0, |feed| feed.bytes()),
            None => self.articles_to_make_up().get().saturating_mul(ARTICLE_BYTES_MEAN),
        }
    }

    /// Runs that differ in how they delete and delete nothing have no figure to be judged by, which would show only
    /// after the last of them.
    pub(super) fn something_to_judge(&self, sides: &Sides) -> anyhow::Result<()> {
        let config = self.config("");
        let judged_by_deleting =
            sides.variants.iter().any(|variant| variant.settings.iter().any(|setting| setting.key == "rm"));
        if judged_by_deleting && !config.expires() {
            let (passes, retention) = (config.passes, config.retention);
            let wrong = anyhow::anyhow!(
                "--vs rm=…: nothing is ever deleted in {passes} passes that keep {retention}; ask for more --passes, or \
                 for a --retention below them"
            );
            return Err(wrong.context(BadUsage));
        }
        Ok(())
    }

    /// Refuses several runs on a spool that is kept.
    ///
    /// # Errors
    /// When several are asked for.
    pub(super) fn kept_for_one_run(&self) -> anyhow::Result<()> {
        let several = !self.series.vs.is_empty()
            || self.series.until_ci.is_some()
            || self.series.repeat.is_some_and(|rounds| rounds.get() > 1);
        let Some(name) = self.keep.as_ref().or(self.resume.as_ref()).filter(|_| several) else {
            return Ok(());
        };
        let wrong = anyhow::anyhow!(
            "a spool that is kept ({name}) is for a run made alone; leave --repeat and --vs out"
        );
        Err(wrong.context(BadUsage))
    }
}

/// How much to make up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedBytes {
    /// By the memory.
    Auto,
    /// This.
    Size(u64),
}

fn feed_bytes(text: &str) -> Result<FeedBytes, measure::ValueError> {
    if text == "auto" {
        return Ok(FeedBytes::Auto);
    }
    match size_in::<u64>(1 << 20..=u64::MAX)(text) {
        Ok(bytes) => Ok(FeedBytes::Size(bytes)),
        Err(wrong @ QuantityError::Grouped { .. }) => Err(wrong.to_string().into()),
        Err(_) => Err("expected auto, or a size of 1MiB or more, such as 4GiB".into()),
    }
}
