//! `crumb pack check` and `repair`: what is damaged.

use std::path::PathBuf;

use anyhow::anyhow;
use clap::Args;
use packstore::{CheckReport, Fault, OpenOptions};
use report::bytes_text;
use serde_json::{Value, json};

use super::place::Place;
use super::{close_after, tree, write_json};
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{counted, wrapped};
use crate::output::{Destination, destination, note, print};
use crate::progress::Progress;

/// Verify the whole store against its checksums; change nothing. Any fault gives exit code 1.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack check /srv/objects && echo whole")]
pub struct CheckArgs {
    /// Directory of the store
    #[arg(id = "place", value_name = "STORE")]
    store: PathBuf,

    /// Print JSON; with --json=FILE write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", value_parser = destination)]
    json: Option<Destination>,
}

/// Verify, delete damaged objects and rewrite damaged indexes; other objects stay as they are. Faults that could not be
/// repaired are reported and give exit code 1. Of a file tree, rewrite damaged files of names that lost nothing; with --to,
/// copy what can be read into a new tree.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack repair /srv/objects
  A file tree:
    crumb pack repair /srv/spool
    crumb pack repair /srv/spool --to /srv/spool-repaired")]
pub struct RepairArgs {
    /// Directory of the store
    #[arg(id = "place", value_name = "STORE")]
    store: PathBuf,

    /// For a file tree: directory of a new tree, empty or missing, into which to copy what can be read. The old one is not changed
    #[arg(long, value_name = "NEW")]
    to: Option<PathBuf>,

    /// Print JSON; with --json=FILE write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", value_parser = destination)]
    json: Option<Destination>,
}

/// Checks.
pub fn check(args: &CheckArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    if packtree::is_tree(&args.store)? {
        return tree::check(&args.store, args.json.as_ref(), context);
    }
    let place = Place::read(&args.store)?;
    let _held = place.keep_writers_out()?;
    let store = place.open(OpenOptions { read_only: true, ..OpenOptions::default() })?;
    let mut progress = Progress::new(context.quiet);
    let report = store.check(|done, of| progress.step(done, of, format!("{done} of {of} segments")));
    progress.finish();
    let lost = store.usage().damaged_files;
    let mut report = close_after(store, report.map_err(anyhow::Error::from))?;
    report.faults.extend(place.faults());
    let count = report.faults.len();
    if let Some(json) = &args.json {
        let mut figures = report_json(&report);
        figures["unreadable_indexes"] = lost.into();
        write_json(json, context, &figures)?;
    } else {
        print(&faults_text(&report))?;
        note(context, wrapped("", &checked_text(&report)).trim_end());
    }
    match count {
        0 => Ok(ExitStatus::Fine),
        count => Err(anyhow!(
            "{}: {}; {}",
            args.store.display(),
            counted(count, "fault", "faults"),
            advice(&report.faults)
        )),
    }
}

/// What to do about faults.
fn advice(faults: &[Fault]) -> String {
    let by_hand = faults.iter().filter(|fault| fault.by_hand).count();
    match by_hand {
        0 => "`crumb pack repair` repairs what can be, and deletes what is damaged".to_owned(),
        all if all == faults.len() => "no repair helps: see what is listed".to_owned(),
        some => format!(
            "no repair helps against {some} of them: first do what is listed, then `crumb pack repair` repairs what can be, and deletes \
             what is damaged"
        ),
    }
}

fn checked_text(report: &CheckReport) -> String {
    let objects = counted(report.objects as usize, "object", "objects");
    format!(
        "{objects} of {} looked at, {}",
        bytes_text(report.bytes),
        counted(report.faults.len(), "fault", "faults")
    )
}

fn key_text(fault: &Fault) -> Option<String> {
    fault.key.as_ref().map(|key| String::from_utf8_lossy(key).escape_debug().to_string())
}

fn faults_text(report: &CheckReport) -> String {
    let line = |fault: &Fault| {
        let object = key_text(fault).map(|key| format!("object {key}: ")).unwrap_or_default();
        let file = fault.file.map(|file| format!("segment {file:08}: ")).unwrap_or_default();
        format!("{file}{object}{}\n", fault.what)
    };
    let recovered = report.recovered.iter().map(|key| {
        let key = String::from_utf8_lossy(key);
        format!(
            "object {}: recovered from a body file: it may be one that was replaced or deleted\n",
            key.escape_debug()
        )
    });
    report.faults.iter().map(line).chain(recovered).collect()
}

fn report_json(report: &CheckReport) -> Value {
    let fault = |fault: &Fault| {
        json!({
            "packed_file": fault.file, "key": fault.key.as_ref().map(|key| String::from_utf8_lossy(key).into_owned()),
            "what": fault.what, "by_hand": fault.by_hand,
        })
    };
    let faults: Vec<Value> = report.faults.iter().map(fault).collect();
    let recovered: Vec<_> = report.recovered.iter().map(|key| String::from_utf8_lossy(key)).collect();
    json!({ "objects": report.objects, "bytes": report.bytes, "faults": faults, "recovered": recovered })
}

/// Repairs.
pub fn repair(args: &RepairArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    if packtree::is_tree(&args.store)? {
        return tree::repair(&args.store, args.to.as_deref(), args.json.as_ref(), context);
    }
    if args.to.is_some() {
        let wrong =
            anyhow!("{}: --to is for file trees; objects are repaired in place", args.store.display());
        return Err(wrong.context(BadUsage));
    }
    let (place, moved) = Place::read_to_repair(&args.store)?;
    let store = place.open(OpenOptions { move_aside: true, ..OpenOptions::default() })?;
    let mut progress = Progress::new(context.quiet);
    let repaired = store.repair(|done, of| progress.step(done, of, format!("{done} of {of} segments")));
    progress.finish();
    let mut repaired = close_after(store, repaired.map_err(anyhow::Error::from))?;
    repaired.found.faults.extend(moved);
    repaired.found.faults.extend(place.faults());
    repaired.left.extend(place.faults());
    if let Some(json) = &args.json {
        let left = report_json(&CheckReport { faults: repaired.left.clone(), ..CheckReport::default() });
        write_json(
            json,
            context,
            &json!({
                "found": report_json(&repaired.found), "deleted": repaired.deleted, "left": left["faults"],
                "lost": repaired.lost.iter().map(|key| String::from_utf8_lossy(key)).collect::<Vec<_>>(),
            }),
        )?;
    } else {
        print(&faults_text(&repaired.found))?;
        let deleted = counted(repaired.deleted as usize, "object", "objects");
        let text = format!("{}; {deleted} deleted", checked_text(&repaired.found));
        note(context, wrapped("", &text).trim_end());
        let left = CheckReport { faults: repaired.left.clone(), ..CheckReport::default() };
        print(&faults_text(&left).lines().map(|line| format!("not repaired: {line}\n")).collect::<String>())?;
        let lost = repaired.lost.iter().map(|key| {
            format!(
                "lost: object {}: a part of it was not found\n",
                String::from_utf8_lossy(key).escape_debug()
            )
        });
        print(&lost.collect::<String>())?;
    }
    match (repaired.left.len(), repaired.lost.len()) {
        (0, 0) => Ok(ExitStatus::Fine),
        (0, lost) => Err(anyhow!(
            "{}: {} lost for good",
            args.store.display(),
            counted(lost, "object is", "objects are")
        )),
        (left, _) => Err(anyhow!(
            "{}: {} could not be repaired",
            args.store.display(),
            counted(left, "fault", "faults")
        )),
    }
}
