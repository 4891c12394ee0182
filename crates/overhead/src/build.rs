//! A build of a C package below and through the mount: `./configure` where there is one, and `make`.
//!
//! 1. The sources are put into a directory of the side, which is not timed: a package made up here, a copy of a directory, or what a
//!    tarball holds.
//! 2. `./configure` and `make` run there, timed together.
//! 3. The directory is removed.
//!
//! Always holds: the programs run as the calling user in a process group of their own, which is killed when the run is to end; what
//! they print goes to a file that is kept only when they fail.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde::Serialize;

use crate::OverheadConfig;
use crate::side::Cut;

/// What is built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sources {
    /// A package that is made up: 60 C files and a `configure`.
    MadeUp,
    /// A directory with a `Makefile` or a `configure`.
    Directory(PathBuf),
    /// A tarball of one, which `tar` knows how to unpack.
    Tarball(PathBuf),
}

/// Why there is no build.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A program is missing.
    #[error(
        "--build needs `{program}`, which is not on the PATH; install it ({package}) or leave --build out"
    )]
    NoProgram {
        /// Its name.
        program: String,
        /// The package that has it, in Debian.
        package: &'static str,
    },
    /// The sources cannot be used.
    #[error("cannot build {sources}: {why}")]
    Sources {
        /// The directory or tarball.
        sources: String,
        /// What is wrong with it.
        why: String,
    },
    /// A program could not be started, or a file not be written.
    #[error("{what} failed")]
    Io {
        /// What was to be done.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// The build itself.
    #[error("`{command}` in {place} failed ({status}); what it printed is in {log}")]
    Failed {
        /// The command.
        command: String,
        /// Where it ran.
        place: String,
        /// How it ended.
        status: String,
        /// The file.
        log: String,
    },
}

impl Sources {
    /// What a path holds: a directory, or a tarball.
    pub fn at(path: PathBuf) -> Self {
        if path.is_dir() { Self::Directory(path) } else { Self::Tarball(path) }
    }

    /// Refuses what cannot be built here.
    ///
    /// # Errors
    /// When there is no compiler, no `make`, or nothing to build.
    pub fn check(&self) -> Result<(), BuildError> {
        let compiler = std::env::var("CC").ok().filter(|name| !name.trim().is_empty());
        let compiler = compiler.as_deref().and_then(|name| name.split_whitespace().next()).unwrap_or("cc");
        needed(compiler, "gcc")?;
        needed("make", "make")?;
        let wrong =
            |path: &Path, why: String| BuildError::Sources { sources: path.display().to_string(), why };
        match self {
            Self::MadeUp => Ok(()),
            Self::Directory(path) if has_something_to_build(path) => Ok(()),
            Self::Directory(path) => Err(wrong(path, "it has neither a Makefile nor a configure".to_owned())),
            Self::Tarball(path) => {
                needed("tar", "tar")?;
                File::open(path).map(drop).map_err(|error| wrong(path, error.to_string()))
            }
        }
    }
}

fn needed(program: &str, package: &'static str) -> Result<(), BuildError> {
    let missing = || BuildError::NoProgram { program: program.to_owned(), package };
    if program.contains('/') {
        return if Path::new(program).is_file() { Ok(()) } else { Err(missing()) };
    }
    if is_on_the_path(program) { Ok(()) } else { Err(missing()) }
}

/// Whether a program of this name can be run.
pub(crate) fn is_on_the_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| {
        let there = fs::metadata(dir.join(program));
        there.is_ok_and(|there| there.is_file() && there.permissions().mode() & 0o111 != 0)
    })
}

fn has_something_to_build(dir: &Path) -> bool {
    ["configure", "Makefile", "makefile", "GNUmakefile"].iter().any(|name| dir.join(name).is_file())
}

/// Builds in the sides' directories.
pub(crate) struct Builder {
    sources: Sources,
    log: PathBuf,
}

/// The directory of a build in a side's own.
const FOLDER: &str = "build";

impl Builder {
    pub fn new(sources: &Sources, config: &OverheadConfig) -> Result<Self, BuildError> {
        sources.check()?;
        let log = std::env::temp_dir().join(format!("{}{}-build.log", crate::PREFIX, config.name));
        Ok(Self { sources: sources.clone(), log })
    }

    /// Puts the sources into `side`; where they are to be built.
    pub fn prepare(&self, side: &Path, stop: &AtomicBool) -> Result<PathBuf, Cut> {
        let place = side.join(FOLDER);
        fs::create_dir(&place).map_err(failed(format!("making {}", place.display())))?;
        let log = self.new_log()?;
        match &self.sources {
            Sources::MadeUp => {
                crate::package::write(&place).map_err(failed(format!("writing {}", place.display())))?;
            }
            Sources::Directory(path) => {
                let mut copy = Command::new("cp");
                copy.arg("-Rp").arg("--").arg(path.join(".")).arg(&place);
                self.ran(copy, "cp", &place, &log, stop)?;
            }
            Sources::Tarball(path) => {
                let mut unpack = Command::new("tar");
                unpack.arg("-xf").arg(path).arg("-C").arg(&place);
                self.ran(unpack, "tar", &place, &log, stop)?;
            }
        }
        self.built_at(place)
    }

    /// A tarball has its files in one directory.
    fn built_at(&self, place: PathBuf) -> Result<PathBuf, Cut> {
        if has_something_to_build(&place) {
            return Ok(place);
        }
        let entries = fs::read_dir(&place).map_err(failed(format!("listing {}", place.display())))?;
        let below: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        match &below[..] {
            [one] if has_something_to_build(one) => Ok(one.clone()),
            _ => {
                let sources = match &self.sources {
                    Sources::MadeUp => "the package made up".to_owned(),
                    Sources::Directory(path) | Sources::Tarball(path) => path.display().to_string(),
                };
                let why = "neither it nor its one directory has a Makefile or a configure".to_owned();
                Err(BuildError::Sources { sources, why }.into())
            }
        }
    }

    /// `./configure` and `make`.
    pub fn build(&self, place: &Path, stop: &AtomicBool) -> Result<(), Cut> {
        let log = self.new_log()?;
        if place.join("configure").is_file() {
            let mut configure = Command::new("./configure");
            configure.current_dir(place);
            self.ran(configure, "./configure", place, &log, stop)?;
        }
        let mut make = Command::new("make");
        make.current_dir(place);
        self.ran(make, "make", place, &log, stop)
    }

    /// Removes what was built; what it printed too, unless `has_failed`.
    pub fn remove(&self, side: &Path, has_failed: bool) -> Result<(), Cut> {
        if !has_failed {
            drop(fs::remove_file(&self.log));
        }
        self.remove_tree(side)
    }

    /// Removes what was built.
    pub fn remove_tree(&self, side: &Path) -> Result<(), Cut> {
        let place = side.join(FOLDER);
        match fs::remove_dir_all(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed(format!("removing {}", place.display()))(error).into())
            }
            _ => Ok(()),
        }
    }

    fn new_log(&self) -> Result<File, BuildError> {
        // In the directory for temporary files, where others could have put a link.
        drop(fs::remove_file(&self.log));
        File::create_new(&self.log).map_err(failed(format!("writing {}", self.log.display())))
    }

    fn ran(
        &self,
        mut command: Command,
        name: &str,
        place: &Path,
        log: &File,
        stop: &AtomicBool,
    ) -> Result<(), Cut> {
        let starting = || failed(format!("starting `{name}` in {}", place.display()));
        let to_log = || log.try_clone().map(Stdio::from).map_err(starting());
        command.stdin(Stdio::null()).stdout(to_log()?).stderr(to_log()?).process_group(0);
        // Of a make that runs this program: they would change what is built, or wait for its job server.
        for variable in ["MAKEFLAGS", "MAKELEVEL", "MFLAGS"] {
            command.env_remove(variable);
        }
        let mut child = command.spawn().map_err(starting())?;
        let status = match ended(&child, stop) {
            Ok(true) => child.wait(),
            Ok(false) => {
                kill_group(&mut child);
                return Err(Cut::Stopped);
            }
            Err(error) => {
                kill_group(&mut child);
                Err(error)
            }
        };
        let status = status.map_err(failed(format!("waiting for `{name}`")))?;
        if status.success() {
            return Ok(());
        }
        Err(BuildError::Failed {
            command: name.to_owned(),
            place: place.display().to_string(),
            status: status.to_string(),
            log: self.log.display().to_string(),
        }
        .into())
    }
}

/// How often a build looks at whether the run is to end.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Waits until the process has ended, to the microsecond; false when the run is to end before.
fn ended(child: &Child, stop: &AtomicBool) -> io::Result<bool> {
    let handle = pidfd_open(pid_of(child), PidfdFlags::empty())?;
    loop {
        let mut waited = [PollFd::new(&handle, PollFlags::IN)];
        match poll(&mut waited, Some(&LOOK_EVERY)) {
            Ok(0) | Err(rustix::io::Errno::INTR) if stop.load(Ordering::Relaxed) => return Ok(false),
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn kill_group(child: &mut Child) {
    let _ = kill_process_group(pid_of(child), Signal::KILL);
    drop(child.wait());
}

fn failed(what: String) -> impl FnOnce(io::Error) -> BuildError {
    move |source| BuildError::Io { what, source }
}
