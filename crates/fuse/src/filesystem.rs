//! What a file system implements: one method for each operation of the kernel.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::protocol::{
    CopyFileRangeFlags, Errno, FileHandle, ForgetOne, Header, INodeNo, InitFlags, IoctlFlags, LockOwner,
    OpenFlags, RenameFlags, TimeOrNow, WriteFlags,
};
use crate::reply::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};

/// Who makes a request.
#[derive(Clone, Copy, Debug)]
pub struct Request(Header);

impl Request {
    pub(crate) fn new(header: Header) -> Self {
        Self(header)
    }

    /// The user on whose behalf it is made.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// The group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// The thread that waits for the reply; 0 where none does.
    pub fn pid(&self) -> u32 {
        self.0.pid
    }
}

/// What kernel and file system agree on when a mount begins.
#[derive(Debug)]
pub struct KernelConfig {
    offered: InitFlags,
    pub(crate) requested: InitFlags,
    pub(crate) max_readahead: u32,
    pub(crate) max_background: u16,
    pub(crate) max_write: u32,
    pub(crate) max_stack_depth: u32,
}

/// What the kernel stacks at most, its own limit.
const STACK_DEPTH_MAX: u32 = 2;
/// A page at least, and no more than its own limit on pages of a request allows by default.
const WRITE_BYTES: std::ops::RangeInclusive<u32> = 4096..=1 << 20;

impl KernelConfig {
    pub(crate) fn new(offered: InitFlags, max_readahead: u32) -> Self {
        let always = InitFlags::FUSE_ASYNC_READ | InitFlags::FUSE_BIG_WRITES | InitFlags::FUSE_MAX_PAGES;
        Self {
            offered,
            requested: (always | InitFlags::FUSE_INIT_EXT) & offered,
            max_readahead,
            max_background: 16,
            max_write: *WRITE_BYTES.end(),
            max_stack_depth: 0,
        }
    }

    /// What the kernel offers.
    pub fn capabilities(&self) -> InitFlags {
        self.offered
    }

    /// Requests what the kernel offers of these; returns what it does not offer.
    pub fn add_capabilities(&mut self, wanted: InitFlags) -> InitFlags {
        self.requested |= wanted & self.offered;
        wanted & !self.offered
    }

    /// Bytes of one WRITE, from 4 KiB to 1 MiB; other numbers become the nearest of these. Default: 1 MiB.
    pub fn set_max_write(&mut self, bytes: u32) {
        self.max_write = bytes.clamp(*WRITE_BYTES.start(), *WRITE_BYTES.end());
    }

    /// Bytes that are read ahead, at most what the kernel proposes. Default: that.
    pub fn set_max_readahead(&mut self, bytes: u32) {
        self.max_readahead = bytes.min(self.max_readahead);
    }

    /// Requests that may wait in the background. Default: 16.
    pub fn set_max_background(&mut self, requests: u16) {
        self.max_background = requests.max(1);
    }

    /// How many file systems may be stacked, with this one: 1 or 2, where data passes through. Default: 0.
    pub fn set_max_stack_depth(&mut self, depth: u32) {
        self.max_stack_depth = depth.min(STACK_DEPTH_MAX);
    }
}

/// A file system that answers the kernel's requests, from several threads at once. Each method replies before it returns: a reply
/// that is dropped is EIO. What is not implemented is ENOSYS, which for most operations lets the kernel stop asking.
///
/// Not here: locks, `bmap` and `poll`, for which the kernel has answers of its own; ACCESS, as the kernel checks permissions; INTERRUPT,
/// which is answered with ENOSYS, so that interrupted programs wait for their replies.
#[allow(clippy::too_many_arguments, unused_variables, missing_docs)]
pub trait Filesystem: Send + Sync + 'static {
    /// Before the first request.
    ///
    /// # Errors
    /// The mount is then refused.
    fn init(&mut self, request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry<'_>) {
        reply.error(Errno::ENOSYS);
    }

    /// Without a reply.
    fn forget(&self, request: &Request, ino: INodeNo, nlookup: u64) {}

    /// Without a reply.
    fn batch_forget(&self, request: &Request, nodes: &[ForgetOne]) {
        for node in nodes {
            self.forget(request, node.nodeid(), node.nlookup());
        }
    }

    fn getattr(&self, request: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr<'_>) {
        reply.error(Errno::ENOSYS);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        reply: ReplyAttr<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData<'_>) {
        reply.error(Errno::ENOSYS);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty<'_>) {
        reply.error(Errno::ENOSYS);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty<'_>) {
        reply.error(Errno::ENOSYS);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry<'_>,
    ) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry<'_>,
    ) {
        reply.error(Errno::EPERM);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen<'_>) {
        reply.opened(FileHandle(0), crate::FopenFlags::empty());
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyWrite<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn flush(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        reply: ReplyEmpty<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        flush: bool,
        reply: ReplyEmpty<'_>,
    ) {
        reply.ok();
    }

    fn fsync(&self, request: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty<'_>) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen<'_>) {
        reply.opened(FileHandle(0), crate::FopenFlags::empty());
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn releasedir(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        flags: OpenFlags,
        reply: ReplyEmpty<'_>,
    ) {
        reply.ok();
    }

    fn fsyncdir(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs<'_>) {
        reply.statfs(0, 0, 0, 0, 0, 512, 255, 0);
    }

    /// access(2) and chdir(2), where the kernel does not check permissions itself. `mask` as in access(2). ENOSYS: everything is allowed,
    /// and the kernel asks no more.
    fn access(&self, request: &Request, ino: INodeNo, mask: u32, reply: ReplyEmpty<'_>) {
        reply.error(Errno::ENOSYS);
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        reply: ReplyEmpty<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr<'_>) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr<'_>) {
        reply.error(Errno::ENOSYS);
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty<'_>) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn lseek(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        request: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        flags: CopyFileRangeFlags,
        reply: ReplyWrite<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }
}
