//! Waits for planned moments and takes replies meanwhile.
//!
//! ```text
//! now                        sleep until        due
//!  | look | ---- sleep ------- |-wake-up late-|~spin~|
//!         a reply ends the wait at any time    `------' the window, learned from such wake-ups
//! ```
//!
//! 1. `wait` looks for replies that are there already.
//! 2. It sleeps until the window before the moment. A reply ends the sleep.
//! 3. It looks again and again until the moment.
//!
//! While the first level warms up the window is empty, so that what a wake-up costs on this machine shows. `settle` then
//! chooses the window, and whether to spin all the time, before anything is counted.
//!
//! Not here: how replies are taken ([`Waiter`]), whether CPUs are free (see `free_cpus`), how late requests were sent
//! (see `lateness`).

use std::time::Duration;

use measure::LatencyHistogram;

use super::free_cpus::CpuReading;
use super::precise::Precise;
use super::wait::{Wait, WaitChoice};

/// A moment on a generator's clock.
pub trait Moment: Copy + Ord {
    /// The moment this much earlier.
    #[must_use]
    fn earlier_by(self, span: Duration) -> Self;

    /// Time since `earlier`; zero when that is later.
    fn since(self, earlier: Self) -> Duration;
}

impl Moment for quanta::Instant {
    fn earlier_by(self, span: Duration) -> Self {
        self.checked_sub(span).unwrap_or(self)
    }

    fn since(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

impl Moment for std::time::Instant {
    fn earlier_by(self, span: Duration) -> Self {
        self.checked_sub(span).unwrap_or(self)
    }

    fn since(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

/// A generator that waits: its clock and its replies.
pub trait Waiter {
    /// Its clock's moments.
    type Moment: Moment;
    /// What can go wrong while it looks for replies.
    type Error;

    /// Reads the clock.
    fn now(&mut self) -> Self::Moment;

    /// Takes the replies that are there. Sleeps until `until` for the first one when there is none; does not sleep at all
    /// without `until`. Returns how many it took.
    ///
    /// # Errors
    /// The generator's own.
    fn look(&mut self, until: Option<Self::Moment>) -> Result<usize, Self::Error>;
}

/// Longest time that is spun away before a moment: a machine that wakes later than this is too busy to be exact.
const WINDOW_MAX: Duration = Duration::from_micros(250);
/// The window where too few wake-ups were seen to choose one.
const WINDOW_UNKNOWN: Duration = Duration::from_micros(60);
/// Wake-ups that a choice needs.
const WAKE_UPS_MIN: u64 = 20;
/// A sleep that ends so soon after its moment needs no spinning: a simulated clock does that.
const EXACT: Duration = Duration::from_micros(1);
/// Added to the lateness of nearly all wake-ups, as one look at the sockets takes that long.
const WINDOW_SPARE: Duration = Duration::from_micros(5);

/// How one generating thread waits.
#[derive(Debug)]
pub struct Pacer {
    asked: Wait,
    /// Generating threads alike.
    threads: usize,
    spins: bool,
    window: Duration,
    /// How late sleeps ended.
    wake_ups: LatencyHistogram,
    /// CPU use when the warm-up of the first level began.
    warm_from: Option<CpuReading>,
    cpus_awake: bool,
    choice: Option<WaitChoice>,
}

impl Pacer {
    /// For one of `threads` generating threads that wait as `asked`.
    pub fn new(asked: Wait, threads: usize) -> Self {
        Self {
            asked,
            threads,
            spins: asked == Wait::Spin,
            window: Duration::ZERO,
            wake_ups: LatencyHistogram::new(),
            warm_from: None,
            cpus_awake: false,
            choice: None,
        }
    }

    /// Begins a level with its warm-up: asks the kernel for exact wake-ups of this thread, which must keep the answer until
    /// the level is over.
    pub fn begin(&mut self) -> Precise {
        let precise = Precise::begin();
        self.cpus_awake = precise.keeps_cpus_awake();
        if self.asked == Wait::Auto && self.choice.is_none() {
            self.warm_from.get_or_insert_with(CpuReading::now);
        }
        precise
    }

    /// Chooses how to wait from what the warm-up showed; call it shortly before the measured interval, as it reads files.
    /// Whether to spin is chosen once, so that all levels of a run are waited for alike.
    pub fn settle(&mut self) -> WaitChoice {
        if self.choice.is_none() && self.asked == Wait::Auto {
            let room = self.warm_from.take().map(|before| CpuReading::now().room_since(&before));
            self.spins = room.is_some_and(|room| room.is_enough_for(self.threads));
        }
        self.window = window(&self.wake_ups);
        let window = if self.spins { Duration::ZERO } else { self.window };
        let choice = WaitChoice { spins: self.spins, window, cpus_awake: self.cpus_awake };
        self.choice = Some(choice);
        choice
    }

    /// What was chosen last; none before the first warm-up is over.
    pub fn choice(&self) -> Option<WaitChoice> {
        self.choice
    }

    /// Waits for replies until the first one, or until a moment; without one it only looks. How many were taken.
    ///
    /// # Errors
    /// The waiter's own.
    #[inline]
    pub fn wait<W: Waiter>(&mut self, until: Option<W::Moment>, waiter: &mut W) -> Result<usize, W::Error> {
        let taken = waiter.look(None)?;
        match until {
            Some(until) if taken == 0 => self.wait_on(until, waiter),
            _ => Ok(taken),
        }
    }

    fn wait_on<W: Waiter>(&mut self, until: W::Moment, waiter: &mut W) -> Result<usize, W::Error> {
        let now = waiter.now();
        let sleep_until = until.earlier_by(self.window);
        if !self.spins && sleep_until > now {
            let taken = waiter.look(Some(sleep_until))?;
            if taken > 0 {
                return Ok(taken);
            }
            let woken = waiter.now();
            self.wake_ups.record(woken.since(sleep_until));
        }
        while waiter.now() < until {
            let taken = waiter.look(None)?;
            if taken > 0 {
                return Ok(taken);
            }
            std::hint::spin_loop();
        }
        Ok(0)
    }
}

/// The window that nearly all such wake-ups fit in.
fn window(wake_ups: &LatencyHistogram) -> Duration {
    if wake_ups.count() < WAKE_UPS_MIN {
        return WINDOW_UNKNOWN;
    }
    let late = wake_ups.quantile(0.99);
    if late < EXACT { Duration::ZERO } else { (late * 3 / 2 + WINDOW_SPARE).min(WINDOW_MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that only looks move, with sleeps that end late and replies at given times.
    struct Simulated {
        now: Duration,
        wakes_late_by: Duration,
        replies: Vec<Duration>,
        looks: u32,
        slept: Duration,
    }

    impl Moment for Duration {
        fn earlier_by(self, span: Duration) -> Self {
            self.saturating_sub(span)
        }

        fn since(self, earlier: Self) -> Duration {
            self.saturating_sub(earlier)
        }
    }

    impl Waiter for Simulated {
        type Moment = Duration;
        type Error = std::convert::Infallible;

        fn now(&mut self) -> Duration {
            self.now
        }

        fn look(&mut self, until: Option<Duration>) -> Result<usize, Self::Error> {
            self.looks += 1;
            let first = self.replies.iter().min().copied();
            if let Some(until) = until {
                let end = first.map_or(until, |first| first.clamp(self.now, until)) + self.wakes_late_by;
                self.slept += end.saturating_sub(self.now);
                self.now = self.now.max(end);
            } else {
                self.now += Duration::from_nanos(100);
            }
            let before = self.replies.len();
            self.replies.retain(|at| *at > self.now);
            Ok(before - self.replies.len())
        }
    }

    fn simulated(wakes_late_by: Duration) -> Simulated {
        Simulated {
            now: Duration::from_secs(1),
            wakes_late_by,
            replies: vec![],
            looks: 0,
            slept: Duration::ZERO,
        }
    }

    const MS: Duration = Duration::from_millis(1);

    /// Waits for `moments` a millisecond apart; the largest lateness.
    fn latest(pacer: &mut Pacer, waiter: &mut Simulated, moments: u32) -> Duration {
        let mut latest = Duration::ZERO;
        for _ in 0..moments {
            let due = waiter.now + MS;
            assert_eq!(pacer.wait(Some(due), waiter), Ok(0));
            assert!(waiter.now >= due, "it came back early");
            latest = latest.max(waiter.now - due);
        }
        latest
    }

    #[test]
    fn the_window_grows_to_what_wake_ups_cost_on_this_machine() {
        for late_us in [4, 40, 120] {
            let late = Duration::from_micros(late_us);
            let mut waiter = simulated(late);
            let mut pacer = Pacer::new(Wait::Sleep, 1);
            assert!(latest(&mut pacer, &mut waiter, 100) >= late, "a warm-up shows what a wake-up costs");
            let window = pacer.settle().window;
            assert!(window > late && window <= 2 * late + WINDOW_SPARE, "{window:?} for {late:?}");
            let latest = latest(&mut pacer, &mut waiter, 100);
            assert!(latest < EXACT, "sleeps end {late:?} late, and moments were met {latest:?} late");
        }
    }

    #[test]
    fn a_window_is_bounded_and_a_machine_that_was_hardly_seen_gets_the_usual_one() {
        let mut waiter = simulated(Duration::from_millis(3));
        let mut pacer = Pacer::new(Wait::Sleep, 1);
        latest(&mut pacer, &mut waiter, 30);
        assert_eq!(pacer.settle().window, WINDOW_MAX);
        assert_eq!(Pacer::new(Wait::Sleep, 1).settle().window, WINDOW_UNKNOWN);
    }

    #[test]
    fn a_clock_that_wakes_exactly_is_never_spun_on() {
        let mut waiter = simulated(Duration::ZERO);
        let mut pacer = Pacer::new(Wait::Sleep, 1);
        latest(&mut pacer, &mut waiter, 100);
        assert_eq!(pacer.settle().window, Duration::ZERO);
        waiter.looks = 0;
        latest(&mut pacer, &mut waiter, 100);
        assert_eq!(waiter.looks, 200, "one look for what is there, and one sleep, a moment");
    }

    #[test]
    fn a_reply_ends_the_wait_asleep_or_spinning_and_is_taken_once() {
        for wait in [Wait::Sleep, Wait::Spin] {
            let mut waiter = simulated(Duration::ZERO);
            let mut pacer = Pacer::new(wait, 1);
            let at = waiter.now + MS;
            waiter.replies.push(at);
            assert_eq!(pacer.wait(Some(waiter.now + 5 * MS), &mut waiter), Ok(1), "{wait}");
            assert!(
                waiter.now >= at && waiter.now < at + EXACT,
                "{wait}: {:?} after it came",
                waiter.now - at
            );
            assert_eq!(pacer.wait(None, &mut waiter), Ok(0), "{wait}");
        }
    }

    #[test]
    fn one_who_spins_never_sleeps() {
        let mut waiter = simulated(MS);
        let mut pacer = Pacer::new(Wait::Spin, 1);
        assert!(latest(&mut pacer, &mut waiter, 20) < EXACT);
        assert_eq!((waiter.slept, pacer.settle().spins), (Duration::ZERO, true));
    }
}
