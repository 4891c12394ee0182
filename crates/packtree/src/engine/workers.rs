//! The threads that write checkpoints and merge runs, so that no call waits for them.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::{Engine, locked};
use crate::error::TreeError;

pub(super) struct Workers {
    checkpoint: SyncSender<Work>,
    merge: SyncSender<Work>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

enum Work {
    Do,
    Stop,
}

impl Workers {
    /// Has a checkpoint written if one is due. `false`: the thread has ended.
    pub(super) fn checkpoint(&self) -> bool {
        wake(&self.checkpoint)
    }

    /// As [`Workers::checkpoint`], for a merge.
    pub(super) fn merge(&self) -> bool {
        wake(&self.merge)
    }
}

/// Work that waits already is enough.
fn wake(sender: &SyncSender<Work>) -> bool {
    !matches!(sender.try_send(Work::Do), Err(TrySendError::Disconnected(_)))
}

impl Engine {
    /// Starts the threads.
    pub(crate) fn start_workers(self: &Arc<Self>) -> Result<(), TreeError> {
        let (checkpoint, checkpoints) = sync_channel(1);
        let (merge, merges) = sync_channel(1);
        let next = merge.clone();
        let first = self.worker("packtree-names", checkpoints, move |engine| {
            engine.checkpoint_or_log();
            wake(&next);
        })?;
        let second = self.worker("packtree-merge", merges, |engine| engine.merge_or_log())?;
        let threads = Mutex::new(vec![first, second]);
        let started = self.workers.set(Workers { checkpoint, merge, threads });
        assert!(started.is_ok(), "started once");
        Ok(())
    }

    fn worker(
        self: &Arc<Self>,
        name: &str,
        work: Receiver<Work>,
        each: impl Fn(&Self) + Send + 'static,
    ) -> Result<JoinHandle<()>, TreeError> {
        let engine = self.clone();
        let run = move || {
            while let Ok(Work::Do) = work.recv() {
                each(&engine);
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        thread.map_err(|source| TreeError::Thread { place: self.place.clone(), source })
    }

    /// Ends the threads. A checkpoint that is being written is waited for; a merge is given up.
    pub(crate) fn stop_workers(&self) {
        self.is_closing.store(true, Ordering::Relaxed);
        let Some(workers) = self.workers.get() else { return };
        // An end that was there before is no failure.
        let _ = workers.checkpoint.send(Work::Stop);
        let _ = workers.merge.send(Work::Stop);
        for thread in locked(&workers.threads).drain(..) {
            let _ = thread.join();
        }
    }
}
