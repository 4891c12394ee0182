//! Lets one message of a kind through each second, and counts the others.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(1);

/// The messages of one kind.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    held_back: u64,
}

impl Throttle {
    /// Whether a message may be written now; if so, how many were held back since the one before.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < PERIOD) {
            state.held_back += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_a_second_passes_and_says_how_many_did_not() {
        let (throttle, began) = (Throttle::default(), Instant::now());
        let passed: Vec<_> =
            (0..25).map(|number| throttle.pass(began + Duration::from_millis(number * 100))).collect();
        let expected = [(0, Some(0)), (10, Some(9)), (20, Some(9))];
        for (number, passed) in passed.into_iter().enumerate() {
            let expected =
                expected.iter().find(|(at, _)| *at == number).and_then(|(_, held_back)| *held_back);
            assert_eq!(passed, expected, "message {number}");
        }
    }
}
