//! One store writer thread: executes the jobs of its write queue in order, until a job stops it.
//!
//! Always holds: each job holds the key lock of its URI, and its receipt is sent after the lock was released. Only this thread
//! knows the bodies that are not complete; they are discarded when it ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use packstore::{ObjectWriter, StoreError};

use super::job::{Applied, Job, NewHead, ReceiptSender, StillWanted};
use super::mutations::StoreMutations;
use super::queue::{KeyLockNumber, WriteQueue};

pub(super) struct StoreWriter<'a> {
    mutations: &'a StoreMutations,
    queue: &'a WriteQueue,
    bodies: HashMap<u64, OpenBody<'a>>,
}

/// A body that is being written. Its key is chosen at the end, as the list of variants may change until then.
struct OpenBody<'a> {
    writer: Option<ObjectWriter<'a>>,
    head: Arc<NewHead>,
}

/// Who gets the receipt, and the result.
type Outcome = (Option<ReceiptSender>, Result<Option<Applied>, StoreError>);

impl<'a> StoreWriter<'a> {
    pub(super) fn new(mutations: &'a StoreMutations, queue: &'a WriteQueue) -> Self {
        Self { mutations, queue, bodies: HashMap::new() }
    }

    pub(super) fn work(mut self, jobs: &Receiver<(KeyLockNumber, Job)>) {
        while let Ok((number, job)) = jobs.recv() {
            let key_lock = self.queue.key_lock(number);
            let taken = key_lock.lock();
            let bytes = job.bytes();
            let Some((done, result)) = self.execute(job) else { return };
            self.queue.backlog.release(bytes);
            key_lock.job_done();
            drop(taken);
            let stored = result.unwrap_or_else(|error| self.mutations.record_failure(&error));
            if let Some(done) = done {
                let _ = done.send(stored);
            }
        }
    }

    /// `None` for the job that stops the thread.
    fn execute(&mut self, job: Job) -> Option<Outcome> {
        Some(match job {
            Job::Put { head, body, condition, return_body, done } => {
                (Some(done), self.mutations.put(&head, &body, &condition, return_body))
            }
            Job::Begin { id, head } => (None, self.begin(id, head)),
            Job::Append { id, chunk } => (None, self.append(id, &chunk)),
            Job::End { id, commit, return_body, done } => (Some(done), self.end(id, commit, return_body)),
            Job::ReplaceHead { head, over, done } => (Some(done), self.mutations.replace_head(&head, &over)),
            Job::Remove { key, done } => (Some(done), self.mutations.remove(&key)),
            Job::RemoveUnreadable { name, sequence, done } => {
                (done, self.mutations.remove_unreadable(&name, sequence))
            }
            Job::Stop => return None,
        })
    }

    fn begin(&mut self, id: u64, head: Arc<NewHead>) -> Result<Option<Applied>, StoreError> {
        if let Some(writer) = self.mutations.begin(&head)? {
            self.bodies.insert(id, OpenBody { writer: Some(writer), head });
        }
        Ok(None)
    }

    fn append(&mut self, id: u64, chunk: &[u8]) -> Result<Option<Applied>, StoreError> {
        let Some(OpenBody { writer, .. }) = self.bodies.get_mut(&id) else { return Ok(None) };
        let Some(open) = writer else { return Ok(None) };
        let written = open.write(chunk);
        if written.is_err() {
            *writer = None;
        }
        written.map(|()| None)
    }

    fn end(
        &mut self,
        id: u64,
        commit: Option<StillWanted>,
        return_body: bool,
    ) -> Result<Option<Applied>, StoreError> {
        let Some(OpenBody { writer: Some(writer), head }) = self.bodies.remove(&id) else { return Ok(None) };
        let Some(still_wanted) = commit else { return Ok(None) };
        self.mutations.end(writer, &head, &still_wanted, return_body)
    }
}
