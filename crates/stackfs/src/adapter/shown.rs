//! Attributes, times, kinds, device numbers and flags as the protocol has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuse::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::{OFlags, Statx};

use crate::tree::Set;

/// What of a program's flags matters to the descriptor below. Appending is the kernel's work here, which sends
/// offsets; unbuffered transfers would need aligned memory.
pub(super) fn flags_below(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags as u32) & (OFlags::RWMODE | OFlags::SYNC | OFlags::DSYNC | OFlags::NOATIME)
}

pub(super) fn set_to(time: TimeOrNow) -> Set {
    match time {
        TimeOrNow::Now => Set::Now,
        TimeOrNow::SpecificTime(time) => match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Set::At { seconds: after.as_secs() as i64, nanoseconds: after.subsec_nanos() },
            // Nanoseconds are always added, before 1970 too.
            Err(error) => {
                let before = error.duration();
                match before.subsec_nanos() {
                    0 => Set::At { seconds: -(before.as_secs() as i64), nanoseconds: 0 },
                    nanoseconds => Set::At {
                        seconds: -(before.as_secs() as i64) - 1,
                        nanoseconds: 1_000_000_000 - nanoseconds,
                    },
                }
            }
        },
    }
}

pub(super) fn attributes(ino: u64, attributes: &Statx) -> FileAttr {
    let mode = u32::from(attributes.stx_mode);
    FileAttr {
        ino: INodeNo(ino),
        size: attributes.stx_size,
        blocks: attributes.stx_blocks,
        atime: time(&attributes.stx_atime),
        mtime: time(&attributes.stx_mtime),
        ctime: time(&attributes.stx_ctime),
        kind: kind(rustix::fs::FileType::from_raw_mode(mode)),
        perm: (mode & 0o7777) as u16,
        nlink: attributes.stx_nlink,
        uid: attributes.stx_uid,
        gid: attributes.stx_gid,
        rdev: device_shown(attributes.stx_rdev_major, attributes.stx_rdev_minor),
        blksize: attributes.stx_blksize,
    }
}

/// Attributes of nothing.
pub(super) fn missing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
    }
}

fn time(stamp: &rustix::fs::StatxTimestamp) -> SystemTime {
    moment(stamp.tv_sec, stamp.tv_nsec)
}

fn moment(seconds: i64, nanoseconds: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let begun = if seconds >= 0 { UNIX_EPOCH + whole } else { UNIX_EPOCH - whole };
    begun + Duration::from_nanos(nanoseconds.into())
}

pub(super) fn kind(kind: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Lower;
    match kind {
        Lower::Directory => FileType::Directory,
        Lower::Symlink => FileType::Symlink,
        Lower::Fifo => FileType::NamedPipe,
        Lower::Socket => FileType::Socket,
        Lower::CharacterDevice => FileType::CharDevice,
        Lower::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

/// Device numbers have 12 bits of major and 20 of minor in the protocol, the minor's upper ones above the major.
fn device_shown(major: u32, minor: u32) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

pub(super) fn device_below(shown: u32) -> u64 {
    rustix::fs::makedev(shown >> 8 & 0xfff, shown & 0xff | shown >> 12 & 0xfff00)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_come_back_as_they_went() {
        for (major, minor) in [(0, 0), (1, 3), (8, 17), (259, 300_000), (4095, 0xf_ffff)] {
            let below = device_below(device_shown(major, minor));
            assert_eq!((rustix::fs::major(below), rustix::fs::minor(below)), (major, minor));
        }
    }

    #[test]
    fn times_before_1970_are_set_exactly() {
        for (seconds, nanoseconds) in [(-2, 250_000_000), (-2, 0), (0, 1), (2, 999_999_999)] {
            let set = set_to(TimeOrNow::SpecificTime(moment(seconds, nanoseconds)));
            assert_eq!(set, Set::At { seconds, nanoseconds });
        }
        assert_eq!(set_to(TimeOrNow::Now), Set::Now);
    }

    #[test]
    fn times_before_1970_are_told_exactly() {
        assert_eq!(moment(-2, 250_000_000), UNIX_EPOCH - Duration::from_millis(1750));
        assert_eq!(moment(2, 250_000_000), UNIX_EPOCH + Duration::from_millis(2250));
    }
}
