//! What `statx` and `statvfs` say, in NFSv3's terms.

use rustix::fs::{FileType, StatVfs, Statx, StatxFlags, StatxTimestamp};

use crate::{Attributes, FileKind, Fsstat, NodeTime, PreAttributes};

/// The fields asked for.
pub(super) const STAT_MASK: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// What makes an object itself: an inode number used again has another birth time. File systems without
/// birth times give 0 there, and then only removals through the export are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub device: u64,
    pub ino: u64,
    pub born_ns: i64,
}

impl Identity {
    pub(super) fn of(stat: &Statx) -> Self {
        let born = stat.stx_btime;
        let born_ns = if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
            0
        } else {
            born.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(born.tv_nsec))
        };
        Self { device: device_of(stat), ino: stat.stx_ino, born_ns }
    }

    /// Number for an index. Objects of two devices may share one, rarely; the index compares the whole.
    pub(super) fn key(self) -> u64 {
        self.ino ^ self.device.wrapping_mul(0xd6e8_feb8_6659_fd93)
    }
}

fn device_of(stat: &Statx) -> u64 {
    (u64::from(stat.stx_dev_major) << 32) | u64::from(stat.stx_dev_minor)
}

pub(super) fn kind_of(stat: &Statx) -> FileKind {
    match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        _ => FileKind::Regular,
    }
}

pub(crate) fn attributes_of(stat: &Statx) -> Attributes {
    Attributes {
        kind: kind_of(stat),
        mode: mode_of(stat),
        links: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: stat.stx_size,
        used: stat.stx_blocks.saturating_mul(512),
        device: (stat.stx_rdev_major, stat.stx_rdev_minor),
        fsid: device_of(stat),
        fileid: stat.stx_ino,
        atime: time_of(stat.stx_atime),
        mtime: time_of(stat.stx_mtime),
        ctime: time_of(stat.stx_ctime),
    }
}

pub(super) fn pre_attributes_of(stat: &Statx) -> PreAttributes {
    PreAttributes { size: stat.stx_size, mtime: time_of(stat.stx_mtime), ctime: time_of(stat.stx_ctime) }
}

/// Room in a file system.
pub(crate) fn space_of(space: &StatVfs) -> Fsstat {
    let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
    Fsstat {
        bytes_total: bytes(space.f_blocks),
        bytes_free: bytes(space.f_bfree),
        bytes_available: bytes(space.f_bavail),
        files_total: space.f_files,
        files_free: space.f_ffree,
        files_available: space.f_favail,
        stable_s: 0,
    }
}

/// Permission bits with set-id and sticky bits.
pub(super) fn mode_of(stat: &Statx) -> u32 {
    u32::from(stat.stx_mode) & 0o7777
}

/// Times outside of what NFSv3 can say become the nearest it can.
pub(super) fn time_of(time: StatxTimestamp) -> NodeTime {
    match u32::try_from(time.tv_sec) {
        Ok(s) => NodeTime { s, ns: time.tv_nsec },
        Err(_) if time.tv_sec < 0 => NodeTime { s: 0, ns: 0 },
        Err(_) => NodeTime { s: u32::MAX, ns: 0 },
    }
}
