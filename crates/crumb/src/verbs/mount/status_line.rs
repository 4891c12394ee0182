//! Waits for the end of a mount, with a line on the terminal meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use report::{count_text, rate_text};
use stackfs::Mount;

use super::DRAWN_EVERY;

/// Until `stop` is raised by a thread that wakes this one, or the mount is over; `watched` draws the line.
pub fn wait(mount: &Mount, stop: &AtomicBool, watched: bool) {
    let line = if watched { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    line.set_style(ProgressStyle::with_template("{wide_msg}").expect("the template is a constant"));
    let watch = mount.watch();
    mount.wake_at_end(std::thread::current());
    let (mut before, mut drawn) = (0, Instant::now());
    while !stop.load(Ordering::Relaxed) && !mount.is_over() {
        // Woken by a signal, and at the mount's end.
        if watched {
            std::thread::park_timeout(DRAWN_EVERY)
        } else {
            std::thread::park()
        }
        if watched && drawn.elapsed() >= DRAWN_EVERY {
            let census = watch.census();
            let rate = (census.total() - before) as f64 / drawn.elapsed().as_secs_f64();
            line.set_message(format!(
                "{} operations/s, {} inodes known, {} files open ({} passed through)",
                rate_text(rate),
                count_text(census.nodes as u64),
                count_text(census.files_open as u64),
                count_text(census.passed_through as u64),
            ));
            line.tick();
            (before, drawn) = (census.total(), Instant::now());
        }
    }
    line.finish_and_clear();
}
