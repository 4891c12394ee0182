//! What `crumb manage` and `crumb unmanage` print of a directory.

use std::path::Path;
use std::time::{Duration, Instant};

use report::{bytes_text, count_text, rate_text};
use stackfs::convert::{Converted, Plan, Progress as Done, State, Work};

use crate::layout::wrapped;

fn state_text(state: State) -> String {
    match state {
        State::Flat => "flat".to_owned(),
        State::Managed(layout) => format!("managed in layout {layout}"),
        State::MovingEntries(layout) | State::MovingLevels(layout) => {
            format!("half converted (layout {layout})")
        }
    }
}

pub(super) fn plan_text(directory: &Path, plan: &Plan) -> String {
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

pub(super) fn converted_text(directory: &Path, converted: &Converted, took: Duration) -> String {
    let text = if converted.before == converted.after {
        format!("{} already", state_text(converted.after))
    } else {
        let continued = if converted.before.is_half_way() { ", continued" } else { "" };
        format!(
            "{}{continued}: {} entries moved, {} subdirectories {}, in {:.1} s, {} entries/s",
            state_text(converted.after),
            count_text(converted.entries_moved),
            count_text(converted.subdirectories_moved),
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
