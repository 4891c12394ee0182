//! A sensitivity figure: latency against one knob of the workload at a fixed rate, a line for each value of another.
//!
//! ```text
//! --vary memory-hit=0..1/0.1 --lines disk-hit=0,0.5,1     33 points, each an ordinary run with --set for both knobs
//! ```
//!
//! 1. [`plan`] makes the points and checks every one, before anything is measured.
//! 2. The points are measured in an order drawn from the seed: what changes on the machine with time does not look like the knob.
//! 3. [`figure`] makes of the runs what `report::sensitivity` draws, and the tables.
//!
//! Always holds: each point is kept as soon as it is measured, with its own workload in its configuration; whatever ends it early,
//! what was measured until then is shown.
//! Source: Anderson, "Fstress", section 6.7 and figure 9.

mod figure;
mod output;
mod plan;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::anyhow;
use harness::ranks::RankGroup;
use harness::series::side_name;
use measure::{RunId, RunRecord, SeriesPlace};
use quanta::Clock;

use self::plan::{Plan, Planned};
use super::FstressArgs;
use crate::context::Context;
use crate::declarations;
use crate::exit::{BadUsage, ExitStatus};
use crate::forecast::span;
use crate::layout::wrapped;
use crate::openers::{directory_is_there, open_transport, takes_load};
use crate::outcome::{OutputArgs, Run};
use crate::output::{note, print, say, write_to};
use crate::pipeline::Around;
use crate::series::{Turn, repeat};
use crate::shootout::plan::of_all;

/// What was measured, in the order of the plan, and what ended it early.
struct Outcome {
    points: Vec<Option<RunRecord>>,
    error: Option<anyhow::Error>,
}

/// Measures the figure that `args` asks for.
///
/// # Errors
/// When the flags do not go together, or what ended it.
pub fn run(
    args: &FstressArgs,
    group: &mut RankGroup,
    stop: &Arc<AtomicBool>,
    context: &Context,
) -> anyhow::Result<ExitStatus> {
    let plan = plan::of(args, group.ranks(), &context.command).map_err(|wrong| wrong.context(BadUsage))?;
    args.check_files(context)?;
    if args.output.dry_run {
        takes_load(&args.target)?;
        match &args.output.json {
            Some(path) => write_to(path, &format!("{:#}\n", plan.json()))?,
            None => print(&plan.text())?,
        }
        directory_is_there(&args.target.to_string())?;
        note(context, "Nothing was done; leave out --dry-run to run it.");
        return Ok(ExitStatus::Fine);
    }
    open_transport(&args.target, &args.transport_options(), &Clock::new()).map(drop)?;
    note(context, wrapped("", &format!("Measuring {}.", plan.totals())).trim_end());
    note(context, "Ctrl-C ends it with what it has.");
    let outcome = all(args, &plan, group, stop, context);
    finish(args, &plan, outcome, context)
}

/// Measures the points, or those until something ends it.
fn all(
    args: &FstressArgs,
    plan: &Plan,
    group: &mut RankGroup,
    stop: &Arc<AtomicBool>,
    context: &Context,
) -> Outcome {
    let mut points: Vec<Option<RunRecord>> = vec![None; plan.points.len()];
    let (begun, mut series) = (Instant::now(), None);
    for (done, &at) in plan.order.iter().enumerate() {
        let place = Place { at, turn: done as u32 + 1, series: series.clone() };
        let run = match measured(args, plan, &place, group, stop, context) {
            Ok(run) => run,
            Err(_) if stop.load(Ordering::Relaxed) => return Outcome { points, error: None },
            Err(error) => {
                return Outcome { points, error: Some(error.context(plan.points[at].name.clone())) };
            }
        };
        series.get_or_insert_with(|| run.record.id.clone());
        let left = begun.elapsed().as_secs_f64() / (done + 1) as f64 * (plan.points.len() - done - 1) as f64;
        let left = if left > 0.0 { format!("; about {} left", span(left)) } else { String::new() };
        let figure = figure::in_words(&run.record);
        let line =
            format!("{}, {}: {figure}{left}", of_all(done + 1, plan.points.len()), plan.points[at].name);
        note(context, wrapped("", &line).trim_end());
        let is_over = run.interrupted || stop.load(Ordering::Relaxed);
        // A point that was cut short is kept in the store and not drawn.
        points[at] = Some(run.record).filter(|_| !run.interrupted);
        if run.error.is_some() || is_over {
            return Outcome { points, error: run.error };
        }
    }
    Outcome { points, error: None }
}

/// Where a point stands in the plan and in the series of the store.
struct Place {
    at: usize,
    turn: u32,
    series: Option<RunId>,
}

fn measured(
    args: &FstressArgs,
    plan: &Plan,
    place: &Place,
    group: &mut RankGroup,
    stop: &Arc<AtomicBool>,
    context: &Context,
) -> anyhow::Result<Run> {
    let Planned { name, args: of_point, command, .. } = &plan.points[place.at];
    let of_run = context.of_one_run(command.clone());
    // It is kept with its place in the series, once it is measured.
    let unkept = OutputArgs {
        label: None,
        json: None,
        report: None,
        dry_run: false,
        no_store: true,
        no_live: args.output.no_live,
    };
    let mut measure = || {
        let label = args.output.label.as_ref().map_or_else(|| plan.title.clone(), Clone::clone);
        // The settings first, as lists cut long labels at their ends.
        let label = Some(format!("{name}: {label}"));
        let turn = Turn { target: &args.target, label, side: 0, tables: None };
        let around = Around { context: &of_run, stop, output: &unkept, group: &mut *group };
        let mut run = of_point.measure_one(turn, around)?.measured()?;
        run.record.declare(&declarations::of(&run.record.benchmark));
        anyhow::Ok(run)
    };
    let mut run = measure()?;
    if repeat::is_due(&run) && !stop.load(Ordering::Relaxed) {
        run = repeat::repeated(run, &args.output, context, measure);
    }
    let of = place.series.clone().unwrap_or_else(|| run.record.id.clone());
    run.record.series = Some(SeriesPlace { of, side: side_name(place.at), turn: place.turn });
    args.output.keep(context, &run.record);
    Ok(run)
}

/// Shows and writes what was measured, whatever ended it.
fn finish(
    args: &FstressArgs,
    plan: &Plan,
    outcome: Outcome,
    context: &Context,
) -> anyhow::Result<ExitStatus> {
    let records: Vec<&RunRecord> = outcome.points.iter().flatten().collect();
    if records.is_empty() {
        return Err(outcome.error.unwrap_or_else(|| anyhow!("interrupted before anything was measured")));
    }
    let figure = figure::of(plan, &outcome.points, &context.command);
    let shown = figure::terminal(&figure, plan);
    let is_taken = args.files().any(|(_, path)| path == Path::new("-"));
    // The files are written even when the table cannot be printed.
    let printed = if is_taken {
        note(context, wrapped("", &figure.sentence).trim_end());
        Ok(())
    } else {
        print(&shown)
    };
    let written = args.write(plan, &figure, &records, context);
    if !args.output.no_store {
        let series =
            records.iter().find_map(|record| record.series.as_ref()).map(|place| place.of.to_string());
        let hint = format!("The points are series {} of the store.", series.unwrap_or_default());
        note(context, wrapped("", &hint).trim_end());
    }
    if let Some(error) = outcome.error {
        return Err(error.context("the figure ended early; the points before are kept"));
    }
    written.and(printed)?;
    if records.iter().any(|record| !record.verdict.valid) {
        say("crumb: some points are not VALID; the table says which");
        return Ok(ExitStatus::Invalid);
    }
    Ok(ExitStatus::Fine)
}
