//! Flags of `crumb feed`.

use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr as _;

use clap::{Args, Subcommand};
use netnews::feed::FeedShape;
use netnews::feed::import::LetterGroups;
use netnews::feed::synthesize::{GROUPS_MAX, GROUPS_MIN};

use crate::quantities::{count, count_in, size_in};
use crate::verbs::feed_verify::{self, VerifyArgs};
use crate::verbs::run::SEED_DEFAULT;

#[derive(Args, Debug)]
pub struct FeedArgs {
    #[command(subcommand)]
    pub(super) what: What,
}

#[derive(Subcommand, Debug)]
pub(super) enum What {
    /// Make a feed of real articles: a tree of files, a spool, a mailbox, rnews batches
    ///
    /// Crumb detects each file's format and unpacks gzip. It counts files that are not valid articles and moves them to
    /// FEED/broken with the reason. It keeps articles whose message id came before: duplicates are part of a feed.
    #[command(after_help = "\
Examples:
  A news server's spool; cross-posts (hard links there) are imported once:
    crumb feed import /var/spool/news/articles -o feed
  A mailbox of an archive, and batches of another server:
    crumb feed import comp.misc.mbox.gz -o feed
    crumb feed import batches/ --order path -o feed
  Mail, each folder as a group, or all of it as one:
    crumb feed import ~/Maildir --letters folder -o feed
    crumb feed import list.mbox --letters mail.list -o feed
  Then:
    crumb feed stat feed

Exit codes: 0 fine, 1 failed, 2 wrong usage, 3 done, but more files were rejected than imported.")]
    Import(ImportArgs),
    /// Multiply a feed: copy its articles with other message ids
    ///
    /// A clone number is appended to the host in Message-ID, Supersedes and the target of a cancel. Nothing else changes.
    #[command(after_help = "\
Examples:
  Three times the articles, as in the paper:
    crumb feed clone feed 2 -o feed-x3")]
    Clone(CloneArgs),
    /// Synthesize a feed of any size from a model of real news; no download
    ///
    /// Sizes, groups, cross-posts, paths, duplicates, cancels and arrivals follow real statistics; names and text are
    /// invented. The same model, seed and number give the same bytes.
    #[command(after_help = "\
Examples:
  As many articles as the paper's half week of August 1995 (0.9 GB):
    crumb feed synthesize --articles 300150 --seed 1 -o feed
  A small one for a first try:
    crumb feed synthesize --articles 10000 --seed 1 -o small")]
    Synthesize(SynthesizeArgs),
    /// Describe a feed: counts, sizes, groups, cross-posts, duplicates, cancels
    #[command(after_help = "\
Examples:
  crumb feed stat feed
  crumb feed stat feed --top 50
  crumb feed stat feed --json - | jq .stat.article_bytes")]
    Stat(StatArgs),
    /// Verify a spool that `crumb run netnews --keep` left: each file against history, and against its feed
    #[command(after_help = feed_verify::EXAMPLES)]
    Verify(Box<VerifyArgs>),
}

/// How a feed is cut and packed.
#[derive(Args, Debug)]
pub(super) struct ShapeArgs {
    /// Directory to create
    #[arg(short, long, value_name = "FEED")]
    pub(super) output: PathBuf,
    /// Articles per batch; the paper's batches had 109
    #[arg(long, value_name = "N", default_value = "109", value_parser = count::<NonZeroU64>)]
    pub(super) batch_articles: NonZeroU64,
    /// Compress the batches with gzip
    #[arg(long)]
    pub(super) gzip: bool,
}

impl ShapeArgs {
    pub(super) fn shape(&self) -> FeedShape {
        FeedShape { batch_articles: self.batch_articles, packed: self.gzip }
    }
}

#[derive(Args, Debug)]
pub(super) struct ImportArgs {
    /// File or directory to import
    #[arg(value_name = "SOURCE")]
    pub(super) source: PathBuf,
    #[command(flatten)]
    pub(super) shape: ShapeArgs,
    /// Order of the files of a tree in the feed
    #[arg(long, value_enum, default_value = "date", value_name = "ORDER")]
    pub(super) order: OrderFlag,
    /// Largest article to import, such as 1MiB; larger ones are rejected
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = size_in::<usize>(ARTICLE_MAX))]
    pub(super) article_max: usize,
    /// Import mail, which has no newsgroups: one group per folder, one per List-Id, or this group for all
    #[arg(long, value_name = "folder|list-id|GROUP", value_parser = LetterGroups::from_str)]
    pub(super) letters: Option<LetterGroups>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OrderFlag {
    /// By the Date of the first article in a file, so that groups mix as in a real feed
    Date,
    /// By path, numbers by value: for batches, and for trees whose names do not fit in memory
    Path,
}

#[derive(Args, Debug)]
pub(super) struct CloneArgs {
    /// The feed to multiply
    #[arg(value_name = "FEED")]
    pub(super) feed: PathBuf,
    /// Copies in addition to the original
    #[arg(value_name = "N", value_parser = count_in::<u64>(1..=1_000_000))]
    pub(super) clones: u64,
    /// Directory to create
    #[arg(short, long, value_name = "OUT")]
    pub(super) output: PathBuf,
    /// Compress the batches with gzip
    #[arg(long)]
    pub(super) gzip: bool,
}

#[derive(Args, Debug)]
pub(super) struct SynthesizeArgs {
    /// Articles to synthesize, including duplicates and cancels; about 3 KB each
    #[arg(long, value_name = "N", value_parser = count::<NonZeroU64>)]
    pub(super) articles: NonZeroU64,
    /// Same seed, same bytes
    #[arg(long, value_name = "N", default_value_t = u64::from(SEED_DEFAULT), value_parser = count::<u64>)]
    pub(super) seed: u64,
    /// Newsgroups that articles can name
    #[arg(long, value_name = "N", default_value = "2000",
        value_parser = count_in::<u32>(u64::from(GROUPS_MIN)..=u64::from(GROUPS_MAX)))]
    pub(super) groups: u32,
    #[command(flatten)]
    pub(super) shape: ShapeArgs,
}

#[derive(Args, Debug)]
pub(super) struct StatArgs {
    /// Directory of the feed
    #[arg(value_name = "FEED")]
    pub(super) feed: PathBuf,
    /// Groups to list, the largest first
    #[arg(long, value_name = "N", default_value = "10", value_parser = count::<usize>)]
    pub(super) top: usize,
    /// Write all figures as JSON to this file, - for standard output
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

const ARTICLE_MAX: RangeInclusive<u64> = 1 << 10..=1 << 30;
