//! How late a generator sent and took replies, and what that did to the latencies it reports.
//!
//! ```text
//!        planned        really sent                 arrived      taken
//!           |-- sending ---|------- the storage -------|- taking ---|
//!           |---------------------- latency ------------------------|
//! ```
//!
//! A latency contains the lateness of sending, so that a stall is met by every request that was due in it, and the lateness
//! of taking the reply. Both are the generator's. It therefore keeps a second distribution, of the same latencies without
//! them, and a level is INVALID when a figure of the first is not near that of the second: whatever made the requests late.
//!
//! When a reply arrived is not known, only that it was not there at the look before. Replies that one look finds are taken
//! to have arrived evenly since then. A reply that woke a sleeping generator waited as long as the thread waited for a CPU
//! (`run_delay`).
//!
//! Not here: waiting itself (see `pacer`).

use std::time::Duration;

use measure::{LatencyHistogram, LatencySummary, Verdict};

use super::pacer::Moment;

/// When an open-loop generator, and not the storage, made a load point what it is. The defaults are those that the guide
/// documents, and they are the same for every open-loop benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeneratorLimits {
    /// Microseconds by which the generator may move any figure of the latencies. Default 5: clock and scheduler are not
    /// better.
    pub moved_us_max: f64,
    /// Share of a figure by which the generator may move it, beside those microseconds; 0 to 1. Default 0.01.
    pub moved_share_max: f64,
    /// Share of a core, 0 to 1, above which the generating thread may be the limit. Default 0.95.
    pub busy_max: f64,
    /// Share of the requests due, 0 to 1, that must be answered in time; with less the level is saturated. Default 0.995.
    pub held_min: f64,
}

impl Default for GeneratorLimits {
    fn default() -> Self {
        Self { moved_us_max: 5.0, moved_share_max: 0.01, busy_max: 0.95, held_min: 0.995 }
    }
}

/// Code of the verdict on a load point whose generator was late.
pub const GENERATOR_LATE: &str = "generator-late";

/// Samples from which a 99.9th percentile rests on ten, so that it is judged.
const P999_SAMPLES: u64 = 10_000;
/// A reply that was there for less was taken at once.
const AT_ONCE: Duration = Duration::from_micros(1);

/// What one generator measured of its own lateness in a load point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LatenessLog {
    /// Actual minus planned send time, but for requests that waited for room in the transport.
    pub sending: LatencyHistogram,
    /// Time that replies were there before they were taken, where that was more than a microsecond.
    pub taking: LatencyHistogram,
    /// Replies that were taken at once.
    pub taken_at_once: u64,
    /// From the moment a request was really sent to its reply.
    pub from_sent: LatencyHistogram,
    /// Of `from_sent`, those that are not what the storage took.
    pub put_right_from: LatencyHistogram,
    /// What the storage took for these.
    pub put_right_to: LatencyHistogram,
}

impl LatenessLog {
    /// Counts requests that were not answered for this long: the storage's doing, with whatever lateness.
    pub fn unanswered(&mut self, waited: Duration, requests: u64) {
        self.from_sent.add_buckets(&[(waited.as_nanos() as u64, requests)]);
    }

    /// Counts a reply.
    #[inline]
    pub fn count(&mut self, reply: TakenReply) {
        let TakenReply { from_sent, own, late } = reply;
        self.from_sent.record(from_sent);
        if late < AT_ONCE {
            self.taken_at_once += 1;
        } else {
            self.taking.record(late);
        }
        if late >= AT_ONCE || own != from_sent {
            self.put_right_from.record(from_sent);
            self.put_right_to.record(own - late);
        }
    }

    /// Adds what another generator measured.
    pub fn merge(&mut self, other: &Self) {
        self.sending.merge(&other.sending);
        self.taking.merge(&other.taking);
        self.taken_at_once += other.taken_at_once;
        self.from_sent.merge(&other.from_sent);
        self.put_right_from.merge(&other.put_right_from);
        self.put_right_to.merge(&other.put_right_to);
    }

    /// Beside the latencies that it is a part of.
    pub fn beside(&self, latency: LatencySummary) -> Lateness {
        let mut taking = self.taking.clone();
        taking.add_buckets(&[(0, self.taken_at_once)]);
        let mut without = self.from_sent.clone();
        without.subtract(&self.put_right_from);
        without.merge(&self.put_right_to);
        Lateness {
            sending: self.sending.summary(),
            taking: taking.summary(),
            latency,
            from_sent: self.from_sent.summary(),
            without: without.summary(),
        }
    }
}

/// A reply with how late it was taken.
#[derive(Clone, Copy, Debug)]
pub struct TakenReply {
    from_sent: Duration,
    own: Duration,
    late: Duration,
}

/// Replies of one look, until it is known how many there were; `K` says where each is counted.
#[derive(Debug)]
pub struct ReplyTimes<M, K = ()> {
    /// When replies were last looked for, or a sleep for them ended.
    looked: Option<M>,
    /// Time in which the replies of the look under way may have come without being seen.
    gap: Duration,
    /// The look was a sleep.
    slept: bool,
    replies: Vec<(K, Reply<M>)>,
}

/// Times of one reply.
#[derive(Clone, Copy, Debug)]
struct Reply<M> {
    done: M,
    from_sent: Duration,
    /// What the generator does not answer for: from the planned moment for one that waited for room.
    own: Duration,
}

impl<M: Moment, K> ReplyTimes<M, K> {
    /// None yet.
    pub fn new() -> Self {
        Self { looked: None, gap: Duration::ZERO, slept: false, replies: Vec::new() }
    }

    /// A look for replies begins that does not sleep.
    #[inline]
    pub fn look(&mut self, now: M) {
        self.gap = self.looked.map_or(Duration::ZERO, |before| now.since(before));
        self.looked = Some(now);
        self.slept = false;
    }

    /// A sleep for replies ended, in which the thread waited this long for a CPU.
    #[inline]
    pub fn woke(&mut self, now: M, run_delay: Duration) {
        self.gap = run_delay;
        self.looked = Some(now);
        self.slept = true;
    }

    /// A reply of this look, whose time was taken at `done`. Latency counts from `sent`, and for a request that waited for
    /// room in the transport, which is not the generator's lateness, from `planned`.
    #[inline]
    pub fn reply(&mut self, key: K, done: M, sent: M, waited_for_room_since: Option<M>) {
        let origin = waited_for_room_since.unwrap_or(sent);
        self.replies.push((key, Reply { done, from_sent: done.since(sent), own: done.since(origin) }));
    }

    /// The replies of the look, for [`LatenessLog::count`].
    #[inline]
    pub fn taken(&mut self) -> impl Iterator<Item = (K, TakenReply)> + '_ {
        let of = self.replies.len() as u32;
        let (looked, gap, slept) = (self.looked, self.gap, self.slept);
        self.replies.drain(..).enumerate().map(move |(number, (key, reply))| {
            // In the order in which they came: the first one waited the longest.
            let share = || gap * (2 * (of - number as u32) - 1) / (2 * of);
            let late = match looked {
                Some(look) if reply.done >= look => share() + reply.done.since(look),
                // It was read before the sleeper got its CPU back: by so much less it was late.
                Some(look) if slept => share().saturating_sub(look.since(reply.done)),
                // Its time was taken elsewhere, as it came.
                _ => Duration::ZERO,
            };
            let late = late.min(reply.own);
            (key, TakenReply { from_sent: reply.from_sent, own: reply.own, late })
        })
    }
}

impl<M: Moment, K> Default for ReplyTimes<M, K> {
    fn default() -> Self {
        Self::new()
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
    /// From the planned send time to the reply, without the generator's lateness.
    pub without: LatencySummary,
}

impl Lateness {
    /// The figure that the generator moved furthest beyond its limit, if there is one: its name, its value with the
    /// generator's lateness and without.
    pub fn moved(&self, limits: &GeneratorLimits) -> Option<(&'static str, f64, f64)> {
        let (with, without) = (&self.latency, &self.without);
        if without.count == 0 {
            return None;
        }
        let p999 = (without.count >= P999_SAMPLES).then_some(("p99.9", with.p999, without.p999));
        let figures = [
            ("mean", with.mean, without.mean),
            ("median", with.p50, without.p50),
            ("p90", with.p90, without.p90),
            ("p99", with.p99, without.p99),
        ];
        let beyond = |&(_, with, without): &(&str, f64, f64)| {
            (with - without).abs() - limits.moved_us_max - limits.moved_share_max * without
        };
        figures
            .into_iter()
            .chain(p999)
            .filter(|figure| beyond(figure) > 0.0)
            .max_by(|a, b| (beyond(a) / a.2.max(1.0)).total_cmp(&(beyond(b) / b.2.max(1.0))))
    }

    /// "was late: the p99 of the latencies is 1200 us with its lateness and 300 us without (sent late by 31 us on average, p99
    /// 900 us; took replies late by 2 us, p99 40 us)", for the reason of a verdict. None when it was not late.
    pub fn text(&self, limits: &GeneratorLimits) -> Option<String> {
        let (figure, with, without) = self.moved(limits)?;
        let (sending, taking) = (&self.sending, &self.taking);
        Some(format!(
            "was late: the {figure} of the latencies is {with:.0} us with its lateness and {without:.0} us without (sent late \
             by {:.0} us on average, p99 {:.0} us; took replies late by {:.0} us, p99 {:.0} us)",
            sending.mean, sending.p99, taking.mean, taking.p99
        ))
    }

    /// Makes the verdict INVALID when the generator's lateness moved a figure too far.
    pub fn judge(&self, limits: &GeneratorLimits, verdict: &mut Verdict) {
        if let Some(text) = self.text(limits) {
            let advice = "give it a core of its own (--pin, --wait spin) or lower the rate";
            verdict.invalidate(GENERATOR_LATE, format!("the generator {text}; {advice}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// A log of requests that the storage answers in `storage`, of which each `every`th is sent `late`.
    fn log(storage: Duration, every: u64, late: Duration) -> (LatenessLog, LatencyHistogram) {
        let (mut log, mut latency) = (LatenessLog::default(), LatencyHistogram::new());
        let mut times = ReplyTimes::new();
        for number in 0..20_000 {
            let planned = us(1000 * number);
            let sent = planned + if number.is_multiple_of(every) { late } else { Duration::ZERO };
            log.sending.record(sent - planned);
            times.look(sent + storage);
            times.look(sent + storage);
            times.reply((), sent + storage, sent, None);
            times.taken().for_each(|((), reply)| log.count(reply));
            latency.record(sent + storage - planned);
        }
        (log, latency)
    }

    #[test]
    fn a_stall_is_called_by_the_figure_that_it_moves_and_left_alone_when_it_moves_none() {
        let limits = GeneratorLimits::default();
        for (storage_us, every, late_us, figure) in [
            (20_000, 1, 100, None),
            (20_000, 1, 300, Some("median")),
            (20_000, 100_000, 900_000, None),
            (20_000, 50, 1_000, Some("p99")),
            (20_000, 200, 10_000, Some("p99.9")),
            (100, 1, 5, None),
            (100, 1, 8, Some("median")),
            (100, 100, 1_000, Some("p99.9")),
        ] {
            let (log, latency) = log(us(storage_us), every, us(late_us));
            let lateness = log.beside(latency.summary());
            let found = lateness.moved(&limits).map(|(figure, ..)| figure);
            assert_eq!(
                found.is_some(),
                figure.is_some(),
                "{storage_us} us, one in {every} late by {late_us} us: {found:?}"
            );
            if matches!(figure, Some("p99" | "p99.9")) {
                assert!(lateness.moved(&limits).is_some_and(|(figure, ..)| figure != "median"), "{found:?}");
            }
        }
    }

    #[test]
    fn a_late_generator_makes_the_verdict_invalid_and_a_punctual_one_leaves_it_alone() {
        let limits = GeneratorLimits::default();
        let judged = |late| {
            let (log, latency) = log(us(200), 1, us(late));
            let mut verdict = Verdict::valid();
            log.beside(latency.summary()).judge(&limits, &mut verdict);
            verdict
        };
        let punctual = judged(5);
        assert!(punctual.valid && punctual.reasons.is_empty(), "{punctual}");
        let late = judged(50);
        assert!(!late.valid && late.has(GENERATOR_LATE));
        let text = &late.reasons[0].text;
        assert!(text.contains("250 us with its lateness and 200 us without"), "{text}");
        assert!(text.contains("sent late by 50 us on average"), "{text}");
    }

    #[test]
    fn replies_found_after_a_long_gap_waited_in_the_order_they_came() {
        let (mut log, mut times) = (LatenessLog::default(), ReplyTimes::new());
        times.look(us(1_000));
        times.look(us(5_000));
        for _ in 0..4 {
            times.reply((), us(5_000), us(0), None);
        }
        times.taken().for_each(|((), reply)| log.count(reply));
        let taking = log.beside(LatencySummary::default()).taking;
        assert_eq!((taking.count, taking.mean.round(), taking.max.round()), (4, 2_000.0, 3_500.0));
        let without = log.beside(LatencySummary::default()).without;
        assert!((without.mean - 3_000.0).abs() < 5.0, "{without:?}");
    }

    #[test]
    fn a_reply_whose_time_was_taken_as_it_came_is_not_late() {
        let (mut log, mut times) = (LatenessLog::default(), ReplyTimes::new());
        times.look(us(1_000));
        times.look(us(5_000));
        times.reply((), us(2_000), us(0), None);
        times.taken().for_each(|((), reply)| log.count(reply));
        assert_eq!((log.taken_at_once, log.taking.count()), (1, 0));
    }

    #[test]
    fn a_thread_that_waits_for_a_cpu_takes_the_reply_that_woke_it_late() {
        let (mut log, mut times) = (LatenessLog::default(), ReplyTimes::new());
        times.look(us(1_000));
        times.woke(us(5_000), us(2_000));
        times.reply((), us(5_000), us(0), None);
        times.taken().for_each(|((), reply)| log.count(reply));
        let without = log.beside(LatencySummary::default()).without;
        assert!((without.max - 4_000.0).abs() < 5.0, "half of the delay on average: {without:?}");
    }

    #[test]
    fn waiting_for_room_in_the_transport_is_no_lateness() {
        let limits = GeneratorLimits::default();
        let (mut log, mut times) = (LatenessLog::default(), ReplyTimes::new());
        times.look(us(10_000));
        times.look(us(10_000));
        times.reply((), us(10_000), us(8_000), Some(us(0)));
        times.taken().for_each(|((), reply)| log.count(reply));
        let mut latency = LatencyHistogram::new();
        latency.record(us(10_000));
        let lateness = log.beside(latency.summary());
        assert!((lateness.from_sent.max - 2_000.0).abs() < 5.0, "{:?}", lateness.from_sent);
        assert_eq!(lateness.moved(&limits), None);
    }
}
