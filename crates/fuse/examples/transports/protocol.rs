//! The FUSE protocol, as far as the floor needs it (include/uapi/linux/fuse.h, 7.45), over bytes in memory.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType};

use crate::nodes::{Change, Nodes};

/// `struct fuse_in_header`.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub opcode: u32,
    pub unique: u64,
    pub node: u64,
    pub owner: (u32, u32),
}

const HEADER: usize = 40;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

/// The header, and what follows it.
pub fn split(request: &[u8]) -> (Head, &[u8]) {
    let head = Head {
        opcode: u32_at(request, 4),
        unique: u64_at(request, 8),
        node: u64_at(request, 16),
        owner: (u32_at(request, 24), u32_at(request, 28)),
    };
    (head, request.get(HEADER..).unwrap_or(&[]))
}

/// Bytes of the first argument, which over a ring is apart from the others.
pub fn argument_bytes(opcode: u32) -> usize {
    match opcode {
        LOOKUP | UNLINK | RMDIR | STATFS | DESTROY => 0,
        GETATTR | CREATE | FSYNC | FSYNCDIR | RENAME2 => 16,
        SETATTR => 88,
        RELEASE | RELEASEDIR | FLUSH => 24,
        READ | WRITE | READDIR | READDIRPLUS => 40,
        _ => 8,
    }
}

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const MKDIR: u32 = 9;
const UNLINK: u32 = 10;
const RMDIR: u32 = 11;
const RENAME: u32 = 12;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const FSYNCDIR: u32 = 30;
const CREATE: u32 = 35;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;
const READDIRPLUS: u32 = 44;
const RENAME2: u32 = 45;

/// ASYNC_READ, BIG_WRITES, DONT_MASK, DO_READDIRPLUS, READDIRPLUS_AUTO, ASYNC_DIO, PARALLEL_DIROPS, MAX_PAGES, HANDLE_KILLPRIV_V2, INIT_EXT.
const FLAGS: u32 = 1 | 1 << 5 | 1 << 6 | 1 << 13 | 1 << 14 | 1 << 15 | 1 << 18 | 1 << 22 | 1 << 28 | 1 << 30;
const OVER_IO_URING: u32 = 1 << 9;
/// The kernel's buffers for a ring are as large as a request may be: 18 pages hold the largest SETXATTR.
const PAGES_MAX: u16 = 18;
const WRITE_BYTES_MAX: u32 = 64 << 10;
const KEEP_CACHE: u32 = 1 << 1;

/// Whether the kernel offers a ring in this INIT.
pub fn offers_a_ring(request: &[u8]) -> bool {
    u32_at(request, 16) & OVER_IO_URING != 0
}

/// Answers INIT.
pub fn agree(request: &[u8], reply: &mut [u8], ring: bool) -> usize {
    let (minor, offered, offered_more) = (u32_at(request, 4), u32_at(request, 12), u32_at(request, 16));
    let more = if ring { OVER_IO_URING & offered_more } else { 0 };
    reply[..64].fill(0);
    put(reply, 0, &7u32.to_ne_bytes());
    put(reply, 4, &minor.min(45).to_ne_bytes());
    put(reply, 8, &WRITE_BYTES_MAX.to_ne_bytes());
    put(reply, 12, &(FLAGS & offered).to_ne_bytes());
    put(reply, 16, &16u16.to_ne_bytes());
    put(reply, 18, &12u16.to_ne_bytes());
    put(reply, 20, &WRITE_BYTES_MAX.to_ne_bytes());
    put(reply, 24, &1u32.to_ne_bytes());
    put(reply, 28, &PAGES_MAX.to_ne_bytes());
    put(reply, 32, &more.to_ne_bytes());
    64
}

fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    to[at..at + bytes.len()].copy_from_slice(bytes);
}

type Listing = Vec<(u64, OsString, FileType)>;

/// The floor's files, and its open directories.
pub struct Volume {
    nodes: Nodes,
    listings: HashMap<u64, Listing>,
    last: u64,
}

/// As an error number.
fn errno(error: fuser::Errno) -> i32 {
    error.code()
}

impl Volume {
    pub fn new() -> Self {
        Self { nodes: Nodes::new((0, 0)), listings: HashMap::new(), last: 0 }
    }

    /// Answers in `payload`, which holds `given` bytes of the request; none for what has no reply.
    pub fn answer(
        &mut self,
        head: &Head,
        argument: &[u8],
        payload: &mut [u8],
        given: usize,
    ) -> Option<Result<usize, i32>> {
        match head.opcode {
            FORGET => self.nodes.forget(head.node, u64_at(argument, 0)),
            BATCH_FORGET => {
                for one in payload[..given].chunks_exact(16) {
                    self.nodes.forget(u64_at(one, 0), u64_at(one, 8));
                }
            }
            INTERRUPT => {}
            _ => return Some(self.replied(head, argument, payload, given).map_err(errno)),
        }
        None
    }

    fn replied(
        &mut self,
        head: &Head,
        argument: &[u8],
        payload: &mut [u8],
        given: usize,
    ) -> Result<usize, fuser::Errno> {
        let name = |at: usize| OsStr::from_bytes(text(&payload[..given], at));
        match head.opcode {
            LOOKUP => {
                let found = self.nodes.look_up(head.node, name(0))?;
                Ok(put_entry(payload, &found))
            }
            GETATTR => Ok(put_attributes_out(payload, &self.nodes.attributes(head.node)?)),
            SETATTR => {
                let changed = self.nodes.change(head.node, change(argument))?;
                Ok(put_attributes_out(payload, &changed))
            }
            MKDIR | CREATE => {
                let at = if head.opcode == MKDIR { 0 } else { 4 };
                let permissions = (u32_at(argument, at) & !u32_at(argument, at + 4) & 0o7777) as u16;
                let made =
                    self.nodes.make(head.node, name(0), permissions, head.owner, head.opcode == MKDIR)?;
                let bytes = put_entry(payload, &made);
                if head.opcode == MKDIR {
                    return Ok(bytes);
                }
                Ok(bytes + put_open(&mut payload[bytes..], 0, KEEP_CACHE))
            }
            UNLINK | RMDIR => self.nodes.remove(head.node, name(0), head.opcode == RMDIR).map(|()| 0),
            RENAME | RENAME2 => {
                let (old, new) = (name(0), name(text(&payload[..given], 0).len() + 1));
                self.nodes.rename((head.node, old), (u64_at(argument, 0), new)).map(|()| 0)
            }
            OPEN => Ok(put_open(payload, 0, KEEP_CACHE)),
            READ => {
                let bytes = self.nodes.read(head.node, u64_at(argument, 8), u32_at(argument, 16))?;
                put(payload, 0, bytes);
                Ok(bytes.len())
            }
            WRITE => {
                self.nodes.write(head.node, u64_at(argument, 8), &payload[..given])?;
                put(payload, 0, &(given as u64).to_ne_bytes());
                Ok(8)
            }
            OPENDIR => {
                let listed = self.nodes.list(head.node)?;
                self.last += 1;
                self.listings.insert(self.last, listed);
                Ok(put_open(payload, self.last, 0))
            }
            READDIR | READDIRPLUS => self.list(argument, payload, head.opcode == READDIRPLUS),
            RELEASEDIR => {
                self.listings.remove(&u64_at(argument, 0));
                Ok(0)
            }
            RELEASE | FSYNC | FSYNCDIR | DESTROY => Ok(0),
            STATFS => Ok(put_statfs(payload)),
            FLUSH => Err(fuser::Errno::ENOSYS),
            _ => Err(fuser::Errno::ENOSYS),
        }
    }

    fn list(
        &mut self,
        argument: &[u8],
        payload: &mut [u8],
        with_attributes: bool,
    ) -> Result<usize, fuser::Errno> {
        let (handle, offset, size) =
            (u64_at(argument, 0), u64_at(argument, 8), u32_at(argument, 16) as usize);
        let room = size.min(payload.len());
        let listed = self.listings.get(&handle).ok_or(fuser::Errno::EBADF)?;
        let mut at = 0;
        for (position, (id, name, kind)) in (offset..).zip(listed.iter().skip(offset as usize)) {
            let head = if with_attributes { ENTRY_OUT } else { 0 };
            let length = (head + 24 + name.len()).next_multiple_of(8);
            if at + length > room {
                break;
            }
            payload[at..at + length].fill(0);
            if with_attributes {
                // The kernel takes no reference to the two dots, which come first.
                let found = if position < 2 { self.nodes.attributes(*id) } else { self.nodes.refer(*id) };
                let Ok(found) = found else { continue };
                put_entry(&mut payload[at..], &found);
                if position < 2 {
                    payload[at..at + ENTRY_OUT].fill(0);
                }
            }
            let entry = &mut payload[at + head..];
            put(entry, 0, &id.to_ne_bytes());
            put(entry, 8, &(position + 1).to_ne_bytes());
            put(entry, 16, &(name.len() as u32).to_ne_bytes());
            let kind: u32 = if *kind == FileType::Directory { 4 } else { 8 };
            put(entry, 20, &kind.to_ne_bytes());
            put(entry, 24, name.as_bytes());
            at += length;
        }
        Ok(at)
    }
}

/// The text from `at` to its zero.
fn text(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).and_then(|rest| rest.split(|byte| *byte == 0).next()).unwrap_or(&[])
}

const ENTRY_OUT: usize = 128;
const ATTR_OUT: usize = 104;
/// Names and attributes are believed for a second.
const BELIEVED_S: u64 = 1;

fn put_entry(to: &mut [u8], attributes: &FileAttr) -> usize {
    to[..ENTRY_OUT].fill(0);
    put(to, 0, &attributes.ino.0.to_ne_bytes());
    put(to, 16, &BELIEVED_S.to_ne_bytes());
    put(to, 24, &BELIEVED_S.to_ne_bytes());
    put_attributes(&mut to[40..], attributes);
    ENTRY_OUT
}

fn put_attributes_out(to: &mut [u8], attributes: &FileAttr) -> usize {
    to[..ATTR_OUT].fill(0);
    put(to, 0, &BELIEVED_S.to_ne_bytes());
    put_attributes(&mut to[16..], attributes);
    ATTR_OUT
}

fn put_attributes(to: &mut [u8], attributes: &FileAttr) {
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let times = [attributes.atime, attributes.mtime, attributes.ctime].map(since);
    put(to, 0, &attributes.ino.0.to_ne_bytes());
    put(to, 8, &attributes.size.to_ne_bytes());
    put(to, 16, &attributes.blocks.to_ne_bytes());
    for (at, time) in times.iter().enumerate() {
        put(to, 24 + 8 * at, &time.as_secs().to_ne_bytes());
        put(to, 48 + 4 * at, &time.subsec_nanos().to_ne_bytes());
    }
    let kind = if attributes.kind == FileType::Directory { 0o040_000 } else { 0o100_000 };
    put(to, 60, &(kind | u32::from(attributes.perm)).to_ne_bytes());
    put(to, 64, &attributes.nlink.to_ne_bytes());
    put(to, 68, &attributes.uid.to_ne_bytes());
    put(to, 72, &attributes.gid.to_ne_bytes());
    put(to, 80, &attributes.blksize.to_ne_bytes());
}

fn put_open(to: &mut [u8], handle: u64, flags: u32) -> usize {
    to[..16].fill(0);
    put(to, 0, &handle.to_ne_bytes());
    put(to, 8, &flags.to_ne_bytes());
    16
}

fn put_statfs(to: &mut [u8]) -> usize {
    to[..80].fill(0);
    for at in 0..5 {
        put(to, 8 * at, &(1u64 << 20).to_ne_bytes());
    }
    for (at, value) in [(40, 4096u32), (44, 255), (48, 4096)] {
        put(to, at, &value.to_ne_bytes());
    }
    80
}

/// `struct fuse_setattr_in`.
fn change(argument: &[u8]) -> Change {
    let valid = u32_at(argument, 0);
    let has = |bit: u32| valid & 1 << bit != 0;
    let at = |seconds: u64, nanoseconds: u32| UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    Change {
        permissions: has(0).then(|| (u32_at(argument, 68) & 0o7777) as u16),
        owner: (has(1).then(|| u32_at(argument, 76)), has(2).then(|| u32_at(argument, 80))),
        size: has(3).then(|| u64_at(argument, 16)),
        modified: match (has(8), has(5)) {
            (true, _) => Some(SystemTime::now()),
            (_, true) => Some(at(u64_at(argument, 40), u32_at(argument, 60))),
            _ => None,
        },
    }
}
