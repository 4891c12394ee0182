//! Makes the runs of a shootout, in turns over the targets.
//!
//! 1. A round measures each workload on every target; the next round goes through the targets backwards.
//! 2. A run that reaches the limit is ended; its cell has no figure then.
//! 3. A run beside which the machine was disturbed is measured again, once, as in every series.
//! 4. A workload that fails on a target is not tried there again; the others continue.
//!
//! Always holds: each run is kept as soon as it is measured; Ctrl-C and a failing hook end the shootout after the files of the run
//! under way are removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use harness::ranks::RankGroup;
use harness::series::{TurnOrder, side_name};
use measure::{RunRecord, SeriesPlace};

use super::hooks::{HookFailed, Hooks, Of};
use super::plan::{Plan, Planned, of_all};
use crate::context::Context;
use crate::declarations;
use crate::forecast::span;
use crate::layout::wrapped;
use crate::outcome::{OutputArgs, Run};
use crate::output::note;
use crate::pipeline::Around;
use crate::series::{Turn, headline_of, repeat};
use crate::verbs::run::cell::Cell;

/// What surrounds the runs.
pub struct Measuring<'a> {
    /// What is to be done.
    pub plan: &'a Plan,
    /// Commands around each run.
    pub hooks: &'a Hooks,
    /// Where runs are kept.
    pub output: &'a OutputArgs,
    /// The verb's surroundings.
    pub context: &'a Context,
    /// Ends it early.
    pub stop: &'a Arc<AtomicBool>,
}

/// What came of a cell so far.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Its runs, in the order measured.
    pub runs: Vec<RunRecord>,
    /// Why it is not tried again.
    pub failed: Option<String>,
}

/// What came of all cells: by row, then by side.
pub struct Outcome {
    pub cells: Vec<Vec<Measured>>,
    /// What ended the shootout early.
    pub error: Option<anyhow::Error>,
}

/// Code of a run that reached the limit.
const CELL_LIMIT: &str = "cell-limit";
/// How soon a Ctrl-C reaches the run under way.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// One run under way.
struct Place<'a> {
    row: usize,
    side: usize,
    cell: &'a dyn Cell,
    command: &'a [String],
}

impl Measuring<'_> {
    /// Makes all runs, or those until something ends it.
    pub fn all(&self) -> Outcome {
        let sides = self.plan.sides.len();
        let mut cells = vec![vec![Measured::default(); sides]; self.plan.rows.len()];
        let mut progress = Progress::of(self.plan);
        for round in 0..self.plan.rounds {
            for (row, planned) in self.plan.rows.iter().enumerate() {
                let order = TurnOrder { sides, seed: self.plan.seed.wrapping_add(row as u64) };
                for side in order.of_round(round) {
                    let Planned::Ready { cell, command, forecast } = &planned.cells[side] else { continue };
                    let expected = self.plan.seconds_of(forecast);
                    if cells[row][side].failed.is_some() {
                        progress.left_out(expected);
                        continue;
                    }
                    let place = Place { row, side, cell: &**cell, command };
                    let ended = self.turn(&place, &mut cells[row]);
                    progress.ran(expected);
                    self.report(&place, &cells[row][side], &progress);
                    if let Err(error) = ended {
                        return Outcome { cells, error: Some(error) };
                    }
                    if self.stop.load(Ordering::Relaxed) {
                        return Outcome { cells, error: None };
                    }
                }
            }
        }
        Outcome { cells, error: None }
    }

    /// One run, which gets its place in the series of its row.
    ///
    /// # Errors
    /// When a hook failed.
    fn turn(&self, place: &Place<'_>, row: &mut [Measured]) -> anyhow::Result<()> {
        let measure = || self.hooked(place);
        let ran = measure();
        let ran = match ran {
            Ok(run) if repeat::is_due(&run) && !self.stop.load(Ordering::Relaxed) => {
                Ok(repeat::repeated(run, self.output, self.context, measure))
            }
            ran => ran,
        };
        let mut run = match ran {
            Ok(run) => run,
            Err(error) if error.is::<HookFailed>() => return Err(error),
            Err(error) => {
                if !self.stop.load(Ordering::Relaxed) {
                    row[place.side].failed = Some(format!("{error:#}"));
                }
                return Ok(());
            }
        };
        let number: usize = row.iter().map(|cell| cell.runs.len()).sum();
        let first = row.iter().flat_map(|cell| &cell.runs).find_map(|run| run.series.as_ref());
        let of = first.map_or_else(|| run.record.id.clone(), |series| series.of.clone());
        run.record.series = Some(SeriesPlace { of, side: side_name(place.side), turn: number as u32 + 1 });
        self.output.keep(self.context, &run.record);
        row[place.side].runs.push(run.record);
        match run.error {
            Some(error) if error.is::<HookFailed>() => Err(error),
            Some(error) => {
                row[place.side].failed = Some(format!("{error:#}"));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A run between its hooks.
    fn hooked(&self, place: &Place<'_>) -> anyhow::Result<Run> {
        let (side, row) = (&self.plan.sides[place.side], &self.plan.rows[place.row].row);
        let of = Of { target: &side.target.to_string(), side: &side.name, workload: &row.name };
        self.hooks.around(of, || self.limited(place))
    }

    /// A run that ends at the limit at the latest.
    fn limited(&self, place: &Place<'_>) -> anyhow::Result<Run> {
        let stop = Arc::new(AtomicBool::new(false));
        let (length, by_user) = (self.plan.limit, Arc::clone(self.stop));
        let (done, is_done) = mpsc::channel::<()>();
        let (ran, is_over) = std::thread::scope(|scope| {
            let flag = Arc::clone(&stop);
            let watch =
                std::thread::Builder::new().name("cell limit".to_owned()).spawn_scoped(scope, move || {
                    let deadline = Instant::now() + length;
                    while let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(LOOK_EVERY) {
                        let is_over = Instant::now() >= deadline;
                        if is_over || by_user.load(Ordering::Relaxed) {
                            flag.store(true, Ordering::Relaxed);
                            return is_over;
                        }
                    }
                    false
                });
            let watch = watch.map_err(|error| anyhow::Error::from(error).context("cannot start a thread"))?;
            let ran = self.measured(place, &stop);
            drop(done);
            let is_over = watch.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            anyhow::Ok((ran, is_over))
        })?;
        let is_cut = is_over && !self.stop.load(Ordering::Relaxed);
        let limit = span(self.plan.limit.as_secs_f64());
        let mut run = ran.and_then(Run::measured).map_err(|error| match is_cut {
            true => {
                error.context(format!("nothing was measured within {limit}; --cell-limit gives it longer"))
            }
            false => error,
        })?;
        if is_cut && !run.record.complete {
            let verdict = &mut run.record.verdict;
            verdict.reasons.retain(|reason| !["interrupted", "incomplete"].contains(&reason.code.as_str()));
            let text = format!("it was ended after {limit}, before its end; --cell-limit gives it longer");
            verdict.invalidate(CELL_LIMIT, text);
        }
        run.interrupted &= !is_cut;
        Ok(run)
    }

    fn measured(&self, place: &Place<'_>, stop: &Arc<AtomicBool>) -> anyhow::Result<Run> {
        let (side, row) = (&self.plan.sides[place.side], &self.plan.rows[place.row].row);
        let first = self.output.label.as_deref().unwrap_or("shootout");
        let label = format!("{first}: {} on {}", row.name, side.name);
        let context = self.context.of_one_run(place.command.to_vec());
        // It is kept with its place in the series, once it is measured.
        let unkept = OutputArgs {
            label: None,
            json: None,
            report: None,
            dry_run: false,
            no_live: false,
            no_store: true,
        };
        let mut group = RankGroup::solo();
        let around = Around { context: &context, stop, output: &unkept, group: &mut group };
        let turn = Turn { target: &side.target, label: Some(label), side: place.side, tables: None };
        let mut run = place.cell.measure(turn, around)?;
        run.record.declare(&declarations::of(&run.record.benchmark));
        Ok(run)
    }

    /// A line for each run, with what is left.
    fn report(&self, place: &Place<'_>, cell: &Measured, progress: &Progress) {
        let (side, row) = (&self.plan.sides[place.side], &self.plan.rows[place.row].row);
        let runs = self.plan.runs();
        let figure = match (&cell.failed, cell.runs.last()) {
            (Some(why), _) => format!("failed: {why}"),
            (None, Some(run)) if !run.verdict.valid => "INVALID".to_owned(),
            (None, Some(run)) => headline_of(run)
                .map_or_else(String::new, |(name, value)| super::result::rate_text(&run.metric(name), value)),
            (None, None) => "nothing measured".to_owned(),
        };
        let left = match progress.seconds_left() {
            Some(left) => format!("; about {} left", span(left)),
            None => String::new(),
        };
        let line = format!("{}, {} on {}: {figure}{left}", of_all(progress.done, runs), row.name, side.name);
        note(self.context, wrapped("", &line).trim_end());
    }
}

/// How far it is. Workloads differ in length, so what is left is reckoned from what was foreseen of each, and from how much longer
/// than that those took which are done.
struct Progress {
    begun: Instant,
    /// Runs that are over or were left out.
    done: usize,
    /// What was foreseen of those that ran, in seconds.
    foreseen: f64,
    /// What was foreseen of those to come.
    to_come: f64,
}

impl Progress {
    fn of(plan: &Plan) -> Self {
        Self { begun: Instant::now(), done: 0, foreseen: 0.0, to_come: plan.seconds() }
    }

    fn ran(&mut self, expected: f64) {
        self.foreseen += expected;
        self.left_out(expected);
    }

    fn left_out(&mut self, expected: f64) {
        self.done += 1;
        self.to_come -= expected;
    }

    /// Nothing at the end.
    fn seconds_left(&self) -> Option<f64> {
        left_of(self.begun.elapsed().as_secs_f64(), self.foreseen, self.to_come)
    }
}

/// What is left of a plan of which `foreseen` took `taken`.
fn left_of(taken: f64, foreseen: f64, to_come: f64) -> Option<f64> {
    let is_over = to_come <= f64::EPSILON * foreseen.max(1.0) * 1e3;
    (!is_over && foreseen > 0.0).then(|| taken / foreseen * to_come)
}

#[cfg(test)]
mod tests {
    use super::left_of;

    /// Symptom: before the long workloads at the end of a plan, the time left was that of as many short ones.
    #[test]
    fn the_time_left_follows_from_what_each_workload_was_foreseen_to_take() {
        // Two of ten seconds took 30 s; one of a hundred seconds is to come.
        assert_eq!(left_of(30.0, 20.0, 100.0), Some(150.0));
        assert_eq!(left_of(30.0, 20.0, 0.0), None);
        assert_eq!(left_of(30.0, 20.0, 20.0 - 10.0 - 10.0 + 1e-15), None, "rounding leaves nothing");
        assert_eq!(left_of(30.0, 0.0, 10.0), None);
    }
}
