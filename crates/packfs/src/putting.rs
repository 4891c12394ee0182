//! Files, trees and tar streams into a store.
//!
//! Kept of a file: its bytes, permissions and time of change; of a tree also empty directories, symbolic links as they
//! are, and which names are one file. Not kept: owners, extended attributes, holes. Devices, sockets and pipes are reported
//! and counted.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use packstore::{Pending, PutOptions, Store, StoreError};

use crate::error::PackFsError;
use crate::file_system::{FileMeta, FileType};
use crate::keys::{key_of, shown};

/// Bodies up to this are read whole, longer ones streamed.
const WHOLE_BYTES_MAX: u64 = 256 << 10;
/// Most bytes of all headers of one entry of a tar stream. A key ends at 4 KB and attributes at 64 KB; a map of a sparse file's holes
/// may be longer.
const TAR_HEADERS_BYTES_MAX: u64 = 1 << 20;
/// Puts on their way.
const PENDING_MAX: usize = 4096;

/// Learns how putting goes.
pub trait WatchPut {
    /// An entry was not put; the others are.
    fn refused(&mut self, what: &str, why: &str);
    /// One more went. How many there will be is not known before all are looked at.
    fn went(&mut self, put: &Put);
}

/// What was put so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// Files.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Further names of files.
    pub hard_links: u64,
    /// Entries that were not put but reported.
    pub refused: u64,
}

impl Put {
    /// All that has a key.
    pub fn objects(&self) -> u64 {
        self.files + self.directories + self.symlinks + self.hard_links
    }
}

/// Puts files, trees and tar streams into a store, many on their way at a time.
pub struct Putting<'a> {
    store: &'a Store,
    stop: &'a AtomicBool,
    watch: &'a mut dyn WatchPut,
    pending: VecDeque<Pending>,
    /// Keys of files with several names, by device and number.
    several: HashMap<(u64, u64), Vec<u8>>,
    /// The store's directories.
    own: Vec<(u64, u64)>,
    /// When all that is put expires, in seconds since 1970; 0: never.
    expires_s: u32,
    put: Put,
}

impl<'a> Putting<'a> {
    /// Into a store whose own directories (device and number of each) are never put into it. `stop` ends it soon.
    pub fn new(
        store: &'a Store,
        own: Vec<(u64, u64)>,
        stop: &'a AtomicBool,
        watch: &'a mut dyn WatchPut,
    ) -> Self {
        let (pending, several) = (VecDeque::new(), HashMap::new());
        Self { store, stop, watch, pending, several, own, expires_s: 0, put: Put::default() }
    }

    /// All that is put from now on expires then, in seconds since 1970; 0: never. Without effect in a store whose objects do not expire
    /// ([`Store::expires`]).
    pub fn expiring_at(self, expires_s: u32) -> Self {
        Self { expires_s, ..self }
    }

    /// What was put so far.
    pub fn put(&self) -> Put {
        self.put
    }

    /// Waits for all that is on its way.
    ///
    /// # Errors
    /// When something of it could not be put.
    pub fn settle(&mut self) -> Result<(), PackFsError> {
        let mut first = Ok(());
        while let Some(pending) = self.pending.pop_front() {
            first = first.and(pending.wait());
        }
        Ok(first?)
    }

    /// All bytes of a stream, as the object of this key.
    ///
    /// # Errors
    /// When the store takes no more.
    pub fn object(&mut self, from: impl Read, key: &[u8]) -> Result<(), PackFsError> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mtime_s = since.as_secs().try_into().unwrap_or(i64::MAX);
        let meta = FileMeta { mtime_s, ..FileMeta::new(FileType::Regular, 0o644) };
        // Until its end is read, nothing says how long it is.
        let done = self.body(from, key, WHOLE_BYTES_MAX, meta);
        self.settled(&shown(key), done)
    }

    fn refuse(&mut self, what: &str, why: &str) {
        self.put.refused += 1;
        self.watch.refused(what, why);
    }

    /// A path and all below it. A directory is put before what is in it.
    ///
    /// # Errors
    /// When the store takes no more.
    pub fn tree(&mut self, root: PathBuf, root_key: Vec<u8>) -> Result<(), PackFsError> {
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
        let options = PutOptions { meta: &meta, expires_s: self.expires_s, ..PutOptions::default() };
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
        let options = PutOptions { meta: &meta, expires_s: self.expires_s, ..PutOptions::default() };
        let pending = self.store.put_deferred(key, b"", options)?;
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
        self.watch.went(&self.put);
        Ok(())
    }

    /// Continues after what concerns one entry alone.
    fn settled(&mut self, what: &str, done: Result<io::Result<()>, StoreError>) -> Result<(), PackFsError> {
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
            Err(source) => Err(PackFsError::Put { what: what.to_owned(), source }),
        }
    }

    /// Gives what is stored as `first` the name `key` too; `None` where it is not there, which was reported.
    fn hard_link(
        &mut self,
        first: &Path,
        key: &[u8],
        what: &str,
    ) -> Option<Result<io::Result<()>, StoreError>> {
        match key_of(first).map(|first| self.store.link(&first, key)) {
            Ok(Ok(true)) => {
                self.put.hard_links += 1;
                Some(Ok(Ok(())))
            }
            Ok(Err(error)) => Some(Err(error)),
            _ => {
                let first = shown(first.as_os_str().as_bytes());
                self.refuse(what, &format!("is another name of {first}, which is not there"));
                None
            }
        }
    }

    /// All entries of a tar stream.
    ///
    /// # Errors
    /// When it holds nothing, is no tar stream or breaks off, and when the store takes no more.
    pub fn tar(&mut self, mut from: impl BufRead) -> Result<(), PackFsError> {
        // A stream of no entries has its end blocks.
        if from.fill_buf()?.is_empty() {
            return Err(PackFsError::EmptyStream);
        }
        let headers_left = Cell::new(u64::MAX);
        let mut archive = tar::Archive::new(Ended { from, is_at_end: false, headers_left: &headers_left });
        let mut last = String::new();
        let mut entries = archive.entries()?;
        loop {
            // The reader of tar streams keeps long names and pax headers in memory, however long they are.
            headers_left.set(TAR_HEADERS_BYTES_MAX);
            let Some(entry) = entries.next() else { break };
            let mut entry = entry?;
            headers_left.set(u64::MAX);
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.tar_entry(&mut entry, &mut last)?;
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            // What is left of it must not count as the next entry's headers.
            io::copy(&mut entry, &mut io::sink())?;
        }
        // Ctrl-C ends the program that feeds the stream too: the interruption is the news then, and not that it is cut off.
        if archive.into_inner().is_at_end && !self.stop.load(Ordering::Relaxed) {
            return Err(PackFsError::CutStream { last });
        }
        Ok(())
    }

    /// One entry of a tar stream, whose name goes to `last`.
    fn tar_entry<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        last: &mut String,
    ) -> Result<(), PackFsError> {
        let path = entry.path()?.into_owned();
        let what = shown(path.as_os_str().as_bytes());
        last.clone_from(&what);
        // A damaged length there moves everything that follows.
        let pax =
            read_pax(entry).map_err(|source| PackFsError::BrokenStream { what: what.clone(), source })?;
        let target = entry.link_name()?.map(|target| target.into_owned());
        let key = match key_in_stream(entry, &path, target.as_deref(), pax) {
            Ok(Some(key)) => key,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.refuse(&what, why);
                return Ok(());
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
        let done = match (kind, target) {
            (tar::EntryType::Directory, _) => self.directory(&key, meta(FileType::Directory)),
            (tar::EntryType::Symlink, Some(target)) if !target.as_os_str().is_empty() => {
                self.symlink(&key, meta(FileType::Symlink(target.as_os_str().as_bytes().to_vec())))
            }
            (tar::EntryType::Link, Some(first)) => match self.hard_link(&first, &key, &what) {
                Some(done) => done,
                None => return Ok(()),
            },
            (tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse, _) => {
                let whole = Whole { from: entry, left: length };
                self.body(whole, &key, length, meta(FileType::Regular))
            }
            _ => {
                self.refuse(&what, "is a device, pipe or something else that a store does not keep");
                return Ok(());
            }
        };
        // A stream that breaks off is no fault of one entry.
        if let Ok(Err(error)) = done {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            return Err(PackFsError::BrokenStream { what, source: error });
        }
        self.settled(&what, done)
    }
}

/// The key of an entry; none for the directory that all of a stream is in.
///
/// # Errors
/// Why the entry cannot be put.
fn key_in_stream<R: Read>(
    entry: &tar::Entry<'_, R>,
    path: &Path,
    target: Option<&Path>,
    pax: Pax,
) -> Result<Option<Vec<u8>>, &'static str> {
    let holds_zero = |path: &Path| path.as_os_str().as_bytes().contains(&0);
    if holds_zero(path) || target.is_some_and(holds_zero) {
        return Err("its path, or what it links to, holds a zero byte, which no file's path can");
    }
    let key = key_of(path).map_err(|_| "its path holds `..`, which leads out of wherever it is unpacked")?;
    if key.is_empty() {
        let is_root = entry.header().entry_type().is_dir() && !path.as_os_str().is_empty();
        return if is_root { Ok(None) } else { Err("it has no name") };
    }
    if pax.is_sparse {
        return Err(
            "is a sparse file in the pax form (GNU.sparse), which is not read; make the stream with tar --format=gnu, or without -S",
        );
    }
    Ok(Some(key))
}

/// What matters here of an entry's pax header.
#[derive(Clone, Copy, Debug, Default)]
struct Pax {
    /// The entry holds the data of a sparse file with a map of its holes that stands in the pax header or in the data: taken as
    /// it is, it would be another file.
    is_sparse: bool,
}

/// Reads an entry's pax header.
///
/// # Errors
/// When a record of it is damaged, or a number is not one: the reader of tar streams would go by the entry's header then.
fn read_pax<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Pax> {
    let mut pax = Pax::default();
    // A header for all entries is an entry of its own, which the next line reads.
    if entry.header().entry_type().is_pax_global_extensions() && entry.size() > TAR_HEADERS_BYTES_MAX {
        let why = format!("its pax header is longer than {TAR_HEADERS_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let Some(extensions) = entry.pax_extensions()? else { return Ok(pax) };
    for extension in extensions {
        let extension = extension.map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidData, "a record of its pax header is damaged")
        })?;
        let (key, value) = (extension.key_bytes(), extension.value_bytes());
        pax.is_sparse |= key.starts_with(b"GNU.sparse.");
        let is_right = match key {
            b"size" | b"uid" | b"gid" => {
                str::from_utf8(value).is_ok_and(|value| value.parse::<u64>().is_ok())
            }
            b"mtime" | b"atime" | b"ctime" => is_time(value),
            _ => true,
        };
        // An empty value takes back what a header for all entries said.
        if !is_right && !value.is_empty() {
            let (key, value) = (key.escape_ascii(), value.escape_ascii());
            let why = format!("its pax header says {key}={value}, which is not a number");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
    }
    Ok(pax)
}

/// Seconds, perhaps with a sign and a fraction.
fn is_time(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    let whole = digits.iter().take_while(|digit| digit.is_ascii_digit()).count();
    let fraction = digits[whole..].strip_prefix(b".").unwrap_or(&digits[whole..]);
    whole > 0 && fraction.iter().all(u8::is_ascii_digit)
}

/// A stream that knows whether it was read to its end. The reader of tar streams stops at the first block of zeros, which
/// says that there are no more entries; when it came to the end of the stream instead, that block is missing.
///
/// It ends with an error where an entry's headers are longer than allowed.
struct Ended<'a, R> {
    from: R,
    is_at_end: bool,
    /// Bytes that may still be read before the next entry begins.
    headers_left: &'a Cell<u64>,
}

impl<R: Read> Read for Ended<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(bytes)?;
        let Some(left) = self.headers_left.get().checked_sub(read as u64) else {
            let why = format!("the headers of an entry take more than {TAR_HEADERS_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        };
        self.headers_left.set(left);
        self.is_at_end |= read == 0 && !bytes.is_empty();
        Ok(read)
    }
}

/// An entry of a stream: its end before the length that was reported is an error. The reader of tar streams takes it for the entry's end, and finds
/// out with the next one, when half an object would have been put.
struct Whole<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Whole<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(bytes)?;
        if read == 0 && !bytes.is_empty() && self.left > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends before its length"));
        }
        self.left = self.left.saturating_sub(read as u64);
        Ok(read)
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

fn meta_of(found: &Metadata, kind: FileType) -> FileMeta {
    FileMeta {
        mtime_s: found.mtime(),
        mtime_ns: u32::try_from(found.mtime_nsec()).unwrap_or(0),
        ..FileMeta::new(kind, (found.mode() & 0o7777) as u16)
    }
}
