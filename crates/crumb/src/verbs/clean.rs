//! `crumb clean`: finds what runs left in a target that were killed, and removes it.
//!
//! ```text
//! names of benchmarks in the target -> mark (files::RUN_MARK) -> its process lives? -> left over | in use | of another machine
//!                                      `-> none: kept by name, and left alone
//! ```
//!
//! Always holds: what carries no mark of a run, is another user's, or is in use is left alone; no symbolic link is followed, and no
//! other file system is entered.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, bail};
use clap::Args;
use files::{
    FileSystem, FsError, MarkedProcess, RUN_MARK, Status, Target, TreeSize, marked_process, read_run_mark,
    remove_tree, tree_size,
};
use measure::proc::MountInfo;
use report::{bytes_text, count_text};
use serde::Serialize;

use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::{counted, grid, wrapped};
use crate::openers::FileSystemArgs;
use crate::output::{can_be_written, print, refuse_store, write_to};
use crate::progress::Progress;
use crate::signals;

/// Find and remove what runs left in a target that were killed.
///
/// A run works in a directory of its own, marked with its process, and removes it at its end. Only directories whose process is gone
/// are removed. What was kept by name (--keep) has no mark and is left alone.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CleanArgs {
    /// The target of the runs: a directory, nfs://host[:port]/export[?proto=udp|tcp&mountport=N] or pack:/path
    target: Target,

    /// List what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,

    /// Remove also what runs on other machines or in other containers left: see that none of them is under way
    #[arg(long)]
    other_hosts: bool,

    /// Write what was found, and what became of it, as JSON to this file, - for standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    #[command(flatten)]
    file_system: FileSystemArgs,
}

const EXAMPLES: &str = "\
Examples:
  What did killed runs leave on this disk?
    crumb clean /mnt/disk --dry-run
  Remove it from a filer:
    crumb clean nfs://filer/vol

Exit status: 0 done, or nothing to do, 1 something could not be removed, 2 wrong usage, 130 interrupted.";

/// Directories of runs are called one of these and a name.
const PREFIXES: [&str; 5] =
    ["crumb-fstress-", "crumb-postmark-", "crumb-netnews-", "crumb-dirscale-", doctor::PREFIX];

/// What a directory in the target is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
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
struct Found {
    name: String,
    state: State,
    files: u64,
    directories: u64,
    bytes: u64,
    removed: bool,
    /// Why it was not, or its mark.
    note: Option<String>,
}

/// Runs the verb.
pub fn run(args: &CleanArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    if let Some(path) = args.json.as_deref().filter(|path| *path != Path::new("-")) {
        refuse_store(context, path)?;
        can_be_written(path)?;
    }
    if let Target::Directory(path) = &args.target
        && !path.is_dir()
    {
        bail!("{}: there is no such directory", path.display());
    }
    // As a target of a run a directory that is empty or missing becomes a store: there is nothing to find in one.
    if let Target::Pack(path) = &args.target
        && std::fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none())
        && !path.ancestors().skip(1).any(|above| above.join("volume").exists())
    {
        bail!("{}: there is no packed store", path.display());
    }
    let stop = signals::stop_flag_of(context)?;
    let fs = args.file_system.open(&args.target, &stop)?;
    let mut found = Vec::new();
    for name in names_of_runs(&*fs)? {
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted before anything was removed");
        }
        found.push(looked_at(&*fs, name)?);
    }
    if let Target::Directory(path) = &args.target {
        leave_what_has_mounts(path, &mut found)?;
    }
    if !args.dry_run {
        remove(args, &fs, &mut found, context, &stop);
    }
    if let Some(path) = &args.json {
        let json = serde_json::json!({
            "target": args.target.to_string(), "dry_run": args.dry_run, "found": found,
        });
        write_to(path, &format!("{json:#}\n"))?;
    }
    if args.json.as_deref() != Some(Path::new("-")) {
        print(&args.shown(&found))?;
    }
    let failed = found.iter().filter(|found| args.is_to_go(found) && !args.dry_run && !found.removed);
    match failed.count() {
        0 => Ok(ExitStatus::Fine),
        some => bail!("{} could not be removed", counted(some, "directory", "directories")),
    }
}

/// A file system that is mounted in a directory, or on it, is somebody's who did not expect it to be emptied. A bind mount has the
/// device number of what is around it, so that only the table of mounts shows it.
fn leave_what_has_mounts(target: &Path, found: &mut [Found]) -> anyhow::Result<()> {
    let target = target.canonicalize().with_context(|| format!("cannot use {}", target.display()))?;
    let mounts = MountInfo::all().context("cannot read the table of mounts")?;
    for found in found {
        let place = target.join(&found.name);
        if let Some(mount) = mounts.iter().find(|mount| mount.point.starts_with(&place)) {
            found.state = State::Refused;
            found.note = Some(format!("something is mounted at {}: unmount it first", mount.point.display()));
        }
    }
    Ok(())
}

/// Names in the target that a benchmark gives its directories.
fn names_of_runs(fs: &dyn FileSystem) -> Result<Vec<String>, FsError> {
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
fn looked_at(fs: &dyn FileSystem, name: String) -> Result<Found, FsError> {
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
        FsError::Failed { .. } => Ok(described(State::Refused, Some(error.to_string()), TreeSize::default())),
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
        Ok(size) => Ok(described(state, mark, size)),
        Err(error) => refused(error),
    }
}

fn remove(
    args: &CleanArgs,
    fs: &Arc<dyn FileSystem>,
    found: &mut [Found],
    context: &Context,
    stop: &AtomicBool,
) {
    let mut progress = Progress::new(context.quiet);
    for found in found.iter_mut().filter(|found| args.is_to_go(found)) {
        if stop.load(Ordering::Relaxed) {
            found.note = Some("interrupted".to_owned());
            continue;
        }
        let of = found.files;
        let mut show = |gone: u64| {
            let text = format!("removing files: {} of {}", count_text(gone), count_text(of));
            progress.step(gone.min(of), of, text);
        };
        match remove_tree(&**fs, Path::new(&found.name), Path::new(RUN_MARK), &mut show) {
            Ok(_) => found.removed = true,
            Err(error) if error.status() == Some(Status::NOENT) => found.removed = true,
            Err(error) => found.note = Some(error.to_string()),
        }
    }
    progress.finish();
}

impl CleanArgs {
    fn is_to_go(&self, found: &Found) -> bool {
        match found.state {
            State::LeftOver => true,
            State::OtherHost => self.other_hosts,
            State::InUse | State::Kept | State::Refused => false,
        }
    }

    fn shown(&self, found: &[Found]) -> String {
        if found.is_empty() {
            return wrapped("", &format!("No directories of runs are in {}.", self.target));
        }
        let rows = found.iter().map(|found| {
            let size = match found.state {
                State::InUse | State::Refused => ["-".to_owned(), "-".to_owned()],
                _ => [count_text(found.files), bytes_text(found.bytes)],
            };
            let [files, bytes] = size;
            vec![found.name.clone(), self.fate(found).to_owned(), files, bytes]
        });
        let mut text = grid(&["directory", "", "files", "size"], 2, &rows.collect::<Vec<_>>());
        let gone: Vec<&Found> = found.iter().filter(|found| self.is_to_go(found)).collect();
        for found in found.iter().filter(|found| found.state == State::Refused || self.is_to_go(found)) {
            if let Some(note) = found
                .note
                .as_ref()
                .filter(|_| !found.removed && !self.dry_run || found.state == State::Refused)
            {
                text.push_str(&wrapped(&format!("{}: ", found.name), note));
            }
        }
        let done = if self.dry_run { "Would remove" } else { "Removed" };
        let counts = gone.iter().filter(|found| found.removed || self.dry_run);
        let (mut directories, mut files, mut bytes) = (0, 0, 0);
        for found in counts {
            directories += 1;
            files += found.files;
            bytes += found.bytes;
        }
        text.push_str(&format!(
            "\n{done} {} with {} of {}.\n",
            counted(directories, "directory", "directories"),
            counted(files as usize, "file", "files"),
            bytes_text(bytes)
        ));
        if found.iter().any(|found| found.state == State::OtherHost) && !self.other_hosts {
            let hint = "What runs of other machines left stays: --other-hosts removes it. See first that none is under way.";
            text.push_str(&wrapped("", hint));
        }
        text
    }

    fn fate(&self, found: &Found) -> &'static str {
        match (found.state, found.removed) {
            (_, true) => "removed",
            (State::LeftOver, _) if self.dry_run => "left over",
            (State::OtherHost, _) if self.dry_run || !self.other_hosts => "of another machine",
            (State::LeftOver | State::OtherHost, _) => "not removed",
            (State::InUse, _) => "in use by a run",
            (State::Kept, _) => "kept by name",
            (State::Refused, _) => "left alone",
        }
    }
}
