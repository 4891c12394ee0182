//! The features of an ext4 file system, read from its superblock: only root may read the block device.
//!
//! Not here: what can be known without it (see `file_system`).
//! Source: Linux kernel documentation, "ext4 Data Structures and Algorithms", section "Super Block".

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use measure::proc::MountInfo;

/// Where the superblock begins on the device.
const AT: u64 = 1024;
const BYTES: usize = 1024;
const MAGIC: u16 = 0xEF53;

/// What the superblock says of directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// `dir_index`: directories of more than one block get an index.
    pub dir_index: bool,
    /// `large_dir`: the index may have a third level.
    pub large_dir: bool,
    /// `metadata_csum`: blocks end with a checksum.
    pub checksums: bool,
}

impl Superblock {
    /// Of the device that a mount shows.
    ///
    /// # Errors
    /// When the device cannot be read (root alone may), is another one, or has no such file system.
    pub fn of(mount: &MountInfo, device: u64) -> io::Result<Self> {
        let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let by_number = PathBuf::from("/dev/block").join(numbers);
        let is_it = |path: &Path| std::fs::metadata(path).is_ok_and(|found| found.rdev() == device);
        // In containers the source of a mount is often a name that is not there.
        let path = [mount.source.clone(), by_number].into_iter().find(|path| is_it(path));
        let path = path.ok_or(io::ErrorKind::NotFound)?;
        let mut block = [0; BYTES];
        File::open(path)?.read_exact_at(&mut block, AT)?;
        Self::parse(&block).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// None when it is not one of ext2, ext3 or ext4.
    fn parse(block: &[u8; BYTES]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        let (compatible, incompatible, read_only) = (number(0x5C), number(0x60), number(0x64));
        (u16::from_le_bytes([block[0x38], block[0x39]]) == MAGIC).then_some(Self {
            dir_index: compatible & 0x20 != 0,
            large_dir: incompatible & 0x4000 != 0,
            checksums: read_only & 0x400 != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_bits_of_three_words_and_another_file_system_has_none() {
        let mut block = [0; BYTES];
        assert_eq!(Superblock::parse(&block), None);
        block[0x38..0x3A].copy_from_slice(&[0x53, 0xEF]);
        let none = Superblock { dir_index: false, large_dir: false, checksums: false };
        assert_eq!(Superblock::parse(&block), Some(none));
        // As mke2fs 1.47 writes them by default: 0x23c, 0x2c2, 0x46b.
        block[0x5C..0x5E].copy_from_slice(&[0x3c, 0x02]);
        block[0x60..0x62].copy_from_slice(&[0xc2, 0x02]);
        block[0x64..0x66].copy_from_slice(&[0x6b, 0x04]);
        let usual = Superblock { dir_index: true, large_dir: false, checksums: true };
        assert_eq!(Superblock::parse(&block), Some(usual));
        block[0x61] |= 0x40;
        assert_eq!(Superblock::parse(&block), Some(Superblock { large_dir: true, ..usual }));
    }
}
