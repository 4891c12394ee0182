//! How long a server has answered nothing although calls waited, whatever became of those calls meanwhile.
//!
//! Always holds: only a reply ends a silence. A call that was cancelled, lost or sent again does not; time in which no
//! call waited is not counted.

use std::time::Duration;

use quanta::Instant;

/// The silence of one server.
#[derive(Debug)]
pub(super) struct Silence {
    limit: Duration,
    /// Since when calls wait, when some do.
    since: Option<Instant>,
    /// What it lasted before the calls that waited were given up.
    before: Duration,
}

impl Silence {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, since: None, before: Duration::ZERO }
    }

    /// A reply came in.
    #[inline]
    pub(super) fn end(&mut self) {
        (self.since, self.before) = (None, Duration::ZERO);
    }

    /// No reply came in until `now`, with this many calls in flight. Returns how long the silence has lasted once that is
    /// as long as it may be.
    #[inline]
    pub(super) fn goes_on(&mut self, now: Instant, in_flight: usize) -> Option<Duration> {
        match (self.since, in_flight) {
            (None, 0) => {}
            (None, _) => self.since = Some(now),
            (Some(since), 0) => {
                self.before += now.saturating_duration_since(since);
                self.since = None;
            }
            (Some(_), _) => {}
        }
        let lasted = self.lasted(now);
        (lasted >= self.limit).then_some(lasted)
    }

    /// How much longer it may last.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.limit.saturating_sub(self.lasted(now))
    }

    #[inline]
    fn lasted(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_the_time_in_which_calls_waited_and_only_a_reply_ends_it() {
        let seconds = Duration::from_secs;
        let begin = quanta::Clock::new().now();
        let mut silence = Silence::new(seconds(10));
        assert_eq!(silence.goes_on(begin, 3), None);
        // All were given up; what passes with nothing in flight does not count.
        assert_eq!(silence.goes_on(begin + seconds(6), 0), None);
        assert_eq!(silence.goes_on(begin + seconds(100), 1), None);
        assert_eq!(silence.goes_on(begin + seconds(103), 1), None);
        assert_eq!(silence.goes_on(begin + seconds(104), 1), Some(seconds(10)));
        silence.end();
        assert_eq!(silence.goes_on(begin + seconds(105), 1), None);
        assert_eq!(silence.goes_on(begin + seconds(114), 1), None);
        assert_eq!(silence.goes_on(begin + seconds(115), 1), Some(seconds(10)));
    }
}
