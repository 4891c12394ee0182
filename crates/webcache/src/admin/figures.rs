//! The sums of the loops' counters, and the state of the store.

use std::sync::Arc;

use measure::PrometheusKind;
use packstore::Usage;
use serde_json::{Value, json};

use crate::server::{Counters, LATENCY_STEPS, Latencies, Outcome, Shared, Shown, latency_bound};

/// A histogram of latencies.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Counts per step; the last counts those above all bounds.
    pub steps: [u64; LATENCY_STEPS + 1],
    /// Sum in microseconds.
    pub total_us: u64,
}

impl Histogram {
    fn add(&mut self, latencies: &Latencies) {
        for (sum, step) in self.steps.iter_mut().zip(&latencies.steps) {
            *sum += step.get();
        }
        self.total_us += latencies.total_us.get();
    }

    /// Upper bound, in microseconds, of the step that contains this quantile.
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

/// What gauges are read from.
struct Moment {
    shared: Arc<Shared>,
    usage: Usage,
}

/// The gauges before the counters, and those after them.
const GAUGES: [&[Shown<Moment>]; 2] = [
    &[
        Shown {
            name: "uptime_seconds",
            help: "Seconds since the start.",
            kind: PrometheusKind::Gauge,
            read: |moment| moment.shared.began.elapsed().as_secs(),
        },
        Shown {
            name: "connections",
            help: "Open client connections.",
            kind: PrometheusKind::Gauge,
            read: |moment| moment.shared.clients.count() as u64,
        },
    ],
    &[
        Shown {
            name: "icp_silent",
            help: "Neighbours that ICP queries are not waiting for now.",
            kind: PrometheusKind::Gauge,
            read: |moment| moment.shared.neighbours.silent() as u64,
        },
        Shown {
            name: "fills",
            help: "Replies being fetched that later requests may share.",
            kind: PrometheusKind::Gauge,
            read: |moment| moment.shared.collapse_table.len() as u64,
        },
        Shown {
            name: "bans",
            help: "Bans.",
            kind: PrometheusKind::Gauge,
            read: |moment| moment.shared.bans.count() as u64,
        },
        Shown {
            name: "behind_bytes",
            help: "Bytes waiting to be written, heads and bodies.",
            kind: PrometheusKind::Gauge,
            read: |moment| moment.shared.object_cache.writers().behind_bytes(),
        },
        Shown {
            name: "store_failures_total",
            help: "Failed changes to the store.",
            kind: PrometheusKind::Counter,
            read: |moment| moment.shared.object_cache.writers().failed(),
        },
        Shown {
            name: "store_objects",
            help: "Objects stored.",
            kind: PrometheusKind::Gauge,
            read: |moment| moment.usage.objects,
        },
        Shown {
            name: "store_size_bytes",
            help: "Space the store may use.",
            kind: PrometheusKind::Gauge,
            read: |moment| moment.usage.size_bytes,
        },
        Shown {
            name: "store_live_bytes",
            help: "Space used by objects.",
            kind: PrometheusKind::Gauge,
            read: |moment| moment.usage.live_bytes,
        },
        Shown {
            name: "store_memory_bytes",
            help: "Memory that grows with the number of objects.",
            kind: PrometheusKind::Gauge,
            read: |moment| moment.usage.memory_bytes,
        },
        Shown {
            name: "store_packed_files",
            help: "Segments.",
            kind: PrometheusKind::Gauge,
            read: |moment| moment.usage.packed_files,
        },
        Shown {
            name: "store_body_written_bytes_total",
            help: "Bytes written to data files.",
            kind: PrometheusKind::Counter,
            read: |moment| moment.usage.body_written_bytes,
        },
        Shown {
            name: "store_index_written_bytes_total",
            help: "Bytes written to index files.",
            kind: PrometheusKind::Counter,
            read: |moment| moment.usage.index_written_bytes,
        },
        Shown {
            name: "store_reads_total",
            help: "Reads of data files.",
            kind: PrometheusKind::Counter,
            read: |moment| moment.usage.disk_reads,
        },
        Shown {
            name: "store_syncs_total",
            help: "Syncs of files.",
            kind: PrometheusKind::Counter,
            read: |moment| moment.usage.syncs,
        },
        Shown {
            name: "store_evicted_total",
            help: "Objects evicted.",
            kind: PrometheusKind::Counter,
            read: |moment| moment.usage.evicted,
        },
        Shown {
            name: "store_damaged_reads_total",
            help: "Objects found damaged on reading.",
            kind: PrometheusKind::Counter,
            read: |moment| moment.usage.damaged_reads,
        },
        Shown {
            name: "store_ready",
            help: "1 once the store's index is complete.",
            kind: PrometheusKind::Gauge,
            read: |moment| u64::from(moment.usage.ready),
        },
    ],
];

/// All figures at one moment.
pub struct Figures {
    /// Name, help, kind and value.
    pub plain: Vec<(&'static str, &'static str, PrometheusKind, u64)>,
    /// Requests and body bytes by outcome.
    pub outcomes: Vec<(Outcome, u64, u64)>,
    /// Latencies of hits.
    pub hits: Histogram,
    /// Latencies of everything else, without tunnels.
    pub misses: Histogram,
    /// The store's volumes, with their failures.
    pub volumes: Vec<packstore::VolumeState>,
}

impl Figures {
    /// Reads all figures.
    pub fn of(shared: &Arc<Shared>) -> Self {
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
        let moment = Moment { shared: Arc::clone(shared), usage: shared.object_cache.store().usage() };
        let gauge = |shown: &Shown<Moment>| (shown.name, shown.help, shown.kind, (shown.read)(&moment));
        let counter =
            |shown: &Shown<Counters>| (shown.name, shown.help, shown.kind, sum(&|c| (shown.read)(c)));
        let [first, others] = GAUGES;
        let plain = first.iter().map(gauge).chain(Counters::SHOWN.iter().map(counter));
        let plain = plain.chain(others.iter().map(gauge)).collect();
        Self {
            plain,
            outcomes: outcomes.to_vec(),
            hits,
            misses,
            volumes: shared.object_cache.store().volumes(),
        }
    }

    /// Hits as a share of requests and of bytes, among everything that a store could answer.
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

    /// For the status page and scripts.
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
