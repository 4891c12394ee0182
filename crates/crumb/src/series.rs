//! Repeats, and several targets or settings against each other: interleaved, so that what drifts in the machine hits
//! all alike.
//!
//! ```text
//! --repeat 4 --vs B        rounds 1 and 2: A B, B A   rounds 3 and 4: A B, B A or B A, A B, as the seed draws
//! --until-ci 5%            rounds until each side's median is known that well, or --time-limit is reached
//! machine-disturbed        the turn is measured again, once (see `repeat`)
//! ```
//!
//! Always holds: each run is kept as soon as it is measured and knows its series, side and turn; Ctrl-C ends the run
//! under way and the series; a failed run ends the series and the ones before it are reported; a side that cannot work
//! is reported before the first run.
//! Not here: what a side is (see `variant`), mounting it otherwise (see `remount`), the statistics
//! (`measure::statistics`), judging one side against another (`report::compare`).

mod measured;
mod remount;
pub mod repeat;
mod variant;

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use files::{LocalFs, Target};
use harness::series::{Enough, StopRule, TurnOrder, side_name};
use measure::RunRecord;
use report::metric_text;

use self::measured::Series;
pub use self::measured::headline_of;
use self::remount::Remounted;
pub use self::variant::{Key, Setting, Sides, Variant};
use crate::context::Context;
use crate::declarations;
use crate::exit::ExitStatus;
use crate::layout::wrapped;
use crate::openers::cannot_use;
use crate::outcome::{OutputArgs, Run, Shown};
use crate::output::note;
use crate::quantities::{self, QuantityError, count, time};
use crate::verbs::compare;

/// How often, and against what.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Repeating and comparing")]
pub struct SeriesArgs {
    /// Runs of each side. The sides take turns: two rounds run as A B B A or as B A A B, drawn from the seed
    /// [default: 6 with --vs, 1 without; with --until-ci as often as it takes, up to 1000]
    #[arg(long, value_name = "N", value_parser = count::<NonZeroU32>)]
    pub repeat: Option<NonZeroU32>,

    /// Additional sides to compare: targets, settings that differ, or both (TARGET,KEY=VALUE,…). The key mount=OPTIONS remounts the
    /// target's file system for the turns of its side (root only); netnews has more keys, which its guide page lists
    #[arg(long, value_name = "TARGET|KEY=VALUE", num_args = 1..)]
    pub vs: Vec<String>,

    /// Repeat until the 95% confidence interval of each side's median extends at most this far to either side
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub until_ci: Option<f64>,

    /// With --until-ci: start no new round after this time
    #[arg(long, default_value = "1h", value_parser = time, value_name = "TIME", requires = "until_ci")]
    pub time_limit: Duration,
}

/// Rounds with neither --repeat nor --until-ci: enough for an interval of the median at 95%.
const ROUNDS: u32 = 6;
/// Rounds that --until-ci makes at most when --repeat does not say.
const ROUNDS_MAX: u32 = 1000;

/// What one run is to measure.
pub struct Turn<'a> {
    /// The target.
    pub target: &'a Target,
    /// What to call the run when the verb is not to find words of its own.
    pub label: Option<String>,
    /// Which of the sides it is.
    pub side: usize,
    /// How a run made alone is shown, as soon as it is measured.
    pub tables: Option<Tables<'a>>,
}

/// A record as tables.
pub type Tables<'a> = &'a dyn Fn(&RunRecord) -> String;

/// Makes one run.
type MeasureOne<'a> = dyn FnMut(Turn<'_>) -> anyhow::Result<Run> + 'a;

/// What surrounds every turn of a series.
#[derive(Clone, Copy)]
struct Around<'a> {
    sides: &'a Sides,
    output: &'a OutputArgs,
    context: &'a Context,
    stop: &'a AtomicBool,
}

impl SeriesArgs {
    /// One run, of a verb without these flags.
    pub fn alone() -> Self {
        Self { repeat: None, vs: vec![], until_ci: None, time_limit: Duration::ZERO }
    }

    /// Runs once, or as a series over `sides`. `measure_one` does one run; `tables` shows a run made alone.
    ///
    /// # Errors
    /// What `measure_one` fails with, what keeps results from being written, and when a side cannot be mounted as it is
    /// to be.
    pub fn run_sides(
        &self,
        sides: &Sides,
        output: &OutputArgs,
        context: &Context,
        stop: &AtomicBool,
        mut measure_one: impl FnMut(Turn<'_>) -> anyhow::Result<Run>,
        tables: impl Fn(&RunRecord) -> String,
    ) -> anyhow::Result<ExitStatus> {
        output.check(context)?;
        let mut measure_one = |turn: Turn<'_>| -> anyhow::Result<Run> {
            let mut run = measure_one(turn)?;
            run.record.declare(&declarations::of(&run.record.benchmark));
            Ok(run)
        };
        if self.is_alone() {
            let run = measure_one(Turn {
                target: &sides.variants[0].target,
                label: output.label.clone(),
                side: 0,
                tables: Some(&tables),
            })?;
            return output.finish(context, run, tables);
        }
        reach_all(sides, context)?;
        let around = Around { sides, output, context, stop };
        let mut series = Series { sides: sides.variants.len(), records: Vec::new() };
        let ended = self.measure_rounds(&mut series, around, &mut measure_one).err();
        self.finish(series, ended, output, context)
    }

    /// Measures round after round until there are enough, or the user ends it.
    ///
    /// # Errors
    /// What ended the series early.
    fn measure_rounds(
        &self,
        series: &mut Series,
        around: Around<'_>,
        measure_one: &mut MeasureOne<'_>,
    ) -> anyhow::Result<()> {
        let order = TurnOrder { sides: series.sides, seed: around.sides.seed };
        let rule = StopRule {
            rounds_max: self.rounds_max(),
            half_width: self.until_ci,
            time_limit: self.time_limit,
        };
        let begun = Instant::now();
        for round in 0..rule.rounds_max {
            for side in order.of_round(round) {
                if self.take_turn(round, side, series, around, measure_one)?.is_break() {
                    return Ok(());
                }
            }
            match rule.after_round(begun.elapsed(), series.judged_by()) {
                Enough::No => {}
                Enough::Known => break,
                Enough::TimeUp => {
                    let text = "the time limit is reached before the interval is as narrow as asked for";
                    note(around.context, text);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Measures a side, keeps the run and gives it its place in the series. Beside a disturbed machine the side is measured
    /// again.
    ///
    /// # Errors
    /// What ended the run early, and with it the series.
    fn take_turn(
        &self,
        round: u32,
        side: usize,
        series: &mut Series,
        around: Around<'_>,
        measure_one: &mut MeasureOne<'_>,
    ) -> anyhow::Result<ControlFlow<()>> {
        let Around { sides, output, context, stop } = around;
        let variant = &sides.variants[side];
        let mut measure = || {
            let label = label_of(side, sides, output.label.as_ref());
            let turn = Turn { target: &variant.target, label, side, tables: None };
            let mut run = in_its_mount(variant, || measure_one(turn)).and_then(Run::measured)?;
            if !variant.metrics.is_empty() {
                run.record.headline = variant.metrics.clone();
            }
            anyhow::Ok(run)
        };
        let mut run = measure()?;
        if repeat::is_due(&run) && !stop.load(Ordering::Relaxed) {
            run = repeat::repeated(run, output, context, measure);
        }
        run.record.series = Some(series.place(side, &run.record.id));
        let kept = output.keep(context, &run.record);
        let what = variant.label.as_deref().unwrap_or(&run.record.target);
        note(context, &self.line(&run.record, what, round, kept));
        series.records.push(run.record);
        match run.error {
            Some(error) => Err(error),
            None if run.interrupted || stop.load(Ordering::Relaxed) => Ok(ControlFlow::Break(())),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    fn is_alone(&self) -> bool {
        self.vs.is_empty() && self.until_ci.is_none() && self.repeat.is_none_or(|rounds| rounds.get() == 1)
    }

    /// Runs on `sides` sides together, at most.
    pub fn runs_max(&self, sides: usize) -> u64 {
        if self.is_alone() { 1 } else { u64::from(self.rounds_max()) * sides as u64 }
    }

    fn rounds_max(&self) -> u32 {
        let default = if self.until_ci.is_some() { ROUNDS_MAX } else { ROUNDS };
        self.repeat.map_or(default, NonZeroU32::get)
    }

    /// One run's line of progress.
    fn line(&self, record: &RunRecord, what: &str, round: u32, kept: bool) -> String {
        let series = record.series.as_ref().expect("a run of a series knows it");
        let of = if self.until_ci.is_some() { String::new() } else { format!("/{}", self.rounds_max()) };
        let figure = headline_of(record).map_or_else(String::new, |(name, value)| {
            let (words, number, unit) = metric_text(&record.metric(name), value);
            format!(": {words} {number} {unit}").trim_end().to_owned()
        });
        let invalid = if record.verdict.valid { "" } else { "  INVALID" };
        let lost = if kept { "" } else { "  (not stored)" };
        format!("round {}{of}, {} {what}{figure}{invalid}{lost}", round + 1, series.side)
    }

    fn finish(
        &self,
        series: Series,
        ended: Option<anyhow::Error>,
        output: &OutputArgs,
        context: &Context,
    ) -> anyhow::Result<ExitStatus> {
        let Some(id) = series.records.first().map(|record| record.id.clone()) else {
            return Err(ended.unwrap_or_else(|| anyhow::anyhow!("interrupted before anything was measured")));
        };
        let comparison = match series.by_side().len() {
            1 => None,
            _ => match report::compare::compare(&series.by_side(), &[], declarations::REGISTRY) {
                Ok(comparison) => Some(comparison),
                Err(error) => return Err(ended.unwrap_or_else(|| error.into())),
            },
        };
        let text = match &comparison {
            Some(comparison) => compare::shown(comparison),
            None => series.medians(),
        };
        let all_kept = context.ended(ExitStatus::Fine) == ExitStatus::Fine;
        let hint = (!output.no_store && all_kept).then(|| {
            let again = if series.sides > 1 { "`crumb compare" } else { "`crumb report" };
            wrapped("", &format!("Stored as series {id}; {again} {id}` shows it again."))
        });
        let verdict = match &comparison {
            Some(comparison) => compare::answers(comparison),
            None => String::new(),
        };
        let verdict = verdict + &series.verdict();
        let shown = Shown { text: &text, verdict: &verdict, hint: hint.as_deref() };
        let written = output.tell(context, &series.records, &shown);
        match ended {
            Some(error) => Err(error.context("the series ended early; the runs before are kept")),
            None if written.is_err() => written.map(|()| ExitStatus::Fine),
            None if series.records.iter().any(|record| !record.verdict.valid) => Ok(ExitStatus::Invalid),
            None => Ok(ExitStatus::Fine),
        }
    }
}

/// What the runs of a side are called; none for the words of the verb.
fn label_of(side: usize, sides: &Sides, given: Option<&String>) -> Option<String> {
    match (given, &sides.variants[side].label) {
        (Some(label), Some(side)) => Some(format!("{label}, {side}")),
        (Some(label), None) if sides.variants.len() > 1 => Some(format!("{label} {}", side_name(side))),
        (label, side) => label.or(side.as_ref()).cloned(),
    }
}

/// Tries each side before the first run, which may take hours: its directory, and its mount. What is not a directory the
/// verbs open before (`ranks::reach_each`).
///
/// # Errors
/// When a side cannot be used.
fn reach_all(sides: &Sides, context: &Context) -> anyhow::Result<()> {
    for (side, variant) in sides.variants.iter().enumerate() {
        if let Target::Directory(path) = &variant.target {
            LocalFs::open(path.clone()).with_context(|| cannot_use(path))?;
        }
        if let (Some(remounted), Some(options)) = (remounted(variant)?, &variant.mount) {
            let (was, name) = (remounted.was(), side_name(side));
            note(
                context,
                &format!(
                    "{} is mounted with {options} in the turns of {name}, then as it was: {}",
                    was.path, was.options
                ),
            );
            remounted.put_back()?;
        }
    }
    Ok(())
}

/// The variant's file system as it is to be mounted; none when it is to be left as it is.
fn remounted(variant: &Variant) -> anyhow::Result<Option<Remounted>> {
    match (&variant.mount, &variant.target) {
        (Some(options), Target::Directory(path)) => options.apply(path).map(Some),
        _ => Ok(None),
    }
}

/// Mounts each side's file system as it is to be and back, so that what is refused is reported before anything is made up.
///
/// # Errors
/// When a file system cannot be mounted so.
pub fn try_mounts(sides: &Sides) -> anyhow::Result<()> {
    for variant in &sides.variants {
        remounted(variant)?.map_or(Ok(()), Remounted::put_back)?;
    }
    Ok(())
}

/// Does a run while the variant's file system is mounted as it is to be.
fn in_its_mount(variant: &Variant, run: impl FnOnce() -> anyhow::Result<Run>) -> anyhow::Result<Run> {
    let remounted = remounted(variant)?;
    let done = run();
    match (remounted.map_or(Ok(()), Remounted::put_back), done) {
        (Ok(()), done) => done,
        // The run was measured as asked; that the mount is left changed ends the series.
        (Err(error), Ok(run)) => Ok(Run { error: Some(run.error.unwrap_or(error)), ..run }),
        (Err(error), Err(first)) => Err(first.context(format!("{error:#}"))),
    }
}

fn percent(text: &str) -> Result<f64, measure::ValueError> {
    match quantities::percent_in(0.0..=100.0)(text) {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent / 100.0),
        Err(wrong @ QuantityError::Grouped { .. }) => Err(wrong.to_string().into()),
        _ => Err("expected a percentage between 0 and 100, such as 5%".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_taken_with_its_sign_or_without() {
        assert_eq!(percent("5%"), Ok(0.05));
        assert_eq!(percent("2.5"), Ok(0.025));
        assert!(percent("0").is_err() && percent("x").is_err() && percent("100%").is_err());
    }
}
