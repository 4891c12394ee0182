//! What `/dev/fuse` does beside reading and writing: it joins a connection as one more reader, and takes files whose data bypasses the
//! file system.
//!
//! Always holds: the kernel checks each number and descriptor; a wrong one is an error.
//! Source: include/uapi/linux/fuse.h (`FUSE_DEV_IOC_*`).

#![expect(unsafe_code, reason = "these ioctls have no safe library")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::ioctl::opcode;

const MAGIC: u8 = 229;
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(MAGIC, 0);
const BACKING_OPEN: rustix::ioctl::Opcode = opcode::write::<BackingMap>(MAGIC, 1);
const BACKING_CLOSE: rustix::ioctl::Opcode = opcode::write::<u32>(MAGIC, 2);

/// `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

/// Makes `device`, which was just opened, one more reader of the connection that `connection` reads. A reply has to be written where its
/// request was read.
///
/// # Errors
/// When `connection` is not a connection, or `device` has one already.
pub fn join(device: BorrowedFd<'_>, connection: BorrowedFd<'_>) -> io::Result<()> {
    let source = connection.as_raw_fd() as u32;
    // SAFETY: the kernel reads four bytes of `source`, which lives, and keeps no address.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), CLONE as _, &raw const source) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Registers a file, whose data can then bypass the file system; its number.
///
/// # Errors
/// When the connection has no pass-through, the process may not (`CAP_SYS_ADMIN`), or the file is on file systems that are stacked too
/// deep.
pub fn open_backing(connection: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<u32> {
    let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: the kernel reads `map`, which lives and has its layout, and keeps no address.
    let number = unsafe { libc::ioctl(connection.as_raw_fd(), BACKING_OPEN as _, &raw const map) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// Ends a registration. Files that are open by it stay so.
///
/// # Errors
/// When there is no such number.
pub fn close_backing(connection: BorrowedFd<'_>, number: u32) -> io::Result<()> {
    // SAFETY: the kernel reads four bytes of `number`, which lives, and keeps no address.
    let done = unsafe { libc::ioctl(connection.as_raw_fd(), BACKING_CLOSE as _, &raw const number) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn what_is_no_connection_is_an_error_of_the_kernel() {
        let file = File::open("/dev/null").unwrap();
        assert!(join(file.as_fd(), file.as_fd()).is_err());
        assert!(open_backing(file.as_fd(), file.as_fd()).is_err());
        assert!(close_backing(file.as_fd(), 1).is_err());
    }
}
