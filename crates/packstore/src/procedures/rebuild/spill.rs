//! Records found that memory should not hold, in a file of a volume until the table is made.
//!
//! ```text
//! found.new | run: part 0, part 1, ... part 255 | run | ...      a part: records whose hash begins with that byte
//! ```
//!
//! Not here: order within a part. A run is what one thread had when it had enough.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use disk::{Disk, DiskError, DiskFile, DiskOpen};

use super::found::{FOUND_BYTES, Found};
use crate::error::StoreError;
use crate::format::crc;
use crate::locks::locked;
use crate::objects::Objects;

/// Parts among which records are divided.
pub(super) const PARTS: usize = 256;
/// Its name; one that a kill left goes when the store is opened.
pub(crate) const SPILL_NAME: &str = "found.new";

pub(super) struct Spill {
    /// Where; none where nothing may be written.
    disk: Option<Arc<dyn Disk>>,
    /// Records that a thread keeps.
    records_max: usize,
    /// Made when it is needed.
    file: Mutex<Option<Arc<dyn DiskFile>>>,
    /// Bytes given to runs.
    end: AtomicU64,
    /// By part: ranges of the file.
    runs: [Mutex<Vec<Run>>; PARTS],
    /// A write failed: all stays in memory from then on.
    failed: AtomicBool,
}

struct Run {
    at: u64,
    bytes: usize,
    crc: u32,
}

impl Spill {
    /// On the volume with the most room, once the threads have more than this many bytes between them.
    pub fn new(objects: &Objects, bytes_max: u64, threads: usize) -> Self {
        let free = |disk: &Arc<dyn Disk>| disk.room().map_or(0, |room| room.free_bytes);
        let disks = objects.segments.all_volumes().into_iter().map(|volume| volume.disk.clone());
        Self {
            disk: disks.filter(|_| !objects.setup.read_only).max_by_key(free),
            records_max: (bytes_max / FOUND_BYTES as u64) as usize / threads.max(1),
            file: Mutex::default(),
            end: AtomicU64::new(0),
            runs: [const { Mutex::new(Vec::new()) }; PARTS],
            failed: AtomicBool::new(false),
        }
    }

    /// Writes what a thread has when that is too much, and takes it from memory. When it cannot be written it stays there: the
    /// store is worth more than the bound.
    pub fn relieve(&self, parts: &mut [Vec<Found>]) {
        let records = parts.iter().map(Vec::len).sum::<usize>();
        if records <= self.records_max || self.failed.load(Ordering::Relaxed) {
            return;
        }
        let Some(disk) = &self.disk else { return };
        match self.write(disk, parts, records) {
            Ok(()) => parts.iter_mut().for_each(Vec::clear),
            Err(error) => {
                if !self.failed.swap(true, Ordering::Relaxed) {
                    let error = StoreError::from(error);
                    tracing::warn!(%error, "records found stay in memory: 32 bytes each until all are known");
                }
            }
        }
    }

    fn write(&self, disk: &Arc<dyn Disk>, parts: &[Vec<Found>], records: usize) -> Result<(), DiskError> {
        let file = self.made(disk)?;
        let mut at = self.end.fetch_add((records * FOUND_BYTES) as u64, Ordering::Relaxed);
        let mut step = Vec::with_capacity(STEP_BYTES);
        let mut runs = Vec::with_capacity(PARTS);
        for part in parts {
            let begin = step.len();
            part.iter().for_each(|found| step.extend_from_slice(&found.encode()));
            let bytes = &step[begin..];
            runs.push(Run { at: at + begin as u64, bytes: bytes.len(), crc: crc(bytes) });
            if step.len() >= STEP_BYTES {
                file.write_at(&step, at)?;
                at += step.len() as u64;
                step.clear();
            }
        }
        file.write_at(&step, at)?;
        // Only now, as none counts unless all were written.
        for (mine, run) in self.runs.iter().zip(runs).filter(|(_, run)| run.bytes > 0) {
            locked(mine).push(run);
        }
        Ok(())
    }

    fn made(&self, disk: &Arc<dyn Disk>) -> Result<Arc<dyn DiskFile>, DiskError> {
        let mut file = locked(&self.file);
        match &*file {
            Some(file) => Ok(file.clone()),
            None => Ok(file.insert(disk.open(SPILL_NAME, DiskOpen::New)?).clone()),
        }
    }

    /// Adds what was written of a part.
    ///
    /// # Errors
    /// When it cannot be read, or is not what was written.
    pub fn read(&self, part: usize, found: &mut Vec<Found>) -> Result<(), StoreError> {
        let Some(file) = locked(&self.file).clone() else { return Ok(()) };
        let runs = locked(&self.runs[part]);
        found.reserve_exact(runs.iter().map(|run| run.bytes / FOUND_BYTES).sum());
        let mut bytes = Vec::new();
        for run in &*runs {
            bytes.resize(run.bytes, 0);
            let read = file.read_at(&mut bytes, run.at)?;
            if read < run.bytes || crc(&bytes) != run.crc {
                return Err(self.changed().into());
            }
            found.extend(bytes.as_chunks().0.iter().map(Found::decode));
        }
        Ok(())
    }

    fn changed(&self) -> DiskError {
        DiskError {
            place: self.disk.as_ref().map(|disk| disk.place()).unwrap_or_default(),
            name: SPILL_NAME.to_owned(),
            operation: "read",
            source: std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "it is not what was written to it just now",
            ),
        }
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        if let (Some(disk), Some(_)) = (&self.disk, locked(&self.file).take()) {
            // Should it stay, the next opening removes it.
            let _ = disk.remove(SPILL_NAME);
        }
    }
}

/// Written at once.
const STEP_BYTES: usize = 1 << 20;
