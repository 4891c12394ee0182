//! How long a piece of work still takes, from how fast it went so far.
//!
//! The mean rate since its begin and the rate of the last moments each give an estimate. While they differ both are shown, as
//! a range; in the first moments, where either may be wrong by far, nothing is.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::forecast::span;

/// Before that much of the time, and of the work, no estimate is shown.
const TIME_MIN: Duration = Duration::from_secs(3);
const DONE_MIN: f64 = 0.02;
/// After this time the share of the work does not matter.
const TIME_ENOUGH: Duration = Duration::from_secs(20);
/// The last moments.
const RECENT: Duration = Duration::from_secs(10);
/// Estimates whose ratio is below this are shown as one.
const RATIO_OF_ONE: f64 = 1.3;

/// How far a piece of work was when.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    first: Option<(Instant, f64)>,
    /// The last moments, and one look before them.
    recent: VecDeque<(Instant, f64)>,
}

impl Pace {
    /// Takes in the share of the work that is done, 0 to 1.
    pub fn push(&mut self, now: Instant, done: f64) {
        self.first.get_or_insert((now, done));
        self.recent.push_back((now, done));
        while self.recent.get(1).is_some_and(|(at, _)| now.saturating_duration_since(*at) >= RECENT) {
            self.recent.pop_front();
        }
    }

    /// How long it still takes, at the least and at the most; none where that is not known yet.
    pub fn left(&self) -> Option<(Duration, Duration)> {
        let (first, last) = (self.first?, *self.recent.back()?);
        let (begun, done) = (last.0.saturating_duration_since(first.0), last.1 - first.1);
        if begun < TIME_MIN || begun < TIME_ENOUGH && done < DONE_MIN {
            return None;
        }
        let left = |(at, before): (Instant, f64)| {
            let seconds = last.0.saturating_duration_since(at).as_secs_f64();
            Duration::try_from_secs_f64((1.0 - last.1).max(0.0) * seconds / (last.1 - before)).ok()
        };
        let (whole, recent) = (left(first)?, left(*self.recent.front()?)?);
        Some((whole.min(recent), whole.max(recent)))
    }
}

/// An estimate as text, no more exact than it is.
pub fn text((least, most): (Duration, Duration)) -> String {
    if most.as_secs_f64() < RATIO_OF_ONE * least.as_secs_f64() + 1.0 {
        format!("about {}", about((least + most) / 2))
    } else {
        format!("{} to {}", about(least), about(most))
    }
}

/// A time to two digits or so.
pub fn about(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let unit = match seconds {
        s if s < 20.0 => 1.0,
        s if s < 120.0 => 5.0,
        s if s < 600.0 => 10.0,
        s if s < 7200.0 => 60.0,
        _ => 600.0,
    };
    span((seconds / unit).round() * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(begun: Instant, seconds: f64) -> Instant {
        begun + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn nothing_is_said_before_there_is_something_to_say() {
        let (begun, mut pace) = (Instant::now(), Pace::default());
        assert_eq!(pace.left(), None);
        for step in 0..10 {
            pace.push(at(begun, 0.2 * f64::from(step)), 0.01 * f64::from(step));
            assert_eq!(pace.left(), None);
        }
        // A thousandth of the work after 5 s would be a guess.
        let mut slow = Pace::default();
        slow.push(begun, 0.0);
        slow.push(at(begun, 5.0), 0.001);
        assert_eq!(slow.left(), None);
        slow.push(at(begun, 25.0), 0.005);
        assert!(slow.left().is_some());
        // What stands still ends at no time.
        let mut still = Pace::default();
        (0..60).for_each(|second| still.push(at(begun, f64::from(second)), 0.5));
        assert_eq!(still.left(), None);
    }

    #[test]
    fn a_steady_pace_gives_one_time_and_a_changing_one_a_range() {
        let (begun, mut pace) = (Instant::now(), Pace::default());
        (0..=20).for_each(|second| pace.push(at(begun, f64::from(second)), 0.01 * f64::from(second)));
        assert_eq!(text(pace.left().unwrap()), "about 1m 20s");
        // From here at a tenth of the rate.
        (1..=20).for_each(|second| {
            pace.push(at(begun, 20.0 + f64::from(second)), 0.2 + 0.001 * f64::from(second))
        });
        assert_eq!(text(pace.left().unwrap()), "2m 20s to 13m");
    }

    #[test]
    fn times_are_no_more_exact_than_they_are_known() {
        let texts =
            [0.2, 7.4, 23.0, 118.0, 131.0, 3_700.0, 20_000.0].map(|s| about(Duration::from_secs_f64(s)));
        assert_eq!(texts, ["0s", "7s", "25s", "2m", "2m 10s", "1h 2m", "5h 30m"]);
    }
}
