//! What directories of runs are in a target: whose they are, and how large.

use std::path::Path;

use anyhow::Context as _;
use files::{FileSystem, FsError, MarkedProcess, TreeSize, marked_process, read_run_mark, tree_size};
use measure::proc::MountInfo;
use overhead::MountedFloor;
use serde::Serialize;

/// Directories of runs are called one of these and a name.
const PREFIXES: [&str; 7] = [
    "crumb-fstress-",
    "crumb-postmark-",
    "crumb-netnews-",
    "crumb-dirscale-",
    // Made up for a run of netnews, in the directory for temporary files.
    "crumb-feed-",
    overhead::PREFIX,
    doctor::PREFIX,
];

/// What a directory in the target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// Its process is gone.
    LeftOver,
    /// A run works in it.
    InUse,
    /// Of a machine or container that cannot be asked.
    OtherHost,
    /// No mark: kept by name.
    Kept,
    /// Another user's, a link, or not to be read.
    Refused,
}

/// A directory of a run.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    pub name: String,
    pub state: State,
    pub files: u64,
    pub directories: u64,
    pub bytes: u64,
    pub removed: bool,
    /// Why it was not, or its mark.
    pub note: Option<String>,
}

/// A directory on which a run of overhead mounted its floor. The floor of a killed run has ended with it, unless its process was killed
/// as well: then it is unmounted here, and the directory is one as any other, for which there is no answer.
pub(super) fn under_a_floor(floor: &MountedFloor, dry_run: bool) -> Option<Found> {
    let described = |state, note| Found {
        name: floor.name.clone(),
        state,
        files: 0,
        directories: 0,
        bytes: 0,
        removed: false,
        note,
    };
    if floor.answers {
        return Some(described(State::InUse, None));
    }
    if dry_run {
        return Some(described(
            State::LeftOver,
            Some("a floor whose process was killed is mounted on it".to_owned()),
        ));
    }
    let error = floor.detach().err()?;
    Some(described(State::Refused, Some(format!("the floor on it cannot be unmounted: {error}"))))
}

/// A file system that is mounted in a directory, or on it, is somebody's who did not expect it to be emptied. A bind mount has the
/// device number of what is around it, so that only the table of mounts shows it.
pub(super) fn leave_what_has_mounts(target: &Path, found: &mut [Found]) -> anyhow::Result<()> {
    let target = target.canonicalize().with_context(|| format!("cannot use {}", target.display()))?;
    let mounts = MountInfo::all().context("cannot read the table of mounts")?;
    for found in found {
        let place = target.join(&found.name);
        let is_floor = |mount: &MountInfo| mount.kind == overhead::FLOOR_TYPE && mount.point == place;
        if let Some(mount) = mounts.iter().find(|mount| mount.point.starts_with(&place) && !is_floor(mount)) {
            found.state = State::Refused;
            found.note = Some(format!("something is mounted at {}: unmount it first", mount.point.display()));
        }
    }
    Ok(())
}

/// Names in the target that a benchmark gives its directories.
pub(super) fn names_of_runs(fs: &dyn FileSystem) -> Result<Vec<String>, FsError> {
    let mut names = Vec::new();
    fs.readdir(Path::new(""), &mut |entry| {
        // Names of runs are text.
        names.extend(std::str::from_utf8(entry.name).map(str::to_owned));
    })?;
    names.retain(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)));
    names.sort();
    Ok(names)
}

/// What a directory is, and how large.
pub(super) fn looked_at(fs: &dyn FileSystem, name: String) -> Result<Found, FsError> {
    let described = |state, note, size: TreeSize| Found {
        name: name.clone(),
        state,
        files: size.files,
        directories: size.directories,
        bytes: size.bytes,
        removed: false,
        note,
    };
    let refused = |error: FsError| match error {
        FsError::Failed { .. } => {
            Ok(described(State::Refused, Some(measure::error_chain(&error)), TreeSize::default()))
        }
        lost => Err(lost),
    };
    let own = match fs.own(Path::new(&name)) {
        Ok(own) => own,
        Err(error) => return refused(error),
    };
    let mark = match read_run_mark(&*own) {
        Ok(mark) => mark,
        Err(error) => return refused(error),
    };
    let state = mark.as_deref().map_or(State::Kept, |mark| match marked_process(mark) {
        MarkedProcess::Lives => State::InUse,
        MarkedProcess::Gone => State::LeftOver,
        MarkedProcess::Elsewhere => State::OtherHost,
    });
    // One that is in use changes while it is counted.
    if state == State::InUse {
        return Ok(described(state, mark, TreeSize::default()));
    }
    match tree_size(&*own) {
        // These two keep none by name: it was killed between making the directory and its mark, or the mark was removed and then the
        // server did not answer.
        Ok(size)
            if state == State::Kept
                && size == TreeSize::default()
                && [doctor::PREFIX, overhead::PREFIX].iter().any(|prefix| name.starts_with(prefix)) =>
        {
            Ok(described(State::LeftOver, mark, size))
        }
        Ok(size) => Ok(described(state, mark, size)),
        Err(error) => refused(error),
    }
}
