//! What a volume's writer does next, and how it gives room to those who wait for it.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::filling::Filling;
use super::group::Group;
use super::staging::GROUP_BYTES;
use super::{Staging, VolumeQueue, WriteQueue};
use crate::cache_policy::queues::FifoQueue;
use crate::error::StoreError;
use crate::locks::locked;
use crate::options::Mode;
use crate::segments::volume::Volume;

/// The writer waits for others to join a group for as long as a part of what the last one took, and not longer than this.
const GATHER_MAX: Duration = Duration::from_millis(1);
const GATHER_PART: u32 = 3;

/// What is due.
pub(crate) enum Task {
    /// The volume's writer was asked to stop, and all is written.
    Stop,
    /// The next file to fill, with this many blocks in a row; 0: for an index to write to.
    Room { blocks: u32, queue_kind: FifoQueue },
    /// Times of these requests are to be written: hashes and keys.
    Requests(Vec<(u64, Vec<u8>)>),
    /// The staged group.
    Group,
}

/// What a writer remembers from one task to the next.
#[derive(Default)]
pub(crate) struct Pace {
    /// Room was looked for in vain while files were held by changes not written yet: these first.
    group_first: bool,
    /// When the last group's writing began, and how long that of the one before took.
    group_begun: Option<Instant>,
    group_took: Duration,
    /// Times of requests and groups take turns, when both are due.
    requests_last: bool,
}

impl WriteQueue {
    /// Waits until there is something to do. For the volume's writer.
    pub(crate) fn next_task(&self, volume: &Volume, pace: &mut Pace) -> Task {
        if let Some(begun) = pace.group_begun.take() {
            pace.group_took = begun.elapsed();
        }
        let mut staging = locked(&volume.queue.staging);
        let mut gathered_from: Option<Instant> = None;
        loop {
            let wanted =
                FifoQueue::all().find(|queue_kind| staging.queues[queue_kind.at()].want_blocks.is_some());
            if let Some(queue_kind) = wanted
                && volume.failed.get().is_none()
                && !std::mem::take(&mut pace.group_first)
            {
                let blocks = staging.queues[queue_kind.at()].want_blocks.take().unwrap_or(0);
                return Task::Room { blocks, queue_kind };
            }
            let is_group_due =
                self.is_due(&mut staging) || (volume.failed.get().is_some() && !staging.group.is_empty());
            let requests_in = staging.requests.due_in(staging.stop);
            if requests_in == Some(Duration::ZERO) && !(is_group_due && pace.requests_last) {
                pace.requests_last = true;
                return Task::Requests(staging.requests.take());
            }
            if is_group_due {
                // Callers that were notified together put together again: the first alone would make the others wait for a
                // sync of its own.
                let gathering = (pace.group_took / GATHER_PART).min(GATHER_MAX);
                let waited = gathered_from.get_or_insert_with(Instant::now).elapsed();
                if !self.may_gather(&staging) || waited >= gathering {
                    pace.requests_last = false;
                    staging.stagings_wanted = staging.group.stagings.max(1);
                    drop(staging);
                    pace.group_begun = Some(Instant::now());
                    return Task::Group;
                }
                staging = wait_for_work(&volume.queue, staging, Some(gathering - waited));
                continue;
            }
            if staging.stop {
                return Task::Stop;
            }
            let group_in = staging.oldest.filter(|_| self.mode == Mode::Cache);
            let group_in = group_in.map(|oldest| self.behind().saturating_sub(oldest.elapsed()));
            let left = group_in.into_iter().chain(requests_in).min();
            let left = left.map(|left| left.max(Duration::from_millis(1)));
            staging = wait_for_work(&volume.queue, staging, left);
        }
    }

    /// Three quarters of what was promised: writing takes its time too.
    fn behind(&self) -> Duration {
        self.behind_max.mul_f64(0.75)
    }

    fn is_due(&self, staging: &mut Staging) -> bool {
        if self.mode == Mode::Store {
            return !staging.group.is_empty();
        }
        if staging.oldest.is_some_and(|oldest| oldest.elapsed() >= self.behind())
            || (staging.stop && staging.unsynced)
        {
            staging.group.sync = true;
        }
        staging.group.sync
            || staging.group.write_now
            || staging.group.bytes.len() >= GROUP_BYTES
            || (staging.stop && !staging.group.is_empty())
    }

    fn may_gather(&self, staging: &Staging) -> bool {
        let group: &Group = &staging.group;
        self.mode == Mode::Store
            && group.stagings < staging.stagings_wanted
            && group.bytes.len() < GROUP_BYTES
            && !group.sync
            && !staging.stop
    }
}

impl VolumeQueue {
    /// Gives those who wait for it the next file to fill.
    pub(crate) fn give_room(&self, volume: &Volume, queue_kind: FifoQueue, filling: Filling) {
        let mut staging = locked(&self.staging);
        if volume.leaving.load(Ordering::SeqCst) {
            // It came too late: the file is emptied as the others are.
            drop(filling);
        } else {
            volume.full.store(false, Ordering::SeqCst);
            let fillings = &mut staging.queues[queue_kind.at()];
            fillings.next = Some(filling);
            // Callers that were still waiting asked again while it was made ready. One more would take its place, and it would be
            // left empty; in a cyclic store until its turn comes again.
            fillings.want_blocks = None;
        }
        drop(staging);
        self.room.notify_all();
    }

    /// Notifies callers that wait for room that there is none; not yet when files are held by changes that are not durable: the
    /// writer's next task is to write these.
    /// `why`: when it is not for lack of room.
    pub(crate) fn give_none(
        &self,
        volume: &Volume,
        queue_kind: FifoQueue,
        blocks: u32,
        pace: &mut Pace,
        why: Option<StoreError>,
    ) {
        let mut staging = locked(&self.staging);
        if staging.unsynced || !staging.group.is_empty() {
            staging.group.sync = true;
            staging.queues[queue_kind.at()].want_blocks = Some(blocks);
            pace.group_first = true;
            return;
        }
        *locked(&volume.why_full) = why;
        volume.full.store(true, Ordering::SeqCst);
        drop(staging);
        self.room.notify_all();
    }

    /// Makes the volume read-only, as no file could be made ready to be filled.
    pub(crate) fn fail(&self, volume: &Volume, error: StoreError) {
        let staging = locked(&self.staging);
        volume.fail(error);
        drop(staging);
        self.room.notify_all();
    }
}

/// Waits until there is something new to do, at most for `limit`.
fn wait_for_work<'a>(
    queue: &VolumeQueue,
    staging: MutexGuard<'a, Staging>,
    limit: Option<Duration>,
) -> MutexGuard<'a, Staging> {
    match limit {
        Some(limit) => queue.work.wait_timeout(staging, limit).unwrap_or_else(PoisonError::into_inner).0,
        None => queue.work.wait(staging).unwrap_or_else(PoisonError::into_inner),
    }
}
