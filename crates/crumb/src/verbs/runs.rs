//! `crumb runs`: what was measured so far.

mod list;
mod show;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use measure::{RECORDS_BYTES_MAX, RunId, RunRecord, read_text, text_from};
use report::Store;

use crate::context::Context;
use crate::exit::ExitStatus;
use crate::layout::counted;
use crate::output::{Destination, destination, note, print};

/// List, show, export, import and delete stored runs. A RUN is an id, its unique beginning or end, or `last`
#[derive(Args, Debug)]
pub struct RunsArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// List all runs, newest first
    #[command(after_help = "\
Examples:
  crumb runs list
  crumb runs list --json | jq -r '.[] | select(.valid) | .id'")]
    List {
        /// Print a JSON array: id, benchmark, label, target, started, complete, valid, points, metrics, series; with --json=FILE
        /// write it to a file
        #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", value_parser = destination)]
        json: Option<Destination>,
    },
    /// Show one run: load points, operations, environment, verdict
    #[command(after_help = "\
Examples:
  crumb runs show last
  crumb runs show 3f9a --ops all
  crumb runs show 20261121-180000-fstress-3f9a --json | jq .metrics")]
    Show {
        /// Run id, a unique beginning or end of it, or `last`
        run: String,
        /// Print the RunRecord as JSON (schema 1); with --json=FILE write it to a file
        #[arg(long, conflicts_with = "ops", value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-", value_parser = destination)]
        json: Option<Destination>,
        /// Load points whose operations to show
        #[arg(long, value_enum, default_value = "highest", value_name = "WHICH")]
        ops: OpsOf,
    },
    /// Write one run as RunRecord JSON, with histograms, or its time series as CSV
    #[command(after_help = "\
Examples:
  crumb runs export last -o filer-a.json
  crumb runs export last --csv -o filer-a.csv
  crumb runs export 3f9a | gzip > 3f9a.json.gz")]
    Export {
        /// Run id, a unique beginning or end of it, or `last`
        run: String,
        /// Write the time series and the marks as CSV instead: a row for each step of each level and phase, times in
        /// seconds since the run's begin, latencies in microseconds
        #[arg(long)]
        csv: bool,
        /// File to write, `-` for standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Import exported runs into the store
    #[command(after_help = "\
Examples:
  crumb runs import filer-a.json filer-b.json
  ssh generator crumb runs export last | crumb runs import -")]
    Import {
        /// RunRecord JSON files, `-` for standard input
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Delete runs from the store
    #[command(after_help = "\
Examples:
  crumb runs rm 3f9a
  crumb runs rm 20261121-180000-fstress-3f9a 20261121-190000-fstress-77c0")]
    Rm {
        /// Run ids, unique beginnings or ends of them, or `last`
        #[arg(required = true, value_name = "RUN")]
        runs: Vec<String>,
    },
}

/// Whose operations `show` shows.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum OpsOf {
    /// The highest load that the storage held
    Highest,
    /// Every load point
    All,
    /// None
    None,
}

/// Runs the verb.
pub fn run(args: RunsArgs, context: &Context) -> anyhow::Result<ExitStatus> {
    match args.what {
        What::List { json } => list::list(context, json.as_ref())?,
        What::Show { run, json, ops } => {
            let record = context.store_with_runs()?.find(&run)?;
            match json {
                Some(to) => to.write(context, &format!("run {}", record.id), &json_line(&record))?,
                None => print(&show::run_text(&record, ops))?,
            }
        }
        What::Export { run, csv, output } => {
            let record = context.store_with_runs()?.find(&run)?;
            let text = if csv { time_series(&record)? } else { json_line(&record) };
            Destination::new(output).write(context, &format!("run {}", record.id), &text)?;
        }
        What::Import { files } => import(context, &files)?,
        What::Rm { runs } => remove(context, &runs)?,
    }
    Ok(ExitStatus::Fine)
}

/// As CSV.
fn time_series(record: &RunRecord) -> anyhow::Result<String> {
    let text = report::time_series_csv(record);
    if text.lines().count() < 2 {
        bail!(
            "run {} has no time series: it was made by an earlier version, or nothing in it was timed; `crumb runs export` \
             without --csv writes what there is",
            record.id
        );
    }
    Ok(text)
}

fn json_line(record: &RunRecord) -> String {
    format!("{}\n", record.to_json())
}

fn import(context: &Context, files: &[PathBuf]) -> anyhow::Result<()> {
    let store = context.open_store()?;
    for path in files {
        let (name, text) = if path.as_os_str() == "-" {
            ("standard input".to_owned(), text_from(std::io::stdin(), RECORDS_BYTES_MAX))
        } else {
            (path.display().to_string(), read_text(path, RECORDS_BYTES_MAX))
        };
        let text = text.with_context(|| format!("{name}: cannot read"))?;
        for id in store.import(&text).with_context(|| format!("{name}: not imported"))? {
            note(context, &format!("imported {id}"));
        }
    }
    Ok(())
}

fn remove(context: &Context, runs: &[String]) -> anyhow::Result<()> {
    let store = context.store_with_runs()?;
    // All names are understood before the first run goes.
    let mut ids =
        runs.iter().map(|wanted| resolve(&store, wanted)).collect::<anyhow::Result<Vec<RunId>>>()?;
    ids.sort();
    ids.dedup();
    for id in &ids {
        store.remove(id)?;
        note(context, &format!("removed {id}"));
    }
    note(context, &format!("{} left", counted(store.list()?.len(), "run", "runs")));
    Ok(())
}

/// A full name is taken as it is: `find` opens the record, and a damaged one must be removable.
fn resolve(store: &Store, wanted: &str) -> anyhow::Result<RunId> {
    let exact = store.list()?.into_iter().map(|run| run.id).find(|id| id.0 == wanted);
    exact.map_or_else(|| Ok(store.find(wanted)?.id), Ok)
}
