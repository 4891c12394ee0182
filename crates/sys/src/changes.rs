//! What anybody changes in a file system: fanotify(7) with a mark on all of it, by inode numbers and names.
//!
//! ```text
//! event: mask, thread | directory's handle, name | handle of what was changed
//!                                  `----------------------`--> inode numbers
//! ```
//!
//! Linux reports handles (`FAN_REPORT_DFID_NAME_TARGET`, 5.17 and later). Those of most file systems of disks are an inode number and
//! a generation, which the handle of the root proves; others are opened and asked for their number.
//!
//! Always holds: reading takes every event that is there, or reports that some were lost. What is reported has happened.
//! Not here: what is not reported, such as writing to shared mapped memory. Source: fanotify(7), fanotify_init(2), exportfs.h.

#![expect(unsafe_code, reason = "rustix has neither fanotify nor file handles")]

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// What happened; [`Change::NAMES`] and the like.
    pub what: u64,
    /// The thread that did it, as this process numbers threads; 0 when it is not seen from here.
    pub thread: i32,
    /// The inode number of the directory, and the name in it.
    pub name: Option<(u64, &'a [u8])>,
    /// The inode number of what was changed.
    pub inode: Option<u64>,
}

impl Change<'_> {
    /// A name was made, removed or renamed.
    pub const NAMES: u64 = libc::FAN_CREATE | libc::FAN_DELETE | libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
    /// Contents were written, or, where that is asked for, a descriptor for writing was closed.
    pub const CONTENTS: u64 = libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE;
    /// Attributes, extended ones too, or the number of names.
    pub const ATTRIBUTES: u64 = libc::FAN_ATTRIB;
}

/// How reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Changes passed on.
    pub changes: usize,
    /// More happened than the kernel keeps (16,384 events by default): anything may have changed.
    pub lost: bool,
}

/// The changes of the file system that a directory is on.
pub struct Changes {
    group: OwnedFd,
    root: OwnedFd,
    device: (u32, u32),
    /// Handles of this type and length begin with an inode number of this many bytes: type, length, bytes.
    direct: Option<(i32, usize, usize)>,
    /// Numbers of handles that had to be opened; 0 for those of other devices.
    opened: HashMap<Vec<u8>, u64>,
    buffer: Vec<u8>,
}

/// `struct file_handle` with the longest handle that Linux has.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; HANDLE_BYTES_MAX],
}

const HANDLE_BYTES_MAX: usize = 128;
/// An inode number of 32 bits, and a generation (exportfs.h, FILEID_INO32_GEN).
const INODE_32: (i32, usize, usize) = (1, 8, 4);
/// An inode number of 64 bits, and a generation (FILEID_INO64_GEN; XFS).
const INODE_64: (i32, usize, usize) = (0x81, 12, 8);
const BUFFER_BYTES: usize = 256 * 1024;
/// Numbers remembered; then all are forgotten.
const OPENED_MAX: usize = 4096;
/// `struct fanotify_event_metadata` and the headers of what follows it.
const EVENT_BYTES: usize = 24;
const INFO_HEADER_BYTES: usize = 4;
const FSID_BYTES: usize = 8;

impl Changes {
    /// Begins to collect the changes of the file system that `root` is on.
    ///
    /// # Errors
    /// `EPERM` without CAP_SYS_ADMIN; `EINVAL` before Linux 5.17; `ENODEV`, `EXDEV` or `EOPNOTSUPP` where the file system has
    /// no handles.
    pub fn of(root: BorrowedFd<'_>) -> io::Result<Self> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_REPORT_TID
            | libc::FAN_REPORT_FID
            | libc::FAN_REPORT_DIR_FID
            | libc::FAN_REPORT_NAME
            | libc::FAN_REPORT_TARGET_FID;
        // SAFETY: it takes two numbers and returns a descriptor.
        let group = unsafe { libc::fanotify_init(flags, (libc::O_RDONLY | libc::O_LARGEFILE) as u32) };
        if group < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for this caller alone.
        let group = unsafe { OwnedFd::from_raw_fd(group) };
        mark(&group, root, Change::NAMES | libc::FAN_MODIFY | Change::ATTRIBUTES | libc::FAN_ONDIR)?;
        let root = root.try_clone_to_owned()?;
        let attributes = attributes(root.as_fd())?;
        let (device, inode) = attributes;
        let (kind, handle) = handle_of(root.as_fd())?;
        let direct = [INODE_32, INODE_64].into_iter().find(|direct| {
            (direct.0, direct.1) == (kind, handle.len()) && number(&handle[..direct.2]) == inode
        });
        Ok(Self { group, root, device, direct, opened: HashMap::new(), buffer: vec![0; BUFFER_BYTES] })
    }

    /// Reports as well that a descriptor for writing was closed. By then all is there that was written without an event of its own: in
    /// shared mapped memory, or by `io_submit`. It costs as much for each file that is written as its writing does.
    ///
    /// # Errors
    /// Of fanotify_mark(2).
    pub fn with_closes(&self) -> io::Result<()> {
        mark(&self.group, self.root.as_fd(), libc::FAN_CLOSE_WRITE)
    }

    /// For poll(2): readable while there are changes.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.group.as_fd()
    }

    /// Passes on all that has happened and `is_wanted` by its thread.
    ///
    /// # Errors
    /// Of read(2).
    pub fn read(
        &mut self,
        is_wanted: impl Fn(i32) -> bool,
        mut each: impl FnMut(&Change<'_>),
    ) -> io::Result<Read> {
        let mut done = Read { changes: 0, lost: false };
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = loop {
            match rustix::io::read(&self.group, &mut buffer[..]) {
                Ok(0) | Err(Errno::AGAIN) => break Ok(done),
                Err(Errno::INTR) => {}
                Err(errno) => break Err(errno.into()),
                Ok(len) => self.events(&buffer[..len], &is_wanted, &mut each, &mut done),
            }
        };
        self.buffer = buffer;
        outcome
    }

    fn events(
        &mut self,
        mut events: &[u8],
        is_wanted: &impl Fn(i32) -> bool,
        each: &mut impl FnMut(&Change<'_>),
        done: &mut Read,
    ) {
        while events.len() >= EVENT_BYTES {
            let len = (number(&events[..4]) as usize).clamp(EVENT_BYTES, events.len());
            let (event, rest) = events.split_at(len);
            events = rest;
            let header = usize::from(u16::from_ne_bytes([event[6], event[7]])).clamp(EVENT_BYTES, len);
            let what = number(&event[8..16]);
            let thread = number(&event[20..24]) as u32 as i32;
            if what & libc::FAN_Q_OVERFLOW != 0 {
                done.lost = true;
            } else if is_wanted(thread) {
                let (name, inode) = self.details(&event[header..]);
                each(&Change { what, thread, name, inode });
                done.changes += 1;
            }
        }
    }

    /// The records behind an event.
    fn details<'a>(&mut self, mut records: &'a [u8]) -> (Option<(u64, &'a [u8])>, Option<u64>) {
        let (mut name, mut inode) = (None, None);
        while records.len() >= INFO_HEADER_BYTES {
            let kind = records[0];
            let len = usize::from(u16::from_ne_bytes([records[2], records[3]]));
            let (record, rest) = records.split_at(len.clamp(INFO_HEADER_BYTES, records.len()));
            records = rest;
            let Some((handle_kind, handle, behind)) = handle_in(&record[INFO_HEADER_BYTES..]) else {
                continue;
            };
            match kind {
                libc::FAN_EVENT_INFO_TYPE_DFID_NAME => {
                    let end = behind.iter().position(|byte| *byte == 0).unwrap_or(behind.len());
                    match (self.inode(handle_kind, handle), &behind[..end]) {
                        // What happens to a directory itself is reported so, and without a record of its own.
                        (directory, b".") => inode = directory,
                        (directory, called) => name = directory.map(|directory| (directory, called)),
                    }
                }
                libc::FAN_EVENT_INFO_TYPE_FID => inode = self.inode(handle_kind, handle),
                _ => {}
            }
        }
        (name, inode)
    }

    /// The number of the inode with this handle, when it is still there and on the same device.
    fn inode(&mut self, kind: i32, handle: &[u8]) -> Option<u64> {
        if let Some((_, _, bytes)) = self.direct.filter(|direct| (direct.0, direct.1) == (kind, handle.len()))
        {
            return Some(number(&handle[..bytes]));
        }
        let mut key = handle.to_vec();
        key.extend(kind.to_ne_bytes());
        if let Some(found) = self.opened.get(&key) {
            return Some(*found).filter(|inode| *inode != 0);
        }
        let opened = open_handle(self.root.as_fd(), kind, handle).ok()?;
        let (device, inode) = attributes(opened.as_fd()).ok()?;
        if self.opened.len() >= OPENED_MAX {
            self.opened.clear();
        }
        let inode = if device == self.device { inode } else { 0 };
        self.opened.insert(key, inode);
        Some(inode).filter(|inode| *inode != 0)
    }
}

/// Adds to what is reported of the file system that `root` is on.
fn mark(group: &OwnedFd, root: BorrowedFd<'_>, mask: u64) -> io::Result<()> {
    let add = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
    // SAFETY: both descriptors are open, and without a path the mark is on what the second one is of.
    let failed =
        unsafe { libc::fanotify_mark(group.as_raw_fd(), add, mask, root.as_raw_fd(), std::ptr::null()) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Type and bytes of the handle in a record, and what follows it.
fn handle_in(record: &[u8]) -> Option<(i32, &[u8], &[u8])> {
    let handle = record.get(FSID_BYTES..)?;
    let len = number(handle.get(..4)?) as usize;
    let kind = number(handle.get(4..8)?) as u32 as i32;
    let bytes = handle.get(8..)?;
    let (bytes, behind) = bytes.split_at_checked(len)?;
    Some((kind, bytes, behind))
}

/// A number of up to 8 bytes as this machine stores it.
fn number(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    if cfg!(target_endian = "big") {
        all[8 - bytes.len()..].copy_from_slice(bytes);
    } else {
        all[..bytes.len()].copy_from_slice(bytes);
    }
    u64::from_ne_bytes(all)
}

/// Device and inode number.
fn attributes(of: BorrowedFd<'_>) -> io::Result<((u32, u32), u64)> {
    let attributes = rustix::fs::statx(of, c"", AtFlags::EMPTY_PATH, StatxFlags::INO)?;
    Ok(((attributes.stx_dev_major, attributes.stx_dev_minor), attributes.stx_ino))
}

fn handle_of(directory: BorrowedFd<'_>) -> io::Result<(i32, Vec<u8>)> {
    let mut handle = Handle { bytes: HANDLE_BYTES_MAX as u32, kind: 0, data: [0; HANDLE_BYTES_MAX] };
    let mut mount: libc::c_int = 0;
    // SAFETY: the path is empty and ends with a zero byte. `handle` has room for as many bytes as it says, the kernel writes no
    // more, and one `int` to `mount`; both live until it returns.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            directory.as_raw_fd(),
            c"".as_ptr(),
            &raw mut handle,
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((handle.kind, handle.data[..(handle.bytes as usize).min(HANDLE_BYTES_MAX)].to_vec()))
}

fn open_handle(root: BorrowedFd<'_>, kind: i32, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut handle = Handle { bytes: bytes.len() as u32, kind, data: [0; HANDLE_BYTES_MAX] };
    handle.data.get_mut(..bytes.len()).ok_or(Errno::OVERFLOW)?.copy_from_slice(bytes);
    // SAFETY: `handle` holds as many bytes as it says, and the kernel only reads it.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            root.as_raw_fd(),
            &raw const handle,
            libc::O_PATH | libc::O_CLOEXEC,
        )
    };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for this caller alone; descriptors are `int`s.
    Ok(unsafe { OwnedFd::from_raw_fd(opened as libc::c_int) })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    type Seen = (u64, Option<(u64, Vec<u8>)>, Option<u64>);

    fn seen(changes: &mut Changes) -> Vec<Seen> {
        let mut seen = Vec::new();
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let read = changes.read(
            |thread| thread == own,
            |change| {
                let name = change.name.map(|(directory, name)| (directory, name.to_vec()));
                seen.push((change.what, name, change.inode));
            },
        );
        assert!(!read.unwrap().lost);
        seen
    }

    /// In memory, and where tests have their temporary files.
    fn places() -> impl Iterator<Item = (tempfile::TempDir, Changes)> {
        let places = ["/dev/shm", "/var/tmp"].into_iter().filter_map(|place| {
            let directory = tempfile::tempdir_in(place).ok()?;
            let root = fs::File::open(directory.path()).ok()?;
            Some((directory, root))
        });
        places.filter_map(|(directory, root)| Some((directory, Changes::of(root.as_fd()).ok()?)))
    }

    #[test]
    fn a_change_is_reported_with_the_numbers_of_what_was_changed() {
        for (directory, mut changes) in places() {
            let at = fs::metadata(directory.path()).unwrap().ino();
            fs::write(directory.path().join("file"), "text").unwrap();
            let inode = fs::metadata(directory.path().join("file")).unwrap().ino();
            let all = seen(&mut changes);
            let named = Some((at, b"file".to_vec()));
            let of = |what: u64| {
                let found = all.iter().find(|(is, ..)| is & what != 0);
                found.cloned().unwrap_or_else(|| panic!("{what:x} is not in {all:?}"))
            };
            for what in [libc::FAN_CREATE, Change::CONTENTS] {
                assert_eq!((of(what).1, of(what).2), (named.clone(), Some(inode)));
            }
            fs::rename(directory.path().join("file"), directory.path().join("other")).unwrap();
            let all = seen(&mut changes);
            for (what, name) in [(libc::FAN_MOVED_FROM, "file"), (libc::FAN_MOVED_TO, "other")] {
                let expected = (Some((at, name.as_bytes().to_vec())), Some(inode));
                let found = all.iter().find(|(is, ..)| is & what != 0).unwrap();
                assert_eq!((found.1.clone(), found.2), expected);
            }
            assert_eq!(seen(&mut changes), [], "each is reported once");
        }
    }

    #[test]
    fn what_is_written_in_mapped_memory_is_reported_when_it_is_closed_if_that_is_wanted() {
        for (directory, mut changes) in places() {
            let path = directory.path().join("file");
            for is_wanted in [false, true] {
                if is_wanted {
                    changes.with_closes().unwrap();
                }
                fs::write(&path, "text").unwrap();
                let file = fs::File::options().write(true).open(&path).unwrap();
                seen(&mut changes);
                drop(file);
                let closes =
                    seen(&mut changes).iter().filter(|(is, ..)| is & libc::FAN_CLOSE_WRITE != 0).count();
                assert_eq!(closes, usize::from(is_wanted));
            }
        }
    }

    #[test]
    fn handles_are_opened_where_they_are_no_numbers_and_the_same_is_found() {
        for (directory, mut changes) in places() {
            changes.direct = None;
            fs::create_dir(directory.path().join("sub")).unwrap();
            let inode = fs::metadata(directory.path().join("sub")).unwrap().ino();
            let all = seen(&mut changes);
            assert!(all.iter().any(|(_, _, of)| *of == Some(inode)), "{inode} is not in {all:?}");
        }
    }

    #[test]
    fn what_is_cut_off_is_passed_over() {
        let mut bytes = vec![0; EVENT_BYTES];
        bytes[..4].copy_from_slice(&4000u32.to_ne_bytes());
        bytes[6..8].copy_from_slice(&9000u16.to_ne_bytes());
        for (_directory, mut changes) in places() {
            let mut done = Read { changes: 0, lost: false };
            changes.events(&bytes, &|_| true, &mut |change| assert_eq!(change.inode, None), &mut done);
            changes.events(&bytes[..10], &|_| true, &mut |_| (), &mut done);
            assert_eq!(done.changes, 1);
        }
        assert_eq!(handle_in(&[1; 20]), None);
    }
}
