//! Removes a stored version whose bytes prove unreadable long after it was found: while its body is sent.

use std::sync::Arc;

use packstore::StoreError;
use tokio::sync::oneshot;

use super::Version;
use super::job::Job;
use super::queue::{KeyLockNumber, WriteQueue};

/// What is needed to remove one version.
pub struct UnreadableRemoval {
    queue: Arc<WriteQueue>,
    number: KeyLockNumber,
    version: Version,
}

impl UnreadableRemoval {
    pub(super) fn new(queue: &Arc<WriteQueue>, number: KeyLockNumber, version: &Version) -> Self {
        Self { queue: Arc::clone(queue), number, version: version.clone() }
    }

    /// Removes the version if this error says that another read would fail too. Blocks until that is done, so that the next request
    /// of the client that sees the error does not find it again.
    pub fn remove_after(&self, error: &StoreError) {
        if !error.is_lasting() {
            return;
        }
        tracing::warn!(%error, "a stored reply is damaged behind its first part; it is removed and fetched again");
        let (done, removed) = oneshot::channel();
        let (name, sequence) = (self.version.name.clone(), Some(self.version.sequence));
        self.queue.enqueue(self.number, Job::RemoveUnreadable { name, sequence, done: Some(done) });
        // An error means that the store writer has stopped: then nothing is served any more either.
        let _ = removed.blocking_recv();
    }
}
