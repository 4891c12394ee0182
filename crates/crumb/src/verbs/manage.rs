//! `crumb manage` and the work that it shares with `crumb unmanage`: directories converted one after the other.

mod texts;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::Args;
use files::Layout;
use report::count_text;
use stackfs::convert::{ConvertError, Goal, Progress as Done, Watch, convert, plan};

use self::texts::{Pace, blocks_kept, blocks_text, converted_text, plan_text};
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::wrapped;
use crate::output::{note, print};
use crate::progress::Progress;
use crate::signals;

/// Spread the entries of huge directories over many small ones, for `crumb mount`.
///
/// Works offline, while the tree is not mounted. Each entry is moved by one rename and keeps its inode; nothing is copied.
/// After a kill the same command continues, and `crumb unmanage` reverts.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ManageArgs {
    /// Directories of the lower tree
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,

    /// Digits of 123456 that name its subdirectory: 345, 34/56, 56/34, 456; or hash:2, for names that are not numbers
    /// [default: 345; an interrupted conversion keeps its own]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<Layout>,

    /// Print what would be done, or why it would be refused; change nothing
    #[arg(long)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
Examples:
  Two newsgroups with a hundred thousand articles each:
    crumb manage /news/control/cancel /news/misc/jobs/offered
  Only print what would be done:
    crumb manage --dry-run /news/control/cancel
  Which directories are worth it?
    crumb advise /news
  Then:
    crumb mount /news /mnt/news

Ctrl-C ends it soon; the same command continues from there.
Exit codes: 0 fine, 1 refused or failed, 2 wrong usage, 130 interrupted.";

/// Runs the verb.
pub fn run(args: &ManageArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    convert_all(&args.directories, Goal::Managed(args.layout), args.dry_run, context)
}

/// Converts directories; one that is refused does not keep the next from its turn.
pub fn convert_all(
    directories: &[PathBuf],
    goal: Goal,
    dry_run: bool,
    context: &Context,
) -> anyhow::Result<ExitStatus> {
    let mut failed: Option<anyhow::Error> = None;
    let mut keep = |error: anyhow::Error| {
        // All but the last are reported here; the last one is the verb's own.
        if let Some(earlier) = failed.replace(error) {
            note(context, wrapped("error: ", &format!("{earlier:#}")).trim_end());
        }
    };
    if dry_run {
        for directory in directories {
            match plan(directory, goal) {
                Ok(plan) => print(&plan_text(directory, &plan))?,
                Err(error) => keep(with_usage_marked(error)),
            }
        }
        return failed.map_or(Ok(ExitStatus::Fine), Err);
    }
    let stop = signals::stop_flag_of(context)?;
    for directory in directories {
        let mut progress = Progress::new(context.quiet);
        let mut pace = Pace::start();
        let mut show = |done: Done| progress.step(done.done, done.of, pace.text(directory, done));
        let begun = Instant::now();
        let converted = convert(directory, goal, &mut Watch { progress: &mut show, stop: &stop });
        progress.finish();
        match converted {
            Ok(converted) if converted.after.is_half_way() => {
                let command = if goal == Goal::Flat { "unmanage" } else { "manage" };
                let others = match directories.last() {
                    Some(last) if last != directory => ", and those after it are as they were",
                    _ => "",
                };
                keep(anyhow::anyhow!(
                    "{0}: interrupted after {1} entries; `crumb {command} {0}` continues from there{others}",
                    directory.display(),
                    count_text(converted.entries_moved),
                ));
                break;
            }
            Ok(converted) => {
                print(&converted_text(directory, &converted, begun.elapsed()))?;
                if let Some(bytes) = blocks_kept(directory, &converted) {
                    note(context, wrapped("  note: ", &blocks_text(bytes)).trim_end());
                }
            }
            Err(error) => keep(with_usage_marked(error)),
        }
        if stop.load(Ordering::Relaxed) && directories.last() != Some(directory) {
            keep(anyhow::anyhow!(
                "interrupted; the directories after {} are as they were",
                directory.display()
            ));
            break;
        }
    }
    failed.map_or(Ok(ExitStatus::Fine), Err)
}

/// Marks an invalid layout or name as bad usage.
fn with_usage_marked(error: ConvertError) -> anyhow::Error {
    match error {
        ConvertError::FlatLayout { .. } => anyhow::Error::new(error).context(BadUsage),
        error => error.into(),
    }
}
