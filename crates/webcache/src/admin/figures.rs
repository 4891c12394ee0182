//! The loops' counters added up, and the state of the store.

use packstore::Usage;
use serde_json::{Value, json};

use crate::server::{Counters, LATENCY_STEPS, Latencies, Outcome, Shared, latency_bound};

/// A histogram of latencies.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Counts by step; the last lies beyond all bounds.
    pub steps: [u64; LATENCY_STEPS + 1],
    /// All together, in microseconds.
    pub total_us: u64,
}

impl Histogram {
    fn add(&mut self, latencies: &Latencies) {
        for (sum, step) in self.steps.iter_mut().zip(&latencies.steps) {
            *sum += step.get();
        }
        self.total_us += latencies.total_us.get();
    }

    /// Upper bound in microseconds of the step in which that share of all lies.
    pub fn quantile_us(&self, share: f64) -> u64 {
        let wanted = (self.steps.iter().sum::<u64>() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (step, count) in self.steps.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return latency_bound(step).as_micros() as u64;
            }
        }
        0
    }
}

/// All of it at one moment.
pub struct Figures {
    /// Name, help, kind, value; names end in what they count.
    pub plain: Vec<(&'static str, &'static str, &'static str, u64)>,
    /// Requests and body bytes by outcome.
    pub outcomes: Vec<(Outcome, u64, u64)>,
    /// Of hits.
    pub hits: Histogram,
    /// Of all others but tunnels.
    pub misses: Histogram,
    /// Volumes with what is wrong with them.
    pub volumes: Vec<packstore::VolumeState>,
}

impl Figures {
    /// Now.
    pub fn of(shared: &Shared) -> Self {
        let sum =
            |of: &dyn Fn(&Counters) -> u64| shared.counters.iter().map(|counters| of(counters)).sum::<u64>();
        let outcomes = Outcome::ALL.map(|outcome| {
            let place = outcome as usize;
            (
                outcome,
                sum(&|counters| counters.requests[place].get()),
                sum(&|counters| counters.sent_bytes[place].get()),
            )
        });
        let (mut hits, mut misses) = (Histogram::default(), Histogram::default());
        for counters in &shared.counters {
            hits.add(&counters.hit_latency);
            misses.add(&counters.miss_latency);
        }
        let usage: Usage = shared.shelf.store().usage();
        let clerks = shared.shelf.clerks();
        let (counter, gauge) = ("counter", "gauge");
        let plain = vec![
            ("uptime_seconds", "Since the start.", gauge, shared.began.elapsed().as_secs()),
            ("connections", "Clients' connections now.", gauge, shared.clients.count() as u64),
            (
                "connections_accepted_total",
                "Clients' connections taken.",
                counter,
                sum(&|c| c.connections_accepted.get()),
            ),
            (
                "connections_refused_total",
                "Closed at once: too many, or not allowed.",
                counter,
                sum(&|c| c.connections_refused.get()),
            ),
            (
                "connections_rested_total",
                "Idle connections that gave their buffers back until their clients said more.",
                counter,
                sum(&|c| c.connections_rested.get()),
            ),
            (
                "connections_broken_total",
                "Clients' connections that ended with an error: the client left or took nothing for too long.",
                counter,
                sum(&|c| c.connections_broken.get()),
            ),
            (
                "lost_writes_total",
                "Writes to connections that were taken for idle: an error of the proxy's own, always 0.",
                counter,
                sum(&|c| c.lost_writes.get()),
            ),
            (
                "malformed_requests_total",
                "Answered 400 for how they were written.",
                counter,
                sum(&|c| c.malformed_requests.get()),
            ),
            (
                "aborted_replies_total",
                "Replies that did not reach their end.",
                counter,
                sum(&|c| c.aborted_replies.get()),
            ),
            (
                "origin_requests_total",
                "Requests to origins and parents.",
                counter,
                sum(&|c| c.origin_requests.get()),
            ),
            (
                "origin_connections_total",
                "Connections to them.",
                counter,
                sum(&|c| c.origin_connections.get()),
            ),
            (
                "origin_failures_total",
                "Requests without a reply.",
                counter,
                sum(&|c| c.origin_failures.get()),
            ),
            (
                "origin_bytes_total",
                "Body bytes of replies that may be stored.",
                counter,
                sum(&|c| c.origin_bytes.get()),
            ),
            ("stored_objects_total", "Replies stored.", counter, sum(&|c| c.stored_objects.get())),
            ("stored_bytes_total", "Their body bytes.", counter, sum(&|c| c.stored_bytes.get())),
            (
                "unstored_behind_total",
                "Replies not stored, as too much waited to be written.",
                counter,
                sum(&|c| c.unstored_behind.get()),
            ),
            (
                "collapse_timeouts_total",
                "Requests that waited for another in vain.",
                counter,
                sum(&|c| c.collapse_timeouts.get()),
            ),
            (
                "log_lines_lost_total",
                "Lines of the access log that were lost.",
                counter,
                sum(&|c| c.log_lines_lost.get()),
            ),
            (
                "icp_queries_total",
                "Questions to other caches by ICP, one for each that was asked.",
                counter,
                sum(&|c| c.icp_queries.get()),
            ),
            (
                "icp_found_total",
                "Of them those answered in time that it is stored there.",
                counter,
                sum(&|c| c.icp_found.get()),
            ),
            (
                "icp_not_found_total",
                "Those answered in time otherwise.",
                counter,
                sum(&|c| c.icp_not_found.get()),
            ),
            (
                "icp_unanswered_total",
                "Those not answered in time.",
                counter,
                sum(&|c| c.icp_unanswered.get()),
            ),
            (
                "sibling_hits_total",
                "Replies out of a sibling's store.",
                counter,
                sum(&|c| c.sibling_hits.get()),
            ),
            (
                "sibling_failures_total",
                "Siblings that said they have it, and then gave nothing of use.",
                counter,
                sum(&|c| c.sibling_failures.get()),
            ),
            (
                "icp_answers_hit_total",
                "Other caches' questions answered: stored here.",
                counter,
                sum(&|c| c.icp_answers[0].get()),
            ),
            ("icp_answers_miss_total", "Answered: not stored.", counter, sum(&|c| c.icp_answers[1].get())),
            (
                "icp_answers_err_total",
                "Answered: the URL is none.",
                counter,
                sum(&|c| c.icp_answers[2].get()),
            ),
            (
                "icp_answers_nofetch_total",
                "Answered: not stored, and not to be fetched through here now.",
                counter,
                sum(&|c| c.icp_answers[3].get()),
            ),
            (
                "icp_answers_denied_total",
                "Answered: not served here.",
                counter,
                sum(&|c| c.icp_answers[4].get()),
            ),
            (
                "icp_refused_total",
                "Datagrams from where nobody may ask.",
                counter,
                sum(&|c| c.icp_refused.get()),
            ),
            (
                "icp_malformed_total",
                "Datagrams that are no ICP, version 2.",
                counter,
                sum(&|c| c.icp_malformed.get()),
            ),
            (
                "icp_unexpected_total",
                "Answers that nobody waits for, or too late.",
                counter,
                sum(&|c| c.icp_unexpected.get()),
            ),
            (
                "icp_silent",
                "Caches asked by ICP that are not waited for now.",
                gauge,
                shared.neighbours.silent() as u64,
            ),
            (
                "completed_parts_total",
                "Stored parts of which only what was missing was asked for.",
                counter,
                sum(&|c| c.completed_parts.get()),
            ),
            (
                "prefetched_total",
                "Objects fetched ahead, as a page embeds them.",
                counter,
                sum(&|c| c.prefetched_objects.get()),
            ),
            ("prefetched_bytes_total", "Their body bytes.", counter, sum(&|c| c.prefetched_bytes.get())),
            (
                "prefetch_used_total",
                "Of them those that a client asked for afterwards.",
                counter,
                sum(&|c| c.prefetch_used.get()),
            ),
            (
                "prefetch_failed_total",
                "Fetched ahead in vain: no reply, not to be stored, or too long.",
                counter,
                sum(&|c| c.prefetch_failed.get()),
            ),
            (
                "prefetch_dropped_total",
                "Not fetched ahead, as too many waited.",
                counter,
                sum(&|c| c.prefetch_dropped.get()),
            ),
            ("fills", "Replies on their way that others may share.", gauge, shared.flights.len() as u64),
            ("bans", "Bans in force.", gauge, shared.bans.count() as u64),
            ("behind_bytes", "Body bytes that wait to be written.", gauge, clerks.behind_bytes()),
            ("store_failures_total", "Changes that the store refused.", counter, clerks.failed()),
            ("store_objects", "Objects stored.", gauge, usage.objects),
            ("store_size_bytes", "Space that the store may use.", gauge, usage.size_bytes),
            ("store_live_bytes", "Space that objects take.", gauge, usage.live_bytes),
            ("store_memory_bytes", "Memory that grows with the objects.", gauge, usage.memory_bytes),
            ("store_packed_files", "Packed files.", gauge, usage.packed_files),
            (
                "store_body_written_bytes_total",
                "Bytes written to body files.",
                counter,
                usage.body_written_bytes,
            ),
            (
                "store_index_written_bytes_total",
                "Bytes written to index files.",
                counter,
                usage.index_written_bytes,
            ),
            ("store_reads_total", "Reads of body files.", counter, usage.disk_reads),
            ("store_syncs_total", "Syncs of files.", counter, usage.syncs),
            ("store_evicted_total", "Objects evicted.", counter, usage.evicted),
            (
                "store_damaged_reads_total",
                "Objects found damaged when they were read.",
                counter,
                usage.damaged_reads,
            ),
            ("store_ready", "1 once the store knows all that it holds.", gauge, u64::from(usage.ready)),
        ];
        Self { plain, outcomes: outcomes.to_vec(), hits, misses, volumes: shared.shelf.store().volumes() }
    }

    /// Requests and bytes from the store, and of all that a store could answer.
    fn hit_ratios(&self) -> (f64, f64) {
        let counts =
            |outcome: &Outcome| !matches!(outcome, Outcome::Tunnel | Outcome::Purge | Outcome::Denied);
        let (mut requests, mut bytes, mut hit_requests, mut hit_bytes) = (0, 0, 0, 0);
        for (outcome, count, sent) in self.outcomes.iter().filter(|(outcome, ..)| counts(outcome)) {
            requests += count;
            bytes += sent;
            if outcome.is_hit() {
                hit_requests += count;
                hit_bytes += sent;
            }
        }
        let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        (ratio(hit_requests, requests), ratio(hit_bytes, bytes))
    }

    /// For the page, and for scripts.
    pub fn json(&self) -> String {
        let mut all = serde_json::Map::new();
        for (name, _, _, value) in &self.plain {
            all.insert((*name).to_owned(), json!(value));
        }
        let (requests, bytes) = self.hit_ratios();
        all.insert("hit_ratio_requests".to_owned(), json!(requests));
        all.insert("hit_ratio_bytes".to_owned(), json!(bytes));
        let outcomes = self.outcomes.iter().map(|(outcome, requests, sent)| {
            (outcome.name().to_owned(), json!({ "requests": requests, "sent_bytes": sent }))
        });
        all.insert("outcomes".to_owned(), Value::Object(outcomes.collect()));
        for (name, histogram) in [("hit_latency_us", &self.hits), ("miss_latency_us", &self.misses)] {
            let quantiles = json!({
                "p50": histogram.quantile_us(0.5), "p90": histogram.quantile_us(0.9), "p99": histogram.quantile_us(0.99),
                "steps": histogram.steps.to_vec(),
            });
            all.insert(name.to_owned(), quantiles);
        }
        let volumes = self.volumes.iter().map(|volume| {
            json!({ "place": volume.place, "size_bytes": volume.size_bytes, "live_bytes": volume.live_bytes,
                    "packed_files": volume.packed_files, "failed": volume.failed })
        });
        all.insert("volumes".to_owned(), volumes.collect());
        Value::Object(all).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_bound_of_the_step_it_lies_in() {
        let mut histogram = Histogram::default();
        (histogram.steps[0], histogram.steps[3]) = (99, 1);
        assert_eq!(histogram.quantile_us(0.5), 64);
        assert_eq!(histogram.quantile_us(0.99), 64);
        assert_eq!(histogram.quantile_us(1.0), 512);
    }
}
