//! `crumb pack repair` of a file tree: what can be read, copied into a new tree.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use disk::LocalDisk;
use packfs::make_directory;
use packtree::{PackTree, Salvaged, TreeOptions, salvage};
use report::bytes_text;
use serde_json::json;

use super::super::owner::say_owner;
use super::super::write_json;
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{counted, wrapped};
use crate::output::{Destination, note, print};
use crate::progress::Progress;

/// Copies what can be read of the tree in `directory` into a new one in `to`.
pub fn repair(
    directory: &Path,
    to: Option<&Path>,
    json: Option<&Destination>,
    context: &Context,
) -> anyhow::Result<ExitStatus> {
    let shown = directory.display();
    let Some(to) = to else {
        let wrong = anyhow!(
            "{shown}: holds a file tree, which is repaired by a copy of all that can be read: name an empty directory for it, `crumb pack repair {shown} --to NEW`"
        );
        return Err(wrong.context(BadUsage));
    };
    let options = TreeOptions::default();
    let damaged = PackTree::open(Arc::new(LocalDisk::open(directory)?), &options, directory)?;
    make_directory(to)?;
    say_owner(to);
    let disk = Arc::new(LocalDisk::open(to)?);
    PackTree::create(&*disk, &options)?;
    let new = PackTree::open(disk, &options, to)?;
    let mut progress = Progress::new(context.quiet);
    let copied = salvage(&damaged, &new, &mut |done, of| progress.step(done, of, format!("{done} of {of}")));
    progress.finish();
    let copied = copied?;
    new.close().context("the new tree was not closed cleanly")?;
    let mut faults: Vec<String> = damaged.faults().iter().map(|fault| fault.what.clone()).collect();
    faults.extend(copied.faults.iter().map(|fault| fault.what.clone()));
    if let Some(json) = json {
        let figures = json!({
            "store": directory, "to": to, "files": copied.files, "names": copied.names, "directories": copied.directories,
            "bytes": copied.bytes, "faults": faults,
        });
        write_json(json, context, &figures)?;
    } else {
        print(&faults.iter().map(|what| format!("{what}\n")).collect::<String>())?;
        note(context, wrapped("", &text(to, &copied)).trim_end());
    }
    match faults.len() {
        0 => Ok(ExitStatus::Fine),
        count => Err(anyhow!(
            "{}: a copy with {}, which are listed; {shown} is as it was: look through the copy before you remove it",
            to.display(),
            counted(count, "fault", "faults")
        )),
    }
}

fn text(to: &Path, copied: &Salvaged) -> String {
    format!(
        "{}: {} with {} and {}, {} copied",
        to.display(),
        counted(copied.files as usize, "file", "files"),
        counted(copied.names as usize, "name", "names"),
        counted(copied.directories as usize, "directory", "directories"),
        bytes_text(copied.bytes),
    )
}
