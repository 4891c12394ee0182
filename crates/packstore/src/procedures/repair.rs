//! Repairs what a check found, as far as that can be done: what is damaged is deleted, and what its index lacks is written.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::StoreError;
use crate::format::{IndexRecord, IndexRecords, Kind, Name};
use crate::objects::read::Depth;
use crate::procedures::check::object::wrong_with;
use crate::procedures::check::segment::cut_off;
use crate::procedures::check::{CheckReport, Fault};
use crate::procedures::compact::keep_tombstones;
use crate::procedures::recover::adopt::{Stray, Strays, adopt, adopt_parts, forget_orphans};
use crate::procedures::recover::misplaced::misplaced;
use crate::procedures::recover::restore::write_anew;
use crate::segments::index_file::{IndexRead, Lost};
use crate::segments::segment::Segment;
use crate::segments::volume_copy::write_copy;
use crate::store::Store;
use crate::store::iterate::index_of_live;
use crate::write_queue::group::TableEntry;

/// More than damages uncover one after the other.
const ROUNDS_MAX: usize = 4;

/// What was repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// What the check before found.
    pub found: CheckReport,
    /// Objects that were damaged and are deleted now.
    pub deleted: u64,
    /// Keys of objects that are lost since their index was cut off, as not all of their bytes were found.
    pub lost: Vec<Vec<u8>>,
    /// What a check after it still finds.
    pub left: Vec<Fault>,
}

impl Store {
    /// Checks, deletes what is damaged, and rewrites damaged indexes, as far as that can be done; then it checks again, and repairs what
    /// only shows once the rest is repaired. What is lost for good is no longer expected.
    ///
    /// # Errors
    /// When a disk cannot be written. Before anything is changed: [`StoreError::NoAccess`] when a data file is there and cannot be
    /// opened, [`StoreError::Misplaced`] when a file is under the name of a segment that did not write it.
    pub fn repair(&self, mut progress: impl FnMut(u64, u64)) -> Result<RepairReport, StoreError> {
        for segment in self.objects.segments.all_files() {
            if let Some(error) = segment.no_access() {
                return Err(StoreError::no_access(&error));
            }
        }
        self.readiness.wait_ready()?;
        for segment in self.objects.segments.all_files() {
            if let Some(error) = misplaced(&self.objects, &segment) {
                return Err(error);
            }
        }
        let found = self.check(&mut progress)?;
        let mut report = RepairReport { left: found.faults.clone(), found, ..RepairReport::default() };
        for _ in 0..ROUNDS_MAX {
            if report.left.is_empty() {
                break;
            }
            let faults = std::mem::take(&mut report.left);
            self.repair_once(&faults, &mut report)?;
            let left = self.check(&mut progress)?.faults;
            let was_in_vain = left == faults;
            report.left = left;
            if was_in_vain {
                break;
            }
        }
        if report.left.is_empty() {
            self.objects.index.note_complete();
            forget_orphans(&self.objects)?;
        }
        Ok(report)
    }

    fn repair_once(&self, faults: &[Fault], report: &mut RepairReport) -> Result<(), StoreError> {
        let is_broken = |segment: &Arc<Segment>| {
            segment.is_unfit()
                || segment.rewrite_due.load(Ordering::SeqCst)
                || faults.iter().any(|fault| fault.file == Some(segment.number) && fault.key.is_none())
        };
        let (gone, kept) = self
            .objects
            .segments
            .all_files()
            .into_iter()
            .partition::<Vec<_>, _>(|segment| segment.lacks_data());
        let mut broken = kept.into_iter().filter(is_broken).collect::<Vec<_>>();
        // Before anything is written, which could be written over it.
        let (mut strays, held) = Strays::hold(&self.objects, self.cut_off_from(&broken)?)?;
        broken.extend(adopt_parts(&self.objects, &strays)?);
        // What no index names may be found below.
        let is_in_doubt = |key: &&Vec<u8>| self.objects.index.doubt_of(key, self.name_hash(key)).is_some();
        let damaged = faults.iter().filter(|fault| fault.is_damaged).filter_map(|fault| fault.key.as_ref());
        let (in_doubt, damaged) = damaged.partition::<Vec<_>, _>(is_in_doubt);
        strays.forget(&self.delete_damaged(damaged, report)?);
        for segment in &gone {
            self.give_up(segment)?;
        }
        for segment in &broken {
            self.forget_broken_parts(segment)?;
        }
        let adopted = adopt(&self.objects, &strays)?;
        self.flush()?;
        for key in in_doubt.into_iter().filter(is_in_doubt) {
            report.deleted += u64::from(self.delete(key)?);
        }
        broken.extend(held);
        broken.sort_by_key(|segment| segment.number);
        broken.dedup_by_key(|segment| segment.number);
        self.forget_what_lost_indexes_superseded(&broken, !gone.is_empty())?;
        for segment in &broken {
            segment.may_fill();
            write_anew(&self.objects, segment, true)?;
            segment.rewrite_due.store(false, Ordering::SeqCst);
        }
        if !adopted.tombstones.is_empty() {
            self.objects.queue.stage_tombstones(&adopted.tombstones)?;
            self.flush()?;
        }
        // What one round could not bring back, the next may report once more.
        add_new(&mut report.lost, adopted.lost);
        // The heads were rewritten when the store was opened; the table is when it is closed.
        self.objects.segments.damage_was_repaired();
        for volume in self.objects.segments.give_up_files() {
            write_copy(&self.objects.segments, volume, None)?;
        }
        Ok(())
    }

    /// What superseded records of other segments may have been in an index that is damaged or gone. While the table of a clean stop
    /// shows what counts, the other indexes are rewritten without what does not.
    fn forget_what_lost_indexes_superseded(
        &self,
        broken: &[Arc<Segment>],
        some_are_gone: bool,
    ) -> Result<(), StoreError> {
        let segments = &self.objects.segments;
        let is_due = |segment: &Arc<Segment>| segment.rewrite_due.load(Ordering::SeqCst);
        let is_lost = some_are_gone || !segments.lost().files.is_empty() || broken.iter().any(is_due);
        if self.objects.index.is_rebuilt() || !is_lost {
            return Ok(());
        }
        let is_broken = |segment: &Arc<Segment>| broken.iter().any(|other| other.number == segment.number);
        for segment in segments.all_files().iter().filter(|segment| !is_broken(segment)) {
            write_anew(&self.objects, segment, false)?;
        }
        Ok(())
    }

    /// Deletes objects that cannot be read, but not those whose parts were found meanwhile. Returns the keys of those that it deleted.
    fn delete_damaged(
        &self,
        keys: Vec<&Vec<u8>>,
        report: &mut RepairReport,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut deleted = Vec::new();
        for key in keys {
            if !self.has_all_parts(key) && self.delete(key)? {
                report.deleted += 1;
                deleted.push(key.clone());
            }
        }
        Ok(deleted)
    }

    /// Whether an object consists of parts, and all of them can be read.
    fn has_all_parts(&self, key: &[u8]) -> bool {
        let objects = &self.objects;
        objects.uncounted(|| {
            let found = objects.find(Name::of(key), self.name_hash(key), Depth::Head);
            found.is_ok_and(|found| found.is_some_and(|record| record.head.kind != Kind::Whole))
                && self.get(key).is_ok_and(|object| {
                    object.is_some_and(|object| object.chunks().all(|chunk| chunk.is_ok()))
                })
        })
    }

    /// Forgets parts of objects, bodies that several names share included, that are damaged or lack something themselves. No key names
    /// them; the keys of the objects that they belong to show in the next check.
    fn forget_broken_parts(&self, segment: &Arc<Segment>) -> Result<(), StoreError> {
        let objects = &self.objects;
        let Some(IndexRead { salt, bytes, .. }) = index_of_live(objects, segment)? else { return Ok(()) };
        for (_, index_record) in IndexRecords::new(&bytes, salt) {
            let IndexRecord::Put(put) = index_record else { continue };
            let hash = put.name.hash(objects.setup.hash_seed);
            let Some(location) = objects.index.location_of(hash, segment.number, put.block) else { continue };
            if !put.name.internal || !matches!(wrong_with(objects, &put), Ok(Some(_))) {
                continue;
            }
            let record = objects.uncounted(|| objects.find(put.name, hash, Depth::Whole)).ok().flatten();
            let more = record.and_then(|record| objects.ends_with(&record).ok()).unwrap_or_default();
            let blocks = objects.setup.shape.blocks(put.record_bytes());
            if objects.remove(&TableEntry { hash, location, blocks, visible: false }) {
                objects.apply_now(&more);
            }
        }
        Ok(())
    }

    /// Records that the indexes of segments lack since they were cut off or damaged.
    fn cut_off_from(&self, segments: &[Arc<Segment>]) -> Result<Vec<Stray>, StoreError> {
        let mut cut = Vec::new();
        for segment in segments {
            if let Some(read) =
                index_of_live(&self.objects, segment)?.filter(|read| read.lost != Some(Lost::Whole))
            {
                segment.recovered.store(true, Ordering::SeqCst);
                let records = cut_off(&self.objects, segment, &read)?.records.into_iter();
                cut.extend(records.map(|record| Stray { segment: segment.clone(), record }));
            }
        }
        Ok(cut)
    }

    /// Forgets what is left of a segment whose body is missing, pieces of large objects for example, and removes its index.
    fn give_up(&self, segment: &Arc<Segment>) -> Result<(), StoreError> {
        let objects = &self.objects;
        let read = match index_of_live(objects, segment) {
            // A copy of another segment's: it names nothing of this one.
            Err(StoreError::Foreign { .. }) => return self.remove_file(segment),
            read => read?,
        };
        let Some(IndexRead { salt, bytes, .. }) = read else { return Ok(()) };
        for (_, index_record) in IndexRecords::new(&bytes, salt) {
            let IndexRecord::Put(put) = index_record else { continue };
            let hash = put.name.hash(objects.setup.hash_seed);
            if let Some(location) = objects.index.location_of(hash, segment.number, put.block) {
                let blocks = objects.setup.shape.blocks(put.record_bytes());
                objects.remove(&TableEntry { hash, location, blocks, visible: !put.name.internal });
            }
        }
        self.flush()?;
        keep_tombstones(objects, segment, &bytes, salt)?;
        self.flush()?;
        self.remove_file(segment)
    }
}

/// Adds keys that are not there yet, in their order.
fn add_new(keys: &mut Vec<Vec<u8>>, more: Vec<Vec<u8>>) {
    let mut known = keys.iter().cloned().collect::<HashSet<_>>();
    keys.extend(more.into_iter().filter(|key| known.insert(key.clone())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_several_rounds_report_as_lost_is_listed_once() {
        let keys = |text: &str| text.split(' ').map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>();
        let mut lost = Vec::new();
        for round in ["c a", "a b c", "b d b"] {
            add_new(&mut lost, keys(round));
        }
        assert_eq!(lost, keys("c a b d"));
    }
}
