//! `crumb pack get` and `cat`: objects as files below a directory, as a tar stream (`packfs::Getting`), or their bodies alone.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use packfs::{Getting, Got, PackFsError, WatchGet, shown};
use report::{bytes_text, count_text, rate_text};
use serde_json::json;

use super::place::Place;
use super::{all_is_there, close_after, write_json};
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{counted, wrapped};
use crate::output::{Destination, destination, note};
use crate::progress::Progress;
use crate::signals;

/// Write objects as files below a directory, or as a tar stream. Works while another process has the store open.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  Everything:
    crumb pack get /srv/objects --all -o restored
  One file and one tree of it:
    crumb pack get /srv/objects notes.txt images/a -o .
  Somewhere else:
    crumb pack get /srv/objects --all -o - | ssh host tar -x

Existing files are replaced.")]
pub struct GetArgs {
    /// Directory of the store
    #[arg(id = "place", value_name = "STORE")]
    store: PathBuf,

    /// Keys of objects, or prefixes of trees
    #[arg(value_name = "KEY", required_unless_present = "all", conflicts_with = "all")]
    keys: Vec<OsString>,

    /// Write all objects
    #[arg(long)]
    all: bool,

    /// Directory to write to, created if missing; - for a tar stream on standard output
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// Print the result as JSON; with --json=FILE write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", value_parser = destination)]
    json: Option<Destination>,
}

/// Write the bodies of objects to standard output, one after another. Works while another process has the store open.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  crumb pack cat /srv/objects notes.txt
  A key that is not UTF-8, as `crumb pack ls` shows it:
    crumb pack cat /srv/objects $'caf\\xe9.txt'")]
pub struct CatArgs {
    /// Directory of the store
    #[arg(id = "place", value_name = "STORE")]
    store: PathBuf,

    /// Keys of the objects
    #[arg(value_name = "KEY", required = true)]
    keys: Vec<OsString>,
}

/// Writes bodies, each proven by its checksum before it is written; ends at the first object that is not there.
pub fn cat(args: &CatArgs) -> anyhow::Result<ExitStatus> {
    let store = Place::read(&args.store)?.open_to_read()?;
    let done = (|| {
        let mut out = io::stdout().lock();
        for key in args.keys.iter().map(|key| key.as_bytes()) {
            let object = store.get(key)?.with_context(|| format!("{}: no such object", shown(key)))?;
            for chunk in object.chunks() {
                match out.write_all(chunk?.as_slice()) {
                    // The reader has what it wants.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                    written => written.context("standard output cannot be written")?,
                }
            }
        }
        out.flush().context("standard output cannot be written")
    })();
    close_after(store, done).map(|()| ExitStatus::Fine)
}

/// Runs the verb.
pub fn run(args: &GetArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    let to_tar = args.output == Path::new("-");
    if to_tar && args.json == Some(Destination::Stdout) {
        return Err(anyhow!("standard output cannot be both a tar stream and JSON").context(BadUsage));
    }
    let stop = signals::stop_flag_of(context)?;
    let place = Place::read(&args.store)?;
    if place.is_in_use() {
        note(context, "another process has the store open: what it put since it began may be missing");
    }
    let store = place.open_to_read()?;
    let begun = Instant::now();
    let mut progress = Progress::new(context.quiet);
    let mut getting = Getting::new(&store, &stop, &mut progress);
    let done = written(&mut getting, args, to_tar).map_err(|error| match error {
        // Unwrapped, so that a closed standard output is recognised: it is not a failure.
        PackFsError::Stream(error) => error.into(),
        error => error.into(),
    });
    let (got, looked_below) = (getting.got(), getting.looked_below());
    progress.finish();
    let all = if looked_below { all_is_there(&store, &args.store) } else { Ok(()) };
    close_after(store, done)?;
    let seconds = begun.elapsed().as_secs_f64();
    let interrupted = stop.load(Ordering::Relaxed);
    if let Some(json) = &args.json {
        write_json(
            json,
            context,
            &json!({
                "files": got.files, "bytes": got.bytes, "directories": got.directories, "links": got.links,
                "refused": got.refused, "without_special_bits": got.without_special_bits, "seconds": seconds, "complete": !interrupted,
            }),
        )?;
    } else {
        let text = format!(
            "{}, {}, {} and {} written in {seconds:.1} s, {}/s",
            counted(got.files as usize, "file", "files"),
            bytes_text(got.bytes),
            counted(got.directories as usize, "directory", "directories"),
            counted(got.links as usize, "link", "links"),
            rate_text(got.files as f64 / seconds.max(1e-6)),
        );
        note(context, wrapped("", &text).trim_end());
        if got.without_special_bits > 0 {
            let text = format!(
                "{} put with a set-user-ID or set-group-ID bit and written without it: a store keeps no owners, and such a program would \
                 run with the rights of the user who runs this command",
                counted(got.without_special_bits as usize, "entry was", "entries were")
            );
            note(context, wrapped("", &text).trim_end());
        }
    }
    if interrupted {
        bail!("interrupted; what was written until then is whole");
    }
    if let (Err(error), 1..) = (&all, got.refused) {
        note(context, &format!("error: {error:#}"));
    }
    match got.refused {
        0 => all.map(|()| ExitStatus::Fine),
        refused => Err(anyhow!(
            "{} not written, as reported above",
            counted(refused as usize, "object was", "objects were")
        )),
    }
}

fn written(getting: &mut Getting<'_>, args: &GetArgs, to_tar: bool) -> Result<(), PackFsError> {
    let keys: Vec<&[u8]> = args.keys.iter().map(|key| key.as_bytes()).collect();
    let wanted = getting.wanted((!args.all).then_some(&keys))?;
    if to_tar {
        getting.write_tar(io::stdout().lock(), &wanted)
    } else {
        getting.write_below(&args.output, &wanted)
    }
}

impl WatchGet for Progress {
    fn refused(&mut self, key: &[u8], why: &str) {
        self.say(wrapped("error: ", &format!("{}: {why}", shown(key))).trim_end());
    }

    fn step(&mut self, got: &Got, of: u64) {
        let done = got.files + got.directories + got.links + got.refused;
        let text = format!("{} of {} objects, {}", count_text(done), count_text(of), bytes_text(got.bytes));
        Progress::step(self, done, of, text);
    }
}
