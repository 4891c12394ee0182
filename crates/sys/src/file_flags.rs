//! The extended flags of an inode: `FS_IOC_FSGETXATTR` (linux/fs.h), which chattr(1) and project quotas need.
//!
//! Not here: the plain flags, which rustix reads and sets.

#![expect(unsafe_code, reason = "an ioctl writes to memory by its number alone")]

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Getter, Opcode, ioctl, opcode};

/// Size of `struct fsxattr`.
pub const EXTENDED_FLAGS_BYTES: usize = 28;

/// The `struct fsxattr` of what is open, as the kernel writes it.
///
/// # Errors
/// `ENOTTY` or `EOPNOTSUPP` where the file system has no such flags.
pub fn extended_flags(of: impl AsFd) -> io::Result<[u8; EXTENDED_FLAGS_BYTES]> {
    const GET: Opcode = opcode::read::<[u8; EXTENDED_FLAGS_BYTES]>(b'X', 31);
    // SAFETY: the number holds the size that the kernel writes, `EXTENDED_FLAGS_BYTES`, and any bytes are a value of
    // an array of bytes.
    let get = unsafe { Getter::<GET, [u8; EXTENDED_FLAGS_BYTES]>::new() };
    // SAFETY: it writes to that array, which lives until it returns, and to nothing else.
    Ok(unsafe { ioctl(of, get) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_that_is_set_shows_among_the_extended_ones() {
        let file = tempfile::tempfile().unwrap();
        let flags = match rustix::fs::ioctl_getflags(&file) {
            Ok(flags) => flags,
            // No file flags here; then there are no extended ones either.
            Err(_) => return assert!(extended_flags(&file).is_err()),
        };
        rustix::fs::ioctl_setflags(&file, flags | rustix::fs::IFlags::NODUMP).unwrap();
        const FS_XFLAG_NODUMP: u32 = 0x80;
        let flags = extended_flags(&file).unwrap();
        assert_ne!(u32::from_ne_bytes([flags[0], flags[1], flags[2], flags[3]]) & FS_XFLAG_NODUMP, 0);
    }
}
