//! Which volumes and segments a store has: their numbers, and what of them is missing.
//!
//! 1. `reserve_number` takes a number that no segment has. Its guard gives the number back unless the file is added.
//! 2. The caller makes the file on its volume. No lock is held meanwhile.
//! 3. `add` makes the file known; `forget` ends that.
//!
//! Always holds: two files never have one number, whichever volumes they are made on. The locks here are leaves: none is
//! held while another is taken, except in `grow`, which keeps the volumes locked while it makes one.
//! Not here: what is in the files (`index`), which of them is filled next (`make_room`).

pub(crate) mod bitmap;
pub(crate) mod free_runs;
pub(crate) mod index_file;
pub(crate) mod segment;
pub(crate) mod volume;
pub(crate) mod volume_copy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::error::StoreError;
use crate::fingerprints::Location;
use crate::format::Superseded;
use crate::index::address::Address;
use crate::locks::locked;
use crate::options::Shape;
use crate::segments::segment::Segment;
use crate::segments::volume::Volume;

/// The volumes and segments of a store.
pub(crate) struct Segments {
    shape: Shape,
    volumes: RwLock<Vec<Arc<Volume>>>,
    /// By number.
    files: RwLock<Vec<Option<Arc<Segment>>>>,
    /// Numbers of files that are being made.
    reserved: Mutex<BTreeSet<u32>>,
    /// What is wrong with the volumes, or not there at all.
    lost: Mutex<LostParts>,
    /// Some volume is away: what supersedes its records must be kept.
    volumes_missing: AtomicBool,
    /// Counts choices of a volume.
    turn: AtomicU64,
    /// Index records, and whole index files, that failed their checksums when the store was opened.
    damaged_controls: AtomicU64,
    damaged_files: AtomicU64,
}

/// Parts of a store that are damaged or not there.
#[derive(Clone, Debug, Default)]
pub(crate) struct LostParts {
    /// Damage of volumes' heads.
    pub heads: Vec<String>,
    /// What is in the place of data files: a repair refuses until it is gone.
    pub by_hand: Vec<String>,
    /// Where a damaged `table` is: the last stop was a clean one, after which each index is whole up to its end.
    pub table: Option<String>,
    /// The last stop was a clean one, by the volumes' heads, and there is no `table` that says what there was.
    pub was_closed: bool,
    /// Volumes with an index that is not as long as the last clean stop left it.
    pub short_volumes: Vec<usize>,
    /// Segments that are not there, and the volume that had them.
    pub files: BTreeMap<u32, usize>,
    /// How many volumes are away.
    pub volumes: usize,
    /// Records that were on any of these at the last clean stop, when that is known.
    pub records: Option<u64>,
}

/// A number that no other file gets while this is held.
pub(crate) struct ReservedNumber<'a> {
    segments: &'a Segments,
    number: u32,
}

impl ReservedNumber<'_> {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for ReservedNumber<'_> {
    fn drop(&mut self) {
        locked(&self.segments.reserved).remove(&self.number);
    }
}

impl Segments {
    pub(crate) fn new(
        shape: Shape,
        volumes: Vec<Arc<Volume>>,
        files: Vec<Option<Arc<Segment>>>,
        lost: LostParts,
    ) -> Self {
        Self {
            shape,
            volumes: RwLock::new(volumes),
            files: RwLock::new(files),
            reserved: Mutex::default(),
            volumes_missing: AtomicBool::new(lost.volumes > 0),
            lost: Mutex::new(lost),
            turn: AtomicU64::new(0),
            damaged_controls: AtomicU64::new(0),
            damaged_files: AtomicU64::new(0),
        }
    }

    pub(crate) fn file(&self, number: u32) -> Option<Arc<Segment>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).get(number as usize)?.clone()
    }

    /// The segment that this location is in.
    pub(crate) fn segment_at(&self, location: Location) -> Option<Arc<Segment>> {
        self.file(Address::of(location, self.shape).file)
    }

    /// What a change that supersedes the record at this location must name.
    pub(crate) fn superseded_at(&self, location: Location) -> Option<Superseded> {
        let segment = self.segment_at(location)?;
        Some(Superseded { file: segment.number, generation: segment.generation.load(Ordering::SeqCst) })
    }

    /// A record at this location counts.
    pub(crate) fn gain(&self, location: Location, blocks: u32) {
        if let Some(segment) = self.segment_at(location) {
            segment.gain(blocks);
        }
    }

    /// The record at this location counts no more.
    pub(crate) fn lose(&self, location: Location, blocks: u32) {
        let Some(segment) = self.segment_at(location) else { return };
        segment.lose(blocks);
        self.volume(segment.volume).full.store(false, Ordering::SeqCst);
    }

    /// Of a file's index; `None` when there is no such file.
    pub(crate) fn generation_of(&self, file: u32) -> Option<u64> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        Some(files.get(file as usize)?.as_ref()?.generation.load(Ordering::SeqCst))
    }

    pub(crate) fn all_files(&self) -> Vec<Arc<Segment>> {
        self.files.read().unwrap_or_else(PoisonError::into_inner).iter().flatten().cloned().collect()
    }

    /// A number that no file has, and none that `is_taken` on the caller's volume.
    pub(crate) fn reserve_number(&self, is_taken: impl Fn(u32) -> bool) -> ReservedNumber<'_> {
        let mut from = 0;
        loop {
            let reserved = self.reserve_from(from);
            // The guard is held while the disk is asked, the locks are not.
            if !is_taken(reserved.number) {
                return reserved;
            }
            from = reserved.number + 1;
        }
    }

    fn reserve_from(&self, from: u32) -> ReservedNumber<'_> {
        let lost = locked(&self.lost).files.keys().copied().collect::<BTreeSet<_>>();
        let mut reserved = locked(&self.reserved);
        // Read under the lock of the numbers: a file that was added meanwhile is seen here or is reserved still.
        let known = self.files.read().unwrap_or_else(PoisonError::into_inner);
        let has_file = |number: u32| known.get(number as usize).is_some_and(Option::is_some);
        let is_free =
            |number: &u32| !has_file(*number) && !lost.contains(number) && !reserved.contains(number);
        let number = (from..).find(is_free).expect("numbers do not end");
        drop(known);
        reserved.insert(number);
        ReservedNumber { segments: self, number }
    }

    /// Makes a file known.
    pub(crate) fn add(&self, reserved: ReservedNumber<'_>, segment: Arc<Segment>) {
        assert_eq!(
            reserved.number, segment.number,
            "a file is added under the number that was reserved for it"
        );
        let at = segment.number as usize;
        let mut segments = self.files.write().unwrap_or_else(PoisonError::into_inner);
        if segments.len() <= at {
            segments.resize(at + 1, None);
        }
        segments[at] = Some(segment);
        drop(segments);
        drop(reserved);
    }

    /// A file is gone from its disk.
    pub(crate) fn forget(&self, number: u32) {
        self.files.write().unwrap_or_else(PoisonError::into_inner)[number as usize] = None;
    }

    /// Those who send slowly must not keep a cache from filling its segments again.
    pub(crate) fn is_much_pinned(&self) -> bool {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        let pinned = files.iter().flatten().filter(|file| file.pins.load(Ordering::SeqCst) > 0).count();
        pinned >= (files.len() / 4).max(1)
    }

    pub(crate) fn all_volumes(&self) -> Vec<Arc<Volume>> {
        self.volumes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn volume(&self, index: usize) -> Arc<Volume> {
        self.volumes.read().unwrap_or_else(PoisonError::into_inner)[index].clone()
    }

    /// Adds the volume that `make` returns, and returns it with its index. Two that grow at once take turns.
    pub(crate) fn grow(
        &self,
        make: impl FnOnce(&[Arc<Volume>]) -> Result<Arc<Volume>, StoreError>,
    ) -> Result<(Arc<Volume>, usize), StoreError> {
        let mut volumes = self.volumes.write().unwrap_or_else(PoisonError::into_inner);
        let made = make(&volumes)?;
        volumes.push(made.clone());
        Ok((made, volumes.len() - 1))
    }

    /// A volume that takes writes, in turn by size, and what is wrong when there is none.
    pub(crate) fn choose(&self) -> Result<Arc<Volume>, StoreError> {
        let volumes = self.volumes.read().unwrap_or_else(PoisonError::into_inner);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let usable = |volume: &&Arc<Volume>| volume.takes_objects() && !volume.full.load(Ordering::Relaxed);
        if let [only] = &volumes[..] {
            return match only.failed.get() {
                None => Ok(only.clone()),
                Some(why) => Err(StoreError::ReadOnly { why: format!("{}: {why}", only.disk.place()) }),
            };
        }
        let total = volumes.iter().filter(usable).map(|v| v.size_bytes.load(Ordering::Relaxed)).sum::<u64>();
        // Fractions of the golden section spread the turns evenly.
        let mut at =
            ((u128::from(turn.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * u128::from(total)) >> 64) as u64;
        for volume in volumes.iter().filter(usable) {
            let size = volume.size_bytes.load(Ordering::Relaxed);
            if at < size {
                return Ok(volume.clone());
            }
            at -= size;
        }
        match volumes.iter().find(|volume| volume.takes_objects()) {
            Some(volume) => Ok(volume.clone()),
            None => {
                let why = volumes.iter().find_map(|volume| volume.failed.get()).map(|why| why.to_string());
                Err(StoreError::ReadOnly { why: why.unwrap_or_else(|| "there is none".to_owned()) })
            }
        }
    }

    /// Whether what supersedes this segment's records must still be kept.
    pub(crate) fn is_needed(&self, superseded: Superseded) -> bool {
        match self.file(superseded.file) {
            Some(segment) => superseded.generation >= segment.since.load(Ordering::SeqCst),
            None => self.volumes_missing.load(Ordering::Relaxed),
        }
    }

    /// What is damaged or not there.
    pub(crate) fn lost(&self) -> LostParts {
        locked(&self.lost).clone()
    }

    /// Whether each index must end with a mark, as the last stop was a clean one, though no table says what there was.
    pub(crate) fn lacks_table(&self) -> bool {
        let lost = locked(&self.lost);
        lost.table.is_some() || lost.was_closed
    }

    /// Whether an index of this volume is not as long as the last clean stop left it.
    pub(crate) fn has_short_index(&self, volume: usize) -> bool {
        locked(&self.lost).short_volumes.contains(&volume)
    }

    /// The last clean stop knew a file that is not there. On a volume that is away it is not missed.
    pub(crate) fn note_missing_file(&self, number: u32) {
        let mut lost = locked(&self.lost);
        if lost.volumes == 0 {
            lost.files.entry(number).or_insert(0);
        }
    }

    /// How many records of the last clean stop are not there.
    pub(crate) fn note_missing_records(&self, records: u64) {
        locked(&self.lost).records = Some(records);
    }

    /// Expects volumes that are away no more. Returns how many records were on them, when that is known.
    pub(crate) fn give_up_volumes(&self) -> Option<u64> {
        let mut lost = locked(&self.lost);
        lost.volumes = 0;
        let records = lost.records.take();
        drop(lost);
        self.volumes_missing.store(false, Ordering::Relaxed);
        records
    }

    /// Expects files that are missing no more. Returns the volumes that had them.
    pub(crate) fn give_up_files(&self) -> BTreeSet<usize> {
        std::mem::take(&mut locked(&self.lost).files).into_values().collect()
    }

    pub(crate) fn note_damaged_controls(&self, index_records: u64) {
        self.damaged_controls.fetch_add(index_records, Ordering::Relaxed);
    }

    /// Damage that was repaired already: a check reports it until the repair is done.
    pub(crate) fn note_damage(&self, what: String) {
        tracing::error!("{what}");
        locked(&self.lost).heads.push(what);
    }

    pub(crate) fn note_damaged_file(&self) {
        self.damaged_files.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn damaged_controls(&self) -> u64 {
        self.damaged_controls.load(Ordering::Relaxed)
    }

    pub(crate) fn damaged_files(&self) -> u64 {
        self.damaged_files.load(Ordering::Relaxed)
    }

    /// Damaged heads and a damaged table were rewritten, or will be.
    pub(crate) fn damage_was_repaired(&self) {
        let mut lost = locked(&self.lost);
        (lost.heads, lost.table, lost.was_closed, lost.short_volumes) = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use testkit::SimulatedDisk;

    use super::*;
    use crate::options::Mode;
    use crate::segments::segment::Access;

    fn segments(lost: &[u32]) -> Segments {
        let files = lost.iter().map(|&number| (number, 0)).collect();
        let shape = Shape { block_bytes: 64, segment_blocks: 1 << 14 };
        Segments::new(shape, Vec::new(), Vec::new(), LostParts { files, ..LostParts::default() })
    }

    fn file(number: u32) -> Arc<Segment> {
        let disk = Arc::new(SimulatedDisk::new("segments"));
        Arc::new(Segment::new(number, 0, disk, Access::of(Mode::Store, false, 1 << 20), 1))
    }

    #[test]
    fn a_number_is_free_again_when_its_file_was_not_made_and_when_it_is_gone() {
        let segments = segments(&[]);
        drop(segments.reserve_number(|_| false));
        let reserved = segments.reserve_number(|_| false);
        assert_eq!(reserved.number(), 0, "the first was given back");
        segments.add(reserved, file(0));
        assert_eq!(segments.reserve_number(|_| false).number(), 1);
        assert_eq!(segments.all_files().len(), 1);
        segments.forget(0);
        assert!(segments.file(0).is_none());
        assert_eq!(segments.reserve_number(|_| false).number(), 0);
    }

    #[test]
    fn numbers_of_missing_files_and_of_files_that_a_disk_has_are_not_given_to_others() {
        let segments = segments(&[1]);
        let number = segments.reserve_number(|number| number == 0 || number == 2).number();
        assert_eq!(number, 3);
        assert_eq!(segments.give_up_files(), BTreeSet::from([0]));
        assert_eq!(segments.reserve_number(|number| number == 0).number(), 1);
    }

    #[test]
    fn files_made_at_the_same_time_get_different_numbers() {
        let (segments, together) = (segments(&[]), Barrier::new(4));
        let numbers = std::thread::scope(|scope| {
            let make = || {
                together.wait();
                let made = (0..50).map(|_| {
                    let reserved = segments.reserve_number(|_| false);
                    let number = reserved.number();
                    segments.add(reserved, file(number));
                    number
                });
                made.collect::<Vec<_>>()
            };
            let threads = (0..4).map(|_| scope.spawn(make)).collect::<Vec<_>>();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect::<BTreeSet<_>>()
        });
        assert_eq!(numbers, (0..200).collect());
    }
}
