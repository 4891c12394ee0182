//! From a request's bytes to the method that answers it.

use crate::filesystem::{Filesystem, Request};
use crate::protocol::{CopyFileRangeFlags, Errno, Header, Malformed, Operation, SetAttr, is_unanswered};
use crate::reply::{
    Reply, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Sink,
};

/// Whether the connection continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Request,
    /// The kernel has said that it ends (DESTROY).
    End,
}

/// Has one request answered. `owner`: the only user whose requests are; other users' reads and closes of what is open are too, because
/// the kernel makes them in the name of anyone.
pub(crate) fn dispatch<F: Filesystem>(
    filesystem: &F,
    owner: Option<u32>,
    header: &Header,
    body: &[u8],
    sink: &dyn Sink,
) -> Next {
    let reply = |errno| {
        if !is_unanswered(header.opcode) {
            Reply::new(header.unique, sink).error(errno);
        }
        Next::Request
    };
    let operation = match Operation::parse(header.opcode, body) {
        Ok(operation) => operation,
        Err(Malformed::Unknown) => return reply(Errno::ENOSYS),
        Err(Malformed::Invalid) => {
            tracing::error!("a request of the kernel (operation {}) is not a valid one", header.opcode);
            return reply(Errno::EINVAL);
        }
    };
    if owner.is_some_and(|owner| owner != header.uid) && !is_for_anyone(&operation) {
        return reply(Errno::EACCES);
    }
    match operation {
        Operation::Destroy => {
            ReplyEmpty::new(Reply::new(header.unique, sink)).ok();
            return Next::End;
        }
        // The kernel then sends no more of them.
        Operation::Interrupt => return reply(Errno::ENOSYS),
        // Once at the beginning, and never again.
        Operation::Init { .. } => return reply(Errno::EIO),
        Operation::Forget { lookups } => filesystem.forget(&Request::new(*header), header.id, lookups),
        Operation::BatchForget { nodes } => filesystem.batch_forget(&Request::new(*header), &nodes),
        operation => answer(filesystem, header, operation, Reply::new(header.unique, sink)),
    }
    Next::Request
}

fn is_for_anyone(operation: &Operation<'_>) -> bool {
    matches!(
        operation,
        Operation::Init { .. }
            | Operation::Destroy
            | Operation::Read(_)
            | Operation::Write { .. }
            | Operation::Readdir(_)
            | Operation::Readdirplus(_)
            | Operation::Forget { .. }
            | Operation::BatchForget { .. }
            | Operation::Fsync { .. }
            | Operation::Fsyncdir { .. }
            | Operation::Release { .. }
            | Operation::Releasedir { .. }
    )
}

fn answer<F: Filesystem>(filesystem: &F, header: &Header, operation: Operation<'_>, reply: Reply<'_>) {
    let (request, id) = (Request::new(*header), header.id);
    match operation {
        Operation::Getattr { handle } => filesystem.getattr(&request, id, handle, ReplyAttr::new(reply)),
        Operation::Setattr(SetAttr { handle, mode, uid, gid, size, accessed, modified, changed }) => {
            let reply = ReplyAttr::new(reply);
            filesystem
                .setattr(&request, id, mode, uid, gid, size, accessed, modified, changed, handle, reply);
        }
        Operation::Readlink => filesystem.readlink(&request, id, ReplyData::new(reply)),
        Operation::Access { mask } => filesystem.access(&request, id, mask, ReplyEmpty::new(reply)),
        Operation::Statfs => filesystem.statfs(&request, id, ReplyStatfs::new(reply)),
        Operation::Setxattr { name, value, flags } => {
            filesystem.setxattr(&request, id, name, value, flags, ReplyEmpty::new(reply));
        }
        Operation::Getxattr { name, bytes_max } => {
            filesystem.getxattr(&request, id, name, bytes_max, ReplyXattr::new(reply));
        }
        Operation::Listxattr { bytes_max } => {
            filesystem.listxattr(&request, id, bytes_max, ReplyXattr::new(reply));
        }
        Operation::Removexattr { name } => filesystem.removexattr(&request, id, name, ReplyEmpty::new(reply)),
        Operation::Opendir { flags } => filesystem.opendir(&request, id, flags, ReplyOpen::new(reply)),
        Operation::Readdir(part) => {
            let reply = ReplyDirectory::new(reply, part.bytes);
            filesystem.readdir(&request, id, part.handle, part.offset, reply);
        }
        Operation::Readdirplus(part) => {
            let reply = ReplyDirectoryPlus::new(reply, part.bytes);
            filesystem.readdirplus(&request, id, part.handle, part.offset, reply);
        }
        Operation::Releasedir { handle, flags } => {
            filesystem.releasedir(&request, id, handle, flags, ReplyEmpty::new(reply));
        }
        Operation::Fsyncdir { handle, data_only } => {
            filesystem.fsyncdir(&request, id, handle, data_only, ReplyEmpty::new(reply));
        }
        operation => answer_by_name(filesystem, &request, header, operation, reply),
    }
}

/// What takes names.
fn answer_by_name<F: Filesystem>(
    filesystem: &F,
    request: &Request,
    header: &Header,
    operation: Operation<'_>,
    reply: Reply<'_>,
) {
    let id = header.id;
    match operation {
        Operation::Lookup { name } => filesystem.lookup(request, id, name, ReplyEntry::new(reply)),
        Operation::Symlink { name, target } => {
            filesystem.symlink(request, id, name, target, ReplyEntry::new(reply));
        }
        Operation::Mknod { name, mode, umask, device } => {
            filesystem.mknod(request, id, name, mode, umask, device, ReplyEntry::new(reply));
        }
        Operation::Mkdir { name, mode, umask } => {
            filesystem.mkdir(request, id, name, mode, umask, ReplyEntry::new(reply));
        }
        Operation::Unlink { name } => filesystem.unlink(request, id, name, ReplyEmpty::new(reply)),
        Operation::Rmdir { name } => filesystem.rmdir(request, id, name, ReplyEmpty::new(reply)),
        Operation::Rename { name, to, new_name, flags } => {
            filesystem.rename(request, id, name, to, new_name, flags, ReplyEmpty::new(reply));
        }
        Operation::Link { id: linked, new_name } => {
            filesystem.link(request, linked, id, new_name, ReplyEntry::new(reply));
        }
        Operation::Create { name, flags, mode, umask } => {
            filesystem.create(request, id, name, mode, umask, flags, ReplyCreate::new(reply));
        }
        operation => answer_for_file(filesystem, request, header, operation, reply),
    }
}

/// What is done with an open file.
fn answer_for_file<F: Filesystem>(
    filesystem: &F,
    request: &Request,
    header: &Header,
    operation: Operation<'_>,
    reply: Reply<'_>,
) {
    let id = header.id;
    match operation {
        Operation::Open { flags } => filesystem.open(request, id, flags, ReplyOpen::new(reply)),
        Operation::Read(part) => {
            let (reply, owner) = (ReplyData::new(reply), part.lock_owner);
            filesystem.read(request, id, part.handle, part.offset, part.bytes, part.flags, owner, reply);
        }
        Operation::Write { transfer: part, flags, data } => {
            let (reply, owner) = (ReplyWrite::new(reply), part.lock_owner);
            filesystem.write(request, id, part.handle, part.offset, data, flags, part.flags, owner, reply);
        }
        Operation::Flush { handle, lock_owner } => {
            filesystem.flush(request, id, handle, lock_owner, ReplyEmpty::new(reply));
        }
        Operation::Release { handle, flags, lock_owner, flush } => {
            filesystem.release(request, id, handle, flags, lock_owner, flush, ReplyEmpty::new(reply));
        }
        Operation::Fsync { handle, data_only } => {
            filesystem.fsync(request, id, handle, data_only, ReplyEmpty::new(reply));
        }
        Operation::Ioctl { handle, flags, command, data, bytes_max } => {
            filesystem.ioctl(request, id, handle, flags, command, data, bytes_max, ReplyIoctl::new(reply));
        }
        Operation::Fallocate { handle, offset, length, mode } => {
            filesystem.fallocate(request, id, handle, offset, length, mode, ReplyEmpty::new(reply));
        }
        Operation::Lseek { handle, offset, whence } => {
            filesystem.lseek(request, id, handle, offset, whence, ReplyLseek::new(reply));
        }
        Operation::CopyFileRange { from, to_id, to, length, flags } => {
            let flags = CopyFileRangeFlags::from_bits_retain(flags);
            let reply = ReplyWrite::new(reply);
            filesystem.copy_file_range(request, id, from.0, from.1, to_id, to.0, to.1, length, flags, reply);
        }
        // All others are answered before.
        _ => reply.error(Errno::ENOSYS),
    }
}

#[cfg(test)]
mod tests;
