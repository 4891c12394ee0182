//! Commands of the user's around each run: `--prepare` before it, `--cleanup` after it.
//!
//! Always holds: where the preparation ran, the cleanup runs, whatever happened between; what a command prints is on standard error,
//! since standard output belongs to the results.

use std::process::{Command, ExitStatus, Stdio};
use std::{fmt, io};

/// The commands, for `sh -c`.
#[derive(Clone, Debug, Default)]
pub struct Hooks {
    /// Before each run.
    pub prepare: Option<String>,
    /// After each run.
    pub cleanup: Option<String>,
}

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

impl Hooks {
    /// Does `work` between the two commands. Where `work` fails too, its error is the cause.
    ///
    /// # Errors
    /// [`HookFailed`], or what `work` fails with.
    pub fn around<T>(&self, of: Of<'_>, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let prepared = run("--prepare", self.prepare.as_deref(), of);
        let done = prepared.map_err(anyhow::Error::from).and_then(|()| work());
        let cleaned = run("--cleanup", self.cleanup.as_deref(), of);
        match (done, cleaned) {
            (done, Ok(())) => done,
            (Ok(_), Err(failed)) => Err(failed.into()),
            (Err(first), Err(failed)) => Err(first.context(failed)),
        }
    }
}

fn run(flag: &'static str, command: Option<&str>, of: Of<'_>) -> Result<(), HookFailed> {
    let Some(command) = command else { return Ok(()) };
    let ended = Command::new("sh")
        .args(["-c", command])
        .env("CRUMB_TARGET", of.target)
        .env("CRUMB_SIDE", of.side)
        .env("CRUMB_WORKLOAD", of.workload)
        .stdin(Stdio::null())
        .stdout(io::stderr())
        .status();
    let how = match ended {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => text_of(status),
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

fn text_of(status: ExitStatus) -> String {
    status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF: Of<'_> = Of { target: "/mnt/a", side: "ssd", workload: "mail" };

    fn hooks(prepare: &str, cleanup: &str) -> Hooks {
        Hooks { prepare: Some(prepare.to_owned()), cleanup: Some(cleanup.to_owned()) }
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
}
