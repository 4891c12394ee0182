//! Requests: what the kernel asks, from bytes that are not trusted.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::SystemTime;

use super::values::from_seconds;
use super::{
    FileHandle, ForgetOne, IN_HEADER_BYTES, INodeNo, InitFlags, IoctlFlags, LockOwner, OpenFlags,
    RenameFlags, TimeOrNow, WriteFlags,
};

/// `struct fuse_in_header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub bytes: u32,
    pub opcode: u32,
    pub unique: u64,
    pub id: INodeNo,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

/// Why a request cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// An operation that this protocol version does not have, or that no file system here implements.
    Unknown,
    /// Fields are missing, or have values that they cannot have.
    Invalid,
}

type Parsed<T> = Result<T, Malformed>;

/// What is asked for, borrowed from the request's bytes.
#[derive(Debug, PartialEq)]
pub(crate) enum Operation<'a> {
    Lookup { name: &'a OsStr },
    Forget { lookups: u64 },
    Getattr { handle: Option<FileHandle> },
    Setattr(SetAttr),
    Readlink,
    Symlink { name: &'a OsStr, target: &'a Path },
    Mknod { name: &'a OsStr, mode: u32, umask: u32, device: u32 },
    Mkdir { name: &'a OsStr, mode: u32, umask: u32 },
    Unlink { name: &'a OsStr },
    Rmdir { name: &'a OsStr },
    Rename { name: &'a OsStr, to: INodeNo, new_name: &'a OsStr, flags: RenameFlags },
    Link { id: INodeNo, new_name: &'a OsStr },
    Open { flags: OpenFlags },
    Read(Transfer),
    Write { transfer: Transfer, flags: WriteFlags, data: &'a [u8] },
    Statfs,
    Access { mask: u32 },
    Release { handle: FileHandle, flags: OpenFlags, lock_owner: Option<LockOwner>, flush: bool },
    Fsync { handle: FileHandle, data_only: bool },
    Setxattr { name: &'a OsStr, value: &'a [u8], flags: i32 },
    Getxattr { name: &'a OsStr, bytes_max: u32 },
    Listxattr { bytes_max: u32 },
    Removexattr { name: &'a OsStr },
    Flush { handle: FileHandle, lock_owner: LockOwner },
    Init { major: u32, minor: u32, max_readahead: u32, flags: InitFlags },
    Opendir { flags: OpenFlags },
    Readdir(Transfer),
    Releasedir { handle: FileHandle, flags: OpenFlags },
    Fsyncdir { handle: FileHandle, data_only: bool },
    Create { name: &'a OsStr, flags: i32, mode: u32, umask: u32 },
    Interrupt,
    Destroy,
    Ioctl { handle: FileHandle, flags: IoctlFlags, command: u32, data: &'a [u8], bytes_max: u32 },
    BatchForget { nodes: Vec<ForgetOne> },
    Fallocate { handle: FileHandle, offset: u64, length: u64, mode: i32 },
    Readdirplus(Transfer),
    Lseek { handle: FileHandle, offset: i64, whence: i32 },
    CopyFileRange { from: (FileHandle, u64), to_id: INodeNo, to: (FileHandle, u64), length: u64, flags: u64 },
}

/// `struct fuse_read_in`, and the same part of `struct fuse_write_in`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub handle: FileHandle,
    pub offset: u64,
    pub bytes: u32,
    pub lock_owner: Option<LockOwner>,
    pub flags: OpenFlags,
}

/// `struct fuse_setattr_in`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetAttr {
    pub handle: Option<FileHandle>,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<TimeOrNow>,
    pub modified: Option<TimeOrNow>,
    pub changed: Option<SystemTime>,
}

/// Operations by their numbers, with the bytes of their fixed arguments.
mod number {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
}

/// Bytes of an operation's fixed arguments, which FUSE over io_uring hands over apart from names and data.
pub(crate) fn argument_bytes(opcode: u32) -> usize {
    use number::*;
    match opcode {
        LOOKUP | READLINK | SYMLINK | UNLINK | RMDIR | STATFS | REMOVEXATTR | DESTROY => 0,
        FORGET | MKDIR | RENAME | LINK | OPEN | SETXATTR | GETXATTR | LISTXATTR | OPENDIR | ACCESS
        | INTERRUPT | BATCH_FORGET => 8,
        GETATTR | MKNOD | FSYNC | FSYNCDIR | CREATE | RENAME2 => 16,
        RELEASE | FLUSH | RELEASEDIR | LSEEK => 24,
        IOCTL | FALLOCATE => 32,
        READ | WRITE | READDIR | READDIRPLUS => 40,
        COPY_FILE_RANGE => 56,
        SETATTR => 88,
        INIT => 64,
        // Answered by the number alone.
        _ => 0,
    }
}

/// Whether the kernel expects no reply to it.
pub(crate) fn is_unanswered(opcode: u32) -> bool {
    matches!(opcode, number::FORGET | number::BATCH_FORGET)
}

impl Header {
    /// From the first bytes of a request.
    pub fn parse(request: &[u8]) -> Parsed<Self> {
        let mut fields = Fields(request.get(..IN_HEADER_BYTES).ok_or(Malformed::Invalid)?);
        Ok(Self {
            bytes: fields.u32()?,
            opcode: fields.u32()?,
            unique: fields.u64()?,
            id: INodeNo(fields.u64()?),
            uid: fields.u32()?,
            gid: fields.u32()?,
            pid: fields.u32()?,
        })
    }
}

/// What is left of a request.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Parsed<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed::Invalid)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Parsed<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed::Invalid)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Parsed<u32> {
        Ok(u32::from_ne_bytes(self.array()?))
    }

    fn i32(&mut self) -> Parsed<i32> {
        Ok(i32::from_ne_bytes(self.array()?))
    }

    fn u64(&mut self) -> Parsed<u64> {
        Ok(u64::from_ne_bytes(self.array()?))
    }

    fn i64(&mut self) -> Parsed<i64> {
        Ok(i64::from_ne_bytes(self.array()?))
    }

    /// A position in a file, which programs have as a signed number.
    fn offset(&mut self) -> Parsed<u64> {
        u64::try_from(self.i64()?).map_err(|_| Malformed::Invalid)
    }

    fn handle(&mut self) -> Parsed<FileHandle> {
        Ok(FileHandle(self.u64()?))
    }

    /// A text up to its zero.
    fn text(&mut self) -> Parsed<&'a OsStr> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed::Invalid)?;
        let text = self.bytes(end)?;
        self.0 = &self.0[1..];
        Ok(OsStr::from_bytes(text))
    }

    /// A name in a directory: a text with at least one byte and no slash.
    fn name(&mut self) -> Parsed<&'a OsStr> {
        let name = self.text()?;
        if name.is_empty() || name.as_bytes().contains(&b'/') { Err(Malformed::Invalid) } else { Ok(name) }
    }

    fn transfer(&mut self) -> Parsed<(Transfer, u32)> {
        const LOCK_OWNER: u32 = 1 << 1;
        let (handle, offset, bytes, flags) = (self.handle()?, self.u64()?, self.u32()?, self.u32()?);
        let (lock_owner, open_flags, _padding) =
            (LockOwner(self.u64()?), OpenFlags(self.i32()?), self.u32()?);
        let lock_owner = (flags & LOCK_OWNER != 0).then_some(lock_owner);
        Ok((Transfer { handle, offset, bytes, lock_owner, flags: open_flags }, flags))
    }
}

impl Transfer {
    /// Of a file: it begins at a position that a file can have.
    fn in_file(self) -> Parsed<Self> {
        i64::try_from(self.offset).map(|_| self).map_err(|_| Malformed::Invalid)
    }
}

impl<'a> Operation<'a> {
    /// From an operation's number and what follows the header.
    pub fn parse(opcode: u32, body: &'a [u8]) -> Parsed<Self> {
        let mut fields = Fields(body);
        match opcode {
            number::FORGET => Ok(Self::Forget { lookups: fields.u64()? }),
            number::BATCH_FORGET => fields.batch_forget(),
            number::GETATTR => fields.getattr(),
            number::SETATTR => fields.setattr().map(Self::Setattr),
            number::READLINK => Ok(Self::Readlink),
            number::STATFS => Ok(Self::Statfs),
            number::ACCESS => Ok(Self::Access { mask: fields.u32()? }),
            number::INTERRUPT => Ok(Self::Interrupt),
            number::DESTROY => Ok(Self::Destroy),
            number::INIT => fields.init(),
            number::IOCTL => fields.ioctl(),
            number::SETXATTR..=number::REMOVEXATTR => fields.extended(opcode),
            number::LOOKUP | number::SYMLINK..=number::LINK | number::RENAME2 => fields.naming(opcode),
            number::CREATE => fields.create(),
            number::OPEN | number::READ | number::WRITE | number::RELEASE | number::FSYNC | number::FLUSH => {
                fields.file(opcode)
            }
            number::FALLOCATE | number::LSEEK | number::COPY_FILE_RANGE => fields.file_range(opcode),
            number::OPENDIR..=number::FSYNCDIR | number::READDIRPLUS => fields.directory(opcode),
            _ => Err(Malformed::Unknown),
        }
    }
}

/// Each family of operations.
impl<'a> Fields<'a> {
    fn batch_forget(&mut self) -> Parsed<Operation<'a>> {
        let (count, _padding) = (self.u32()?, self.u32()?);
        // As many as there are bytes for, whatever the count says.
        let (pairs, _) = self.0.as_chunks::<16>();
        let one = |pair: &[u8; 16]| -> Parsed<ForgetOne> {
            let mut pair = Fields(pair);
            Ok(ForgetOne { id: INodeNo(pair.u64()?), lookups: pair.u64()? })
        };
        let nodes: Vec<ForgetOne> = pairs.iter().take(count as usize).map(one).collect::<Parsed<_>>()?;
        if nodes.len() == count as usize {
            Ok(Operation::BatchForget { nodes })
        } else {
            Err(Malformed::Invalid)
        }
    }

    fn getattr(&mut self) -> Parsed<Operation<'a>> {
        const HANDLE: u32 = 1 << 0;
        let (flags, _padding, handle) = (self.u32()?, self.u32()?, self.handle()?);
        Ok(Operation::Getattr { handle: (flags & HANDLE != 0).then_some(handle) })
    }

    fn setattr(&mut self) -> Parsed<SetAttr> {
        let (valid, _padding, handle, size, _lock_owner) =
            (self.u32()?, self.u32()?, self.handle()?, self.u64()?, self.u64()?);
        let seconds: [i64; 3] = [self.i64()?, self.i64()?, self.i64()?];
        let nanoseconds: [u32; 3] = [self.u32()?, self.u32()?, self.u32()?];
        let (mode, _unused, uid, gid, _unused_too) =
            (self.u32()?, self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        let has = |bit: u32| valid & 1 << bit != 0;
        let time = |at: usize| from_seconds(seconds[at], nanoseconds[at]).ok_or(Malformed::Invalid);
        let set = |bit: u32, now: u32, at: usize| match (has(bit), has(now)) {
            (false, _) => Ok(None),
            (true, true) => Ok(Some(TimeOrNow::Now)),
            (true, false) => time(at).map(|time| Some(TimeOrNow::SpecificTime(time))),
        };
        Ok(SetAttr {
            mode: has(0).then_some(mode),
            uid: has(1).then_some(uid),
            gid: has(2).then_some(gid),
            size: has(3).then_some(size),
            accessed: set(4, 7, 0)?,
            modified: set(5, 8, 1)?,
            handle: has(6).then_some(handle),
            changed: if has(10) { Some(time(2)?) } else { None },
        })
    }

    fn init(&mut self) -> Parsed<Operation<'a>> {
        let (major, minor, max_readahead, flags) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        let low = InitFlags::from_bits_retain(flags.into());
        let more = if low.contains(InitFlags::FUSE_INIT_EXT) { self.u32()? } else { 0 };
        let flags = InitFlags::from_bits_retain(u64::from(flags) | u64::from(more) << 32);
        Ok(Operation::Init { major, minor, max_readahead, flags })
    }

    fn ioctl(&mut self) -> Parsed<Operation<'a>> {
        let (handle, flags, command, _argument) = (self.handle()?, self.u32()?, self.u32()?, self.u64()?);
        let (given, bytes_max) = (self.u32()?, self.u32()?);
        let flags = IoctlFlags::from_bits_retain(flags);
        if flags.contains(IoctlFlags::FUSE_IOCTL_UNRESTRICTED) {
            return Err(Malformed::Unknown);
        }
        Ok(Operation::Ioctl { handle, flags, command, data: self.bytes(given as usize)?, bytes_max })
    }

    fn extended(&mut self, opcode: u32) -> Parsed<Operation<'a>> {
        Ok(match opcode {
            number::SETXATTR => {
                let (bytes, flags, name) = (self.u32()?, self.i32()?, self.text()?);
                Operation::Setxattr { name, value: self.bytes(bytes as usize)?, flags }
            }
            number::GETXATTR => {
                let (bytes_max, _padding) = (self.u32()?, self.u32()?);
                Operation::Getxattr { name: self.text()?, bytes_max }
            }
            number::LISTXATTR => Operation::Listxattr { bytes_max: self.u32()? },
            _ => Operation::Removexattr { name: self.text()? },
        })
    }

    /// What takes names and no handle.
    fn naming(&mut self, opcode: u32) -> Parsed<Operation<'a>> {
        Ok(match opcode {
            number::LOOKUP => Operation::Lookup { name: self.name()? },
            number::SYMLINK => Operation::Symlink { name: self.name()?, target: Path::new(self.text()?) },
            number::MKNOD => {
                let (mode, device, umask, _padding) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?);
                Operation::Mknod { name: self.name()?, mode, umask, device }
            }
            number::MKDIR => {
                let (mode, umask) = (self.u32()?, self.u32()?);
                Operation::Mkdir { name: self.name()?, mode, umask }
            }
            number::UNLINK => Operation::Unlink { name: self.name()? },
            number::RMDIR => Operation::Rmdir { name: self.name()? },
            number::RENAME => self.rename(RenameFlags::empty())?,
            number::RENAME2 => {
                let to = INodeNo(self.u64()?);
                let (flags, _padding) = (RenameFlags::from_bits_retain(self.u32()?), self.u32()?);
                self.names_of_rename(to, flags)?
            }
            number::LINK => Operation::Link { id: INodeNo(self.u64()?), new_name: self.name()? },
            _ => return Err(Malformed::Unknown),
        })
    }

    fn rename(&mut self, flags: RenameFlags) -> Parsed<Operation<'a>> {
        let to = INodeNo(self.u64()?);
        self.names_of_rename(to, flags)
    }

    fn names_of_rename(&mut self, to: INodeNo, flags: RenameFlags) -> Parsed<Operation<'a>> {
        Ok(Operation::Rename { name: self.name()?, to, new_name: self.name()?, flags })
    }

    fn create(&mut self) -> Parsed<Operation<'a>> {
        let (flags, mode, umask, _open_flags) = (self.i32()?, self.u32()?, self.u32()?, self.u32()?);
        Ok(Operation::Create { name: self.name()?, flags, mode, umask })
    }

    fn file(&mut self, opcode: u32) -> Parsed<Operation<'a>> {
        Ok(match opcode {
            number::OPEN => Operation::Open { flags: OpenFlags(self.i32()?) },
            number::READ => Operation::Read(self.transfer()?.0.in_file()?),
            number::WRITE => {
                let (transfer, flags) = self.transfer()?;
                let (transfer, flags) = (transfer.in_file()?, WriteFlags::from_bits_retain(flags));
                Operation::Write { transfer, flags, data: self.bytes(transfer.bytes as usize)? }
            }
            number::FSYNC => {
                let (handle, data_only) = self.sync()?;
                Operation::Fsync { handle, data_only }
            }
            number::FLUSH => {
                let (handle, _unused) = (self.handle()?, self.u64()?);
                Operation::Flush { handle, lock_owner: LockOwner(self.u64()?) }
            }
            _ => {
                let (handle, flags, bits, lock_owner) = self.release()?;
                let lock_owner = (bits & 1 << 1 != 0).then_some(lock_owner);
                Operation::Release { handle, flags, lock_owner, flush: bits & 1 != 0 }
            }
        })
    }

    fn sync(&mut self) -> Parsed<(FileHandle, bool)> {
        Ok((self.handle()?, self.u32()? & 1 != 0))
    }

    fn release(&mut self) -> Parsed<(FileHandle, OpenFlags, u32, LockOwner)> {
        Ok((self.handle()?, OpenFlags(self.i32()?), self.u32()?, LockOwner(self.u64()?)))
    }

    fn file_range(&mut self, opcode: u32) -> Parsed<Operation<'a>> {
        Ok(match opcode {
            number::FALLOCATE => {
                let (handle, offset, length) = (self.handle()?, self.offset()?, self.offset()?);
                Operation::Fallocate { handle, offset, length, mode: self.i32()? }
            }
            number::LSEEK => {
                let (handle, offset) = (self.handle()?, self.i64()?);
                Operation::Lseek { handle, offset, whence: self.i32()? }
            }
            _ => {
                let from = (self.handle()?, self.offset()?);
                let (to_id, to) = (INodeNo(self.u64()?), (self.handle()?, self.offset()?));
                Operation::CopyFileRange { from, to_id, to, length: self.u64()?, flags: self.u64()? }
            }
        })
    }

    fn directory(&mut self, opcode: u32) -> Parsed<Operation<'a>> {
        Ok(match opcode {
            number::OPENDIR => Operation::Opendir { flags: OpenFlags(self.i32()?) },
            number::READDIR => Operation::Readdir(self.transfer()?.0),
            number::READDIRPLUS => Operation::Readdirplus(self.transfer()?.0),
            number::RELEASEDIR => {
                let (handle, flags, _, _) = self.release()?;
                Operation::Releasedir { handle, flags }
            }
            _ => {
                let (handle, data_only) = self.sync()?;
                Operation::Fsyncdir { handle, data_only }
            }
        })
    }
}

#[cfg(test)]
mod tests;
