//! What is due next, and when: the phases one after the other, each with requests of the plan.
//!
//! ```text
//! open          exponential gaps around the phase's rate -> moment -> the plan's next request
//! closed        a connection is free                     -> now    -> the plan's next request
//! of the plan   the plan's next request                  -> the moment it brings along
//! ```
//!
//! Always holds: the moments of an open phase and of the plan hang on the seed alone, never on replies.
//! Not here: sending (see `generator`), what a phase is (see `phases`), what is asked (see `plan`).

use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::plan::object::mix;
use crate::plan::phases::{End, Pace, Phase};
use crate::plan::{Plan, Planned, Planner, Share};
use crate::run::PhaseProgress;

/// How far the last phase before the measured ones has come when the warm-up counts as over, 0 to 1.
const NEARLY_OVER: f64 = 0.9;

/// One generator's part of phases and plan.
pub(super) struct Schedule {
    phases: Vec<Phase>,
    planner: Planner,
    /// Of the arrivals alone: what else drew from it would make them hang on the replies.
    random: Xoshiro256PlusPlus,
    cursor: Cursor,
    /// Planned, and not due when it was last asked for.
    upcoming: Option<(Instant, Planned)>,
}

/// Where in the phases.
struct Cursor {
    phase: usize,
    begin: Instant,
    /// Of the last request that was planned.
    at: Instant,
    requests: u64,
    new_bytes: u64,
}

/// What is to be done now.
pub(super) enum Next {
    /// Sending a request that was due at this moment.
    Send(Instant, Planned),
    /// Nothing before this moment.
    Wait(Instant),
    /// In a closed loop: sending one as soon as a connection is free.
    WhenFree,
    /// Ending the phase, which was over at this moment, with [`Schedule::next_phase`].
    EndPhase(Instant),
    /// There is no more.
    Over,
}

impl Schedule {
    pub fn new(plan: &Plan, phases: &[Phase], share: Share, begin: Instant) -> Self {
        Self {
            phases: phases.iter().map(|phase| phase.part(share.of)).collect(),
            planner: plan.planner(share),
            random: Xoshiro256PlusPlus::seed_from_u64(mix(share.seed ^ 0x6761_7073) ^ share.number),
            cursor: Cursor { phase: 0, begin, at: begin, requests: 0, new_bytes: 0 },
            upcoming: None,
        }
    }

    /// Number of the phase under way; that of none when all are over.
    pub fn phase(&self) -> usize {
        self.cursor.phase
    }

    /// When the phase under way began.
    pub fn phase_begin(&self) -> Instant {
        self.cursor.begin
    }

    /// Whether there is no more.
    pub fn is_over(&self) -> bool {
        self.cursor.phase >= self.phases.len()
    }

    /// The rest of a planned request's URL.
    pub fn tail(&self, planned: &Planned) -> &str {
        self.planner.tail(planned.tail)
    }

    /// What comes next, as things stand at `now`.
    pub fn next(&mut self, now: Instant) -> Next {
        let next = match self.upcoming.take() {
            Some((due, planned)) => Next::Send(due, planned),
            None => self.plan_next(now),
        };
        match next {
            Next::Send(due, planned) if due > now => {
                self.upcoming = Some((due, planned));
                Next::Wait(due)
            }
            next => next,
        }
    }

    /// What comes next by the phases; a request to send may lie ahead.
    fn plan_next(&mut self, now: Instant) -> Next {
        let Some(phase) = self.phases.get(self.cursor.phase).copied() else { return Next::Over };
        let cursor = &self.cursor;
        let used_up = match phase.end {
            End::Requests(requests) => cursor.requests >= requests,
            End::NewBytes(bytes) => cursor.new_bytes >= bytes,
            End::Time(_) | End::OfPlan => false,
        };
        let ends_at = match phase.end {
            End::Time(span) => Some(cursor.begin + span),
            _ => None,
        };
        let at = match phase.pace {
            _ if used_up => None,
            Pace::Closed if ends_at.is_some_and(|end| now >= end) => None,
            Pace::Closed => return Next::WhenFree,
            Pace::Open { .. } => {
                let since = cursor.at.saturating_duration_since(cursor.begin);
                let gap = gap(&phase, since, -(1.0 - self.random.random::<f64>()).ln());
                gap.map(|gap| cursor.at + gap).filter(|at| ends_at.is_none_or(|end| *at < end))
            }
            Pace::OfPlan => match self.plan_one(now) {
                Some(planned) => {
                    let at = self.cursor.begin + planned.due;
                    self.cursor.at = at;
                    return Next::Send(at, planned);
                }
                None => None,
            },
        };
        let Some(at) = at else {
            // An open phase is over when its time is, not when its last request was due.
            return Next::EndPhase(match phase.pace {
                Pace::Open { .. } => ends_at.unwrap_or(self.cursor.at),
                Pace::Closed => now,
                Pace::OfPlan => self.cursor.at.max(now),
            });
        };
        match self.plan_one(at) {
            Some(planned) => {
                self.cursor.at = at;
                Next::Send(at, planned)
            }
            None => Next::EndPhase(at),
        }
    }

    /// The next request of the phase under way.
    pub fn plan_one(&mut self, at: Instant) -> Option<Planned> {
        let phase = self.phases.get(self.cursor.phase)?;
        let since = at.saturating_duration_since(self.cursor.begin);
        let planned = self.planner.next(self.cursor.phase, phase.recurrence_at(since), phase.special)?;
        self.cursor.requests += 1;
        if planned.is_new && planned.object.cacheable {
            self.cursor.new_bytes += planned.object.size_bytes;
        }
        Some(planned)
    }

    /// Starts the next phase at `at`.
    pub fn next_phase(&mut self, at: Instant) {
        self.cursor = Cursor { phase: self.cursor.phase + 1, begin: at, at, requests: 0, new_bytes: 0 };
    }

    /// Whether the warm-up is over, or nearly: the next thing to come is what is measured.
    pub fn is_warm(&self, now: Instant) -> bool {
        let at = self.cursor.phase;
        let is_measured = |phase: Option<&Phase>| phase.is_some_and(|phase| phase.measured);
        is_measured(self.phases.get(at))
            || is_measured(self.phases.get(at + 1)) && self.progress(now).done >= NEARLY_OVER
    }

    /// Name of the phase under way and how far it has come, 0 to 1.
    pub fn progress(&self, now: Instant) -> PhaseProgress {
        let (number, of) = (self.cursor.phase as u32 + 1, self.phases.len() as u32);
        let Some(phase) = self.phases.get(self.cursor.phase) else {
            return PhaseProgress { phase: "drain", number: of, of, done: 1.0, run_left: None };
        };
        let since = now.saturating_duration_since(self.cursor.begin);
        let lengths = self.phases[self.cursor.phase..].iter().map(|phase| match phase.end {
            End::Time(length) => Some(length),
            _ => None,
        });
        let run_left = lengths.sum::<Option<Duration>>().map(|left| left.saturating_sub(since));
        let done = match phase.end {
            End::Time(_) => phase.share_at(since),
            End::NewBytes(bytes) => self.cursor.new_bytes as f64 / bytes.max(1) as f64,
            End::Requests(requests) => self.cursor.requests as f64 / requests.max(1) as f64,
            End::OfPlan => 0.0,
        };
        PhaseProgress { phase: phase.name, number, of, done, run_left }
    }
}

/// How long until the next arrival of a process whose rate goes straight from one value to another, given an
/// exponential draw of mean 1; none when its rate falls to nothing before.
fn gap(phase: &Phase, since: Duration, draw: f64) -> Option<Duration> {
    let Pace::Open { from_per_sec, to_per_sec } = phase.pace else { return None };
    let rate = phase.rate_at(since)?;
    let slope = match phase.end {
        End::Time(span) if !span.is_zero() => (to_per_sec - from_per_sec) / span.as_secs_f64() / 2.0,
        _ => 0.0,
    };
    let gap_s = if slope.abs() < 1e-12 * rate.max(1e-9) {
        draw / rate.max(1e-9)
    } else {
        // The area under the rate from here on reaches the draw: a quadratic equation.
        let inside = rate * rate + 4.0 * slope * draw;
        if inside < 0.0 {
            return None;
        }
        2.0 * draw / (rate + inside.sqrt()).max(1e-9)
    };
    Duration::try_from_secs_f64(gap_s).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_brings_as_many_requests_as_the_area_under_it() {
        let ramp = |from_per_sec, to_per_sec| {
            Phase::new("ramp", Pace::Open { from_per_sec, to_per_sec }, End::Time(Duration::from_secs(100)))
        };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for (from, to) in [(0.1, 400.0), (400.0, 0.1), (200.0, 200.0)] {
            let phase = ramp(from, to);
            let (mut at, mut count, mut first_half) = (Duration::ZERO, 0, 0);
            while let Some(gap) = gap(&phase, at, -(1.0 - random.random::<f64>()).ln()) {
                at += gap;
                if at >= Duration::from_secs(100) {
                    break;
                }
                count += 1;
                first_half += u32::from(at < Duration::from_secs(50));
            }
            assert!((19_300..20_700).contains(&count), "{from} to {to}: {count}");
            let share = f64::from(first_half) / f64::from(count);
            let wanted = (3.0 * from + to) / (4.0 * (from + to));
            assert!((share - wanted).abs() < 0.02, "{from} to {to}: {share}, not {wanted}");
        }
    }
}
