//! Flags of `crumb advise`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use dirscale::{Frequencies, Sizes};
use files::Layout;

use crate::quantities::{QuantityError, count, count_in, time};

/// Report which directories of a tree would gain from being managed, or when they will be full.
///
/// Counts the tree. Then it measures, in a scratch directory on the same file system, what operations cost by directory size,
/// flat and managed (as `crumb run dirscale` does), and what a mount adds. It measures up to the size of the largest
/// directory that can be filled in the time, and extrapolates beyond. It assumes that a directory's share of the day's
/// operations equals its share of the files.
///
/// With --predict it measures nothing. It reports when the index of a directory (on ext4), the inodes and the bytes run out
/// at the rate at which names are made now, as a range of names and of dates.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArgs {
    /// Directory tree, not mounted by `crumb mount`
    #[arg(value_name = "TREE")]
    pub(super) tree: PathBuf,

    /// Sizes to measure, in files: FROM..TO by doubling, or a list [default: those of the directories found, the largest
    /// first]
    #[arg(long, value_name = "SIZES")]
    pub(super) sizes: Option<Sizes>,

    /// Layout to compare with flat directories [default: the one that `crumb manage` would choose for the largest]
    #[arg(long, value_name = "LAYOUT", value_parser = layout)]
    pub(super) layout: Option<Layout>,

    /// Longest time to measure; larger directories than can be filled in it are extrapolated
    #[arg(long, value_name = "TIME", default_value = "2min", value_parser = time)]
    time: Duration,

    /// Measure each size once, all of them within 15 s: a first look
    #[arg(long, conflicts_with = "time")]
    pub(super) quick: bool,

    /// Drop the caches of the whole machine before each measurement (root), as for a directory that is seldom used.
    /// Without it names are in memory, as on a busy server
    #[arg(long)]
    pub(super) cold: bool,

    /// Operations per day, by kind, for example as counted by a mount [default: the paper's table 1]
    #[arg(long, value_name = "lookup=N,unlink=N,create=N,readdir=N")]
    pub(super) mix: Option<Frequencies>,

    /// Operations per day from the statistics of a mount: its run id (`crumb runs list`), `last` for the last mount, or a
    /// RunRecord JSON file
    #[arg(long, value_name = "RUN", conflicts_with = "mix")]
    pub(super) census: Option<String>,

    /// Operations per day in the whole tree, in the proportions of --mix or --census [default: their sum]
    #[arg(long, value_name = "N", value_parser = count_in::<u64>(1..=u64::MAX))]
    pub(super) ops_per_day: Option<u64>,

    /// Report when directories' indexes, inodes and bytes run out, instead of what managing is worth
    #[arg(long, conflicts_with_all = ["sizes", "layout", "time", "quick", "cold", "mix", "census", "ops_per_day"])]
    pub(super) predict: bool,

    /// Names made per day in the whole tree, as 40000 or 40k/day [default: by the creation times of a sample of names, of the
    /// last 7 days]
    #[arg(long, value_name = "N", value_parser = growth, requires = "predict")]
    pub(super) growth: Option<f64>,

    /// Length of new names in bytes [default: as those that are there]
    #[arg(long, value_name = "N", value_parser = count_in::<u8>(1..=255), requires = "predict")]
    pub(super) name_length: Option<u8>,

    /// Directories to list
    #[arg(long, value_name = "N", default_value = "10", value_parser = count::<usize>)]
    pub(super) top: usize,

    /// Write all figures as JSON to this file, - for standard output
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  Which newsgroups are worth managing?
    crumb advise /news
  The same for a day as a mount has counted it, from cold caches (as root):
    crumb advise /news --mix lookup=900000,create=40000,unlink=40000 --cold
  The same by the operations that the last mount counted, from the results store:
    crumb advise /news --census last
  A first look in 15 seconds:
    crumb advise /news --quick
  When is this directory full?
    crumb advise /var/mail/new --predict
  The same for 40,000 names a day of 16 bytes:
    crumb advise /var/mail/new --predict --growth 40000/day --name-length 16
  Manage what gains:
    crumb advise /news --json - |
      jq -r '.directories[]|select(.advice==\"manage\").path' |
      xargs -r -d '\\n' crumb manage

Ctrl-C ends it early; the scratch directory is removed.
Exit codes: 0 fine, also when there is nothing to gain; 1 failed; 2 wrong usage; 130 interrupted.";

const QUICK: Duration = Duration::from_secs(15);

impl AdviseArgs {
    /// How long to measure at most.
    pub(super) fn limit(&self) -> Duration {
        if self.quick { QUICK } else { self.time }
    }
}

/// Names a day, with or without the words for a day.
fn growth(text: &str) -> Result<f64, QuantityError> {
    let number = ["/day", "/d"].iter().find_map(|day| text.strip_suffix(day)).unwrap_or(text);
    count_in::<u64>(1..=1_000_000_000_000)(number).map(|names| names as f64)
}

fn layout(text: &str) -> Result<Layout, measure::ValueError> {
    match text.parse::<Layout>() {
        Ok(Layout::Flat) => Err("flat is what layouts are weighed against".into()),
        Ok(layout) => Ok(layout),
        Err(error) => Err(error.to_string().into()),
    }
}
