//! File trees (`packtree`): the kind of store that `create --tree` makes, that targets `pack:/path` open, and that `check` looks at.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use disk::LocalDisk;
use files::FileSystem;
use packfs::make_directory;
use packtree::{PackTree, TreeOptions, TreeReport};
use report::bytes_text;
use serde_json::json;

use super::write_json;
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{counted, wrapped};
use crate::output::{Destination, note, print};
use crate::progress::Progress;

/// Makes an empty tree.
pub fn create(directory: &Path, json: Option<&Destination>, context: &Context) -> anyhow::Result<ExitStatus> {
    make_directory(directory)?;
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
    if !packtree::is_tree(directory) {
        return Ok(());
    }
    let wrong = anyhow!(
        "{}: holds a file tree and no objects; `crumb pack check` and targets pack:{0} take it",
        directory.display()
    );
    Err(wrong.context(BadUsage))
}

/// The tree that a path is, or is in, as a file system that begins there.
pub fn open_at_or_above(path: &Path) -> anyhow::Result<Option<Arc<dyn FileSystem>>> {
    let Some(directory) = path.ancestors().find(|above| packtree::is_tree(above)) else { return Ok(None) };
    let disk = Arc::new(LocalDisk::open(directory)?);
    let tree = PackTree::open(disk, &TreeOptions::default(), format!("pack:{}", directory.display()))?;
    let tree = tree.lying_at(directory.to_owned());
    if let Some(first) = tree.faults().first() {
        tracing::warn!(
            "{}: damaged, and can only be read: {}; `crumb pack check` lists every fault",
            directory.display(),
            first.what
        );
    }
    let inside = path.strip_prefix(directory).context("the path of a tree")?;
    if inside.as_os_str().is_empty() { Ok(Some(Arc::new(tree))) } else { Ok(Some(tree.below(inside)?)) }
}

/// Compares everything with its checksums.
pub fn check(directory: &Path, json: Option<&Destination>, context: &Context) -> anyhow::Result<ExitStatus> {
    let disk = LocalDisk::open(directory)?;
    let mut progress = Progress::new(context.quiet);
    let report = packtree::check(&disk, |done, of| progress.step(done, of, format!("{done} of {of} files")));
    progress.finish();
    let report = report?;
    if let Some(json) = json {
        let faults: Vec<_> = report.faults.iter().map(|fault| json!({ "what": fault.what })).collect();
        write_json(
            json,
            context,
            &json!({
                "names": report.names, "files": report.files, "directories": report.directories,
                "bytes": report.bytes, "faults": faults,
            }),
        )?;
    } else {
        print(&report.faults.iter().map(|fault| format!("{}\n", fault.what)).collect::<String>())?;
        note(context, wrapped("", &text(&report)).trim_end());
    }
    match report.faults.len() {
        0 => Ok(ExitStatus::Fine),
        count => Err(anyhow!(
            "{}: {}; the rest can be read, from pack:{0}, and nothing can be written",
            directory.display(),
            counted(count, "fault", "faults")
        )),
    }
}

fn text(report: &TreeReport) -> String {
    format!(
        "{} with {} and {}, {} read, {}",
        counted(report.files as usize, "file", "files"),
        counted(report.names as usize, "name", "names"),
        counted(report.directories as usize, "directory", "directories"),
        bytes_text(report.bytes),
        counted(report.faults.len(), "fault", "faults")
    )
}
