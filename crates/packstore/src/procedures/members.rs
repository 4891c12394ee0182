//! Volumes that leave a store: emptied first, or given up when they are lost.
//!
//! 1. Nothing new is put on the volume.
//! 2. Its records are moved to the others, segment by segment, as compaction does; each emptied file is removed.
//! 3. The other volumes' heads no longer count it. From here on it is not missed.
//! 4. Its own head and copy go: it is no volume any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::StoreError;
use crate::procedures::compact::CompactReport;
use crate::segments::volume::{HEAD_NAME, TABLE_NAME, Volume, read_head, write_head};
use crate::segments::volume_copy::{COPY_NAME, write_copy};
use crate::store::Store;

/// A segment that a writer still holds is free again within moments.
const HELD_MAX: Duration = Duration::from_secs(60);

impl Store {
    /// Moves all that is on a volume to the others, and removes it from the store; what else is in its directory stays. `place`:
    /// as [`VolumeState::place`](crate::VolumeState::place) reports it.
    ///
    /// # Errors
    /// [`StoreError::Full`] when the others have no room; [`StoreError::Damaged`] when something on it is damaged: `repair` first. Then
    /// the volume stays in the store, with what was not moved yet.
    pub fn remove_volume(&self, place: &str) -> Result<CompactReport, StoreError> {
        self.can_change()?;
        let volumes = self.objects.segments.all_volumes();
        let away = self.objects.segments.lost().volumes;
        if away > 0 {
            return Err(StoreError::Missing { found: volumes.len(), expected: volumes.len() + away });
        }
        let is_it =
            |volume: &Arc<Volume>| volume.disk.place() == place && !volume.leaving.load(Ordering::SeqCst);
        let Some(index) = volumes.iter().position(is_it) else {
            let why = "it is no volume of this store".to_owned();
            return Err(StoreError::NotAVolume { place: place.to_owned(), why });
        };
        let volume = &volumes[index];
        let is_other = |other: &&Arc<Volume>| other.number != volume.number && other.takes_objects();
        if !volumes.iter().any(|other| is_other(&other)) {
            return Err(StoreError::Setting {
                name: "the number of volumes",
                given: 0,
                why: "the last volume cannot be removed".into(),
            });
        }
        volume.leaving.store(true, Ordering::SeqCst);
        let moved = self.move_all(index, volume);
        if moved.is_err() {
            volume.leaving.store(false, Ordering::SeqCst);
            return moved;
        }
        self.count_volumes()?;
        for name in [HEAD_NAME, COPY_NAME, TABLE_NAME] {
            match volume.disk.remove(name) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        volume.disk.sync_names()?;
        moved
    }

    /// Expects the volumes that are away no more: what was on them is lost, and they are refused when they come back. The store was
    /// opened [`without_missing`](crate::OpenOptions::without_missing). Returns how many records of the last clean stop were on them,
    /// when that is known.
    ///
    /// # Errors
    /// When a volume cannot be written.
    pub fn give_up_missing(&self) -> Result<Option<u64>, StoreError> {
        self.can_change()?;
        let records = self.objects.segments.give_up_volumes();
        self.count_volumes()?;
        Ok(records)
    }

    fn can_change(&self) -> Result<(), StoreError> {
        self.readiness.wait_ready()?;
        match self.objects.setup.read_only {
            true => Err(StoreError::ReadOnly { why: "the store was opened read-only".to_owned() }),
            false => Ok(()),
        }
    }

    /// Writes into all heads how many volumes there are.
    fn count_volumes(&self) -> Result<(), StoreError> {
        let volumes = self.objects.segments.all_volumes();
        let stays = |volume: &&Arc<Volume>| !volume.leaving.load(Ordering::SeqCst);
        let count = volumes.iter().filter(stays).count() as u32;
        for volume in volumes.iter().filter(stays) {
            let mut head = read_head(&volume.disk)?;
            head.volumes = count;
            write_head(&volume.disk, &head)?;
        }
        for (index, _) in volumes.iter().enumerate().filter(|(_, volume)| stays(volume)) {
            write_copy(&self.objects.segments, index, None)?;
        }
        Ok(())
    }

    fn move_all(&self, index: usize, volume: &Volume) -> Result<CompactReport, StoreError> {
        let mut report = CompactReport::default();
        self.flush()?;
        // The last writer has released the files after this.
        volume.queue.let_go_of_files();
        let begun = Instant::now();
        loop {
            let segments = self.objects.segments.all_files();
            let Some(segment) = segments.iter().find(|segment| segment.volume == index) else {
                return Ok(report);
            };
            if segment.is_unfit() {
                let why = format!("segment {:08} is damaged: run `crumb pack repair` first", segment.number);
                return Err(StoreError::Foreign { place: volume.disk.place(), why });
            }
            if segment.filling.swap(true, Ordering::SeqCst) {
                if begun.elapsed() > HELD_MAX {
                    return Err(StoreError::Busy);
                }
                std::thread::yield_now();
                continue;
            }
            let emptied = self.empty(segment, &mut report);
            if !matches!(emptied, Ok(true)) {
                segment.filling.store(false, Ordering::SeqCst);
                if emptied? && begun.elapsed() > HELD_MAX {
                    return Err(StoreError::Busy);
                }
            }
        }
    }
}
