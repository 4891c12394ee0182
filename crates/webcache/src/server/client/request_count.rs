//! One request in the counts by which its connection is judged idle, stalled, or slow to read.
//!
//! ```text
//! RequestCount::new: waiting + 1 ── client waits / client reads ──> end: reply ended, its number on the connection
//! ```
//!
//! Always holds: a request counts as waiting from its beginning until its reply goes out or it ends, once.
//! Not here: what is logged and counted of the reply (`access_entry`), the judgement itself (`connection`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::server::client::connection::BlockedSince;
use crate::server::client::request_guard::ConnectionState;

/// A request of a connection, from its head to the end of its reply.
pub struct RequestCount {
    conn_state: Arc<ConnectionState>,
    /// With HTTP/2: since when its own stream waits for the client to read.
    stream: Option<BlockedSince>,
    /// Whether the client waits for the proxy, rather than the proxy for the client to read.
    waiting: bool,
}

impl RequestCount {
    /// For a request whose head has arrived: its client waits.
    pub fn new(conn_state: Arc<ConnectionState>, stream: Option<BlockedSince>) -> Self {
        conn_state.waiting.fetch_add(1, Ordering::Relaxed);
        conn_state.progress.fetch_add(1, Ordering::Relaxed);
        Self { conn_state, stream, waiting: true }
    }

    /// Notes who waits: the client for the proxy, or the proxy for the client to read.
    pub fn set_client_waiting(&mut self, waits: bool) {
        if !waits {
            self.conn_state.progress.fetch_add(1, Ordering::Relaxed);
        }
        if waits && !self.waiting {
            self.conn_state.waiting.fetch_add(1, Ordering::Relaxed);
        } else if !waits && self.waiting {
            self.conn_state.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        self.waiting = waits;
        if let Some(since) = &self.stream {
            since.set((!waits).then(Instant::now));
        }
    }

    /// The reply has ended. Returns its number on the connection, to be compared with what was flushed.
    pub fn end(&mut self) -> u64 {
        self.set_client_waiting(false);
        self.conn_state.reply_ended()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_as_waiting_once_however_often_that_is_noted_and_not_after_its_end() {
        let conn_state = Arc::new(ConnectionState::default());
        // By the guard, when it lets their heads through.
        conn_state.busy.store(2, Ordering::Relaxed);
        let waiting = || conn_state.waiting.load(Ordering::Relaxed);
        let mut one = RequestCount::new(Arc::clone(&conn_state), None);
        let mut two = RequestCount::new(Arc::clone(&conn_state), None);
        assert_eq!(waiting(), 2);
        one.set_client_waiting(true);
        assert_eq!(waiting(), 2);
        for _ in 0..2 {
            one.set_client_waiting(false);
            assert_eq!(waiting(), 1);
        }
        let progress = conn_state.progress.load(Ordering::Relaxed);
        two.end();
        one.end();
        assert_eq!((waiting(), conn_state.busy.load(Ordering::Relaxed)), (0, 0));
        assert!(conn_state.progress.load(Ordering::Relaxed) > progress, "a reply that ends is progress");
    }
}
