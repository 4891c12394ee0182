//! Objects as files below a directory, or as a tar stream.
//!
//! Always holds: nothing is written outside the directory: keys that lead out are refused, symbolic links are made after
//! everything else, and every call gets a bare name below the descriptor of a directory that was reached without links,
//! so that none is followed which somebody puts there meanwhile. A file whose object is damaged is not left behind.

use std::collections::HashMap;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use packstore::{Object, Stat, Store, StoreError};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, linkat, mkdirat, openat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::error::PackFsError;
use crate::file_system::{FileMeta, FileType};
use crate::keys::names_of;

/// What was written so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Got {
    /// Files.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links, and further names of files.
    pub links: u64,
    /// Objects that were not written but reported.
    pub refused: u64,
    /// Files and directories that were put with a set-user-ID or set-group-ID bit, and written without it.
    pub without_special_bits: u64,
}

/// Learns how getting goes.
pub trait WatchGet {
    /// An object was not written; the others are.
    fn refused(&mut self, key: &[u8], why: &str);
    /// One more is begun, of this many.
    fn step(&mut self, got: &Got, of: u64);
}

/// A key, and whether it may be one of several names.
pub struct Wanted {
    key: Vec<u8>,
    is_linked: bool,
}

/// Writes objects of a store as files or as a tar stream.
pub struct Getting<'a> {
    store: &'a Store,
    stop: &'a AtomicBool,
    watch: &'a mut dyn WatchGet,
    got: Got,
    of: u64,
    looked_below: bool,
}

impl<'a> Getting<'a> {
    /// Out of a store. `stop` ends it soon: what was written until then is whole.
    pub fn new(store: &'a Store, stop: &'a AtomicBool, watch: &'a mut dyn WatchGet) -> Self {
        Self { store, stop, watch, got: Got::default(), of: 0, looked_below: false }
    }

    /// What was written so far.
    pub fn got(&self) -> Got {
        self.got
    }

    /// Whether all objects of a tree were asked for, of which some may be missing.
    pub fn looked_below(&self) -> bool {
        self.looked_below
    }

    /// As files below a directory, which is made when it is not there.
    ///
    /// # Errors
    /// When it cannot be made or is full, and when the store cannot be read.
    pub fn write_below(&mut self, directory: &Path, wanted: &[Wanted]) -> Result<(), PackFsError> {
        self.of = wanted.len() as u64;
        let failed = |what| move |source| PackFsError::Directory { path: directory.to_owned(), what, source };
        fs::create_dir_all(directory).map_err(failed("made"))?;
        Files::below(directory).map_err(failed("opened"))?.write(self, wanted)
    }

    fn refuse(&mut self, key: &[u8], why: &str) {
        self.got.refused += 1;
        self.watch.refused(key, why);
    }

    /// The objects of these keys and of the trees below them, in the order of their keys; `None`: all there are.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn wanted(&mut self, keys: Option<&[&[u8]]>) -> Result<Vec<Wanted>, PackFsError> {
        let mut failures = Vec::new();
        let looked_below = &mut self.looked_below;
        let mut below = |prefix: &[u8]| -> Result<Vec<Wanted>, StoreError> {
            *looked_below = true;
            let entries = self.store.iter_ordered(prefix)?;
            failures.extend_from_slice(entries.failures());
            Ok(entries
                .map(|entry| Wanted { key: entry.key, is_linked: entry.stat.meta_bytes == 0 })
                .collect())
        };
        let mut wanted = Vec::new();
        let mut missing = Vec::new();
        if keys.is_none() {
            wanted = below(b"")?;
        }
        for &key in keys.unwrap_or_default() {
            let key = &key[..key.len() - key.iter().rev().take_while(|byte| **byte == b'/').count()];
            let there = match self.store.attributes(key) {
                Err(StoreError::Damaged { .. } | StoreError::Disk(_)) => {
                    // Reported when it is read.
                    wanted.push(Wanted { key: key.to_vec(), is_linked: true });
                    continue;
                }
                there => there?,
            };
            let alone = there.as_ref().is_some_and(|(_, meta)| {
                FileMeta::decode(meta).is_none_or(|meta| meta.kind != FileType::Directory)
            });
            if there.is_some() {
                wanted.push(Wanted { key: key.to_vec(), is_linked: true });
            }
            if !alone {
                let mut tree = below(&[key, b"/"].concat())?;
                if tree.is_empty() && there.is_none() {
                    missing.push(key.to_vec());
                }
                wanted.append(&mut tree);
            }
        }
        for key in missing {
            self.refuse(&key, "no such object, and none below it");
        }
        for error in failures {
            self.refuse(b"a segment", &error.to_string());
        }
        Ok(wanted)
    }

    fn step(&mut self) {
        self.watch.step(&self.got, self.of);
    }

    /// The object; `None`, with a message, when it is gone or damaged.
    fn object(&mut self, key: &[u8]) -> Result<Option<Object>, PackFsError> {
        match self.store.get(key) {
            Ok(Some(object)) => Ok(Some(object)),
            Ok(None) => {
                self.refuse(key, "went while it was looked for");
                Ok(None)
            }
            Err(error @ (StoreError::Damaged { .. } | StoreError::Disk(_))) => {
                self.refuse(key, &error.to_string());
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Permissions without the set-user-ID and set-group-ID bits. A store keeps no owners, so the user who gets a file owns it: a
    /// user's set-user-ID program would run as root after root had put and got it.
    fn harmless_mode(&mut self, meta: &FileMeta) -> u16 {
        let is_special = meta.mode & SPECIAL_BITS != 0 && !matches!(meta.kind, FileType::Symlink(_));
        self.got.without_special_bits += u64::from(is_special);
        meta.mode & !SPECIAL_BITS
    }

    /// As a tar stream.
    ///
    /// # Errors
    /// When it cannot be written, an object turns out damaged when half of it is written, and when the store cannot be read.
    pub fn write_tar(&mut self, to: impl io::Write, wanted: &[Wanted]) -> Result<(), PackFsError> {
        self.of = wanted.len() as u64;
        let mut builder = tar::Builder::new(io::BufWriter::with_capacity(1 << 20, to));
        let mut groups = HashMap::<u64, Vec<u8>>::new();
        for Wanted { key, is_linked } in wanted {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.step();
            if let Err(why) = names_of(key) {
                self.refuse(key, why);
                continue;
            }
            let Some(object) = self.object(key)? else { continue };
            let meta = meta_of(object.meta(), object.stat());
            let mut header = tar::Header::new_gnu();
            header.set_mode(self.harmless_mode(&meta).into());
            header.set_mtime(u64::try_from(meta.mtime_s).unwrap_or(0));
            header.set_size(0);
            let path = Path::new(std::ffi::OsStr::from_bytes(key));
            match &meta.kind {
                FileType::Directory => {
                    header.set_entry_type(tar::EntryType::Directory);
                    builder.append_data(&mut header, path.join(""), io::empty())?;
                    self.got.directories += 1;
                }
                FileType::Symlink(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    builder.append_link(&mut header, path, Path::new(std::ffi::OsStr::from_bytes(target)))?;
                    self.got.links += 1;
                }
                FileType::Regular => {
                    if let Some(first) = groups.get(&meta.group).filter(|_| *is_linked && meta.group != 0) {
                        header.set_entry_type(tar::EntryType::Link);
                        builder.append_link(
                            &mut header,
                            path,
                            Path::new(std::ffi::OsStr::from_bytes(first)),
                        )?;
                        self.got.links += 1;
                        continue;
                    }
                    header.set_size(object.length());
                    // A damaged piece ends the stream: half an entry cannot be taken back.
                    builder.append_data(&mut header, path, Body::of(&object))?;
                    if *is_linked && meta.group != 0 {
                        groups.insert(meta.group, key.clone());
                    }
                    self.got.files += 1;
                    self.got.bytes += object.length();
                }
            }
        }
        builder.into_inner()?.flush()?;
        Ok(())
    }
}

/// The set-user-ID and set-group-ID bits of a mode.
const SPECIAL_BITS: u16 = 0o6000;

/// An object as a reader.
struct Body<'a> {
    object: &'a Object,
    at: u64,
    piece: Vec<u8>,
    piece_at: usize,
}

impl<'a> Body<'a> {
    fn of(object: &'a Object) -> Self {
        Self { object, at: 0, piece: Vec::new(), piece_at: 0 }
    }
}

impl Read for Body<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.piece_at == self.piece.len() {
            self.piece.resize(256 << 10, 0);
            let read = self.object.read_range(self.at, &mut self.piece);
            let read = read.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            self.piece.truncate(read);
            (self.at, self.piece_at) = (self.at + read as u64, 0);
        }
        let rest = &self.piece[self.piece_at..];
        let length = rest.len().min(buf.len());
        buf[..length].copy_from_slice(&rest[..length]);
        self.piece_at += length;
        Ok(length)
    }
}

fn meta_of(meta: &[u8], stat: &Stat) -> FileMeta {
    FileMeta::decode(meta).unwrap_or(FileMeta {
        mtime_s: stat.created_s.into(),
        mtime_ns: 0,
        group: 0,
        ..FileMeta::new(FileType::Regular, 0o644)
    })
}

/// Files below a directory.
struct Files<'a> {
    root: &'a Path,
    top: Rc<OwnedFd>,
    /// Directories below it by the keys of their names, some of them.
    open: HashMap<Vec<u8>, Rc<OwnedFd>>,
    /// Keys of the first names of files with several.
    groups: HashMap<u64, Vec<u8>>,
    /// To be made last, so that nothing is written through them.
    symlinks: Vec<(Vec<u8>, FileMeta)>,
    /// Permissions and times, to be set when nothing changes them any more.
    directories: Vec<(Vec<u8>, FileMeta)>,
}

/// Descriptors of directories that are kept.
const OPEN_MAX: usize = 256;
const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl<'a> Files<'a> {
    fn below(root: &'a Path) -> io::Result<Self> {
        // The directory itself may be named by a link: the user who runs the command chose it.
        let top = openat(CWD, root, DIRECTORY - OFlags::NOFOLLOW, Mode::empty())?;
        Ok(Self {
            root,
            top: Rc::new(top),
            open: HashMap::new(),
            groups: HashMap::new(),
            symlinks: Vec::new(),
            directories: Vec::new(),
        })
    }

    fn write(mut self, getting: &mut Getting<'_>, wanted: &[Wanted]) -> Result<(), PackFsError> {
        for one in wanted {
            if getting.stop.load(Ordering::Relaxed) {
                break;
            }
            getting.step();
            let parts = match names_of(&one.key) {
                Ok(parts) => parts,
                Err(why) => {
                    getting.refuse(&one.key, why);
                    continue;
                }
            };
            let Some(object) = getting.object(&one.key)? else { continue };
            if let Err(error) = self.one(getting, one, &parts, &object) {
                if error.kind() == io::ErrorKind::StorageFull {
                    return Err(PackFsError::Full { path: self.root.to_owned(), source: error });
                }
                getting.refuse(&one.key, &error.to_string());
            }
        }
        for (key, meta) in std::mem::take(&mut self.symlinks) {
            match self.symlink(&key, &meta) {
                Ok(()) => getting.got.links += 1,
                Err(error) => getting.refuse(&key, &error.to_string()),
            }
        }
        // Those deepest first: setting a time above does not change those below.
        for (key, meta) in std::mem::take(&mut self.directories).iter().rev() {
            let parts: Vec<&[u8]> = key.split(|byte| *byte == b'/').collect();
            if let Err(error) = self.directory(&parts).and_then(|directory| dress(&*directory, meta)) {
                getting.refuse(key, &error.to_string());
            }
        }
        Ok(())
    }

    fn one(
        &mut self,
        getting: &mut Getting<'_>,
        one: &Wanted,
        parts: &[&[u8]],
        object: &Object,
    ) -> io::Result<()> {
        let mut meta = meta_of(object.meta(), object.stat());
        meta.mode = getting.harmless_mode(&meta);
        let (last, before) = parts.split_last().expect("a key has a name");
        match meta.kind {
            FileType::Directory => {
                self.directory(parts)?;
                self.directories.push((one.key.clone(), meta));
                getting.got.directories += 1;
                return Ok(());
            }
            FileType::Symlink(_) => {
                self.symlinks.push((one.key.clone(), meta));
                return Ok(());
            }
            FileType::Regular => {}
        }
        let parent = self.directory(before)?;
        clear(&parent, last)?;
        let group = (one.is_linked && meta.group != 0).then_some(meta.group);
        if let Some(first) = group.and_then(|group| self.groups.get(&group)).cloned() {
            let names: Vec<&[u8]> = first.split(|byte| *byte == b'/').collect();
            let (first, above) = names.split_last().expect("a key has a name");
            linkat(&*self.directory(above)?, *first, &*parent, *last, AtFlags::empty())?;
            getting.got.links += 1;
            return Ok(());
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&*parent, *last, flags, Mode::from_raw_mode(0o666))?);
        let copied = io::copy(&mut Body::of(object), &mut file).and_then(|_| dress(&file, &meta));
        if let Err(error) = copied {
            let _ = unlinkat(&*parent, *last, AtFlags::empty());
            return Err(error);
        }
        if let Some(group) = group {
            self.groups.insert(group, one.key.clone());
        }
        getting.got.files += 1;
        getting.got.bytes += object.length();
        Ok(())
    }

    /// Opens the directory of these names, and makes what is missing; none of them may be a link.
    fn directory(&mut self, parts: &[&[u8]]) -> io::Result<Rc<OwnedFd>> {
        let Some((last, above)) = parts.split_last() else { return Ok(Rc::clone(&self.top)) };
        let key = parts.join(&b'/');
        if let Some(open) = self.open.get(&key) {
            return Ok(Rc::clone(open));
        }
        let above = self.directory(above)?;
        let opened = match openat(&*above, *last, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => {
                mkdirat(&*above, *last, Mode::from_raw_mode(0o777))?;
                openat(&*above, *last, DIRECTORY, Mode::empty())
            }
            other => other,
        };
        let opened = opened.map_err(|errno| match errno {
            Errno::NOTDIR | Errno::LOOP => {
                let path = self.root.join(std::ffi::OsStr::from_bytes(&key));
                let why = format!("{} is there and no directory; remove it", path.display());
                io::Error::new(io::ErrorKind::NotADirectory, why)
            }
            other => other.into(),
        })?;
        let opened = Rc::new(opened);
        if self.open.len() >= OPEN_MAX {
            self.open.clear();
        }
        self.open.insert(key, Rc::clone(&opened));
        Ok(opened)
    }

    fn symlink(&mut self, key: &[u8], meta: &FileMeta) -> io::Result<()> {
        let FileType::Symlink(target) = &meta.kind else { return Ok(()) };
        let parts: Vec<&[u8]> = key.split(|byte| *byte == b'/').collect();
        let (last, before) = parts.split_last().expect("a key has a name");
        let parent = self.directory(before)?;
        clear(&parent, last)?;
        symlinkat(&target[..], &*parent, *last)?;
        Ok(utimensat(&*parent, *last, &times_of(meta), AtFlags::SYMLINK_NOFOLLOW)?)
    }
}

/// Makes way: what is there is replaced, not written through.
fn clear(parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => {
            let why = format!("{} is a directory", String::from_utf8_lossy(name));
            Err(io::Error::new(io::ErrorKind::IsADirectory, why))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Permissions and times of what is open, or only found (`O_PATH`).
fn dress(of: impl AsFd, meta: &FileMeta) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", of.as_fd().as_raw_fd());
    fs::set_permissions(&path, Permissions::from_mode(meta.mode.into()))?;
    Ok(utimensat(CWD, &path, &times_of(meta), AtFlags::empty())?)
}

fn times_of(meta: &FileMeta) -> Timestamps {
    let time = Timespec { tv_sec: meta.mtime_s, tv_nsec: meta.mtime_ns.into() };
    Timestamps { last_access: time, last_modification: time }
}
