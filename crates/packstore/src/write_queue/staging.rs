//! How a change gets its place and comes to a volume's group.
//!
//! Always holds: a group is staged whole or not at all, and none after its volume's writer was asked to stop: nobody would write it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use super::buffer::PAGE_BYTES;
use super::filling::{Filling, Session};
use super::group::{Ack, After, Change, Group, Run, TableEntry};
use super::{Apply, Staging, WriteQueue};
use crate::cache_policy::CachePolicy;
use crate::cache_policy::queues::FifoQueue;
use crate::clock::now_s;
use crate::error::StoreError;
use crate::fingerprints::Location;
use crate::format::{IndexRecord, Name, Put, RecordHead, Tombstone};
use crate::index::address::location;
use crate::locks::locked;
use crate::options::Mode;
use crate::segments::volume::Volume;

/// A group is written when it has this many bytes, or when there is nothing to wait for.
pub(crate) const GROUP_BYTES: usize = 1 << 20;
/// Store mode: who stages waits when so much is waiting already.
const GROUP_BYTES_MAX: usize = 16 << 20;
/// Cache mode: the same memory again and again is faster than more of it.
const CACHE_GROUP_BYTES_MAX: u64 = 8 << 20;
/// Files filled side by side: those before the last take what fits into their gaps.
const FILLINGS_MAX: usize = 4;
const LIFETIME_FILLINGS_MAX: usize = 2;
/// Segments more that are looked through for a run longer than this.
const LONG_FILES_MAX: usize = 1;
const SHORT_BYTES: usize = 1024;

/// A record to be written.
pub(crate) struct NewRecord<'a> {
    pub head: RecordHead,
    pub key: &'a [u8],
    pub meta: &'a [u8],
    pub body: &'a [u8],
    pub hash: u64,
    pub id: u64,
    pub length: u64,
    /// What it replaces.
    pub old: Option<TableEntry>,
    /// It is the same object elsewhere: it counts only if the old one still does.
    pub moved: bool,
    /// As [`Put::recovered`].
    pub recovered: bool,
    pub queue_kind: FifoQueue,
}

/// Whether who stages may be made to wait for the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    Some,
    /// [`StoreError::Busy`] instead.
    None,
}

/// What one operation changes: all of it on one volume, and in one group.
pub(crate) struct Operation<'a> {
    pub records: &'a [NewRecord<'a>],
    /// Objects to be removed, each with the sequence number of its removal.
    pub removals: &'a [(u64, TableEntry)],
    /// Changes that go with these.
    pub more: &'a [Change],
    /// Keys to be given back once the changes count: store mode.
    pub keys: &'a [u64],
    pub patience: Patience,
}

/// What was staged: the acknowledgement of its group, and what is to be done now, without locks.
pub(crate) type Staged = (Arc<Ack>, Vec<After>);

/// Blocks of a file being filled, and how a location encodes them.
type Taken = (Arc<Session>, u32, Location);

impl Staging {
    /// Lets go of the segments that objects of this queue go to: what was deleted in them since they were opened is free again once they
    /// are opened again. Where objects have a time to live, those of all queues: their room does for others too. False when there
    /// are none.
    fn release_files(&mut self, queue_kind: FifoQueue) -> bool {
        let has_lifetimes = FifoQueue::all().any(|queue| {
            matches!(queue, FifoQueue::Lifetime(_))
                && (queue == queue_kind || !self.queues[queue.at()].now.is_empty())
        });
        let mut released = false;
        for queue in FifoQueue::all().filter(|&queue| has_lifetimes || queue == queue_kind) {
            let now = &mut self.queues[queue.at()].now;
            released |= !now.is_empty();
            now.drain(..).for_each(Filling::retire);
            if has_lifetimes {
                released |= self.queues[queue.at()].next.take().is_some();
            }
        }
        released
    }
}

impl WriteQueue {
    fn choose(&self) -> Result<Arc<Volume>, StoreError> {
        match self.read_only {
            true => Err(StoreError::ReadOnly { why: "the store was opened read-only".to_owned() }),
            false => self.segments.choose(),
        }
    }

    /// Stages an operation. Cache mode: its changes count at once.
    pub(crate) fn stage(
        &self,
        operation: &Operation<'_>,
        policy: &CachePolicy,
        applies: &dyn Apply,
    ) -> Result<Staged, StoreError> {
        let mut tries = 0;
        loop {
            if self.is_closing() {
                return Err(StoreError::Closed);
            }
            let volume = self.choose()?;
            match self.stage_on(&volume, operation, policy, applies) {
                Err(StoreError::Full | StoreError::VolumeFailed { .. })
                    if tries < self.segments.all_volumes().len() * 2 =>
                {
                    tries += 1;
                }
                result => return result,
            }
        }
    }

    fn stage_on(
        &self,
        volume: &Volume,
        operation: &Operation<'_>,
        policy: &CachePolicy,
        applies: &dyn Apply,
    ) -> Result<Staged, StoreError> {
        let &Operation { records, removals, more, keys, patience } = operation;
        let queue = &volume.queue;
        let bytes_max = match self.mode {
            Mode::Store => GROUP_BYTES_MAX,
            Mode::Cache => (self.behind_bytes_max / 2).min(CACHE_GROUP_BYTES_MAX) as usize,
        };
        let mut staging = locked(&queue.staging);
        // The writer may be looking for room, or have no processor: memory is bounded all the same. What only records that
        // something was superseded takes none, and the writer itself may be who says so.
        while !records.is_empty()
            && staging.group.bytes.len() > bytes_max
            && volume.failed.get().is_none()
            && !self.is_closing()
        {
            if patience == Patience::None {
                return Err(StoreError::Busy);
            }
            queue.work.notify_one();
            staging = queue.room.wait(staging).unwrap_or_else(PoisonError::into_inner);
        }
        // All places first: a group is staged whole or not at all.
        let mut taken: Vec<Taken> = Vec::with_capacity(records.len());
        let files = volume.size_bytes.load(Ordering::Relaxed) / self.shape.segment_bytes();
        let has_two_queues = policy.has_two_queues(files);
        for record in records {
            let blocks = self.shape.blocks(record.head.record_bytes());
            let queue_kind = match record.queue_kind {
                FifoQueue::Main if !has_two_queues => FifoQueue::Small,
                queue_kind => queue_kind.within(files),
            };
            let address;
            (staging, address) = self.take(volume, staging, blocks, queue_kind, patience)?;
            taken.push(address);
        }
        // A tombstone needs an index to be written to.
        let mut tombstone_session = None;
        if !removals.is_empty() {
            let session;
            (staging, session) = self.session(volume, staging, patience)?;
            tombstone_session = Some(session);
        }
        let group = staging.group_to_add_to()?;
        let mut changes = Vec::with_capacity(records.len() + removals.len() + more.len());
        for (record, (session, block, location)) in records.iter().zip(taken) {
            self.append(group, record, &session, block);
            let visible = !record.head.internal;
            let blocks = self.shape.blocks(record.head.record_bytes());
            let new = TableEntry { hash: record.hash, location, blocks, visible };
            changes.push(match record.old {
                Some(old) if record.moved => Change::Move { new, old },
                old => Change::Put { new, old },
            });
        }
        for (sequence, entry) in removals {
            if let (Some(superseded), Some(session)) =
                (self.segments.superseded_at(entry.location), &tombstone_session)
            {
                let (sequence, hash, deleted_s) = (*sequence, entry.hash, now_s());
                group.add_tombstone(session, &Tombstone { sequence, hash, superseded, deleted_s });
            }
            changes.push(Change::Remove(*entry));
        }
        changes.extend_from_slice(more);
        let ack = group.ack.clone();
        let mut after = Vec::new();
        match self.mode {
            Mode::Store => group.keys.extend_from_slice(keys),
            Mode::Cache => {
                queue.dirty.store(true, Ordering::SeqCst);
                after.extend(changes.iter().filter_map(|change| applies.apply(change)));
            }
        }
        group.changes.append(&mut changes);
        group.stagings += 1;
        let (stagings, bytes) = (group.stagings, group.bytes.len());
        let wake = match self.mode {
            Mode::Store => stagings == 1 || stagings >= staging.stagings_wanted || bytes >= GROUP_BYTES,
            Mode::Cache => staging.oldest.is_none() || bytes >= GROUP_BYTES,
        };
        staging.oldest.get_or_insert_with(Instant::now);
        if wake && !staging.writing {
            queue.work.notify_one();
        }
        Ok((ack, after))
    }

    /// Writes tombstones of records that are superseded already. The caller flushes.
    pub(crate) fn stage_tombstones(&self, tombstones: &[Tombstone]) -> Result<(), StoreError> {
        let volume = self.choose()?;
        let staging = locked(&volume.queue.staging);
        let (mut staging, session) = self.session(&volume, staging, Patience::Some)?;
        let group = staging.group_to_add_to()?;
        for tombstone in tombstones {
            group.add_tombstone(&session, tombstone);
        }
        staging.oldest.get_or_insert_with(Instant::now);
        volume.queue.work.notify_one();
        Ok(())
    }

    /// Room in a file being filled, or in the next.
    fn take<'a>(
        &self,
        volume: &'a Volume,
        mut staging: MutexGuard<'a, Staging>,
        blocks: u32,
        queue_kind: FifoQueue,
        patience: Patience,
    ) -> Result<(MutexGuard<'a, Staging>, Taken), StoreError> {
        let mut looked_through = 0;
        loop {
            if let Some(failure) = volume.failure() {
                return Err(failure);
            }
            // A cyclic store empties the next segment for it: not before it must.
            let soon_one_in = if self.cyclic { 16 } else { 4 };
            let fillings = &mut staging.queues[queue_kind.at()];
            let taken = fillings.now.iter_mut().find_map(|filling| {
                let block = filling.take(blocks)?;
                Some((
                    filling.session.clone(),
                    block,
                    filling.bitmap.free() < filling.free_first / soon_one_in,
                ))
            });
            if let Some((session, block, nearly_full)) = taken {
                let is_alone = fillings.now.len() == 1 && fillings.next.is_none();
                // Objects of the small queue come soon, those of the main queue some time.
                let comes_soon = queue_kind != FifoQueue::Main;
                if nearly_full && is_alone && fillings.want_blocks.is_none() && comes_soon {
                    fillings.want_blocks = Some(blocks);
                    volume.queue.work.notify_one();
                }
                let location = location(session.segment.number, block, blocks, self.shape);
                return Ok((
                    staging,
                    (session, block, location.expect("a store has fewer blocks than a place can say")),
                ));
            }
            // A long run is not looked for in all segments: the caller can do with shorter ones.
            let is_long = blocks as usize * self.shape.block_bytes as usize > SHORT_BYTES;
            if is_long && looked_through >= LONG_FILES_MAX {
                return Err(StoreError::Full);
            }
            let came;
            (staging, came) = self.more_room(volume, staging, blocks, queue_kind, patience)?;
            looked_through += usize::from(came);
        }
    }

    /// Waits until a file is being filled, to write index records to.
    fn session<'a>(
        &self,
        volume: &'a Volume,
        mut staging: MutexGuard<'a, Staging>,
        patience: Patience,
    ) -> Result<(MutexGuard<'a, Staging>, Arc<Session>), StoreError> {
        loop {
            if let Some(failure) = volume.failure() {
                return Err(failure);
            }
            if let Some(filling) = staging.queues.iter().find_map(|fillings| fillings.now.last()) {
                let session = filling.session.clone();
                return Ok((staging, session));
            }
            (staging, _) = self.more_room(volume, staging, 0, FifoQueue::Small, patience)?;
        }
    }

    /// One file more to fill, or a wait for it: whether it came. Who waits is woken by other things too.
    fn more_room<'a>(
        &self,
        volume: &'a Volume,
        mut staging: MutexGuard<'a, Staging>,
        blocks: u32,
        queue_kind: FifoQueue,
        patience: Patience,
    ) -> Result<(MutexGuard<'a, Staging>, bool), StoreError> {
        if staging.stop {
            return Err(StoreError::Closed);
        }
        let fillings = &mut staging.queues[queue_kind.at()];
        if let Some(next) = fillings.next.take() {
            let nearly_none = self.shape.segment_blocks / 64;
            while let Some(at) = fillings.now.iter().position(|filling| filling.bitmap.free() <= nearly_none)
            {
                fillings.now.remove(at).retire();
            }
            // A cache makes room anyway; and in a small volume those held here would be missed.
            let most = match (self.mode, queue_kind) {
                (Mode::Cache, _) => 1,
                // Else a later object would be in a segment whose turn to be overwritten comes earlier.
                _ if self.cyclic => 1,
                // A segment that is filled for long does not expire as a whole.
                (Mode::Store, FifoQueue::Lifetime(_)) => LIFETIME_FILLINGS_MAX,
                (Mode::Store, _) => FILLINGS_MAX,
            };
            if fillings.now.len() >= most {
                let fullest = (0..most).min_by_key(|&at| fillings.now[at].bitmap.free());
                fillings.now.remove(fullest.expect("there are some")).retire();
            }
            fillings.now.push(next);
            return Ok((staging, true));
        }
        // The next one looks again: readers may have let go of a file meanwhile.
        if volume.full.swap(false, Ordering::SeqCst) && (blocks == 0 || !staging.release_files(queue_kind)) {
            return Err(volume.take_why_full());
        }
        let fillings = &mut staging.queues[queue_kind.at()];
        fillings.want_blocks = Some(blocks);
        volume.queue.work.notify_one();
        if patience == Patience::None {
            return Err(StoreError::Busy);
        }
        Ok((volume.queue.room.wait(staging).unwrap_or_else(PoisonError::into_inner), false))
    }

    fn append(&self, group: &mut Group, record: &NewRecord<'_>, session: &Arc<Session>, block: u32) {
        let block_bytes = self.shape.block_bytes as usize;
        let offset = self.shape.offset(block);
        let len = record.head.record_bytes().next_multiple_of(block_bytes);
        let goes_on = group
            .runs
            .last()
            .is_some_and(|run| Arc::ptr_eq(&run.session, session) && run.offset + run.len as u64 == offset);
        if !goes_on && session.direct.is_there() {
            // As far from a page's beginning in memory as in the file.
            let ahead = (offset as usize).wrapping_sub(group.bytes.len()) % PAGE_BYTES;
            group.bytes.zeros(ahead);
        }
        let start = group.bytes.len();
        let bytes = group.bytes.tail(len);
        let end = bytes.len() + len;
        // Beyond 32 GB of index it cannot be encoded.
        let index_end = u32::try_from(session.durable_end.load(Ordering::Relaxed) / 8).unwrap_or(0);
        record.head.encode(record.key, record.meta, session.body_salt, index_end, bytes);
        bytes.extend_from_slice(record.body);
        bytes.resize(end, 0);
        match group.runs.last_mut() {
            Some(run) if goes_on => run.len += len,
            _ => group.runs.push(Run { session: session.clone(), offset, start, len }),
        }
        if self.mode == Mode::Cache {
            group.records.insert((session.segment.number, block), (start, len));
        }
        let put = Put {
            kind: record.head.kind,
            name: Name { internal: record.head.internal, key: record.key },
            sequence: record.head.sequence,
            superseded: record.old.as_ref().and_then(|old| self.segments.superseded_at(old.location)),
            block,
            meta_len: record.head.meta_len,
            body_len: record.head.body_len,
            created_s: record.head.created_s,
            expires_s: record.head.expires_s,
            id: record.id,
            length: record.length,
            recovered: record.recovered,
        };
        session.segment.note_expiry(put.expires_s);
        IndexRecord::Put(put).encode(session.index_salt, group.index_records_of(session));
    }
}
