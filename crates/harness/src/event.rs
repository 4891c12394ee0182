//! What a run reports while it runs: one sort of event for every benchmark, which one reporter shows.
//!
//! Always holds: sending returns at once; a reporter that is behind loses steps and live figures, and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use measure::LoadPoint;

use crate::Figures;
use crate::open_loop::WaitChoice;

/// What happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A sentence for the user that stays on the screen.
    Note(String),
    /// Something that went wrong and does not end the run, such as what could not be removed; for the user also when the run
    /// is quiet.
    Warning(String),
    /// How far the run has come.
    Step(Step),
    /// A load level begins.
    LevelBegins(Level),
    /// How an open-loop generator waits between requests, chosen as the first warm-up ends.
    Waits(WaitChoice),
    /// Figures of the level under way.
    Live(Live),
    /// Figures of the phase under way, of a benchmark whose requests a cache may answer.
    PhaseLive(PhaseLive),
    /// A load level is measured.
    LevelDone(Box<LoadPoint>),
    /// What is measured so far, to be kept in case that the process is killed.
    Checkpoint(Box<Figures>),
    /// All that will be measured is: these are the run's figures, and what follows is the removal of its files. Not sent by a rank
    /// whose part is not the whole.
    Measured {
        /// As the run's end will give them, but for what removing the files comes to.
        figures: Box<Figures>,
        /// Files to remove, about; 0 where that is not known.
        files: u64,
    },
}

/// How far a piece of work has come: `storing batch: 3 of 9`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// The work: `making files`.
    pub work: String,
    /// How much is done.
    pub done: u64,
    /// How much there is to do; none where that is not known.
    pub of: Option<u64>,
    /// `of` is an estimate.
    pub is_estimate: bool,
    /// Bytes of what is done; 0 where they do not matter.
    pub bytes: u64,
}

/// A load level that begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Requests a second; none in a closed loop.
    pub offered_per_sec: Option<f64>,
    /// Which one, from 1.
    pub number: u32,
    /// Of how many, where that is known.
    pub of: Option<u32>,
    /// Length of the warm-up.
    pub warm: Duration,
    /// Length of the measured interval.
    pub measure: Duration,
    /// How many levels follow.
    pub after: LevelsAfter,
}

/// How many load levels follow the one under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LevelsAfter {
    /// Not known.
    #[default]
    Unknown,
    /// About this many; a level that is measured again adds one.
    About(u32),
    /// This many at least: a search has met no level that fails, or none that holds.
    AtLeast(u32),
}

/// What a load level is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its requests do not count yet.
    Warm,
    /// They count.
    Measure,
}

/// Figures of the last moments of a load level.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    /// What it is at.
    pub stage: Stage,
    /// Since the level began.
    pub elapsed: Duration,
    /// Requests sent a second.
    pub sent_per_sec: f64,
    /// Requests answered with success a second.
    pub achieved_per_sec: f64,
    /// Median latency.
    pub p50: Duration,
    /// 99th percentile of the latency.
    pub p99: Duration,
    /// 99th percentile of how late requests were sent; zero in a closed loop.
    pub late_p99: Duration,
    /// Requests sent and not answered yet.
    pub in_flight: u64,
    /// Requests that failed since the level began.
    pub errors: u64,
}

/// Figures of the last moments of a phase of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseLive {
    /// The phase's name.
    pub phase: &'static str,
    /// Which one, from 1.
    pub number: u32,
    /// Of how many.
    pub of: u32,
    /// How far it has come, 0 to 1.
    pub done: f64,
    /// Until the run's last phase ends; none where that is no matter of time.
    pub run_left: Option<Duration>,
    /// Requests due a second.
    pub offered_per_sec: f64,
    /// Good replies a second.
    pub achieved_per_sec: f64,
    /// Mean latency of the good replies.
    pub latency_mean: Duration,
    /// Median latency of the good replies.
    pub p50: Duration,
    /// 99th percentile of the latency of the good replies.
    pub p99: Duration,
    /// 99th percentile of how late requests were sent; zero in a closed loop.
    pub late_p99: Duration,
    /// Share of the good replies that came from a cache, 0 to 1.
    pub hit_share: f64,
    /// Requests sent and not answered yet.
    pub in_flight: u64,
    /// Requests that failed since the run began.
    pub errors: u64,
}

/// Where events go. Clones send to the same place.
#[derive(Clone, Debug)]
pub struct Events {
    sender: Option<Sender<Event>>,
    waiting: Arc<AtomicUsize>,
}

/// Where events come.
#[derive(Debug)]
pub struct Heard {
    receiver: Receiver<Event>,
    waiting: Arc<AtomicUsize>,
}

/// With more events waiting than this, steps and live figures are dropped.
const WAITING_MAX: usize = 1024;

impl Events {
    /// Both ends.
    pub fn new() -> (Self, Heard) {
        let (sender, receiver) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        (Self { sender: Some(sender), waiting: Arc::clone(&waiting) }, Heard { receiver, waiting })
    }

    /// For a run that nobody watches.
    pub fn unheard() -> Self {
        Self { sender: None, waiting: Arc::default() }
    }

    /// Sends, or drops what may be dropped when the receiver is far behind. Returns at once.
    pub fn send(&self, event: Event) {
        let Some(sender) = &self.sender else { return };
        let may_be_dropped = matches!(event, Event::Step(_) | Event::Live(_) | Event::PhaseLive(_));
        if may_be_dropped && self.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            return;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // A receiver that is gone does not want to hear of the run any more.
        let _ = sender.send(event);
    }
}

impl Heard {
    /// The next one, if it comes until then.
    ///
    /// # Errors
    /// When none came, or the run is over.
    pub fn next_until(&mut self, until: Instant) -> Result<Event, RecvTimeoutError> {
        let event = self.receiver.recv_timeout(until.saturating_duration_since(Instant::now()))?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Ok(event)
    }
}

impl Iterator for Heard {
    type Item = Event;

    /// The next one; none once the run is over.
    fn next(&mut self) -> Option<Event> {
        let event = self.receiver.recv().ok()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reporter_that_is_behind_loses_steps_and_no_notes() {
        let (events, heard) = Events::new();
        for _ in 0..2 * WAITING_MAX {
            events.send(Event::Step(Step::default()));
        }
        events.send(Event::Note("kept".to_owned()));
        drop(events);
        let heard: Vec<Event> = heard.collect();
        assert_eq!(heard.len(), WAITING_MAX + 1);
        assert!(matches!(heard.last(), Some(Event::Note(text)) if text == "kept"));
    }

    #[test]
    fn a_reporter_can_wait_for_the_next_event_for_a_time() {
        let (events, mut heard) = Events::new();
        assert_eq!(heard.next_until(Instant::now()).unwrap_err(), RecvTimeoutError::Timeout);
        events.send(Event::Note("come".to_owned()));
        let come = heard.next_until(Instant::now() + Duration::from_secs(60)).unwrap();
        assert!(matches!(come, Event::Note(text) if text == "come"));
        assert_eq!(heard.waiting.load(Ordering::Relaxed), 0);
        drop(events);
        assert_eq!(heard.next_until(Instant::now()).unwrap_err(), RecvTimeoutError::Disconnected);
    }
}
