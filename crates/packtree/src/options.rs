//! What may be chosen of a tree.

use std::time::Duration;

/// Sizes of a new tree, and what an open one does by itself.
#[derive(Clone, Copy, Debug)]
pub struct TreeOptions {
    /// The file `space` grows by this many bytes, 64 MiB by default. For a new tree.
    pub segment_bytes: u32,
    /// Bytes of each segment that the journal may use, 1 MiB by default. For a new tree.
    pub journal_bytes: u32,
    /// Everything is made durable at this interval, 5 s by default, as ext4 does; and threads write and merge the runs of names.
    /// `None`: it is made durable only when asked, and runs are written by the calls that make them due.
    pub flush_every: Option<Duration>,
    /// Names and inodes that were read are kept in up to this many bytes of memory, 32 MiB by default.
    pub cache_bytes: u64,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            journal_bytes: 1 << 20,
            flush_every: Some(Duration::from_secs(5)),
            cache_bytes: 32 << 20,
        }
    }
}
