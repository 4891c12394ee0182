//! One store writer: does what is given at its write queue, in that order, until it is told to stop.
//!
//! Always holds: each job is done in its URI's turn, and told only when that has ended; bodies that are not whole yet are
//! known to this store writer alone, and go with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use packstore::{ObjectWriter, StoreError};

use super::job::{Counts, Done, Job, NewHead, Still};
use super::mutations::StoreMutations;
use super::queue::{KeyLockNumber, WriteQueue};

pub(super) struct StoreWriter<'a> {
    mutations: &'a StoreMutations,
    queue: &'a WriteQueue,
    bodies: HashMap<u64, Begun<'a>>,
}

/// A body that is being written. Where it goes is told at its end, as the list of variants may be another by then.
struct Begun<'a> {
    writer: Option<ObjectWriter<'a>>,
    head: Arc<NewHead>,
}

/// What a job came to, and who is to be told.
type Outcome = (Option<Done>, Result<Option<Counts>, StoreError>);

impl<'a> StoreWriter<'a> {
    pub(super) fn new(mutations: &'a StoreMutations, queue: &'a WriteQueue) -> Self {
        Self { mutations, queue, bodies: HashMap::new() }
    }

    pub(super) fn work(mut self, jobs: &Receiver<(KeyLockNumber, Job)>) {
        while let Ok((number, job)) = jobs.recv() {
            let turn = self.queue.key_lock(number);
            let taken = turn.take();
            let bytes = job.bytes();
            let Some((done, result)) = self.carry_out(job) else { return };
            self.queue.backlog.give_back(bytes);
            turn.done();
            drop(taken);
            let stored = result.unwrap_or_else(|error| self.mutations.refused(&error));
            if let Some(done) = done {
                let _ = done.send(stored);
            }
        }
    }

    /// Nothing when it is to stop.
    fn carry_out(&mut self, job: Job) -> Option<Outcome> {
        Some(match job {
            Job::Put { head, body, condition, hand, done } => {
                (Some(done), self.mutations.put(&head, &body, &condition, hand))
            }
            Job::Begin { id, head } => (None, self.begin(id, head)),
            Job::More { id, chunk } => (None, self.more(id, &chunk)),
            Job::End { id, commit, hand, done } => (Some(done), self.end(id, commit, hand)),
            Job::Copy { head, over, done } => (Some(done), self.mutations.copy(&head, &over)),
            Job::Remove { key, done } => (Some(done), self.mutations.remove(&key)),
            Job::Forget { name } => (None, self.mutations.forget(&name)),
            Job::Stop => return None,
        })
    }

    fn begin(&mut self, id: u64, head: Arc<NewHead>) -> Result<Option<Counts>, StoreError> {
        if let Some(writer) = self.mutations.begin(&head)? {
            self.bodies.insert(id, Begun { writer: Some(writer), head });
        }
        Ok(None)
    }

    fn more(&mut self, id: u64, chunk: &[u8]) -> Result<Option<Counts>, StoreError> {
        let Some(Begun { writer, .. }) = self.bodies.get_mut(&id) else { return Ok(None) };
        let Some(open) = writer else { return Ok(None) };
        let written = open.write(chunk);
        if written.is_err() {
            *writer = None;
        }
        written.map(|()| None)
    }

    fn end(&mut self, id: u64, commit: Option<Still>, hand: bool) -> Result<Option<Counts>, StoreError> {
        let Some(Begun { writer: Some(writer), head }) = self.bodies.remove(&id) else { return Ok(None) };
        let Some(still) = commit else { return Ok(None) };
        self.mutations.end(writer, &head, &still, hand)
    }
}
