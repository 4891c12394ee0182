//! What may be chosen of a tree.

use std::time::Duration;

/// Sizes of a new tree, and what an open one does by itself.
#[derive(Clone, Copy, Debug)]
pub struct TreeOptions {
    /// The file `space` grows by this many bytes, 64 MiB by default. For a new tree.
    pub segment_bytes: u32,
    /// Bytes of each segment that the journal may use, 1 MiB by default. For a new tree.
    pub journal_bytes: u32,
    /// Everything is made durable at this interval, 5 s by default, as ext4 does. `None`: only when asked.
    pub flush_every: Option<Duration>,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, journal_bytes: 1 << 20, flush_every: Some(Duration::from_secs(5)) }
    }
}
