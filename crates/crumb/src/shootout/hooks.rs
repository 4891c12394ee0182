//! Commands of the user's around each run: `--prepare` before it, `--cleanup` after it.
//!
//! ```text
//! --prepare ... signal -> SIGTERM to its process group -> 2 s -> SIGKILL      then --cleanup
//! --cleanup ... signal -> 5 s to end by itself -> SIGTERM -> 2 s -> SIGKILL
//! ```
//!
//! Always holds: where the preparation was begun, the cleanup runs, whatever happened between; one signal ends both within seconds, with
//! all processes that they started in their group; what a command prints is on standard error, since standard output belongs to the
//! results.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, io};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, waitpid};

use crate::output::say;
use crate::signals::Interruption;

/// The commands, for `sh -c`.
#[derive(Clone, Debug, Default)]
pub struct Hooks {
    /// Before each run.
    pub prepare: Option<String>,
    /// After each run.
    pub cleanup: Option<String>,
    /// Raised by a signal, which ends the commands.
    pub stop: Arc<AtomicBool>,
    /// By which a second signal ends them at once.
    pub interruption: Interruption,
}

/// How long a cleanup may take once a signal has come: it is to put right what the preparation did.
const CLEANUP_AFTER_SIGNAL: Duration = Duration::from_secs(5);
/// From SIGTERM to SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// Between two looks at whether it has ended, or a signal has come.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The run that a command is for.
#[derive(Clone, Copy, Debug)]
pub struct Of<'a> {
    /// `CRUMB_TARGET`.
    pub target: &'a str,
    /// `CRUMB_SIDE`.
    pub side: &'a str,
    /// `CRUMB_WORKLOAD`.
    pub workload: &'a str,
}

/// A command that did not succeed: the shootout ends.
#[derive(Debug)]
pub struct HookFailed {
    flag: &'static str,
    workload: String,
    side: String,
    how: String,
    command: String,
}

impl fmt::Display for HookFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flag, workload, side, how, command } = self;
        write!(f, "{flag} failed for {workload} on {side} ({how}): {command}")
    }
}

impl std::error::Error for HookFailed {}

/// A signal came before or while the preparation ran.
#[derive(Debug)]
struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a signal ended it before it was prepared")
    }
}

impl std::error::Error for Interrupted {}

impl Hooks {
    /// Does `work` between the two commands. Where `work` fails too, its error is the cause.
    ///
    /// # Errors
    /// [`HookFailed`], or what `work` fails with; another one when a signal ended the preparation.
    pub fn around<T>(&self, of: Of<'_>, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Interrupted.into());
        }
        let prepared = self.run("--prepare", self.prepare.as_deref(), Duration::ZERO, of);
        // That it failed is the signal's doing.
        let prepared = match prepared {
            Err(_) if self.stop.load(Ordering::Relaxed) => Err(Interrupted.into()),
            prepared => prepared.map_err(anyhow::Error::from),
        };
        let done = prepared.and_then(|()| work());
        let cleaned = self.run("--cleanup", self.cleanup.as_deref(), CLEANUP_AFTER_SIGNAL, of);
        match (done, cleaned) {
            (done, Ok(())) => done,
            (Ok(_), Err(failed)) => Err(failed.into()),
            (Err(first), Err(failed)) => Err(first.context(failed)),
        }
    }

    fn run(
        &self,
        flag: &'static str,
        command: Option<&str>,
        grace: Duration,
        of: Of<'_>,
    ) -> Result<(), HookFailed> {
        let Some(command) = command else { return Ok(()) };
        // A group of its own: a signal to it reaches all that it started, and nothing else.
        let started = Command::new("sh")
            .args(["-c", command])
            .env("CRUMB_TARGET", of.target)
            .env("CRUMB_SIDE", of.side)
            .env("CRUMB_WORKLOAD", of.workload)
            .stdin(Stdio::null())
            .stdout(io::stderr())
            .process_group(0)
            .spawn();
        let how = match started {
            Ok(child) => match self.ended(flag, Pid::from_child(&child), grace) {
                Ok(status) if status.exit_status() == Some(0) => return Ok(()),
                Ok(status) => text_of(status),
                Err(error) => format!("cannot wait for it: {error}"),
            },
            Err(error) => format!("cannot start sh: {error}"),
        };
        Err(HookFailed {
            flag,
            workload: of.workload.to_owned(),
            side: of.side.to_owned(),
            how,
            command: command.to_owned(),
        })
    }

    /// Waits for the command to end; once a signal has come, for `grace` more at most.
    fn ended(&self, flag: &str, group: Pid, grace: Duration) -> io::Result<WaitStatus> {
        let _owned = self.interruption.owns_group(group);
        let mut signalled: Option<Instant> = None;
        let (mut is_terminated, mut is_stopped) = (false, false);
        loop {
            match waitpid(Some(group), WaitOptions::NOHANG | WaitOptions::UNTRACED)? {
                // It asked for the terminal, as `sudo` does for a password, which only the group in front has.
                Some((_, status)) if status.stopped() => is_stopped = true,
                Some((_, status)) => {
                    // What it left running in its group, which keeps it from ending, or was stopped.
                    if is_terminated || is_stopped {
                        let _ = kill_process_group(group, Signal::KILL);
                    }
                    return Ok(status);
                }
                None => std::thread::sleep(LOOK_EVERY),
            }
            if is_stopped && !is_terminated {
                say(&format!(
                    "crumb: {flag} wants input from the terminal, which it cannot have: it is ended"
                ));
                is_terminated = true;
                let _ = kill_process_group(group, Signal::KILL);
            }
            if !self.stop.load(Ordering::Relaxed) {
                continue;
            }
            let since = signalled.get_or_insert_with(|| {
                if !grace.is_zero() {
                    say(&format!("crumb: {flag} has {} s to end", grace.as_secs()));
                }
                Instant::now()
            });
            let waited = since.elapsed();
            if waited > grace + TERM_GRACE {
                let _ = kill_process_group(group, Signal::KILL);
            } else if waited >= grace && !is_terminated {
                is_terminated = true;
                let _ = kill_process_group(group, Signal::TERM);
            }
        }
    }
}

fn text_of(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "neither ended nor signalled".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: Of<'_> = Of { target: "/mnt/a", side: "ssd", workload: "mail" };

    fn hooks(prepare: &str, cleanup: &str) -> Hooks {
        Hooks { prepare: Some(prepare.to_owned()), cleanup: Some(cleanup.to_owned()), ..Hooks::default() }
    }

    #[test]
    fn each_command_knows_its_run_and_both_run_around_the_work() {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        let write = |word: &str| {
            format!("echo {word} $CRUMB_WORKLOAD $CRUMB_SIDE $CRUMB_TARGET >> {}", log.display())
        };
        hooks(&write("before"), &write("after")).around(OF, || Ok(())).unwrap();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "before mail ssd /mnt/a\nafter mail ssd /mnt/a\n");
    }

    #[test]
    fn a_command_that_fails_is_named_and_the_cleanup_runs_all_the_same() {
        let place = tempfile::tempdir().unwrap();
        let log = place.path().join("log");
        let wrong = hooks("exit 3", &format!("echo cleaned > {}", log.display()))
            .around(OF, || -> anyhow::Result<()> { panic!("not prepared") })
            .unwrap_err();
        assert_eq!(wrong.to_string(), "--prepare failed for mail on ssd (exit code 3): exit 3");
        assert!(wrong.is::<HookFailed>() && log.exists());
        let wrong =
            hooks("true", "exit 4").around::<()>(OF, || Err(anyhow::anyhow!("no space"))).unwrap_err();
        assert!(wrong.is::<HookFailed>() && format!("{wrong:#}").contains("no space"), "{wrong:#}");
    }

    /// Symptom: a preparation that hung was ended by neither Ctrl-C nor SIGTERM: the shootout waited for it.
    #[test]
    fn a_signal_ends_a_preparation_with_all_that_it_started_and_the_cleanup_still_runs() {
        let place = tempfile::tempdir().unwrap();
        let (pid, cleaned) = (place.path().join("pid"), place.path().join("cleaned"));
        // The one that waits is not the shell, and takes no SIGTERM.
        let hangs =
            format!("sh -c 'trap \"\" TERM; echo $$ > {}; sleep 1000' & wait; sleep 1000", pid.display());
        let hooks = hooks(&hangs, &format!("touch {}", cleaned.display()));
        let (stop, path) = (Arc::clone(&hooks.stop), pid.clone());
        let signal = std::thread::spawn(move || {
            while std::fs::read_to_string(&path).map_or(true, |text| !text.ends_with('\n')) {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
        let wrong = hooks.around(OF, || -> anyhow::Result<()> { panic!("not prepared") }).unwrap_err();
        signal.join().unwrap();
        assert!(!wrong.is::<HookFailed>() && cleaned.exists(), "{wrong:#}");
        let child: i32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        let child = Pid::from_raw(child).unwrap();
        // It may stay a moment until its new parent has taken its end.
        let state = || std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        assert!(state().is_empty() || state().contains(") Z "), "{}", state());
    }

    #[test]
    fn a_cleanup_that_does_not_end_is_ended_once_a_signal_has_come() {
        let hooks = hooks("true", "sleep 1000");
        let stop = Arc::clone(&hooks.stop);
        let wrong = hooks.around(OF, || {
            stop.store(true, Ordering::Relaxed);
            Ok(())
        });
        assert!(
            wrong.unwrap_err().to_string().contains("--cleanup failed for mail on ssd (ended by signal 15)")
        );
    }
}
