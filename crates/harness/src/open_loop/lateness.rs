//! How late a generator sent and took replies, and what that did to the latencies it reports.
//!
//! ```text
//!        planned        really sent                 arrived      taken
//!           |-- sending ---|------- the storage -------|- taking ---|
//!                          |------- the latency -------|
//! ```
//!
//! 1. A latency counts from the moment a request was really sent to the moment its reply arrived: neither lateness is in it.
//!    A request that waited for room in the transport counts from its planned moment, as it waited for the storage.
//! 2. What was sent late was not the load that was planned. Requests that are late each by itself are one such load as good as
//!    another: Poisson arrivals that are moved independently of each other are Poisson arrivals (displacement theorem). Those
//!    that a stall holds back leave together. So a level is INVALID when more than a small share of its requests left together
//!    ([`super::SendTimes`]) and the latencies from the planned moments differ from those reported, although no figure that it
//!    reports contains the difference.
//! 3. Replies of one read share a stamp, so that when they arrived is known within limits only ([`super::ReplyTimes`]). The
//!    latencies are kept without what may be lateness of that sort, too; a figure that it moves is not reported as VALID.
//!
//! Not here: waiting itself (see `pacer`), which requests left together (see `send_times`), when replies arrived (see
//! `reply_times`), requests that were not answered in time (see `shortfall`).
//! Source of the theorem: J. F. C. Kingman, Poisson Processes (1993), section 5.5.

use std::time::Duration;

use measure::{LatencyHistogram, LatencySummary, Verdict};
use serde::{Deserialize, Serialize};

use super::pinned;
use super::reply_times::TakenReply;

/// When an open-loop generator, and not the storage, made a load point what it is. The defaults are those that the guide
/// documents, and they are the same for every open-loop benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeneratorLimits {
    /// Microseconds by which late sending may part the latencies from the planned moments from those reported. Default 20.
    pub sent_us_max: f64,
    /// Share of the requests, 0 to 1, that may leave together after a stall, whatever that does to the latencies from the
    /// planned moments. Default 0.005, half of the share that a p99 leaves above it.
    pub together_max: f64,
    /// Microseconds by which late taking of replies may move a reported figure. Default 5: clock and scheduler are not better.
    pub moved_us_max: f64,
    /// Share of a figure, 0 to 1, beside these microseconds. Default 0.01.
    pub moved_share_max: f64,
    /// Share of a core, 0 to 1, above which the generating thread may be the limit. Default 0.95.
    pub busy_max: f64,
    /// Share of the requests due, 0 to 1, that must be answered in time; with less the level is saturated. Default 0.995.
    pub held_min: f64,
}

impl Default for GeneratorLimits {
    fn default() -> Self {
        Self {
            sent_us_max: 20.0,
            together_max: 0.005,
            moved_us_max: 5.0,
            moved_share_max: 0.01,
            busy_max: 0.95,
            held_min: 0.995,
        }
    }
}

/// Code of the verdict on a load point whose generator was late.
pub const GENERATOR_LATE: &str = "generator-late";
/// Code of the remark on a load point in which late taking of replies may have moved the mean or the tail.
pub const FIGURES_LATE: &str = "figures-late";
/// Code of the remark on a load point of which some requests left late, and few of them together.
pub const SENDS_LATE: &str = "sends-late";

/// Microseconds, and share of the mean, by which lateness may move the mean of a level that is trusted otherwise.
const MEAN_MOVED_US_MAX: f64 = 20.0;
const MEAN_MOVED_SHARE_MAX: f64 = 0.1;

impl GeneratorLimits {
    /// Whether the generator's lateness moved a reported figure so far that it is not the storage's: both in microseconds.
    pub fn is_moved(&self, with_us: f64, without_us: f64) -> bool {
        Moved { figure: "", with_us, without_us }.beyond_us(self.moved_us_max, self.moved_share_max) > 0.0
    }
}

/// Samples from which a 99.9th percentile is not just the maximum, so that it is judged.
const P999_SAMPLES: u64 = 1_000;

/// What one generator measured of its own lateness in a load point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatenessLog {
    /// Actual minus planned send time, except for requests that waited for room in the transport.
    pub sending: LatencyHistogram,
    /// Requests, of those in [`Self::sending`], that left together with the one before, as both were held back.
    pub sent_together: u64,
    /// Time that replies were there before they were taken.
    pub taking: LatencyHistogram,
    /// From the planned moment of a request to its reply.
    pub from_planned: LatencyHistogram,
    /// From the moment a request was really sent to its reply, whether or not it had waited for room.
    pub from_sent: LatencyHistogram,
    /// Latencies as reported, without what may be lateness of taking replies.
    pub without: LatencyHistogram,
}

impl LatenessLog {
    /// Counts requests that were not answered within `waited`: the storage's doing, however late they were sent.
    pub fn unanswered(&mut self, waited: Duration, requests: u64) {
        for histogram in [&mut self.from_planned, &mut self.from_sent, &mut self.without] {
            histogram.add_buckets(&[(waited.as_nanos() as u64, requests)]);
        }
    }

    /// Counts a reply; [`Self::from_planned`] is its caller's.
    #[inline]
    pub fn answered(&mut self, reply: TakenReply) {
        let TakenReply { from_sent, without_sending, late, lay } = reply;
        self.taking.record(late + lay);
        self.from_sent.record(from_sent);
        self.without.record(without_sending.saturating_sub(late));
    }

    /// Adds what another generator measured.
    pub fn merge(&mut self, other: &Self) {
        self.histograms_mut()
            .into_iter()
            .zip(other.histograms())
            .for_each(|(mine, theirs)| mine.merge(theirs));
        self.sent_together += other.sent_together;
    }

    /// All histograms, in the order in which [`Self::histograms_mut`] has them.
    pub fn histograms(&self) -> [&LatencyHistogram; 5] {
        let Self { sending, taking, from_planned, from_sent, without, sent_together: _ } = self;
        [sending, taking, from_planned, from_sent, without]
    }

    /// The same, to add to.
    pub fn histograms_mut(&mut self) -> [&mut LatencyHistogram; 5] {
        let Self { sending, taking, from_planned, from_sent, without, sent_together: _ } = self;
        [sending, taking, from_planned, from_sent, without]
    }

    /// Beside the latencies that are reported.
    pub fn beside(&self, latency: LatencySummary) -> Lateness {
        Lateness {
            sending: self.sending.summary(),
            together_share: self.sent_together as f64 / self.sending.count().max(1) as f64,
            taking: self.taking.summary(),
            latency,
            from_planned: self.from_planned.summary(),
            from_sent: self.from_sent.summary(),
            without: self.without.summary(),
        }
    }
}

/// How late a generator was, beside the latencies that are reported.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lateness {
    /// Actual minus planned send time.
    pub sending: LatencySummary,
    /// Share of the requests that left together with the one before, 0 to 1, as a stall had held back both.
    pub together_share: f64,
    /// Time that replies were there before they were taken.
    pub taking: LatencySummary,
    /// As reported.
    pub latency: LatencySummary,
    /// From the planned moment to the reply.
    pub from_planned: LatencySummary,
    /// From the moment really sent to the reply, also of what waited for room.
    pub from_sent: LatencySummary,
    /// As reported, without what may be lateness of taking replies.
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

/// Which lateness moved a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Sending,
    Taking,
}

impl Lateness {
    /// The figure that the generator moved furthest beyond its limit, relative to the figure; none when none was.
    pub fn moved(&self, limits: &GeneratorLimits) -> Option<Moved> {
        [By::Sending, By::Taking]
            .into_iter()
            .flat_map(|by| self.moved_by(by, limits))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, moved)| moved)
    }

    /// Each figure that one lateness moved beyond its limit, with how far beyond, relative to the figure.
    fn moved_by(&self, by: By, limits: &GeneratorLimits) -> impl Iterator<Item = (f64, Moved)> + use<> {
        let GeneratorLimits { sent_us_max, moved_us_max, moved_share_max, .. } = *limits;
        let (with, without, us_max) = match by {
            By::Sending => (&self.from_planned, &self.latency, sent_us_max),
            By::Taking => (&self.latency, &self.without, moved_us_max),
        };
        figures(with, without)
            .map(move |moved| (moved.beyond_us(us_max, moved_share_max), moved))
            .filter(|(beyond_us, _)| *beyond_us > 0.0)
            .map(|(beyond_us, moved)| (beyond_us / moved.without_us.max(1.0), moved))
    }

    /// The figure that spoils the level: median, p90 or p99 beyond its limit, or the mean far beyond it. A virtual machine stops
    /// any program for milliseconds now and then, which moves the 99.9th percentile and the mean of a short level: these are
    /// named, and the others are right. Late sending spoils nothing while few requests left together: the load was as good as
    /// the planned one.
    fn spoilt(&self, limits: &GeneratorLimits) -> Option<(By, Moved)> {
        let spoils = |moved: &Moved| match moved.figure {
            "p99.9" => false,
            "mean" => moved.beyond_us(MEAN_MOVED_US_MAX, MEAN_MOVED_SHARE_MAX) > 0.0,
            _ => true,
        };
        let is_other_load = self.together_share > limits.together_max;
        let sides: &[By] = if is_other_load { &[By::Sending, By::Taking] } else { &[By::Taking] };
        sides
            .iter()
            .flat_map(|by| self.moved_by(*by, limits).map(move |(beyond, moved)| (beyond, *by, moved)))
            .filter(|(.., moved)| spoils(moved))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, by, moved)| (by, moved))
    }

    /// "sent late, so that the load was not the planned one: 2.1% of the requests left together, and the p99 of the latencies is
    /// 300 us, from the planned moments 1200 us (it sent 31 us late on average, p99 900 us, and took replies 2 us late, p99 40
    /// us)", for the reason of a verdict. None when lateness spoils nothing.
    pub fn text(&self, limits: &GeneratorLimits) -> Option<String> {
        let (by, Moved { figure, with_us, without_us }) = self.spoilt(limits)?;
        let how = match by {
            By::Sending => format!(
                "sent late, so that the load was not the planned one: {:.1}% of the requests left together, and the {figure} of \
                 the latencies is {without_us:.0} us, from the planned moments {with_us:.0} us",
                self.together_share * 100.0
            ),
            By::Taking => format!(
                "took replies late: the {figure} of the latencies is {with_us:.0} us, of which the storage's part may be \
                 {without_us:.0} us"
            ),
        };
        let (sending, taking) = (&self.sending, &self.taking);
        Some(format!(
            "{how} (it sent {:.0} us late on average, p99 {:.0} us, and took replies {:.0} us late, p99 {:.0} us)",
            sending.mean, sending.p99, taking.mean, taking.p99
        ))
    }

    /// Makes the verdict INVALID when the generator's lateness spoils the level, and remarks on what it moved otherwise.
    pub fn judge(&self, limits: &GeneratorLimits, verdict: &mut Verdict) {
        match self.text(limits) {
            Some(text) => {
                let advice = pinned::remedy();
                verdict.invalidate(GENERATOR_LATE, format!("the generator {text}; {advice}"));
            }
            None => self.remark(limits, verdict),
        }
    }

    /// Remarks on what the generator's lateness moved without spoiling the level.
    pub fn remark(&self, limits: &GeneratorLimits, verdict: &mut Verdict) {
        let texts = |by| {
            let each = self.moved_by(by, limits).map(|(_, Moved { figure, with_us, without_us })| match by {
                By::Sending => format!("{figure} {with_us:.0} us instead of {without_us:.0} us"),
                By::Taking => format!("{figure} {with_us:.0} us, without it {without_us:.0} us"),
            });
            each.collect::<Vec<_>>().join("; ")
        };
        let (sending, taking) = (texts(By::Sending), texts(By::Taking));
        if !taking.is_empty() {
            let text = format!("rare stalls of the generator may be in these figures: {taking}");
            verdict.remark(FIGURES_LATE, text);
        }
        if !sending.is_empty() {
            let text = format!(
                "the generator sent some requests late, but only {:.2}% of all in bunches; latencies count from when each was sent, \
                 from the planned moments they would be: {sending}",
                self.together_share * 100.0
            );
            verdict.remark(SENDS_LATE, text);
        }
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

    /// Counts a request of which `reported` is the latency.
    fn count(log: &mut LatenessLog, latency: &mut LatencyHistogram, sent_late: Duration, reply: TakenReply) {
        log.sending.record(sent_late);
        log.from_planned.record(reply.without_sending + sent_late);
        log.answered(reply);
        latency.record(reply.without_sending);
    }

    /// Requests that the storage answers in `storage`, of which each `every`th is sent `late`, and all these together.
    fn lateness(storage: Duration, every: u64, late: Duration) -> Lateness {
        let (mut log, mut latency) = (LatenessLog::default(), LatencyHistogram::new());
        for number in 0..20_000 {
            let late = if u64::is_multiple_of(number, every) { late } else { Duration::ZERO };
            count(&mut log, &mut latency, late, taken(storage, Duration::ZERO));
            log.sent_together += u64::from(!late.is_zero());
        }
        log.beside(latency.summary())
    }

    /// Requests that are all sent and taken late by that.
    fn always(storage_us: u64, send_us: u64, take_us: u64) -> Lateness {
        let (mut log, mut latency) = (LatenessLog::default(), LatencyHistogram::new());
        for _ in 0..2_000 {
            count(&mut log, &mut latency, us(send_us), taken(us(storage_us + take_us), us(take_us)));
        }
        log.beside(latency.summary())
    }

    #[test]
    fn a_stall_is_called_by_a_figure_that_it_moves_and_left_alone_when_it_moves_none() {
        let limits = GeneratorLimits::default();
        for (storage_us, every, late_us, is_called) in [
            (20_000, 1, 200, false),
            (20_000, 1, 300, true),
            (20_000, 100_000, 900_000, false),
            (20_000, 50, 1_000, true),
            (20_000, 200, 10_000, true),
            (100, 1, 20, false),
            (100, 1, 23, true),
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

    /// The figures of idle machines: sent 3 us late on average, 9 to 17 us at the 99th percentile, answered in 30 to 150 us.
    #[test]
    fn an_idle_machine_is_not_called_late() {
        let (mut log, mut latency) = (LatenessLog::default(), LatencyHistogram::new());
        for number in 0..20_000_u64 {
            let late = us(if number.is_multiple_of(90) { 17 } else { 2 + number % 3 });
            let storage = us(30 + number * 7919 % 120);
            count(&mut log, &mut latency, late, taken(storage, Duration::ZERO));
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
        let punctual = judged(20);
        assert!(punctual.valid && punctual.reasons.is_empty(), "{punctual}");
        let late = judged(50);
        assert!(!late.valid && late.has(GENERATOR_LATE));
        let text = &late.reasons[0].text;
        assert!(text.contains("100.0% of the requests left together"), "{text}");
        assert!(text.contains("is 200 us, from the planned moments 250 us"), "{text}");
        assert!(text.contains("sent 50 us late on average"), "{text}");
    }

    /// A virtual machine that stands still for 3 ms once in 700 requests.
    #[test]
    fn rare_stalls_of_sending_are_named_and_are_in_no_figure() {
        let limits = GeneratorLimits::default();
        let lateness = lateness(us(40), 700, us(3_000));
        let mut verdict = Verdict::valid();
        lateness.judge(&limits, &mut verdict);
        assert!(verdict.valid && verdict.has(SENDS_LATE) && !verdict.has(FIGURES_LATE), "{verdict}");
        let text = &verdict.reasons[0].text;
        assert!(text.contains("p99.9") && !text.contains("p99 "), "{text}");
        assert!((lateness.latency.p999 - 40.0).abs() < 1.0, "{:?}", lateness.latency);
    }

    /// One reply in 700 may have lain there for 3 ms.
    #[test]
    fn rare_stalls_of_taking_mark_the_mean_and_the_tail_and_leave_the_verdict_valid() {
        let (mut log, mut latency) = (LatenessLog::default(), LatencyHistogram::new());
        for number in 0..20_000_u64 {
            let late = us(if number.is_multiple_of(700) { 3_000 } else { 0 });
            count(&mut log, &mut latency, Duration::ZERO, taken(us(40) + late, late));
        }
        let (limits, lateness) = (GeneratorLimits::default(), log.beside(latency.summary()));
        let mut verdict = Verdict::valid();
        lateness.judge(&limits, &mut verdict);
        assert!(verdict.valid && verdict.has(FIGURES_LATE) && !verdict.has(SENDS_LATE), "{verdict}");
        assert!(limits.is_moved(lateness.latency.p999, lateness.without.p999));
        assert!(!limits.is_moved(lateness.latency.p99, lateness.without.p99));
    }

    /// Poisson arrivals that are moved independently of each other are Poisson arrivals.
    #[test]
    fn requests_that_left_late_each_by_itself_are_the_planned_load_and_a_remark_names_what_they_would_move() {
        let mut lateness = lateness(us(65), 50, us(300));
        for (share, is_valid) in [(0.0, true), (0.005, true), (0.0051, false)] {
            lateness.together_share = share;
            let mut verdict = Verdict::valid();
            lateness.judge(&GeneratorLimits::default(), &mut verdict);
            assert_eq!(verdict.valid, is_valid, "{share}: {verdict}");
            assert_eq!(verdict.has(SENDS_LATE), is_valid, "{share}: {verdict}");
        }
        lateness.together_share = 0.0;
        let mut verdict = Verdict::valid();
        lateness.judge(&GeneratorLimits::default(), &mut verdict);
        let text = &verdict.reasons[0].text;
        assert!(
            text.contains("only 0.00% of all in bunches") && text.contains("p99 365 us instead of 65 us"),
            "{text}"
        );
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
        let waited = TakenReply { without_sending: us(10_000), ..taken(us(2_000), Duration::ZERO) };
        count(&mut log, &mut latency, Duration::ZERO, waited);
        let lateness = log.beside(latency.summary());
        assert!((lateness.from_sent.max - 2_000.0).abs() < 5.0, "{:?}", lateness.from_sent);
        assert_eq!(lateness.moved(&GeneratorLimits::default()), None);
    }

    #[test]
    fn requests_never_answered_are_the_storages_and_no_lateness() {
        let (mut log, mut latency) = (LatenessLog::default(), LatencyHistogram::new());
        for _ in 0..50 {
            count(&mut log, &mut latency, Duration::ZERO, taken(us(100), Duration::ZERO));
        }
        log.unanswered(us(10_000_000), 50);
        latency.add_buckets(&[(10_000_000_000, 50)]);
        let lateness = log.beside(latency.summary());
        assert!(lateness.without.p99 > 9_990_000.0, "{:?}", lateness.without);
        assert_eq!(lateness.moved(&GeneratorLimits::default()), None);
    }

    #[test]
    fn replies_taken_late_are_called_though_all_was_sent_in_time() {
        let moved = |late_us| always(100, 0, late_us).moved(&GeneratorLimits::default());
        assert_eq!(moved(5), None);
        assert!(moved(8).is_some_and(|moved| (moved.with_us - 108.0).abs() < 1.0), "{:?}", moved(8));
    }

    #[test]
    fn the_allowance_for_sending_is_none_for_taking() {
        let called =
            |send_us, take_us| always(100, send_us, take_us).moved(&GeneratorLimits::default()).is_some();
        assert!(!called(20, 5) && called(23, 0) && called(0, 8));
    }
}
