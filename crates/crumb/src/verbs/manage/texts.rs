//! What `crumb manage` and `crumb unmanage` print of a directory.

use std::path::Path;
use std::time::{Duration, Instant};

use files::Layout;
use report::{bytes_text, count_text, rate_text};
use stackfs::convert::{Converted, Goal, Plan, Progress as Done, State, Work};

use crate::layout::{counted, wrapped};

/// Why the layout is not the usual default, where none was given.
fn why_text(goal: Goal, after: State, are_not_numbers: bool) -> &'static str {
    let is_chosen = goal == Goal::Managed(None) && after == State::Managed(Layout::Hash2);
    if is_chosen && are_not_numbers { " (its names are not numbers)" } else { "" }
}

/// A warning where the layout that was given keeps most names together.
pub(super) fn together_text(after: State, are_not_numbers: bool) -> Option<String> {
    let State::Managed(layout) = after else { return None };
    (are_not_numbers && layout.keeps_others_apart()).then(|| {
        format!(
            "most of its names are not numbers, and layout {layout} keeps all of these in one subdirectory, {}; `--layout \
             hash:2` spreads them",
            Layout::OTHERS
        )
    })
}

fn state_text(state: State) -> String {
    match state {
        State::Flat => "flat".to_owned(),
        State::Managed(layout) => format!("managed in layout {layout}"),
        State::MovingEntries(layout) | State::MovingLevels(layout) => {
            format!("half converted (layout {layout})")
        }
    }
}

pub(super) fn plan_text(directory: &Path, goal: Goal, plan: &Plan) -> String {
    let text = if plan.before == plan.after {
        format!("{} already; nothing to do", state_text(plan.before))
    } else {
        let holds = match plan.before {
            State::Flat => counted(plan.entries as usize, "entry", "entries"),
            _ => format!("{} entries and subdirectories", count_text(plan.entries)),
        };
        let spread = match plan.subdirectories {
            0 => String::new(),
            some => format!(", in about {}", counted(some as usize, "subdirectory", "subdirectories")),
        };
        format!(
            "{} with {holds}; would be {}{}{spread}",
            state_text(plan.before),
            state_text(plan.after),
            why_text(goal, plan.after, plan.are_not_numbers),
        )
    };
    wrapped("", &format!("{}: {text}", directory.display()))
}

pub(super) fn converted_text(directory: &Path, goal: Goal, converted: &Converted, took: Duration) -> String {
    let text = if converted.before == converted.after {
        format!("{} already", state_text(converted.after))
    } else {
        let continued = if converted.before.is_half_way() { ", continued" } else { "" };
        format!(
            "{}{}{continued}: {} moved, {} {}, in {:.1} s, {} entries/s",
            state_text(converted.after),
            why_text(goal, converted.after, converted.are_not_numbers),
            counted(converted.entries_moved as usize, "entry", "entries"),
            counted(converted.subdirectories_moved as usize, "subdirectory", "subdirectories"),
            if converted.after == State::Flat { "removed" } else { "made" },
            took.as_secs_f64(),
            rate_text(converted.entries_moved as f64 / took.as_secs_f64().max(1e-6)),
        )
    };
    wrapped("", &format!("{}: {text}", directory.display()))
}

/// Bytes of the directory itself that say nothing any more, where they are many: ext4 never gives a directory's blocks
/// back, and reading what lies in it reads them all.
pub(super) fn blocks_kept(directory: &Path, converted: &Converted) -> Option<u64> {
    let managed = matches!(converted.after, State::Managed(_)) && converted.before != converted.after;
    let bytes = std::fs::metadata(directory).ok()?.len();
    (managed && bytes >= BLOCKS_REPORTED_MIN).then_some(bytes)
}

/// A hidden level of a thousand names takes 12 to 40 kB.
const BLOCKS_REPORTED_MIN: u64 = 256 << 10;

pub(super) fn blocks_text(bytes: u64) -> String {
    format!(
        "the directory keeps the {} that it had when flat, and each listing reads them; `e2fsck -fD` on the unmounted \
         file system makes it small",
        bytes_text(bytes)
    )
}

/// What to do after `crumb manage`: until a mount shows it, programs see the subdirectories.
pub(super) fn next_text(directories: &[&Path], online: bool) -> Option<String> {
    let words: Vec<String> =
        directories.iter().map(|path| doctor::shell_word(&path.display().to_string())).collect();
    let all = match &words[..] {
        [] => return None,
        [one] => one,
        _ => "DIR…",
    };
    Some(if online {
        format!("programs see it as before; `crumb unmanage --online {all}` reverts")
    } else {
        format!(
            "until a `crumb mount` shows it, programs see the subdirectories: `crumb mount {} MOUNTPOINT`, or mount a directory \
             above it; `crumb unmanage {all}` reverts",
            if words.len() == 1 { all } else { "TREE" },
        )
    })
}

/// Rate and time left of the current step.
pub(super) struct Pace {
    work: Option<Work>,
    begun: Instant,
}

impl Pace {
    pub(super) fn start() -> Self {
        Self { work: None, begun: Instant::now() }
    }

    pub(super) fn text(&mut self, directory: &Path, Done { work, done, of }: Done) -> String {
        if self.work.replace(work) != Some(work) {
            self.begun = Instant::now();
        }
        let what = match work {
            Work::EntriesIntoStaging => "entries into subdirectories",
            Work::EntriesOutOfStaging => "entries out of subdirectories",
            Work::LevelsOutOfStaging => "subdirectories to their places",
            Work::LevelsIntoStaging => "subdirectories out of their places",
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
