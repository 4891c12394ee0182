//! Flags of `crumb run shootout`, and the plan that they ask for.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::outcome::OutputArgs;
use crate::quantities::{count, time};
use crate::shootout::plan::Plan;
use crate::shootout::row::{self, Extent};
use crate::shootout::{matrix, side};
use crate::verbs::run::SEED_DEFAULT;

/// Measure every workload of storage on several targets in turns, as one table: which is fastest at what.
///
/// Runs postmark, netnews, dirscale and each workload of fstress on every target, round after round, and compares each target with
/// the first. Each run works in a directory of its own in the target and removes it.
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    mut_arg("json", |json| json.help("Write the table and the records of all runs as JSON to this file, - for standard output")),
    mut_arg("report", |report| report.help("Write the table as an HTML page to this file, - for standard output")),
    mut_arg("label", |label| label.help("Label of the runs, in front of workload and target [default: shootout]"))
)]
pub struct ShootoutArgs {
    /// Targets, two or more to compare, each with a name for the table if wanted: /mnt/a, ssd=/mnt/ssd, filer=nfs://host[:port]/export, p=pack:/path
    #[arg(required = true, num_args = 1.., value_name = "[NAME=]TARGET")]
    targets: Vec<side::Named>,

    /// Take a first look, below ten minutes for three targets: small sets of files, two rounds, at most 8 s a run
    #[arg(long)]
    quick: bool,

    /// Measure these workloads only, such as postmark,mail
    #[arg(long, value_name = "WORKLOADS", value_delimiter = ',')]
    only: Vec<String>,

    /// Measure the runs of this TOML file instead: benchmarks with their flags, each list of values in all combinations
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "only"])]
    matrix: Option<PathBuf>,

    /// Runs of each workload on each target; 3 are the least for an interval, 6 are better [default: 6; with --quick 2]
    #[arg(long, value_name = "N", value_parser = count::<NonZeroU32>)]
    rounds: Option<NonZeroU32>,

    /// End a run after this time; it has no figure then [default: 10m; with --quick 8s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    cell_limit: Option<Duration>,

    /// Seed of all random choices, and of the order of the targets
    #[arg(long, default_value_t = SEED_DEFAULT, value_name = "N", value_parser = count::<u32>)]
    seed: u32,

    /// Command for sh before each run, with CRUMB_TARGET, CRUMB_SIDE and CRUMB_WORKLOAD in its environment and no terminal; a
    /// failing one ends the shootout, Ctrl-C ends it
    #[arg(long, value_name = "COMMAND")]
    pub(super) prepare: Option<String>,

    /// Command for sh after each run, also after one that failed
    #[arg(long, value_name = "COMMAND")]
    pub(super) cleanup: Option<String>,

    /// Write the table as Markdown to this file, - for standard output
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) markdown: Option<PathBuf>,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  A first look at three targets, below ten minutes, with a page:
    crumb run shootout ssd=/mnt/ssd disk=/mnt/disk filer=nfs://filer/vol --quick --report shootout.html
  What would it do, and how long would it take?
    crumb run shootout /mnt/a /mnt/b --dry-run
  Mail and PostMark only, with intervals, as Markdown:
    crumb run shootout /mnt/a /mnt/b --quick --only mail,postmark --rounds 6 --markdown -
  Drop the caches before each run (as root):
    crumb run shootout /mnt/a /mnt/b --quick --prepare 'sync; echo 3 > /proc/sys/vm/drop_caches'
  Sizes and numbers of files of your own choice:
    crumb run shootout /mnt/a /mnt/b --matrix sizes.toml

Ctrl-C ends it early: the files of the run under way are removed, and the table shows what was measured.
Exit codes: 0 fine, 1 a run failed, 2 wrong usage, 3 done but a run is INVALID, 130 interrupted.";

/// Rounds for an interval of a median at 95%.
const ROUNDS: NonZeroU32 = NonZeroU32::new(6).expect("not 0");
const ROUNDS_QUICK: NonZeroU32 = NonZeroU32::new(2).expect("not 0");
const LIMIT: Duration = Duration::from_secs(600);
const LIMIT_QUICK: Duration = Duration::from_secs(8);

impl ShootoutArgs {
    /// The cells of all workloads on all targets.
    ///
    /// # Errors
    /// When a workload or a flag is not known, or a target comes twice.
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let extent = if self.quick { Extent::Quick } else { Extent::Full };
        let rows = match &self.matrix {
            Some(file) => matrix::read(file, self.seed)?,
            None => row::chosen(row::all(extent, self.seed)?, &self.only)?,
        };
        let rounds = self.rounds.unwrap_or(if self.quick { ROUNDS_QUICK } else { ROUNDS });
        let limit = self.cell_limit.unwrap_or(if self.quick { LIMIT_QUICK } else { LIMIT });
        Plan::of(side::sides(&self.targets)?, rows, rounds.get(), limit, self.seed.into())
    }
}
