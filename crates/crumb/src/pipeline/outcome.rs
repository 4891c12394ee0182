//! What becomes of a measured run: stored, written as JSON, drawn, and printed.
//!
//! Always holds: a run that ended early is printed and stored like any other; a run that cannot be stored, or whose JSON or
//! report cannot be written, is still printed.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use files::Target;
use harness::ranks::RankGroup;
use jiff::Timestamp;
use measure::{Environment, RECORD_SCHEMA, RunId, RunRecord, Verdict};

use crate::context::Context;
use crate::exit::{BadUsage, ExitStatus};
use crate::terminal::output::{can_be_written, is_same_place, note, print, refuse_store, say, write_file};
use crate::terminal::tables::verdict;

/// Where results go besides the terminal; the same for every benchmark.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Results")]
pub struct OutputArgs {
    /// Label of this run in tables and plots
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,

    /// Write the RunRecord as JSON to this file, - for standard output; a list of records when there are several
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write the HTML report to this file, - for standard output
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Print what the run would do and how long it would take, and end without touching the target; with --json as JSON
    #[arg(long)]
    pub dry_run: bool,

    /// Show one line of progress instead of the live view
    #[arg(long)]
    pub no_live: bool,

    /// Do not save the run in the results store
    #[arg(long)]
    pub no_store: bool,
}

/// A run that has begun: its name, its first moment, and the machine as it was then.
#[derive(Clone, Debug)]
pub struct Begun {
    /// Its name.
    pub id: RunId,
    benchmark: &'static str,
    target: String,
    directory: Option<PathBuf>,
    started: Timestamp,
    environment: Environment,
}

/// What this program is built from; empty where that is not known (`build.rs`).
const COMMIT: &str = env!("CRUMB_COMMIT");

impl Begun {
    /// A run of `benchmark` on `target` that begins now.
    pub fn now(benchmark: &'static str, target: &Target) -> Self {
        let directory = match target {
            Target::Directory(path) | Target::Pack(path) => Some(path.as_path()),
            Target::Nfs(_) | Target::Null => None,
        };
        Self::on(benchmark, target.to_string(), directory)
    }

    /// The same on what is no storage, such as a proxy by its URL; `directory` is where it lies, when it is here.
    pub fn on(benchmark: &'static str, target: String, directory: Option<&Path>) -> Self {
        let started = Timestamp::now();
        let entropy = std::process::id() as u16 ^ started.subsec_nanosecond() as u16;
        Self {
            id: RunId::new(benchmark, started, entropy),
            benchmark,
            target,
            directory: directory.map(Path::to_owned),
            started,
            environment: Environment {
                crumb_commit: (!COMMIT.is_empty()).then(|| COMMIT.to_owned()),
                ..Environment::capture(env!("CARGO_PKG_VERSION"), directory)
            },
        }
    }

    /// As [`Self::now`], by one name on all ranks.
    ///
    /// # Errors
    /// When a rank is lost.
    pub fn on_all(benchmark: &'static str, target: &Target, group: &mut RankGroup) -> anyhow::Result<Self> {
        let mut begun = Self::now(benchmark, target);
        begun.id = RunId(group.broadcast(begun.id.0)?);
        Ok(begun)
    }

    /// When it began.
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// What it runs on, as given.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The directory that it works in, where it is one of this machine.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// The part of its name that no other run has, for what it makes in the target.
    pub fn own_part(&self) -> &str {
        self.id.0.rsplit('-').next().unwrap_or(&self.id.0)
    }

    /// The record of it, ended now, with all that does not depend on the benchmark.
    pub fn record(self, context: &Context, label: String) -> RunRecord {
        RunRecord {
            schema: RECORD_SCHEMA,
            id: self.id,
            benchmark: self.benchmark.to_owned(),
            label,
            target: self.target,
            started: self.started,
            ended: Timestamp::now(),
            command: context.command.clone(),
            config: serde_json::Value::Null,
            environment: self.environment,
            seed: 0,
            complete: true,
            points: vec![],
            phases: vec![],
            curves: vec![],
            series: None,
            metrics: Default::default(),
            annotations: vec![],
            not_seen: Default::default(),
            headline: vec![],
            declarations: vec![],
            verdict: Verdict::valid(),
        }
    }
}

fn is_stdout(path: &Option<PathBuf>) -> bool {
    path.as_deref() == Some(Path::new("-"))
}

/// What is printed of one run or several.
pub struct Shown<'a> {
    /// The tables.
    pub text: &'a str,
    /// The verdict, for standard error where standard output belongs to the JSON or the page.
    pub verdict: &'a str,
    /// Where it is stored; left out with `--quiet`.
    pub hint: Option<&'a str>,
}

/// One run as it came out.
#[derive(Debug)]
pub struct Run {
    /// What was measured.
    pub record: RunRecord,
    /// Whether anything was. Making files ready for it is not.
    pub any_measured: bool,
    /// What ended it early.
    pub error: Option<anyhow::Error>,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// Its tables were printed before its files were removed.
    pub is_shown: bool,
}

impl Run {
    /// The run, unless nothing was measured.
    ///
    /// # Errors
    /// What ended it before anything was.
    pub fn measured(self) -> anyhow::Result<Self> {
        match (self.any_measured, self.error) {
            (true, error) => Ok(Self { error, ..self }),
            (false, Some(error)) => Err(error),
            (false, None) if self.interrupted => bail!("interrupted before anything was measured"),
            (false, None) => bail!("nothing was measured"),
        }
    }

    /// How the run ended.
    ///
    /// # Errors
    /// What ended it early.
    pub fn status(self) -> anyhow::Result<ExitStatus> {
        match self.error {
            Some(error) => {
                Err(error.context("the run ended early; what was measured so far is kept, marked incomplete"))
            }
            None if !self.record.verdict.valid => Ok(ExitStatus::Invalid),
            None => Ok(ExitStatus::Fine),
        }
    }
}

impl OutputArgs {
    /// Finds out, before anything is measured, whether what comes of it can be written.
    ///
    /// # Errors
    /// When a file or the store cannot be written, or two things are to go to standard output.
    pub fn check(&self, context: &Context) -> anyhow::Result<()> {
        if context.silent {
            return Ok(());
        }
        if is_stdout(&self.json) && is_stdout(&self.report) {
            let wrong =
                anyhow!("--json - and --report - both want standard output; name a file for one of them");
            return Err(wrong.context(BadUsage));
        }
        if let (Some(json), Some(report)) = (&self.json, &self.report)
            && is_same_place(json, report)
        {
            let wrong = anyhow!("--json and --report both name {}; name two files", json.display());
            return Err(wrong.context(BadUsage));
        }
        for path in [&self.json, &self.report].into_iter().flatten().filter(|path| *path != Path::new("-")) {
            refuse_store(context, path)?;
            can_be_written(path)?;
        }
        if !self.no_store {
            context
                .check_store()
                .context("the run could not be kept; --no-store measures without keeping it")?;
        }
        Ok(())
    }

    /// Files that results go to.
    pub fn places(&self, context: &Context) -> Vec<String> {
        let store = (!self.no_store).then_some(&context.store);
        let files = [&self.json, &self.report].into_iter().flatten().filter(|path| *path != Path::new("-"));
        store.into_iter().chain(files).map(|path| path.display().to_string()).collect()
    }

    /// Whether standard output belongs to the JSON or the page.
    fn stdout_is_taken(&self) -> bool {
        is_stdout(&self.json) || is_stdout(&self.report)
    }

    /// Stores a record, replacing what was stored while the run was under way, unless `--no-store` was given. Returns
    /// whether it is stored. A failing store must not lose the result: it is reported once, and the verb ends with exit code 1.
    pub fn keep(&self, context: &Context, record: &RunRecord) -> bool {
        if self.no_store || context.silent {
            return false;
        }
        let done = context.open_store().and_then(|store| Ok(store.replace(record)?));
        let is_first = context.is_first_unkept(&record.id, done.is_ok());
        if let Err(error) = &done
            && is_first
        {
            let hint = if self.json.is_none() { "; --json FILE writes it to a file" } else { "" };
            say(&format!("crumb: the run was not stored: {error:#}{hint}"));
        }
        done.is_ok()
    }

    /// Forgets what was kept of a run while it was under way.
    pub fn forget(&self, context: &Context, id: &RunId) {
        if !self.no_store
            && !context.silent
            && let Ok(store) = context.open_store()
        {
            // The first time there is nothing to forget.
            let _ = store.remove(id);
        }
    }

    /// Prints `shown`, then writes JSON and report.
    ///
    /// # Errors
    /// When standard output or a file cannot be written; a file's error comes after the tables.
    pub fn tell(&self, context: &Context, records: &[RunRecord], shown: &Shown<'_>) -> anyhow::Result<()> {
        if context.silent {
            return Ok(());
        }
        if self.stdout_is_taken() {
            let written = self.write(context, records);
            note(context, shown.verdict.trim_end());
            return written;
        }
        // The files are written even when the tables cannot be printed.
        let printed = print(shown.text);
        let written = self.write_and_say(context, records, shown.hint);
        printed.and(written)
    }

    /// Writes JSON and report, and says where they are.
    fn write_and_say(
        &self,
        context: &Context,
        records: &[RunRecord],
        hint: Option<&str>,
    ) -> anyhow::Result<()> {
        let written = self.write(context, records);
        let report = self.report.as_ref().filter(|_| written.is_ok());
        let report = report.map_or_else(String::new, |path| format!("Report: {}\n", path.display()));
        let printed = print(&(report + hint.filter(|_| !context.quiet).unwrap_or_default()));
        written.and(printed)
    }

    /// Writes JSON and report to where they belong.
    fn write(&self, context: &Context, records: &[RunRecord]) -> anyhow::Result<()> {
        if context.silent {
            return Ok(());
        }
        if let Some(path) = &self.json {
            let json = match records {
                [one] => one.to_json(),
                several => {
                    serde_json::to_string_pretty(several).context("cannot write the records as JSON")?
                }
            };
            if is_stdout(&self.json) {
                print(&format!("{json}\n"))?;
            } else {
                write_file(path, &json)?;
            }
        }
        if let Some(path) = &self.report {
            let options = report::html::Options::default();
            let page = report::html::render(records, crate::declarations::REGISTRY, &options)?;
            if is_stdout(&self.report) {
                print(&page)?;
            } else {
                write_file(path, &page)?;
            }
        }
        Ok(())
    }

    /// The tables of a run made alone before its files are removed; whether they were printed. A file that cannot be written
    /// now is written, or reported, at the end. Standard output that belongs to the JSON or the page waits for the end.
    pub fn show_early(
        &self,
        context: &Context,
        record: &RunRecord,
        tables: &dyn Fn(&RunRecord) -> String,
        kept: bool,
    ) -> bool {
        if context.silent || self.stdout_is_taken() || print(&tables(record)).is_err() {
            return false;
        }
        let hint = stored_as(record, kept);
        let _ = self.write_and_say(context, std::slice::from_ref(record), hint.as_deref());
        true
    }

    /// All of it for a run made alone.
    ///
    /// # Errors
    /// When nothing was measured, the run ended early, or a file cannot be written.
    pub fn finish(
        &self,
        context: &Context,
        run: Run,
        tables: impl Fn(&RunRecord) -> String,
    ) -> anyhow::Result<ExitStatus> {
        let run = run.measured()?;
        let kept = self.keep(context, &run.record);
        if run.is_shown {
            // The files know by now how the removal went.
            self.write(context, std::slice::from_ref(&run.record))?;
        } else {
            let hint = stored_as(&run.record, kept);
            let shown = Shown {
                text: &tables(&run.record),
                verdict: &verdict(&run.record.verdict),
                hint: hint.as_deref(),
            };
            self.tell(context, std::slice::from_ref(&run.record), &shown)?;
        }
        run.status()
    }
}

/// Where a run is stored, when it is.
fn stored_as(record: &RunRecord, kept: bool) -> Option<String> {
    kept.then(|| format!("Stored as {}; `crumb report last` draws it.\n", record.id))
}
