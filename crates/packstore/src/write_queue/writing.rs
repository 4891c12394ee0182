//! Writes a group: bodies and index records, then the syncs that were promised; then it acknowledges the group.
//!
//! Always holds: in store mode nothing counts before its body and its index record are durable; after a failed write or
//! sync the volume takes no more.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use disk::DiskError;

use super::filling::Session;
use super::group::{After, Group};
use super::{Apply, Turn, WriteQueue};
use crate::error::StoreError;
use crate::format::{IndexRecord, MARK_BYTES};
use crate::locks::locked;
use crate::options::Mode;
use crate::segments::segment::Segment;
use crate::segments::volume::{Counters, Volume, full, is_full};

/// Room of an index file is taken in such steps.
const INDEX_STEP_BYTES: u64 = 64 << 10;
/// A buffer that grew beyond this is not kept.
const SPARE_BYTES_MAX: usize = 64 << 20;

impl WriteQueue {
    /// Writes what is staged, in the volume's turn. Returns what is to be done then, without locks.
    pub(crate) fn write_group(&self, volume: &Volume, sync: bool, applies: &dyn Apply) -> Vec<After> {
        let queue = &volume.queue;
        let mut turn = locked(&queue.turn);
        let mut staging = locked(&queue.staging);
        staging.group.sync |= sync && (!staging.group.is_empty() || !turn.unsynced.is_empty());
        if staging.group.is_empty() {
            return Vec::new();
        }
        let spare = std::mem::take(&mut staging.spare);
        let group = Arc::new(std::mem::replace(&mut staging.group, Group::new(spare)));
        staging.writing = true;
        if self.mode == Mode::Cache {
            *queue.inflight.write().unwrap_or_else(PoisonError::into_inner) = Some(group.clone());
        }
        drop(staging);
        // Others may stage while this is written.
        queue.room.notify_all();
        self.carry_out(volume, group, &mut turn, applies)
    }

    /// What is to be done when the turn has ended.
    fn carry_out(
        &self,
        volume: &Volume,
        group: Arc<Group>,
        turn: &mut Turn,
        applies: &dyn Apply,
    ) -> Vec<After> {
        let queue = &volume.queue;
        let taken_at = Instant::now();
        let sync = self.mode == Mode::Store || group.sync;
        let written = match volume.failure() {
            Some(failure) => Err(failure),
            None => write(volume, &group, sync, turn),
        };
        if volume.failed.get().is_some() {
            // A sync proves nothing any more; waiting for one would never end.
            turn.unsynced.clear();
        }
        let mut after = Vec::new();
        match (&written, self.mode) {
            (Ok(()), Mode::Store) => {
                after.extend(group.changes.iter().filter_map(|change| applies.apply(change)));
            }
            (Err(_), Mode::Cache) => group.changes.iter().for_each(|change| applies.undo(change)),
            _ => {}
        }
        {
            let mut staging = locked(&queue.staging);
            staging.writing = false;
            staging.unsynced = !turn.unsynced.is_empty();
            *queue.inflight.write().unwrap_or_else(PoisonError::into_inner) = None;
            if staging.group.is_empty() {
                queue.dirty.store(false, Ordering::SeqCst);
            }
            if sync {
                staging.oldest = (!staging.group.is_empty()).then_some(taken_at);
            }
        }
        for &hash in &group.keys {
            self.keys.give_back(hash);
        }
        group.ack.open(written);
        if let Some(mut group) = Arc::into_inner(group) {
            let mut bytes = std::mem::take(&mut group.bytes);
            bytes.clear();
            if bytes.capacity() <= SPARE_BYTES_MAX {
                locked(&queue.staging).spare = bytes;
            }
        }
        queue.room.notify_all();
        after
    }
}

/// What an index file got, which counts once every file got its part: until then the next group writes over it.
struct Appended<'g> {
    session: &'g Arc<Session>,
    end: u64,
    marked_end: u64,
    /// Tombstones that stand in it for the second time.
    copied: usize,
}

fn write(volume: &Volume, group: &Group, sync: bool, turn: &mut Turn) -> Result<(), StoreError> {
    // A full disk is no broken one, as long as nothing was half done: the end of the index has not moved.
    let on_error = |error: DiskError| {
        if !is_full(&error) {
            return volume.fail(error);
        }
        volume.full.store(true, Ordering::SeqCst);
        full(error)
    };
    let counters = &volume.counters;
    Counters::add(&counters.groups, 1);
    for run in &group.runs {
        let (session, bytes) = (&run.session, group.bytes.at(run.start..run.start + run.len));
        let direct = session.direct.write(bytes, run.offset).map_err(|source| DiskError {
            place: volume.disk.place(),
            name: Segment::data_name(session.segment.number),
            operation: "write",
            source,
        });
        for (rest, offset) in direct.map_err(on_error)? {
            if !rest.is_empty() {
                session.body.write_at(rest, offset).map_err(on_error)?;
            }
        }
        Counters::add(&counters.body_bytes, run.len as u64);
    }
    let mut appended = Vec::with_capacity(group.index_records.len());
    for (session, index_record) in &group.index_records {
        let end = session.index_end.load(Ordering::Relaxed);
        let mut bytes = Vec::with_capacity(index_record.len() + 24);
        let durable_end = session.durable_end.load(Ordering::Relaxed);
        if session.marked_end.load(Ordering::Relaxed) != durable_end {
            IndexRecord::Mark { durable_end }.encode(session.index_salt, &mut bytes);
        }
        let (again, copied) = session.copies_due(end);
        bytes.extend_from_slice(&again);
        bytes.extend_from_slice(index_record);
        let new_end = end + bytes.len() as u64;
        let reserved = session.reserved_end.load(Ordering::Relaxed);
        let wanted = new_end + MARK_BYTES as u64;
        if wanted > reserved {
            let more = (wanted - reserved).next_multiple_of(INDEX_STEP_BYTES);
            session.index.reserve(reserved, more).map_err(on_error)?;
            session.reserved_end.store(reserved + more, Ordering::Relaxed);
        }
        session.index.write_at(&bytes, end).map_err(on_error)?;
        Counters::add(&counters.index_bytes, bytes.len() as u64);
        appended.push(Appended { session, end: new_end, marked_end: durable_end, copied });
        if !turn.unsynced.iter().any(|other: &Arc<Session>| Arc::ptr_eq(other, session)) {
            turn.unsynced.push(session.clone());
        }
    }
    for Appended { session, end, marked_end, copied } in appended {
        let mut pending_copies = locked(&session.pending_copies);
        pending_copies.drain(..copied);
        let tombstones = group.tombstones.iter().filter(|(of, _)| Arc::ptr_eq(of, session));
        pending_copies.extend(tombstones.map(|(_, tombstone)| (end, tombstone.clone())));
        drop(pending_copies);
        session.index_end.store(end, Ordering::Relaxed);
        session.marked_end.store(marked_end, Ordering::Relaxed);
        session.segment.index_bytes.store(end, Ordering::Relaxed);
    }
    if sync {
        let Turn { unsynced, syncing } = turn;
        for session in unsynced.drain(..) {
            // After a failed sync nothing is known: never a full disk's harmless no.
            syncing.both(&session.body, &session.index).map_err(|error| volume.fail(error))?;
            Counters::add(&counters.syncs, 2);
            session.durable_end.store(session.index_end.load(Ordering::Relaxed), Ordering::Relaxed);
            if let Err(error) = mark(&session, counters) {
                // What was synced stays so.
                volume.fail(error);
            }
        }
    }
    Ok(())
}

/// Says at an index's end that all of it is durable, as soon as it is: after a kill bodies are read and compared of what came
/// later only, and what is damaged by then is distinguished from what was never whole. Its room was taken with the group's. Where power
/// is lost first, the next group says it.
fn mark(session: &Session, counters: &Counters) -> Result<(), DiskError> {
    let durable_end = session.durable_end.load(Ordering::Relaxed);
    let mut bytes = Vec::new();
    IndexRecord::Mark { durable_end }.encode(session.index_salt, &mut bytes);
    let end = durable_end + bytes.len() as u64;
    session.index.write_at(&bytes, durable_end)?;
    Counters::add(&counters.index_bytes, bytes.len() as u64);
    session.index_end.store(end, Ordering::Relaxed);
    session.marked_end.store(durable_end, Ordering::Relaxed);
    session.segment.index_bytes.store(end, Ordering::Relaxed);
    Ok(())
}
