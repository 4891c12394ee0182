//! `crumb run shootout`: every workload on several targets in turns, as one table. Its parts are in `crate::shootout`.

mod flags;

use std::path::Path;
use std::sync::Arc;

use anyhow::anyhow;
use measure::RunRecord;
use serde_json::json;

pub use self::flags::ShootoutArgs;
use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::layout::wrapped;
use crate::openers::directory_is_there;
use crate::output::{can_be_written, is_same_place, note, print, refuse_store, say, write_to};
use crate::shootout::hooks::Hooks;
use crate::shootout::measure::{Measuring, Outcome};
use crate::shootout::plan::Plan;
use crate::shootout::result::{State, Table, table};
use crate::shootout::{page, text};
use crate::signals;

/// Runs the verb.
pub fn run(args: &ShootoutArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    args.check(context)?;
    let mut plan = args.plan()?;
    if args.output.dry_run {
        return args.show_plan(&plan, context);
    }
    let stop = signals::stop_flag_of(context)?;
    plan.check(context, &stop)?;
    note(context, wrapped("", &format!("Measuring {}.", plan.totals())).trim_end());
    note(context, "Ctrl-C ends it with what it has.");
    let hooks = Hooks {
        prepare: args.prepare.clone(),
        cleanup: args.cleanup.clone(),
        stop: Arc::clone(&stop),
        interruption: context.interruption.clone(),
    };
    let outcome = Measuring { plan: &plan, hooks: &hooks, output: &args.output, context, stop: &stop }.all();
    args.finish(&plan, outcome, context)
}

impl ShootoutArgs {
    /// Finds out, before anything is measured, whether what comes of it can be written.
    fn check(&self, context: &Context) -> anyhow::Result<()> {
        self.output.check(context)?;
        let Some(markdown) = self.markdown.as_deref() else { return Ok(()) };
        for (flag, other) in [("--json", &self.output.json), ("--report", &self.output.report)] {
            let Some(other) = other.as_deref() else { continue };
            if markdown == other || is_same_place(markdown, other) {
                let wrong = anyhow!("--markdown and {flag} both name {}; name two files", other.display());
                return Err(wrong.context(BadUsage));
            }
        }
        if markdown == Path::new("-") {
            return Ok(());
        }
        refuse_store(context, markdown)?;
        can_be_written(markdown)
    }

    fn show_plan(&self, plan: &Plan, context: &Context) -> anyhow::Result<ExitStatus> {
        match &self.output.json {
            Some(path) => write_to(path, &format!("{:#}\n", plan.json()))?,
            None => print(&plan.text())?,
        }
        plan.sides.iter().try_for_each(|side| directory_is_there(&side.target.to_string()))?;
        note(context, "Nothing was done; leave out --dry-run to run it.");
        Ok(ExitStatus::Fine)
    }

    /// Shows and writes what was measured, whatever ended the shootout.
    fn finish(&self, plan: &Plan, outcome: Outcome, context: &Context) -> anyhow::Result<ExitStatus> {
        let table = table(plan, &outcome);
        let records: Vec<&RunRecord> = outcome.cells.iter().flatten().flat_map(|cell| &cell.runs).collect();
        if records.is_empty() && outcome.error.is_none() && context.interruption.is_seen() {
            anyhow::bail!("interrupted before anything was measured");
        }
        let stdout = Path::new("-");
        let files = [&self.markdown, &self.output.json, &self.output.report];
        let is_taken = files.iter().any(|path| path.as_deref() == Some(stdout));
        let shown = text::terminal(&table);
        // The files are written even when the table cannot be printed.
        let printed = if is_taken {
            note(context, wrapped("", &table.sentence).trim_end());
            Ok(())
        } else {
            print(&shown)
        };
        let written = self.write(plan, &table, &records, context);
        if !self.output.no_store && !records.is_empty() {
            note(context, "Each workload is a series in the results store; `crumb runs list` names them.");
        }
        if let Some(error) = outcome.error {
            return Err(error.context("the shootout ended early; the runs before are kept"));
        }
        written.and(printed)?;
        let cells = || table.rows.iter().flat_map(|row| &row.cells);
        if cells().any(|cell| cell.state == State::Failed) {
            say("crumb: some runs failed; the table says which");
            return Ok(ExitStatus::Unkept);
        }
        let any_invalid = records.iter().any(|record| !record.verdict.valid);
        Ok(if any_invalid { ExitStatus::Invalid } else { ExitStatus::Fine })
    }

    fn write(
        &self,
        plan: &Plan,
        table: &Table,
        records: &[&RunRecord],
        context: &Context,
    ) -> anyhow::Result<()> {
        if let Some(path) = &self.markdown {
            write_to(path, &text::markdown(table))?;
        }
        if let Some(path) = &self.output.json {
            let all = json!({ "command": context.command, "shootout": table, "records": records });
            write_to(path, &format!("{all:#}\n"))?;
        }
        if let Some(path) = &self.output.report {
            write_to(path, &page::page(table, plan, &context.command).render()?)?;
            note(context, &format!("Page: {}", path.display()));
        }
        Ok(())
    }
}
