//! Stores a reply whose body arrives in chunks.
//!
//! Always holds: begin, chunks and end are jobs of one write queue, in that order, and count against the backlog.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::job::{Job, NewHead, StillWanted, WriteReceipt};
use super::queue::{KeyLockNumber, WriteQueue};

/// A body that is being stored. Dropping it before [`StreamingPut::commit`] discards what was written.
pub struct StreamingPut {
    id: u64,
    queue: Arc<WriteQueue>,
    number: KeyLockNumber,
    ended: bool,
}

impl StreamingPut {
    pub(super) fn begin(queue: &Arc<WriteQueue>, number: KeyLockNumber, head: Arc<NewHead>) -> Option<Self> {
        let id = queue.next_body();
        let begun = queue.try_enqueue(number, Job::Begin { id, head });
        begun.then(|| Self { id, queue: Arc::clone(queue), number, ended: false })
    }

    /// Appends to the body. False when too much is waiting: then the body cannot be stored.
    pub fn write(&self, chunk: Bytes) -> bool {
        let append = Job::Append { id: self.id, chunk };
        self.queue.backlog.try_reserve(&append) && self.queue.enqueue(self.number, append)
    }

    /// As [`StreamingPut::write`], but waits until the backlog has space.
    pub async fn write_when_space(&self, chunk: Bytes) -> bool {
        let backlog = &self.queue.backlog;
        if !backlog.fits_when_empty(&Job::Append { id: self.id, chunk: chunk.clone() }) {
            return false;
        }
        loop {
            let space_freed = backlog.space_freed.notified();
            if self.write(chunk.clone()) {
                return true;
            }
            space_freed.await;
        }
    }

    /// Ends the body and makes it findable, if `still_wanted` agrees. `return_body` asks for it in the receipt, for readers that need it.
    pub fn commit(mut self, still_wanted: StillWanted, return_body: bool) -> WriteReceipt {
        self.ended = true;
        let (done, stored) = oneshot::channel();
        let end = Job::End { id: self.id, commit: Some(still_wanted), return_body, done };
        self.queue.enqueue(self.number, end);
        stored
    }
}

impl Drop for StreamingPut {
    fn drop(&mut self) {
        if !self.ended {
            let (done, _) = oneshot::channel();
            self.queue.enqueue(self.number, Job::End { id: self.id, commit: None, return_body: false, done });
        }
    }
}
