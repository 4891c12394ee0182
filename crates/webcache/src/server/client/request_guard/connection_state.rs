//! What a connection's request guard and its requests know of each other.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// State of a connection that its request guard shares with its requests.
#[derive(Debug, Default)]
pub struct ConnectionState {
    /// Requests whose replies have not ended.
    pub busy: AtomicU32,
    /// Replies that have ended: hyper has taken them completely, or they broke off.
    pub ended: AtomicU64,
    /// The value of `ended` at the last flush: this many replies have left. HTTP/1 only.
    pub flushed: AtomicU64,
    /// Writes to a parked socket: a bug, as the bytes are lost.
    pub lost_writes: AtomicU64,
    /// Requests among `busy` whose client waits for the proxy, rather than the proxy for the client.
    pub waiting: AtomicU32,
    /// Requests and pieces of replies so far.
    pub progress: AtomicU64,
    /// The connection now carries another protocol.
    pub switched: AtomicBool,
    /// Requests refused because their head was malformed.
    pub refused: AtomicU64,
    /// Requests refused because their head was too long.
    pub refused_long: AtomicU64,
    /// Requests with malformed chunks. Their head was read, so they have a log line of their own.
    pub refused_bodies: AtomicU64,
}

impl ConnectionState {
    /// Counts a reply that hyper has taken completely, or that broke off. Returns its number within the connection.
    pub fn reply_ended(&self) -> u64 {
        self.busy.fetch_sub(1, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether no request is in progress and all replies have left.
    pub(super) fn is_quiet(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
            && self.ended.load(Ordering::Relaxed) == self.flushed.load(Ordering::Relaxed)
    }
}
