//! A reply whose body comes in parts, as the one who has them sees it.
//!
//! Always holds: its parts are jobs at one write queue, each counted among what waits; its end, or its drop, is the last of them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::job::{Job, NewHead, Still, Stored};
use super::queue::{KeyLockNumber, WriteQueue};

/// A body on its way. Dropped before its end nothing of it stays.
pub struct Writing {
    id: u64,
    queue: Arc<WriteQueue>,
    number: KeyLockNumber,
    ended: bool,
}

impl Writing {
    pub(super) fn begin(queue: &Arc<WriteQueue>, number: KeyLockNumber, head: Arc<NewHead>) -> Option<Self> {
        let id = queue.next_body();
        let begun = queue.give_if_room(number, Job::Begin { id, head });
        begun.then(|| Self { id, queue: Arc::clone(queue), number, ended: false })
    }

    /// Appends to the body; false when too much waits: then nothing will be stored.
    pub fn write(&self, chunk: Bytes) -> bool {
        let more = Job::More { id: self.id, chunk };
        self.queue.backlog.take(&more) && self.queue.give(self.number, more)
    }

    /// As [`Writing::write`], but waits until less waits.
    pub async fn write_when_room(&self, chunk: Bytes) -> bool {
        let backlog = &self.queue.backlog;
        if !backlog.can_ever_take(&Job::More { id: self.id, chunk: chunk.clone() }) {
            return false;
        }
        loop {
            let room = backlog.room.notified();
            if self.write(chunk.clone()) {
                return true;
            }
            room.await;
        }
    }

    /// The body is whole: from now on it is found, if it is wanted still. `hand`: give it back, as its readers need it.
    pub fn commit(mut self, still: Still, hand: bool) -> Stored {
        self.ended = true;
        let (done, stored) = oneshot::channel();
        let end = Job::End { id: self.id, commit: Some(still), hand, done };
        self.queue.give(self.number, end);
        stored
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.ended {
            let (done, _) = oneshot::channel();
            self.queue.give(self.number, Job::End { id: self.id, commit: None, hand: false, done });
        }
    }
}
