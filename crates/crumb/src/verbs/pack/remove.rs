//! `crumb pack rm`: deletes objects.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::{anyhow, bail};
use clap::Args;
use packstore::OpenOptions;
use report::count_text;
use serde_json::json;

use super::place::Place;
use super::{close_after, write_json};
use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::counted;
use crate::output::{Destination, destination, note};
use crate::progress::Progress;
use crate::signals;

/// Delete objects
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack rm /srv/objects logo.png old/notes.txt
  A whole tree:
    crumb pack rm /srv/objects --prefix old/")]
pub struct RmArgs {
    /// Directory of the store
    #[arg(id = "place", value_name = "STORE")]
    store: PathBuf,

    /// Keys of the objects
    #[arg(value_name = "KEY", required_unless_present = "prefix")]
    keys: Vec<OsString>,

    /// Delete all objects whose keys begin with this
    #[arg(long, value_name = "TEXT")]
    prefix: Option<OsString>,

    /// Print the result as JSON; with --json=FILE write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", value_parser = destination)]
    json: Option<Destination>,
}

/// Deletes.
pub fn remove(args: &RmArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let stop = signals::stop_flag_of(context)?;
    let store = Place::read(&args.store)?.open(OpenOptions::default())?;
    let mut keys: Vec<Vec<u8>> = args.keys.iter().map(|key| key.as_bytes().to_vec()).collect();
    let mut progress = Progress::new(context.quiet);
    let done = (|| {
        if let Some(prefix) = &args.prefix {
            let entries = store.iter_ordered(prefix.as_bytes())?;
            if let Some(error) = entries.failures().first() {
                return Err(error.clone().into());
            }
            keys.extend(entries.map(|entry| entry.key));
        }
        let (mut deleted, mut missing) = (0_u64, 0_u64);
        for (at, key) in keys.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted; {} objects are deleted", count_text(deleted));
            }
            progress.step(at as u64, keys.len() as u64, format!("{} deleted", count_text(deleted)));
            // Not waited for one by one: closing makes all of them durable.
            let (was_there, _pending) = store.delete_deferred(key)?;
            if was_there {
                deleted += 1;
            } else {
                missing += 1;
                note(context, &format!("error: {}: no such object", packfs::shown(key)));
            }
        }
        Ok((deleted, missing))
    })();
    progress.finish();
    let (deleted, missing) = close_after(store, done)?;
    if let Some(json) = &args.json {
        write_json(json, context, &json!({ "deleted": deleted, "missing": missing }))?;
    } else {
        note(context, &format!("{} deleted", counted(deleted as usize, "object", "objects")));
    }
    match missing {
        0 => Ok(ExitStatus::Fine),
        _ => Err(anyhow!("{} not there", counted(missing as usize, "object was", "objects were"))),
    }
}
