//! File trees (`packtree`): the kind of store that `create --tree` makes, that targets `pack:/path` open, that `check` looks at, and that
//! `repair` copies.

mod repair;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use disk::LocalDisk;
use files::{DirectoryTransport, DirectoryTransportOptions, Transport};
use packfs::make_directory;
use packtree::{PackTree, Presence, TreeError, TreeFault, TreeOptions, TreeReport};
use quanta::Clock;
use report::bytes_text;
use serde_json::json;

use super::owner::say_owner;
use super::write_json;
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{counted, wrapped};
use crate::output::{Destination, note, print};
use crate::progress::Progress;

pub use repair::repair;

/// Makes an empty tree.
pub fn create(directory: &Path, json: Option<&Destination>, context: &Context) -> anyhow::Result<ExitStatus> {
    // Before anything is made: what is there may be a tree that has something else in the place of a file.
    packtree::is_tree(directory)?;
    make_directory(directory)?;
    say_owner(directory);
    let options = TreeOptions::default();
    PackTree::create(&LocalDisk::open(directory)?, &options)?;
    if let Some(json) = json {
        let bytes = options.segment_bytes;
        write_json(json, context, &json!({ "store": directory, "kind": "tree", "segment_bytes": bytes }))?;
        return Ok(ExitStatus::Fine);
    }
    let segment = bytes_text(options.segment_bytes.into());
    let text = format!("{}: a file tree, which grows by {segment}", directory.display());
    note(context, wrapped("", &text).trim_end());
    Ok(ExitStatus::Fine)
}

/// Says that a directory has a tree, to verbs that work on objects.
pub fn refuse(directory: &Path) -> anyhow::Result<()> {
    if !packtree::is_tree(directory)? {
        return refuse_remains(directory);
    }
    let wrong = anyhow!(
        "{}: holds a file tree and no objects; `crumb pack check` and targets pack:{0} take it",
        directory.display()
    );
    Err(wrong.context(BadUsage))
}

/// Says that a directory has parts of a tree, and what to do: it is not to be taken for an empty one, nor for a store.
pub fn refuse_remains(directory: &Path) -> anyhow::Result<()> {
    let shown = directory.display();
    match packtree::presence(directory)? {
        Presence::Tree | Presence::Nothing => Ok(()),
        Presence::HeadMissing => Err(TreeError::HeadMissing { place: shown.to_string() }.into()),
        Presence::Unfinished => bail!(
            "{shown}: a file tree was to be made there, and that did not end; `crumb pack create {shown} --tree` makes it"
        ),
    }
}

/// As [`refuse_remains`], for the directories above a path at which nothing is: they are a tree's if one of them has its contents.
pub fn refuse_remains_above(path: &Path) -> anyhow::Result<()> {
    let mut above = path.ancestors().skip(1);
    above.try_for_each(|above| if above.join("space").exists() { refuse_remains(above) } else { Ok(()) })
}

/// The directory of the tree that a path is, or is in.
fn directory_of(path: &Path) -> Result<Option<&Path>, TreeError> {
    for above in path.ancestors() {
        if packtree::is_tree(above)? {
            return Ok(Some(above));
        }
    }
    Ok(None)
}

/// Whether a path is a tree, or is in one; or in what may be one, which opening it reports.
pub fn is_at_or_in_tree(path: &Path) -> bool {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    !matches!(directory_of(&path), Ok(None))
}

/// The tree that a path is, or is in, as seen from there.
pub fn open_at_or_above(path: &Path) -> anyhow::Result<Option<PackTree>> {
    let Some(directory) = directory_of(path)? else { return Ok(None) };
    let disk = Arc::new(LocalDisk::open(directory)?);
    let tree = PackTree::open(disk, &TreeOptions::default(), format!("pack:{}", directory.display()))?;
    let tree = tree.lying_at(directory.to_owned());
    if let Some(first) = tree.faults().first() {
        tracing::warn!(
            "{}: damaged, and can only be read: {}; `crumb pack check` lists every fault",
            directory.display(),
            first.what
        );
    } else if let Some(why) = tree.unwritable() {
        tracing::warn!("{}: can only be read: {}", directory.display(), why.source);
    } else {
        say_owner(directory);
    }
    let inside = path.strip_prefix(directory).context("the path of a tree")?;
    if inside.as_os_str().is_empty() {
        return Ok(Some(tree));
    }
    let view = tree.view(inside).with_context(|| {
        format!(
            "a target in the file tree {0} is a directory of it: name one, or the tree itself, pack:{0}",
            directory.display()
        )
    });
    view.map(Some)
}

/// The tree of a target `pack:path` for many requests at a time. Worker threads make its blocking calls.
///
/// # Errors
/// When there is no tree: a store of objects has no handles.
pub fn open_transport(
    path: &Path,
    options: &DirectoryTransportOptions,
    clock: Clock,
) -> anyhow::Result<Box<dyn Transport>> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    refuse_remains(&path)?;
    let Some(tree) = open_at_or_above(&path)? else { return Err(takes_no_requests(&path)) };
    let transport = DirectoryTransport::over(Arc::new(tree), &path, options, clock)?;
    Ok(Box::new(transport))
}

/// Looks whether [`open_transport`] would find a tree, and opens nothing.
///
/// # Errors
/// The same as those of [`open_transport`] when it finds no tree.
pub fn look_for(path: &Path) -> anyhow::Result<()> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    refuse_remains(&path)?;
    match directory_of(&path)? {
        Some(_) => Ok(()),
        None => Err(takes_no_requests(&path)),
    }
}

/// What to do where there is no tree.
fn takes_no_requests(path: &Path) -> anyhow::Error {
    let shown = path.display();
    let wrong = match path.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        true => anyhow!(
            "pack:{shown}: fstress keeps many requests under way, which a packed store of objects does not take; a file tree does: `crumb pack create DIR --tree` makes one in an empty directory"
        ),
        false => anyhow!("pack:{shown}: no file tree is there; `crumb pack create {shown} --tree` makes one"),
    };
    wrong.context(BadUsage)
}

/// Compares everything with its checksums.
pub fn check(directory: &Path, json: Option<&Destination>, context: &Context) -> anyhow::Result<ExitStatus> {
    let disk = LocalDisk::open(directory)?;
    let mut progress = Progress::new(context.quiet);
    let report = packtree::check(&disk, |done, of| progress.step(done, of, format!("{done} of {of} files")));
    progress.finish();
    let report = report?;
    if let Some(json) = json {
        let fault = |fault: &TreeFault| json!({ "what": fault.what, "repairable": fault.is_repairable });
        let faults: Vec<_> = report.faults.iter().map(fault).collect();
        write_json(
            json,
            context,
            &json!({
                "names": report.names, "files": report.files, "directories": report.directories,
                "bytes": report.bytes, "faults": faults, "notes": report.notes,
                "locked": report.is_locked, "closed": report.is_closed, "leaked_bytes": report.leaked_bytes,
            }),
        )?;
    } else {
        print(&report.faults.iter().map(|fault| format!("{}\n", fault.what)).collect::<String>())?;
        let leaked = (report.leaked_bytes > 0).then_some(LEAKED);
        let notes = report.notes.iter().map(String::as_str).chain(not_closed(&report)).chain(leaked);
        notes.for_each(|text| note(context, wrapped("", text).trim_end()));
        note(context, wrapped("", &text(&report)).trim_end());
    }
    match report.faults.len() {
        0 => Ok(ExitStatus::Fine),
        count if report.faults.iter().all(|fault| fault.is_repairable) => Err(anyhow!(
            "{}: {}, and nothing is lost: all files can be read; `crumb pack repair {0}` repairs the tree where it is",
            directory.display(),
            counted(count, "fault", "faults")
        )),
        count => Err(anyhow!(
            "{}: {}; the rest can be read, from pack:{0}, and nothing can be written; `crumb pack repair {0} --to NEW` copies what can be read into a new tree",
            directory.display(),
            counted(count, "fault", "faults")
        )),
    }
}

const LEAKED: &str = "leaked bytes are in no file and not free: a mistake of this program, which costs no file; `crumb pack repair --to NEW` makes a copy without them";

fn not_closed(report: &TreeReport) -> Option<&'static str> {
    (!report.is_closed).then_some(
        "not closed since it was written (a kill, or a power cut): the journal ends at its first record that is not whole, and damage there looks the same",
    )
}

fn text(report: &TreeReport) -> String {
    let unlocked = if report.is_locked {
        ""
    } else {
        "; not locked, as this storage has no lock for readers: faults may be changes made meanwhile"
    };
    format!(
        "{} with {} and {}, {} read, {} leaked, {}{unlocked}",
        counted(report.files as usize, "file", "files"),
        counted(report.names as usize, "name", "names"),
        counted(report.directories as usize, "directory", "directories"),
        bytes_text(report.bytes),
        bytes_text(report.leaked_bytes),
        counted(report.faults.len(), "fault", "faults")
    )
}
