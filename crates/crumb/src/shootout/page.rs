//! The page of a shootout: a sentence, the table, how it was measured, the commands.

use report::grid_page::{Cell as PageCell, GridPage, Head, Row, Tone};

use super::plan::{Plan, shell_line};
use super::result::{Cell, State, Table, TableRow};
use crate::forecast::span;
use crate::layout::counted;

/// The page; `command` is the command line of the shootout itself.
pub fn page(table: &Table, plan: &Plan, command: &[String]) -> GridPage {
    let names: Vec<&str> = table.sides.iter().map(|side| side.name.as_str()).collect();
    let first = names[0];
    GridPage {
        title: names.join(" against "),
        sentence: table.sentence.clone(),
        notes: table.notes.clone(),
        legend: legend(first, names.len()),
        heads: table
            .sides
            .iter()
            .map(|side| Head { name: side.name.clone(), about: side.target.clone() })
            .collect(),
        rows: table.rows.iter().map(page_row).collect(),
        how: how(plan, command),
    }
}

/// How to read a cell.
fn legend(first: &str, sides: usize) -> Vec<String> {
    let rate = "Each figure is a rate: more is faster.".to_owned();
    let rate = match sides {
        1 => rate,
        _ => format!(
            "{rate} Below it stands how many times as fast the target is as {first} (×2 is twice as fast), and the range in which that \
             ratio lies with 95% confidence. A difference counts as shown when that range leaves out 1."
        ),
    };
    vec![
        rate,
            "The limit is what held the run up: “memory” means that the data never left memory, so that the figure says nothing about a disk; \
             “storage” that the storage was always waited for; “CPU” that the machine computed most of the time; “unclear” that neither device nor CPU was \
             the limit alone; “not named” that the benchmark does not say."
                .to_owned(),
    ]
}

fn page_row(row: &TableRow) -> Row {
    Row {
        name: row.title(),
        about: row.about.clone(),
        figure: row.figure.clone(),
        cells: row.cells.iter().enumerate().map(|(side, cell)| page_cell(row, side, cell)).collect(),
    }
}

fn page_cell(row: &TableRow, side: usize, cell: &Cell) -> PageCell {
    let tone = match (cell.state, cell.shown_words()) {
        (State::Invalid | State::Failed, _) => Tone::Bad,
        (State::NotPossible | State::NotMeasured, _) => Tone::Soft,
        (State::Valid, Some("faster")) => Tone::Good,
        (State::Valid, Some("slower")) => Tone::Warn,
        (State::Valid, _) => Tone::Plain,
    };
    let mark = (row.fastest == Some(side)).then_some(if row.is_shown { "fastest" } else { "highest median" });
    let limit = cell.limit.as_ref().filter(|_| cell.state == State::Valid);
    let behind = limit.map(|limit| format!("Limit: {}.", limit.text.trim_end_matches('.')));
    let runs = (!cell.runs.is_empty()).then(|| {
        let ids = cell.runs.join(", ");
        format!("{}, {} VALID: {ids}", counted(cell.runs.len(), "run", "runs"), cell.valid_runs)
    });
    PageCell {
        tone,
        words: cell.first_words(),
        mark: mark.map(str::to_owned),
        ratio: cell.ratio_words(),
        shown: cell.shown_words().map(str::to_owned),
        limit: limit.map(|limit| limit.word.to_owned()),
        details: cell.why.clone().into_iter().chain(behind).chain(runs).collect(),
        command: (!cell.command.is_empty()).then(|| shell_line(&cell.command)),
    }
}

fn how(plan: &Plan, command: &[String]) -> Vec<String> {
    vec![
        format!(
            "Crumb measured each workload {}{}",
            counted(plan.rounds as usize, "time", "times"),
            match plan.sides.len() {
                1 => ", one run at a time.",
                _ =>
                    " on every target, one run at a time. In each round it went through the targets in turn, and in the next one \
                     backwards, so that what changes on the machine with time hits all targets alike.",
            }
        ),
        format!(
            "A run was ended after {} at the latest. Runs beside which other programs disturbed the machine were measured once more. Each \
             run worked in a directory of its own, which it removed.",
            span(plan.limit.as_secs_f64())
        ),
        "A figure is the median of the runs that are VALID; Crumb calls a run INVALID when its own checks say that its figures are not to be \
         believed."
            .to_owned(),
        format!("This page was made by: {}", shell_line(command)),
    ]
}
