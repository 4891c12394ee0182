//! Sets of bits in requests and replies.

use bitflags::bitflags;

bitflags! {
    /// What kernel and file system agree on when a mount begins (INIT).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct InitFlags: u64 {
        /// Several reads of a file at a time.
        const FUSE_ASYNC_READ = 1 << 0;
        /// Writes of more than 4 KiB.
        const FUSE_BIG_WRITES = 1 << 5;
        /// Modes come without the umask applied, and with the umask.
        const FUSE_DONT_MASK = 1 << 6;
        /// Cached pages are dropped when size or time of change differ.
        const FUSE_AUTO_INVAL_DATA = 1 << 12;
        /// Directories are read with attributes.
        const FUSE_DO_READDIRPLUS = 1 << 13;
        /// With attributes only where a program seems to want them.
        const FUSE_READDIRPLUS_AUTO = 1 << 14;
        /// Several direct transfers at a time.
        const FUSE_ASYNC_DIO = 1 << 15;
        /// ENOSYS to OPEN: files are opened without a request.
        const FUSE_NO_OPEN_SUPPORT = 1 << 17;
        /// Lookups and listings of a directory at the same time.
        const FUSE_PARALLEL_DIROPS = 1 << 18;
        /// Access control lists, checked by the kernel.
        const FUSE_POSIX_ACL = 1 << 20;
        /// `max_pages` of the reply counts.
        const FUSE_MAX_PAGES = 1 << 22;
        /// Targets of symbolic links are cached.
        const FUSE_CACHE_SYMLINKS = 1 << 23;
        /// ENOSYS to OPENDIR: directories are opened without a request.
        const FUSE_NO_OPENDIR_SUPPORT = 1 << 24;
        /// The file system clears set-user-id bits and capabilities when a file is written.
        const FUSE_HANDLE_KILLPRIV_V2 = 1 << 28;
        /// There are more than 32 flags.
        const FUSE_INIT_EXT = 1 << 30;
        /// A name can be made to expire.
        const FUSE_HAS_EXPIRE_ONLY = 1 << 35;
        /// Files that are open for direct transfers can be mapped.
        const FUSE_DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Data of a file can bypass the file system.
        const FUSE_PASSTHROUGH = 1 << 37;
        /// Requests by io_uring.
        const FUSE_OVER_IO_URING = 1 << 41;
    }

    /// How the kernel treats an open file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FopenFlags: u32 {
        /// Without the page cache.
        const FOPEN_DIRECT_IO = 1 << 0;
        /// The page cache keeps what it has of the file.
        const FOPEN_KEEP_CACHE = 1 << 1;
        /// A directory's entries are cached.
        const FOPEN_CACHE_DIR = 1 << 3;
        /// No FLUSH when it is closed.
        const FOPEN_NOFLUSH = 1 << 5;
        /// Data bypasses the file system.
        const FOPEN_PASSTHROUGH = 1 << 7;
    }

    /// About a write.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WriteFlags: u32 {
        /// From the page cache, by a guessed handle.
        const FUSE_WRITE_CACHE = 1 << 0;
        /// The owner of locks is named.
        const FUSE_WRITE_LOCKOWNER = 1 << 1;
        /// Set-user-id and set-group-id bits are to be cleared.
        const FUSE_WRITE_KILL_SUIDGID = 1 << 2;
    }

    /// As renameat2(2) has them.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RenameFlags: u32 {
        /// Not over another entry.
        const RENAME_NOREPLACE = 1 << 0;
        /// The two entries change places.
        const RENAME_EXCHANGE = 1 << 1;
        /// A whiteout stays.
        const RENAME_WHITEOUT = 1 << 2;
    }

    /// About an ioctl.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct IoctlFlags: u32 {
        /// By a program of 32 bits.
        const FUSE_IOCTL_COMPAT = 1 << 0;
        /// Any memory of the program may be read and written, in several rounds.
        const FUSE_IOCTL_UNRESTRICTED = 1 << 1;
        /// On a directory.
        const FUSE_IOCTL_DIR = 1 << 4;
    }

    /// As copy_file_range(2) has them: none yet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CopyFileRangeFlags: u64 {}
}
