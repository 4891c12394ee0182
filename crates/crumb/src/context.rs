//! What every verb gets besides its own flags: where runs are kept, how much to say, what was typed.
//!
//! The run store is, in this order: `--store FILE`, `CRUMB_STORE`, `$XDG_DATA_HOME/crumb/runs.db`,
//! `~/.local/share/crumb/runs.db` (XDG Base Directory Specification); for a user without a home,
//! `crumb-runs.db` where he stands.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use measure::RunId;
use report::Store;

use crate::declarations;
use crate::exit::ExitStatus;
use crate::output::{can_be_written, refuse_dangling};
use crate::signals::Interruption;
use crate::terminal::screen::{Drawing, Screen};

/// Flags that every verb understands.
#[derive(Args, Debug)]
pub struct GlobalArgs {
    /// SQLite file of the results of runs (not a packed store) [default: $CRUMB_STORE, else crumb/runs.db in the user's data directory]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Everywhere")]
    pub store: Option<PathBuf>,
    /// Print less: no progress, no notes
    #[arg(short, long, global = true, help_heading = "Everywhere", conflicts_with = "verbose")]
    pub quiet: bool,
    /// Log more on standard error; -vv logs everything
    #[arg(short, long, global = true, help_heading = "Everywhere", action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// What every verb gets besides its own flags.
pub struct Context {
    /// Where the run store lies, whether it is there or not.
    pub store: PathBuf,
    /// No progress and no notes.
    pub quiet: bool,
    /// How often `--verbose` was given.
    pub verbose: u8,
    /// Another process of the same run speaks for this one: nothing is printed, written or stored.
    pub silent: bool,
    /// The whole command line, for the record.
    pub command: Vec<String>,
    /// What a signal did, or would leave behind.
    pub interruption: Interruption,
    /// Standard error, which notes, the log and the live view of a run share.
    pub screen: Screen,
    /// How a live view is drawn; none on a terminal that shows plain lines only.
    pub drawing: Option<Drawing>,
    /// Runs that were measured and could not be kept so far.
    unkept: Mutex<BTreeSet<RunId>>,
    /// The user named the store: its directory is not made up.
    store_named: bool,
    /// Where sockets for marks may be, the best first.
    pub mark_directories: Vec<PathBuf>,
}

/// Below the user's runtime directory, or a directory of the user's own in that for temporary files.
fn mark_directories(runtime: Option<PathBuf>) -> Vec<PathBuf> {
    let runtime = runtime.filter(|path| path.is_absolute() && path.is_dir()).map(|path| path.join("crumb"));
    let user = rustix::process::geteuid().as_raw();
    runtime.into_iter().chain([std::env::temp_dir().join(format!("crumb-{user}"))]).collect()
}

/// As <https://no-color.org> has it, and on terminals only.
fn stderr_has_colours() -> bool {
    use std::io::IsTerminal as _;
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// What the environment says of the terminal.
fn drawing() -> Option<Drawing> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_plain = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    // These two leave what they show as it is when they become narrower.
    let rewraps = !is_set("XTERM_VERSION") && !is_set("STY");
    (!is_plain).then(|| Drawing { styled: stderr_has_colours(), rewraps })
}

impl Context {
    /// Reads the environment and the command line.
    pub fn new(global: GlobalArgs) -> Self {
        let screen = Screen::default();
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            store_named: global.store.is_some() || variable("CRUMB_STORE").is_some(),
            interruption: Interruption::on(screen.clone()),
            screen,
            drawing: drawing(),
            store: store_path(global.store, variable, std::env::home_dir()),
            quiet: global.quiet,
            verbose: global.verbose,
            silent: false,
            unkept: Mutex::default(),
            command: command_line(),
            mark_directories: mark_directories(variable("XDG_RUNTIME_DIR")),
        }
    }

    /// The same for a process for which another one of the same run speaks.
    pub fn silenced(self) -> Self {
        Self { silent: true, quiet: true, ..self }
    }

    /// The same for one run of a verb that makes many: the run prints nothing by itself, and `command` is the one that makes it.
    pub fn of_one_run(&self, command: Vec<String>) -> Self {
        Self {
            store: self.store.clone(),
            quiet: true,
            verbose: self.verbose,
            silent: self.silent,
            command,
            interruption: self.interruption.clone(),
            screen: self.screen.clone(),
            drawing: self.drawing,
            unkept: Mutex::default(),
            store_named: self.store_named,
            mark_directories: self.mark_directories.clone(),
        }
    }

    /// Sends what the libraries have to tell to standard error.
    pub fn start_log(&self) {
        let level = match (self.quiet, self.verbose) {
            (true, _) => tracing::Level::ERROR,
            (false, 0) => tracing::Level::WARN,
            (false, 1) => tracing::Level::INFO,
            (false, _) => tracing::Level::DEBUG,
        };
        let screen = self.screen.clone();
        tracing_subscriber::fmt()
            .with_writer(move || screen.writer())
            // Colours are for terminals: not for a daemon's log file, a journal or a pipe.
            .with_ansi(stderr_has_colours())
            .with_max_level(level)
            .with_target(self.verbose > 1)
            // It would panic on a terminal that is gone.
            .log_internal_errors(false)
            .init();
    }

    /// Opens the run store, and makes it when there is none; its directory only where the user did not name it.
    ///
    /// # Errors
    /// When it cannot be made, or what lies there is no run store.
    pub fn open_store(&self) -> anyhow::Result<Store> {
        self.directory_of_store()?;
        refuse_dangling(&self.store)?;
        Ok(Store::open(&self.store)?.declaring(declarations::REGISTRY))
    }

    /// Finds out whether a run can be kept, and leaves nothing behind.
    ///
    /// # Errors
    /// When the store cannot be made or written, is damaged, or the file is not a run store.
    pub fn check_store(&self) -> anyhow::Result<()> {
        match (self.existing_store()?, self.directory_of_store()?) {
            (Some(store), _) => {
                store.check_whole()?;
                Ok(store.check_writable()?)
            }
            (None, true) => can_be_written(&self.store),
            // Its directory is made with it.
            (None, false) => can_be_made(self.store.parent().unwrap_or(Path::new("."))),
        }
    }

    /// Remembers whether a run is kept; true for the first one that is not.
    pub fn is_first_unkept(&self, run: &RunId, kept: bool) -> bool {
        let mut unkept = self.unkept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept {
            unkept.remove(run);
            return false;
        }
        let any_before = !unkept.is_empty();
        unkept.insert(run.clone()) && !any_before
    }

    /// How a verb ended, with the runs that it could not keep.
    pub fn ended(&self, status: ExitStatus) -> ExitStatus {
        let unkept = self.unkept.lock().unwrap_or_else(PoisonError::into_inner);
        if unkept.is_empty() { status } else { ExitStatus::Unkept }
    }

    /// Whether the directory of the store is there.
    fn directory_of_store(&self) -> anyhow::Result<bool> {
        let Some(parent) = self.store.parent().filter(|parent| !parent.as_os_str().is_empty()) else {
            return Ok(true);
        };
        let there = parent.is_dir();
        if !there && self.store_named {
            bail!(
                "{}: there is no directory {1} for the run store; make it (mkdir -p {1}) or name another file with --store",
                self.store.display(),
                parent.display()
            );
        }
        Ok(there)
    }

    /// Opens the run store if there is one: looking at runs should leave no file behind.
    ///
    /// # Errors
    /// When what lies there is no run store.
    pub fn existing_store(&self) -> anyhow::Result<Option<Store>> {
        match self.store.try_exists() {
            Ok(false) => Ok(None),
            Ok(true) => self.open_store().map(Some),
            Err(error) => {
                Err(error).with_context(|| format!("{}: cannot look for the run store", self.store.display()))
            }
        }
    }

    /// The same for a verb that is nothing without runs.
    ///
    /// # Errors
    /// Also when there is no store yet.
    pub fn store_with_runs(&self) -> anyhow::Result<Store> {
        self.existing_store()?.with_context(|| {
            format!(
                "{}: no runs yet, as this file is not there; make one with `crumb run fstress`, or name another store with --store FILE",
                self.store.display()
            )
        })
    }
}

/// Finds out whether a directory, and those above it, can be made, without making any.
fn can_be_made(directory: &Path) -> anyhow::Result<()> {
    let there = directory.ancestors().find(|above| above.as_os_str().is_empty() || above.exists());
    let there = there.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let shown = (directory.display(), there.display());
    let cannot = || format!("cannot make the directory {} for the run store", shown.0);
    if !there.is_dir() {
        return Err(anyhow!("{} is a file", shown.1).context(cannot()));
    }
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(there, access)
        .with_context(|| format!("{} cannot be written", shown.1))
        .with_context(cannot)
}

/// Marks the program that `mount --daemon` starts.
pub const SERVE_DAEMON: &str = "--serve-daemon";

/// The words typed; the program without the directory it lies in, which is nobody's business in a report.
fn command_line() -> Vec<String> {
    // `mount --daemon` adds a word to those typed, for the program that it starts.
    let typed = std::env::args_os().skip(1).filter(|word| *word != SERVE_DAEMON);
    let words = typed.map(|word| word.to_string_lossy().into_owned());
    std::iter::once("crumb".to_owned()).chain(words).collect()
}

fn store_path(
    flag: Option<PathBuf>,
    variable: impl Fn(&'static str) -> Option<PathBuf>,
    home: Option<PathBuf>,
) -> PathBuf {
    // The specification asks that a relative XDG_DATA_HOME is ignored.
    let data = || variable("XDG_DATA_HOME").filter(|path| path.is_absolute());
    let in_data = || Some(data().or_else(|| Some(home?.join(".local/share")))?.join("crumb/runs.db"));
    flag.or_else(|| variable("CRUMB_STORE"))
        .or_else(in_data)
        .unwrap_or_else(|| PathBuf::from("crumb-runs.db"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_whose_directory_cannot_be_made_is_found_before_the_run_and_nothing_is_made() {
        let bench = tempfile::tempdir().unwrap();
        let (file, deep) = (bench.path().join("file"), bench.path().join("a/b"));
        std::fs::write(&file, "").unwrap();
        assert!(can_be_made(&deep).is_ok() && !bench.path().join("a").exists());
        let wrong = format!("{:#}", can_be_made(&file.join("share/crumb")).unwrap_err());
        assert!(
            wrong.starts_with("cannot make the directory ") && wrong.ends_with("file is a file"),
            "{wrong}"
        );
    }

    #[test]
    fn the_store_is_where_the_most_deliberate_word_puts_it() {
        fn with(flag: Option<&str>, variables: &[(&str, &str)], home: Option<&str>) -> String {
            let variable = |wanted: &'static str| {
                variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| PathBuf::from(value))
            };
            store_path(flag.map(PathBuf::from), variable, home.map(PathBuf::from)).display().to_string()
        }
        let all = [("CRUMB_STORE", "/c.db"), ("XDG_DATA_HOME", "/x")];
        assert_eq!(with(Some("f.db"), &all, Some("/h")), "f.db");
        assert_eq!(with(None, &all, Some("/h")), "/c.db");
        assert_eq!(with(None, &all[1..], Some("/h")), "/x/crumb/runs.db");
        assert_eq!(with(None, &[("XDG_DATA_HOME", "x")], Some("/h")), "/h/.local/share/crumb/runs.db");
        assert_eq!(with(None, &[], None), "crumb-runs.db");
    }
}
