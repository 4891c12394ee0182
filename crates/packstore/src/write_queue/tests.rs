//! The queue by itself: what is applied when, and what each caller is notified of, with a hand-made file to fill.

use disk::{Disk, DiskOpen};
use testkit::SimulatedDisk;

use super::direct::Direct;
use super::filling::{Filling, Session};
use super::staging::{NewRecord, Operation, Patience, Staged};
use super::*;
use crate::cache_policy::CachePolicy;
use crate::cache_policy::queues::FifoQueue;
use crate::format::{Kind, Name, RecordHead, crc};
use crate::segments::LostParts;
use crate::segments::bitmap::Bitmap;
use crate::segments::segment::{Access, Segment};
use crate::segments::volume::Volume;

const SHAPE: Shape = Shape { block_bytes: 64, segment_blocks: 1 << 14 };

/// Records what it was notified of.
#[derive(Default)]
struct Noted {
    applied: Mutex<Vec<Change>>,
    undone: Mutex<Vec<Change>>,
}

impl Apply for Noted {
    fn apply(&self, change: &Change) -> Option<After> {
        locked(&self.applied).push(change.clone());
        None
    }

    fn undo(&self, change: &Change) {
        locked(&self.undone).push(change.clone());
    }
}

impl Noted {
    fn counts(&self) -> (usize, usize) {
        (locked(&self.applied).len(), locked(&self.undone).len())
    }
}

struct Fixture {
    disk: Arc<SimulatedDisk>,
    volume: Arc<Volume>,
    queue: WriteQueue,
    policy: CachePolicy,
    noted: Noted,
}

impl Fixture {
    fn new(mode: Mode) -> Self {
        let disk = Arc::new(SimulatedDisk::new("queue"));
        let volume = Arc::new(Volume::new(0, disk.clone(), 64 << 20, None));
        let segments = Segments::new(SHAPE, vec![volume.clone()], Vec::new(), LostParts::default());
        let options = CacheOptions::default();
        let queue = WriteQueue::new(mode, false, false, SHAPE, &options, Arc::new(segments));
        let policy = CachePolicy::new(mode == Mode::Cache, &options, 0, 1000);
        Self { disk, volume, queue, policy, noted: Noted::default() }
    }

    /// With a file to fill.
    fn with_file(mode: Mode) -> Self {
        let fixture = Self::new(mode);
        fixture.give_file();
        fixture
    }

    fn give_file(&self) {
        let (fixture, mode) = (self, self.queue.mode);
        let disk: Arc<dyn Disk> = fixture.disk.clone();
        let segment = Segment::new(0, 0, disk.clone(), Access::of(mode, false, 1 << 20), 1);
        let body = disk.open(&Segment::data_name(0), DiskOpen::New).expect("made");
        let index = disk.open(&Segment::index_name(0), DiskOpen::New).expect("made");
        disk.sync_names().expect("durable");
        let direct = Direct::of(&body, false);
        let session = Session::new(Arc::new(segment), body, index, direct, 1, 2, 64);
        let filling = Filling::new(session, Bitmap::new(SHAPE.segment_blocks));
        fixture.volume.queue.give_room(&fixture.volume, FifoQueue::Small, filling);
    }

    fn stage(&self, key: &[u8], patience: Patience) -> Result<Staged, StoreError> {
        let body = b"body";
        let head = RecordHead {
            kind: Kind::Whole,
            internal: false,
            key_len: key.len() as u16,
            sequence: self.queue.next_sequence(),
            meta_len: 0,
            body_len: body.len() as u32,
            body_crc: crc(body),
            created_s: 1,
            requested_s: 1,
            expires_s: 0,
        };
        let record = NewRecord {
            head,
            key,
            meta: &[],
            body,
            hash: Name::of(key).hash(3),
            id: 0,
            length: 0,
            old: None,
            moved: false,
            recovered: false,
            queue_kind: FifoQueue::Small,
        };
        let operation = Operation { records: &[record], removals: &[], more: &[], keys: &[], patience };
        self.queue.stage(&operation, &self.policy, &self.noted)
    }

    fn write(&self) {
        let after = self.queue.write_group(&self.volume, false, &self.noted);
        assert!(after.is_empty(), "nothing is left to be done after a put");
    }
}

#[test]
fn a_store_applies_a_change_once_it_is_durable_and_opens_its_gate_then() {
    let store = Fixture::with_file(Mode::Store);
    let (ack, _) = store.stage(b"key", Patience::Some).expect("staged");
    assert_eq!(store.noted.counts(), (0, 0), "it is only in memory");
    store.write();
    assert!(ack.wait().is_ok());
    assert_eq!(store.noted.counts(), (1, 0));
    let disk = store.disk.power_cut(1);
    let body = disk.bytes(&Segment::data_name(0)).expect("it is there");
    let head = RecordHead::decode(&body, 1).expect("whole");
    assert_eq!((head.key_len, &body[head.record_bytes() - 4..head.record_bytes()]), (3, &b"body"[..]));
}

#[test]
fn a_cache_applies_a_change_at_once_and_has_it_in_memory_until_it_is_written() {
    let cache = Fixture::with_file(Mode::Cache);
    assert!(!cache.volume.queue.may_have_unwritten());
    cache.stage(b"key", Patience::None).expect("staged");
    assert_eq!(cache.noted.counts(), (1, 0));
    assert!(cache.volume.queue.is_unwritten(0, 0));
    let record = cache.volume.queue.unwritten(0, 0).expect("from the group");
    assert!(RecordHead::decode(&record, 1).is_some());
    cache.write();
    assert!(!cache.volume.queue.is_unwritten(0, 0) && !cache.volume.queue.may_have_unwritten());
    assert!(cache.volume.queue.unwritten(0, 0).is_none(), "from the disk now");
}

#[test]
fn what_a_cache_could_not_write_is_undone_and_a_store_never_applies_it() {
    for (mode, counts) in [(Mode::Cache, (1, 1)), (Mode::Store, (0, 0))] {
        let fixture = Fixture::with_file(mode);
        let (ack, _) = fixture.stage(b"key", Patience::Some).expect("staged");
        fixture.disk.stop();
        fixture.write();
        assert!(ack.wait().is_err(), "{mode:?}");
        assert_eq!(fixture.noted.counts(), counts, "{mode:?}");
        assert!(fixture.volume.failure().is_some(), "after a failed write the volume takes no more");
        assert!(fixture.stage(b"other", Patience::Some).is_err(), "{mode:?}");
    }
}

#[test]
fn a_caller_that_must_not_wait_is_told_busy_and_room_for_it_is_the_writers_next_task() {
    let cache = Fixture::new(Mode::Cache);
    assert!(matches!(cache.stage(b"key", Patience::None), Err(StoreError::Busy)));
    assert_eq!(cache.noted.counts(), (0, 0));
    let task = cache.queue.next_task(&cache.volume, &mut Pace::default());
    assert!(matches!(task, Task::Room { blocks: 1, queue_kind: FifoQueue::Small }));
}

/// Symptom: a cyclic store on a busy machine had less than 90% of its size. Cause: callers that waited for a segment asked again while it was
/// made ready; the writer then made one more ready before they ran, which took its place: it was empty until its turn came again.
#[test]
fn room_that_is_asked_for_while_it_is_made_is_made_once() {
    let cache = Fixture::new(Mode::Cache);
    let mut pace = Pace::default();
    assert!(matches!(cache.stage(b"key", Patience::None), Err(StoreError::Busy)));
    assert!(matches!(cache.queue.next_task(&cache.volume, &mut pace), Task::Room { .. }));
    assert!(matches!(cache.stage(b"key", Patience::None), Err(StoreError::Busy)));
    cache.give_file();
    cache.queue.stop();
    assert!(matches!(cache.queue.next_task(&cache.volume, &mut pace), Task::Stop), "there is one already");
}

#[test]
fn a_full_volume_is_full_only_after_what_waits_was_written() {
    let store = Fixture::with_file(Mode::Store);
    let mut pace = Pace::default();
    store.stage(b"key", Patience::Some).expect("staged");
    store.volume.queue.give_none(&store.volume, FifoQueue::Small, 5, &mut pace, None);
    assert!(!store.volume.full.load(Ordering::SeqCst), "the group may hold a file that has room");
    assert!(matches!(store.queue.next_task(&store.volume, &mut pace), Task::Group));
    store.write();
    assert!(matches!(store.queue.next_task(&store.volume, &mut pace), Task::Room { blocks: 5, .. }));
    store.volume.queue.give_none(&store.volume, FifoQueue::Small, 5, &mut pace, None);
    assert!(store.volume.full.load(Ordering::SeqCst));
}

#[test]
fn what_was_staged_before_the_stop_is_written_and_nothing_is_staged_after_it() {
    let store = Fixture::with_file(Mode::Store);
    let (ack, _) = store.stage(b"key", Patience::Some).expect("staged");
    store.queue.stop();
    assert!(matches!(store.stage(b"late", Patience::Some), Err(StoreError::Closed)));
    let mut pace = Pace::default();
    assert!(matches!(store.queue.next_task(&store.volume, &mut pace), Task::Group));
    store.write();
    assert!(ack.wait().is_ok());
    assert!(matches!(store.queue.next_task(&store.volume, &mut pace), Task::Stop));
}

#[test]
fn a_sync_that_is_asked_for_is_a_group_even_when_nothing_was_staged() {
    let cache = Fixture::with_file(Mode::Cache);
    let ack = cache.volume.queue.ask_for_sync();
    let task = cache.queue.next_task(&cache.volume, &mut Pace::default());
    assert!(matches!(task, Task::Group));
    cache.write();
    assert!(ack.wait().is_ok());
}

#[test]
fn records_staged_one_after_the_other_lie_one_after_the_other_and_each_key_has_its_index_record() {
    use crate::format::{IndexRecord, IndexRecords};
    let store = Fixture::with_file(Mode::Store);
    let keys = [&b"a"[..], b"bb", b"ccc"];
    for key in keys {
        store.stage(key, Patience::Some).expect("staged");
    }
    store.write();
    let index = store.disk.bytes(&Segment::index_name(0)).expect("it is there");
    let puts = IndexRecords::new(&index, 2).filter_map(|(_, index_record)| match index_record {
        IndexRecord::Put(put) => Some((put.block, put.name.key.to_vec())),
        _ => None,
    });
    let expected = keys.iter().zip(0..).map(|(key, block)| (block, key.to_vec()));
    assert_eq!(puts.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}
