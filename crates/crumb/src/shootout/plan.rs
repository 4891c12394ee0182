//! What a shootout will do: its cells, checked before anything is measured, and what they take together.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context as _;
use files::Target;
use report::{bytes_text, count_text};

use super::row::Row;
use super::side::Side;
use crate::context::Context;
use crate::forecast::{Forecast, OPERATIONS_PER_SEC, span};
use crate::layout::{counted, wrapped};
use crate::openers::takes_requests;
use crate::verbs::run::cell::{self, Cell, Supplies};

/// All of it.
pub struct Plan {
    /// The columns, the first one the baseline.
    pub sides: Vec<Side>,
    /// The rows.
    pub rows: Vec<PlannedRow>,
    /// Runs of each cell.
    pub rounds: u32,
    /// No run takes longer.
    pub limit: Duration,
    /// From which the order of the turns is drawn.
    pub seed: u64,
    /// What rows share, while the plan is there.
    supplies: Vec<Supplies>,
}

/// A workload on all targets.
pub struct PlannedRow {
    /// The workload.
    pub row: Row,
    /// By side.
    pub cells: Vec<Planned>,
}

/// A workload on a target.
pub enum Planned {
    /// Can be measured.
    Ready {
        cell: Box<dyn Cell>,
        /// What makes it by itself.
        command: Vec<String>,
        forecast: Box<Forecast>,
    },
    /// Why it cannot.
    Impossible(String),
}

impl Planned {
    /// What makes it by itself; nothing for one that cannot be measured.
    pub fn command(&self) -> Vec<String> {
        match self {
            Self::Ready { command, .. } => command.clone(),
            Self::Impossible(_) => vec![],
        }
    }
}

impl Plan {
    /// The cells of all rows on all sides.
    ///
    /// # Errors
    /// When a benchmark does not take the flags of its row.
    pub fn of(
        sides: Vec<Side>,
        rows: Vec<Row>,
        rounds: u32,
        limit: Duration,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let row_of = |row: Row| {
            let cells = sides.iter().map(|side| planned(&row, side)).collect::<anyhow::Result<_>>()?;
            anyhow::Ok(PlannedRow { row, cells })
        };
        let rows = rows.into_iter().map(row_of).collect::<anyhow::Result<_>>()?;
        Ok(Self { sides, rows, rounds, limit, seed, supplies: vec![] })
    }

    /// Opens every target for every workload, then makes what the runs share.
    ///
    /// # Errors
    /// When a target cannot be used, or something cannot be made.
    pub fn check(&mut self, context: &Context, stop: &Arc<AtomicBool>) -> anyhow::Result<()> {
        for PlannedRow { row, cells } in &self.rows {
            for (side, cell) in self.sides.iter().zip(cells) {
                if let Planned::Ready { cell, .. } = cell {
                    cell.reach(stop).with_context(|| format!("{} on {}", row.name, side.name))?;
                }
            }
        }
        let targets: Vec<Target> = self.sides.iter().map(|side| side.target.clone()).collect();
        for PlannedRow { row, cells } in &mut self.rows {
            let mut supplies = Supplies { targets: targets.clone(), feed: None, held: vec![] };
            for cell in cells {
                if let Planned::Ready { cell, .. } = cell {
                    cell.supply(&mut supplies, context, stop).with_context(|| row.name.clone())?;
                }
            }
            self.supplies.push(supplies);
        }
        Ok(())
    }

    /// How many cells can be measured.
    pub fn cells(&self) -> usize {
        self.forecasts().count()
    }

    /// Runs of all of them.
    pub fn runs(&self) -> usize {
        self.cells() * self.rounds as usize
    }

    /// How long one run of a cell takes, about, and never longer than the limit.
    pub fn seconds_of(&self, forecast: &Forecast) -> f64 {
        let of_operations = forecast.operations.map(|operations| operations as f64 / OPERATIONS_PER_SEC);
        let seconds = forecast.seconds.map(|seconds| seconds.most).or(of_operations);
        let limit = self.limit.as_secs_f64();
        seconds.map_or(limit, |seconds| seconds.min(limit))
    }

    /// How long all runs take, about.
    pub fn seconds(&self) -> f64 {
        let of_a_round: f64 = self.forecasts().map(|forecast| self.seconds_of(forecast)).sum();
        of_a_round * f64::from(self.rounds)
    }

    /// How many cells, how long, how many bytes: the line at the start.
    pub fn totals(&self) -> String {
        let bytes: u64 = self.forecasts().filter_map(|forecast| forecast.bytes).sum();
        let at_once = self.forecasts().filter_map(|forecast| forecast.bytes).max().unwrap_or(0);
        let rounds = u64::from(self.rounds);
        format!(
            "{} on {}: {}, {}, {} in all; about {} by the schedule, and {} a run at most; files of about {} are made and removed, at most {} \
             at once",
            counted(self.rows.len(), "workload", "workloads"),
            counted(self.sides.len(), "target", "targets"),
            counted(self.cells(), "cell", "cells"),
            counted(self.rounds as usize, "round", "rounds"),
            counted(self.runs(), "run", "runs"),
            span(self.seconds()),
            span(self.limit.as_secs_f64()),
            bytes_text(bytes.saturating_mul(rounds)),
            bytes_text(at_once),
        )
    }

    /// What `--dry-run` prints: the commands of all cells.
    pub fn text(&self) -> String {
        let mut text = wrapped("", &format!("Would measure {}", self.totals()));
        for PlannedRow { row, cells } in &self.rows {
            text.push_str(&wrapped(&format!("{}  ", row.name), &row.about));
            for (side, cell) in self.sides.iter().zip(cells) {
                let what = match cell {
                    Planned::Ready { command, .. } => shell_line(command),
                    Planned::Impossible(why) => format!("not possible: {why}"),
                };
                text.push_str(&wrapped(&format!("  {}  ", side.name), &what));
            }
        }
        text
    }

    /// For programs, what `--dry-run` says.
    pub fn json(&self) -> serde_json::Value {
        let row = |planned: &PlannedRow| {
            let cells: Vec<serde_json::Value> = self
                .sides
                .iter()
                .zip(&planned.cells)
                .map(|(side, cell)| serde_json::json!({ "side": side.name, "command": cell.command() }))
                .collect();
            serde_json::json!({ "workload": planned.row.name, "cells": cells })
        };
        serde_json::json!({
            "dry_run": true,
            "runs": self.runs(),
            "totals": self.totals(),
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }

    fn forecasts(&self) -> impl Iterator<Item = &Forecast> {
        self.rows.iter().flat_map(|row| &row.cells).filter_map(|cell| match cell {
            Planned::Ready { forecast, .. } => Some(&**forecast),
            Planned::Impossible(_) => None,
        })
    }
}

fn planned(row: &Row, side: &Side) -> anyhow::Result<Planned> {
    if let (Target::Pack(path), "fstress") = (&side.target, row.benchmark.as_str())
        && !takes_requests(path)
    {
        let why = "this workload keeps many requests under way, which a store of objects does not take; a file tree does (`crumb pack create DIR --tree`)";
        return Ok(Planned::Impossible(why.to_owned()));
    }
    let words: Vec<String> =
        [vec![row.benchmark.clone(), side.target.to_string()], row.flags.clone()].concat();
    let about = || format!("{} on {}", row.name, side.name);
    let cell = cell::of(&words).with_context(about)?;
    let forecast = Box::new(cell.foreseen().with_context(about)?);
    let command = [vec!["crumb".to_owned(), "run".to_owned()], words].concat();
    Ok(Planned::Ready { cell, command, forecast })
}

/// A command as it can be typed.
pub fn shell_line(words: &[String]) -> String {
    // With its hyphens, as it was typed: a flag, or `-` for a standard stream.
    let shown = |word: &String| match word.trim_start_matches('-') {
        "" if !word.is_empty() => word.clone(),
        stem => format!("{}{}", &word[..word.len() - stem.len()], doctor::shell_word(stem)),
    };
    words.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// `7 of 60`.
pub fn of_all(done: usize, all: usize) -> String {
    format!("{} of {}", count_text(done as u64), count_text(all as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shootout::row::{self, Extent};
    use crate::shootout::side;

    fn plan(targets: &[&str], rows: Vec<Row>) -> anyhow::Result<Plan> {
        let typed: Vec<side::Named> = targets.iter().map(|target| target.parse().unwrap()).collect();
        Plan::of(side::sides(&typed).unwrap(), rows, 2, Duration::from_secs(8), 1)
    }

    #[test]
    fn a_command_is_shown_as_it_was_typed() {
        let words =
            ["crumb", "run", "-w", "mail", "--json", "-", "--label=my disk", "./-x y", ""].map(str::to_owned);
        assert_eq!(shell_line(&words), "crumb run -w mail --json - --'label=my disk' './-x y' ''");
    }

    #[test]
    fn three_targets_with_quick_stay_below_ten_minutes_and_no_run_is_longer_than_the_limit() {
        let plan =
            plan(&["/mnt/a", "/mnt/b", "nfs://filer/vol"], row::all(Extent::Quick, 1).unwrap()).unwrap();
        assert!(plan.runs() as f64 * plan.limit.as_secs_f64() <= 600.0, "{}", plan.totals());
        assert!(plan.totals().contains("8s a run at most"), "{}", plan.totals());
    }

    #[test]
    fn what_a_packed_store_cannot_do_is_said_and_the_rest_is_measured() {
        let plan = plan(&["/mnt/a", "pack:/srv/p"], row::all(Extent::Quick, 1).unwrap()).unwrap();
        assert_eq!(plan.cells(), plan.rows.len() + 3);
        let text = plan.text().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("not possible: this workload keeps"), "{text}");
        assert!(text.contains("crumb run postmark pack:/srv/p --quick"), "{text}");
    }

    #[test]
    fn a_flag_that_the_benchmark_lacks_is_named_with_its_row() {
        let row = Row {
            name: "mine".to_owned(),
            words: String::new(),
            about: String::new(),
            benchmark: "postmark".to_owned(),
            flags: vec!["--nmber".to_owned(), "3".to_owned()],
        };
        let wrong = format!("{:#}", plan(&["/mnt/a"], vec![row]).err().unwrap());
        assert!(wrong.contains("mine on a") && wrong.contains("--nmber"), "{wrong}");
    }
}
