//! Directories by themselves: their own size, their names, their index, and what a name that is not there costs.
//!
//! ext4 marks a directory that has an index of its names (`FS_INDEX_FL`, the `I` of lsattr(1)). One of several blocks without it
//! is searched from its beginning for each lookup. The flag can be read by any user, unlike the features in the superblock.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::ioctl_getflags;

use crate::target::mount_of;
use crate::{DirectoryFacts, NamesMax};

/// Longest time to look for large directories.
pub const TIME_MAX: Duration = Duration::from_secs(2);
/// Longest time to count the names of one directory.
const COUNTING_MAX: Duration = Duration::from_millis(1500);
/// Longest time for lookups in one directory.
const LOOKUPS_MAX: Duration = Duration::from_millis(400);
const LOOKUPS: usize = 64;
/// Smaller directories are far from any limit.
const PREDICTED_FROM: u64 = 512;
/// Entries that the search reads.
const ENTRIES_MAX: u64 = 200_000;
/// Bits of the inode's flags (linux/fs.h).
const INDEX: u32 = 0x1000;
const CASEFOLD: u32 = 0x4000_0000;

/// What was seen below a directory.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The directory whose own size is largest, if it is not in one block.
    pub largest: Option<PathBuf>,
    /// Directories looked at.
    pub directories: u64,
    /// All of them were looked at.
    pub is_complete: bool,
}

/// Looks at one directory; none where it cannot be read.
pub fn directory(path: &Path, stop: &AtomicBool) -> Option<DirectoryFacts> {
    let open = File::open(path).ok()?;
    let stat = open.metadata().ok()?;
    let flags = ioctl_getflags(&open).map_or(0, |flags| flags.bits());
    let is_ext = mount_of(path).is_some_and(|mount| matches!(&*mount.kind, "ext2" | "ext3" | "ext4"));
    let (names, is_counted) = count(path, stop);
    let is_indexed = is_ext.then(|| indexed(flags, stat.size(), stat.blksize())).flatten();
    let is_predicted = is_indexed == Some(true) && is_counted && names >= PREDICTED_FROM;
    Some(DirectoryFacts {
        path: path.to_owned(),
        own_bytes: stat.size(),
        block_bytes: stat.blksize(),
        names,
        is_counted,
        is_indexed,
        folds_case: flags & CASEFOLD != 0,
        negative_lookup_us: negative_lookup_us(path, stop),
        names_max: if is_predicted { names_max(path) } else { None },
        managed: None,
    })
}

/// Between which numbers of names its index is full; none where it has no such limit.
fn names_max(path: &Path) -> Option<NamesMax> {
    match dirlimit::directory(path).ok()?.limit {
        dirlimit::Limit::Index(names) => {
            Some(NamesMax { low: outward(names.low, f64::floor), high: outward(names.high, f64::ceil) })
        }
        _ => None,
    }
}

/// In four digits, away from the other end of the range: three would make it wider by 1.5% where it begins with a 1.
fn outward(names: f64, round: impl Fn(f64) -> f64) -> u64 {
    let unit = 10_f64.powi((names.max(1.0).log10().floor() as i32 - 3).max(0));
    (round(names / unit) * unit).round() as u64
}

/// Whether an ext4 directory has an index; none where one block holds it, which needs none.
fn indexed(flags: u32, own_bytes: u64, block_bytes: u64) -> Option<bool> {
    if flags & INDEX != 0 { Some(true) } else { (own_bytes > block_bytes).then_some(false) }
}

/// Whether a new directory at `path` of this many bytes got an index.
pub fn is_indexed(path: &Path) -> Option<bool> {
    let open = File::open(path).ok()?;
    let stat = open.metadata().ok()?;
    indexed(ioctl_getflags(&open).ok()?.bits(), stat.size(), stat.blksize())
}

fn count(path: &Path, stop: &AtomicBool) -> (u64, bool) {
    let Ok(entries) = fs::read_dir(path) else { return (0, false) };
    let begun = Instant::now();
    let mut names = 0;
    for entry in entries {
        if entry.is_err() || stop.load(Ordering::Relaxed) {
            return (names, false);
        }
        names += 1;
        if names % 1024 == 0 && begun.elapsed() > COUNTING_MAX {
            return (names, false);
        }
    }
    (names, true)
}

/// Median cost of a name that is not there, each another name, so that no cache of names can answer.
fn negative_lookup_us(path: &Path, stop: &AtomicBool) -> Option<f64> {
    let begun = Instant::now();
    let mut costs = Vec::with_capacity(LOOKUPS);
    for number in 0..LOOKUPS {
        let name = path.join(format!("crumb-doctor-{:x}-no-{number}", std::process::id()));
        let lookup = Instant::now();
        if fs::symlink_metadata(&name).is_ok() {
            continue;
        }
        costs.push(lookup.elapsed().as_secs_f64() * 1e6);
        if begun.elapsed() > LOOKUPS_MAX || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    median(&mut costs)
}

/// The middle one, of an even number the mean of the middle two.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// Searches the tree breadth first, on its own file system, for [`TIME_MAX`] at most.
pub fn largest_below(tree: &Path, stop: &AtomicBool) -> Seen {
    let begun = Instant::now();
    let mut seen = Seen { is_complete: true, ..Seen::default() };
    let Ok(device) = fs::metadata(tree).map(|stat| stat.dev()) else { return seen };
    let mut own_bytes_max = 0;
    let (mut waiting, mut entries_seen) = (VecDeque::from([tree.to_owned()]), 0);
    while let Some(path) = waiting.pop_front() {
        seen.directories += 1;
        let Ok(entries) = fs::read_dir(&path) else { continue };
        for entry in entries.flatten() {
            entries_seen += 1;
            if stop.load(Ordering::Relaxed) || entries_seen > ENTRIES_MAX || begun.elapsed() > TIME_MAX {
                seen.is_complete = false;
                return seen;
            }
            // The listing itself says so: a large directory of files costs no call for each of them.
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            // mke2fs(8) makes it large and without an index, for fsck(8).
            if entry.file_name() == "lost+found" {
                continue;
            }
            let Ok(stat) = entry.metadata() else { continue };
            if stat.dev() != device {
                continue;
            }
            if stat.size() > own_bytes_max && stat.size() > stat.blksize() {
                own_bytes_max = stat.size();
                seen.largest = Some(entry.path());
            }
            waiting.push_back(entry.path());
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_one_block_needs_no_index_and_a_larger_one_without_is_linear() {
        assert_eq!(indexed(0, 4096, 4096), None);
        assert_eq!(indexed(0, 8192, 4096), Some(false));
        assert_eq!(indexed(INDEX | 0x80000, 8192, 4096), Some(true));
    }

    #[test]
    fn names_are_counted_and_a_name_that_is_not_there_costs_something() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..10 {
            fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        let stop = AtomicBool::new(false);
        let facts = directory(folder.path(), &stop).unwrap();
        assert_eq!((facts.names, facts.is_counted), (10, true));
        assert!(facts.negative_lookup_us.is_some_and(|us| us > 0.0), "{facts:?}");
        assert_eq!(directory(&folder.path().join("none"), &stop), None);
    }

    #[test]
    fn all_directories_below_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b/c")).unwrap();
        fs::create_dir_all(folder.path().join("d")).unwrap();
        let seen = largest_below(folder.path(), &AtomicBool::new(false));
        assert_eq!((seen.directories, seen.is_complete), (5, true));
    }

    #[test]
    fn a_range_is_rounded_outward_to_four_digits() {
        assert_eq!([127_964.2, 999.4, 7.0].map(|names| outward(names, f64::floor)), [127_900, 999, 7]);
        assert_eq!([144_001.0, 999_001.0].map(|names| outward(names, f64::ceil)), [144_100, 999_100]);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
