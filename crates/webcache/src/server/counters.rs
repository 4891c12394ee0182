//! The proxy's counters: each loop has its own, and readers add them up.
//!
//! Always holds: a counter is written by its own loop only, with a plain load and store. A reader may see it a moment late.
//! Not here: how figures are shown (`admin`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use measure::PrometheusKind;

use crate::icp::Answer;

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// From the store.
    Hit,
    /// 304 from the store, to a client that has the reply.
    NotModified,
    /// From the store past its lifetime, as client or origin allow.
    Stale,
    /// From the store, as upstream failed.
    StaleOnError,
    /// From the store, after a 304 from the origin.
    Revalidated,
    /// From a reply that was being fetched for another client.
    Collapsed,
    /// From the origin, as the stored reply had changed.
    Refreshed,
    /// From the origin.
    Miss,
    /// From the origin; no store could answer such a request.
    Pass,
    /// A tunnel.
    Tunnel,
    /// A PURGE.
    Purge,
    /// Refused.
    Denied,
    /// No reply could be obtained.
    Failed,
}

impl Outcome {
    /// All outcomes, in declaration order.
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

    /// The word for metrics and JSON.
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

    /// The result code in Squid's log.
    pub fn squid(self) -> &'static str {
        match self {
            Self::Hit => "TCP_HIT",
            Self::NotModified => "TCP_IMS_HIT",
            Self::Stale => "TCP_STALE_HIT",
            Self::StaleOnError => "TCP_REFRESH_FAIL_OLD",
            Self::Revalidated => "TCP_REFRESH_UNMODIFIED",
            Self::Collapsed => "TCP_CF_HIT",
            Self::Refreshed => "TCP_REFRESH_MODIFIED",
            // A failure shows as status 502 or 504; aborted replies have `_ABORTED` appended.
            Self::Miss | Self::Pass | Self::Purge | Self::Failed => "TCP_MISS",
            Self::Tunnel => "TCP_TUNNEL",
            Self::Denied => "TCP_DENIED",
        }
    }

    /// Whether the body came from the store.
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

/// A counter with one writing thread.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; only its own thread may.
    pub fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// The value, at most a moment old.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Steps of the latency histogram: up to 64 us times powers of two. One more step takes the rest.
pub const LATENCY_STEPS: usize = 20;

/// Upper bound of a step.
pub fn latency_bound(step: usize) -> Duration {
    Duration::from_micros(64 << step)
}

/// Latencies from a request's head to the end of its reply.
#[derive(Debug, Default)]
pub struct Latencies {
    /// Counts per step; the last counts those above all bounds.
    pub steps: [Counter; LATENCY_STEPS + 1],
    /// Sum in microseconds.
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

/// A figure on the status page, in JSON and in Prometheus output. Each is declared once, here or in `admin::figures`.
pub struct Shown<T> {
    /// Ends in what it counts.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// How its values are to be read.
    pub kind: PrometheusKind,
    /// Reads the current value.
    pub read: fn(&T) -> u64,
}

/// Declares each counter once: its field, which is its name without `_total`, and what it counts.
macro_rules! counters {
    ($($field:ident: $help:literal;)*) => {
        /// The counters of one loop.
        #[derive(Debug, Default)]
        pub struct Counters {
            /// Requests by outcome, in the order of [`Outcome::ALL`].
            pub requests: [Counter; Outcome::ALL.len()],
            /// Body bytes sent by outcome.
            pub sent_bytes: [Counter; Outcome::ALL.len()],
            /// Latencies of hits.
            pub hit_latency: Latencies,
            /// Latencies of everything else, without tunnels.
            pub miss_latency: Latencies,
            /// Clients' connections that have ended. Not shown, as it follows from others.
            pub connections_ended: Counter,
            $(#[doc = $help] pub $field: Counter,)*
        }

        impl Counters {
            /// The counters that are shown under their own names, in this order.
            pub const SHOWN: &[Shown<Self>] = &[$(Shown {
                name: concat!(stringify!($field), "_total"),
                help: $help,
                kind: PrometheusKind::Counter,
                read: |counters| counters.$field.get(),
            },)*];
        }
    };
}

counters! {
    connections_accepted: "Client connections accepted.";
    connections_refused: "Client connections closed at once: too many, or not allowed.";
    connections_rested: "Idle client connections whose buffers were freed until the client sent more.";
    connections_broken: "Client connections that ended with an error: the client left, or read nothing for too long.";
    lost_writes: "Writes to parked connections: an error of the proxy itself, always 0.";
    malformed_requests: "Requests refused because they were malformed.";
    aborted_replies: "Replies that did not reach their end.";
    origin_requests: "Requests to origins and parents.";
    origin_connections: "Connections to origins and parents.";
    origin_failures: "Requests to origins and parents that got no reply.";
    origin_bytes: "Body bytes received of replies that may be stored.";
    stored_objects: "Replies stored.";
    stored_bytes: "Body bytes of replies stored.";
    unstored_behind: "Replies not stored because too much was waiting to be written.";
    collapse_timeouts: "Requests that waited in vain for another request's fetch.";
    log_lines_lost: "Access-log lines dropped.";
    icp_queries: "ICP queries sent, one per neighbour.";
    icp_found: "ICP queries answered in time with a hit.";
    icp_not_found: "ICP queries answered in time with anything else.";
    icp_unanswered: "ICP queries not answered in time.";
    sibling_hits: "Replies served from a sibling's store.";
    sibling_failures: "ICP hits of siblings whose reply was of no use.";
    icp_answers_hit: "ICP queries answered with HIT.";
    icp_answers_miss: "ICP queries answered with MISS.";
    icp_answers_err: "ICP queries answered with ERR: the URL is invalid.";
    icp_answers_nofetch: "ICP queries answered with MISS_NOFETCH: not stored, and not to be fetched through this proxy now.";
    icp_answers_denied: "ICP queries answered with DENIED: not served here.";
    icp_refused: "ICP datagrams from addresses that may not query.";
    icp_malformed: "Datagrams that are not valid ICP version 2.";
    icp_unexpected: "ICP answers that were not expected, or came too late.";
    completed_parts: "Stored parts of which only the missing bytes were requested.";
    prefetched: "Objects prefetched for pages that embed them.";
    prefetched_bytes: "Body bytes of prefetched objects.";
    prefetch_used: "Prefetched objects that a client requested later.";
    prefetch_failed: "Prefetches without result: no reply, not storable, or too long.";
    prefetch_dropped: "Prefetches dropped because too many were waiting.";
}

impl Counters {
    /// ICP queries by answer, in the order of [`Answer::ALL`].
    pub fn icp_answers(&self) -> [&Counter; Answer::ALL.len()] {
        [
            &self.icp_answers_hit,
            &self.icp_answers_miss,
            &self.icp_answers_err,
            &self.icp_answers_nofetch,
            &self.icp_answers_denied,
        ]
    }

    /// Counts a reply that has ended.
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
