//! Whether the storage has room for what is asked, before hours go into filling it.

use files::{Fsstat, Layout};

use crate::DirscaleConfig;

/// What directories of a size take, together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub bytes: u64,
    pub inodes: u64,
}

/// What is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub bytes: u64,
    /// None where inodes are made as they are needed.
    pub inodes: Option<u64>,
}

/// Data is kept in blocks of this size on nearly all storage; where they are smaller, this overestimates.
const BLOCK_BYTES: u64 = 4096;
/// Inode and directory entry: 256 to 512 bytes and 16 to 80.
const FILE_OVERHEAD_BYTES: u64 = 640;
/// File systems slow down or refuse when nearly full.
const USABLE_PERCENT: u64 = 95;

impl Need {
    /// Directories of `size` files each, with the files that are added for a while.
    pub fn of(config: &DirscaleConfig, layouts: &[Layout], size: u64) -> Self {
        let (filling, added) = (size.saturating_mul(layouts.len() as u64), Self::added(config, layouts));
        let files = filling.saturating_add(added);
        let directories: u64 = layouts.iter().map(|layout| layout.directories().count() as u64 + 1).sum();
        Self {
            bytes: filling
                .saturating_mul(Self::file_bytes(config.fill_bytes()))
                .saturating_add(added.saturating_mul(Self::file_bytes(config.file_bytes)))
                .saturating_add((directories + 2) * BLOCK_BYTES),
            inodes: files.saturating_add(directories + 2),
        }
    }

    /// What files that are there take, and the directories of all layouts.
    pub fn of_files(config: &DirscaleConfig, layouts: &[Layout], files: u64) -> Self {
        let directories = Self::of(config, layouts, 0);
        let added = Self::added(config, layouts);
        Self {
            bytes: (directories.bytes - added * Self::file_bytes(config.file_bytes))
                + files * Self::file_bytes(config.fill_bytes()),
            inodes: directories.inodes - added + files,
        }
    }

    /// Files that measurements add for a while, in all layouts together.
    fn added(config: &DirscaleConfig, layouts: &[Layout]) -> u64 {
        config.operations() * layouts.len() as u64
    }

    fn file_bytes(content_bytes: u32) -> u64 {
        u64::from(content_bytes).next_multiple_of(BLOCK_BYTES) + FILE_OVERHEAD_BYTES
    }

    /// The same, less what is there already.
    pub fn beyond(self, there: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(there.bytes),
            inodes: self.inodes.saturating_sub(there.inodes),
        }
    }
}

impl Room {
    /// As the storage reports it. Storage without a limit of inodes says that it has none in all (btrfs, some servers).
    pub fn of(space: &Fsstat) -> Self {
        Self {
            bytes: space.bytes_available / 100 * USABLE_PERCENT,
            inodes: (space.files_total > 0).then_some(space.files_available),
        }
    }

    pub fn holds(&self, need: Need) -> bool {
        need.bytes <= self.bytes && self.inodes.is_none_or(|inodes| need.inodes <= inodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_short_by_bytes_or_by_inodes() {
        let config = DirscaleConfig::new("x");
        let need = Need::of(&config, &[Layout::Flat, Layout::D345], 10_000);
        assert_eq!(need.inodes, 2 * 11_000 + 1000 + 2 + 2);
        assert!(need.bytes > 22_000 * 4096);
        let enough = Room { bytes: need.bytes, inodes: Some(need.inodes) };
        assert!(enough.holds(need));
        // Empty files take an inode and a name each.
        let empty = DirscaleConfig { fill_bytes: Some(0), ..config };
        let of_empty = Need::of(&empty, &[Layout::Flat, Layout::D345], 10_000);
        assert_eq!(of_empty.bytes, need.bytes - 20_000 * 4096);
        assert!(!Room { bytes: need.bytes - 1, ..enough }.holds(need));
        assert!(!Room { inodes: Some(need.inodes - 1), ..enough }.holds(need));
        assert!(Room { inodes: None, ..enough }.holds(need));
    }

    #[test]
    fn sizes_without_room_are_not_announced() {
        let config =
            DirscaleConfig { sizes: "10,100,1000,100000".parse().unwrap(), ..DirscaleConfig::new("x") };
        let layouts = [Layout::Flat, Layout::D345];
        let bytes_available = Need::of(&config, &layouts, 2000).bytes * 100 / USABLE_PERCENT;
        let space = Fsstat { bytes_available, files_total: 0, files_available: 0, ..Fsstat::default() };
        assert_eq!(config.sizes_in(&space).as_slice(), [10, 100, 1000]);
        let full = Fsstat { bytes_available: 0, ..space };
        assert_eq!(config.sizes_in(&full), config.sizes, "which the run refuses");
        let kept = DirscaleConfig { keep: crate::Keep::Reuse, ..config };
        assert_eq!(kept.sizes_in(&space), kept.sizes);
    }

    #[test]
    fn storage_that_counts_no_inodes_has_no_limit_of_them() {
        let space = Fsstat { bytes_available: 1000, files_total: 0, files_available: 0, ..Fsstat::default() };
        assert_eq!(Room::of(&space), Room { bytes: 950, inodes: None });
    }
}
