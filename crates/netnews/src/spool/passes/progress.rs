//! How far a run has come: for the user, and step by step for the figures of several ranks.

use std::time::Instant;

use harness::ranks::Steps;
use measure::Phase;

use crate::spool::results::outcome::{Event, Work};

/// Reports steps, and keeps those of the phase under way where there are other ranks.
pub(super) struct Progress<'a> {
    tell: &'a mut dyn FnMut(Event),
    /// The pass under way, from 1.
    pub(super) pass: u32,
    passes: u32,
    begun: Instant,
    kept: Option<Vec<(f64, f64)>>,
}

impl<'a> Progress<'a> {
    pub(super) fn new(tell: &'a mut dyn FnMut(Event), passes: u32, joined: bool) -> Self {
        Self { tell, pass: 1, passes, begun: Instant::now(), kept: joined.then(Vec::new) }
    }

    /// A phase begins.
    pub(super) fn begin(&mut self, pass: u32) {
        (self.pass, self.begun) = (pass, Instant::now());
        self.kept.iter_mut().for_each(Vec::clear);
    }

    /// How much is done, and how much there is to do; 0 where that is not known.
    pub(super) fn step(&mut self, work: Work, done: u64, of: u64) {
        if let Some(kept) = &mut self.kept {
            kept.push((self.begun.elapsed().as_secs_f64(), done as f64));
        }
        let (pass, passes) = (self.pass, self.passes);
        self.tell(Event::Step { work, pass, passes, done, of });
    }

    pub(super) fn tell(&mut self, event: Event) {
        (self.tell)(event);
    }

    /// How far the phase that ends had come when.
    pub(super) fn steps(&mut self, phase: &Phase) -> Steps {
        let Some(kept) = &mut self.kept else { return Steps::default() };
        let mut done = std::mem::take(kept);
        // Each batch of the feed is reported; articles and files only now and then.
        if phase.name != "unbatch" {
            let last = done.last().map_or(0.0, |(_, done)| *done);
            done.push((phase.wall_s, last.max(phase.items as f64)));
        }
        Steps { done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_those_of_the_phase_that_ends_and_none_are_kept_without_other_ranks() {
        let unbatch = Phase { name: "unbatch".to_owned(), wall_s: 1.0, items: 7, ..Phase::default() };
        let flush = Phase { name: "flush".to_owned(), wall_s: 1.0, items: 7, ..Phase::default() };
        let mut heard = 0;
        let mut tell = |_| heard += 1;
        let mut progress = Progress::new(&mut tell, 2, true);
        progress.begin(1);
        progress.step(Work::Unbatch, 10, 10);
        let done = |steps: Steps| -> Vec<f64> { steps.done.iter().map(|(_, done)| *done).collect() };
        assert_eq!(done(progress.steps(&unbatch)), [10.0]);
        progress.step(Work::Remove, 3, 0);
        progress.begin(2);
        progress.step(Work::Unbatch, 4, 10);
        assert_eq!(done(progress.steps(&unbatch)), [4.0]);
        progress.begin(2);
        assert_eq!(progress.steps(&flush).done, [(1.0, 7.0)]);
        let mut alone = Progress::new(&mut tell, 2, false);
        alone.begin(1);
        alone.step(Work::Unbatch, 10, 10);
        assert_eq!(alone.steps(&unbatch), Steps::default());
        assert_eq!(heard, 4);
    }
}
