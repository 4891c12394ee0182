//! Empties the emptiest segments and gives their room back, beside running reads and writes.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::DiskError;

use crate::error::StoreError;
use crate::format::{IndexRecord, IndexRecords, Kind, Tombstone};
use crate::objects::Objects;
use crate::objects::read::Depth;
use crate::procedures::expire::sweep_held;
use crate::segments::index_file::{IndexRead, index_of};
use crate::segments::segment::{Onward, Segment};
use crate::segments::volume::{Volume, full, is_full};
use crate::segments::volume_copy::write_copy;
use crate::store::Store;
use crate::write_queue::keys::Taken;
use crate::write_queue::staging::NewRecord;

/// What a step of compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactReport {
    /// Segments removed.
    pub files_removed: u64,
    /// Records moved.
    pub records_moved: u64,
    /// Bytes of records moved.
    pub bytes_moved: u64,
    /// Segments skipped because something in them is damaged; `check` lists it.
    pub damaged: u64,
    /// Whether another step would find something to do.
    pub more: bool,
}

impl Store {
    /// Moves records out of segments that are less than three quarters full, emptiest first, until about `bytes_max`
    /// bytes are moved or nothing is left to do. Does nothing in a cyclic store, in which objects stay in the order of their puts.
    ///
    /// # Errors
    /// When the disk fails; [`StoreError::Full`] when there is no room to move to.
    pub fn compact(&self, bytes_max: u64) -> Result<CompactReport, StoreError> {
        self.readiness.wait_ready()?;
        let mut report = CompactReport::default();
        if self.objects.setup.cyclic {
            // An object that is moved would be as young as those put last.
            return Ok(report);
        }
        self.forget_expired()?;
        let mut damaged = HashSet::new();
        loop {
            let Some(segment) = self.emptiest(&damaged) else { return Ok(report) };
            if report.bytes_moved >= bytes_max {
                report.more = true;
                return Ok(report);
            }
            // Nobody fills it meanwhile.
            if segment.filling.swap(true, Ordering::SeqCst) {
                continue;
            }
            let emptied = self.empty(&segment, &mut report);
            match emptied {
                Ok(true) => {}
                Ok(false) => {
                    segment.filling.store(false, Ordering::SeqCst);
                    report.more = true;
                    return Ok(report);
                }
                // For `repair` to see. The others are compacted all the same.
                Err(
                    StoreError::Damaged { .. } | StoreError::NotAVolume { .. } | StoreError::Foreign { .. },
                ) => {
                    segment.filling.store(false, Ordering::SeqCst);
                    report.damaged += 1;
                    damaged.insert(segment.number);
                }
                Err(error) => {
                    segment.filling.store(false, Ordering::SeqCst);
                    return Err(error);
                }
            }
        }
    }

    /// The emptiest file that is worth it: the others have room for what is in it, twice over.
    fn emptiest(&self, damaged: &HashSet<u32>) -> Option<Arc<Segment>> {
        let blocks = self.objects.setup.shape.segment_blocks;
        let live = |segment: &Arc<Segment>| segment.live_blocks.load(Ordering::Relaxed);
        let segments = self.objects.segments.all_files();
        let usable = |segment: &&Arc<Segment>| {
            !segment.filling.load(Ordering::SeqCst)
                && !damaged.contains(&segment.number)
                && self.objects.segments.volume(segment.volume).failed.get().is_none()
        };
        let segment = segments.iter().filter(usable).min_by_key(|segment| live(segment))?;
        let others = segments.iter().filter(|other| other.number != segment.number);
        let room = others.map(|other| u64::from(blocks - live(other).min(blocks))).sum::<u64>();
        let worth =
            live(segment) < blocks / 4 * 3 && (live(segment) == 0 || room > u64::from(live(segment)) * 2);
        worth.then(|| segment.clone())
    }

    /// False when a record in it still counts.
    pub(crate) fn empty(
        &self,
        segment: &Arc<Segment>,
        report: &mut CompactReport,
    ) -> Result<bool, StoreError> {
        let objects = &self.objects;
        if objects.setup.expires {
            sweep_held(objects, segment)?;
        }
        let IndexRead { salt, bytes, .. } = index_of(objects.setup.store, segment)?;
        let mut pending = Vec::new();
        let mut onward = Onward::of(segment);
        for (_, index_record) in IndexRecords::new(&bytes, salt) {
            let IndexRecord::Put(put) = index_record else { continue };
            let hash = put.name.hash(objects.setup.hash_seed);
            if objects.index.location_of(hash, segment.number, put.block).is_none() {
                continue;
            }
            let taken = Taken::one(objects.queue.keys(), hash);
            onward.at(objects.setup.shape.offset(put.block));
            let record = match objects.find(put.name, hash, Depth::Whole) {
                Ok(Some(record)) if record.address.file == segment.number => record,
                // Gone or moved meanwhile.
                Ok(_) => continue,
                Err(error) => return Err(error),
            };
            let mut new_head = record.head;
            new_head.sequence = objects.queue.next_sequence();
            let moved = NewRecord {
                head: new_head,
                key: record.key(),
                meta: record.meta(),
                body: record.body(),
                hash,
                id: if put.kind == Kind::Whole { 0 } else { put.id },
                length: if put.kind == Kind::Whole { 0 } else { put.length },
                old: Some(record.entry),
                moved: true,
                recovered: put.recovered,
                queue_kind: objects.queue_of_moved(segment, record.head.expires_s),
            };
            report.records_moved += 1;
            report.bytes_moved += record.head.record_bytes() as u64;
            pending.push(self.staged(&[moved], &[], Vec::new(), taken)?);
        }
        for moved in pending {
            moved.wait()?;
        }
        if segment.live_blocks.load(Ordering::Relaxed) != 0 {
            return Ok(false);
        }
        // What superseded its records, before they go. Nothing is put here meanwhile.
        self.flush()?;
        // What its records superseded elsewhere must stay superseded.
        keep_tombstones(objects, segment, &bytes, salt)?;
        self.flush()?;
        self.remove_file(segment)?;
        report.files_removed += 1;
        Ok(true)
    }

    /// Removes a file in which nothing counts any more.
    pub(crate) fn remove_file(&self, segment: &Arc<Segment>) -> Result<(), StoreError> {
        let objects = &self.objects;
        let volume: Arc<Volume> = objects.segments.volume(segment.volume);
        segment.removed.store(true, Ordering::SeqCst);
        // The body's other name says that the removal has begun, so that an opening after a kill continues with it: never is a file
        // removed because the other is missing. Until the index is gone what supersedes its records must be kept, so the file is
        // forgotten last. Who reads its body still has it open.
        let unless_gone = |done: Result<(), DiskError>| match done {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(volume.fail(error)),
            _ => Ok(()),
        };
        // On a full disk the copy is written when the file is gone, which makes room: a kill in between leaves a copy that names
        // a file too many, which `check` reports and `repair` gives up.
        let copy_later = match write_copy(&objects.segments, segment.volume, Some(segment.number)) {
            Ok(()) => false,
            Err(error) if is_full(&error) => true,
            Err(error) => return Err(volume.fail(error)),
        };
        let gone = Segment::gone_data_name(segment.number);
        unless_gone(volume.disk.rename(&Segment::data_name(segment.number), &gone))?;
        volume.disk.sync_names().map_err(|error| volume.fail(error))?;
        unless_gone(volume.disk.remove(&Segment::index_name(segment.number)))?;
        volume.disk.sync_names().map_err(|error| volume.fail(error))?;
        unless_gone(volume.disk.remove(&gone))?;
        objects.segments.forget(segment.number);
        volume.full.store(false, Ordering::SeqCst);
        if copy_later {
            write_copy(&objects.segments, segment.volume, None).map_err(|error| match is_full(&error) {
                true => full(error),
                false => volume.fail(error),
            })?;
        }
        Ok(())
    }
}

/// Writes tombstones elsewhere for what the records of an index superseded, where that is still needed.
pub(crate) fn keep_tombstones(
    objects: &Objects,
    segment: &Segment,
    bytes: &[u8],
    salt: u32,
) -> Result<(), StoreError> {
    let mut tombstones = Vec::new();
    for (_, index_record) in IndexRecords::new(bytes, salt) {
        let tombstone = match index_record {
            IndexRecord::Put(put) => match put.superseded {
                Some(superseded) => Tombstone {
                    sequence: put.sequence,
                    hash: put.name.hash(objects.setup.hash_seed),
                    superseded,
                    deleted_s: 0,
                },
                None => continue,
            },
            IndexRecord::Tombstone(tombstone) => tombstone,
            IndexRecord::Mark { .. } => continue,
        };
        let torn = objects.index.is_torn(tombstone.sequence);
        if tombstone.superseded.file != segment.number
            && !torn
            && objects.segments.is_needed(tombstone.superseded)
        {
            tombstones.push(tombstone);
        }
    }
    if tombstones.is_empty() {
        return Ok(());
    }
    objects.queue.stage_tombstones(&tombstones)
}
