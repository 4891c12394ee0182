//! `crumb pack put`: files, trees and tar streams into a store.
//!
//! Kept of a file: its bytes, permissions and time of change; of a tree also empty directories, symbolic links as they
//! are, and which names are one file. Not kept: owners, extended attributes, holes. Devices, sockets and pipes are told
//! and counted.

use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use packstore::{FileMeta, FileType, OpenOptions, Pending, PutOptions, Store, StoreError};
use report::{bytes_text, count_text, rate_text};
use serde_json::json;

use super::figures::shown;
use super::place::Place;
use super::{close_after, print_json};
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::{counted, wrapped};
use crate::output::note;
use crate::progress::Progress;
use crate::signals;

/// Bodies up to this are read whole, longer ones streamed.
const WHOLE_BYTES_MAX: u64 = 256 << 10;
/// Puts on their way.
const PENDING_MAX: usize = 4096;

/// Store files, trees or a tar stream. Keys are the paths as given, without `./` and a leading `/`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  A tree, with keys such as images/a/logo.png:
    crumb pack put /srv/objects images
  Another one, with keys relative to it:
    crumb pack put /srv/objects -C /srv/www/images .
  What comes from elsewhere:
    ssh host tar -c images | crumb pack put /srv/objects -
  One object, whose bytes come from another program:
    pg_dump shop | crumb pack put /srv/objects --as backup/shop.sql -

Ctrl-C ends it; what was put until then stays. It fails (1) when something was not put, and also when all was put but\n\
some packed file of the store is damaged.")]
pub struct PutArgs {
    /// Directory of the store
    #[arg(value_name = "STORE")]
    store: PathBuf,

    /// Files and directories; - for a tar stream on standard input
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Where the paths begin
    #[arg(short = 'C', long = "directory", value_name = "DIR", default_value = ".")]
    directory: PathBuf,

    /// Store the one file named, or standard input (-) as it is, as the object of this key
    #[arg(long = "as", value_name = "KEY")]
    as_key: Option<OsString>,

    /// Tell what was put as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: &PutArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    if args.as_key.is_some() && args.paths.len() > 1 {
        return Err(
            anyhow!("--as names one object: give one file, or - for standard input").context(BadUsage)
        );
    }
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
    let stop = signals::stop_flag_of(context)?;
    let place = Place::read(&args.store)?;
    let own = place.directories().into_iter().filter_map(|path| fs::metadata(path).ok());
    let own = own.map(|own| (own.dev(), own.ino())).collect();
    let store = place.open(OpenOptions::default())?;
    let begun = Instant::now();
    let mut putting = Putting {
        store: &store,
        stop: &stop,
        progress: Progress::new(context.quiet),
        pending: VecDeque::new(),
        several: HashMap::new(),
        own,
        put: Put::default(),
    };
    let mut done = putting.all(roots, args.paths.len(), args.as_key.as_deref());
    if let Err(error) = putting.settle(0) {
        done = done.and(Err(error));
    }
    putting.progress.finish();
    let put = std::mem::take(&mut putting.put);
    drop(putting);
    let interrupted = stop.load(Ordering::Relaxed);
    let damaged = store.usage().damaged_files;
    close_after(store, done)?;
    let seconds = begun.elapsed().as_secs_f64();
    if args.json {
        print_json(&json!({
            "files": put.files, "bytes": put.bytes, "directories": put.directories, "symlinks": put.symlinks,
            "hard_links": put.hard_links, "refused": put.refused, "seconds": seconds, "complete": !interrupted,
        }))?;
    } else {
        let text = format!(
            "{}, {}, {} and {} put in {seconds:.1} s, {}/s",
            counted(put.files as usize, "file", "files"),
            bytes_text(put.bytes),
            counted(put.directories as usize, "directory", "directories"),
            counted((put.symlinks + put.hard_links) as usize, "link", "links"),
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
             check {}` tells what is wrong, `crumb pack repair` repairs what can be",
            counted(damaged as usize, "packed file", "packed files"),
            args.store.display()
        )),
        0 => Ok(ExitStatus::Fine),
        refused => {
            Err(anyhow!("{} not put, as told above", counted(refused as usize, "entry was", "entries were")))
        }
    }
}

/// A path as a key.
fn key_of(path: &Path) -> Result<Vec<u8>, &'static str> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.as_bytes()),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err("a key cannot hold `..`; give a path from further up, with -C");
            }
        }
    }
    Ok(parts.join(&b'/'))
}

#[derive(Default)]
struct Put {
    files: u64,
    bytes: u64,
    directories: u64,
    symlinks: u64,
    hard_links: u64,
    refused: u64,
}

impl Put {
    fn objects(&self) -> u64 {
        self.files + self.directories + self.symlinks + self.hard_links
    }
}

struct Putting<'a> {
    store: &'a Store,
    stop: &'a AtomicBool,
    progress: Progress,
    pending: VecDeque<Pending>,
    /// Keys of files with several names, by device and number.
    several: HashMap<(u64, u64), Vec<u8>>,
    /// The store's directories.
    own: Vec<(u64, u64)>,
    put: Put,
}

impl Putting<'_> {
    fn all(
        &mut self,
        roots: Vec<(PathBuf, Vec<u8>)>,
        of: usize,
        as_key: Option<&OsStr>,
    ) -> anyhow::Result<()> {
        let tars = of - roots.len();
        for (path, key) in roots {
            self.tree(path, key)?;
        }
        if let (Some(key), true) = (as_key, tars > 0) {
            let meta = FileMeta { mtime_s: now_s(), ..FileMeta::new(FileType::Regular, 0o644) };
            // Until its end is read, nothing says how long it is.
            let done = self.body(io::stdin().lock(), key.as_bytes(), WHOLE_BYTES_MAX, meta);
            self.settled(&shown(key.as_bytes()), done)?;
        } else if tars > 0 {
            self.tar(io::stdin().lock()).context("standard input is to be a tar stream")?;
        }
        Ok(())
    }

    fn refuse(&mut self, what: &str, why: &str) {
        self.put.refused += 1;
        self.progress.say(wrapped("error: ", &format!("{what}: {why}")).trim_end());
    }

    /// A path and all below it. A directory is put before what is in it.
    fn tree(&mut self, root: PathBuf, root_key: Vec<u8>) -> anyhow::Result<()> {
        let mut waiting = vec![(root, root_key)];
        while let Some((path, key)) = waiting.pop() {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let what = shown(path.as_os_str().as_bytes());
            let found = match fs::symlink_metadata(&path) {
                Ok(found) => found,
                Err(error) => {
                    self.refuse(&what, &error.to_string());
                    continue;
                }
            };
            let done = if found.is_dir() {
                if self.own.contains(&(found.dev(), found.ino())) {
                    self.refuse(&what, "is the store itself");
                    continue;
                }
                match below(&path, &key) {
                    Ok(mut entries) => waiting.append(&mut entries),
                    Err(error) => self.refuse(&what, &error.to_string()),
                }
                if key.is_empty() {
                    Ok(Ok(()))
                } else {
                    self.directory(&key, meta_of(&found, FileType::Directory))
                }
            } else if found.is_symlink() {
                match fs::read_link(&path) {
                    Ok(target) => {
                        let target = FileType::Symlink(target.as_os_str().as_bytes().to_vec());
                        self.symlink(&key, meta_of(&found, target))
                    }
                    Err(error) => Ok(Err(error)),
                }
            } else if found.is_file() {
                self.file(&path, &key, &found)
            } else {
                self.refuse(&what, "is a device, socket or pipe, which a store does not keep");
                continue;
            };
            self.settled(&what, done)?;
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, key: &[u8], found: &Metadata) -> Result<io::Result<()>, StoreError> {
        if found.nlink() > 1 {
            let number = (found.dev(), found.ino());
            if let Some(first) = self.several.get(&number) {
                // Its own put may still be on its way: the store waits for it.
                if self.store.link(first, key)? {
                    self.put.hard_links += 1;
                    return Ok(Ok(()));
                }
            }
            self.several.insert(number, key.to_vec());
        }
        match File::open(path) {
            Ok(file) => self.body(file, key, found.len(), meta_of(found, FileType::Regular)),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Errors of the reader are the entry's, errors of the store end everything.
    fn body(
        &mut self,
        mut from: impl Read,
        key: &[u8],
        length: u64,
        meta: FileMeta,
    ) -> Result<io::Result<()>, StoreError> {
        let meta = meta.encode();
        let options = PutOptions { meta: &meta, ..PutOptions::default() };
        let mut bytes = Vec::with_capacity(length.min(WHOLE_BYTES_MAX) as usize + 1);
        if let Err(error) = (&mut from).take(WHOLE_BYTES_MAX).read_to_end(&mut bytes) {
            return Ok(Err(error));
        }
        let mut put_bytes = bytes.len() as u64;
        let pending = if put_bytes < WHOLE_BYTES_MAX {
            self.store.put_deferred(key, &bytes, options)?
        } else {
            let mut writer = self.store.put_stream(key, options)?;
            loop {
                writer.write(&bytes)?;
                bytes.clear();
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(Err(io::ErrorKind::Interrupted.into()));
                }
                match (&mut from).take(WHOLE_BYTES_MAX).read_to_end(&mut bytes) {
                    Ok(0) => break,
                    Ok(read) => put_bytes += read as u64,
                    Err(error) => return Ok(Err(error)),
                }
            }
            writer.commit_deferred()?
        };
        self.put.files += 1;
        self.put.bytes += put_bytes;
        self.went(pending)?;
        Ok(Ok(()))
    }

    fn directory(&mut self, key: &[u8], meta: FileMeta) -> Result<io::Result<()>, StoreError> {
        let meta = meta.encode();
        let pending =
            self.store.put_deferred(key, b"", PutOptions { meta: &meta, ..PutOptions::default() })?;
        self.put.directories += 1;
        self.went(pending)?;
        Ok(Ok(()))
    }

    fn symlink(&mut self, key: &[u8], meta: FileMeta) -> Result<io::Result<()>, StoreError> {
        self.directory(key, meta)?.ok();
        self.put.directories -= 1;
        self.put.symlinks += 1;
        Ok(Ok(()))
    }

    fn went(&mut self, pending: Pending) -> Result<(), StoreError> {
        self.pending.push_back(pending);
        while self.pending.len() > PENDING_MAX {
            self.pending.pop_front().map_or(Ok(()), Pending::wait)?;
        }
        let (objects, bytes) = (self.put.objects(), self.put.bytes);
        // How many there will be is not known before all are looked at.
        self.progress.step(0, 1, format!("{} objects, {}", count_text(objects), bytes_text(bytes)));
        Ok(())
    }

    /// Waits until no more than so many are on their way.
    fn settle(&mut self, left: usize) -> anyhow::Result<()> {
        let mut first = Ok(());
        while self.pending.len() > left {
            first = first.and(self.pending.pop_front().map_or(Ok(()), Pending::wait));
        }
        Ok(first?)
    }

    /// Goes on after what concerns one entry alone.
    fn settled(&mut self, what: &str, done: Result<io::Result<()>, StoreError>) -> anyhow::Result<()> {
        match done {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) if self.stop.load(Ordering::Relaxed) => Ok(()),
            Ok(Err(error)) => {
                self.refuse(what, &error.to_string());
                Ok(())
            }
            Err(error @ StoreError::Length { .. }) => {
                self.refuse(what, &error.to_string());
                Ok(())
            }
            Err(error) => Err(anyhow::Error::new(error).context(format!("{what}: cannot be put"))),
        }
    }

    fn tar(&mut self, mut from: impl BufRead) -> anyhow::Result<()> {
        // A stream of no entries has its end blocks.
        if from.fill_buf()?.is_empty() {
            bail!("it holds nothing: whatever was to write it may have failed");
        }
        let mut archive = tar::Archive::new(from);
        for entry in archive.entries()? {
            let mut entry = entry?;
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let path = entry.path()?.into_owned();
            let what = shown(path.as_os_str().as_bytes());
            let key = match key_of(&path) {
                Ok(key) if key.is_empty() => continue,
                Ok(key) => key,
                Err(_) => {
                    self.refuse(&what, "its path holds `..`, which leads out of wherever it is unpacked");
                    continue;
                }
            };
            let header = entry.header();
            let (mode, mtime_s) = (header.mode().unwrap_or(0o644), header.mtime().unwrap_or(0));
            let (kind, length) = (header.entry_type(), entry.size());
            let meta = |kind| FileMeta {
                mtime_s: i64::try_from(mtime_s).unwrap_or(i64::MAX),
                mtime_ns: 0,
                ..FileMeta::new(kind, (mode & 0o7777) as u16)
            };
            let target = entry.link_name()?.map(|target| target.into_owned());
            let done = match (kind, target) {
                (tar::EntryType::Directory, _) => self.directory(&key, meta(FileType::Directory)),
                (tar::EntryType::Symlink, Some(target)) if !target.as_os_str().is_empty() => {
                    self.symlink(&key, meta(FileType::Symlink(target.as_os_str().as_bytes().to_vec())))
                }
                (tar::EntryType::Link, Some(first)) => {
                    match key_of(&first).map(|first| self.store.link(&first, &key)) {
                        Ok(Ok(true)) => {
                            self.put.hard_links += 1;
                            Ok(Ok(()))
                        }
                        Ok(Err(error)) => Err(error),
                        _ => {
                            self.refuse(
                                &what,
                                &format!(
                                    "is another name of {}, which is not there",
                                    shown(first.as_os_str().as_bytes())
                                ),
                            );
                            continue;
                        }
                    }
                }
                (tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse, _) => {
                    self.body(&mut entry, &key, length, meta(FileType::Regular))
                }
                _ => {
                    self.refuse(&what, "is a device, pipe or something else that a store does not keep");
                    continue;
                }
            };
            // A stream that breaks off is no fault of one entry.
            if let Ok(Err(error)) = done {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                return Err(anyhow::Error::new(error).context(format!("{what}: the stream breaks off")));
            }
            self.settled(&what, done)?;
        }
        Ok(())
    }
}

/// Entries of a directory with their keys, the last first.
fn below(path: &Path, key: &[u8]) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let mut own = key.to_vec();
        if !own.is_empty() {
            own.push(b'/');
        }
        own.extend_from_slice(name.as_bytes());
        entries.push((path.join(&name), own));
    }
    entries.sort_unstable_by(|one, other| other.1.cmp(&one.1));
    Ok(entries)
}

fn now_s() -> i64 {
    jiff::Timestamp::now().as_second()
}

fn meta_of(found: &Metadata, kind: FileType) -> FileMeta {
    FileMeta {
        mtime_s: found.mtime(),
        mtime_ns: u32::try_from(found.mtime_nsec()).unwrap_or(0),
        ..FileMeta::new(kind, (found.mode() & 0o7777) as u16)
    }
}
