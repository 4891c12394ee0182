//! What a mounted export's client did so far: for reports, in place of an operating system's counters.

use std::sync::atomic::{AtomicU64, Ordering};

use files::OpKind;

/// What was done since the export was opened, by all its users together. Counts only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsCounters {
    calls: [u64; OpKind::COUNT],
    /// Calls sent again over UDP, no answer having come in time.
    pub retransmits: u64,
    /// Connections opened, the first included.
    pub connections: u64,
    /// Calls carried out again on a new connection, their own having broken.
    pub resent_calls: u64,
    /// Such calls that then found their work done already, and so succeeded (see `NfsFs`).
    pub found_done: u64,
    /// Waits because the server answered `NFS3ERR_JUKEBOX`.
    pub jukebox_waits: u64,
    /// Walks repeated because a remembered handle had become stale.
    pub stale_walks: u64,
    /// Names and attributes that were remembered, each a call saved.
    pub cache_hits: u64,
    /// Payload bytes written again because the server's write verifier changed: it was restarted.
    pub rewritten_bytes: u64,
    /// Payload bytes that READ brought.
    pub read_bytes: u64,
    /// Payload bytes that WRITE took.
    pub written_bytes: u64,
    /// Bytes sent, RPC headers included.
    pub sent_bytes: u64,
    /// Bytes received, RPC headers included.
    pub received_bytes: u64,
}

impl FsCounters {
    /// Calls of one procedure; a retransmission is not counted again, a call on a new connection is.
    pub fn calls(&self, kind: OpKind) -> u64 {
        self.calls[kind as usize]
    }

    /// Calls of all procedures.
    pub fn calls_total(&self) -> u64 {
        self.calls.iter().sum()
    }

    /// What was done since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut calls = self.calls;
        for (now, then) in calls.iter_mut().zip(earlier.calls) {
            *now = now.saturating_sub(then);
        }
        let less = |field: fn(&Self) -> u64| field(self).saturating_sub(field(earlier));
        Self {
            calls,
            retransmits: less(|c| c.retransmits),
            connections: less(|c| c.connections),
            resent_calls: less(|c| c.resent_calls),
            found_done: less(|c| c.found_done),
            jukebox_waits: less(|c| c.jukebox_waits),
            stale_walks: less(|c| c.stale_walks),
            cache_hits: less(|c| c.cache_hits),
            rewritten_bytes: less(|c| c.rewritten_bytes),
            read_bytes: less(|c| c.read_bytes),
            written_bytes: less(|c| c.written_bytes),
            sent_bytes: less(|c| c.sent_bytes),
            received_bytes: less(|c| c.received_bytes),
        }
    }

    /// Every count by name, `calls_` and the procedure first; procedures never called are left out.
    pub fn named(&self) -> Vec<(String, u64)> {
        let calls = OpKind::ALL
            .into_iter()
            .filter(|kind| self.calls(*kind) > 0)
            .map(|kind| (format!("calls_{}", kind.name()), self.calls(kind)));
        let others = [
            ("retransmits", self.retransmits),
            ("connections", self.connections),
            ("resent_calls", self.resent_calls),
            ("found_done", self.found_done),
            ("jukebox_waits", self.jukebox_waits),
            ("stale_walks", self.stale_walks),
            ("cache_hits", self.cache_hits),
            ("rewritten_bytes", self.rewritten_bytes),
            ("read_bytes", self.read_bytes),
            ("written_bytes", self.written_bytes),
            ("sent_bytes", self.sent_bytes),
            ("received_bytes", self.received_bytes),
        ];
        calls.chain(others.map(|(name, count)| (name.to_owned(), count))).collect()
    }
}

/// [`FsCounters`] while they are counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub calls: [AtomicU64; OpKind::COUNT],
    pub retransmits: AtomicU64,
    pub connections: AtomicU64,
    pub resent_calls: AtomicU64,
    pub found_done: AtomicU64,
    pub jukebox_waits: AtomicU64,
    pub stale_walks: AtomicU64,
    pub cache_hits: AtomicU64,
    pub rewritten_bytes: AtomicU64,
    pub read_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub sent_bytes: AtomicU64,
    pub received_bytes: AtomicU64,
}

/// Adds to one count.
pub(super) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Tally {
    pub(super) fn read(&self) -> FsCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FsCounters {
            calls: self.calls.each_ref().map(read),
            retransmits: read(&self.retransmits),
            connections: read(&self.connections),
            resent_calls: read(&self.resent_calls),
            found_done: read(&self.found_done),
            jukebox_waits: read(&self.jukebox_waits),
            stale_walks: read(&self.stale_walks),
            cache_hits: read(&self.cache_hits),
            rewritten_bytes: read(&self.rewritten_bytes),
            read_bytes: read(&self.read_bytes),
            written_bytes: read(&self.written_bytes),
            sent_bytes: read(&self.sent_bytes),
            received_bytes: read(&self.received_bytes),
        }
    }
}
