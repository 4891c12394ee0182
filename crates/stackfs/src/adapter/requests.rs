//! The requests, one after another: each to the tree and answered.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuse::{
    CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{Access, OFlags, XattrFlags};

use super::{Adapter, DATA_BYTES_MAX, DESCRIPTORS_OF_A_LISTING, answer, caller, shown};
use crate::counters::Operation;
use crate::tree::nodes::lock;
use crate::tree::{Change, New, Writing};

/// The flags of an inode, as chattr(1) shows and sets them (linux/fs.h, on 64 bits). The variants of 32-bit programs are
/// never passed on: the kernel translates them, and checks rights while it does.
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
/// Their longer form, which the kernel asks for before it sets the others.
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;

impl Filesystem for Adapter {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        self.agree(config);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.shared.readers.turn(request.pid());
        let done = self.timed(Operation::Lookup, |tree| tree.look_up(parent.0, name.as_bytes()));
        match done {
            Err(errno) if errno.code() == Errno::ENOENT.code() => {
                let time = self.believed.of_missing(self.tree(), parent.0);
                if time.is_zero() {
                    return reply.error(errno);
                }
                // Number 0 with a time says for how long the name is known to be missing.
                reply.entry_with_ttls(&Duration::ZERO, &time, &shown::missing(), Generation(0));
            }
            done => self.answer_entry(done, reply),
        }
    }

    /// No turn: it is called many times for one request, and nothing here takes long.
    fn forget(&self, _request: &Request, ino: INodeNo, nlookup: u64) {
        let _ = self.timed(Operation::Forget, |_| {
            self.shared.forget_node(ino.0, nlookup);
            Ok(())
        });
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let _turn = self.shared.readers.turn(request.pid());
        let done = self.timed(Operation::Getattr, |tree| tree.attributes(ino.0));
        self.answer_attributes(ino.0, done, reply);
    }

    /// Asked for only where the kernel does not check permissions itself.
    fn access(&self, request: &Request, ino: INodeNo, mask: u32, reply: ReplyEmpty) {
        let _turn = self.shared.readers.turn(request.pid());
        let wanted = Access::from_bits_truncate(mask);
        answer(self.timed(Operation::Access, |tree| tree.allows(ino.0, wanted)), reply);
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
        reply: ReplyAttr,
    ) {
        let _turn = self.shared.readers.turn(request.pid());
        let change = Change {
            mode,
            uid,
            gid,
            size,
            accessed: atime.map(shown::set_to),
            modified: mtime.map(shown::set_to),
        };
        let done = self.timed(Operation::Setattr, |tree| {
            tree.change(ino.0, fh.map(|fh| fh.0), &change, caller(request))
        });
        self.answer_attributes(ino.0, done, reply);
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let _turn = self.shared.readers.turn(request.pid());
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
        let _turn = self.shared.readers.turn(request.pid());
        let new = New::Special { mode, umask, device: shown::device_below(rdev) };
        let done =
            self.timed(Operation::Mknod, |tree| tree.make(parent.0, name.as_bytes(), &new, caller(request)));
        self.answer_entry(done, reply);
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
        let _turn = self.shared.readers.turn(request.pid());
        let new = New::Directory { mode, umask };
        let done =
            self.timed(Operation::Mkdir, |tree| tree.make(parent.0, name.as_bytes(), &new, caller(request)));
        self.answer_entry(done, reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let _turn = self.shared.readers.turn(request.pid());
        let new = New::Symlink { target: target.as_os_str().as_bytes() };
        let done = self
            .timed(Operation::Symlink, |tree| tree.make(parent.0, name.as_bytes(), &new, caller(request)));
        self.answer_entry(done, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.shared.readers.turn(request.pid());
        answer(self.timed(Operation::Unlink, |tree| tree.unlink(parent.0, name.as_bytes())), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.shared.readers.turn(request.pid());
        answer(self.timed(Operation::Rmdir, |tree| tree.remove_directory(parent.0, name.as_bytes())), reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.shared.readers.turn(request.pid());
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let (from, to) = ((parent.0, name.as_bytes()), (newparent.0, newname.as_bytes()));
        answer(self.timed(Operation::Rename, |tree| tree.rename(from, to, flags)), reply);
    }

    fn link(&self, request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let _turn = self.shared.readers.turn(request.pid());
        let done = self.timed(Operation::Link, |tree| tree.link(ino.0, newparent.0, newname.as_bytes()));
        self.answer_entry(done, reply);
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
        let _turn = self.shared.readers.turn(request.pid());
        let exclusive = OFlags::from_bits_retain(flags as u32).contains(OFlags::EXCL);
        let caller = caller(request);
        let done = self.timed(Operation::Create, |tree| {
            let share = self.shared.shares.take(caller.uid, 1)?;
            let (mode, flags) = ((mode, umask), (shown::flags_below(flags), exclusive));
            let (entry, descriptor) = tree.create(parent.0, name.as_bytes(), mode, flags, caller)?;
            let backing = self.backing(entry.id, None, || reply.open_backing(descriptor.as_fd()));
            Ok((entry, descriptor, backing, share))
        });
        let (entry, descriptor, backing, share) = match done {
            Ok(done) => done,
            Err(errno) => return reply.error(errno),
        };
        let handle = if self.no_open {
            // Nothing will close it.
            FileHandle(0)
        } else {
            self.keep_open(entry.id, Arc::new(descriptor), caller, (true, backing.is_some()), share)
        };
        // One time for both: the protocol has two.
        let (attributes, name) = self.believed.of_entry(self.tree(), &entry);
        let ttl = attributes.min(name);
        let (attributes, generation) =
            (shown::attributes(entry.id, &entry.attributes), Generation(entry.generation));
        match backing {
            Some(backing) => {
                let flags = FopenFlags::FOPEN_NOFLUSH;
                reply.created_passthrough(&ttl, &attributes, generation, handle, flags, &backing);
            }
            None => reply.created(&ttl, &attributes, generation, handle, self.open_flags()),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.shared.readers.turn(request.pid());
        if self.no_open {
            return reply.error(Errno::ENOSYS);
        }
        let flags = shown::flags_below(flags.0);
        let reading = flags == OFlags::RDONLY;
        let done = self.timed(Operation::Open, |tree| {
            let share = self.shared.shares.take(request.uid(), 1)?;
            if reading && let Some((backing, descriptor)) = self.shared.backings.open_again(ino.0) {
                return Ok((Some(backing), descriptor, share));
            }
            let descriptor = Arc::new(tree.open(ino.0, flags)?);
            let register = || reply.open_backing(&*descriptor);
            Ok((self.backing(ino.0, reading.then_some(&descriptor), register), descriptor, share))
        });
        let (backing, descriptor, share) = match done {
            Ok(done) => done,
            Err(errno) => return reply.error(errno),
        };
        let how = (!reading, backing.is_some());
        let handle = self.keep_open(ino.0, descriptor, caller(request), how, share);
        match backing {
            Some(backing) => reply.opened_passthrough(handle, FopenFlags::FOPEN_NOFLUSH, &backing),
            None => reply.opened(handle, self.open_flags()),
        }
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _turn = self.shared.readers.turn(request.pid());
        // The kernel requests no more than the negotiated maximum; we bound the size all the same.
        let mut buffer = vec![0; size.min(4 * DATA_BYTES_MAX) as usize];
        match self.timed(Operation::Read, |tree| tree.read((ino.0, fh.0), offset, &mut buffer)) {
            Ok(read) => reply.data(&buffer[..read]),
            Err(errno) => reply.error(errno),
        }
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
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _turn = self.shared.readers.turn(request.pid());
        let kills_bits = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        // What is written back from memory stays at its offset.
        let appends = OFlags::from_bits_retain(flags.0 as u32).contains(OFlags::APPEND)
            && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let how = Writing { kills_bits, appends };
        let written = self.timed(Operation::Write, |tree| {
            let (written, cleared) = tree.write((ino.0, fh.0), offset, data, how)?;
            if cleared {
                self.believed.mode_may_have_changed(ino.0);
            }
            Ok(written)
        });
        match written {
            // A request holds less than 4 GiB.
            Ok(written) => reply.written(written as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, request: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        let _turn = self.shared.readers.turn(request.pid());
        // Writing below is done when it is answered; the kernel stops asking.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.shared.readers.turn(request.pid());
        let done = self.timed(Operation::Release, |_| {
            self.close(fh.0);
            Ok(())
        });
        answer(done, reply);
    }

    fn fsync(&self, request: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let _turn = self.shared.readers.turn(request.pid());
        answer(self.timed(Operation::Fsync, |tree| tree.sync((ino.0, fh.0), datasync)), reply);
    }

    fn opendir(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.shared.readers.turn(request.pid());
        if self.no_opendir {
            return reply.error(Errno::ENOSYS);
        }
        let done = self.timed(Operation::Opendir, |tree| {
            let share = self.shared.shares.take(request.uid(), DESCRIPTORS_OF_A_LISTING)?;
            Ok((tree.open_directory(ino.0)?, share))
        });
        match done {
            Ok((handle, share)) => {
                lock(&self.shared.directory_shares).insert(handle, share);
                self.shared.strangers.look(self.tree(), ino.0);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let _turn = self.shared.readers.turn(request.pid());
        let tree = self.tree();
        let done = self.list((ino.0, fh.0), offset, |directory, listed| {
            let inode = if listed.holder.is_some() {
                tree.number_on(directory.device, listed.inode)
            } else {
                listed.inode
            };
            Ok(!reply.add(
                INodeNo(inode),
                listed.position,
                shown::kind(listed.kind),
                OsStr::from_bytes(listed.name),
            ))
        });
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _turn = self.shared.readers.turn(request.pid());
        let tree = self.tree();
        let done = self.list((ino.0, fh.0), offset, |directory, listed| {
            let name = OsStr::from_bytes(listed.name);
            let Some(holder) = listed.holder else {
                // The kernel takes no reference to the two dots, and nothing but the inode number.
                let dot =
                    FileAttr { ino: INodeNo(listed.inode), kind: FileType::Directory, ..shown::missing() };
                return Ok(!reply.add(
                    INodeNo(listed.inode),
                    listed.position,
                    name,
                    &Duration::ZERO,
                    &dot,
                    Generation(0),
                ));
            };
            let Some(entry) = tree.listed(directory.id, holder, listed.name)? else { return Ok(true) };
            // One time for names and attributes.
            let (attributes, entry_time) = self.believed.of_entry(tree, &entry);
            let ttl = attributes.min(entry_time);
            let attributes = shown::attributes(entry.id, &entry.attributes);
            let generation = Generation(entry.generation);
            if reply.add(INodeNo(entry.id), listed.position, name, &ttl, &attributes, generation) {
                self.shared.forget_node(entry.id, 1);
                return Ok(false);
            }
            Ok(true)
        });
        match done {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(
        &self,
        request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.shared.readers.turn(request.pid());
        let done = self.timed(Operation::Releasedir, |tree| {
            tree.opened.close_directory(fh.0);
            let given_back = lock(&self.shared.directory_shares).remove(&fh.0);
            drop(given_back);
            Ok(())
        });
        answer(done, reply);
    }

    fn fsyncdir(&self, request: &Request, ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let _turn = self.shared.readers.turn(request.pid());
        answer(self.timed(Operation::Fsyncdir, |tree| tree.sync_directory((ino.0, fh.0))), reply);
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let _turn = self.shared.readers.turn(request.pid());
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
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.shared.readers.turn(request.pid());
        let flags = XattrFlags::from_bits_retain(flags as u32);
        let done = self.timed_extended(Operation::Setxattr, |tree| {
            tree.set_extended(ino.0, name.as_bytes(), value, flags)
        });
        answer(done, reply);
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _turn = self.shared.readers.turn(request.pid());
        // Linux has none larger than 64 KiB.
        let mut value = vec![0; size.min(1 << 16) as usize];
        match self
            .timed_extended(Operation::Getxattr, |tree| tree.extended(ino.0, name.as_bytes(), &mut value))
        {
            Ok(len) if size == 0 => reply.size(len as u32),
            Ok(len) => reply.data(&value[..len]),
            Err(errno) => reply.error(errno),
        }
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let _turn = self.shared.readers.turn(request.pid());
        let is_root = request.uid() == 0;
        match self.timed_extended(Operation::Listxattr, |tree| tree.extended_names(ino.0, is_root)) {
            Ok(names) if size == 0 => reply.size(names.len() as u32),
            Ok(names) if names.len() > size as usize => reply.error(Errno::ERANGE),
            Ok(names) => reply.data(&names),
            Err(errno) => reply.error(errno),
        }
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.shared.readers.turn(request.pid());
        answer(
            self.timed_extended(Operation::Removexattr, |tree| tree.remove_extended(ino.0, name.as_bytes())),
            reply,
        );
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.shared.readers.turn(request.pid());
        answer(
            self.timed(Operation::Fallocate, |tree| {
                tree.allocate((ino.0, fh.0), request.uid() != 0, mode as u32, offset, length)?;
                self.believed.mode_may_have_changed(ino.0);
                Ok(())
            }),
            reply,
        );
    }

    /// The kernel asks this way for file flags, and hands on every other ioctl of a program: reading a file as text begins
    /// with the question whether it is a terminal.
    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        let _turn = self.shared.readers.turn(request.pid());
        let done = self.timed(Operation::Ioctl, |tree| match (cmd, in_data) {
            (FS_IOC_GETFLAGS, _) => Ok(tree.flags((ino.0, fh.0))?.to_ne_bytes().to_vec()),
            (FS_IOC_FSGETXATTR, _) => Ok(tree.extended_flags((ino.0, fh.0))?.to_vec()),
            (FS_IOC_SETFLAGS, [a, b, c, d, ..]) => {
                let flags = u32::from_ne_bytes([*a, *b, *c, *d]);
                tree.set_flags((ino.0, fh.0), flags, caller(request)).map(|()| Vec::new())
            }
            _ => Err(rustix::io::Errno::NOTTY),
        });
        match done {
            Ok(data) => reply.ioctl(0, &data),
            Err(errno) => reply.error(errno),
        }
    }

    fn lseek(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _turn = self.shared.readers.turn(request.pid());
        const SEEK_DATA: i32 = 3;
        let done = self.timed(Operation::Lseek, |tree| {
            let offset = u64::try_from(offset).map_err(|_| rustix::io::Errno::NXIO)?;
            tree.seek((ino.0, fh.0), offset, whence == SEEK_DATA)
        });
        match done {
            Ok(found) => reply.offset(found as i64),
            Err(errno) => reply.error(errno),
        }
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
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _turn = self.shared.readers.turn(request.pid());
        // The answer has 32 bits; callers go on where it ended.
        let len = len.min(1 << 30) as usize;
        let kills_bits = request.uid() != 0;
        match self.timed(Operation::CopyFileRange, |tree| {
            let (from, to) = (((ino_in.0, fh_in.0), offset_in), ((ino_out.0, fh_out.0), offset_out));
            let copied = tree.copy(from, to, kills_bits, len)?;
            self.believed.mode_may_have_changed(ino_out.0);
            Ok(copied)
        }) {
            Ok(copied) => reply.written(copied as u32),
            Err(errno) => reply.error(errno),
        }
    }
}
