use std::cell::RefCell;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::device::Device;
use crate::protocol::{FileAttr, FileHandle, FileType, Generation, INodeNo, OpenFlags, WriteFlags};
use crate::{LockOwner, ReplyEntry};

/// Answers a few operations, and counts what it is given.
#[derive(Default)]
struct Small {
    forgotten: AtomicU64,
    written: AtomicU64,
}

impl Filesystem for Small {
    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry<'_>) {
        assert_eq!((request.uid(), request.gid(), request.pid()), (1000, 100, 77));
        if name != "there" {
            return reply.error(Errno::ENOENT);
        }
        let now = std::time::UNIX_EPOCH;
        let attributes = FileAttr {
            ino: INodeNo(parent.0 + 1),
            size: 3,
            blocks: 1,
            atime: now,
            mtime: now,
            ctime: now,
            kind: FileType::RegularFile,
            perm: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
        };
        reply.entry(&Duration::ZERO, &attributes, Generation(0));
    }

    fn forget(&self, _request: &Request, _ino: INodeNo, nlookup: u64) {
        self.forgotten.fetch_add(nlookup, Ordering::Relaxed);
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite<'_>,
    ) {
        self.written.fetch_add(data.len() as u64, Ordering::Relaxed);
        reply.written(data.len() as u32);
    }
}

/// Keeps what is sent: number, error, bytes.
struct Kept {
    sent: RefCell<Vec<(u64, i32, usize)>>,
    list: RefCell<Vec<u8>>,
    device: Device,
}

impl Sink for Kept {
    fn send(&self, unique: u64, error: i32, parts: [&[u8]; 2]) {
        self.sent.borrow_mut().push((unique, error, parts.concat().len()));
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn bytes_max(&self) -> usize {
        1 << 20
    }

    fn list(&self) -> &RefCell<Vec<u8>> {
        &self.list
    }
}

fn kept() -> Kept {
    let device = Device::new(std::fs::File::open("/dev/null").unwrap().into());
    Kept { sent: RefCell::default(), list: RefCell::default(), device }
}

const OWNER: u32 = 1000;

fn header(opcode: u32, uid: u32) -> Header {
    Header { bytes: 0, opcode, unique: 5, id: INodeNo(1), uid, gid: 100, pid: 77 }
}

/// What is answered, and whether the connection continues.
fn answered(
    filesystem: &Small,
    owner: Option<u32>,
    opcode: u32,
    uid: u32,
    body: &[u8],
) -> (Vec<(u64, i32, usize)>, Next) {
    let sink = kept();
    let next = dispatch(filesystem, owner, &header(opcode, uid), body, &sink);
    (sink.sent.take(), next)
}

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const WRITE: u32 = 16;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;

#[test]
fn a_request_is_answered_by_its_method_under_its_number() {
    let filesystem = Small::default();
    let ask = |opcode, body: &[u8]| answered(&filesystem, None, opcode, OWNER, body);
    assert_eq!(ask(LOOKUP, b"there\0"), (vec![(5, 0, 128)], Next::Request));
    assert_eq!(ask(LOOKUP, b"missing\0"), (vec![(5, -2, 0)], Next::Request));
    let write = [&[0; 16][..], &3u32.to_ne_bytes(), &[0; 20], b"abc"].concat();
    assert_eq!(ask(WRITE, &write), (vec![(5, 0, 8)], Next::Request));
    assert_eq!(filesystem.written.load(Ordering::Relaxed), 3);
}

#[test]
fn references_are_returned_without_a_reply_also_by_bytes_that_are_wrong() {
    let filesystem = Small::default();
    let ask = |opcode, body: &[u8]| answered(&filesystem, None, opcode, OWNER, body);
    assert_eq!(ask(FORGET, &3u64.to_ne_bytes()), (vec![], Next::Request));
    let batch =
        [&2u32.to_ne_bytes()[..], &[0; 4], &[0; 8], &4u64.to_ne_bytes(), &[0; 8], &5u64.to_ne_bytes()]
            .concat();
    assert_eq!(ask(BATCH_FORGET, &batch), (vec![], Next::Request));
    assert_eq!(filesystem.forgotten.load(Ordering::Relaxed), 12);
    assert_eq!(ask(FORGET, &[1]), (vec![], Next::Request));
    assert_eq!(ask(BATCH_FORGET, &batch[..30]), (vec![], Next::Request));
    assert_eq!(filesystem.forgotten.load(Ordering::Relaxed), 12);
}

#[test]
fn what_is_unknown_or_wrong_is_an_error_and_the_connection_goes_on() {
    let filesystem = Small::default();
    let ask = |opcode, body: &[u8]| answered(&filesystem, None, opcode, OWNER, body);
    let (unknown, invalid) = (-Errno::ENOSYS.code(), -Errno::EINVAL.code());
    assert_eq!(ask(4096, &[]), (vec![(5, unknown, 0)], Next::Request));
    assert_eq!(ask(INTERRUPT, &[0; 8]), (vec![(5, unknown, 0)], Next::Request));
    assert_eq!(ask(LOOKUP, b"no zero"), (vec![(5, invalid, 0)], Next::Request));
    // GETATTR is not implemented.
    assert_eq!(ask(3, &[0; 16]), (vec![(5, unknown, 0)], Next::Request));
    // INIT comes once.
    assert_eq!(ask(26, &[0; 64]), (vec![(5, -Errno::EIO.code(), 0)], Next::Request));
    assert_eq!(ask(DESTROY, &[]), (vec![(5, 0, 0)], Next::End));
}

#[test]
fn other_users_are_refused_but_for_what_the_kernel_does_in_anyones_name() {
    let filesystem = Small::default();
    let ask = |opcode, body: &[u8]| answered(&filesystem, Some(OWNER), opcode, OWNER + 1, body).0;
    assert_eq!(ask(LOOKUP, b"there\0"), [(5, -Errno::EACCES.code(), 0)]);
    let write = [&[0; 16][..], &3u32.to_ne_bytes(), &[0; 20], b"abc"].concat();
    assert_eq!(ask(WRITE, &write), [(5, 0, 8)]);
    assert_eq!(ask(FORGET, &3u64.to_ne_bytes()), []);
    assert_eq!(filesystem.forgotten.load(Ordering::Relaxed), 3);
    assert_eq!(answered(&filesystem, Some(OWNER), LOOKUP, OWNER, b"there\0").0, [(5, 0, 128)]);
}

proptest! {
    #[test]
    fn any_request_gets_one_reply_or_none_where_none_is_expected(opcode in 0u32..60, body in prop::collection::vec(any::<u8>(), 0..256)) {
        let (sent, _) = answered(&Small::default(), None, opcode, OWNER, &body);
        prop_assert_eq!(sent.len(), usize::from(opcode != FORGET && opcode != BATCH_FORGET));
        prop_assert!(sent.iter().all(|(unique, error, _)| *unique == 5 && (-4095..=0).contains(error)));
    }
}
