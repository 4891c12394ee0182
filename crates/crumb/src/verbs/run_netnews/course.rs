//! How a rank's run gets on, as the other ranks must know it: how far each phase had come when, and whether the run goes
//! on with theirs.
//!
//! Always holds: a run that fails stops the others as soon as it can be seen here, and not at the end of their phase; a
//! phase that ended early is known as such.
//! Not here: what becomes of it (see `whole`), the meetings (`fstress::ensemble`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fstress::ensemble::{Goes, Steps};
use measure::Phase;
use netnews::spool::{Event, NetnewsConfig, Work};

use super::resumed::PhaseOfPass;

/// What has been heard of a run so far.
pub(super) struct Course<'a> {
    stop: &'a AtomicBool,
    /// When its time is up.
    deadline: Option<Instant>,
    /// The phase with which the last pass ends.
    last: (&'static str, u32),
    /// Steps of the phase under way.
    heard: Vec<(Instant, &'static str, f64)>,
    /// Batches of the feed stored in the pass, and how many it has; none before the first.
    batches: Option<(u64, u64)>,
    of_phases: Vec<(String, u32, Steps)>,
    /// Cut short in this run, or begun in the one before.
    not_whole: Vec<PhaseOfPass>,
    /// All passes were done.
    through: bool,
}

impl<'a> Course<'a> {
    /// Of a run that begins now, in which these phases are no whole ones.
    pub(super) fn new(config: &NetnewsConfig, stop: &'a AtomicBool, not_whole: Vec<PhaseOfPass>) -> Self {
        let passes = config.passes.get();
        let last = config.phases_of(passes).pop().unwrap_or("unbatch");
        Self {
            stop,
            deadline: config.time_limit.and_then(|limit| Instant::now().checked_add(limit)),
            last: (last, passes),
            heard: Vec::new(),
            batches: None,
            of_phases: Vec::new(),
            not_whole,
            through: false,
        }
    }

    /// Takes note; after the end of a phase, whether the run goes on to the next one.
    pub(super) fn hear(&mut self, event: &Event) -> Option<Goes> {
        match event {
            Event::Step { work, done, of, .. } => {
                let phase = match work {
                    Work::Unbatch => "unbatch",
                    Work::Batch => "batch",
                    Work::ExpireScan => "expire-scan",
                    Work::Expire => "expire",
                    Work::Remove => {
                        // Nobody removes a spool in the midst of things, unless something went wrong.
                        if !self.through && !self.ends_early() {
                            self.fail();
                        }
                        return None;
                    }
                };
                if *work == Work::Unbatch {
                    self.batches = Some((*done, *of));
                }
                self.heard.push((Instant::now(), phase, *done as f64));
                None
            }
            Event::PhaseDone(phase) => Some(self.phase_done(phase)),
            _ => None,
        }
    }

    /// The run has failed: the others need not go on until they hear of it.
    pub(super) fn fail(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn phase_done(&mut self, phase: &Phase) -> Goes {
        self.keep_steps(phase);
        let ends_early = self.ends_early();
        let cut_short = match phase.name.as_str() {
            // One that was begun before may have had no batch left.
            "unbatch" => match self.batches.take() {
                Some((done, of)) => done < of,
                None => !self.was_cut_short(phase),
            },
            "expire-scan" | "flush" => false,
            // How much there was to do is not told. One that was whole at the very moment is taken for cut short too.
            _ => ends_early,
        };
        if cut_short {
            self.not_whole.push((phase.name.clone(), phase.pass));
        }
        self.through = !cut_short && (phase.name.as_str(), phase.pass) == self.last;
        match (self.stop.load(Ordering::Relaxed), ends_early, cut_short) {
            (true, ..) => Goes::Wrong,
            (false, true, _) => Goes::Out,
            (false, false, true) => {
                self.fail();
                Goes::Wrong
            }
            (false, false, false) => Goes::On,
        }
    }

    fn ends_early(&self) -> bool {
        let time_is_up = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        time_is_up || self.stop.load(Ordering::Relaxed)
    }

    fn keep_steps(&mut self, phase: &Phase) {
        let wall = Duration::try_from_secs_f64(phase.wall_s).unwrap_or_default();
        let begun = Instant::now().checked_sub(wall);
        let of_phase = self.heard.drain(..).filter(|(_, name, _)| *name == phase.name);
        let since_s =
            |at: Instant| begun.map_or(0.0, |begun| at.saturating_duration_since(begun).as_secs_f64());
        let mut done: Vec<(f64, f64)> = of_phase.map(|(at, _, done)| (since_s(at), done)).collect();
        // Batches of the feed are told to the last; articles and files only now and then.
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

    fn done(name: &str, pass: u32) -> Event {
        Event::PhaseDone(Box::new(Phase {
            name: name.to_owned(),
            pass,
            wall_s: 1.0,
            items: 7,
            ..Phase::default()
        }))
    }

    /// Two passes, each kept for six.
    fn config(time_limit: Option<Duration>) -> NetnewsConfig {
        NetnewsConfig { passes: 2.try_into().unwrap(), time_limit, ..NetnewsConfig::paper("x") }
    }

    /// Symptom: the other ranks went on to the end of their phase, which may be an hour, when a spool had failed on one.
    /// Cause: they heard of it at the next meeting. Fix: the end of a phase whose batches are not all stored stops them.
    #[test]
    fn a_pass_that_fails_stops_all_at_once_and_is_no_whole_phase() {
        let stop = AtomicBool::new(false);
        let mut course = Course::new(&config(None), &stop, vec![]);
        assert_eq!(course.hear(&step(Work::Unbatch, 10)), None);
        assert_eq!(course.hear(&done("unbatch", 1)), Some(Goes::On));
        course.hear(&step(Work::Unbatch, 4));
        assert_eq!(course.hear(&done("unbatch", 2)), Some(Goes::Wrong));
        assert!(stop.load(Ordering::Relaxed));
        let phase = |pass| Phase { name: "unbatch".to_owned(), pass, ..Phase::default() };
        assert_eq!([1, 2].map(|pass| course.was_cut_short(&phase(pass))), [false, true]);
        assert_eq!(course.steps_of(&phase(2)).done.last().map(|(_, done)| *done), Some(4.0));
    }

    #[test]
    fn a_pass_that_is_gone_on_with_and_has_no_batch_left_has_not_failed() {
        let stop = AtomicBool::new(false);
        let mut course = Course::new(&config(None), &stop, vec![("unbatch".to_owned(), 1)]);
        assert_eq!(course.hear(&done("unbatch", 1)), Some(Goes::On));
        assert!(!stop.load(Ordering::Relaxed));
        assert!(course.was_cut_short(&Phase { name: "unbatch".to_owned(), pass: 1, ..Phase::default() }));
    }

    #[test]
    fn a_spool_that_is_removed_before_its_time_has_failed() {
        for (through, passes_done) in [(false, 1), (true, 2)] {
            let stop = AtomicBool::new(false);
            let mut course = Course::new(&config(None), &stop, vec![]);
            for pass in 1..=passes_done {
                course.hear(&step(Work::Unbatch, 10));
                course.hear(&done("unbatch", pass));
                course.hear(&done("flush", pass));
            }
            course.hear(&step(Work::Remove, 1));
            assert_eq!(stop.load(Ordering::Relaxed), !through, "{passes_done} passes of 2");
        }
    }

    #[test]
    fn time_that_is_up_cuts_a_phase_short_and_stops_nobody() {
        let stop = AtomicBool::new(false);
        let mut course = Course::new(&config(Some(Duration::ZERO)), &stop, vec![]);
        course.hear(&step(Work::Unbatch, 4));
        assert_eq!(course.hear(&done("unbatch", 1)), Some(Goes::Out));
        course.hear(&step(Work::Remove, 1));
        assert!(!stop.load(Ordering::Relaxed));
    }
}
