//! How far each phase of a rank's run had come when, and which phases are not whole: what the figures of all ranks need.
//!
//! Not here: what becomes of it (see `whole`), at which moments ranks wait for each other (`harness::PhaseGate`).

use std::time::{Duration, Instant};

use harness::ranks::Steps;
use measure::Phase;
use netnews::spool::{Event, Work};

use super::resumed::PhaseOfPass;

/// What has been heard of a run so far.
#[derive(Default)]
pub(super) struct Course {
    /// Steps of the phase under way.
    heard: Vec<(Instant, &'static str, f64)>,
    of_phases: Vec<(String, u32, Steps)>,
    /// Cut short in this run, or begun in the one before.
    not_whole: Vec<PhaseOfPass>,
}

impl Course {
    /// Of a run that begins now, in which these phases are not whole.
    pub(super) fn new(not_whole: Vec<PhaseOfPass>) -> Self {
        Self { not_whole, ..Self::default() }
    }

    /// Takes note.
    pub(super) fn hear(&mut self, event: &Event) {
        match event {
            Event::Step { work, done, .. } => {
                let phase = match work {
                    Work::Unbatch => "unbatch",
                    Work::Batch => "batch",
                    Work::ExpireScan => "expire-scan",
                    Work::Expire => "expire",
                    Work::Remove => return,
                };
                self.heard.push((Instant::now(), phase, *done as f64));
            }
            Event::PhaseDone { phase, whole } => {
                self.keep_steps(phase);
                if !whole {
                    self.not_whole.push((phase.name.clone(), phase.pass));
                }
            }
            _ => {}
        }
    }

    fn keep_steps(&mut self, phase: &Phase) {
        let wall = Duration::try_from_secs_f64(phase.wall_s).unwrap_or_default();
        let begun = Instant::now().checked_sub(wall);
        let of_phase = self.heard.drain(..).filter(|(_, name, _)| *name == phase.name);
        let since_s =
            |at: Instant| begun.map_or(0.0, |begun| at.saturating_duration_since(begun).as_secs_f64());
        let mut done: Vec<(f64, f64)> = of_phase.map(|(at, _, done)| (since_s(at), done)).collect();
        // Each batch of the feed is reported; articles and files only now and then.
        if phase.name != "unbatch" {
            let last = done.last().map_or(0.0, |(_, done)| *done);
            done.push((phase.wall_s, last.max(phase.items as f64)));
        }
        self.of_phases.push((phase.name.clone(), phase.pass, Steps { done }));
    }

    /// How far a phase had come when.
    pub(super) fn steps_of(&self, phase: &Phase) -> Steps {
        let found = self.of_phases.iter().find(|(name, pass, _)| *name == phase.name && *pass == phase.pass);
        found.map_or_else(Steps::default, |(_, _, steps)| steps.clone())
    }

    /// Whether a phase ended before its work was done, or began when some of it had been.
    pub(super) fn was_cut_short(&self, phase: &Phase) -> bool {
        self.not_whole.iter().any(|(name, pass)| *name == phase.name && *pass == phase.pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(work: Work, done: u64) -> Event {
        Event::Step { work, pass: 1, passes: 2, done, of: 10 }
    }

    fn unbatch(pass: u32) -> Phase {
        Phase { name: "unbatch".to_owned(), pass, wall_s: 1.0, items: 7, ..Phase::default() }
    }

    fn done(pass: u32, whole: bool) -> Event {
        Event::PhaseDone { phase: Box::new(unbatch(pass)), whole }
    }

    #[test]
    fn a_phase_that_ended_before_its_work_was_done_is_known_and_so_are_its_steps() {
        let mut course = Course::new(vec![]);
        course.hear(&step(Work::Unbatch, 10));
        course.hear(&done(1, true));
        course.hear(&step(Work::Unbatch, 4));
        course.hear(&done(2, false));
        course.hear(&step(Work::Remove, 1));
        assert_eq!([1, 2].map(|pass| course.was_cut_short(&unbatch(pass))), [false, true]);
        assert_eq!(course.steps_of(&unbatch(2)).done.last().map(|(_, done)| *done), Some(4.0));
    }

    #[test]
    fn a_pass_that_was_begun_in_the_run_before_is_not_whole_though_it_came_to_its_end() {
        let mut course = Course::new(vec![("unbatch".to_owned(), 1)]);
        course.hear(&done(1, true));
        assert!(course.was_cut_short(&unbatch(1)));
    }
}
