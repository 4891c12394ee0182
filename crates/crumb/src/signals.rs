//! Ctrl-C, SIGTERM and SIGHUP (a terminal or an ssh connection that is gone): the first asks for a clean end and says what the
//! next one does, a later one ends the process at once and says what it leaves behind. While a run that came to its end removes
//! its files the first Ctrl-C already does: the results are there by then.
//!
//! Always holds: a SIGHUP that was ignored when the process began, as nohup(1) does, stays ignored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nfs::NfsError;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::context::Context;
use crate::exit::INTERRUPTED;
use crate::terminal::screen::Screen;

/// A second signal so soon is the first one again: timeout(1) signals the process and then its group, and whatever
/// cleaning up was under way would stay undone.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// How long the signal of a terminal that is gone is waited for, once standard output has no reader any more: both happen at
/// once, and the write may fail before the thread that listens to signals has run.
const SIGNAL_OF_A_LOST_TERMINAL: Duration = Duration::from_millis(100);

/// Whether a signal ended the verb, and what is there that a second one would leave behind.
#[derive(Clone, Debug, Default)]
pub struct Interruption {
    seen: Arc<AtomicBool>,
    /// Signals are listened to.
    listens: Arc<AtomicBool>,
    leaves: Arc<Mutex<Vec<String>>>,
    /// Process groups of commands of the user's that are under way.
    groups: Arc<Mutex<Vec<Pid>>>,
    /// The run has shown its results, and only removes its files.
    cleaning: Arc<AtomicBool>,
    /// Say on standard error what a signal does.
    speaks: bool,
    screen: Screen,
}

/// A process group that does not outlive this process, even if a second signal ends it at once.
#[derive(Debug)]
pub struct OwnGroup {
    group: Pid,
    groups: Arc<Mutex<Vec<Pid>>>,
}

impl Drop for OwnGroup {
    fn drop(&mut self) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).retain(|group| *group != self.group);
    }
}

/// Something that is removed before the verb ends, unless a second signal ends it at once.
#[derive(Debug)]
pub struct Leaving {
    what: String,
    leaves: Arc<Mutex<Vec<String>>>,
}

impl Interruption {
    /// Says what a signal does on `screen`.
    pub fn on(screen: Screen) -> Self {
        Self { screen, ..Self::default() }
    }

    /// What the next Ctrl-C does.
    pub fn next_ctrl_c(&self) -> &'static str {
        let is_seen = self.is_seen();
        match (self.cleaning.load(Ordering::Relaxed), is_seen) {
            (true, _) => "Ctrl-C ends it at once and leaves the rest behind",
            (false, true) => "ending early, and cleaning up; Ctrl-C again ends it at once",
            (false, false) => "Ctrl-C ends it with what it has",
        }
    }

    /// Whether a signal has come.
    pub fn is_seen(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }

    /// The same for a verb whose standard output has no reader any more: waits a moment for the signal that comes with it where
    /// it was the terminal that went.
    pub fn is_seen_or_comes(&self) -> bool {
        let begun = Instant::now();
        while !self.is_seen() {
            if !self.listens.load(Ordering::Relaxed) || begun.elapsed() > SIGNAL_OF_A_LOST_TERMINAL {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// The same, and what a signal does is said.
    #[must_use]
    pub fn speaking(self) -> Self {
        Self { speaks: true, ..self }
    }

    /// Notes that all is measured and shown, and that only files are removed from here on, until the verb ends.
    pub fn cleans_up(&self) {
        self.cleaning.store(true, Ordering::Relaxed);
    }

    /// Notes that `what` is there until the value is dropped.
    pub fn would_leave(&self, what: impl Into<String>) -> Leaving {
        let what = what.into();
        self.leaves.lock().unwrap_or_else(PoisonError::into_inner).push(what.clone());
        Leaving { what, leaves: Arc::clone(&self.leaves) }
    }

    /// Notes that the process group is there until the value is dropped.
    pub fn owns_group(&self, group: Pid) -> OwnGroup {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).push(group);
        OwnGroup { group, groups: Arc::clone(&self.groups) }
    }

    fn kill_groups(&self) {
        for group in self.groups.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = kill_process_group(*group, Signal::KILL);
        }
    }

    /// What the first signal does, and the next one would.
    fn first_words(&self) -> String {
        let leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = if leaves.is_empty() { "" } else { " and leaves behind:" };
        let mut text = format!("ending early, and cleaning up; Ctrl-C again ends it at once{rest}\n");
        leaves.iter().for_each(|what| text.push_str(&format!("  {what}\n")));
        text
    }

    fn last_words(&self) -> String {
        let leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        let kept =
            if self.cleaning.load(Ordering::Relaxed) { "; the results were printed before" } else { "" };
        let mut text = format!("stopped at once, without cleaning up{kept}\n");
        leaves.iter().for_each(|what| text.push_str(&format!("left behind: {what}\n")));
        text
    }
}

impl Leaving {
    /// `error`, and where it is that the server is gone: what is still there.
    pub fn said_in(&self, error: anyhow::Error) -> anyhow::Error {
        let is_gone = |cause: &(dyn std::error::Error + 'static)| {
            cause.downcast_ref::<NfsError>().is_some_and(NfsError::is_lost)
        };
        if error.chain().any(is_gone) {
            error.context(format!("the server stopped answering; left behind: {}", self.what))
        } else {
            error
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = leaves.iter().position(|what| *what == self.what) {
            leaves.remove(at);
        }
    }
}

/// A flag that the first signal raises, for a verb whose end by a signal is an interruption: its exit code is then
/// [`INTERRUPTED`].
///
/// # Errors
/// When the operating system lets no handler be set.
pub fn stop_flag_of(context: &Context) -> anyhow::Result<Arc<AtomicBool>> {
    let interruption = context.interruption.clone();
    listen(if context.quiet { interruption } else { interruption.speaking() }, || {})
}

/// A flag that the first signal raises, for what runs until a signal ends it.
///
/// # Errors
/// When the operating system lets no handler be set.
pub fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    stop_flag_waking(|| {})
}

/// As [`stop_flag`]; `wake` is called when it is raised, for a thread that sleeps until then.
///
/// # Errors
/// As [`stop_flag`].
pub fn stop_flag_waking(wake: impl Fn() + Send + 'static) -> anyhow::Result<Arc<AtomicBool>> {
    listen(Interruption::default(), wake)
}

fn listen(interruption: Interruption, wake: impl Fn() + Send + 'static) -> anyhow::Result<Arc<AtomicBool>> {
    let mut wanted = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP) {
        wanted.push(SIGHUP);
    }
    let mut signals = Signals::new(wanted).context("cannot listen to Ctrl-C")?;
    interruption.listens.store(true, Ordering::Relaxed);
    let stop = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&stop);
    let listen = move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            // Another signal's sender, such as timeout(1), wants it to end cleanly.
            let is_at_once = signal == SIGINT && interruption.cleaning.load(Ordering::Relaxed);
            let is_first = first.is_none();
            interruption.seen.store(true, Ordering::Relaxed);
            raised.store(true, Ordering::Relaxed);
            wake();
            let is_another = first.get_or_insert_with(Instant::now).elapsed() > SAME_SIGNAL;
            if is_first && !is_at_once && interruption.speaks {
                interruption.screen.print(interruption.first_words().as_bytes());
            }
            if is_another || is_first && is_at_once {
                interruption.kill_groups();
                interruption.screen.close();
                interruption.screen.print(interruption.last_words().as_bytes());
                std::process::exit(INTERRUPTED.into());
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(listen)
        .context("cannot listen to Ctrl-C")?;
    Ok(stop)
}

/// Whether the process that started this one has it ignore `signal` (proc_pid_status(5), SigIgn).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_of_a_lost_terminal_is_waited_for_only_where_signals_are_listened_to() {
        assert!(!Interruption::default().is_seen_or_comes());
        let interruption = Interruption::default();
        interruption.listens.store(true, Ordering::Relaxed);
        let seen = Arc::clone(&interruption.seen);
        let late = std::thread::spawn(move || seen.store(true, Ordering::Relaxed));
        assert!(interruption.is_seen_or_comes());
        late.join().unwrap();
    }

    #[test]
    fn the_last_words_name_what_is_there_and_nothing_that_is_gone() {
        let interruption = Interruption::default();
        let gone = interruption.would_leave("a");
        let _there = interruption.would_leave("b");
        drop(gone);
        assert_eq!(interruption.last_words(), "stopped at once, without cleaning up\nleft behind: b\n");
        assert!(!interruption.is_seen());
        assert!(
            interruption.first_words().ends_with("Ctrl-C again ends it at once and leaves behind:\n  b\n")
        );
        interruption.cleans_up();
        assert!(
            interruption
                .last_words()
                .starts_with("stopped at once, without cleaning up; the results were printed before\n")
        );
    }
}
