//! How late a generator sent and took replies, and what that did to the latencies it reports.
//!
//! ```text
//!        planned        really sent                 arrived      taken
//!           |-- sending ---|------- the storage -------|- taking ---|
//!           |---------------------- latency ------------------------|
//! ```
//!
//! A latency counts from the planned moment, so that every request that was due in a stall meets it. The lateness of
//! sending and of taking the reply is in it, and both are the generator's. The generator therefore keeps the same latencies
//! without them as well. A level is INVALID when a figure of the first distribution is too far from that of the second,
//! whatever made the requests late.
//!
//! Not here: waiting itself (see `pacer`), when replies arrived (see `reply_times`), requests that were not answered in time (see `shortfall`).

use std::time::Duration;

use measure::{LatencyHistogram, LatencySummary, Verdict};
use serde::{Deserialize, Serialize};

use super::reply_times::TakenReply;

/// When an open-loop generator, and not the storage, made a load point what it is. The defaults are those that the guide
/// documents, and they are the same for every open-loop benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeneratorLimits {
    /// Microseconds by which late sending may move any figure of the latencies. Default 5: clock and scheduler are not
    /// better.
    pub moved_us_max: f64,
    /// Microseconds by which late taking of replies may move any figure beside those. Default 5: latencies end when replies
    /// arrived, and this is what the stamps of replies read together leave open.
    pub woke_us_max: f64,
    /// Share of a figure, 0 to 1, by which the generator may move it beside these microseconds. Default 0.01.
    pub moved_share_max: f64,
    /// Share of a core, 0 to 1, above which the generating thread may be the limit. Default 0.95.
    pub busy_max: f64,
    /// Share of the requests due, 0 to 1, that must be answered in time; with less the level is saturated. Default 0.995.
    pub held_min: f64,
}

impl Default for GeneratorLimits {
    fn default() -> Self {
        Self { moved_us_max: 5.0, woke_us_max: 5.0, moved_share_max: 0.01, busy_max: 0.95, held_min: 0.995 }
    }
}

/// Code of the verdict on a load point whose generator was late.
pub const GENERATOR_LATE: &str = "generator-late";
/// Code of the remark on a load point in which only rare stalls of the generator moved the mean or the tail.
pub const FIGURES_LATE: &str = "figures-late";

/// Microseconds, and share of the mean, by which lateness may move the mean of a level that is trusted otherwise.
const MEAN_MOVED_US_MAX: f64 = 20.0;
const MEAN_MOVED_SHARE_MAX: f64 = 0.1;

impl GeneratorLimits {
    /// Whether the generator's lateness moved a figure so far that it is not the storage's: both in microseconds.
    pub fn is_moved(&self, with_us: f64, without_us: f64) -> bool {
        let moved = Moved { figure: "", with_us, without_us };
        moved.beyond_us(self.moved_us_max + self.woke_us_max, self.moved_share_max) > 0.0
    }
}

/// Samples from which a 99.9th percentile is not just the maximum, so that it is judged.
const P999_SAMPLES: u64 = 1_000;

/// What one generator measured of its own lateness in a load point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatenessLog {
    /// Actual minus planned send time, except for requests that waited for room in the transport.
    pub sending: LatencyHistogram,
    /// Time that replies were there before they were taken.
    pub taking: LatencyHistogram,
    /// From the moment a request was really sent to its reply.
    pub from_sent: LatencyHistogram,
    /// Of `from_sent`, the requests that had waited for room, which is no lateness of the generator's.
    pub room_from: LatencyHistogram,
    /// The same requests with that time.
    pub room_to: LatencyHistogram,
    /// Latencies without lateness of sending and of taking replies.
    pub without: LatencyHistogram,
}

impl LatenessLog {
    /// Counts requests that were not answered within `waited`: the storage's doing, however late they were sent.
    pub fn unanswered(&mut self, waited: Duration, requests: u64) {
        for histogram in [&mut self.from_sent, &mut self.without] {
            histogram.add_buckets(&[(waited.as_nanos() as u64, requests)]);
        }
    }

    /// Counts a reply.
    #[inline]
    pub fn answered(&mut self, reply: TakenReply) {
        let TakenReply { from_sent, without_sending, late, lay } = reply;
        self.taking.record(late + lay);
        self.from_sent.record(from_sent);
        self.without.record(without_sending.saturating_sub(late));
        if without_sending != from_sent {
            self.room_from.record(from_sent);
            self.room_to.record(without_sending);
        }
    }

    /// Adds what another generator measured.
    pub fn merge(&mut self, other: &Self) {
        self.histograms_mut()
            .into_iter()
            .zip(other.histograms())
            .for_each(|(mine, theirs)| mine.merge(theirs));
    }

    /// All histograms, in the order in which [`Self::histograms_mut`] has them.
    pub fn histograms(&self) -> [&LatencyHistogram; 6] {
        let Self { sending, taking, from_sent, room_from, room_to, without } = self;
        [sending, taking, from_sent, room_from, room_to, without]
    }

    /// The same, to add to.
    pub fn histograms_mut(&mut self) -> [&mut LatencyHistogram; 6] {
        let Self { sending, taking, from_sent, room_from, room_to, without } = self;
        [sending, taking, from_sent, room_from, room_to, without]
    }

    /// Beside the latencies that it is a part of.
    pub fn beside(&self, latency: LatencySummary) -> Lateness {
        let mut without_sending = self.from_sent.clone();
        without_sending.subtract(&self.room_from);
        without_sending.merge(&self.room_to);
        Lateness {
            sending: self.sending.summary(),
            taking: self.taking.summary(),
            latency,
            from_sent: self.from_sent.summary(),
            without_sending: without_sending.summary(),
            without: self.without.summary(),
        }
    }
}

/// How late a generator was, beside the latency that this lateness is a part of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lateness {
    /// Actual minus planned send time.
    pub sending: LatencySummary,
    /// Time that replies were there before they were taken.
    pub taking: LatencySummary,
    /// From the planned send time to the reply.
    pub latency: LatencySummary,
    /// From the moment really sent to the reply.
    pub from_sent: LatencySummary,
    /// From the planned send time to the reply, without lateness of sending.
    pub without_sending: LatencySummary,
    /// The same without lateness of sending and of taking replies.
    pub without: LatencySummary,
}

/// A figure of the latencies that the generator's lateness moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// Such as "p99".
    pub figure: &'static str,
    /// As measured, microseconds.
    pub with_us: f64,
    /// Without the generator's lateness, microseconds.
    pub without_us: f64,
}

impl Moved {
    /// Microseconds beyond the limit; negative within it.
    fn beyond_us(&self, us_max: f64, share_max: f64) -> f64 {
        (self.with_us - self.without_us).abs() - us_max - share_max * self.without_us
    }
}

/// Pairs the figures of two distributions of the same requests that have enough samples to be judged.
fn figures(with: &LatencySummary, without: &LatencySummary) -> impl Iterator<Item = Moved> + use<> {
    let has_p999 = without.count >= P999_SAMPLES;
    let figures = [
        ("mean", with.mean, without.mean),
        ("median", with.p50, without.p50),
        ("p90", with.p90, without.p90),
        ("p99", with.p99, without.p99),
        ("p99.9", with.p999, without.p999),
    ];
    let judged = if without.count == 0 { 0 } else { figures.len() - usize::from(!has_p999) };
    figures.into_iter().take(judged).map(|(figure, with_us, without_us)| Moved {
        figure,
        with_us,
        without_us,
    })
}

impl Lateness {
    /// The figure that the generator moved furthest beyond its limit, relative to the figure; none when none was.
    pub fn moved(&self, limits: &GeneratorLimits) -> Option<Moved> {
        self.all_moved(limits).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, moved)| moved)
    }

    /// Each figure that the generator moved beyond its limit, with how far beyond, relative to the figure.
    fn all_moved(&self, limits: &GeneratorLimits) -> impl Iterator<Item = (f64, Moved)> {
        let GeneratorLimits { moved_us_max, woke_us_max, moved_share_max, .. } = *limits;
        let beyond = |without, us_max| {
            figures(&self.latency, without)
                .map(move |moved| (moved.beyond_us(us_max, moved_share_max), moved))
        };
        // Whoever sends late has no right to the time that a wake-up takes.
        let by_sending = beyond(&self.without_sending, moved_us_max);
        let by_both = beyond(&self.without, moved_us_max + woke_us_max);
        let late = by_sending.chain(by_both).filter(|(beyond_us, _)| *beyond_us > 0.0);
        late.map(|(beyond_us, moved)| (beyond_us / moved.without_us.max(1.0), moved))
    }

    /// The figure that spoils the level: median, p90 or p99 beyond its limit, or the mean far beyond it. A virtual machine stops
    /// any program for milliseconds now and then, which moves the 99.9th percentile and the mean of a short level: these are
    /// marked, and the others are right.
    fn spoilt(&self, limits: &GeneratorLimits) -> Option<Moved> {
        let spoils = |moved: &Moved| match moved.figure {
            "p99.9" => false,
            "mean" => moved.beyond_us(MEAN_MOVED_US_MAX, MEAN_MOVED_SHARE_MAX) > 0.0,
            _ => true,
        };
        let spoilt = self.all_moved(limits).filter(|(_, moved)| spoils(moved));
        spoilt.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, moved)| moved)
    }

    /// "was late: the p99 of the latencies is 1200 us with its lateness and 300 us without (it sent 31 us late on average, p99
    /// 900 us, and took replies 2 us late, p99 40 us)", for the reason of a verdict. None when that spoils nothing.
    pub fn text(&self, limits: &GeneratorLimits) -> Option<String> {
        let Moved { figure, with_us, without_us } = self.spoilt(limits)?;
        let (sending, taking) = (&self.sending, &self.taking);
        Some(format!(
            "was late: the {figure} of the latencies is {with_us:.0} us with its lateness and {without_us:.0} us without (it \
             sent {:.0} us late on average, p99 {:.0} us, and took replies {:.0} us late, p99 {:.0} us)",
            sending.mean, sending.p99, taking.mean, taking.p99
        ))
    }

    /// Makes the verdict INVALID when the generator's lateness spoils the level, and remarks on figures that it moved otherwise.
    pub fn judge(&self, limits: &GeneratorLimits, verdict: &mut Verdict) {
        match self.text(limits) {
            Some(text) => {
                let advice = "give it a core of its own (--pin, --wait spin) or lower the rate";
                verdict.invalidate(GENERATOR_LATE, format!("the generator {text}; {advice}"));
            }
            None => self.remark(limits, verdict),
        }
    }

    /// Remarks on figures that the generator's lateness moved, by name: they are not the storage's.
    pub fn remark(&self, limits: &GeneratorLimits, verdict: &mut Verdict) {
        let mut moved: Vec<Moved> = Vec::new();
        for (_, figure) in self.all_moved(limits) {
            match moved.iter_mut().find(|known| known.figure == figure.figure) {
                Some(known) => *known = figure,
                None => moved.push(figure),
            }
        }
        if moved.is_empty() {
            return;
        }
        let each = moved.iter().map(|Moved { figure, with_us, without_us }| {
            format!("{figure} {with_us:.0} us, without it {without_us:.0} us")
        });
        let each = each.collect::<Vec<_>>().join("; ");
        verdict.remark(FIGURES_LATE, format!("rare stalls of the generator are in these figures: {each}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn taken(from_sent: Duration, late: Duration) -> TakenReply {
        TakenReply { from_sent, without_sending: from_sent, late, lay: Duration::ZERO }
    }

    /// Requests that the storage answers in `storage`, of which each `every`th is sent `late`.
    fn lateness(storage: Duration, every: u64, late: Duration) -> Lateness {
        let (mut log, mut latency) = (LatenessLog::default(), LatencyHistogram::new());
        for number in 0..20_000 {
            let late = if u64::is_multiple_of(number, every) { late } else { Duration::ZERO };
            log.sending.record(late);
            log.answered(taken(storage, Duration::ZERO));
            latency.record(storage + late);
        }
        log.beside(latency.summary())
    }

    #[test]
    fn a_stall_is_called_by_a_figure_that_it_moves_and_left_alone_when_it_moves_none() {
        let limits = GeneratorLimits::default();
        for (storage_us, every, late_us, is_called) in [
            (20_000, 1, 100, false),
            (20_000, 1, 300, true),
            (20_000, 100_000, 900_000, false),
            (20_000, 50, 1_000, true),
            (20_000, 200, 10_000, true),
            (100, 1, 5, false),
            (100, 1, 8, true),
            (100, 100, 1_000, true),
        ] {
            let moved = lateness(us(storage_us), every, us(late_us)).moved(&limits);
            let what = format!("{storage_us} us, one in {every} late by {late_us} us: {moved:?}");
            assert_eq!(moved.is_some(), is_called, "{what}");
            if every > 1 {
                assert!(moved.is_none_or(|moved| moved.figure.starts_with("p99")), "{what}");
            }
        }
    }

    /// The figures of idle machines: sent 3 us late on average, 3 to 14 us at the 99th percentile, answered in 30 to 150 us,
    /// and 2 to 5 us until a thread that slept has the reply.
    #[test]
    fn an_idle_machine_is_not_called_late() {
        let (mut log, mut latency) = (LatenessLog::default(), LatencyHistogram::new());
        for number in 0..20_000_u64 {
            let late = us(if number.is_multiple_of(90) { 14 } else { 2 + number % 3 });
            let storage = us(30 + number * 7919 % 120);
            log.sending.record(late);
            let woke = us(2 + number % 4);
            log.answered(taken(storage + woke, woke));
            latency.record(storage + woke + late);
        }
        let lateness = log.beside(latency.summary());
        assert!((2.5..3.5).contains(&lateness.sending.mean), "{:?}", lateness.sending);
        assert_eq!(lateness.moved(&GeneratorLimits::default()), None);
    }

    #[test]
    fn a_late_generator_makes_the_verdict_invalid_and_a_punctual_one_leaves_it_alone() {
        let judged = |late| {
            let mut verdict = Verdict::valid();
            lateness(us(200), 1, us(late)).judge(&GeneratorLimits::default(), &mut verdict);
            verdict
        };
        let punctual = judged(5);
        assert!(punctual.valid && punctual.reasons.is_empty(), "{punctual}");
        let late = judged(50);
        assert!(!late.valid && late.has(GENERATOR_LATE));
        let text = &late.reasons[0].text;
        assert!(text.contains("250 us with its lateness and 200 us without"), "{text}");
        assert!(text.contains("sent 50 us late on average"), "{text}");
    }

    /// A virtual machine that stands still for 3 ms once in 700 requests.
    #[test]
    fn rare_stalls_mark_the_mean_and_the_tail_and_leave_the_verdict_valid() {
        let limits = GeneratorLimits::default();
        let lateness = lateness(us(40), 700, us(3_000));
        let mut verdict = Verdict::valid();
        lateness.judge(&limits, &mut verdict);
        assert!(verdict.valid && verdict.has(FIGURES_LATE), "{verdict}");
        let text = &verdict.reasons[0].text;
        assert!(text.contains("p99.9") && !text.contains("p99 "), "{text}");
        assert!(limits.is_moved(lateness.latency.p999, lateness.without.p999));
        assert!(!limits.is_moved(lateness.latency.p99, lateness.without.p99));
    }

    #[test]
    fn stalls_that_move_the_mean_by_a_tenth_and_20_us_spoil_the_level() {
        let judged = |every| {
            let mut verdict = Verdict::valid();
            lateness(us(40), every, us(9_000)).judge(&GeneratorLimits::default(), &mut verdict);
            verdict.valid
        };
        assert!(!judged(150), "60 us in the mean");
        assert!(judged(1_000), "9 us in the mean");
    }

    #[test]
    fn waiting_for_room_in_the_transport_is_no_lateness() {
        let (mut log, mut latency) = (LatenessLog::default(), LatencyHistogram::new());
        log.answered(TakenReply { without_sending: us(10_000), ..taken(us(2_000), Duration::ZERO) });
        latency.record(us(10_000));
        let lateness = log.beside(latency.summary());
        assert!((lateness.from_sent.max - 2_000.0).abs() < 5.0, "{:?}", lateness.from_sent);
        assert_eq!(lateness.moved(&GeneratorLimits::default()), None);
    }

    #[test]
    fn requests_never_answered_are_the_storages_and_no_lateness() {
        let (mut log, mut latency) = (LatenessLog::default(), LatencyHistogram::new());
        for _ in 0..50 {
            log.answered(taken(us(100), Duration::ZERO));
            latency.record(us(100));
        }
        log.unanswered(us(10_000_000), 50);
        latency.add_buckets(&[(10_000_000_000, 50)]);
        let lateness = log.beside(latency.summary());
        assert!(lateness.without.p99 > 9_990_000.0, "{:?}", lateness.without);
        assert_eq!(lateness.moved(&GeneratorLimits::default()), None);
    }

    #[test]
    fn replies_taken_late_are_called_though_all_was_sent_in_time() {
        let moved = |late_us| {
            let (mut log, mut latency) = (LatenessLog::default(), LatencyHistogram::new());
            for _ in 0..2_000 {
                log.sending.record(Duration::ZERO);
                log.answered(taken(us(100 + late_us), us(late_us)));
                latency.record(us(100 + late_us));
            }
            log.beside(latency.summary()).moved(&GeneratorLimits::default())
        };
        assert_eq!(moved(9), None);
        assert!(moved(14).is_some_and(|moved| (moved.with_us - 114.0).abs() < 1.0), "{:?}", moved(14));
    }

    #[test]
    fn the_time_of_a_wake_up_is_no_allowance_for_late_sending() {
        let called = |send_us, take_us| {
            let (mut log, mut latency) = (LatenessLog::default(), LatencyHistogram::new());
            for _ in 0..2_000 {
                log.sending.record(us(send_us));
                log.answered(taken(us(100 + take_us), us(take_us)));
                latency.record(us(100 + send_us + take_us));
            }
            log.beside(latency.summary()).moved(&GeneratorLimits::default()).is_some()
        };
        assert!(!called(4, 5) && called(8, 0) && !called(0, 8));
    }
}
