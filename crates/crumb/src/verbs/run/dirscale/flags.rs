//! Flags of `crumb run dirscale`, and the settings that they ask for.

use std::num::NonZeroU32;

use clap::Args;
use dirscale::{Cache, DirscaleConfig, Frequencies, Keep, Sizes};
use files::{Layout, Target};

use crate::exit::BadUsage;
use crate::names::kept_name;
use crate::openers::FileSystemArgs;
use crate::outcome::OutputArgs;
use crate::quantities::{count, count_in, size_in};
use crate::series::SeriesArgs;
use crate::verbs::run::SEED_DEFAULT;

/// Measure what operations cost by directory size, flat and in subdirectories.
///
/// At each size: 1000 random and 1000 sequential lookups, add 1000 files, remove the 1000 oldest, read the directory. The
/// directories grow from size to size and are removed at the end. With --cold (the default) the caches of the whole
/// machine are dropped before each measurement, and proven cold (root).
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DirscaleArgs {
    /// A directory, nfs://host[:port]/export[?proto=udp|tcp&mountport=N], or a packed store: pack:/path
    pub(super) target: Target,

    /// Take a first look, done in less than a minute and without root: directories of 16, 256 and 2048 files in memory. Sets
    /// defaults only; flags that are given win
    #[arg(long)]
    pub(super) quick: bool,

    /// Layouts to compare: flat, 345, 34/56, 56/34, 456: the digits of 123456 that name its subdirectory; or hash:2, its hash
    #[arg(long, value_name = "LAYOUTS", value_delimiter = ',', default_value = "flat,345")]
    layout: Vec<Layout>,

    /// Files in the directory: FROM..TO by doubling, or a list such as 1000,10000,100000; with --quick 16,256,2048
    #[arg(long, value_name = "SIZES", default_value_t = Sizes::default(), default_value_if("quick", "true", "16,256,2048"))]
    sizes: Sizes,

    /// Drop the caches before each measurement and prove it; the default
    #[arg(long, conflicts_with = "warm")]
    cold: bool,

    /// Drop only names and inodes: directory blocks stay in memory, as on a busy server
    #[arg(long, conflicts_with_all = ["cold", "warm"])]
    cold_names: bool,

    /// Look at what is about to be measured once before, instead of dropping the caches; the default with --quick
    #[arg(long)]
    warm: bool,

    /// Size of each file
    #[arg(long, default_value_t = 2048, value_parser = size_in::<u32>(0..=1 << 20), value_name = "SIZE")]
    file_bytes: u32,

    /// Lookups in a measurement, and files added and removed; with --quick 200
    #[arg(long, default_value = "1000", default_value_if("quick", "true", "200"), value_parser = count_in::<NonZeroU32>(1..=OPERATIONS_MAX), value_name = "N")]
    operations: NonZeroU32,

    /// Measure each size this often; figures are medians, and intervals cover what differs from time to time;
    /// with --quick 2
    #[arg(long, default_value = "3", default_value_if("quick", "true", "2"), value_name = "N", value_parser = count::<NonZeroU32>)]
    rounds: NonZeroU32,

    /// Listings of the whole directory per round
    #[arg(long, default_value = "3", value_name = "N", value_parser = count::<NonZeroU32>)]
    readings: NonZeroU32,

    /// Operations per day that weight the day's cost [default: the paper's table 1]
    #[arg(long, value_name = "lookup=N,unlink=N,create=N,readdir=N")]
    frequencies: Option<Frequencies>,

    /// Seed of all random choices; the same seed looks up the same files
    #[arg(long, default_value_t = u64::from(SEED_DEFAULT), value_name = "N", value_parser = count::<u64>)]
    pub(super) seed: u64,

    /// Keep the directories under this name for later runs with --reuse
    #[arg(long, value_name = "NAME", conflicts_with = "reuse", value_parser = kept_name)]
    keep: Option<String>,

    /// Continue with the directories that --keep, or a killed run, left under this name; keep them
    #[arg(long, value_name = "NAME", value_parser = kept_name, visible_alias = "resume")]
    reuse: Option<String>,

    #[command(flatten)]
    pub(super) storage: FileSystemArgs,

    #[command(flatten)]
    pub(super) series: SeriesArgs,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  A first look, in less than a minute and without root:
    crumb run dirscale /mnt/disk --quick
  From which size does a layout pay on my disk? (as root, to drop caches)
    crumb run dirscale /mnt/disk --sizes 1..131072 --report layout.html
  What do 100,000 files in one directory cost, with everything in memory?
    crumb run dirscale /mnt/disk --sizes 100000 --warm
  All layouts of the paper, each size five times:
    crumb run dirscale /mnt/disk --layout flat,345,34/56,56/34,456 --rounds 5
  Continue with larger sizes another day, without creating the files again:
    crumb run dirscale /mnt/disk --sizes 1..65536 --keep spool
    crumb run dirscale /mnt/disk --sizes 1..524288 --reuse spool

Ctrl-C ends the run early: what was measured is kept and the directories removed.
Exit codes: 0 fine, 1 the run failed, 2 wrong usage, 3 done but the verdict is INVALID, 130 interrupted.";

/// Places of all operations of a measurement are made before it begins.
const OPERATIONS_MAX: u64 = 1_000_000;

impl DirscaleArgs {
    /// Refuses flags that do not go together.
    ///
    /// # Errors
    /// When a set is to be kept by more than one run.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let several = !self.series.vs.is_empty() || self.series.repeat.is_some_and(|n| n.get() > 1);
        match &self.keep {
            Some(name) if several => {
                let wrong =
                    anyhow::anyhow!("--keep {name} is for a run made alone; leave --repeat and --vs out");
                Err(wrong.context(BadUsage))
            }
            _ => Ok(()),
        }
    }

    /// The settings of a run; `own_part` names what it makes in the target, unless that is kept by a name.
    pub(super) fn config(&self, own_part: &str) -> DirscaleConfig {
        let (keep, name) = match (&self.keep, &self.reuse) {
            (Some(name), _) => (Keep::Keep, name.as_str()),
            (None, Some(name)) => (Keep::Reuse, name.as_str()),
            (None, None) => (Keep::Remove, own_part),
        };
        DirscaleConfig {
            layouts: self.layout.clone(),
            sizes: self.sizes.clone(),
            file_bytes: self.file_bytes,
            operations: self.operations,
            cache: match (self.warm, self.cold_names, self.cold) {
                (true, ..) => Cache::Warm,
                (_, true, _) => Cache::ColdNames,
                (_, _, false) if self.quick => Cache::Warm,
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
}
