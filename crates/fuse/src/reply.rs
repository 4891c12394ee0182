//! Replies to requests: one type for each kind of result.
//!
//! Always holds: a request gets one reply. A reply that is dropped without one is EIO.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use crate::device::{BackingId, Device};
use crate::protocol::{
    Attributes, Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, attributes, created,
    directory_entry, entry, ioctl, number, number_64, opened, statfs,
};

/// Where replies go.
pub(crate) trait Sink {
    /// Sends one: an error, 0 or a number below it, or the parts of a result.
    fn send(&self, unique: u64, error: i32, parts: [&[u8]; 2]);

    /// The device of the connection.
    fn device(&self) -> &Device;

    /// The longest result.
    fn bytes_max(&self) -> usize;

    /// Memory for a result that grows.
    fn list(&self) -> &RefCell<Vec<u8>>;
}

/// To one request.
pub(crate) struct Reply<'a> {
    unique: u64,
    /// `None` once it is sent.
    sink: Option<&'a dyn Sink>,
}

impl<'a> Reply<'a> {
    pub fn new(unique: u64, sink: &'a dyn Sink) -> Self {
        Self { unique, sink: Some(sink) }
    }

    fn send(mut self, parts: [&[u8]; 2]) {
        if let Some(sink) = self.sink.take() {
            sink.send(self.unique, 0, parts);
        }
    }

    fn result(self, bytes: &[u8]) {
        self.send([bytes, &[]]);
    }

    pub fn error(mut self, errno: Errno) {
        if let Some(sink) = self.sink.take() {
            sink.send(self.unique, -errno.code(), [&[], &[]]);
        }
    }

    fn open_backing(&self, file: impl AsFd) -> io::Result<BackingId> {
        let sink = self.sink.ok_or(io::ErrorKind::NotConnected)?;
        BackingId::open(sink.device(), file.as_fd())
    }
}

impl Drop for Reply<'_> {
    fn drop(&mut self) {
        if let Some(sink) = self.sink.take() {
            sink.send(self.unique, -Errno::EIO.code(), [&[], &[]]);
        }
    }
}

macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $(
            $(#[$doc])*
            pub struct $name<'a>(Reply<'a>);

            impl<'a> $name<'a> {
                pub(crate) fn new(reply: Reply<'a>) -> Self {
                    Self(reply)
                }

                /// The request fails.
                pub fn error(self, errno: Errno) {
                    self.0.error(errno);
                }
            }
        )*
    };
}

replies! {
    /// To a request that succeeds or fails, and nothing else.
    ReplyEmpty
    /// With bytes of a file or of a symbolic link.
    ReplyData
    /// With an entry.
    ReplyEntry
    /// With attributes.
    ReplyAttr
    /// With an open file or directory.
    ReplyOpen
    /// With the number of bytes written.
    ReplyWrite
    /// With the room of a file system.
    ReplyStatfs
    /// With a new file that is open.
    ReplyCreate
    /// With an extended attribute or the names of all, or with their size.
    ReplyXattr
    /// With what an ioctl gives.
    ReplyIoctl
    /// With a position.
    ReplyLseek
}

impl ReplyEmpty<'_> {
    /// It succeeds.
    pub fn ok(self) {
        self.0.result(&[]);
    }
}

impl ReplyData<'_> {
    /// These bytes.
    pub fn data(self, data: &[u8]) {
        self.0.result(data);
    }
}

impl ReplyEntry<'_> {
    /// Name and attributes are believed for the same time.
    pub fn entry(self, ttl: &Duration, attr: &FileAttr, generation: Generation) {
        self.entry_with_ttls(ttl, ttl, attr, generation);
    }

    /// Each for a time of its own.
    pub fn entry_with_ttls(
        self,
        attr_ttl: &Duration,
        entry_ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
    ) {
        let (attributes_for, name_for) = (*attr_ttl, *entry_ttl);
        self.0.result(&entry(&Attributes { attributes_for, name_for, attributes: attr, generation }));
    }
}

impl ReplyAttr<'_> {
    /// Believed for this time.
    pub fn attr(self, ttl: &Duration, attr: &FileAttr) {
        self.0.result(&attributes(*ttl, attr));
    }
}

impl ReplyOpen<'_> {
    /// Data goes through the file system.
    pub fn opened(self, fh: FileHandle, flags: FopenFlags) {
        self.0.result(&opened(fh, flags - FopenFlags::FOPEN_PASSTHROUGH, 0));
    }

    /// Registers a file with the kernel, so that data can bypass the file system.
    ///
    /// # Errors
    /// Where the kernel does not take it: no pass-through, or not from this process.
    pub fn open_backing(&self, file: impl AsFd) -> io::Result<BackingId> {
        self.0.open_backing(file)
    }

    /// Data bypasses the file system.
    pub fn opened_passthrough(self, fh: FileHandle, flags: FopenFlags, backing_id: &BackingId) {
        self.0.result(&opened(fh, flags | FopenFlags::FOPEN_PASSTHROUGH, backing_id.number()));
    }
}

impl ReplyWrite<'_> {
    /// As many bytes.
    pub fn written(self, size: u32) {
        self.0.result(&number(size));
    }
}

impl ReplyStatfs<'_> {
    /// As statvfs(3) has them.
    #[allow(clippy::too_many_arguments)]
    pub fn statfs(
        self,
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
    ) {
        self.0.result(&statfs([blocks, bfree, bavail, files, ffree], [bsize, namelen, frsize]));
    }
}

impl ReplyCreate<'_> {
    /// Data goes through the file system; name and attributes are believed for this time.
    pub fn created(
        self,
        ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
        fh: FileHandle,
        flags: FopenFlags,
    ) {
        let open = opened(fh, flags - FopenFlags::FOPEN_PASSTHROUGH, 0);
        self.made(ttl, ttl, attr, generation, open);
    }

    /// As [`ReplyOpen::open_backing`].
    ///
    /// # Errors
    /// As there.
    pub fn open_backing(&self, file: impl AsFd) -> io::Result<BackingId> {
        self.0.open_backing(file)
    }

    /// Data bypasses the file system.
    pub fn created_passthrough(
        self,
        ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
        fh: FileHandle,
        flags: FopenFlags,
        backing_id: &BackingId,
    ) {
        let open = opened(fh, flags | FopenFlags::FOPEN_PASSTHROUGH, backing_id.number());
        self.made(ttl, ttl, attr, generation, open);
    }

    fn made(
        self,
        attr_ttl: &Duration,
        entry_ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
        open: [u8; 16],
    ) {
        let (attributes_for, name_for) = (*attr_ttl, *entry_ttl);
        let made = Attributes { attributes_for, name_for, attributes: attr, generation };
        self.0.result(&created(&made, open));
    }
}

impl ReplyXattr<'_> {
    /// As many bytes, to a request that has no room for them.
    pub fn size(self, size: u32) {
        self.0.result(&number(size));
    }

    /// These bytes.
    pub fn data(self, data: &[u8]) {
        self.0.result(data);
    }
}

impl ReplyIoctl<'_> {
    /// What ioctl(2) returns, and what it gives.
    pub fn ioctl(self, result: i32, data: &[u8]) {
        self.0.send([&ioctl(result), data]);
    }
}

impl ReplyLseek<'_> {
    /// It is there.
    pub fn offset(self, offset: i64) {
        self.0.result(&number_64(offset));
    }
}

/// A part of a directory's list.
struct Listing<'a> {
    reply: Reply<'a>,
    list: Vec<u8>,
    bytes_max: usize,
}

impl<'a> Listing<'a> {
    fn new(reply: Reply<'a>, bytes_max: u32) -> Self {
        let (room, mut list) = match reply.sink {
            // The memory of the last one.
            Some(sink) => (sink.bytes_max(), sink.list().take()),
            None => (0, Vec::new()),
        };
        list.clear();
        Self { reply, list, bytes_max: room.min(bytes_max as usize) }
    }

    fn ok(self) {
        let memory = self.reply.sink.map(Sink::list);
        self.reply.result(&self.list);
        if let Some(memory) = memory {
            memory.replace(self.list);
        }
    }
}

/// With entries of a directory.
pub struct ReplyDirectory<'a>(Listing<'a>);

impl<'a> ReplyDirectory<'a> {
    pub(crate) fn new(reply: Reply<'a>, bytes_max: u32) -> Self {
        Self(Listing::new(reply, bytes_max))
    }

    /// Adds one. `offset` is where the list continues after it. True when it is full: then this one is not in it.
    #[must_use]
    pub fn add(&mut self, ino: INodeNo, offset: u64, kind: FileType, name: impl AsRef<OsStr>) -> bool {
        let name = name.as_ref().as_bytes();
        !directory_entry(&mut self.0.list, self.0.bytes_max, &[], (ino, offset, kind), name)
    }

    /// These are they, or no more where none was added.
    pub fn ok(self) {
        self.0.ok();
    }

    /// The request fails.
    pub fn error(self, errno: Errno) {
        self.0.reply.error(errno);
    }
}

/// With entries of a directory and their attributes.
pub struct ReplyDirectoryPlus<'a>(Listing<'a>);

impl<'a> ReplyDirectoryPlus<'a> {
    pub(crate) fn new(reply: Reply<'a>, bytes_max: u32) -> Self {
        Self(Listing::new(reply, bytes_max))
    }

    /// As [`ReplyDirectory::add`]. Attributes with the number 0 are not looked at by the kernel, which then takes no reference.
    #[must_use]
    pub fn add(
        &mut self,
        ino: INodeNo,
        offset: u64,
        name: impl AsRef<OsStr>,
        ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
    ) -> bool {
        let before =
            entry(&Attributes { attributes_for: *ttl, name_for: *ttl, attributes: attr, generation });
        let name = name.as_ref().as_bytes();
        !directory_entry(&mut self.0.list, self.0.bytes_max, &before, (ino, offset, attr.kind), name)
    }

    /// These are they, or no more where none was added.
    pub fn ok(self) {
        self.0.ok();
    }

    /// The request fails.
    pub fn error(self, errno: Errno) {
        self.0.reply.error(errno);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Keeps what is sent.
    struct Kept {
        sent: RefCell<Vec<(u64, i32, Vec<u8>)>>,
        bytes_max: Cell<usize>,
        list: RefCell<Vec<u8>>,
        device: Device,
    }

    impl Sink for Kept {
        fn send(&self, unique: u64, error: i32, parts: [&[u8]; 2]) {
            self.sent.borrow_mut().push((unique, error, parts.concat()));
        }

        fn device(&self) -> &Device {
            &self.device
        }

        fn bytes_max(&self) -> usize {
            self.bytes_max.get()
        }

        fn list(&self) -> &RefCell<Vec<u8>> {
            &self.list
        }
    }

    fn kept() -> Kept {
        let device = Device::new(std::fs::File::open("/dev/null").unwrap().into());
        Kept { sent: RefCell::default(), bytes_max: Cell::new(4096), list: RefCell::default(), device }
    }

    #[test]
    fn a_request_gets_one_reply_also_where_none_was_given() {
        let sink = kept();
        ReplyEmpty::new(Reply::new(1, &sink)).ok();
        ReplyEmpty::new(Reply::new(2, &sink)).error(Errno::ENOENT);
        drop(ReplyData::new(Reply::new(3, &sink)));
        ReplyIoctl::new(Reply::new(4, &sink)).ioctl(0, b"flags");
        drop(ReplyDirectory::new(Reply::new(5, &sink), 100));
        let sent = sink.sent.take();
        let heads: Vec<(u64, i32)> = sent.iter().map(|(unique, error, _)| (*unique, *error)).collect();
        assert_eq!(heads, [(1, 0), (2, -2), (3, -5), (4, 0), (5, -5)]);
        assert_eq!(sent[3].2, [&[0; 16][..], b"flags"].concat());
    }

    #[test]
    fn a_listing_is_as_long_as_the_request_and_the_transport_allow() {
        let sink = kept();
        for (wanted, room, fits) in [(96, 4096, 3), (4096, 64, 2), (u32::MAX, 32, 1), (31, 4096, 0)] {
            sink.bytes_max.set(room);
            let mut reply = ReplyDirectory::new(Reply::new(1, &sink), wanted);
            let added = (1..100)
                .take_while(|number| !reply.add(INodeNo(*number), *number, FileType::RegularFile, "name"))
                .count();
            reply.ok();
            assert_eq!((added, sink.sent.take()[0].2.len()), (fits, 32 * fits), "{wanted} of {room}");
        }
    }

    #[test]
    fn a_file_is_not_passed_through_without_a_registration() {
        let sink = kept();
        ReplyOpen::new(Reply::new(1, &sink)).opened(FileHandle(3), FopenFlags::all());
        let flags = u32::from_ne_bytes(sink.sent.take()[0].2[8..12].try_into().unwrap());
        assert_eq!(flags & FopenFlags::FOPEN_PASSTHROUGH.bits(), 0);
        let reply = ReplyOpen::new(Reply::new(2, &sink));
        assert!(
            reply.open_backing(std::fs::File::open("/dev/null").unwrap()).is_err(),
            "not a FUSE connection"
        );
    }
}
