//! `crumb manage` and the work that it shares with `crumb unmanage`: directories converted one after the other.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use files::Layout;
use report::{bytes_text, count_text, rate_text};
use stackfs::convert::{
    ConvertError, Converted, Goal, Plan, Progress as Done, State, Watch, Work, convert, plan,
};

use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::wrapped;
use crate::output::{note, print};
use crate::progress::Progress;
use crate::signals;

/// Keep the entries of huge directories in many small ones, for `crumb mount`.
///
/// Offline: not while the tree is mounted. Every entry is moved by one rename, with its inode; nothing is copied.
/// Killed at any moment, the same command finishes, and `crumb unmanage` goes back.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ManageArgs {
    /// Directories of the lower tree
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,

    /// Which digits of 123456 name its subdirectory: 345, 34/56, 56/34, 456; or hash:2, for names that are no numbers
    /// [default: 345, or as it was begun]
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<Layout>,

    /// Say what would be done, and whether it would be refused; change nothing
    #[arg(long)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
Examples:
  Two newsgroups with a hundred thousand articles each:
    crumb manage /news/control/cancel /news/misc/jobs/offered
  What would it do?
    crumb manage --dry-run /news/control/cancel
  Which directories are worth it?
    crumb advise /news
  Then:
    crumb mount /news /mnt/news

Ctrl-C ends it soon; the same command goes on from there.
Exit status: 0 fine, 1 refused or failed, 2 wrong usage, 130 interrupted.";

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
        // All but the last are told here; the last one is the verb's own.
        if let Some(earlier) = failed.replace(error) {
            note(context, wrapped("error: ", &format!("{earlier:#}")).trim_end());
        }
    };
    if dry_run {
        for directory in directories {
            match plan(directory, goal) {
                Ok(plan) => print(&plan_text(directory, &plan))?,
                Err(error) => keep(told(error)),
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
                    "{0}: interrupted after {1} entries; `crumb {command} {0}` goes on from there{others}",
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
            Err(error) => keep(told(error)),
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

/// A layout or name that cannot be is bad usage.
fn told(error: ConvertError) -> anyhow::Error {
    match error {
        ConvertError::FlatLayout { .. } => anyhow::Error::new(error).context(BadUsage),
        error => error.into(),
    }
}

fn state_text(state: State) -> String {
    match state {
        State::Flat => "flat".to_owned(),
        State::Managed(layout) => format!("managed in layout {layout}"),
        State::Sorting(layout) | State::Lifting(layout) => format!("half converted (layout {layout})"),
    }
}

fn plan_text(directory: &Path, plan: &Plan) -> String {
    let text = if plan.before == plan.after {
        format!("{} already; nothing to do", state_text(plan.before))
    } else {
        let holds = if matches!(plan.before, State::Flat) { "entries" } else { "entries and subdirectories" };
        format!(
            "{} with {} {holds}; would be {}",
            state_text(plan.before),
            count_text(plan.entries),
            state_text(plan.after)
        )
    };
    wrapped("", &format!("{}: {text}", directory.display()))
}

fn converted_text(directory: &Path, converted: &Converted, took: Duration) -> String {
    let text = if converted.before == converted.after {
        format!("{} already", state_text(converted.after))
    } else {
        let went_on = if converted.before.is_half_way() { ", gone on with" } else { "" };
        format!(
            "{}{went_on}: {} entries and {} subdirectories moved in {:.1} s, {} entries/s",
            state_text(converted.after),
            count_text(converted.entries_moved),
            count_text(converted.subdirectories_moved),
            took.as_secs_f64(),
            rate_text(converted.entries_moved as f64 / took.as_secs_f64().max(1e-6)),
        )
    };
    wrapped("", &format!("{}: {text}", directory.display()))
}

/// Bytes of the directory itself that say nothing any more, where they are many: ext4 never gives a directory's blocks
/// back, and reading what lies in it reads them all.
fn blocks_kept(directory: &Path, converted: &Converted) -> Option<u64> {
    let managed = matches!(converted.after, State::Managed(_)) && converted.before != converted.after;
    let bytes = std::fs::metadata(directory).ok()?.len();
    (managed && bytes >= BLOCKS_TOLD_MIN).then_some(bytes)
}

/// A hidden level of a thousand names takes 12 to 40 kB.
const BLOCKS_TOLD_MIN: u64 = 256 << 10;

fn blocks_text(bytes: u64) -> String {
    format!(
        "the directory keeps the {} that it had when flat, and each listing reads them; `e2fsck -fD` on the unmounted \
         file system makes it small",
        bytes_text(bytes)
    )
}

/// How fast it goes, since the work at hand began.
struct Pace {
    work: Option<Work>,
    begun: Instant,
}

impl Pace {
    fn start() -> Self {
        Self { work: None, begun: Instant::now() }
    }

    fn text(&mut self, directory: &Path, Done { work, done, of }: Done) -> String {
        if self.work.replace(work) != Some(work) {
            self.begun = Instant::now();
        }
        let what = match work {
            Work::Sort => "entries into subdirectories",
            Work::Spread => "entries out of subdirectories",
            Work::Lift => "subdirectories to their places",
            Work::Stow => "subdirectories out of their places",
        };
        let rate = done as f64 / self.begun.elapsed().as_secs_f64().max(1e-3);
        let rest_s = if rate > 0.0 { of.saturating_sub(done) as f64 / rate } else { 0.0 };
        format!(
            "{}: {} of {} {what}, {}/s, {rest_s:.0} s left",
            directory.display(),
            count_text(done),
            count_text(of),
            rate_text(rate)
        )
    }
}
