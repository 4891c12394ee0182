//! The operations that are timed.

use serde::{Deserialize, Serialize};

/// One kind of operation, as a program makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// open(2) with `O_CREAT | O_EXCL`, write(2) of the whole file, close(2).
    Create,
    /// lstat(2) after the kernel's caches were dropped. It needs root.
    StatCold,
    /// lstat(2) of what was looked up before.
    StatWarm,
    /// open(2), read(2) of the whole file, close(2); its pages are in memory.
    OpenReadClose,
    /// getdents64(2) of the whole directory and lstat(2) of each entry, for each entry.
    List,
    /// pwrite(2) of 4 KiB over what is there, in an open file of 1 MiB.
    SmallWrite,
    /// pread(2) of 4 KiB in memory, in an open file of 1 MiB.
    SmallRead,
    /// rename(2) within the directory.
    Rename,
    /// unlink(2).
    Unlink,
}

impl Work {
    /// In the order of measuring: each finds what those before it left.
    pub const ALL: [Self; 9] = [
        Self::Create,
        Self::StatCold,
        Self::StatWarm,
        Self::OpenReadClose,
        Self::List,
        Self::SmallWrite,
        Self::SmallRead,
        Self::Rename,
        Self::Unlink,
    ];

    /// For names of phases and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::StatCold => "stat_cold",
            Self::StatWarm => "stat_warm",
            Self::OpenReadClose => "open_read_close",
            Self::List => "list",
            Self::SmallWrite => "small_write",
            Self::SmallRead => "small_read",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
        }
    }

    /// For tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Create => "create, write, close",
            Self::StatCold => "stat, cold",
            Self::StatWarm => "stat, warm",
            Self::OpenReadClose => "open, read, close",
            Self::List => "list and stat",
            Self::SmallWrite => "write 4 KiB",
            Self::SmallRead => "read 4 KiB",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
        }
    }
}
