//! What a shootout found: each cell's rate, its ratio to the first target with the interval, and a sentence on who is fastest.
//!
//! Always holds: rates, ratios and the sentence come from VALID runs; ratios and whether they are shown come from
//! `report::compare`; a figure that is a time (dirscale) is shown as the rate that it makes, so that more is better everywhere.
//! Not here: words and colours of the table (see `text`, `page`).

use harness::series::side_name;
use measure::statistics::median;
use measure::{Better, Metric, RunRecord};
use report::compare::{self, Against, Comparison, Side, Verdict};
use report::figure_text;
use serde::Serialize;

use super::advice;
use super::limit::{self, Limit};
use super::measure::{Measured, Outcome};
use super::plan::{Plan, Planned, PlannedRow};
use crate::declarations;
use crate::layout::counted;

/// The whole table.
#[derive(Debug, Serialize)]
pub struct Table {
    /// Who is fastest where.
    pub sentence: String,
    /// What the reader must know besides.
    pub notes: Vec<String>,
    /// Columns.
    pub sides: Vec<TableSide>,
    /// Rows.
    pub rows: Vec<TableRow>,
    /// Runs of each cell, as asked for.
    pub rounds: u32,
}

/// A column.
#[derive(Debug, Serialize)]
pub struct TableSide {
    pub name: String,
    pub target: String,
}

impl TableRow {
    /// `postmark (mail server, one request after the other)`.
    pub fn title(&self) -> String {
        if self.words.is_empty() {
            self.workload.clone()
        } else {
            format!("{} ({})", self.workload, self.words)
        }
    }
}

/// A row.
#[derive(Debug, Serialize)]
pub struct TableRow {
    pub workload: String,
    /// Which programs work so.
    pub words: String,
    pub about: String,
    /// What the rate counts.
    pub figure: String,
    /// Name of the metric in the records.
    pub metric: String,
    /// By side.
    pub cells: Vec<Cell>,
    /// The side with the highest rate, of two at least.
    pub fastest: Option<usize>,
    /// The interval against every other VALID side excludes 1.
    pub is_shown: bool,
}

/// What is known of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Has a rate.
    Valid,
    /// Was measured, and no run of it is to be believed.
    Invalid,
    /// An error ended it.
    Failed,
    /// The target cannot do it.
    NotPossible,
    /// Its turn did not come.
    NotMeasured,
}

/// A cell.
#[derive(Debug, Serialize)]
pub struct Cell {
    pub state: State,
    /// Median over the VALID runs, a second.
    pub rate: Option<f64>,
    /// The same in words.
    pub rate_text: String,
    /// Against the first side.
    pub ratio: Option<Ratio>,
    /// What held it up.
    pub limit: Option<Limit>,
    /// Why there is no rate, or what is wrong with some runs.
    pub why: Option<String>,
    /// Names of its runs.
    pub runs: Vec<String>,
    /// How many of them are VALID.
    pub valid_runs: usize,
    /// What makes one of them.
    pub command: Vec<String>,
}

/// How many times as fast as the first side.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    pub ratio: f64,
    /// Ends of the 95% interval; none with too few rounds.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// `faster`, `slower`, `no difference shown` or `too few rounds`.
    pub word: &'static str,
}

/// The table of an outcome.
pub fn table(plan: &Plan, outcome: &Outcome) -> Table {
    let rows: Vec<TableRow> =
        plan.rows.iter().zip(&outcome.cells).map(|(planned, cells)| row(planned, cells)).collect();
    let sides = plan.sides.iter();
    let sides =
        sides.map(|side| TableSide { name: side.name.clone(), target: side.target.to_string() }).collect();
    let mut table = Table { sentence: String::new(), notes: vec![], sides, rows, rounds: plan.rounds };
    table.sentence = sentence(&table);
    table.notes = notes(&table);
    table
}

/// The rate that a value of a metric makes, in words.
pub fn rate_text(metric: &Metric, value: f64) -> String {
    let (unit, rate) = as_rate(metric, value);
    figure_text(unit, rate)
}

/// Times become rates.
fn as_rate(metric: &Metric, value: f64) -> (&str, f64) {
    let per_sec = match (metric.better, metric.unit.as_str()) {
        (Better::Lower, "us") => 1e6,
        (Better::Lower, "ms") => 1e3,
        (Better::Lower, "s") => 1.0,
        (_, unit) => return (unit, value),
    };
    ("/s", per_sec / value.max(1e-12))
}

fn valid(cell: &Measured) -> Vec<RunRecord> {
    cell.runs.iter().filter(|run| run.verdict.valid).cloned().collect()
}

/// The first headline figure that every VALID run of the row has.
fn judged(cells: &[Measured]) -> Option<Metric> {
    let runs: Vec<&RunRecord> =
        cells.iter().flat_map(|cell| &cell.runs).filter(|run| run.verdict.valid).collect();
    let first = runs.first()?;
    let name = first.headlines().find(|name| runs.iter().all(|run| run.metrics.contains_key(*name)))?;
    Some(first.metric(name))
}

fn row(planned: &PlannedRow, cells: &[Measured]) -> TableRow {
    let judged = judged(cells);
    let metric = judged.as_ref();
    let rates: Vec<Option<f64>> = cells.iter().map(|cell| rate(cell, metric)).collect();
    let ratios: Vec<Option<Ratio>> = match metric {
        Some(metric) => against(0, cells, metric),
        None => cells.iter().map(|_| None).collect(),
    };
    let is_measured = |side: &usize| rates[*side].is_some();
    let measured: Vec<usize> = (0..cells.len()).filter(is_measured).collect();
    let best =
        measured.iter().copied().max_by(|a, b| rates[*a].unwrap_or(0.0).total_cmp(&rates[*b].unwrap_or(0.0)));
    let fastest = best.filter(|_| measured.len() > 1);
    let is_shown = fastest.zip(metric).is_some_and(|(fastest, metric)| {
        let others = against(fastest, cells, metric);
        measured
            .iter()
            .filter(|side| **side != fastest)
            .all(|side| others[*side].as_ref().is_some_and(|ratio| ratio.word == SLOWER))
    });
    let cells = cells.iter().zip(&planned.cells).zip(rates).zip(ratios);
    let cells =
        cells.map(|(((measured, planned), rate), ratio)| cell(measured, planned, rate, ratio, metric));
    TableRow {
        workload: planned.row.name.clone(),
        words: planned.row.words.clone(),
        about: planned.row.about.clone(),
        figure: metric.map_or_else(String::new, figure_title),
        metric: metric.map_or_else(String::new, |metric| metric.name.clone()),
        cells: cells.collect(),
        fastest,
        is_shown,
    }
}

/// What the rate counts: of a time the operations that it is the mean of.
fn figure_title(metric: &Metric) -> String {
    match as_rate(metric, 1.0).0 == metric.unit {
        true => metric.title.clone(),
        false => format!("{}, as a rate", metric.title),
    }
}

fn rate(cell: &Measured, metric: Option<&Metric>) -> Option<f64> {
    let metric = metric?;
    let values: Vec<f64> =
        valid(cell).iter().filter_map(|run| run.metrics.get(&metric.name)).copied().collect();
    Some(as_rate(metric, median(&values)?).1)
}

const SLOWER: &str = "slower";

/// Every side against side `first`, by the comparison that `crumb compare` makes.
fn against(first: usize, cells: &[Measured], metric: &Metric) -> Vec<Option<Ratio>> {
    let nothing = || cells.iter().map(|_| None).collect::<Vec<_>>();
    let order: Vec<usize> =
        std::iter::once(first).chain((0..cells.len()).filter(|side| *side != first)).collect();
    let side = |at: &usize| Side { name: side_name(*at), label: side_name(*at), runs: valid(&cells[*at]) };
    let sides: Vec<(usize, Side)> =
        order.iter().map(|at| (*at, side(at))).filter(|(_, side)| !side.runs.is_empty()).collect();
    if sides.len() < 2 || sides[0].0 != first {
        return nothing();
    }
    let places: Vec<usize> = sides.iter().map(|(at, _)| *at).collect();
    let sides: Vec<Side> = sides.into_iter().map(|(_, side)| side).collect();
    let chosen = std::slice::from_ref(&metric.name);
    let Ok(comparison) = compare::compare(&sides, chosen, declarations::REGISTRY) else { return nothing() };
    let mut ratios = nothing();
    for (number, place) in places.iter().enumerate().skip(1) {
        ratios[*place] = ratio_of(&comparison, number, metric);
    }
    ratios
}

fn ratio_of(comparison: &Comparison, side: usize, metric: &Metric) -> Option<Ratio> {
    let figure = comparison.figures.iter().find(|figure| figure.name == metric.name)?;
    let of: &Against = figure.against.iter().find(|of| of.side == side)?;
    let word = match of.verdict {
        Verdict::Faster => "faster",
        Verdict::Slower => SLOWER,
        Verdict::Differs => "differs",
        Verdict::NoDifferenceShown => "no difference shown",
        Verdict::TooFewRepeats => "too few rounds",
        Verdict::NoRatio => "no ratio",
    };
    let ratio = of.ratio?;
    Some(match as_rate(metric, 1.0).0 == metric.unit {
        true => Ratio { ratio, low: of.low, high: of.high, word },
        false => Ratio {
            ratio: 1.0 / ratio,
            low: of.high.map(|high| 1.0 / high),
            high: of.low.map(|low| 1.0 / low),
            word,
        },
    })
}

fn cell(
    measured: &Measured,
    planned: &Planned,
    rate: Option<f64>,
    ratio: Option<Ratio>,
    metric: Option<&Metric>,
) -> Cell {
    let invalid = measured.runs.iter().find(|run| !run.verdict.valid);
    let valid_runs = measured.runs.iter().filter(|run| run.verdict.valid).count();
    let reasons = invalid.map(|run| {
        let fatal =
            run.verdict.reasons.iter().filter(|reason| reason.fatal).map(|reason| reason.text.as_str());
        fatal.collect::<Vec<_>>().join("; ")
    });
    let (state, why) = match (planned, rate, reasons, &measured.failed) {
        (Planned::Impossible(why), ..) => (State::NotPossible, Some(why.clone())),
        (_, Some(_), _, Some(error)) => (State::Valid, Some(format!("a later run failed: {error}"))),
        (_, Some(_), Some(reasons), _) => {
            let of = counted(measured.runs.len(), "run", "runs");
            let text =
                format!("{} of {of} INVALID and left out: {reasons}", measured.runs.len() - valid_runs);
            (State::Valid, Some(text))
        }
        (_, Some(_), None, None) => (State::Valid, None),
        (_, None, _, Some(error)) => (State::Failed, Some(error.clone())),
        (_, None, Some(reasons), None) => (State::Invalid, Some(reasons)),
        (_, None, None, None) if valid_runs > 0 => {
            (State::Failed, Some("the runs have no figure in common".to_owned()))
        }
        (_, None, None, None) => (State::NotMeasured, None),
    };
    let why = why.map(|why| advice::fitted(&why));
    let last = measured.runs.iter().rev().find(|run| run.verdict.valid);
    let rate_text = match (rate, metric) {
        (Some(rate), Some(metric)) => figure_text(as_rate(metric, 1.0).0, rate),
        _ => String::new(),
    };
    Cell {
        state,
        rate,
        rate_text,
        ratio,
        limit: last.map(limit::of),
        why,
        runs: measured.runs.iter().map(|run| run.id.0.clone()).collect(),
        valid_runs,
        command: planned.command(),
    }
}

/// Who is fastest in how many workloads.
fn sentence(table: &Table) -> String {
    let compared: Vec<&TableRow> = table.rows.iter().filter(|row| row.fastest.is_some()).collect();
    if table.sides.len() == 1 {
        let has_rate = |row: &&TableRow| row.cells.iter().any(|cell| cell.rate.is_some());
        let workloads = counted(table.rows.len(), "workload", "workloads");
        let measured = table.rows.iter().filter(has_rate).count();
        let name = &table.sides[0].name;
        return format!(
            "{measured} of {workloads} have a figure on {name}; a second target would be compared with it."
        );
    }
    if compared.is_empty() {
        return "No workload has figures of two targets, so nothing can be said about which is faster."
            .to_owned();
    }
    let any_shown = compared.iter().any(|row| row.is_shown);
    let counts = |row: &TableRow| row.is_shown || !any_shown;
    let mut wins: Vec<(usize, usize)> = (0..table.sides.len())
        .map(|side| (side, compared.iter().filter(|row| counts(row) && row.fastest == Some(side)).count()))
        .filter(|(_, wins)| *wins > 0)
        .collect();
    wins.sort_by_key(|(side, wins)| (std::cmp::Reverse(*wins), *side));
    // How many workloads were compared, and how many there are.
    let all = table.rows.len();
    let of = match compared.len() {
        compared if compared == all => counted(all, "workload", "workloads"),
        compared => {
            format!("{} ({all} measured)", counted(compared, "compared workload", "compared workloads"))
        }
    };
    let mut parts = wins.iter().enumerate().map(|(at, (side, wins))| {
        let name = &table.sides[*side].name;
        if at == 0 { format!("{name} is fastest in {wins} of {of}") } else { format!("{name} in {wins}") }
    });
    let first = parts.next().unwrap_or_default();
    let mut text = std::iter::once(first).chain(parts).collect::<Vec<_>>().join(", ");
    let open = compared.iter().filter(|row| !row.is_shown).count();
    if !any_shown {
        text.push_str(" by medians, and no lead is shown beyond doubt");
    } else if open > 0 {
        text.push_str(&format!("; in {open} no lead is shown beyond doubt"));
    }
    text + "."
}

/// Workloads that are in no comparison, each with the reason.
fn left_out(table: &Table) -> Option<String> {
    if table.sides.len() < 2 {
        return None;
    }
    let word = |cell: &Cell| match cell.state {
        State::Valid => None,
        State::Invalid => Some("INVALID"),
        State::Failed => Some("failed"),
        State::NotPossible => Some("not possible"),
        State::NotMeasured => Some("not measured"),
    };
    let of_row = |row: &TableRow| {
        let cells = table.sides.iter().zip(&row.cells);
        let words: Vec<String> =
            cells.filter_map(|(side, cell)| Some(format!("{} on {}", word(cell)?, side.name))).collect();
        format!("{} ({})", row.workload, words.join(", "))
    };
    let rows: Vec<String> = table.rows.iter().filter(|row| row.fastest.is_none()).map(of_row).collect();
    let number = counted(rows.len(), "workload has", "workloads have");
    (!rows.is_empty()).then(|| {
        format!("{number} no figures of two targets and no part in the comparison: {}.", rows.join(", "))
    })
}

fn notes(table: &Table) -> Vec<String> {
    let cells = || table.rows.iter().flat_map(|row| &row.cells);
    let count = |state: State| cells().filter(|cell| cell.state == state).count();
    let mut notes = Vec::new();
    notes.extend(left_out(table));
    if cells().any(|cell| cell.ratio.as_ref().is_some_and(|ratio| ratio.word == "too few rounds")) {
        let least = measure::statistics::SAMPLES_MIN;
        notes.push(format!(
            "Ratios without an interval come from fewer than {least} VALID runs: they show no difference for sure. --rounds 6 \
             gives intervals."
        ));
    }
    let is_are = |count: usize| if count == 1 { "is" } else { "are" };
    for (state, what) in [
        (
            State::Invalid,
            "INVALID: measured, and not to be believed, so that no sentence and no ratio here rests on it",
        ),
        (State::Failed, "without a figure because a run failed"),
        (State::NotPossible, "not possible on the target"),
        (State::NotMeasured, "not measured: the shootout ended before"),
    ] {
        let number = count(state);
        if number > 0 {
            notes.push(format!("{} {} {what}.", counted(number, "cell", "cells"), is_are(number)));
        }
    }
    notes
}

#[cfg(test)]
mod tests;
