//! `crumb pack check`, `repair` and `compact`.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::{anyhow, bail};
use clap::Args;
use packstore::{CheckReport, Fault, OpenOptions};
use report::{bytes_text, count_text};
use serde_json::{Value, json};

use super::place::Place;
use super::{close_after, print_json};
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::{counted, wrapped};
use crate::output::{note, print};
use crate::progress::Progress;
use crate::signals;

/// Moved between two looks at Ctrl-C.
const STEP_BYTES: u64 = 32 << 20;

/// Read everything and compare it with its checksums; change nothing. Any fault makes it fail.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack check /srv/objects && echo whole")]
pub struct CheckArgs {
    /// Directory of the store
    #[arg(value_name = "STORE")]
    store: PathBuf,

    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Check, delete what is damaged, and write damaged indexes anew: other objects stay as they are. What could not be repaired
/// is told and makes it fail.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack repair /srv/objects")]
pub struct RepairArgs {
    /// Directory of the store
    #[arg(value_name = "STORE")]
    store: PathBuf,

    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Move objects out of segments that are mostly free, and give the room back to the file system.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack compact /srv/objects

Ctrl-C ends it soon; the same command goes on from there.")]
pub struct CompactArgs {
    /// Directory of the store
    #[arg(value_name = "STORE")]
    store: PathBuf,

    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Checks.
pub fn check(args: &CheckArgs, context: &Context) -> anyhow::Result<ExitStatus> {
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
    if args.json {
        let mut told = report_json(&report);
        told["unreadable_indexes"] = lost.into();
        print_json(&told)?;
    } else {
        print(&faults_text(&report))?;
        note(context, wrapped("", &checked_text(&report)).trim_end());
    }
    match count {
        0 => Ok(ExitStatus::Fine),
        count => Err(anyhow!(
            "{}: {}; `crumb pack repair` repairs what can be, and deletes what is damaged",
            args.store.display(),
            counted(count, "fault", "faults")
        )),
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
            "object {}: recovered from a data file: it may be one that was replaced or deleted\n",
            key.escape_debug()
        )
    });
    report.faults.iter().map(line).chain(recovered).collect()
}

fn report_json(report: &CheckReport) -> Value {
    let fault = |fault: &Fault| {
        json!({
            "packed_file": fault.file, "key": fault.key.as_ref().map(|key| String::from_utf8_lossy(key).into_owned()),
            "what": fault.what,
        })
    };
    let faults: Vec<Value> = report.faults.iter().map(fault).collect();
    let recovered: Vec<_> = report.recovered.iter().map(|key| String::from_utf8_lossy(key)).collect();
    json!({ "objects": report.objects, "bytes": report.bytes, "faults": faults, "recovered": recovered })
}

/// Repairs.
pub fn repair(args: &RepairArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let place = Place::read(&args.store)?;
    let store = place.open(OpenOptions::default())?;
    let mut progress = Progress::new(context.quiet);
    let repaired = store.repair(|done, of| progress.step(done, of, format!("{done} of {of} segments")));
    progress.finish();
    let mut repaired = close_after(store, repaired.map_err(anyhow::Error::from))?;
    repaired.found.faults.extend(place.faults());
    repaired.left.extend(place.faults());
    if args.json {
        let left = report_json(&CheckReport { faults: repaired.left.clone(), ..CheckReport::default() });
        print_json(&json!({
            "found": report_json(&repaired.found), "deleted": repaired.deleted, "left": left["faults"],
        }))?;
    } else {
        print(&faults_text(&repaired.found))?;
        let deleted = counted(repaired.deleted as usize, "object", "objects");
        let text = format!("{}; {deleted} deleted", checked_text(&repaired.found));
        note(context, wrapped("", &text).trim_end());
        let left = CheckReport { faults: repaired.left.clone(), ..CheckReport::default() };
        print(&faults_text(&left).lines().map(|line| format!("not repaired: {line}\n")).collect::<String>())?;
    }
    match repaired.left.len() {
        0 => Ok(ExitStatus::Fine),
        left => Err(anyhow!(
            "{}: {} could not be repaired",
            args.store.display(),
            counted(left, "fault", "faults")
        )),
    }
}

/// Compacts.
pub fn compact(args: &CompactArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let stop = signals::stop_flag_of(context)?;
    let store = Place::read(&args.store)?.open(OpenOptions::default())?;
    let before = store.usage();
    let mut progress = Progress::new(context.quiet);
    let (mut files, mut records, mut bytes, mut damaged) = (0, 0, 0, 0);
    let done = loop {
        let step = match store.compact(STEP_BYTES) {
            Ok(step) => step,
            Err(error) => break Err(error.into()),
        };
        files += step.files_removed;
        records += step.records_moved;
        bytes += step.bytes_moved;
        damaged = step.damaged.max(damaged);
        let text = format!("{} segments emptied, {} moved", count_text(files), bytes_text(bytes));
        progress.step(files, before.packed_files, text);
        // A step that did nothing would go on doing so.
        if !step.more || step.files_removed + step.records_moved == 0 || stop.load(Ordering::Relaxed) {
            break Ok(());
        }
    };
    progress.finish();
    let after = store.usage();
    close_after(store, done)?;
    if args.json {
        print_json(&json!({
            "packed_files_removed": files, "records_moved": records, "bytes_moved": bytes,
            "body_bytes_before": before.body_bytes, "body_bytes_after": after.body_bytes,
        }))?;
    } else {
        let text = format!(
            "{} removed, {} of {} moved; {} of segments before, {} now",
            counted(files as usize, "segment", "segments"),
            counted(records as usize, "record", "records"),
            bytes_text(bytes),
            bytes_text(before.body_bytes),
            bytes_text(after.body_bytes),
        );
        note(context, wrapped("", &text).trim_end());
    }
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted; the same command goes on from there");
    }
    if damaged > 0 {
        let files = counted(damaged as usize, "segment was", "segments were");
        bail!("{files} left as they are, as something in them is damaged; `crumb pack check` tells what");
    }
    Ok(ExitStatus::Fine)
}
