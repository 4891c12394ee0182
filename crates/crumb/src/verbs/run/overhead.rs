//! `crumb run overhead`: what a stackable file system, or any other layer, adds to each operation.

mod plan;
mod table;

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::anyhow;
use clap::Args;
use files::Target;
use harness::ranks::RankGroup;
use overhead::{FloorCommand, Overhead, Sides, Sources};

use self::plan::would_leave;
use self::table::table_of;
use crate::context::Context;
use crate::declarations;
use crate::exit::{BadUsage, ExitStatus};
use crate::forecast;
use crate::outcome::{Begun, OutputArgs};
use crate::pipeline::{Around, Plan};
use crate::quantities::{count_in, size_in};
use crate::quick;
use crate::series::SeriesArgs;
use crate::signals;

/// Measure what a FUSE mount, or another layer, adds to each operation of the file system below.
///
/// MOUNT may be a FUSE mount of any program, overlayfs or NFS. In each round Crumb times every kind of operation in a directory of
/// LOWER and in one of MOUNT, one right after the other: create, stat (cold as root, and warm), open+read+close, list, small writes and
/// reads, rename, unlink. It also times the floor, the least that any FUSE daemon can cost: a FUSE file system that answers from
/// memory. Then, as root, it counts the requests that the kernel sends to the layer for each operation (FUSE and NFS). It removes its
/// files.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct OverheadArgs {
    /// A directory of the file system below
    lower: Target,

    /// A directory of the mount
    mount: Target,

    /// Take a first look, done in less than a minute without --build: 500 files and 6 rounds. Sets defaults only; flags that are given win
    #[arg(long)]
    quick: bool,

    /// Files of a round, and operations of each kind; with --quick 500
    #[arg(long, default_value = "2000", default_value_if("quick", "true", "500"), value_name = "N", value_parser = count_in::<NonZeroU32>(1..=1_000_000))]
    files: NonZeroU32,

    /// Size of each file
    #[arg(long, default_value_t = 2048, value_parser = size_in::<u32>(0..=1 << 20), value_name = "SIZE")]
    file_bytes: u32,

    /// Rounds; each gives one pair of times of every operation, at least 6 for a confidence interval; with --quick 6
    #[arg(long, default_value = "10", default_value_if("quick", "true", "6"), value_name = "N", value_parser = count_in::<NonZeroU32>(1..=10_000))]
    rounds: NonZeroU32,

    /// Leave out the floor, which takes a third of the time: a FUSE file system that answers from memory, mounted in a new directory in
    /// LOWER (as root, or with fusermount3)
    #[arg(long)]
    no_floor: bool,

    /// Build a C package on both sides in each round (`./configure` where there is one, and `make`, with one job); sources: a
    /// directory or a tarball; without a value, a made-up package of 60 files
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "", value_name = "DIR|TARBALL", value_parser = sources)]
    build: Option<Sources>,

    /// The process that serves the floor at LOWER, until its standard input ends
    #[arg(long, hide = true)]
    serve_floor: bool,

    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  What does bindfs cost over /srv?
    bindfs /srv /mnt/srv && sudo crumb run overhead /srv /mnt/srv
  The same for a mount of crumb, as a page:
    crumb mount /srv /mnt/srv && sudo crumb run overhead /srv /mnt/srv --report overhead.html
  A first look, without root (no cold lookups, no requests):
    crumb run overhead /srv /mnt/srv --quick
  How much slower is a build through the mount?
    sudo crumb run overhead /srv /mnt/srv --build=zlib-1.3.tar.gz

Ctrl-C ends the run early: what was measured is kept and the files are removed.
Exit codes: 0 fine, 1 the run failed, 2 wrong usage, 3 done but the verdict is INVALID, 130 interrupted.";

/// Runs the verb.
pub fn run(args: OverheadArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    if args.serve_floor {
        return served(&args.lower);
    }
    let stop = signals::stop_flag_of(context)?;
    let output = &args.output;
    let places = [directory(&args.lower)?, directory(&args.mount)?];
    let [lower, mount] = &places;
    if output.dry_run {
        args.build.as_ref().map_or(Ok(()), Sources::check)?;
        return forecast::show(&[args.forecast("…", &places)], &SeriesArgs::alone(), output, context);
    }
    output.check(context)?;
    let begun = Begun::on("overhead", mount.display().to_string(), Some(mount));
    let benchmark = Overhead { config: args.config(begun.own_part()) };
    let plan = Plan {
        seed: 0,
        label: output
            .label
            .clone()
            .unwrap_or_else(|| format!("{} over {}", mount.display(), lower.display())),
        more_config: vec![
            ("lower", lower.display().to_string().into()),
            ("lower_mount", mounted_at(lower).into()),
            ("layer", mounted_at(mount).into()),
        ],
        more_terms: vec![],
        of_rank: &[],
        would_leave: would_leave(&places, &benchmark.config),
        forecast: args.forecast(begun.own_part(), &places),
        quick: args.quick.then(|| {
            let bytes = 2 * u64::from(args.files.get()) * u64::from(args.file_bytes);
            quick::limits(bytes, "and few rounds give wide intervals")
        }),
        pin: None,
        tables: None,
        begun,
        benchmark: &benchmark,
    };
    let mut group = RankGroup::solo();
    let around = Around { context, stop: &stop, output, group: &mut group };
    let floor: Option<FloorCommand> = (!args.no_floor).then_some(floor_command);
    let sides = Sides { lower: lower.clone(), mount: mount.clone(), floor };
    let reached = || match sides.check(&benchmark.config) {
        Ok(()) => Ok(sides),
        Err(error) if error.is_bad_usage() => Err(anyhow::Error::from(error).context(BadUsage)),
        Err(error) => Err(error.into()),
    };
    let mut run = plan.measure(around, reached)?;
    run.record.declare(&declarations::of(&run.record.benchmark));
    output.finish(context, run, table_of)
}

/// A directory that is mounted, as an absolute path.
fn directory(target: &Target) -> anyhow::Result<PathBuf> {
    let Target::Directory(path) = target else {
        let wrong = anyhow!(
            "{target}: overhead takes two directories of this machine; mount it, and name a directory of the mount"
        );
        return Err(wrong.context(BadUsage));
    };
    // One that is not there is an error of the run, with its name.
    Ok(path.canonicalize().unwrap_or_else(|_| path.clone()))
}

/// What is mounted there: device or program, type, options.
fn mounted_at(path: &Path) -> String {
    let mounted = measure::MountPoint::of(path);
    mounted.map_or_else(String::new, |of| format!("{} of {} ({})", of.fs_type, of.device, of.options))
}

fn sources(text: &str) -> Result<Sources, std::convert::Infallible> {
    let path = PathBuf::from(text);
    Ok(match text.is_empty() {
        true => Sources::MadeUp,
        // One that is not there is an error of the run, with its name.
        false => Sources::at(path.canonicalize().unwrap_or(path)),
    })
}

/// This program again, as the process that serves the floor.
fn floor_command(place: &Path) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run", "overhead", "--serve-floor"]).args([place, place]);
    Ok(command)
}

/// Why it cannot serve it says where the run hears it, and nowhere else.
fn served(place: &Target) -> anyhow::Result<ExitStatus> {
    overhead::serve_floor(&directory(place)?)?;
    Ok(ExitStatus::Fine)
}
