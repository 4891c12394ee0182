//! What requests and replies consist of.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An inode's number, chosen by the file system when the inode is first looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct INodeNo(pub u64);

impl INodeNo {
    /// The root of every FUSE file system.
    pub const ROOT: Self = Self(1);
}

/// What the file system calls an open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileHandle(pub u64);

/// Distinguishes inodes that had the same number one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generation(pub u64);

/// The owner of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockOwner(pub u64);

/// The flags with which a program opened a file, as in open(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpenFlags(pub i32);

/// References to an inode that the kernel returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForgetOne {
    pub(crate) id: INodeNo,
    pub(crate) lookups: u64,
}

impl ForgetOne {
    /// The inode.
    pub fn nodeid(&self) -> INodeNo {
        self.id
    }

    /// How many references.
    pub fn nlookup(&self) -> u64 {
        self.lookups
    }
}

/// An error of a request, as errno(3) numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($name:ident $from:ident)*) => {
        #[allow(missing_docs)]
        impl Errno {
            $(pub const $name: Self = Self(rustix::io::Errno::$from.raw_os_error());)*
        }
    };
}

errnos! {
    EACCES ACCESS EBADF BADF EEXIST EXIST EFBIG FBIG EINVAL INVAL EIO IO EISDIR ISDIR ENOENT NOENT ENOSYS NOSYS
    ENOTDIR NOTDIR ENOTEMPTY NOTEMPTY ENOTTY NOTTY EPERM PERM ERANGE RANGE ESTALE STALE
}

impl Errno {
    /// By number; what is not a number of errno(3) becomes EIO.
    pub fn from_i32(number: i32) -> Self {
        if (1..4096).contains(&number) { Self(number) } else { Self::EIO }
    }

    /// The number, above 0.
    pub fn code(self) -> i32 {
        self.0
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::from_i32(errno.raw_os_error())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        rustix::io::Errno::from_raw_os_error(self.0).fmt(f)
    }
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FileType {
    NamedPipe,
    CharDevice,
    BlockDevice,
    Directory,
    RegularFile,
    Symlink,
    Socket,
}

impl FileType {
    /// The bits of a mode that say so.
    pub(crate) fn mode(self) -> u32 {
        match self {
            Self::NamedPipe => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::RegularFile => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }
}

/// Attributes of an inode, as stat(2) has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAttr {
    /// The number.
    pub ino: INodeNo,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: SystemTime,
    /// Last written.
    pub mtime: SystemTime,
    /// Last changed.
    pub ctime: SystemTime,
    /// What it is.
    pub kind: FileType,
    /// Twelve bits.
    pub perm: u16,
    /// Names that lead to it.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Of a device file.
    pub rdev: u32,
    /// Bytes that are best transferred at once.
    pub blksize: u32,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOrNow {
    /// This one.
    SpecificTime(SystemTime),
    /// The time at which it is set.
    Now,
}

/// Seconds since 1970, and nanoseconds that are always added.
pub(super) fn to_seconds(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => (-seconds, 0),
                nanoseconds => (-seconds - 1, 1_000_000_000 - nanoseconds),
            }
        }
    }
}

/// The opposite; `None` where no such time can be represented.
pub(super) fn from_seconds(seconds: i64, nanoseconds: u32) -> Option<SystemTime> {
    if nanoseconds >= 1_000_000_000 {
        return None;
    }
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let begun = if seconds >= 0 { UNIX_EPOCH.checked_add(whole) } else { UNIX_EPOCH.checked_sub(whole) };
    begun?.checked_add(Duration::from_nanos(nanoseconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_nanoseconds_on_both_sides_of_1970() {
        for (seconds, nanoseconds) in
            [(0, 0), (2, 250_000_000), (-2, 250_000_000), (-1, 0), (-1, 999_999_999)]
        {
            let time = from_seconds(seconds, nanoseconds).unwrap();
            assert_eq!(to_seconds(time), (seconds, nanoseconds));
        }
        assert_eq!(from_seconds(-2, 250_000_000).unwrap(), UNIX_EPOCH - Duration::from_millis(1750));
        assert_eq!(from_seconds(0, 1_000_000_000), None);
        assert!(from_seconds(i64::MIN, 0).is_none_or(|time| to_seconds(time).0 <= -i64::MAX));
    }

    #[test]
    fn what_is_no_error_number_becomes_an_input_output_error() {
        assert_eq!(Errno::from_i32(2), Errno::ENOENT);
        for number in [0, -2, 4096, i32::MIN] {
            assert_eq!(Errno::from_i32(number), Errno::EIO);
        }
    }
}
