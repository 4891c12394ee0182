//! Which requests of an open loop left together, as a stall of the generator had held them back.
//!
//! ```text
//!   planned      1    2  3        4
//!                |    |  |        |
//!   really sent  |=========123    |4      2 and 3 were due before 1 had left: they left together with it
//! ```
//!
//! Not here: what the share of such requests means for a level (see `lateness`).

use std::time::Duration;

use super::lateness::LatenessLog;
use super::pacer::Moment;

/// A request that is less late than this leaves together with nothing: sending itself takes microseconds.
const LATE_MIN: Duration = Duration::from_micros(20);

/// The moments at which one generator's requests were sent, one after the other.
#[derive(Debug, Default)]
pub struct SendTimes<M> {
    /// When the request before was sent.
    last: Option<M>,
}

impl<M: Moment> SendTimes<M> {
    /// None yet.
    pub const fn new() -> Self {
        Self { last: None }
    }

    /// A request that was planned for `due` has been sent at `sent`. It counts in `log`; the warm-up has no log. A request that
    /// waited for room in the transport is late through no fault of the generator: do not call this for it.
    #[inline]
    pub fn sent(&mut self, due: M, sent: M, log: Option<&mut LatenessLog>) {
        let late = sent.since(due);
        let is_behind = late > LATE_MIN && self.last.is_some_and(|last| due < last);
        self.last = Some(sent);
        if let Some(log) = log {
            log.sending.record(late);
            log.sent_together += u64::from(is_behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests due at the first of each pair and sent at the second, in microseconds: how many left together.
    fn together(requests: &[(u64, u64)]) -> u64 {
        let (mut times, mut log) = (SendTimes::new(), LatenessLog::default());
        for (due, sent) in requests {
            times.sent(Duration::from_micros(*due), Duration::from_micros(*sent), Some(&mut log));
        }
        assert_eq!(log.sending.count(), requests.len() as u64);
        log.sent_together
    }

    #[test]
    fn requests_due_in_a_stall_leave_together_and_the_one_that_was_held_up_first_does_not_count() {
        assert_eq!(together(&[(0, 0), (100, 900), (300, 901), (500, 902), (1_000, 1_000)]), 2);
        assert_eq!(together(&[(100, 900), (300, 900), (500, 900)]), 2, "sent in one call");
    }

    #[test]
    fn requests_that_are_late_each_by_itself_do_not_leave_together() {
        assert_eq!(together(&[(0, 90), (100, 150), (200, 290), (300, 390)]), 0);
        assert_eq!(together(&[(0, 300), (500, 800), (1_000, 1_300)]), 0);
    }

    #[test]
    fn requests_planned_closely_after_each_other_are_not_called_late() {
        assert_eq!(together(&[(0, 1), (1, 6), (2, 11), (3, 16), (4, 21)]), 0);
    }

    #[test]
    fn a_request_while_warming_up_holds_up_the_first_that_counts() {
        let (mut times, mut log) = (SendTimes::new(), LatenessLog::default());
        let us = Duration::from_micros;
        times.sent(us(100), us(900), None);
        times.sent(us(300), us(901), Some(&mut log));
        assert_eq!((log.sending.count(), log.sent_together), (1, 1));
    }
}
