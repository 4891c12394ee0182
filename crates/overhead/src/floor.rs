//! The floor beside the layer: a file system that answers from memory, mounted by this run and served by a process of its own.
//!
//! ```text
//! run -> directory of its own below LOWER (marked) -> process: mounts the floor there, "ready"
//! end of the run, or of its process: standard input closes -> process unmounts and ends -> directory removed
//! ```
//!
//! A process of its own, as a layer's daemon is one: threads of one process hand over to each other for less.
//! Always holds: the process ends with the run, however that ends, as it reads until the pipe from the run closes.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use files::{FileSystem, LocalFs, RUN_MARK, write_run_mark};
use fuse::{DetachError, FLOOR_TYPE, Floor};
use measure::proc::MountInfo;
use rustix::fs::{stat, statfs};
use rustix::io::Errno;

use crate::build::is_on_the_path;
use crate::side::PREFIX;
use crate::{OverheadConfig, OverheadError};

/// The program that calls [`serve_floor`] with this directory.
pub type FloorCommand = fn(&Path) -> io::Result<Command>;

const READY: &str = "ready";

/// Mounts the floor at `place` and serves it until standard input ends. Says on standard output that it answers, or why it cannot.
///
/// # Errors
/// When it cannot be mounted.
pub fn serve_floor(place: &Path) -> io::Result<()> {
    let mounted = Floor::mount(place);
    let word = match &mounted {
        Ok(_) => READY.to_owned(),
        Err(error) => refusal(error),
    };
    // A run that has gone reads nothing, and has closed the other pipe too.
    drop(writeln!(io::stdout(), "{word}"));
    let floor = mounted?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    drop(floor);
    Ok(())
}

fn refusal(error: &io::Error) -> String {
    let is_root = rustix::process::geteuid().is_root();
    let cause = error.to_string().lines().collect::<Vec<_>>().join(", ");
    match error.kind() {
        // An older fusermount alone mounts on no directory that has a file in it.
        _ if !is_root && !is_on_the_path("fusermount3") => {
            "not root, and fusermount3 is not installed (package fuse3)".to_owned()
        }
        io::ErrorKind::NotFound => format!("{}: {cause}; load the kernel's fuse module", fuse::DEVICE),
        _ if is_root => {
            format!("{cause}; mounting needs the capability SYS_ADMIN, which containers may lack")
        }
        _ => format!("{cause}; an ordinary user needs a /dev/fuse that all may open"),
    }
}

/// A floor that is mounted in a directory of runs.
#[derive(Clone, Debug)]
pub struct MountedFloor {
    /// The directory's name.
    pub name: String,
    /// Its process answers, so that its run is under way.
    pub answers: bool,
    place: PathBuf,
}

/// The floors of this user's runs that are mounted in `target`.
///
/// # Errors
/// When the target or the table of mounts cannot be read.
pub fn floors_in(target: &Path) -> io::Result<Vec<MountedFloor>> {
    let target = target.canonicalize()?;
    let owner = format!("user_id={}", rustix::process::geteuid().as_raw());
    let floors = MountInfo::all()?.into_iter().filter(|mount| {
        mount.kind == FLOOR_TYPE
            && mount.point.parent() == Some(&*target)
            && mount.options.split(',').any(|option| option == owner)
    });
    let described = floors.filter_map(|mount| {
        let name = mount.point.file_name()?.to_str()?.to_owned();
        let answers = !statfs(&mount.point).is_err_and(|error| error == Errno::NOTCONN);
        name.starts_with(PREFIX).then_some(MountedFloor { name, answers, place: mount.point })
    });
    Ok(described.collect())
}

impl MountedFloor {
    /// Unmounts it.
    ///
    /// # Errors
    /// When the kernel or fusermount3 refuses.
    pub fn detach(&self) -> Result<(), DetachError> {
        fuse::detach(&self.place, true)
    }
}

/// A mounted floor, and the process that serves it.
pub(crate) struct FloorDaemon {
    child: Child,
    /// Closed, it ends the process.
    held: Option<ChildStdin>,
    root: Arc<dyn FileSystem>,
    own: Arc<dyn FileSystem>,
    folder: PathBuf,
    place: PathBuf,
}

impl FloorDaemon {
    /// Mounts a floor on a new directory in `lower`. The error says why it cannot.
    pub fn start(lower: &Path, config: &OverheadConfig, command: FloorCommand) -> Result<Self, String> {
        let text = |error: &dyn std::error::Error| measure::error_chain(error);
        let root: Arc<dyn FileSystem> = Arc::new(LocalFs::open(lower).map_err(|error| text(&error))?);
        let folder = PathBuf::from(format!("{PREFIX}{}-mountpoint", config.name));
        let own = root.make_own(&folder).map_err(|error| text(&error))?;
        let place = lower.join(&folder);
        let started =
            write_run_mark(&*own).map_err(|error| text(&error)).and_then(|()| start_serving(&place, command));
        match started {
            Ok((child, held)) => Ok(Self { child, held: Some(held), root, own, folder, place }),
            Err(why) => {
                drop(own.unlink(Path::new(RUN_MARK)));
                drop(root.rmdir(&folder));
                Err(why)
            }
        }
    }

    /// Where it is mounted.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Unmounts it and removes its directory.
    pub fn stop(mut self) -> Result<(), OverheadError> {
        drop(self.held.take());
        // It has ended when this fails.
        drop(self.child.wait());
        let above = self.place.parent().unwrap_or(Path::new("/"));
        let device = |path: &Path| stat(path).map(|found| found.st_dev).ok();
        // Its process may have been killed: then the mount is there and does not answer.
        if device(&self.place) != device(above) {
            fuse::detach(&self.place, true).map_err(|source| OverheadError::FloorStays {
                place: self.place.display().to_string(),
                source,
            })?;
        }
        self.own.unlink(Path::new(RUN_MARK))?;
        self.root.rmdir(&self.folder)?;
        Ok(())
    }
}

fn start_serving(place: &Path, command: FloorCommand) -> Result<(Child, ChildStdin), String> {
    let failed = |error: io::Error| format!("its process cannot be started: {error}");
    let mut command = command(place).map_err(failed)?;
    // In a group of its own, so that Ctrl-C reaches the run and not it.
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    let (Some(held), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
        return Err("its process has no pipes".to_owned());
    };
    let mut words = BufReader::new(out);
    let mut word = String::new();
    let heard = words.read_line(&mut word);
    if heard.is_ok() && word.trim() == READY {
        return Ok((child, held));
    }
    drop(held);
    // A word that is no text is no reason to wait for more.
    drop(words.read_to_string(&mut word));
    let status = child.wait().map_err(failed)?;
    match word.trim() {
        "" => Err(format!("its process ended before it was ready: {status}")),
        why => Err(why.to_owned()),
    }
}
