//! Flags of `crumb run postmark`, and the settings that they ask for.

use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;

use clap::Args;
use files::Target;
use postmark::engine::SyncMode;
use postmark::{Bias, PostmarkConfig, Settings, SizeRange};

use super::of_2001::settings_of_2001;
use crate::openers::FileSystemArgs;
use crate::outcome::OutputArgs;
use crate::quantities::{count, refuse_grouped, size_in};
use crate::series::SeriesArgs;
use crate::verbs::run::SEED_DEFAULT;

/// Measure creating, reading, appending to and deleting many small files (PostMark).
///
/// A closed loop: each thread begins the next operation when the previous one is done. With one thread the counts are
/// those of PostMark 1.51 with equal settings and seed. The run works in a directory of its own and removes it at the end.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunPostmarkArgs {
    /// A directory, nfs://host[:port]/export[?proto=udp|tcp&mountport=N], or a packed store: pack:/path
    pub(super) target: Target,

    /// Take a first look, done in less than a minute: 1000 files and 4000 transactions. Sets defaults only; flags that are given
    /// win
    #[arg(long, conflicts_with = "preset")]
    pub(super) quick: bool,

    /// Settings to begin with: those of PostMark, or of the comparison of 2001 (10,000 files of 10 to 20 KiB, 100,000
    /// transactions, 10 subdirectories)
    #[arg(long, value_enum, default_value = "defaults", value_name = "NAME")]
    preset: Preset,

    /// Files made before the transactions [default: 500, or the preset's; with --quick 1000]
    #[arg(long, value_name = "N", default_value_if("quick", "true", "1000"), value_parser = count::<NonZeroU32>)]
    number: Option<NonZeroU32>,

    /// Transactions: each reads or appends, and creates or deletes [default: 500, or the preset's; with --quick 4000]
    #[arg(long, value_name = "N", default_value_if("quick", "true", "4000"), value_parser = count::<NonZeroU32>)]
    transactions: Option<NonZeroU32>,

    /// Sizes of files, such as 10KiB..20KiB or 4KiB [default: 500..10000, or the preset's]
    #[arg(long, value_name = "LOW..HIGH", value_parser = sizes)]
    size: Option<SizeRange>,

    /// Spread the files over this many subdirectories [default: 0, or the preset's]
    #[arg(long, value_name = "N", value_parser = count::<u32>)]
    subdirectories: Option<u32>,

    /// Bytes per read call [default: 512]
    #[arg(long, value_name = "SIZE", value_parser = size_in::<NonZeroU32>(SIZES))]
    read_block: Option<NonZeroU32>,

    /// Bytes per write call [default: 512]
    #[arg(long, value_name = "SIZE", value_parser = size_in::<NonZeroU32>(SIZES))]
    write_block: Option<NonZeroU32>,

    /// Share of reads rather than appends, in tenths: 0 to 10, -1 for neither [default: 5]
    #[arg(long, value_name = "TENTHS", value_parser = bias, allow_negative_numbers = true)]
    read_bias: Option<Bias>,

    /// Share of creates rather than deletes, in tenths: 0 to 10, -1 for neither [default: 5]
    #[arg(long, value_name = "TENTHS", value_parser = bias, allow_negative_numbers = true)]
    create_bias: Option<Bias>,

    /// Make one system call per block, instead of buffering as stdio does
    #[arg(long)]
    unbuffered: bool,

    /// Same seed, same operations; the old program's own default is 42
    #[arg(long, default_value_t = SEED_DEFAULT, value_name = "N", value_parser = count::<u32>)]
    seed: u32,

    /// Worker threads, each with its own files
    #[arg(long, default_value = "1", value_name = "N", value_parser = count::<NonZeroUsize>)]
    pub(super) threads: NonZeroUsize,

    /// Make data durable: none (when the system writes it), close (before each file is closed), every (after each write)
    #[arg(long, value_enum, default_value = "none", value_name = "WHEN")]
    sync: SyncFlag,

    /// Print the published figures of 2001 beside the result
    #[arg(long)]
    pub(super) beside_2001: bool,

    #[command(flatten)]
    pub(super) file_system: FileSystemArgs,

    #[command(flatten)]
    pub(super) series: SeriesArgs,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  A first look at a disk, in less than a minute:
    crumb run postmark /mnt/disk --quick
  The settings of the 2001 comparison, its figures beside ours:
    crumb run postmark /mnt/disk --preset 2001 --beside-2001
  A filer, over NFS without a mount, with eight threads:
    crumb run postmark nfs://filer/vol --threads 8
  What does it cost to make each file durable before it is closed?
    crumb run postmark /mnt/disk --sync close
  Is the new volume faster? Runs in turns, with a confidence interval:
    crumb run postmark /mnt/old --vs /mnt/new --preset 2001 --sync close --repeat 6

The old program's commands and reports: `crumb postmark --help`.
Exit codes: 0 fine, 1 the run failed, 2 wrong usage, 3 done but the verdict is INVALID, 130 interrupted.";

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

impl RunPostmarkArgs {
    pub(super) fn config(&self) -> PostmarkConfig {
        let sync = match self.sync {
            SyncFlag::None => SyncMode::None,
            SyncFlag::Close => SyncMode::Close,
            SyncFlag::Every => SyncMode::Every,
        };
        PostmarkConfig { settings: self.settings(), threads: self.threads, sync }
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
        settings.seed = self.seed;
        settings.buffered = !self.unbuffered;
        settings
    }
}

/// Of files and of blocks.
const SIZES: RangeInclusive<u64> = 1..=1 << 30;

fn sizes(text: &str) -> Result<SizeRange, measure::ValueError> {
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    let size = |text: &str| size_in::<NonZeroU32>(SIZES)(text).map_err(|wrong| wrong.to_string());
    let (low, high) = (size(low)?, size(high)?);
    if low > high {
        return Err(format!("the first size, {low}, is larger than the second, {high}").into());
    }
    Ok(SizeRange::new(low, high))
}

fn bias(text: &str) -> Result<Bias, measure::ValueError> {
    refuse_grouped(text).map_err(|wrong| wrong.to_string())?;
    let value = text.parse().ok().and_then(Bias::new);
    value.ok_or_else(|| "expected 0 to 10 (tenths), or -1 for neither".into())
}
