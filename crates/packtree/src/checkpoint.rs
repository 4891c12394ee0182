//! What changed since the last checkpoint, written as a run; and several runs written as one.
//!
//! ```text
//! checkpoint: names-N (what changed), free-N+1 --synced--> manifest, by rename --synced--> old free-M removed
//! merge:      runs of one level, neighbours       --> names-K, of the next level
//! ```
//!
//! Always holds: a file is synced before the manifest that names it; a failure leaves the manifest as it was.
//! Not here: when (`engine`).

use std::ops::Range;
use std::sync::Arc;

use disk::{Disk, DiskError};

use crate::error::{Refusal, TreeError};
use crate::names::{FreeMap, Loader, Manifest, Merged, RunWriter, SortedRun, remove};
use crate::table::Layer;

/// This many runs of one level become one of the next.
const RUNS_OF_LEVEL: usize = 4;

/// All that a checkpoint has.
pub(crate) struct Checkpoint<'a> {
    /// Number of the last change in it.
    pub sequence: u64,
    pub next_inode: u64,
    pub inodes: u64,
    pub layer: &'a Layer,
    /// In order.
    pub free: FreeMap,
}

impl Checkpoint<'_> {
    /// Writes it over the runs of the last manifest. Returns the new one, and the run that was written, if anything changed.
    pub(crate) fn write(
        &self,
        disk: &dyn Disk,
        id: u128,
        last: &Manifest,
        runs: &[Arc<SortedRun>],
    ) -> Result<(Manifest, Option<Arc<SortedRun>>), TreeError> {
        let (number, free_number) = (last.next_number, last.next_number + 1);
        let written = self.write_files(disk, id, last, runs);
        let manifest_of = |run: Option<Arc<SortedRun>>| {
            let mut manifest = Manifest {
                sequence: self.sequence,
                next_inode: self.next_inode,
                inodes: self.inodes,
                next_number: free_number + 1,
                free_number,
                runs: last.runs.clone(),
            };
            run.iter().for_each(|_| manifest.runs.insert(0, (number, 0)));
            if let Err(error) = manifest.write(disk, id) {
                // Nothing names them, as the manifest did not get its name. On a full disk they would take the room that the next attempt needs.
                if Manifest::remove_new(disk, &error) {
                    let _ = remove(disk, &SortedRun::file_name(number));
                    let _ = remove(disk, &FreeMap::file_name(free_number));
                }
                return Err(error.into());
            }
            Ok((manifest, run))
        };
        let done = written.and_then(manifest_of)?;
        // If it stays, the next opening removes it.
        let _ = remove(disk, &FreeMap::file_name(last.free_number));
        Ok(done)
    }

    fn write_files(
        &self,
        disk: &dyn Disk,
        id: u128,
        last: &Manifest,
        runs: &[Arc<SortedRun>],
    ) -> Result<Option<Arc<SortedRun>>, TreeError> {
        let number = last.next_number;
        let written = self.write_run(disk, id, last, runs).and_then(|keys| {
            self.free.write(disk, id, number + 1)?;
            Ok(keys)
        });
        if written.is_err() || matches!(written, Ok(0)) {
            // On a full disk what was begun would take the room that the next attempt needs.
            let _ = remove(disk, &SortedRun::file_name(number));
        }
        if written.is_err() {
            let _ = remove(disk, &FreeMap::file_name(number + 1));
        }
        match written? {
            0 => Ok(None),
            _ => opened(disk, id, number, 0).map(Some),
        }
    }

    /// Returns how many keys it has.
    fn write_run(
        &self,
        disk: &dyn Disk,
        id: u128,
        last: &Manifest,
        runs: &[Arc<SortedRun>],
    ) -> Result<u64, DiskError> {
        if self.layer.is_empty() {
            return Ok(0);
        }
        let changes = (last.sequence, self.sequence);
        let mut writer = RunWriter::new(disk, id, last.next_number, changes, self.layer.keys())?;
        self.layer.sorted(|key, value| match value {
            // What no run has needs no removal.
            None if !runs.iter().any(|run| run.may_have(key)) => Ok(()),
            value => writer.add(key, value),
        })?;
        writer.finish()
    }
}

/// Which runs to merge next, of those from the newest to the oldest: the level with most. So no level grows for long while others are
/// merged.
pub(crate) fn due(runs: &[Arc<SortedRun>]) -> Option<Range<usize>> {
    let mut start = 0;
    let mut fullest: Option<Range<usize>> = None;
    for level in runs.chunk_by(|one, other| one.level == other.level) {
        let range = start..start + level.len();
        start = range.end;
        if range.len() >= RUNS_OF_LEVEL && fullest.as_ref().is_none_or(|before| range.len() > before.len()) {
            fullest = Some(range);
        }
    }
    fullest
}

/// What came of a merge.
pub(crate) enum Merge {
    /// The run in the place of the others.
    Run(Arc<SortedRun>),
    /// Everything in them was removed.
    Nothing,
    /// It was given up.
    Stopped,
}

/// Writes runs that are neighbours as one; `older` are those behind them. It is given up once `is_over` says so.
pub(crate) fn merge(
    disk: &dyn Disk,
    id: u128,
    number: u64,
    (runs, older): (&[Arc<SortedRun>], &[Arc<SortedRun>]),
    is_over: &dyn Fn() -> bool,
) -> Result<Merge, TreeError> {
    let merged = write_merged(disk, id, number, (runs, older), is_over);
    if !matches!(merged, Ok(Some(1..))) {
        let _ = remove(disk, &SortedRun::file_name(number));
    }
    let level = runs.first().map_or(0, |run| run.level).saturating_add(1);
    match merged? {
        None => Ok(Merge::Stopped),
        Some(0) => Ok(Merge::Nothing),
        Some(_) => opened(disk, id, number, level).map(Merge::Run),
    }
}

fn write_merged(
    disk: &dyn Disk,
    id: u128,
    number: u64,
    (runs, older): (&[Arc<SortedRun>], &[Arc<SortedRun>]),
    is_over: &dyn Fn() -> bool,
) -> Result<Option<u64>, TreeError> {
    let (from, to) = match runs {
        [newest, .., oldest] => (oldest.changes.0, newest.changes.1),
        _ => return Ok(Some(0)),
    };
    let keys = runs.iter().map(|run| run.keys).sum();
    let mut writer = RunWriter::new(disk, id, number, (from, to), keys)?;
    let mut sources = Vec::new();
    Merged::add_runs(&mut sources, runs, &[], &Loader::Disk, None).map_err(read_error)?;
    let mut merged = Merged::new(sources);
    while merged.advance().map_err(read_error)? {
        if is_over() {
            return Ok(None);
        }
        if merged.value.is_some() || older.iter().any(|run| run.may_have(&merged.key)) {
            writer.add(&merged.key, merged.value.as_deref())?;
        }
    }
    Ok(Some(writer.finish()?))
}

/// Writes a run again, as it is, under another number.
pub(crate) fn rewritten(
    disk: &dyn Disk,
    id: u128,
    number: u64,
    run: &Arc<SortedRun>,
) -> Result<Arc<SortedRun>, TreeError> {
    let write = || {
        let mut writer = RunWriter::new(disk, id, number, run.changes, run.keys)?;
        let mut sources = Vec::new();
        Merged::add_runs(&mut sources, std::slice::from_ref(run), &[], &Loader::Disk, None)
            .map_err(read_error)?;
        let mut all = Merged::new(sources);
        while all.advance().map_err(read_error)? {
            writer.add(&all.key, all.value.as_deref())?;
        }
        writer.finish()?;
        opened(disk, id, number, run.level)
    };
    write().inspect_err(|_| drop(remove(disk, &SortedRun::file_name(number))))
}

fn read_error(refusal: Refusal) -> TreeError {
    match refusal {
        Refusal::Tree(error) => error,
        other => unreachable!("blocks are read from the disk: {other:?}"),
    }
}

fn opened(disk: &dyn Disk, id: u128, number: u64, level: u8) -> Result<Arc<SortedRun>, TreeError> {
    match SortedRun::open(disk, id, number, level)? {
        Some((run, faults)) if faults.is_empty() => Ok(Arc::new(run)),
        _ => {
            let (place, file) = (disk.place(), SortedRun::file_name(number));
            Err(TreeError::DamagedNames { place, file, offset_bytes: 0 })
        }
    }
}
