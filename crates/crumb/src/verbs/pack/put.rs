//! `crumb pack put`: files, trees and tar streams into a store (`packfs::Putting`).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use packfs::{Put, Putting, WatchPut, key_of};
use packstore::{OpenOptions, Store};
use report::{bytes_text, count_text, rate_text};
use serde_json::json;

use super::place::Place;
use super::{close_after, write_json};
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{counted, wrapped};
use crate::output::{Destination, destination, note};
use crate::progress::Progress;
use crate::quantities::time;
use crate::signals;

/// Store files, trees or a tar stream. Keys are the paths as given, without `./` and a leading `/`. An object that has the same key
/// is replaced.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  A tree, with keys such as images/a/logo.png:
    crumb pack put /srv/objects images
  Another one, with keys relative to it:
    crumb pack put /srv/objects -C /srv/www/images .
  Files from another host:
    ssh host tar -c images | crumb pack put /srv/objects -
  One object, whose bytes come from another program:
    pg_dump shop | crumb pack put /srv/objects --as backup/shop.sql -
  For three days, in a store made with --expires:
    crumb pack put /srv/spool articles --ttl 3d

Ctrl-C ends it; what was put until then stays. It fails (1) when something was not put, and also when all was put but\n\
some segment of the store is damaged.")]
pub struct PutArgs {
    /// Directory of the store
    #[arg(id = "place", value_name = "STORE")]
    store: PathBuf,

    /// Files and directories; - for a tar stream on standard input
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Directory that the paths are relative to
    #[arg(short = 'C', long = "directory", value_name = "DIR", default_value = ".")]
    directory: PathBuf,

    /// Store the one named file, or standard input (-), as one object under this key
    #[arg(long = "as", value_name = "KEY")]
    as_key: Option<OsString>,

    /// Time to live: the objects are gone this long from now, and their space is used again. Needs a store made with `crumb pack create
    /// --expires` [default: they stay until they are deleted]
    #[arg(long, value_name = "TIME", value_parser = time)]
    ttl: Option<Duration>,

    /// Print the result as JSON; with --json=FILE write it to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", value_parser = destination)]
    json: Option<Destination>,
}

/// Runs the verb.
pub fn run(args: &PutArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    if args.as_key.is_some() && args.paths.len() > 1 {
        return Err(
            anyhow!("--as names one object: give one file, or - for standard input").context(BadUsage)
        );
    }
    let roots = roots(args)?;
    let stop = signals::stop_flag_of(context)?;
    let place = Place::read(&args.store)?;
    let own = place.directories().into_iter().filter_map(|path| fs::metadata(path).ok());
    let own = own.map(|own| (own.dev(), own.ino())).collect();
    let store = place.open(OpenOptions::default())?;
    let expires_s = args.ttl.map_or(Ok(0), |ttl| expires_s(&store, &args.store, ttl));
    let expires_s = match expires_s {
        Ok(expires_s) => expires_s,
        Err(error) => return close_after(store, Err(error)),
    };
    let begun = Instant::now();
    let mut progress = Progress::new(context.quiet);
    let mut putting = Putting::new(&store, own, &stop, &mut progress).expiring_at(expires_s);
    let mut done = all(&mut putting, roots, args);
    if let Err(error) = putting.settle() {
        done = done.and(Err(error.into()));
    }
    let put = putting.put();
    progress.finish();
    let (interrupted, damaged) = (stop.load(Ordering::Relaxed), store.usage().damaged_files);
    close_after(store, done)?;
    let seconds = begun.elapsed().as_secs_f64();
    if let Some(json) = &args.json {
        let figures = json!({
            "files": put.files, "bytes": put.bytes, "directories": put.directories, "symlinks": put.symlinks,
            "hard_links": put.hard_links, "refused": put.refused, "seconds": seconds, "complete": !interrupted,
        });
        write_json(json, context, &figures)?;
    } else {
        let text = format!(
            "{}, {}, {}, {} and {} put in {seconds:.1} s, {}/s",
            counted(put.files as usize, "file", "files"),
            bytes_text(put.bytes),
            counted(put.directories as usize, "directory", "directories"),
            counted(put.symlinks as usize, "symbolic link", "symbolic links"),
            counted(put.hard_links as usize, "hard link", "hard links"),
            rate_text(put.objects() as f64 / seconds.max(1e-6)),
        );
        note(context, wrapped("", &text).trim_end());
    }
    if interrupted {
        bail!("interrupted; what was put until then is in the store");
    }
    match put.refused {
        0 if damaged > 0 => Err(anyhow!(
            "all was put, but the store is damaged: the indexes of {} are, and these take no more objects; `crumb pack \
             check {}` lists what is wrong, `crumb pack repair` repairs what can be",
            counted(damaged as usize, "segment", "segments"),
            args.store.display()
        )),
        0 => Ok(ExitStatus::Fine),
        refused => {
            Err(anyhow!("{} not put, see above", counted(refused as usize, "entry was", "entries were")))
        }
    }
}

/// What is to be put besides standard input: paths, and their keys.
fn roots(args: &PutArgs) -> anyhow::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut roots = Vec::new();
    for path in args.paths.iter().filter(|path| *path != Path::new("-")) {
        let key = match &args.as_key {
            Some(key) if args.directory.join(path).is_dir() => {
                let key = key.display();
                let wrong = anyhow!("{}: is a directory; --as {key} takes one file", path.display());
                return Err(wrong.context(BadUsage));
            }
            Some(key) => Ok(key.as_bytes().to_vec()),
            None => key_of(path),
        };
        let key = key.map_err(|why| anyhow!("{}: {why}", path.display()).context(BadUsage))?;
        roots.push((args.directory.join(path), key));
    }
    Ok(roots)
}

/// When objects put now expire by the store's clock, in seconds since 1970.
fn expires_s(store: &Store, path: &Path, ttl: Duration) -> anyhow::Result<u32> {
    if !store.expires() {
        let why = anyhow!(
            "{}: objects do not expire in this store; --ttl needs one made with `crumb pack create --expires`",
            path.display()
        );
        return Err(why.context(BadUsage));
    }
    if ttl < Duration::from_secs(1) {
        return Err(anyhow!("--ttl {ttl:?}: too short; give at least 1s").context(BadUsage));
    }
    let ttl_s = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    match u32::try_from(u64::from(store.now_s()).saturating_add(ttl_s)) {
        Ok(expires_s) if expires_s < u32::MAX => Ok(expires_s),
        _ => Err(anyhow!("--ttl: the objects would expire after the year 2105; leave it out to keep them")
            .context(BadUsage)),
    }
}

fn all(putting: &mut Putting<'_>, roots: Vec<(PathBuf, Vec<u8>)>, args: &PutArgs) -> anyhow::Result<()> {
    let streams = args.paths.len() - roots.len();
    for (path, key) in roots {
        putting.tree(path, key)?;
    }
    match &args.as_key {
        Some(key) if streams > 0 => Ok(putting.object(io::stdin().lock(), key.as_bytes())?),
        None if streams > 0 => {
            putting.tar(io::stdin().lock()).context("standard input is no whole tar stream")
        }
        _ => Ok(()),
    }
}

impl WatchPut for Progress {
    fn refused(&mut self, what: &str, why: &str) {
        self.say(wrapped("error: ", &format!("{what}: {why}")).trim_end());
    }

    fn went(&mut self, put: &Put) {
        let text = format!("{} objects, {}", count_text(put.objects()), bytes_text(put.bytes));
        self.step(0, 1, text);
    }
}
