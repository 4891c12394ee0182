//! `crumb pack repair` of a file tree: damage that costs nothing is repaired where it is; of other trees, what can be read is copied
//! into a new one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, anyhow, bail};
use disk::{Disk, LocalDisk};
use packfs::make_directory;
use packtree::{PackTree, SalvageError, Salvaged, TreeFault, TreeOptions, begin_copy, end_copy, salvage};
use report::bytes_text;
use serde_json::json;

use super::super::owner::say_owner;
use super::super::write_json;
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{counted, wrapped};
use crate::output::{Destination, note, print};
use crate::progress::Progress;
use crate::signals;

/// Repairs the tree in `directory`, or copies what can be read of it into a new one in `to`.
pub fn repair(
    directory: &Path,
    to: Option<&Path>,
    json: Option<&Destination>,
    context: &Context,
) -> anyhow::Result<ExitStatus> {
    let shown = directory.display();
    let Some(to) = to else { return repair_in_place(directory, json, context) };
    let options = TreeOptions::default();
    let damaged = PackTree::open_to_read(Arc::new(LocalDisk::open(directory)?), &options, directory)?;
    let stop = signals::stop_flag_of(context)?;
    make_directory(to)?;
    say_owner(to);
    let disk = Arc::new(LocalDisk::open(to)?);
    begin_copy(&*disk)?;
    PackTree::create(&*disk, &options)?;
    let new = PackTree::open_to_copy(Arc::clone(&disk) as Arc<dyn Disk>, &options, to)?;
    let mut progress = Progress::new(context.quiet);
    let copied = salvage(&damaged, &new, &mut |done, of| {
        progress.step(done, of, format!("{done} of {of}"));
        !stop.load(Ordering::Relaxed)
    });
    progress.finish();
    if let Err(SalvageError::Stopped) = copied {
        bail!("interrupted; {} is not whole: run this again, and it starts over", to.display());
    }
    let copied = copied?;
    new.close().context("the new tree was not closed cleanly")?;
    end_copy(&*disk)?;
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

/// Writes runs of names again that are damaged and have lost nothing.
fn repair_in_place(
    directory: &Path,
    json: Option<&Destination>,
    context: &Context,
) -> anyhow::Result<ExitStatus> {
    let shown = directory.display();
    let mut progress = Progress::new(context.quiet);
    let disk = LocalDisk::open(directory)?;
    let done = packtree::repair(&disk, |done, of| progress.step(done, of, format!("{done} of {of} files")));
    progress.finish();
    let done = done?;
    let listed = |faults: &[TreeFault]| faults.iter().map(|fault| fault.what.clone()).collect::<Vec<_>>();
    let (repaired, left) = (listed(&done.repaired), listed(&done.left));
    if let Some(json) = json {
        write_json(json, context, &json!({ "store": directory, "repaired": repaired, "left": left }))?;
    } else {
        let repaired = repaired.iter().map(|what| format!("repaired: {what}\n"));
        print(
            &repaired.chain(left.iter().map(|what| format!("not repaired: {what}\n"))).collect::<String>(),
        )?;
        note(context, &format!("{shown}: {} repaired", counted(done.repaired.len(), "fault", "faults")));
    }
    let copy = format!(
        "name an empty directory for a copy of all that can be read: `crumb pack repair {shown} --to NEW`"
    );
    match (repaired.len(), left.len()) {
        (_, 0) => Ok(ExitStatus::Fine),
        (0, left) => {
            let wrong = anyhow!(
                "{shown}: holds a file tree with {}, which cannot be repaired where it is; {copy}",
                counted(left, "fault", "faults")
            );
            Err(wrong.context(BadUsage))
        }
        (_, left) => Err(anyhow!("{shown}: {} left; {copy}", counted(left, "fault is", "faults are"))),
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
