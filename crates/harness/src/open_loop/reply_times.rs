//! How long replies were at this machine before the generator took them.
//!
//! ```text
//!   look (nothing there)      reply 1   reply 2        look: both taken
//!          |---------------------*---------*-----------------|
//!                                arrived   arrived           done
//! ```
//!
//! 1. A transport says when a reply arrived: by the kernel's stamp, or as the end of a call that it made itself.
//! 2. A stream has one stamp for all that one read returned, that of the last. The others arrived since the look before,
//!    when nothing was there, or since the sleeping thread could run (`run_delay`): they are spread evenly over that time.
//! 3. A reply without a stamp arrived in that time, too. One that woke the thread waited as long as the thread did.
//! 4. The first of several that woke a sleeping thread arrived when the thread could run. That is known, and so its latency ends
//!    there and not at the stamp that it shares; the last of them has the stamp. Those in between are spread evenly. Where the
//!    timer of the sleep may have woken the thread, this is not known, and they are spread as in 2.
//! 5. What the quickest reply took from the stamp to this program is the kernel's own way to a reader that waits. It is a
//!    part of the way to the storage, as sending is, and no lateness. It counts up to 10 us.
//!
//! A generator ends its latencies at the stamp where there is one, so that only what shares a stamp is left to estimate.
//!
//! Not here: what lateness does to latencies (see `lateness`).

use std::time::Duration;

use super::pacer::Moment;

/// The most that is taken for the kernel's own way: a generator that is always late is late.
const OWN_WAY_MAX: Duration = Duration::from_micros(10);

/// A reply with how late it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenReply {
    /// From the moment the request was really sent to the end that the latency has.
    pub from_sent: Duration,
    /// The same from the planned moment for a request that waited for room in the transport.
    pub without_sending: Duration,
    /// By how much the reply arrived before the moment that it counts with: only estimated, where replies share a stamp.
    pub late: Duration,
    /// How long it is known to have been there before it was taken; no latency has it.
    pub lay: Duration,
}

/// A look that was a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// How long the thread waited for a CPU after it could run.
    pub run_delay: Duration,
    /// Whether the sleep lasted so long that its timer, and no reply, may have ended it.
    pub to_the_end: bool,
}

/// Times of one reply.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTime<M> {
    /// The end of its latency: when it arrived, where that is known, else when it was taken.
    pub done: M,
    /// From then until it was taken.
    pub lay: Duration,
    /// When it arrived, if the transport knows.
    pub arrived: Option<M>,
    /// When its request was really sent.
    pub sent: M,
    /// When its request was due, if it waited for room in the transport.
    pub waited_for_room_since: Option<M>,
}

/// Replies of one look, until it is known how many there were; `K` says where each is counted.
#[derive(Debug)]
pub struct ReplyTimes<M, K = ()> {
    /// The look before, at which nothing was left.
    before: Option<M>,
    /// The look under way.
    looked: Option<M>,
    /// The shortest time from arrival to being taken.
    own_way: Duration,
    replies: Vec<(K, ReplyTime<M>)>,
}

impl<M: Moment, K: Copy> ReplyTimes<M, K> {
    /// None yet.
    pub fn new() -> Self {
        Self { before: None, looked: None, own_way: OWN_WAY_MAX, replies: Vec::new() }
    }

    /// A look for replies begins.
    #[inline]
    pub fn look(&mut self, now: M) {
        self.before = self.looked.replace(now);
    }

    /// A reply of this look.
    #[inline]
    pub fn reply(&mut self, key: K, reply: ReplyTime<M>) {
        if let Some(arrived) = reply.arrived {
            self.own_way = self.own_way.min(reply.done.since(arrived));
        }
        self.replies.push((key, reply));
    }

    /// Whether there are replies for which it matters how long the thread that slept for them waited for a CPU.
    pub fn is_delay_wanted(&self) -> bool {
        self.replies.len() > 1 || self.replies.iter().any(|(_, reply)| reply.arrived.is_none())
    }

    /// Hands over the replies of the look. `sleep` is none for a look that was none.
    #[inline]
    pub fn taken(&mut self, sleep: Option<Sleep>, mut count: impl FnMut(K, TakenReply)) {
        let mut begin = 0;
        while begin < self.replies.len() {
            let ReplyTime { done, arrived, .. } = self.replies[begin].1;
            let alike = |(_, other): &&(K, ReplyTime<M>)| (other.done, other.arrived) == (done, arrived);
            let of = self.replies[begin..].iter().take_while(alike).count();
            let last = arrived.map_or(Duration::ZERO, |arrived| done.since(arrived));
            // How long before `done` the first of them may have arrived.
            let first = match (sleep, self.before) {
                (Some(sleep), _) => sleep.run_delay.saturating_sub(self.replies[begin].1.lay),
                (None, Some(before)) => done.since(before),
                (None, None) => Duration::ZERO,
            };
            let woke =
                begin == 0 && of > 1 && arrived.is_some() && sleep.is_some_and(|sleep| !sleep.to_the_end);
            for number in 0..of {
                let (key, reply) = self.replies[begin + number];
                let place = (number as u32, of as u32);
                let early = if woke && number == 0 { first.saturating_sub(last) } else { Duration::ZERO };
                let late = match arrived {
                    Some(_) if woke => spread_after_the_first((first, last), place),
                    Some(_) => last + spread((first, last), place),
                    None => late_without_stamp(sleep.is_some(), first, place),
                };
                let origin = reply.waited_for_room_since.unwrap_or(reply.sent);
                let (from_sent, without_sending) = (done.since(reply.sent), done.since(origin));
                let early = early.min(from_sent).min(without_sending);
                let without_sending = without_sending - early;
                let late = late.saturating_sub(self.own_way_of(arrived)).min(without_sending);
                let lay = reply.lay + early;
                count(key, TakenReply { from_sent: from_sent - early, without_sending, late, lay });
            }
            begin += of;
        }
        self.replies.clear();
    }

    fn own_way_of(&self, arrived: Option<M>) -> Duration {
        if arrived.is_some() { self.own_way } else { Duration::ZERO }
    }
}

/// How long before the last of some with one stamp reply `number` of them arrived; the first of them at most `first` before the
/// moment that they count with, the last one `last`.
#[inline]
fn spread((first, last): (Duration, Duration), (number, of): (u32, u32)) -> Duration {
    first.saturating_sub(last) * (of - 1 - number) / of
}

/// The same where the first of them woke the thread: how late it still is with a latency that ends where it arrived, and how late
/// the others are.
#[inline]
fn spread_after_the_first((first, last): (Duration, Duration), (number, of): (u32, u32)) -> Duration {
    let spread =
        if number == 0 { Duration::ZERO } else { first.saturating_sub(last) * (of - 1 - number) / (of - 1) };
    last + spread
}

/// How late reply `number` of some without a stamp was; the first of them arrived at most `first` before.
#[inline]
fn late_without_stamp(slept: bool, first: Duration, (number, of): (u32, u32)) -> Duration {
    if slept && number == 0 { first } else { first * (2 * (of - number) - 1) / (2 * of) }
}

impl<M: Moment, K: Copy> Default for ReplyTimes<M, K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn reply(done: u64, arrived: Option<u64>) -> ReplyTime<Duration> {
        ReplyTime {
            done: us(done),
            lay: Duration::ZERO,
            arrived: arrived.map(us),
            sent: us(0),
            waited_for_room_since: None,
        }
    }

    /// Lateness of replies found by a look at 5,000 us, with nothing there at 1,000 us.
    fn late_us(replies: &[ReplyTime<Duration>], run_delay: Option<Duration>) -> Vec<u64> {
        let sleep = run_delay.map(|run_delay| Sleep { run_delay, to_the_end: false });
        let mut times = ReplyTimes::new();
        times.reply((), reply(10, Some(10)));
        times.taken(None, |(), _| ());
        times.look(us(1_000));
        times.look(us(5_000));
        replies.iter().for_each(|reply| times.reply((), *reply));
        let mut late = Vec::new();
        times.taken(sleep, |(), reply| late.push(reply.late.as_micros() as u64));
        late
    }

    #[test]
    fn a_stamped_reply_is_late_by_what_it_lay_there() {
        assert_eq!(late_us(&[reply(5_000, Some(4_400))], None), [600]);
        assert_eq!(late_us(&[reply(5_000, Some(4_400)), reply(5_001, Some(4_999))], Some(us(3))), [600, 2]);
    }

    #[test]
    fn a_reply_whose_call_ended_as_it_says_is_not_late() {
        assert_eq!(late_us(&[reply(2_000, Some(2_000)), reply(3_000, Some(3_000))], None), [0, 0]);
    }

    #[test]
    fn replies_of_one_read_arrived_one_after_the_other_and_the_last_when_its_stamp_says() {
        assert_eq!(late_us(&[reply(5_000, Some(5_000)); 4], None), [3_000, 2_000, 1_000, 0]);
        assert_eq!(late_us(&[reply(5_000, Some(4_900)); 2], None), [2_050, 100]);
    }

    /// Of each: microseconds from sending at 0 to the end of its latency, how late that may still be, how long it lay there.
    fn taken_us(replies: &[ReplyTime<Duration>], sleep: Sleep) -> Vec<[u64; 3]> {
        let mut times = ReplyTimes::new();
        times.reply((), reply(10, Some(10)));
        times.taken(None, |(), _| ());
        times.look(us(1_000));
        replies.iter().for_each(|reply| times.reply((), *reply));
        let mut all = Vec::new();
        times.taken(Some(sleep), |(), taken| {
            let TakenReply { from_sent, late, lay, .. } = taken;
            all.push([from_sent, late, lay].map(|span| span.as_micros() as u64));
        });
        all
    }

    #[test]
    fn the_first_that_woke_a_sleeper_arrived_as_it_could_run_and_the_last_when_its_stamp_says() {
        let stamped = ReplyTime { lay: us(100), ..reply(5_000, Some(5_000)) };
        let delayed = |us_| Sleep { run_delay: us(us_), to_the_end: false };
        assert_eq!(taken_us(&[stamped; 2], delayed(500)), [[4_600, 0, 500], [5_000, 0, 100]]);
        assert_eq!(
            taken_us(&[stamped; 3], delayed(500)),
            [[4_600, 0, 500], [5_000, 200, 100], [5_000, 0, 100]]
        );
        assert_eq!(
            taken_us(&[stamped; 2], delayed(20)),
            [[5_000, 0, 100], [5_000, 0, 100]],
            "both as it woke"
        );
        assert_eq!(taken_us(&[stamped], delayed(500)), [[5_000, 0, 100]], "alone it has its own stamp");
        // None of them need have woken it: no latency is shortened, and the first may be late.
        let timer = Sleep { to_the_end: true, ..delayed(500) };
        assert_eq!(taken_us(&[stamped; 2], timer), [[5_000, 200, 100], [5_000, 0, 100]]);
    }

    #[test]
    fn what_another_stamp_has_did_not_wake_the_sleeper() {
        let stamp = |at| ReplyTime { lay: us(100), ..reply(at, Some(at)) };
        let late = taken_us(
            &[stamp(4_000), stamp(5_000), stamp(5_000)],
            Sleep { run_delay: us(500), to_the_end: false },
        );
        assert_eq!(late, [[4_000, 0, 100], [5_000, 200, 100], [5_000, 0, 100]]);
    }

    #[test]
    fn without_stamps_replies_arrived_evenly_since_the_look_before() {
        assert_eq!(late_us(&[reply(5_000, None); 4], None), [3_500, 2_500, 1_500, 500]);
        assert_eq!(
            late_us(&[reply(5_000, None)], Some(us(70))),
            [70],
            "it woke the thread, which then waited for a CPU"
        );
    }

    #[test]
    fn the_kernels_own_way_is_the_shortest_seen_and_bounded() {
        let mut times = ReplyTimes::new();
        let mut late = Vec::new();
        for (done, arrived) in [(1_000, 900), (2_000, 1_993), (3_000, 2_996), (4_000, 3_990)] {
            times.look(us(done));
            times.reply((), reply(done, Some(arrived)));
            times.taken(None, |(), reply| late.push(reply.late.as_micros() as u64));
        }
        assert_eq!(late, [90, 0, 0, 6]);
    }

    #[test]
    fn a_request_that_waited_for_room_counts_from_its_planned_moment() {
        let mut times = ReplyTimes::new();
        let waited = ReplyTime {
            sent: us(8_000),
            waited_for_room_since: Some(us(1_000)),
            ..reply(10_000, Some(10_000))
        };
        times.reply((), waited);
        let (late, lay) = (Duration::ZERO, Duration::ZERO);
        let expected = TakenReply { from_sent: us(2_000), without_sending: us(9_000), late, lay };
        times.taken(None, |(), reply| assert_eq!(reply, expected));
    }
}
