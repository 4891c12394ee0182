//! The thread that makes everything durable now and then, as a kernel does: what was freed comes back by it too.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::engine::Engine;
use crate::error::TreeError;

pub(super) struct Flusher {
    /// Dropped to stop it.
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Flusher {
    /// Starts it.
    pub(super) fn start(engine: Arc<Engine>, every: Duration) -> Result<Self, TreeError> {
        let place = engine.place.clone();
        let (stop, stopped) = channel();
        let run = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let flushed = engine.check_lock().and_then(|()| engine.sync());
                if let Err(error) = flushed.and_then(|()| engine.give_back_when_short()) {
                    // The next call that syncs or writes returns the error too.
                    tracing::warn!(place = %engine.place, error = error.with_cause(), "the tree could not be flushed");
                    return;
                }
                engine.retake_spare();
            }
        };
        let thread = std::thread::Builder::new().name("packtree-flush".to_owned()).spawn(run);
        let thread = thread.map_err(|source| TreeError::Thread { place, source })?;
        Ok(Self { stop, thread })
    }

    pub(super) fn stop(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}
