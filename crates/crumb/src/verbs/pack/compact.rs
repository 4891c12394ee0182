//! `crumb pack compact`: room given back to the file system.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::bail;
use clap::Args;
use packstore::OpenOptions;
use report::{bytes_text, count_text};
use serde_json::json;

use super::place::Place;
use super::{close_after, write_json};
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::{counted, wrapped};
use crate::output::{Destination, destination, note};
use crate::progress::Progress;
use crate::signals;

/// Moved between two looks at Ctrl-C.
const STEP_BYTES: u64 = 32 << 20;

/// Move objects out of segments that are mostly free, and give the space back to the file system.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack compact /srv/objects

Ctrl-C ends it soon; the same command continues from there.")]
pub struct CompactArgs {
    /// Directory of the store
    #[arg(id = "place", value_name = "STORE")]
    store: PathBuf,

    /// Print JSON; with --json=FILE write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", value_parser = destination)]
    json: Option<Destination>,
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
    if let Some(json) = &args.json {
        write_json(
            json,
            context,
            &json!({
                "packed_files_removed": files, "records_moved": records, "bytes_moved": bytes,
                "body_bytes_before": before.body_bytes, "body_bytes_after": after.body_bytes,
            }),
        )?;
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
        bail!("interrupted; the same command continues from there");
    }
    if damaged > 0 {
        let files = counted(damaged as usize, "segment was", "segments were");
        bail!(
            "{files} left as they are, as something in them is damaged; run `crumb pack check` to see what"
        );
    }
    Ok(ExitStatus::Fine)
}
