//! What one rank measured, small enough to send, and the exact sum of many.
//!
//! Always holds: counts and buckets are added, never averaged; the sum does not depend on the order of the ranks but
//! for the digest, which has them in theirs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use files::{OpKind, TransportCounters};
use harness::open_loop::LatenessLog;
use harness::ranks::RanksError;
use measure::{FileSetRecord, LatencyHistogram, MachineUse, RankPart, StepCounts};
use serde::{Deserialize, Serialize};

use crate::open_loop::metronome::{Absence, CutShort, Measured};
use crate::open_loop::planner::DIGEST_FACTOR;
use crate::results::tally::{ChainTally, Tallies, Tally};

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
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct MeasuredPart {
    by_kind: Vec<(u8, TallyPart)>,
    lateness: LatenessPart,
    late_ranks: Vec<(u32, String)>,
    full: Duration,
    absence: Absence,
    planned: u64,
    sent: u64,
    ok_within: u64,
    answered_within: u64,
    warmed: Duration,
    measured: Duration,
    busy: f64,
    /// Reconnects, bad replies, garbage, retransmits, bytes sent, bytes received.
    counters: [u64; 6],
    overtaken: u64,
    chains: Vec<ChainPart>,
    digest: u64,
    /// Bytes that the file set was made with, and those that created files are still to get.
    set_bytes: [u64; 2],
    machine: MachineUse,
    ended: Ended,
    steps: StepCounts,
}

/// Buckets of a [`LatenessLog`], in the order of its fields.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct LatenessPart {
    buckets: [Buckets; 5],
}

impl LatenessPart {
    fn of(log: &LatenessLog) -> Self {
        Self { buckets: log.histograms().map(LatencyHistogram::buckets) }
    }

    fn add_to(&self, log: &mut LatenessLog) {
        let histograms = log.histograms_mut().into_iter();
        histograms.zip(&self.buckets).for_each(|(histogram, buckets)| histogram.add_buckets(buckets));
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct TallyPart {
    /// Attempted, ok, retransmitted, cancelled, bytes.
    counts: [u64; 5],
    errors: Vec<(String, u64)>,
    buckets: Buckets,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct ChainPart {
    /// Begun, complete, failed, requests.
    counts: [u64; 4],
    buckets: Buckets,
}

impl ChainPart {
    fn of(tally: &ChainTally) -> Self {
        Self {
            counts: [tally.begun, tally.complete, tally.failed, tally.requests],
            buckets: tally.histogram.buckets(),
        }
    }

    fn tally(&self) -> ChainTally {
        let [begun, complete, failed, requests] = self.counts;
        let mut histogram = LatencyHistogram::new();
        histogram.add_buckets(&self.buckets);
        ChainTally { begun, complete, failed, requests, histogram }
    }

    fn add(&mut self, other: &Self) {
        add_each(&mut self.counts, &other.counts);
        let mut sum = self.tally().histogram;
        sum.add_buckets(&other.buckets);
        self.buckets = sum.buckets();
    }
}

/// Why it ended, and on which rank; the worst stands for all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Ended {
    #[default]
    InTime,
    Stopped,
    Gone {
        rank: u32,
        why: String,
    },
}

impl Ended {
    /// With how it ended on `rank`; of several that are gone the first stands.
    fn add(&mut self, rank: u32, other: &Self) {
        match (&*self, other) {
            (Self::Gone { .. }, _) | (_, Self::InTime) => {}
            (_, Self::Gone { why, .. }) => *self = Self::Gone { rank, why: why.clone() },
            (_, Self::Stopped) => *self = Self::Stopped,
        }
    }
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
            lateness: LatenessPart::of(&measured.lateness),
            late_ranks: measured.late_ranks.clone(),
            full: measured.full,
            absence: measured.absence,
            planned: measured.planned,
            sent: measured.sent,
            ok_within: measured.ok_within,
            answered_within: measured.answered_within,
            warmed: measured.warmed,
            measured: measured.measured,
            busy: measured.busy,
            counters: [
                counters.reconnects,
                counters.bad_replies,
                counters.garbage,
                counters.retransmits,
                counters.sent_bytes,
                counters.received_bytes,
            ],
            overtaken: measured.overtaken,
            chains: measured.chains.iter().map(ChainPart::of).collect(),
            digest: measured.digest,
            set_bytes: [measured.set_bytes_made, measured.set_bytes_to_come],
            machine: measured.machine.clone(),
            steps: measured.steps.clone(),
            ended: match &measured.cut_short {
                None => Ended::InTime,
                Some(CutShort::Stopped) => Ended::Stopped,
                Some(CutShort::Gone(error)) => Ended::Gone { rank: 0, why: measure::error_chain(error) },
            },
        }
    }

    /// As it would have been measured by one. `mine` keeps the error of the rank it happened on.
    pub fn into_measured(self, mine: Measured, rows: &[RankPart], rank: u32) -> Measured {
        let [reconnects, bad_replies, garbage, retransmits, sent_bytes, received_bytes] = self.counters;
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
        let mut lateness = LatenessLog::default();
        self.lateness.add_to(&mut lateness);
        let cut_short = match (self.ended, mine.cut_short) {
            (Ended::InTime, _) => None,
            (Ended::Stopped, _) => Some(CutShort::Stopped),
            (Ended::Gone { rank: at, .. }, Some(CutShort::Gone(error))) if at == rank => {
                Some(CutShort::Gone(error))
            }
            (Ended::Gone { rank, why }, _) => {
                let host = rows.iter().find(|row| row.rank == rank).map(|row| row.host.clone());
                Some(CutShort::Gone(
                    RanksError::Elsewhere { rank, host: host.unwrap_or_default(), why }.into(),
                ))
            }
        };
        Measured {
            tallies,
            lateness,
            late_ranks: self.late_ranks,
            full: self.full,
            absence: self.absence,
            planned: self.planned,
            sent: self.sent,
            ok_within: self.ok_within,
            answered_within: self.answered_within,
            warmed: self.warmed,
            measured: self.measured,
            busy: self.busy,
            counters: TransportCounters {
                reconnects,
                bad_replies,
                garbage,
                retransmits,
                sent_bytes,
                received_bytes,
                // It is in `full`.
                waited_for_thread: Duration::ZERO,
            },
            overtaken: self.overtaken,
            chains: self.chains.iter().map(ChainPart::tally).collect(),
            digest: self.digest,
            set_bytes_made: self.set_bytes[0],
            set_bytes_to_come: self.set_bytes[1],
            machine: self.machine,
            cut_short,
            steps: self.steps,
        }
    }
}

/// The sum under way: one set of histograms, however many parts there are.
#[derive(Default)]
struct Sums {
    by_kind: BTreeMap<u8, (TallyPart, LatencyHistogram)>,
    lateness: LatenessLog,
    /// All the rest; its buckets and kinds stay empty until the end.
    whole: MeasuredPart,
}

impl Sums {
    fn add(&mut self, rank: u32, part: &MeasuredPart) {
        for (kind, tally) in &part.by_kind {
            let (sum, histogram) = self.by_kind.entry(*kind).or_default();
            add_each(&mut sum.counts, &tally.counts);
            for (name, count) in &tally.errors {
                match sum.errors.iter_mut().find(|(known, _)| known == name) {
                    Some((_, sum)) => *sum += count,
                    None => sum.errors.push((name.clone(), *count)),
                }
            }
            histogram.add_buckets(&tally.buckets);
        }
        part.lateness.add_to(&mut self.lateness);
        let whole = &mut self.whole;
        whole.late_ranks.extend(part.late_ranks.iter().cloned());
        whole.full = whole.full.max(part.full);
        // A storage that answers one rank is not silent; one that lost its connection to any is away.
        whole.absence = Absence {
            away: whole.absence.away.max(part.absence.away),
            is_away_still: whole.absence.is_away_still | part.absence.is_away_still,
            silent: if rank == 0 {
                part.absence.silent
            } else {
                whole.absence.silent.min(part.absence.silent)
            },
        };
        whole.planned += part.planned;
        whole.sent += part.sent;
        whole.ok_within += part.ok_within;
        whole.answered_within += part.answered_within;
        whole.overtaken += part.overtaken;
        whole.chains.resize_with(whole.chains.len().max(part.chains.len()), ChainPart::default);
        whole.chains.iter_mut().zip(&part.chains).for_each(|(sum, part)| sum.add(part));
        add_each(&mut whole.counters, &part.counters);
        add_each(&mut whole.set_bytes, &part.set_bytes);
        whole.machine += &part.machine;
        // Those cut short end a moment apart: the longest is what the counts were spread over.
        whole.warmed = whole.warmed.max(part.warmed);
        whole.measured = whole.measured.max(part.measured);
        whole.busy = whole.busy.max(part.busy);
        whole.digest = (whole.digest ^ part.digest).wrapping_mul(DIGEST_FACTOR).rotate_left(23);
        whole.ended.add(rank, &part.ended);
        whole.steps.merge(part.steps.clone());
    }

    fn into_part(self) -> MeasuredPart {
        let by_kind = self
            .by_kind
            .into_iter()
            .map(|(kind, (sum, histogram))| (kind, TallyPart { buckets: histogram.buckets(), ..sum }));
        MeasuredPart { by_kind: by_kind.collect(), lateness: LatenessPart::of(&self.lateness), ..self.whole }
    }
}

fn add_each<const N: usize>(sums: &mut [u64; N], more: &[u64; N]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += more;
    }
}

#[cfg(test)]
mod tests;
