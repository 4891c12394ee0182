//! The hash-tree index of an ext4 directory: what fits into its blocks.
//!
//! ```text
//! root: 1 block            at most two levels of index without `large_dir`
//!   nodes: up to `root_entries`
//!     leaves: up to `node_entries` below each node; a leaf holds names of one interval of hashes
//! ```
//!
//! Not here: how the tree grows (see `growth`), how many names it holds in the end (see `range`).
//! Source: Linux kernel documentation, "ext4 Data Structures and Algorithms", sections "Linear (Classic) Directories" and
//! "Hash Tree Directories".

mod growth;
mod range;

pub use self::growth::{Records, Tree};
pub use self::range::{Names, Now, names_when_full};

/// Bytes of an entry of the index: a hash and a block number.
const INDEX_ENTRY_BYTES: u32 = 8;
/// Bytes before the entries of the root: `.`, `..` and the root's own fields.
const ROOT_HEAD_BYTES: u32 = 32;
/// Bytes before the entries of a node: a directory entry without a name.
const NODE_HEAD_BYTES: u32 = 8;
/// Bytes of the checksum at the end of an index block.
const INDEX_TAIL_BYTES: u32 = 8;
/// Bytes of the checksum at the end of a leaf.
const LEAF_TAIL_BYTES: u32 = 12;
/// Bytes of `.` and `..` in the first block of a directory that has no index yet.
const DOTS_BYTES: u32 = 24;

/// What decides how much an index block and a leaf hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Whether blocks end with a checksum (the feature `metadata_csum`).
    pub checksums: bool,
    /// Blocks that a directory may have (the mount option `max_dir_size_kb`).
    pub blocks_max: Option<u64>,
}

impl Shape {
    /// Nodes below the root.
    pub fn root_entries(self) -> usize {
        self.index_entries(ROOT_HEAD_BYTES)
    }

    /// Leaves below a node.
    pub fn node_entries(self) -> usize {
        self.index_entries(NODE_HEAD_BYTES)
    }

    fn index_entries(self, head_bytes: u32) -> usize {
        let tail_bytes = if self.checksums { INDEX_TAIL_BYTES } else { 0 };
        ((self.block_bytes - head_bytes - tail_bytes) / INDEX_ENTRY_BYTES) as usize
    }

    /// Bytes of a leaf for directory entries.
    pub fn leaf_bytes(self) -> u32 {
        self.block_bytes - if self.checksums { LEAF_TAIL_BYTES } else { 0 }
    }

    /// The same of the only block of a directory that has no index yet.
    pub(crate) fn first_leaf_bytes(self) -> u32 {
        self.leaf_bytes() - DOTS_BYTES
    }
}

/// Bytes of a directory entry: inode, lengths and type, and the name, in multiples of four.
pub fn entry_bytes(name_bytes: usize) -> u32 {
    (8 + name_bytes as u32).next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_what_the_kernel_writes_into_them() {
        // `dumpe2fs` and `debugfs -R 'htree_dump'` of images made by mke2fs: limits 123 and 126, 507 and 510; without
        // checksums 124 and 127.
        let small = Shape { block_bytes: 1024, checksums: true, blocks_max: None };
        assert_eq!((small.root_entries(), small.node_entries(), small.leaf_bytes()), (123, 126, 1012));
        let plain = Shape { checksums: false, ..small };
        assert_eq!((plain.root_entries(), plain.node_entries(), plain.leaf_bytes()), (124, 127, 1024));
        let usual = Shape { block_bytes: 4096, ..small };
        assert_eq!((usual.root_entries(), usual.node_entries(), usual.leaf_bytes()), (507, 510, 4084));
    }

    #[test]
    fn an_entry_is_a_multiple_of_four_bytes_and_at_least_twelve() {
        assert_eq!([1, 4, 5, 16, 17, 40, 255].map(entry_bytes), [12, 12, 16, 24, 28, 48, 264]);
    }
}
