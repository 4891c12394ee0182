//! What the proxy counts: each loop its own, added up by whoever asks.
//!
//! Always holds: only its own loop writes a counter, by a plain load and store; a reader may see one a moment late.
//! Not here: how they are shown (`admin`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::icp::Answer;

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// From the store.
    Hit,
    /// 304 by what is stored, to a client that has it.
    NotModified,
    /// From the store past its lifetime: the client or the origin allows that.
    Stale,
    /// From the store, as the origin had failed.
    StaleOnError,
    /// From the store, after the origin had said that it holds.
    Revalidated,
    /// From what was on its way for another client.
    Collapsed,
    /// From the origin, as what is stored had changed.
    Refreshed,
    /// From the origin.
    Miss,
    /// From the origin: nothing that a store answers.
    Pass,
    /// A tunnel.
    Tunnel,
    /// PURGE.
    Purge,
    /// Refused.
    Denied,
    /// No reply to be had.
    Failed,
}

impl Outcome {
    /// All, in their order.
    pub const ALL: [Self; 13] = [
        Self::Hit,
        Self::NotModified,
        Self::Stale,
        Self::StaleOnError,
        Self::Revalidated,
        Self::Collapsed,
        Self::Refreshed,
        Self::Miss,
        Self::Pass,
        Self::Tunnel,
        Self::Purge,
        Self::Denied,
        Self::Failed,
    ];

    /// One word for metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::NotModified => "not-modified",
            Self::Stale => "stale",
            Self::StaleOnError => "stale-on-error",
            Self::Revalidated => "revalidated",
            Self::Collapsed => "collapsed",
            Self::Refreshed => "refreshed",
            Self::Miss => "miss",
            Self::Pass => "pass",
            Self::Tunnel => "tunnel",
            Self::Purge => "purge",
            Self::Denied => "denied",
            Self::Failed => "failed",
        }
    }

    /// The word of Squid's log.
    pub fn squid(self) -> &'static str {
        match self {
            Self::Hit => "TCP_HIT",
            Self::NotModified => "TCP_IMS_HIT",
            Self::Stale => "TCP_STALE_HIT",
            Self::StaleOnError => "TCP_REFRESH_FAIL_OLD",
            Self::Revalidated => "TCP_REFRESH_UNMODIFIED",
            Self::Collapsed => "TCP_CF_HIT",
            Self::Refreshed => "TCP_REFRESH_MODIFIED",
            // A failure has its status: 502, 504. What broke off has `_ABORTED` behind its word.
            Self::Miss | Self::Pass | Self::Purge | Self::Failed => "TCP_MISS",
            Self::Tunnel => "TCP_TUNNEL",
            Self::Denied => "TCP_DENIED",
        }
    }

    /// Whether the body came out of the store.
    pub fn is_hit(self) -> bool {
        matches!(
            self,
            Self::Hit
                | Self::NotModified
                | Self::Stale
                | Self::StaleOnError
                | Self::Revalidated
                | Self::Collapsed
        )
    }
}

/// A counter that one thread writes.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds. By its own thread.
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// As of about now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bounds of the latency histogram: 64 us times powers of two, and beyond.
pub const LATENCY_STEPS: usize = 20;

/// Upper bound of a step.
pub fn latency_bound(step: usize) -> Duration {
    Duration::from_micros(64 << step)
}

/// Latencies of replies, from the request's head to the end of the body.
#[derive(Debug, Default)]
pub struct Latencies {
    /// Counts by step; the last is what lies beyond all.
    pub steps: [Counter; LATENCY_STEPS + 1],
    /// All of them together, in microseconds.
    pub total_us: Counter,
}

impl Latencies {
    fn add(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        // ceil(log2(us / 64)), so that a step's bound is inside it.
        let step = (us.saturating_sub(1) >> 6).checked_ilog2().map_or(0, |log| log as usize + 1);
        self.steps[step.min(LATENCY_STEPS)].add(1);
        self.total_us.add(us);
    }
}

/// What one loop counted.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names of /metrics, which tells each")]
pub struct Counters {
    pub requests: [Counter; Outcome::ALL.len()],
    pub sent_bytes: [Counter; Outcome::ALL.len()],
    pub hit_latency: Latencies,
    pub miss_latency: Latencies,
    pub connections_accepted: Counter,
    pub connections_refused: Counter,
    pub connections_ended: Counter,
    pub connections_rested: Counter,
    pub connections_broken: Counter,
    pub lost_writes: Counter,
    pub malformed_requests: Counter,
    pub aborted_replies: Counter,
    pub origin_requests: Counter,
    pub origin_connections: Counter,
    pub origin_failures: Counter,
    pub origin_bytes: Counter,
    pub stored_objects: Counter,
    pub stored_bytes: Counter,
    pub unstored_behind: Counter,
    pub collapse_timeouts: Counter,
    pub log_lines_lost: Counter,
    pub completed_parts: Counter,
    pub prefetched_objects: Counter,
    pub prefetched_bytes: Counter,
    pub prefetch_used: Counter,
    pub prefetch_failed: Counter,
    pub prefetch_dropped: Counter,
    pub icp_queries: Counter,
    pub icp_found: Counter,
    pub icp_not_found: Counter,
    pub icp_unanswered: Counter,
    pub sibling_hits: Counter,
    pub sibling_failures: Counter,
    pub icp_answers: [Counter; Answer::ALL.len()],
    pub icp_refused: Counter,
    pub icp_malformed: Counter,
    pub icp_unexpected: Counter,
}

impl Counters {
    /// A reply has ended.
    pub fn reply(&self, outcome: Outcome, sent_bytes: u64, took: Duration) {
        self.requests[outcome as usize].add(1);
        self.sent_bytes[outcome as usize].add(sent_bytes);
        match outcome {
            Outcome::Tunnel => {}
            outcome if outcome.is_hit() => self.hit_latency.add(took),
            _ => self.miss_latency.add(took),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_lies_within_its_step_s_bound_and_above_the_one_before() {
        for us in [0, 1, 63, 64, 65, 127, 128, 129, 1_000_000, 33_554_432, 33_554_433, u64::MAX / 2] {
            let latencies = Latencies::default();
            latencies.add(Duration::from_micros(us));
            let step = latencies.steps.iter().position(|count| count.get() == 1).expect("counted once");
            let took = Duration::from_micros(us);
            assert!(step == LATENCY_STEPS || took <= latency_bound(step), "{us} in step {step}");
            assert!(step == 0 || took > latency_bound(step - 1), "{us} in step {step}");
        }
    }

    #[test]
    fn outcomes_stand_where_their_numbers_say() {
        for (place, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, place);
        }
    }
}
