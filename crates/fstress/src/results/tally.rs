//! What happened to the operations of one load point, counted by kind.
//!
//! Always holds: each counted operation ends in exactly one of `ok`, `cancelled` and the errors; the histogram has those
//! that succeeded and, with the time that was waited for them, those that were never answered. An error is not in it, so
//! that it is never a fast operation.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use files::{OpKind, Outcome, Reply};
use measure::{ChainStats, LatencyHistogram, OpStats};

use crate::workload::mix::Mix;

/// Counts of one kind of operation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub attempted: u64,
    pub ok: u64,
    pub retransmitted: u64,
    pub cancelled: u64,
    pub bytes: u64,
    pub errors: BTreeMap<Cow<'static, str>, u64>,
    pub histogram: LatencyHistogram,
}

impl Tally {
    /// Counts how one operation ended. Without a `latency` the caller adds it later, by [`Self::latency`].
    #[inline]
    pub fn settle(&mut self, outcome: &Outcome<'_>, retransmits: u32, latency: Option<Duration>) {
        self.retransmitted += u64::from(retransmits);
        match outcome {
            Outcome::Ok(reply) => {
                self.ok += 1;
                self.bytes += file_bytes(reply);
            }
            Outcome::Cancelled => self.cancelled += 1,
            failed => {
                problem_name(failed).into_iter().for_each(|name| self.error(name));
                return;
            }
        }
        if let Some(latency) = latency {
            self.latency(latency);
        }
    }

    /// Counts the latency of an operation that was settled without it.
    #[inline]
    pub fn latency(&mut self, latency: Duration) {
        self.histogram.record(latency);
    }

    /// Counts what was lost with its connection as never answered, with the time that was waited; how many that were.
    fn give_up_lost(&mut self, waited: Duration) -> u64 {
        let lost = self.errors.remove(LOST).unwrap_or(0);
        self.cancelled += lost;
        self.histogram.add_buckets(&[(waited.as_nanos() as u64, lost)]);
        lost
    }

    /// Errors of any name.
    pub fn errors_total(&self) -> u64 {
        self.errors.values().sum()
    }

    pub fn error(&mut self, name: Cow<'static, str>) {
        *self.errors.entry(name).or_insert(0) += 1;
    }
}

/// What the end of an operation is called whose connection broke.
const LOST: &str = "CONNECTION_LOST";

/// What the end of an operation is called that did not succeed.
pub(crate) fn problem_name(outcome: &Outcome<'_>) -> Option<Cow<'static, str>> {
    match outcome {
        Outcome::Ok(_) => None,
        Outcome::Failed(status) => Some(status.name()),
        Outcome::Cancelled => Some(Cow::Borrowed("CANCELLED")),
        Outcome::Lost => Some(Cow::Borrowed(LOST)),
        Outcome::Rejected(why) => Some(Cow::Borrowed(why)),
        Outcome::BadReply => Some(Cow::Borrowed("BAD_REPLY")),
    }
}

fn file_bytes(reply: &Reply<'_>) -> u64 {
    match reply {
        Reply::Read { bytes, .. } => bytes.len() as u64,
        Reply::Write { count, .. } => u64::from(*count),
        _ => 0,
    }
}

/// Counts of one chain.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChainTally {
    /// First requests sent.
    pub begun: u64,
    /// All requests succeeded.
    pub complete: u64,
    /// Ended by a request that the storage answered with an error.
    pub failed: u64,
    /// Requests sent, the first ones among them.
    pub requests: u64,
    /// From the first request's send to the last reply, of the complete ones.
    pub histogram: LatencyHistogram,
}

impl ChainTally {
    /// As in a record, for a chain of `steps` requests.
    pub fn stats(&self, steps: usize) -> ChainStats {
        ChainStats {
            begun: self.begun,
            complete: self.complete,
            failed: self.failed,
            unanswered: self.begun - self.complete - self.failed,
            requests_sent: self.requests,
            requests_not_sent: self.begun * steps as u64 - self.requests,
            latency_us: self.histogram.summary(),
            histogram: self.histogram.clone(),
        }
    }
}

/// Counts of all kinds.
#[derive(Clone, Debug)]
pub(crate) struct Tallies {
    by_kind: Box<[Option<Box<Tally>>; OpKind::COUNT]>,
}

impl Tallies {
    /// Room for the kinds of `mix`; others get theirs when they are first met.
    pub fn new(mix: &Mix) -> Self {
        let mut tallies = Self::empty();
        for kind in OpKind::ALL.into_iter().filter(|&kind| mix.share(kind) > 0.0) {
            tallies.of(kind);
        }
        tallies
    }

    /// No kind met yet.
    pub fn empty() -> Self {
        Self { by_kind: Box::new([const { None }; OpKind::COUNT]) }
    }

    /// The counts of `kind`.
    #[inline]
    pub fn of(&mut self, kind: OpKind) -> &mut Tally {
        self.by_kind[kind as usize].get_or_insert_default()
    }

    /// All kinds met or asked for.
    pub fn iter(&self) -> impl Iterator<Item = (OpKind, &Tally)> {
        OpKind::ALL
            .into_iter()
            .zip(self.by_kind.iter())
            .filter_map(|(kind, tally)| Some((kind, tally.as_deref()?)))
    }

    /// Counts what was lost with its connection as never answered: the storage did not come back.
    pub fn give_up_lost(&mut self, waited: Duration) -> u64 {
        self.by_kind.iter_mut().flatten().map(|tally| tally.give_up_lost(waited)).sum()
    }

    /// Sum of a count over all kinds.
    pub fn sum(&self, count: impl Fn(&Tally) -> u64) -> u64 {
        self.iter().map(|(_, tally)| count(tally)).sum()
    }

    /// All that succeeded or were never answered in one histogram.
    pub fn histogram(&self) -> LatencyHistogram {
        let mut all = LatencyHistogram::new();
        for (_, tally) in self.iter() {
            all.merge(&tally.histogram);
        }
        all
    }

    /// The per-operation table of a record, with the shares of attempts and of time worked out.
    pub fn op_stats(&self, mix: &Mix) -> BTreeMap<String, OpStats> {
        let attempted = self.sum(|tally| tally.attempted).max(1) as f64;
        let time_s: f64 = self.iter().map(|(_, tally)| tally.histogram.total_s()).sum();
        let stats = |kind: OpKind, tally: &Tally| OpStats {
            attempted: tally.attempted,
            ok: tally.ok,
            retransmitted: tally.retransmitted,
            cancelled: tally.cancelled,
            errors: tally.errors.iter().map(|(name, count)| (name.to_string(), *count)).collect(),
            share_percent: 100.0 * tally.attempted as f64 / attempted,
            share_asked_percent: 100.0 * mix.share(kind),
            time_share_percent: if time_s > 0.0 { 100.0 * tally.histogram.total_s() / time_s } else { 0.0 },
            bytes: tally.bytes,
            latency_us: tally.histogram.summary(),
            histogram: tally.histogram.clone(),
        };
        self.iter().map(|(kind, tally)| (kind.name().to_owned(), stats(kind, tally))).collect()
    }
}
