//! When all begin: how one rank's clock stands to another's, and waiting for a common moment.
//!
//! Always holds: the true offset lies within the stated uncertainty, whatever way the time of a round trip was lost on.
//! Source: Cristian, "Probabilistic clock synchronization", 1989.

use std::time::Duration;

use quanta::{Clock, Instant};

use super::{Joined, RanksError};

/// How rank 0's clock stands to this one's: `rank 0 = mine + offset_ns`, to within `uncertainty_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    /// Nanoseconds to add to a moment of mine.
    pub offset_ns: i64,
    /// How far that may be off at most.
    pub uncertainty_ns: u64,
}

/// One round trip to rank 0: sent and received by my clock, answered by that of rank 0; nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrip {
    /// When I asked.
    pub asked_ns: u64,
    /// What the clock of rank 0 said.
    pub answered_ns: u64,
    /// When I had the answer.
    pub heard_ns: u64,
}

impl ClockOffset {
    /// From the quickest of many: whatever way the time was lost on, the answer lies between question and hearing.
    pub fn of(trips: impl IntoIterator<Item = RoundTrip>) -> Self {
        let quickest = trips.into_iter().min_by_key(|trip| trip.heard_ns.saturating_sub(trip.asked_ns));
        quickest.map_or_else(Self::default, |trip| {
            let round_ns = trip.heard_ns.saturating_sub(trip.asked_ns);
            let middle_ns = trip.asked_ns + round_ns / 2;
            Self {
                offset_ns: trip.answered_ns as i64 - middle_ns as i64,
                uncertainty_ns: round_ns.div_ceil(2),
            }
        })
    }
}

/// From the common word to the begin of a load point: enough for the word to be everywhere.
const LEAD: Duration = Duration::from_millis(200);
/// Between ranks that come to a step at about the same time.
pub(super) const TOGETHER: Duration = Duration::from_secs(20);
/// Sleeping may end this late; from here on the clock is watched. Watching for longer, or yielding meanwhile, makes it worse
/// where others compute: who has just slept is woken before them.
const WATCH: Duration = Duration::from_micros(300);

impl Joined {
    /// The moment, by this rank's clock, at which all begin.
    pub(super) fn agree_on_begin(&mut self, clock: &Clock) -> Result<Instant, RanksError> {
        self.still_whole()?;
        let compared = self.exchange.compare_clocks();
        self.clocks = self.noted(compared)?;
        let epoch = self.exchange.epoch();
        let since_epoch = |now: Instant| now.saturating_duration_since(epoch).as_nanos() as u64;
        let begin_ns: u64 = self.collective("the begin", (), Some(TOGETHER), |_: Vec<()>| {
            since_epoch(clock.now()) + LEAD.as_nanos() as u64
        })?;
        let mine_ns = u64::try_from(begin_ns as i64 - self.clocks.offset_ns).unwrap_or(0);
        Ok(epoch + Duration::from_nanos(mine_ns))
    }

    /// Returns at the moment, and keeps by how much too late.
    pub(super) fn wait_for(&mut self, begin: Instant, clock: &Clock) {
        loop {
            let now = clock.now();
            let left = begin.saturating_duration_since(now);
            if left.is_zero() {
                self.skew_ns = now.saturating_duration_since(begin).as_nanos() as i64;
                return;
            }
            if left > WATCH {
                std::thread::sleep(left - WATCH);
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

pub(super) fn unix_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_true_offset_of_skewed_clocks_lies_within_the_stated_uncertainty(
            skew_ns in -3_600_000_000_000i64..3_600_000_000_000,
            legs in prop::collection::vec((1u64..2_000_000, 1u64..2_000_000), 1..40),
        ) {
            let (mut now_ns, start) = (0u64, 7_200_000_000_000u64);
            let trips: Vec<RoundTrip> = legs.iter().map(|(there, back)| {
                let asked_ns = start + now_ns;
                now_ns += there;
                let answered_ns = (start as i64 + now_ns as i64 + skew_ns) as u64;
                now_ns += back;
                RoundTrip { asked_ns, answered_ns, heard_ns: start + now_ns }
            }).collect();
            let found = ClockOffset::of(trips);
            prop_assert!(found.offset_ns.abs_diff(skew_ns) <= found.uncertainty_ns, "{found:?}, true {skew_ns}");
            let quickest = legs.iter().map(|(there, back)| there + back).min().unwrap();
            prop_assert_eq!(found.uncertainty_ns, quickest.div_ceil(2));
        }
    }
}
