//! Short closed loops of single operations, in several places in turns, so that a disturbance of the machine meets all of them.
//!
//! ```text
//! round 1:  here: create.. stat.. lookup.. fsync.. read.. unlink..   tmpfs: the same   /tmp: the same
//! round 2:  …                                       figure = median over the rounds of each batch's mean
//! ```
//!
//! Caches: attributes of files just made, and data just written, are in the kernel's caches, and `stat` and `read cached` say what
//! these cost. `lookup of no file` takes another name each time, so the storage must look. `read dropped` drops the file's pages first
//! (`POSIX_FADV_DONTNEED`, which any user may do to files of his own that are durable); caches of the device, of a host or of a
//! server may still answer. On tmpfs nothing can be dropped.
//! Not here: load by several threads, and latencies of single operations (the benchmarks).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use files::{Access, FileSystem, FsError, SyncScope};
use rustix::fs::{Advice, Mode, OFlags, fadvise};

use crate::largest::median;
use crate::{Basic, BasicOp, PlaceFacts, Scratch};

/// Rounds, when storage is quick.
const ROUNDS: u32 = 9;
/// Small files of a batch.
const FILES: usize = 48;
/// Files that are made durable in a batch.
const DURABLE_FILES: usize = 8;
/// A batch ends after this time, with what it has.
const BATCH_MAX: Duration = Duration::from_millis(100);
/// No round begins after this time.
const TIME_MAX: Duration = Duration::from_secs(14);
const BYTES: [u8; 4096] = [0x5a; 4096];

/// A place in which to measure.
pub struct Place {
    /// Name and file system, and then the figures.
    pub facts: PlaceFacts,
    /// The directory to work in; none where none could be made.
    pub scratch: Option<Scratch>,
    batches: Vec<Batch>,
}

/// One operation several times.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Batch {
    op: BasicOp,
    mean_us: f64,
    operations: u64,
}

impl Place {
    /// A place without figures so far.
    pub fn new(facts: PlaceFacts, scratch: Option<Scratch>) -> Self {
        Self { facts, scratch, batches: Vec::new() }
    }
}

/// Measures in all places, until `stop` is set. A place in which an operation fails is left out from then on, and says why.
pub fn measure(places: &mut [Place], stop: &AtomicBool, progress: &mut dyn FnMut(u32, u32)) {
    let begun = Instant::now();
    for round in 0..ROUNDS {
        progress(round, ROUNDS);
        for place in places.iter_mut() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let Some(scratch) = place.scratch.as_ref().filter(|_| place.facts.failed.is_none()) else {
                continue;
            };
            if let Err(error) = measure_round(scratch, round, stop, &mut place.batches) {
                place.facts.failed = Some(measure::error_chain(&error));
            }
        }
        if begun.elapsed() > TIME_MAX {
            break;
        }
    }
    for place in places {
        place.facts.basics = summary(&place.batches);
    }
}

/// Figures of each operation, in the order of [`BasicOp::ALL`].
fn summary(batches: &[Batch]) -> Vec<Basic> {
    let of_op = |op: BasicOp| {
        let batches: Vec<&Batch> = batches.iter().filter(|batch| batch.op == op).collect();
        let mut means: Vec<f64> = batches.iter().map(|batch| batch.mean_us).collect();
        let median_us = median(&mut means)?;
        Some(Basic {
            op,
            median_us,
            worst_us: means.last().copied().unwrap_or(median_us),
            per_sec: 1e6 / median_us.max(1e-3),
            operations: batches.iter().map(|batch| batch.operations).sum(),
        })
    };
    BasicOp::ALL.into_iter().filter_map(of_op).collect()
}

fn measure_round(
    scratch: &Scratch,
    round: u32,
    stop: &AtomicBool,
    batches: &mut Vec<Batch>,
) -> Result<(), FsError> {
    let fs = scratch.fs();
    let names = |what: &str, count: usize| -> Vec<PathBuf> {
        (0..count).map(|number| PathBuf::from(format!("{what}-{round}-{number}"))).collect()
    };
    let (small, durable) = (names("small", FILES), names("durable", DURABLE_FILES));
    let mut batch = |op: BasicOp, paths: &[PathBuf], once: &mut dyn FnMut(&Path) -> Result<(), FsError>| {
        let begun = Instant::now();
        let mut done = 0;
        for path in paths {
            once(path)?;
            done += 1;
            if begun.elapsed() > BATCH_MAX || stop.load(Ordering::Relaxed) {
                break;
            }
        }
        let mean_us =
            begun.elapsed().as_secs_f64() * 1e6 / f64::from(u32::try_from(done).unwrap_or(1).max(1));
        batches.push(Batch { op, mean_us, operations: done as u64 });
        Ok(done)
    };
    let made = batch(BasicOp::Create, &small, &mut |path| fs.create(path)?.close())?;
    batch(BasicOp::Stat, &small[..made], &mut |path| fs.stat(path).map(drop))?;
    batch(BasicOp::NegativeLookup, &names("none", FILES), &mut |path| {
        let found = fs.stat(path).map(drop);
        found.or_else(|error| if error.status() == Some(files::Status::NOENT) { Ok(()) } else { Err(error) })
    })?;
    let written = batch(BasicOp::Fsync, &durable, &mut |path| write_durably(fs, path))?;
    batch(BasicOp::ReadCached, &durable[..written], &mut |path| read(fs, path))?;
    // Of a server no pages can be dropped: its client here has none.
    if let Some(directory) = scratch.local_path() {
        durable[..written].iter().for_each(|path| drop_pages(&directory.join(path)));
        batch(BasicOp::ReadDropped, &durable[..written], &mut |path| read(fs, path))?;
    }
    batch(BasicOp::Unlink, &small[..made], &mut |path| fs.unlink(path))?;
    durable[..written].iter().try_for_each(|path| fs.unlink(path))
}

fn write_durably(fs: &dyn FileSystem, path: &Path) -> Result<(), FsError> {
    let mut file = fs.create(path)?;
    let mut rest = &BYTES[..];
    while !rest.is_empty() {
        match file.write(rest)? {
            0 => break,
            written => rest = &rest[written.min(rest.len())..],
        }
    }
    file.sync(SyncScope::All)?;
    file.close()
}

fn read(fs: &dyn FileSystem, path: &Path) -> Result<(), FsError> {
    let mut file = fs.open(path, Access::Read)?;
    let mut buf = [0; BYTES.len()];
    while file.read(&mut buf)? > 0 {}
    file.close()
}

/// What cannot be dropped stays, as on file systems in memory.
fn drop_pages(path: &Path) {
    if let Ok(file) =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
    {
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
    }
}

/// What can be learned without writing: attributes and missing names in the directory itself.
pub fn read_only(fs: &dyn FileSystem, stop: &AtomicBool) -> Vec<Basic> {
    let mut batches = Vec::new();
    for round in 0..ROUNDS {
        let (begun, mut found, mut missing) = (Instant::now(), Vec::new(), Vec::new());
        for number in 0..FILES {
            let name = format!("{}-{round}-{number}", Scratch::name());
            let before = Instant::now();
            let stat = fs.stat(Path::new(""));
            let between = Instant::now();
            let lookup = fs.stat(Path::new(&name));
            if stat.is_err() || lookup.is_ok() || stop.load(Ordering::Relaxed) {
                break;
            }
            found.push((between - before).as_secs_f64() * 1e6);
            missing.push(between.elapsed().as_secs_f64() * 1e6);
            if begun.elapsed() > BATCH_MAX {
                break;
            }
        }
        for (op, costs) in [(BasicOp::Stat, found), (BasicOp::NegativeLookup, missing)] {
            if !costs.is_empty() {
                let mean_us = costs.iter().sum::<f64>() / costs.len() as f64;
                batches.push(Batch { op, mean_us, operations: costs.len() as u64 });
            }
        }
    }
    summary(&batches)
}

/// Whether new directories of ext4 get an index: one with names enough for two blocks shows it. None where the question makes no
/// sense, or the names could not be made.
pub fn new_directories_are_indexed(scratch: &Scratch) -> Option<bool> {
    const NAMES: usize = 48;
    const NAME_BYTES: usize = 200;
    let directory = scratch.local_path()?.join("index");
    std::fs::create_dir(&directory).ok()?;
    for number in 0..NAMES {
        std::fs::File::create(directory.join(format!("{number:0NAME_BYTES$}"))).ok()?;
    }
    crate::largest::is_indexed(&directory)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use files::LocalFs;

    use super::*;

    fn place(folder: &Path) -> Place {
        let fs = Arc::new(LocalFs::open(folder).unwrap());
        Place::new(PlaceFacts::default(), Some(Scratch::make(fs).unwrap()))
    }

    #[test]
    fn every_operation_is_measured_in_every_place_and_nothing_is_left() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let mut places: Vec<Place> = folders.iter().map(|folder| place(folder.path())).collect();
        let mut rounds = 0;
        measure(&mut places, &AtomicBool::new(false), &mut |_, _| rounds += 1);
        assert!(rounds >= 1);
        for place in &places {
            let ops: Vec<BasicOp> = place.facts.basics.iter().map(|basic| basic.op).collect();
            assert_eq!(ops, BasicOp::ALL, "{:?}", place.facts.failed);
            assert!(place.facts.basics.iter().all(|basic| basic.worst_us >= basic.median_us));
        }
        drop(places);
        assert!(folders.iter().all(|folder| std::fs::read_dir(folder.path()).unwrap().count() == 0));
    }

    #[test]
    fn a_figure_is_the_median_of_its_batches() {
        let batch = |op, mean_us| Batch { op, mean_us, operations: 10 };
        let found = summary(&[
            batch(BasicOp::Stat, 5.0),
            batch(BasicOp::Create, 50.0),
            batch(BasicOp::Stat, 1000.0),
            batch(BasicOp::Stat, 4.0),
        ]);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].op, found[0].per_sec), (BasicOp::Create, 20_000.0));
        assert_eq!((found[1].median_us, found[1].worst_us, found[1].operations), (5.0, 1000.0, 30));
    }

    #[test]
    fn a_directory_that_is_only_read_still_shows_two_operations() {
        let folder = tempfile::tempdir().unwrap();
        let fs = LocalFs::open(folder.path()).unwrap();
        let ops: Vec<BasicOp> =
            read_only(&fs, &AtomicBool::new(false)).iter().map(|basic| basic.op).collect();
        assert_eq!(ops, [BasicOp::Stat, BasicOp::NegativeLookup]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn whether_ext4_gives_new_directories_an_index_shows_without_privileges() {
        let images: [(&[&str], bool); 2] = [(&["-O", "^dir_index"], false), (&[], true)];
        for (flags, indexes) in images {
            let Some(image) = testkit::LoopImage::needed("ext4", 16 << 20, flags) else { return };
            let place = place(image.path());
            assert_eq!(
                new_directories_are_indexed(place.scratch.as_ref().unwrap()),
                Some(indexes),
                "{flags:?}"
            );
        }
    }
}
