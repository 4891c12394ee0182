//! What a run shows on a terminal while it runs: its figures with their last moments, and the time left.
//!
//! ```text
//! fstress: mail on /srv/x                                      running for 1m 12s
//! measuring   ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━──────────────────────────── level 4
//! offered        1,500.0/s
//! achieved       1,498.0/s ▆▆▇▇▇▇█▇▇▇                             peak 1,512.0/s
//! ...
//! time left   level 12s, search at least 1m 50s
//! Ctrl-C ends it with what it has
//! ```
//!
//! Events change the state, at most four frames a second show it; both happen in the thread that reports. A benchmark shows what
//! its events have: a load level, a phase of requests, or how far a piece of work has come.
//! Not here: the terminal (see `screen`), when a frame is due (see `progress`).

mod frame;
mod history;
mod time_left;

use std::time::{Duration, Instant};

use harness::{Event, Level, LevelsAfter, Live, PhaseLive, Stage, Step};
use measure::DiskUse;

use self::history::History;
use self::time_left::Pace;

pub use self::frame::Frame;

/// The state of a run.
#[derive(Clone, Debug)]
pub struct LiveView {
    title: String,
    begun: Instant,
    doing: Doing,
    rate: History,
    p50: History,
    p99: History,
    late: History,
    in_flight: History,
    /// Of the device under the target.
    device: Option<(String, History)>,
    pace: Pace,
    /// What the pace is of.
    paced: String,
    /// When load levels began, to see how long one takes with all that belongs to it.
    levels: Vec<Instant>,
}

/// What a run is at.
#[derive(Clone, Debug)]
enum Doing {
    Begins,
    Level { level: Level, live: Option<(Instant, Live)> },
    Phase(PhaseLive),
    Step { step: Step, since: Instant },
}

impl LiveView {
    /// For a run that begins now.
    pub fn new(title: String, now: Instant) -> Self {
        Self {
            title,
            begun: now,
            doing: Doing::Begins,
            rate: History::default(),
            p50: History::default(),
            p99: History::default(),
            late: History::default(),
            in_flight: History::default(),
            device: None,
            pace: Pace::default(),
            paced: String::new(),
            levels: Vec::new(),
        }
    }

    /// Takes in what happened.
    pub fn take(&mut self, event: &Event, now: Instant) {
        match event {
            Event::LevelBegins(level) => {
                self.leave_steps();
                self.levels.push(now);
                self.doing = Doing::Level { level: *level, live: None };
            }
            Event::Live(figures) => {
                let Doing::Level { live, .. } = &mut self.doing else { return };
                *live = Some((now, *figures));
                let (p50, p99, late) = (figures.p50, figures.p99, figures.late_p99);
                self.figures(figures.achieved_per_sec, [p50, p99, late], figures.in_flight);
            }
            Event::PhaseLive(live) => {
                self.leave_steps();
                self.pace_of(live.phase);
                self.pace.push(now, live.done);
                self.figures(live.achieved_per_sec, [live.p50, live.p99, live.late_p99], live.in_flight);
                self.doing = Doing::Phase(*live);
            }
            Event::Step(step) => self.step(step, now),
            _ => {}
        }
    }

    /// Takes in what the device under the target did in the last moments.
    pub fn device(&mut self, used: &DiskUse) {
        let (_, busy) = self.device.get_or_insert_with(|| (used.device.clone(), History::default()));
        busy.push(100.0 * used.busy);
    }

    /// The state now, to be drawn; `hint` is what Ctrl-C does.
    pub fn frame<'a>(&'a self, now: Instant, hint: &'a str) -> Frame<'a> {
        Frame { view: self, now, hint }
    }

    fn figures(&mut self, rate: f64, [p50, p99, late]: [Duration; 3], in_flight: u64) {
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        self.rate.push(rate);
        self.p50.push(us(p50));
        self.p99.push(us(p99));
        self.late.push(us(late));
        self.in_flight.push(in_flight as f64);
    }

    fn step(&mut self, step: &Step, now: Instant) {
        let is_new = self.pace_of(&step.work);
        if is_new || !matches!(self.doing, Doing::Step { .. }) {
            self.rate = History::default();
        }
        if let Doing::Step { step: before, since } = &self.doing
            && !is_new
        {
            let seconds = now.saturating_duration_since(*since).as_secs_f64();
            // Several at once are one look.
            if seconds < LOOK_MIN.as_secs_f64() {
                return;
            }
            self.rate.push(step.done.saturating_sub(before.done) as f64 / seconds);
        }
        if let Some(of) = step.of {
            self.pace.push(now, step.done as f64 / of.max(1) as f64);
        }
        self.doing = Doing::Step { step: step.clone(), since: now };
    }

    /// The rates of steps are of another kind than those of requests.
    fn leave_steps(&mut self) {
        if matches!(self.doing, Doing::Step { .. }) {
            self.rate = History::default();
        }
    }

    /// Begins with the pace again where it was of another work. Returns whether it was.
    fn pace_of(&mut self, work: &str) -> bool {
        let is_new = self.paced != work;
        if is_new {
            self.pace = Pace::default();
            work.clone_into(&mut self.paced);
        }
        is_new
    }

    /// How long a level takes, with the work between two of them.
    fn level_takes(&self, level: &Level) -> Duration {
        let planned = level.warm + level.measure;
        let (Some(first), Some(last)) = (self.levels.first(), self.levels.last()) else { return planned };
        let before = self.levels.len() as u32 - 1;
        let seen = last.saturating_duration_since(*first).checked_div(before).unwrap_or_default();
        planned.max(seen)
    }
}

/// Steps that come closer together are not looked at.
const LOOK_MIN: Duration = Duration::from_millis(150);

#[cfg(test)]
mod tests;
