//! What runs out, and from which day to which: the index of a directory, inodes, bytes.
//!
//! days until a limit = (names at the limit - names now) / growth a day, from the low end of one and the high end of the other
//! to the opposite.
//!
//! Always holds: an end that is not known is `None` and not a large number; what was assumed is a sentence in `assumptions`.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::FileType;

use crate::DirlimitError;
use crate::file_system::FileSystem;
use crate::growth::{Basis, Growth};
use crate::index::{Names, Now, Records, Shape, entry_bytes, names_when_full};
use crate::sample::Inode;
use crate::walk::{Counted, Walked, Watch, count, open, walk};

/// Smaller directories are far from any limit.
const NAMES_MIN: u64 = 512;

/// What a caller knows better.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Names made a day in the whole tree; none to estimate it. A directory's share is its share of the names.
    pub growth_per_day: Option<f64>,
    /// Length of new names in bytes; none to take those of names that are there.
    pub name_bytes: Option<u8>,
    /// Directories to predict, the largest ones.
    pub top: usize,
}

/// At which number of names a directory refuses the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Its index is full somewhere between these.
    Index(Names),
    /// `large_dir` gives the index a third level, for more names than there are inodes.
    LargeDir,
    /// ext4 without an index, searched from end to end: no limit but that of its size.
    NoIndex,
    /// Blocks so large that the index holds more names than there are inodes.
    LargeBlocks,
    /// No names to take the lengths of new ones from.
    NoNames,
    /// Not ext4: directories have no limit of their own.
    None,
}

/// Days from now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Days {
    /// The fewest days.
    pub from: f64,
    /// The most days; none when the growth may be zero.
    pub to: Option<f64>,
}

/// A directory and its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectoryPrediction {
    /// Which.
    pub path: PathBuf,
    /// Names in it.
    pub names: u64,
    /// Blocks it has.
    pub blocks: u64,
    /// Mean length of its names in bytes, or of new names as the caller says; 0 where there are none.
    pub name_bytes: f64,
    /// Names made in it a day.
    pub growth: Growth,
    /// Names at which it refuses one.
    pub limit: Limit,
    /// When; none when that is not known or never.
    pub days: Option<Days>,
}

/// Something that all directories of a file system take from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resource {
    /// How much is free.
    pub free: u64,
    /// When it runs out; none when that is not known or never.
    pub days: Option<Days>,
}

/// A tree, looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The tree, without symbolic links.
    pub tree: PathBuf,
    /// Directories in it.
    pub directories_counted: u64,
    /// Names in them.
    pub names: u64,
    /// Directories that could not be read.
    pub unreadable: u64,
    /// Where it is.
    pub file_system: FileSystem,
    /// Names made in it a day.
    pub growth: Growth,
    /// The largest directories, that of most names first.
    pub directories: Vec<DirectoryPrediction>,
    /// Inodes; none where they are made as they are needed.
    pub inodes: Option<Resource>,
    /// Bytes, at the mean size of the names looked at.
    pub bytes: Resource,
    /// Mean bytes of storage that a name's file takes.
    pub bytes_per_name: f64,
    /// What the prediction rests on, in sentences.
    pub assumptions: Vec<String>,
}

/// Predicts for a tree.
///
/// # Errors
/// When the tree cannot be read, or the caller stopped it.
pub fn predict(tree: &Path, options: &Options, watch: &mut Watch<'_>) -> Result<Prediction, DirlimitError> {
    let tree = tree.canonicalize().map_err(DirlimitError::read(tree))?;
    let file_system = open(&tree)
        .and_then(|directory| FileSystem::of(&directory, &tree))
        .map_err(DirlimitError::read(&tree))?;
    let walked = walk(&tree, NAMES_MIN, options.top, watch)?;
    let now_s = now_s();
    let growth = options
        .growth_per_day
        .map_or_else(|| Growth::sampled(walked.names, &walked.inodes, now_s), Growth::given);
    let directories = walked
        .large
        .iter()
        .map(|counted| {
            // A simulation takes up to some seconds.
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DirlimitError::Stopped { path: tree.clone() });
            }
            let growth = match options.growth_per_day {
                // The whole of an empty tree falls to its own directory.
                Some(_) if walked.names == 0 => growth,
                Some(_) => growth.times(counted.names as f64 / walked.names as f64),
                None => Growth::sampled(counted.names, &counted.inodes(), now_s),
            };
            Ok(predicted(counted, &file_system, growth, options.name_bytes))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let free = file_system.inodes_free;
    let inodes = file_system
        .has_fixed_inodes()
        .then(|| Resource { free, days: days(free as f64, free as f64, &growth) });
    let bytes_per_name = mean_bytes(&walked.inodes);
    let bytes = bytes_left(file_system.bytes_free, bytes_per_name, &growth);
    let assumptions = assumptions(&walked, &file_system, &growth, &directories, options);
    Ok(Prediction {
        tree,
        directories_counted: walked.directories,
        names: walked.names,
        unreadable: walked.unreadable,
        file_system,
        growth,
        directories,
        inodes,
        bytes,
        bytes_per_name,
        assumptions,
    })
}

/// Predicts for one directory alone, and not for those below it.
///
/// # Errors
/// When it cannot be read.
pub fn directory(path: &Path) -> Result<DirectoryPrediction, DirlimitError> {
    let looked = || {
        let path = path.canonicalize()?;
        let directory = open(&path)?;
        let file_system = FileSystem::of(&directory, &path)?;
        let counted = count(&path, &directory, &mut |_, _: FileType| true)?;
        let growth = Growth::sampled(counted.names, &counted.inodes(), now_s());
        Ok(predicted(&counted, &file_system, growth, None))
    };
    looked().map_err(DirlimitError::read(path))
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn predicted(
    counted: &Counted,
    file_system: &FileSystem,
    growth: Growth,
    name_bytes: Option<u8>,
) -> DirectoryPrediction {
    let lengths: Vec<usize> =
        name_bytes.map_or_else(|| counted.name_bytes().collect(), |bytes| vec![usize::from(bytes)]);
    let blocks = counted.size_bytes / u64::from(file_system.block_bytes.max(1));
    let limit = limit(counted, blocks, file_system, &lengths);
    let days = match limit {
        Limit::Index(names) => {
            let left = |at: f64| (at - counted.names as f64).max(0.0);
            days(left(names.low), left(names.high), &growth)
        }
        _ => None,
    };
    DirectoryPrediction {
        path: counted.path.clone(),
        names: counted.names,
        blocks,
        name_bytes: lengths.iter().sum::<usize>() as f64 / lengths.len().max(1) as f64,
        growth,
        limit,
        days,
    }
}

fn limit(counted: &Counted, blocks: u64, file_system: &FileSystem, lengths: &[usize]) -> Limit {
    if !file_system.is_ext4() {
        return Limit::None;
    }
    let superblock = file_system.superblock;
    if superblock.is_some_and(|features| features.large_dir) {
        return Limit::LargeDir;
    }
    // A directory of one block gets its index with the second one.
    let never_indexed = superblock.is_some_and(|features| !features.dir_index);
    if never_indexed || blocks > 1 && counted.indexed == Some(false) {
        return Limit::NoIndex;
    }
    let entries: Vec<u32> = lengths.iter().map(|bytes| entry_bytes(*bytes)).collect();
    let Some(records) = Records::of(&entries) else { return Limit::NoNames };
    let of = |checksums: bool| {
        let (block_bytes, blocks_max) = (file_system.block_bytes, file_system.directory_blocks_max);
        let shape = Shape { block_bytes, checksums, blocks_max };
        names_when_full(shape, &records, Some(Now { names: counted.names, blocks }))
    };
    let found = match superblock {
        Some(features) => of(features.checksums),
        None => of(true).zip(of(false)).map(|(with, without)| Names {
            low: with.low.min(without.low),
            high: with.high.max(without.high),
        }),
    };
    found.map_or(Limit::LargeBlocks, Limit::Index)
}

/// Days until `low` to `high` more names are there; none when the growth is not known or nothing is made.
fn days(low: f64, high: f64, growth: &Growth) -> Option<Days> {
    let is_known = growth.basis != Basis::Unknown && growth.high > 0.0;
    let to = (growth.low > 0.0).then(|| high / growth.low);
    is_known.then(|| Days { from: low / growth.high, to })
}

fn mean_bytes(inodes: &[Inode]) -> f64 {
    inodes.iter().map(|inode| inode.bytes as f64).sum::<f64>() / inodes.len().max(1) as f64
}

fn bytes_left(free: u64, bytes_per_name: f64, growth: &Growth) -> Resource {
    let names = free as f64 / bytes_per_name;
    Resource { free, days: if names.is_finite() { days(names, names, growth) } else { None } }
}

fn assumptions(
    walked: &Walked,
    file_system: &FileSystem,
    growth: &Growth,
    directories: &[DirectoryPrediction],
    options: &Options,
) -> Vec<String> {
    let mut all = Vec::new();
    match growth.basis {
        Basis::Given if walked.names > 0 && walked.directories > 1 => {
            all.push(
                "the growth is as given; a directory's share of it is its share of the names".to_owned(),
            );
        }
        Basis::Given => all.push("the growth is as given".to_owned()),
        Basis::Sampled { sampled, by_birth, .. } => {
            let times = if by_birth { "birth times" } else { "last changes, as birth times are not kept" };
            all.push(format!(
                "names are made on as they were: by the {times} of {sampled} names that are there; names that were removed \
                 again are not counted"
            ));
        }
        Basis::Unknown => all.push(
            "the growth is not known: all names were made within the last hour; give it with --growth"
                .to_owned(),
        ),
    }
    let indexed = directories.iter().any(|one| matches!(one.limit, Limit::Index(_)));
    if indexed {
        let lengths = if options.name_bytes.is_some() { "as given" } else { "as those there" };
        all.push(format!(
            "new names are as long {lengths}, and none is removed; the first refused name ends the range, others may still \
             fit"
        ));
    }
    if indexed && file_system.superblock.is_none() {
        all.push(
            "large_dir is taken to be off, and metadata_csum to be on or off: the superblock could not be read (it takes root, and the device)"
                .to_owned(),
        );
    }
    if file_system.has_fixed_inodes() {
        all.push("nothing outside of this tree makes or removes files on the file system".to_owned());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_from_the_nearest_limit_at_the_fastest_growth_to_the_farthest_at_the_slowest() {
        let growth = Growth { per_day: 100.0, low: 80.0, high: 125.0, ..Growth::given(0.0) };
        assert_eq!(days(1000.0, 2000.0, &growth), Some(Days { from: 8.0, to: Some(25.0) }));
        let perhaps_none = Growth { low: 0.0, ..growth };
        assert_eq!(days(1000.0, 2000.0, &perhaps_none), Some(Days { from: 8.0, to: None }));
        assert_eq!(days(1000.0, 2000.0, &Growth::given(0.0)), None);
    }

    fn look(tree: &Path, options: Options) -> Prediction {
        let (mut progress, stop) = (|_: u64, _: u64| {}, std::sync::atomic::AtomicBool::new(false));
        predict(tree, &options, &mut Watch { progress: &mut progress, stop: &stop }).unwrap()
    }

    #[test]
    fn a_given_growth_is_shared_by_names_and_a_tree_of_minutes_has_none_of_its_own() {
        // In memory where there is some: removing files takes long on some machines.
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let tree = tempfile::tempdir_in(place).unwrap();
        let large = tree.path().join("large");
        std::fs::create_dir(&large).unwrap();
        (0..599).for_each(|file| std::fs::write(large.join(format!("{file:04}")), "x").unwrap());
        let options = Options { growth_per_day: Some(600.0), name_bytes: None, top: 1 };
        let given = look(tree.path(), options);
        assert_eq!((given.names, given.directories.len()), (600, 1));
        assert!((given.directories[0].growth.per_day - 599.0).abs() < 1e-9);
        assert_eq!(given.directories[0].name_bytes, 4.0);
        let measured = look(tree.path(), Options { growth_per_day: None, ..options });
        assert_eq!((measured.growth.basis, measured.bytes.days), (Basis::Unknown, None));
        assert!(measured.assumptions[0].contains("--growth"), "{:?}", measured.assumptions);
        assert_eq!(directory(&large).unwrap().names, 599);
    }
}
