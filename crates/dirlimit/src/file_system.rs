//! The file system of a tree: its kind, its blocks and inodes, and how its directories are indexed.
//!
//! Not here: what a directory holds (see `walk`).

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use measure::proc::MountInfo;

use crate::superblock::Superblock;

/// `FS_INDEX_FL`: the directory has a hash-tree index.
const INDEX_FLAG: u32 = 0x1000;

/// The file system that holds a tree.
#[derive(Clone, Debug, PartialEq)]
pub struct FileSystem {
    /// Such as `ext4`; empty when no mount was found.
    pub kind: String,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Inodes in all; 0 where the file system counts none (btrfs).
    pub inodes: u64,
    /// Inodes that are free.
    pub inodes_free: u64,
    /// Bytes that are free for users.
    pub bytes_free: u64,
    /// The limit of a directory's size that a mount option sets, in blocks.
    pub directory_blocks_max: Option<u64>,
    /// What the superblock says; none when it could not be read.
    pub superblock: Option<Superblock>,
}

impl FileSystem {
    /// That of an open directory whose path is `path`.
    ///
    /// # Errors
    /// When the file system cannot be asked.
    pub fn of(directory: &File, path: &Path) -> io::Result<Self> {
        let device = directory.metadata()?.dev();
        let space = rustix::fs::fstatvfs(directory)?;
        let mount = mount_of(path);
        let kind = mount.as_ref().map_or_else(String::new, |mount| mount.kind.clone());
        let block_bytes = u32::try_from(space.f_bsize).unwrap_or(u32::MAX);
        let is_ext4 = is_ext4(&kind);
        Ok(Self {
            block_bytes,
            inodes: space.f_files,
            inodes_free: space.f_favail,
            bytes_free: space.f_bavail.saturating_mul(space.f_frsize),
            directory_blocks_max: mount.as_ref().filter(|_| is_ext4).and_then(|mount| {
                size_option(&mount.options).map(|kib| (kib << 10) / u64::from(block_bytes.max(1)))
            }),
            superblock: mount.filter(|_| is_ext4).and_then(|mount| Superblock::of(&mount, device).ok()),
            kind,
        })
    }

    /// Whether the kernel's ext4 keeps it, which also serves ext2 and ext3.
    pub fn is_ext4(&self) -> bool {
        is_ext4(&self.kind)
    }

    /// Whether the number of inodes is fixed when the file system is made. Others make inodes as long as there are bytes.
    pub fn has_fixed_inodes(&self) -> bool {
        self.inodes > 0 && (self.is_ext4() || self.kind == "tmpfs")
    }
}

fn is_ext4(kind: &str) -> bool {
    ["ext2", "ext3", "ext4"].contains(&kind)
}

/// The mount that a path is seen through.
fn mount_of(path: &Path) -> Option<MountInfo> {
    MountInfo::governing(path, &MountInfo::all().ok()?).cloned()
}

/// The option `max_dir_size_kb`.
fn size_option(options: &str) -> Option<u64> {
    let text = options.split(',').find_map(|option| option.strip_prefix("max_dir_size_kb="))?;
    text.parse().ok().filter(|kib| *kib > 0)
}

/// Whether an open directory has a hash-tree index; none where the file system has no such flags.
pub(crate) fn is_indexed(directory: &File) -> Option<bool> {
    rustix::fs::ioctl_getflags(directory).ok().map(|flags| flags.bits() & INDEX_FLAG != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_size_is_an_option_of_the_mount() {
        assert_eq!(size_option("rw,relatime,max_dir_size_kb=4096"), Some(4096));
        assert_eq!(size_option("rw,max_dir_size_kb=0"), None);
        assert_eq!(size_option("rw"), None);
    }

    #[test]
    fn the_file_system_of_a_directory_is_known_by_its_mount() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let system = FileSystem::of(&File::open(&path).unwrap(), &path).unwrap();
        assert!(!system.kind.is_empty() && system.block_bytes >= 512, "{system:?}");
    }
}
