//! What happened to the requests of one phase.
//!
//! Always holds: each request counted ends in exactly one of `ok`, `cancelled` and the faults; a class's histogram holds good
//! replies, and requests that had no reply in their time with the time that was waited, as they took at least that; the other
//! histograms hold good replies alone; a hit is a good reply that the origin did not make for this request. A reload asks for
//! the origin's own word, so that no cache could have given it alone: one that is validated is no hit.

use std::collections::BTreeMap;
use std::time::Duration;

use harness::open_loop::LatenessLog;
use measure::{LatencyHistogram, OpStats, ProcessUse, StepCounts};
use serde::{Deserialize, Serialize};

use super::part::fault_counts;
use crate::generator::client::Fault;
use crate::plan::{Class, Planned};

/// Counts of one class of requests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ClassTally {
    pub attempted: u64,
    pub ok: u64,
    pub cancelled: u64,
    pub bytes: u64,
    #[serde(with = "fault_counts")]
    pub faults: BTreeMap<Fault, u64>,
    pub histogram: LatencyHistogram,
}

/// Where a good reply came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Cache,
    /// From a cache that had asked the origin whether it is still good.
    Validated,
    Origin,
}

/// Counts of one phase by one generator.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub classes: [ClassTally; Class::ALL.len()],
    /// Planned; what was not sent is the rest.
    pub planned: u64,
    /// Good replies that came while the phase lasted, whenever they were due.
    pub ok_within: u64,
    pub hits: u64,
    pub validated: u64,
    pub misses: u64,
    pub hit_bytes: u64,
    pub bytes: u64,
    /// Of good replies, those that a cache could have given.
    pub could_hit: u64,
    pub could_hit_bytes: u64,
    pub asked_bytes: u64,
    /// Requests that had no reply in their time, and are in the histograms of their classes with that.
    pub timed_out: u64,
    /// Of the cancelled, those whose run was ended before they had their time: no failure of the proxy's.
    pub cut_off: u64,
    pub reconnects: u64,
    pub connections: u64,
    pub hit_latency: LatencyHistogram,
    pub miss_latency: LatencyHistogram,
    /// All good replies, less what the origin thought about them.
    pub without_think: LatencyHistogram,
    /// How late requests were sent and replies taken.
    pub lateness: LatenessLog,
    /// Time in which requests waited for a connection.
    pub full: Duration,
    pub begin: Option<Duration>,
    pub wall: Duration,
    pub idle: Duration,
    /// Requests as they were planned, mixed into one number.
    pub digest: u64,
    /// What the proxy used, where it was watched.
    pub proxy: Option<ProcessUse>,
    /// How it went over its time.
    pub steps: StepCounts,
}

/// One good reply.
pub(crate) struct Good {
    pub source: Source,
    pub latency: Duration,
    pub think: Duration,
    pub body_bytes: u64,
}

impl Good {
    /// Where it came from, as far as hits are concerned.
    fn counted_as(&self, planned: &Planned) -> Source {
        match self.source {
            Source::Validated if planned.class == Class::Reload => Source::Origin,
            source => source,
        }
    }
}

impl Tally {
    fn class(&mut self, class: Class) -> &mut ClassTally {
        &mut self.classes[class as usize]
    }

    pub fn sent(&mut self, planned: &Planned) {
        self.class(planned.class).attempted += 1;
    }

    #[inline]
    pub fn good(&mut self, planned: &Planned, good: &Good) {
        let class = self.class(planned.class);
        class.ok += 1;
        class.bytes += good.body_bytes;
        class.histogram.record(good.latency);
        self.bytes += good.body_bytes;
        self.asked_bytes += planned.object.size_bytes;
        if planned.could_hit {
            self.could_hit += 1;
            self.could_hit_bytes += planned.object.size_bytes;
        }
        match good.counted_as(planned) {
            Source::Origin => {
                self.misses += 1;
                self.miss_latency.record(good.latency);
            }
            source => {
                self.hits += 1;
                self.validated += u64::from(source == Source::Validated);
                self.hit_bytes += good.body_bytes;
                self.hit_latency.record(good.latency);
            }
        }
        self.without_think.record(good.latency.saturating_sub(good.think));
    }

    pub fn fault(&mut self, planned: &Planned, fault: Fault) {
        *self.class(planned.class).faults.entry(fault).or_insert(0) += 1;
    }

    /// No reply came in this time.
    pub fn timed_out(&mut self, planned: &Planned, waited: Duration) {
        self.timed_out += 1;
        self.class(planned.class).histogram.record(waited);
        self.lateness.unanswered(waited, 1);
    }

    /// Unanswered when all was over; `cut_off`: as the run was ended and not at the end of its patience.
    pub fn cancelled(&mut self, planned: &Planned, cut_off: bool) {
        self.class(planned.class).cancelled += 1;
        self.cut_off += u64::from(cut_off);
    }

    /// Sum over the classes.
    pub fn sum(&self, count: impl Fn(&ClassTally) -> u64) -> u64 {
        self.classes.iter().map(count).sum()
    }

    pub fn attempted(&self) -> u64 {
        self.sum(|class| class.attempted)
    }

    pub fn ok(&self) -> u64 {
        self.sum(|class| class.ok)
    }

    /// Requests that had no reply in their time.
    pub fn unanswered(&self) -> u64 {
        self.sum(|class| class.cancelled) - self.cut_off
    }

    /// Requests that ended badly or not at all.
    pub fn failed(&self) -> u64 {
        self.unanswered() + self.sum(|class| class.faults.values().sum::<u64>())
    }

    /// All faults by name.
    pub fn faults(&self) -> BTreeMap<Fault, u64> {
        let mut all = BTreeMap::new();
        for (fault, count) in self.classes.iter().flat_map(|class| &class.faults) {
            *all.entry(*fault).or_insert(0) += count;
        }
        all
    }

    /// All good replies in one histogram, and what had none in its time.
    pub fn latency(&self) -> LatencyHistogram {
        let mut all = LatencyHistogram::new();
        self.classes.iter().for_each(|class| all.merge(&class.histogram));
        all
    }

    /// Adds another generator's counts of the same phase.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            mine.attempted += theirs.attempted;
            mine.ok += theirs.ok;
            mine.cancelled += theirs.cancelled;
            mine.bytes += theirs.bytes;
            mine.histogram.merge(&theirs.histogram);
            for (fault, count) in &theirs.faults {
                *mine.faults.entry(*fault).or_insert(0) += count;
            }
        }
        self.planned += other.planned;
        self.ok_within += other.ok_within;
        self.hits += other.hits;
        self.validated += other.validated;
        self.misses += other.misses;
        self.hit_bytes += other.hit_bytes;
        self.bytes += other.bytes;
        self.could_hit += other.could_hit;
        self.could_hit_bytes += other.could_hit_bytes;
        self.asked_bytes += other.asked_bytes;
        self.timed_out += other.timed_out;
        self.cut_off += other.cut_off;
        self.reconnects += other.reconnects;
        self.connections += other.connections;
        self.hit_latency.merge(&other.hit_latency);
        self.miss_latency.merge(&other.miss_latency);
        self.without_think.merge(&other.without_think);
        self.lateness.merge(&other.lateness);
        self.steps.merge(other.steps.clone());
        self.begin = self.begin.into_iter().chain(other.begin).min();
        self.wall = self.wall.max(other.wall);
        self.idle += other.idle;
        self.full += other.full;
        self.digest ^= other.digest;
        if let Some(theirs) = other.proxy {
            match &mut self.proxy {
                Some(mine) => mine.add(&theirs),
                mine => *mine = Some(theirs),
            }
        }
    }

    /// The table by class, for the record.
    pub fn op_stats(&self) -> BTreeMap<String, OpStats> {
        let attempted = self.attempted().max(1) as f64;
        let time_s: f64 = self.classes.iter().map(|class| class.histogram.total_s()).sum();
        let stats = |class: &ClassTally| OpStats {
            attempted: class.attempted,
            ok: class.ok,
            retransmitted: 0,
            cancelled: class.cancelled,
            errors: class.faults.iter().map(|(fault, count)| (fault.name(), *count)).collect(),
            share_percent: 100.0 * class.attempted as f64 / attempted,
            share_asked_percent: 100.0 * class.attempted as f64 / attempted,
            time_share_percent: if time_s > 0.0 { 100.0 * class.histogram.total_s() / time_s } else { 0.0 },
            bytes: class.bytes,
            latency_us: class.histogram.summary(),
            histogram: class.histogram.clone(),
        };
        let met = Class::ALL.into_iter().zip(&self.classes).filter(|(_, class)| class.attempted > 0);
        met.map(|(class, tally)| (class.name().to_owned(), stats(tally))).collect()
    }
}

/// Counts of a stretch of time, for curves.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Moment {
    pub due: u64,
    /// Good replies that came in it, whenever they were due; all other counts are by when they were due.
    pub answered: u64,
    pub ok: u64,
    pub failed: u64,
    pub hits: u64,
    pub could_hit: u64,
    pub bytes: u64,
    pub hit_bytes: u64,
    pub asked_bytes: u64,
    pub could_hit_bytes: u64,
    pub latency_s: f64,
    pub hit_latency_s: f64,
    pub without_think_s: f64,
}

impl Moment {
    pub fn merge(&mut self, other: &Self) {
        self.due += other.due;
        self.answered += other.answered;
        self.ok += other.ok;
        self.failed += other.failed;
        self.hits += other.hits;
        self.could_hit += other.could_hit;
        self.bytes += other.bytes;
        self.hit_bytes += other.hit_bytes;
        self.asked_bytes += other.asked_bytes;
        self.could_hit_bytes += other.could_hit_bytes;
        self.latency_s += other.latency_s;
        self.hit_latency_s += other.hit_latency_s;
        self.without_think_s += other.without_think_s;
    }

    pub fn good(&mut self, planned: &Planned, good: &Good) {
        self.ok += 1;
        self.bytes += good.body_bytes;
        self.asked_bytes += planned.object.size_bytes;
        self.latency_s += good.latency.as_secs_f64();
        self.without_think_s += good.latency.saturating_sub(good.think).as_secs_f64();
        if planned.could_hit {
            self.could_hit += 1;
            self.could_hit_bytes += planned.object.size_bytes;
        }
        if good.counted_as(planned) != Source::Origin {
            self.hits += 1;
            self.hit_bytes += good.body_bytes;
            self.hit_latency_s += good.latency.as_secs_f64();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::object::{Kind, Object};

    /// Symptom: 57.6% of hits where a cache that keeps everything could have given 55%. Cause: a reload that a cache had
    /// validated with the origin counted as a hit, and not among those that could be one.
    #[test]
    fn a_reload_that_was_validated_is_no_hit_and_any_other_validated_reply_is() {
        let object = Object::by_law(Kind::Image, 1);
        for (class, hits) in [(Class::Reload, 0), (Class::Plain, 1), (Class::ImsChanged, 1)] {
            let could_hit = class != Class::Reload;
            let planned = Planned {
                object,
                class,
                robot: 0,
                could_hit,
                is_new: false,
                tail: (0, 0),
                due: Duration::ZERO,
            };
            let latency = Duration::from_millis(5);
            let good = Good { source: Source::Validated, latency, think: Duration::ZERO, body_bytes: 100 };
            let (mut tally, mut moment) = (Tally::default(), Moment::default());
            tally.good(&planned, &good);
            moment.good(&planned, &good);
            assert_eq!((tally.hits, moment.hits, tally.hit_bytes), (hits, hits, 100 * hits), "{class:?}");
            assert_eq!(tally.hits + tally.misses, 1, "{class:?}");
            assert!(tally.hits <= tally.could_hit, "{class:?}");
        }
    }
}
