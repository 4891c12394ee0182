//! `crumb clean`: finds what runs left in a target that were killed, and removes it.
//!
//! ```text
//! names of benchmarks in the target -> mark (files::RUN_MARK) -> its process lives? -> left over | in use | of another machine
//!                                      `-> none: kept by name, and left alone
//! ```
//!
//! Always holds: what carries no mark of a run, is another user's, or is in use is left alone; no symbolic link is followed, and no
//! other file system is entered.

mod found;
mod shown;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::bail;
use clap::Args;
use files::{FileSystem, RUN_MARK, Status, Target, remove_tree};
use report::count_text;

use self::found::{Found, State, leave_what_has_mounts, looked_at, names_of_runs, under_a_floor};
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::counted;
use crate::openers::FileSystemArgs;
use crate::output::{can_be_written, print, refuse_store, write_to};
use crate::progress::Progress;
use crate::signals;

/// Remove what killed runs left in a target, without asking; --dry-run only lists it.
///
/// A run works in a directory of its own, marked with its process, and removes it at its end. Crumb removes only directories whose
/// process is gone. What --keep named has no mark and stays, even if its run was killed.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct CleanArgs {
    /// The target of the runs: a directory, nfs://host[:port]/export[?proto=udp|tcp&mountport=N] or pack:/path
    target: Target,

    /// List what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,

    /// Remove what was left by runs on other machines or in other containers, too. First make sure that none of them is under way
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
  The feed that a killed run of netnews made up is in the directory for temporary files:
    crumb clean /tmp

Exit codes: 0 done, or nothing to do, 1 something could not be removed, 2 wrong usage, 130 interrupted.";

/// Runs the verb.
pub fn run(args: &CleanArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    if !args.dry_run {
        overhead::remove_traces_of_the_dead();
    }
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
        && !path
            .ancestors()
            .skip(1)
            .any(|above| ["volume", "tree"].iter().any(|head| above.join(head).symlink_metadata().is_ok()))
    {
        bail!("{}: there is no packed store", path.display());
    }
    let stop = signals::stop_flag_of(context)?;
    let fs = args.file_system.open(&args.target, &stop)?;
    let mut found = Vec::new();
    let floors = match &args.target {
        Target::Directory(path) => overhead::floors_in(path)?,
        _ => Vec::new(),
    };
    for name in names_of_runs(&*fs)? {
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted before anything was removed");
        }
        let floor = floors.iter().find(|floor| floor.name == name);
        let mounted = floor.and_then(|floor| under_a_floor(floor, args.dry_run));
        found.push(mounted.map_or_else(|| looked_at(&*fs, name), Ok)?);
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
}
