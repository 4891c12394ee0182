//! A volume's writer: takes what was staged, writes it, makes it durable where that was promised, says so.
//!
//! Always holds: in store mode nothing counts before its body and its control block are durable; after a failed write or
//! sync the volume takes no more.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use disk::DiskError;

use crate::core::Core;
use crate::error::StoreError;
use crate::format::{Control, MARK_BYTES};
use crate::lanes::Lane;
use crate::options::Mode;
use crate::packed::{Packed, Session};
use crate::refill::{NoRoom, prepare};
use crate::volume::{Counters, Staging, Turn, Volume};
use crate::write_queue::group::{After, Change, Group};
use crate::write_queue::keys::locked;
use crate::write_queue::staging::GROUP_BYTES;

/// Room of an index file is taken in such steps.
const INDEX_STEP_BYTES: u64 = 64 << 10;
/// The writer waits for others to join a group for as long as a part of what the last one took, and not longer than this.
const GATHER_MAX: Duration = Duration::from_millis(1);
const GATHER_PART: u32 = 3;
/// A buffer that grew beyond this is not kept.
const SPARE_BYTES_MAX: usize = 64 << 20;

/// Writes until told to stop, and then what is left.
pub(crate) fn run(core: &Core, volume: &Arc<Volume>, index: usize) {
    // Room was looked for in vain while files were held by changes not written yet: these first.
    let mut group_first = false;
    let mut took = Duration::ZERO;
    // Times of requests and groups take turns, when both are due.
    let mut requests_last = false;
    loop {
        let mut staging = locked(&volume.staging);
        let mut gathered_from: Option<Instant> = None;
        let due = loop {
            let wanted =
                Lane::ALL.into_iter().find(|&lane| staging.lanes[lane as usize].want_blocks.is_some());
            if let Some(lane) = wanted
                && volume.failed.get().is_none()
                && !std::mem::take(&mut group_first)
            {
                break Due::Room(lane);
            }
            let is_group_due =
                is_due(core, &mut staging) || (volume.failed.get().is_some() && !staging.group.is_empty());
            let requests_in = staging.requests.due_in(staging.stop);
            if requests_in == Some(Duration::ZERO) && !(is_group_due && requests_last) {
                break Due::Requests;
            }
            if is_group_due {
                // Those who were told together put together again: the first alone would make the others wait for a
                // sync of its own.
                let gathering = (took / GATHER_PART).min(GATHER_MAX);
                let waited = gathered_from.get_or_insert_with(Instant::now).elapsed();
                if !may_gather(core, &staging) || waited >= gathering {
                    break Due::Group;
                }
                staging = wait_for_work(volume, staging, Some(gathering - waited));
                continue;
            }
            if staging.stop {
                break Due::Nothing;
            }
            let group_in = staging.oldest.filter(|_| core.mode == Mode::Cache);
            let group_in = group_in.map(|oldest| behind(core).saturating_sub(oldest.elapsed()));
            let left = group_in.into_iter().chain(requests_in).min();
            staging = wait_for_work(volume, staging, left.map(|left| left.max(Duration::from_millis(1))));
        };
        match due {
            Due::Nothing => return,
            Due::Room(lane) => {
                let blocks = staging.lanes[lane as usize].want_blocks.take().unwrap_or(0);
                drop(staging);
                group_first = make_room(core, volume, index, blocks, lane);
            }
            Due::Requests => {
                let requests = staging.requests.take();
                drop(staging);
                write_requests(core, volume, &requests);
                requests_last = true;
            }
            Due::Group => {
                requests_last = false;
                staging.stagings_wanted = staging.group.stagings.max(1);
                drop(staging);
                let begun = Instant::now();
                write_staged(core, volume, false);
                took = begun.elapsed();
            }
        }
    }
}

/// Waits until there is something new to do, at most for `limit`.
fn wait_for_work<'a>(
    volume: &Volume,
    staging: MutexGuard<'a, Staging>,
    limit: Option<Duration>,
) -> MutexGuard<'a, Staging> {
    match limit {
        Some(limit) => volume.work.wait_timeout(staging, limit).unwrap_or_else(PoisonError::into_inner).0,
        None => volume.work.wait(staging).unwrap_or_else(PoisonError::into_inner),
    }
}

/// Makes all that counts durable, on all volumes. A cache's changes count before they are: what they made void must not
/// leave the disk before this. Any thread may call it, a writer too: turns are held for a volume's own writes alone.
pub(crate) fn make_durable(core: &Core) {
    core.segments.all_volumes().iter().for_each(|volume| write_staged(core, volume, true));
}

/// Writes what is staged, in the volume's turn.
fn write_staged(core: &Core, volume: &Arc<Volume>, sync: bool) {
    let mut turn = locked(&volume.turn);
    let mut staging = locked(&volume.staging);
    staging.group.sync |= sync && (!staging.group.is_empty() || !turn.unsynced.is_empty());
    if staging.group.is_empty() {
        return;
    }
    let spare = std::mem::take(&mut staging.spare);
    let group = Arc::new(std::mem::replace(&mut staging.group, Group::new(spare)));
    staging.writing = true;
    if core.mode == Mode::Cache {
        *volume.inflight.write().unwrap_or_else(PoisonError::into_inner) = Some(group.clone());
    }
    drop(staging);
    // Others may stage while this is written.
    volume.room.notify_all();
    let after = carry_out(core, volume, group, &mut turn);
    drop(turn);
    after.iter().for_each(|after| core.do_after(after));
}

enum Due {
    Nothing,
    Room(Lane),
    Requests,
    Group,
}

/// The next request of an object notes again what could not be written.
fn write_requests(core: &Core, volume: &Volume, requests: &[(u64, Vec<u8>)]) {
    for (hash, key) in requests {
        if volume.failed.get().is_some() {
            return;
        }
        if let Err(error) = core.write_request(*hash, key) {
            tracing::debug!(%error, "the time of a request was not written");
        }
    }
}

/// Three quarters of what was promised: writing takes its time too.
fn behind(core: &Core) -> Duration {
    core.cache.behind_max.mul_f64(0.75)
}

fn is_due(core: &Core, staging: &mut Staging) -> bool {
    if core.mode == Mode::Store {
        return !staging.group.is_empty();
    }
    if staging.oldest.is_some_and(|oldest| oldest.elapsed() >= behind(core))
        || (staging.stop && staging.unsynced)
    {
        staging.group.sync = true;
    }
    staging.group.sync
        || staging.group.bytes.len() >= GROUP_BYTES
        || (staging.stop && !staging.group.is_empty())
}

fn may_gather(core: &Core, staging: &Staging) -> bool {
    let group = &staging.group;
    core.mode == Mode::Store
        && group.stagings < staging.stagings_wanted
        && group.bytes.len() < GROUP_BYTES
        && !group.sync
        && !staging.stop
}

/// True when there is none before what waits is written and synced.
fn make_room(core: &Core, volume: &Arc<Volume>, index: usize, blocks: u32, lane: Lane) -> bool {
    let prepared = prepare(core, volume, index, blocks, lane);
    let mut staging = locked(&volume.staging);
    match prepared {
        // It came too late: the file is emptied as the others are.
        Ok(filling) if volume.leaving.load(Ordering::SeqCst) => drop(filling),
        Ok(filling) => {
            volume.full.store(false, Ordering::SeqCst);
            staging.lanes[lane as usize].next = Some(filling);
        }
        Err(NoRoom::Full) if staging.unsynced || !staging.group.is_empty() => {
            staging.group.sync = true;
            staging.lanes[lane as usize].want_blocks = Some(blocks);
            return true;
        }
        Err(NoRoom::Full) => volume.full.store(true, Ordering::SeqCst),
        Err(NoRoom::Failed(error)) => {
            volume.fail(&error);
        }
    }
    drop(staging);
    volume.room.notify_all();
    false
}

/// What is to be done when the turn has ended.
fn carry_out(core: &Core, volume: &Arc<Volume>, group: Arc<Group>, turn: &mut Turn) -> Vec<After> {
    let taken_at = Instant::now();
    let sync = core.mode == Mode::Store || group.sync;
    let written = match volume.failure() {
        Some(failure) => Err(failure),
        None => write(volume, &group, sync, turn),
    };
    if volume.failed.get().is_some() {
        // A sync proves nothing any more; waiting for one would never end.
        turn.unsynced.clear();
    }
    let mut after = Vec::new();
    match (&written, core.mode) {
        (Ok(()), Mode::Store) => after.extend(group.changes.iter().filter_map(|change| core.settle(change))),
        (Err(_), Mode::Cache) => group.changes.iter().for_each(|change| undo(core, change)),
        _ => {}
    }
    {
        let mut staging = locked(&volume.staging);
        staging.writing = false;
        staging.unsynced = !turn.unsynced.is_empty();
        *volume.inflight.write().unwrap_or_else(PoisonError::into_inner) = None;
        if staging.group.is_empty() {
            volume.dirty.store(false, Ordering::SeqCst);
        }
        if sync {
            staging.oldest = (!staging.group.is_empty()).then_some(taken_at);
        }
    }
    for &hash in &group.keys {
        core.keys.give_back(hash);
    }
    group.gate.open(written);
    if let Some(mut group) = Arc::into_inner(group) {
        let mut bytes = std::mem::take(&mut group.bytes);
        bytes.clear();
        if bytes.capacity() <= SPARE_BYTES_MAX {
            locked(&volume.staging).spare = bytes;
        }
    }
    volume.room.notify_all();
    after
}

/// What an index file got, which counts once every file got its part: until then the next group writes over it.
struct Appended<'g> {
    session: &'g Arc<Session>,
    end: u64,
    marked_end: u64,
    /// Tombstones that stand in it for the second time.
    told_again: usize,
}

fn write(volume: &Arc<Volume>, group: &Group, sync: bool, turn: &mut Turn) -> Result<(), StoreError> {
    // A full disk is no broken one, as long as nothing was half done: the end of the index has not moved.
    let told = |error: DiskError| match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            volume.full.store(true, Ordering::SeqCst);
            StoreError::Full
        }
        _ => volume.fail(&error),
    };
    let counters = &volume.counters;
    Counters::add(&counters.groups, 1);
    for run in &group.runs {
        let (session, bytes) = (&run.session, group.bytes.at(run.start..run.start + run.len));
        let direct = session.direct.write(bytes, run.offset).map_err(|source| DiskError {
            place: volume.disk.place(),
            name: Packed::body_name(session.packed.number),
            operation: "write",
            source,
        });
        for (rest, offset) in direct.map_err(told)? {
            if !rest.is_empty() {
                session.body.write_at(rest, offset).map_err(told)?;
            }
        }
        Counters::add(&counters.body_bytes, run.len as u64);
    }
    let mut appended = Vec::with_capacity(group.control.len());
    for (session, control) in &group.control {
        let end = session.index_end.load(Ordering::Relaxed);
        let mut bytes = Vec::with_capacity(control.len() + 24);
        let durable_end = session.durable_end.load(Ordering::Relaxed);
        if session.marked_end.load(Ordering::Relaxed) != durable_end {
            Control::Mark { durable_end }.encode(session.index_salt, &mut bytes);
        }
        let (again, told_again) = session.to_tell_again(end);
        bytes.extend_from_slice(&again);
        bytes.extend_from_slice(control);
        let new_end = end + bytes.len() as u64;
        let reserved = session.reserved_end.load(Ordering::Relaxed);
        let wanted = new_end + MARK_BYTES as u64;
        if wanted > reserved {
            let more = (wanted - reserved).next_multiple_of(INDEX_STEP_BYTES);
            session.index.reserve(reserved, more).map_err(told)?;
            session.reserved_end.store(reserved + more, Ordering::Relaxed);
        }
        session.index.write_at(&bytes, end).map_err(told)?;
        Counters::add(&counters.index_bytes, bytes.len() as u64);
        appended.push(Appended { session, end: new_end, marked_end: durable_end, told_again });
        if !turn.unsynced.iter().any(|other: &Arc<Session>| Arc::ptr_eq(other, session)) {
            turn.unsynced.push(session.clone());
        }
    }
    for Appended { session, end, marked_end, told_again } in appended {
        let mut told_once = locked(&session.told_once);
        told_once.drain(..told_again);
        let tombstones = group.tombstones.iter().filter(|(of, _)| Arc::ptr_eq(of, session));
        told_once.extend(tombstones.map(|(_, tombstone)| (end, tombstone.clone())));
        drop(told_once);
        session.index_end.store(end, Ordering::Relaxed);
        session.marked_end.store(marked_end, Ordering::Relaxed);
        session.packed.index_bytes.store(end, Ordering::Relaxed);
    }
    if sync {
        let Turn { unsynced, syncing } = turn;
        for session in unsynced.drain(..) {
            // After a failed sync nothing is known: never a full disk's harmless no.
            syncing.both(&session.body, &session.index).map_err(|error| volume.fail(&error))?;
            Counters::add(&counters.syncs, 2);
            session.durable_end.store(session.index_end.load(Ordering::Relaxed), Ordering::Relaxed);
            if let Err(error) = mark(&session, counters) {
                // What was synced stays so.
                volume.fail(&error);
            }
        }
    }
    Ok(())
}

/// Says at an index's end that all of it is durable, as soon as it is: after a kill bodies are read and compared of what came
/// later only, and what is damaged by then is told from what was never whole. Its room was taken with the group's. Where power
/// is lost first, the next group says it.
fn mark(session: &Session, counters: &Counters) -> Result<(), DiskError> {
    let durable_end = session.durable_end.load(Ordering::Relaxed);
    let mut bytes = Vec::new();
    Control::Mark { durable_end }.encode(session.index_salt, &mut bytes);
    let end = durable_end + bytes.len() as u64;
    session.index.write_at(&bytes, durable_end)?;
    Counters::add(&counters.index_bytes, bytes.len() as u64);
    session.index_end.store(end, Ordering::Relaxed);
    session.marked_end.store(durable_end, Ordering::Relaxed);
    session.packed.index_bytes.store(end, Ordering::Relaxed);
    Ok(())
}

/// Cache mode: what counted already and did not reach the disk counts no more, wherever it was before.
fn undo(core: &Core, change: &Change) {
    if let Change::Put { new, .. } | Change::Move { new, .. } = change
        && core.index.remove(new)
    {
        core.let_go(new);
    }
}
