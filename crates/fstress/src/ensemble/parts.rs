//! What one rank measured, small enough to send, and the exact sum of many.
//!
//! Always holds: counts and buckets are added, never averaged; the sum does not depend on the order of the ranks but
//! for the digest, which has them in theirs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use files::{OpKind, TransportCounters};
use measure::{FileSetRecord, LatencyHistogram, RankPart};
use serde::{Deserialize, Serialize};

use crate::error::FstressError;
use crate::metronome::{CutShort, Measured};
use crate::tally::{Tallies, Tally};

/// Buckets in use: (highest latency in nanoseconds, samples).
type Buckets = Vec<(u64, u64)>;

/// A load point of one rank, or of all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PointPart {
    pub measured: MeasuredPart,
    pub file_set: FileSetRecord,
    pub rows: Vec<RankPart>,
}

/// A [`Measured`] to be sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct MeasuredPart {
    by_kind: Vec<(u8, TallyPart)>,
    lateness: Buckets,
    planned: u64,
    sent: u64,
    ok_within: u64,
    warmed: Duration,
    measured: Duration,
    busy: f64,
    /// Reconnects, bad replies, retransmits, bytes sent, bytes received.
    counters: [u64; 5],
    overtaken: u64,
    digest: u64,
    ended: Ended,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct TallyPart {
    /// Attempted, ok, retransmitted, cancelled, bytes.
    counts: [u64; 5],
    errors: Vec<(String, u64)>,
    buckets: Buckets,
}

/// Why it ended, and on which rank; the worst stands for all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Ended {
    InTime,
    Stopped,
    Gone { rank: u32, why: String },
}

impl PointPart {
    /// All together, in the order of ranks.
    pub fn sum(parts: Vec<Self>) -> Self {
        let mut sums = Sums::default();
        let mut file_set = FileSetRecord::default();
        let mut rows = Vec::with_capacity(parts.len());
        for (rank, part) in parts.into_iter().enumerate() {
            sums.add(rank as u32, &part.measured);
            file_set.files_asked += part.file_set.files_asked;
            file_set.files += part.file_set.files;
            file_set.directories += part.file_set.directories;
            file_set.symlinks += part.file_set.symlinks;
            file_set.bytes += part.file_set.bytes;
            rows.extend(part.rows);
        }
        Self { measured: sums.into_part(), file_set, rows }
    }
}

impl MeasuredPart {
    pub fn of(measured: &Measured) -> Self {
        let tally = |tally: &Tally| TallyPart {
            counts: [tally.attempted, tally.ok, tally.retransmitted, tally.cancelled, tally.bytes],
            errors: tally.errors.iter().map(|(name, count)| (name.to_string(), *count)).collect(),
            buckets: tally.histogram.buckets(),
        };
        let counters = measured.counters;
        Self {
            by_kind: measured.tallies.iter().map(|(kind, of_kind)| (kind as u8, tally(of_kind))).collect(),
            lateness: measured.lateness.buckets(),
            planned: measured.planned,
            sent: measured.sent,
            ok_within: measured.ok_within,
            warmed: measured.warmed,
            measured: measured.measured,
            busy: measured.busy,
            counters: [
                counters.reconnects,
                counters.bad_replies,
                counters.retransmits,
                counters.sent_bytes,
                counters.received_bytes,
            ],
            overtaken: measured.overtaken,
            digest: measured.digest,
            ended: match &measured.cut_short {
                None => Ended::InTime,
                Some(CutShort::Stopped) => Ended::Stopped,
                Some(CutShort::Gone(error)) => Ended::Gone { rank: 0, why: super::chain(error) },
            },
        }
    }

    /// As it would have been measured by one. `mine` keeps the error of the rank it happened on.
    pub fn into_measured(self, mine: Measured, rows: &[RankPart], rank: u32) -> Measured {
        let [reconnects, bad_replies, retransmits, sent_bytes, received_bytes] = self.counters;
        let mut tallies = Tallies::empty();
        for (kind, part) in &self.by_kind {
            // A kind of another version; versions were compared.
            let Some(kind) = OpKind::ALL.get(*kind as usize) else { continue };
            let mut histogram = LatencyHistogram::new();
            histogram.add_buckets(&part.buckets);
            let [attempted, ok, retransmitted, cancelled, bytes] = part.counts;
            let errors = part.errors.iter().map(|(name, count)| (Cow::Owned(name.clone()), *count)).collect();
            *tallies.of(*kind) = Tally { attempted, ok, retransmitted, cancelled, bytes, errors, histogram };
        }
        let mut lateness = LatencyHistogram::new();
        lateness.add_buckets(&self.lateness);
        let cut_short = match (self.ended, mine.cut_short) {
            (Ended::InTime, _) => None,
            (Ended::Stopped, _) => Some(CutShort::Stopped),
            (Ended::Gone { rank: at, .. }, Some(CutShort::Gone(error))) if at == rank => {
                Some(CutShort::Gone(error))
            }
            (Ended::Gone { rank, why }, _) => {
                let host = rows.iter().find(|row| row.rank == rank).map(|row| row.host.clone());
                Some(CutShort::Gone(FstressError::Elsewhere { rank, host: host.unwrap_or_default(), why }))
            }
        };
        Measured {
            tallies,
            lateness,
            planned: self.planned,
            sent: self.sent,
            ok_within: self.ok_within,
            warmed: self.warmed,
            measured: self.measured,
            busy: self.busy,
            counters: TransportCounters { reconnects, bad_replies, retransmits, sent_bytes, received_bytes },
            overtaken: self.overtaken,
            digest: self.digest,
            cut_short,
        }
    }
}

/// The sum under way: one set of histograms, however many parts there are.
#[derive(Default)]
struct Sums {
    by_kind: BTreeMap<u8, (TallySums, LatencyHistogram)>,
    lateness: LatencyHistogram,
    planned: u64,
    sent: u64,
    ok_within: u64,
    warmed: Duration,
    measured: Duration,
    busy: f64,
    counters: [u64; 5],
    overtaken: u64,
    digest: u64,
    ended: Option<Ended>,
}

#[derive(Default)]
struct TallySums {
    counts: [u64; 5],
    errors: BTreeMap<String, u64>,
}

const DIGEST_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Sums {
    fn add(&mut self, rank: u32, part: &MeasuredPart) {
        for (kind, tally) in &part.by_kind {
            let (sums, histogram) = self.by_kind.entry(*kind).or_default();
            add_each(&mut sums.counts, &tally.counts);
            for (name, count) in &tally.errors {
                *sums.errors.entry(name.clone()).or_default() += count;
            }
            histogram.add_buckets(&tally.buckets);
        }
        self.lateness.add_buckets(&part.lateness);
        self.planned += part.planned;
        self.sent += part.sent;
        self.ok_within += part.ok_within;
        self.overtaken += part.overtaken;
        add_each(&mut self.counters, &part.counters);
        // Those cut short end a moment apart: the longest is what the counts were spread over.
        self.warmed = self.warmed.max(part.warmed);
        self.measured = self.measured.max(part.measured);
        self.busy = self.busy.max(part.busy);
        self.digest = (self.digest ^ part.digest).wrapping_mul(DIGEST_FACTOR).rotate_left(23);
        let worse = match (&self.ended, &part.ended) {
            (Some(Ended::Gone { .. }), _) | (Some(Ended::Stopped), Ended::Stopped | Ended::InTime) => None,
            (_, Ended::Gone { why, .. }) => Some(Ended::Gone { rank, why: why.clone() }),
            (_, other) => Some(other.clone()),
        };
        if worse.is_some() {
            self.ended = worse;
        }
    }

    fn into_part(self) -> MeasuredPart {
        let by_kind = self.by_kind.into_iter().map(|(kind, (sums, histogram))| {
            let errors = sums.errors.into_iter().collect();
            (kind, TallyPart { counts: sums.counts, errors, buckets: histogram.buckets() })
        });
        MeasuredPart {
            by_kind: by_kind.collect(),
            lateness: self.lateness.buckets(),
            planned: self.planned,
            sent: self.sent,
            ok_within: self.ok_within,
            warmed: self.warmed,
            measured: self.measured,
            busy: self.busy,
            counters: self.counters,
            overtaken: self.overtaken,
            digest: self.digest,
            ended: self.ended.unwrap_or(Ended::InTime),
        }
    }
}

fn add_each(sums: &mut [u64; 5], more: &[u64; 5]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += more;
    }
}

#[cfg(test)]
mod tests;
