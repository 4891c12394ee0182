//! Between fuser and the tree: the only module that knows fuser's types.
//!
//! fuser's next release breaks its interface; then this module changes and no other. Each request is timed, done by
//! the tree and answered; an error of the lower file system goes to the caller as it is.
//!
//! Passing through: the first open of an inode registers a descriptor of it with the kernel, and all opens until the
//! last release use that same registration: the kernel refuses two of one inode.
//! Lock: `backings`, a leaf but for the registering call, which does no input or output.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fuser::{
    BackingId, BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{OFlags, Statx, XattrFlags};

use crate::counters::{Census, Counters, Operation};
use crate::identity::{Caller, prepare_thread};
use crate::listing::Told;
use crate::nodes::lock;
use crate::opened::OpenFile;
use crate::options::{StackOptions, Timeouts};
use crate::tree::{Change, Done, Entry, New, Set, Tree};

/// What is shared by the mount's handle and its worker threads.
pub(crate) struct Shared {
    pub(crate) tree: Tree,
    pub(crate) counters: Counters,
    backings: Mutex<HashMap<u64, Backing>>,
}

/// A registration with the kernel, and how many open files use it.
struct Backing {
    id: Arc<BackingId>,
    users: usize,
}

/// The file system that fuser drives.
pub(crate) struct Adapter {
    shared: Arc<Shared>,
    timeouts: Timeouts,
    exclusive: bool,
    access_lists: bool,
    /// Whether data may pass by.
    passthrough: bool,
    /// Whether it was said that some data does not.
    passthrough_failed: AtomicBool,
}

/// File data in one request, without pass-through. The kernel takes no more than 1 MiB.
const DATA_BYTES_MAX: u32 = 1 << 20;
/// Requests that may wait for the daemon in the background (reading ahead).
const BACKGROUND_MAX: u16 = 64;
const DEVICE: &str = "/dev/fuse";

impl Shared {
    pub(crate) fn new(tree: Tree) -> Self {
        Self { tree, counters: Counters::default(), backings: Mutex::default() }
    }

    pub(crate) fn census(&self) -> Census {
        let (files_open, directories_open) = self.tree.opened.count();
        Census {
            elapsed: self.counters.elapsed(),
            operations: self.counters.operations(),
            nodes: self.tree.nodes.count(),
            files_open,
            directories_open,
            directories_kept: self.tree.descriptors.count(),
            passed_through: lock(&self.backings).len(),
        }
    }
}

impl Adapter {
    pub(crate) fn new(shared: Arc<Shared>, options: &StackOptions) -> Self {
        let privileged = shared.tree.identity.is_privileged();
        Self {
            shared,
            timeouts: options.timeouts,
            exclusive: options.exclusive,
            access_lists: options.access_lists && privileged,
            passthrough: options.passthrough && privileged,
            passthrough_failed: AtomicBool::new(false),
        }
    }

    fn tree(&self) -> &Tree {
        &self.shared.tree
    }

    /// Does an operation, timed and counted.
    fn timed<T>(&self, operation: Operation, work: impl FnOnce(&Tree) -> Done<T>) -> Result<T, Errno> {
        let begun = Instant::now();
        prepare_thread();
        let done = work(self.tree());
        self.shared.counters.record(operation, begun.elapsed(), done.is_err());
        done.map_err(|errno| Errno::from_i32(errno.raw_os_error()))
    }

    fn reply_entry(&self, done: Result<Entry, Errno>, reply: ReplyEntry) {
        match done {
            Ok(entry) => reply.entry_with_ttls(
                &self.timeouts.attributes,
                &self.timeouts.entry,
                &self.shown(&entry),
                Generation(entry.generation),
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn shown(&self, entry: &Entry) -> FileAttr {
        attr(entry.id, &entry.attributes)
    }

    /// Registers an open file for pass-through, or joins the registration there is; `None` when data goes through
    /// the daemon.
    fn backing(
        &self,
        id: u64,
        register: impl FnOnce() -> std::io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        if !self.passthrough {
            return None;
        }
        let mut backings = lock(&self.shared.backings);
        if let Some(backing) = backings.get_mut(&id) {
            backing.users += 1;
            return Some(Arc::clone(&backing.id));
        }
        // The kernel writes with the rights of who registers: without CAP_FSETID, so that writing clears
        // set-user-id bits.
        match self.tree().identity.without_fsetid(register) {
            Ok(registered) => {
                let backing = Arc::new(registered);
                backings.insert(id, Backing { id: Arc::clone(&backing), users: 1 });
                Some(backing)
            }
            Err(error) => {
                if !self.passthrough_failed.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "data of a file goes through the daemon: the kernel's pass-through says {error}"
                    );
                }
                None
            }
        }
    }

    fn release_backing(&self, id: u64) {
        let mut backings = lock(&self.shared.backings);
        if let Some(backing) = backings.get_mut(&id) {
            backing.users -= 1;
            if backing.users == 0 {
                let gone = backings.remove(&id);
                drop(backings);
                drop(gone);
            }
        }
    }

    fn keep_open(&self, id: u64, descriptor: OwnedFd, caller: Caller, passed_through: bool) -> FileHandle {
        let by_ordinary_user = caller.uid != 0;
        FileHandle(self.tree().opened.add(OpenFile { id, descriptor, by_ordinary_user, passed_through }))
    }

    /// How the kernel treats an open file that does not pass through.
    fn open_flags(&self) -> FopenFlags {
        if self.exclusive { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() }
    }

    fn list(
        &self,
        handle: FileHandle,
        position: u64,
        tell: impl FnMut(&Told<'_>) -> Done<bool>,
    ) -> Result<(), Errno> {
        self.timed(Operation::Readdir, |tree| {
            let directory = tree.opened.directory(handle.0).ok_or(rustix::io::Errno::BADF)?;
            lock(&directory.listing).read(position, tell)
        })
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let offered = config.capabilities();
        let mut wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP
            // Without it the kernel asks for security.capability before each write.
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2;
        if self.access_lists {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        if self.exclusive {
            wanted |= InitFlags::FUSE_CACHE_SYMLINKS;
        }
        self.passthrough &= offered.contains(InitFlags::FUSE_PASSTHROUGH);
        if self.passthrough {
            wanted |= InitFlags::FUSE_PASSTHROUGH;
            // Two levels: the lower tree may itself be stacked (overlayfs).
            let _ = config.set_max_stack_depth(2);
        }
        let _ = config.add_capabilities(wanted & offered);
        let _ = config.set_max_write(DATA_BYTES_MAX);
        let _ = config.set_max_readahead(DATA_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let done = self.timed(Operation::Lookup, |tree| tree.look_up(parent.0, name.as_bytes()));
        match done {
            Err(errno) if errno.code() == Errno::ENOENT.code() && !self.timeouts.missing.is_zero() => {
                // Number 0 with a time says for how long the name is known to be missing.
                let missing = missing();
                reply.entry_with_ttls(&Duration::ZERO, &self.timeouts.missing, &missing, Generation(0));
            }
            done => self.reply_entry(done, reply),
        }
    }

    fn forget(&self, _request: &Request, ino: INodeNo, nlookup: u64) {
        let _ = self.timed(Operation::Forget, |tree| {
            if tree.nodes.forget(ino.0, nlookup) {
                tree.descriptors.drop_of(ino.0);
            }
            Ok(())
        });
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.timed(Operation::Getattr, |tree| tree.attributes(ino.0)) {
            Ok(attributes) => {
                reply.attr(&self.timeouts.attributes, &attr(self.tree().shown(ino.0), &attributes))
            }
            Err(errno) => reply.error(errno),
        }
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
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change =
            Change { mode, uid, gid, size, accessed: atime.map(set_to), modified: mtime.map(set_to) };
        let done = self.timed(Operation::Setattr, |tree| {
            tree.change(ino.0, fh.map(|fh| fh.0), &change, caller(request))
        });
        match done {
            Ok(attributes) => {
                reply.attr(&self.timeouts.attributes, &attr(self.tree().shown(ino.0), &attributes))
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.timed(Operation::Readlink, |tree| tree.target(ino.0)) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let new = New::Special { mode, umask, device: device_below(rdev) };
        let done =
            self.timed(Operation::Mknod, |tree| tree.make(parent.0, name.as_bytes(), &new, caller(request)));
        self.reply_entry(done, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let new = New::Directory { mode, umask };
        let done =
            self.timed(Operation::Mkdir, |tree| tree.make(parent.0, name.as_bytes(), &new, caller(request)));
        self.reply_entry(done, reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let new = New::Symlink { target: target.as_os_str().as_bytes() };
        let done = self
            .timed(Operation::Symlink, |tree| tree.make(parent.0, name.as_bytes(), &new, caller(request)));
        self.reply_entry(done, reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(self.timed(Operation::Unlink, |tree| tree.unlink(parent.0, name.as_bytes())), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(self.timed(Operation::Rmdir, |tree| tree.remove_directory(parent.0, name.as_bytes())), reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let (from, to) = ((parent.0, name.as_bytes()), (newparent.0, newname.as_bytes()));
        answer(self.timed(Operation::Rename, |tree| tree.rename(from, to, flags)), reply);
    }

    fn link(&self, _request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let done = self.timed(Operation::Link, |tree| tree.link(ino.0, newparent.0, newname.as_bytes()));
        self.reply_entry(done, reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let exclusive = OFlags::from_bits_retain(flags as u32).contains(OFlags::EXCL);
        let caller = caller(request);
        let done = self.timed(Operation::Create, |tree| {
            tree.create(parent.0, name.as_bytes(), (mode, umask), (flags_below(flags), exclusive), caller)
        });
        let (entry, descriptor) = match done {
            Ok(done) => done,
            Err(errno) => return reply.error(errno),
        };
        let backing = self.backing(entry.id, || reply.open_backing(descriptor.as_fd()));
        let handle = self.keep_open(entry.id, descriptor, caller, backing.is_some());
        // One time for both: the protocol has two, fuser has not.
        let ttl = self.timeouts.attributes.min(self.timeouts.entry);
        let (attributes, generation) = (self.shown(&entry), Generation(entry.generation));
        match backing {
            Some(backing) => {
                let flags = FopenFlags::FOPEN_NOFLUSH;
                reply.created_passthrough(&ttl, &attributes, generation, handle, flags, &backing);
            }
            None => reply.created(&ttl, &attributes, generation, handle, self.open_flags()),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let descriptor = match self.timed(Operation::Open, |tree| tree.open(ino.0, flags_below(flags.0))) {
            Ok(descriptor) => descriptor,
            Err(errno) => return reply.error(errno),
        };
        let backing = self.backing(ino.0, || reply.open_backing(descriptor.as_fd()));
        let handle = self.keep_open(ino.0, descriptor, caller(request), backing.is_some());
        match backing {
            Some(backing) => reply.opened_passthrough(handle, FopenFlags::FOPEN_NOFLUSH, &backing),
            None => reply.opened(handle, self.open_flags()),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // The kernel asks for no more than it was told it may; a wrong size shall not be believed all the same.
        let mut buffer = vec![0; size.min(4 * DATA_BYTES_MAX) as usize];
        match self.timed(Operation::Read, |tree| tree.read(fh.0, offset, &mut buffer)) {
            Ok(read) => reply.data(&buffer[..read]),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let kills_bits = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match self.timed(Operation::Write, |tree| tree.write(fh.0, offset, data, kills_bits)) {
            // A request holds less than 4 GiB.
            Ok(written) => reply.written(written as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Writing below is done when it is answered; the kernel stops asking.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let done = self.timed(Operation::Release, |tree| {
            let file = tree.opened.close(fh.0);
            if file.is_some_and(|file| file.passed_through) {
                self.release_backing(ino.0);
            }
            Ok(())
        });
        answer(done, reply);
    }

    fn fsync(&self, _request: &Request, _ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        answer(self.timed(Operation::Fsync, |tree| tree.sync(fh.0, datasync)), reply);
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.timed(Operation::Opendir, |tree| tree.open_directory(ino.0)) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let tree = self.tree();
        let device = tree.opened.directory(fh.0).map_or(0, |directory| lock(&directory.listing).device);
        let done = self.list(fh, offset, |told| {
            let inode = if told.holder.is_some() { tree.number_on(device, told.inode) } else { told.inode };
            Ok(!reply.add(INodeNo(inode), told.position, kind(told.kind), OsStr::from_bytes(told.name)))
        });
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let tree = self.tree();
        let Some(directory) = tree.opened.directory(fh.0) else { return reply.error(Errno::EBADF) };
        // fuser has one time for names and attributes.
        let ttl = self.timeouts.attributes.min(self.timeouts.entry);
        let done = self.list(fh, offset, |told| {
            let name = OsStr::from_bytes(told.name);
            let Some(holder) = told.holder else {
                // The kernel takes no reference to the two dots, and nothing but the inode number.
                let dot = FileAttr { ino: INodeNo(told.inode), kind: FileType::Directory, ..missing() };
                return Ok(!reply.add(
                    INodeNo(told.inode),
                    told.position,
                    name,
                    &Duration::ZERO,
                    &dot,
                    Generation(0),
                ));
            };
            let Some(entry) = tree.listed(holder, told.name)? else { return Ok(true) };
            let attributes = self.shown(&entry);
            let generation = Generation(entry.generation);
            if reply.add(INodeNo(entry.id), told.position, name, &ttl, &attributes, generation) {
                return Ok(false);
            }
            tree.nodes.refer(entry.id, directory.id, told.name, entry.kind);
            Ok(true)
        });
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let done = self.timed(Operation::Releasedir, |tree| {
            tree.opened.close_directory(fh.0);
            Ok(())
        });
        answer(done, reply);
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        answer(self.timed(Operation::Fsyncdir, |tree| tree.sync_directory(fh.0)), reply);
    }

    fn statfs(&self, _request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.timed(Operation::Statfs, |tree| tree.room(ino.0)) {
            Ok(room) => reply.statfs(
                room.f_blocks,
                room.f_bfree,
                room.f_bavail,
                room.f_files,
                room.f_ffree,
                room.f_bsize as u32,
                room.f_namemax as u32,
                room.f_frsize as u32,
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_retain(flags as u32);
        let done =
            self.timed(Operation::Setxattr, |tree| tree.set_extended(ino.0, name.as_bytes(), value, flags));
        answer(done, reply);
    }

    fn getxattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        // Linux has none larger than 64 KiB.
        let mut value = vec![0; size.min(1 << 16) as usize];
        match self.timed(Operation::Getxattr, |tree| tree.extended(ino.0, name.as_bytes(), &mut value)) {
            Ok(len) if size == 0 => reply.size(len as u32),
            Ok(len) => reply.data(&value[..len]),
            Err(errno) => reply.error(errno),
        }
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        match self.timed(Operation::Listxattr, |tree| tree.extended_names(ino.0)) {
            Ok(names) if size == 0 => reply.size(names.len() as u32),
            Ok(names) if names.len() > size as usize => reply.error(Errno::ERANGE),
            Ok(names) => reply.data(&names),
            Err(errno) => reply.error(errno),
        }
    }

    fn removexattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(
            self.timed(Operation::Removexattr, |tree| tree.remove_extended(ino.0, name.as_bytes())),
            reply,
        );
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        answer(
            self.timed(Operation::Fallocate, |tree| tree.allocate(fh.0, mode as u32, offset, length)),
            reply,
        );
    }

    fn lseek(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        const SEEK_DATA: i32 = 3;
        let done = self.timed(Operation::Lseek, |tree| {
            let offset = u64::try_from(offset).map_err(|_| rustix::io::Errno::NXIO)?;
            tree.seek(fh.0, offset, whence == SEEK_DATA)
        });
        match done {
            Ok(found) => reply.offset(found as i64),
            Err(errno) => reply.error(errno),
        }
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The answer has 32 bits; callers go on where it ended.
        let len = len.min(1 << 30) as usize;
        match self.timed(Operation::CopyFileRange, |tree| {
            tree.copy((fh_in.0, offset_in), (fh_out.0, offset_out), len)
        }) {
            Ok(copied) => reply.written(copied as u32),
            Err(errno) => reply.error(errno),
        }
    }
}

/// Mounts, and starts the worker threads.
pub(crate) fn start(adapter: Adapter, options: &StackOptions, source: &Path) -> std::io::Result<Session> {
    use fuser::{Config, MountOption, SessionACL};
    let mut mount_options = vec![
        MountOption::FSName(escaped(source)),
        MountOption::DefaultPermissions,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    // fuser gives a subtype to fusermount3 alone; the kernel takes it as well.
    mount_options.push(if rustix::process::geteuid().is_root() {
        MountOption::CUSTOM("subtype=crumb".into())
    } else {
        MountOption::Subtype("crumb".into())
    });
    let flags = options.flags;
    let chosen = [
        (flags.dev, MountOption::Dev),
        (flags.suid, MountOption::Suid),
        (flags.noexec, MountOption::NoExec),
        (flags.noatime, MountOption::NoAtime),
    ];
    mount_options.extend(chosen.into_iter().filter(|(wanted, _)| *wanted).map(|(_, option)| option));
    let mut config = Config::default();
    config.mount_options = mount_options;
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads);
    config.clone_fd = true;
    let session = fuser::Session::new(adapter, &options.mountpoint, &config)?;
    Ok(Session { background: session.spawn()? })
}

/// The worker threads of a mount.
pub(crate) struct Session {
    background: fuser::BackgroundSession,
}

impl Session {
    /// Whether the mount has come to its end.
    pub(crate) fn is_over(&self) -> bool {
        self.background.guard.is_finished()
    }

    /// Waits until it has.
    pub(crate) fn join(self) -> std::io::Result<()> {
        self.background.join()
    }
}

/// Whether the device can be opened at all.
pub(crate) fn device() -> std::io::Result<()> {
    std::fs::OpenOptions::new().read(true).write(true).open(DEVICE).map(drop)
}

/// Commas and backslashes end or escape an option in the lists that fusermount3 takes.
fn escaped(path: &Path) -> String {
    let text = path.to_string_lossy();
    if rustix::process::geteuid().is_root() {
        return text.into_owned();
    }
    text.replace('\\', "\\\\").replace(',', "\\,")
}

fn answer(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid() }
}

/// What of a program's flags matters to the descriptor below. Appending is the kernel's work here, which sends
/// offsets; unbuffered transfers would need aligned memory.
fn flags_below(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags as u32) & (OFlags::RWMODE | OFlags::SYNC | OFlags::DSYNC | OFlags::NOATIME)
}

fn set_to(time: TimeOrNow) -> Set {
    match time {
        TimeOrNow::Now => Set::Now,
        TimeOrNow::SpecificTime(time) => match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Set::At { seconds: after.as_secs() as i64, nanoseconds: after.subsec_nanos() },
            // fuser 0.18 takes the nanoseconds of a time before 1970 off instead of adding them: undone here.
            Err(error) => Set::At {
                seconds: -(error.duration().as_secs() as i64),
                nanoseconds: error.duration().subsec_nanos(),
            },
        },
    }
}

fn attr(ino: u64, attributes: &Statx) -> FileAttr {
    let mode = u32::from(attributes.stx_mode);
    FileAttr {
        ino: INodeNo(ino),
        size: attributes.stx_size,
        blocks: attributes.stx_blocks,
        atime: time(&attributes.stx_atime),
        mtime: time(&attributes.stx_mtime),
        ctime: time(&attributes.stx_ctime),
        crtime: UNIX_EPOCH,
        kind: kind(rustix::fs::FileType::from_raw_mode(mode)),
        perm: (mode & 0o7777) as u16,
        nlink: attributes.stx_nlink,
        uid: attributes.stx_uid,
        gid: attributes.stx_gid,
        rdev: device_shown(attributes.stx_rdev_major, attributes.stx_rdev_minor),
        blksize: attributes.stx_blksize,
        flags: 0,
    }
}

/// Attributes of nothing.
fn missing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn time(stamp: &rustix::fs::StatxTimestamp) -> SystemTime {
    moment(stamp.tv_sec, stamp.tv_nsec)
}

fn moment(seconds: i64, nanoseconds: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let begun = if seconds >= 0 { UNIX_EPOCH + whole } else { UNIX_EPOCH - whole };
    begun + Duration::from_nanos(nanoseconds.into())
}

fn kind(kind: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Lower;
    match kind {
        Lower::Directory => FileType::Directory,
        Lower::Symlink => FileType::Symlink,
        Lower::Fifo => FileType::NamedPipe,
        Lower::Socket => FileType::Socket,
        Lower::CharacterDevice => FileType::CharDevice,
        Lower::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// Device numbers have 12 bits of major and 20 of minor in the protocol, the minor's upper ones above the major.
fn device_shown(major: u32, minor: u32) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

fn device_below(shown: u32) -> u64 {
    rustix::fs::makedev(shown >> 8 & 0xfff, shown & 0xff | shown >> 12 & 0xfff00)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_come_back_as_they_went() {
        for (major, minor) in [(0, 0), (1, 3), (8, 17), (259, 300_000), (4095, 0xf_ffff)] {
            let below = device_below(device_shown(major, minor));
            assert_eq!((rustix::fs::major(below), rustix::fs::minor(below)), (major, minor));
        }
    }

    #[test]
    fn times_before_1970_are_told_exactly() {
        assert_eq!(moment(-2, 250_000_000), UNIX_EPOCH - Duration::from_millis(1750));
        assert_eq!(moment(2, 250_000_000), UNIX_EPOCH + Duration::from_millis(2250));
    }
}
