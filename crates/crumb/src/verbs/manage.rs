//! `crumb manage` and the work that it shares with `crumb unmanage`: directories converted one after the other.

mod online;
mod output;
mod texts;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::Args;
use files::Layout;
use report::count_text;
use stackfs::convert::{ConvertError, Goal, Progress as Done, Watch, convert};

use self::output::{planned, report};
use self::texts::{Pace, next_text};
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::wrapped;
use crate::output::note;
use crate::progress::Progress;
use crate::signals;

/// Spread the entries of huge directories over many small ones, for `crumb mount`.
///
/// First stop the programs that use DIR, or give --online and a path of the mount. Afterwards programs must use the mount: below it,
/// entries are in subdirectories. Each entry is moved by one rename and keeps its inode; nothing is copied. After a kill the same
/// command continues, and `crumb unmanage` reverts.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ManageArgs {
    /// Directories to spread: of the tree below the mount, or of the mount itself with --online
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,

    /// Layout, which decides in which subdirectory an entry is stored. 345 takes the third to fifth of the last six digits of a number:
    /// 987654 is stored in 765. 34/56, 56/34 and 456 take other digits. hash:2 suits names that are not numbers, such as mail and cache
    /// files [default: 345, or hash:2 when more than half of the first 1000 names are not numbers; an interrupted conversion keeps its
    /// own]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<Layout>,

    /// Convert while programs use it: DIR is a path in a mount, and the program that serves the mount converts it
    #[arg(long)]
    online: bool,

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
  While it is mounted and in use (as root, or as the user of both mount and directory):
    crumb manage --online --dry-run /mnt/news/control/cancel
    crumb manage --online /mnt/news/control/cancel

Ctrl-C ends it soon; the same command continues from there.
With --online as well. Until a conversion is finished, programs see the whole directory through the
running mount; a new mount shows it only after that. If this program is killed, the conversion
continues.
Exit codes: 0 fine, 1 refused or failed, 2 wrong usage, 130 interrupted.";

/// Runs the verb.
pub fn run(args: &ManageArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let how = How::asked(args.online, args.dry_run);
    convert_all(&args.directories, Goal::Managed(args.layout), how, context)
}

/// What is done with each directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Nothing: it is only said what would be done by this program, or by the one that shows it.
    Planned { online: bool },
    /// By this program, while it is not mounted.
    Offline,
    /// By the program that shows it.
    Online,
}

impl How {
    /// By the flags of both verbs.
    pub fn asked(online: bool, dry_run: bool) -> Self {
        match (dry_run, online) {
            (true, online) => Self::Planned { online },
            (false, true) => Self::Online,
            (false, false) => Self::Offline,
        }
    }
}

/// Converts directories; one that is refused does not keep the next from its turn.
pub fn convert_all(
    directories: &[PathBuf],
    goal: Goal,
    how: How,
    context: &Context,
) -> anyhow::Result<ExitStatus> {
    let mut failed: Option<anyhow::Error> = None;
    let mut keep = |error: anyhow::Error| {
        // All but the last are reported here; the last one is the verb's own.
        if let Some(earlier) = failed.replace(error) {
            note(context, wrapped("error: ", &format!("{earlier:#}")).trim_end());
        }
    };
    if let How::Planned { online } = how {
        for directory in directories {
            planned(directory, goal, online, context).unwrap_or_else(&mut keep);
        }
        return failed.map_or(Ok(ExitStatus::Fine), Err);
    }
    let stop = signals::stop_flag_of(context)?;
    let mut done: Vec<&Path> = Vec::new();
    for directory in directories {
        let mut progress = Progress::new(context.quiet);
        let mut pace = Pace::start();
        let mut show = |done: Done| progress.step(done.done, done.of, pace.text(directory, done));
        let begun = Instant::now();
        let converted = if how == How::Online {
            online::convert(directory, goal, &mut show, &stop)
        } else {
            let mut watch = Watch { progress: &mut show, stop: &stop };
            convert(directory, goal, &mut watch).map_err(with_usage_marked)
        };
        progress.finish();
        match converted {
            Ok(converted) if converted.after.is_half_way() => {
                let command = command(goal, how);
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
                report(directory, goal, &converted, begun.elapsed(), context)?;
                done.push(directory);
            }
            Err(error) => keep(error),
        }
        if stop.load(Ordering::Relaxed) && directories.last() != Some(directory) {
            keep(anyhow::anyhow!(
                "interrupted; the directories after {} are as they were",
                directory.display()
            ));
            break;
        }
    }
    if goal != Goal::Flat
        && let Some(next) = next_text(&done, how == How::Online)
    {
        note(context, wrapped("  next: ", &next).trim_end());
    }
    failed.map_or(Ok(ExitStatus::Fine), Err)
}

fn command(goal: Goal, how: How) -> &'static str {
    match (goal, how) {
        (Goal::Flat, How::Online) => "unmanage --online",
        (Goal::Flat, _) => "unmanage",
        (_, How::Online) => "manage --online",
        _ => "manage",
    }
}

/// Marks an invalid layout or name as bad usage.
fn with_usage_marked(error: ConvertError) -> anyhow::Error {
    match error {
        ConvertError::FlatLayout { .. } => anyhow::Error::new(error).context(BadUsage),
        error => error.into(),
    }
}
