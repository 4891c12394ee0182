//! One run of any benchmark, from its checked settings to what becomes of it: alone, as one side of a series, or as one rank
//! of several.
//!
//! ```text
//! Plan -- same on all ranks? -> open -> harness::run, in a thread of its own -> Run { RunRecord }
//!                                          `-> events -> Progress; checkpoints -> store
//! ```
//!
//! Always holds: what was measured is in the record whatever ended the run; a record's configuration is the benchmark's own,
//! with how the storage is reached and which hosts ran.
//! Not here: the order of runs (see `series`), what is shown at the end (see `outcome`).

pub(super) mod openers;
pub(super) mod outcome;
pub(super) mod ranks;
pub(super) mod room;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use harness::marks::MarkListener;
use harness::ranks::RankGroup;
use harness::{Benchmark, Event, Events, Figures, Ran, RunError};
use jiff::Timestamp;
use measure::{RunRecord, Verdict};
use serde_json::{Map, Value};

use self::outcome::{Begun, OutputArgs, Run};
use self::ranks::on_all;
use crate::context::Context;
use crate::cpus::CpuList;
use crate::declarations;
use crate::exit::BadUsage;
use crate::forecast::Forecast;
use crate::layout::{counted, wrapped};
use crate::quick::QUICK;
use crate::series::Tables;
use crate::terminal::output::say;
use crate::terminal::progress::Progress;

/// A run that is about to be made.
pub struct Plan<'a, B: Benchmark> {
    /// How it is shown before its files are removed; none for one that is shown at the end.
    pub tables: Option<Tables<'a>>,
    /// Its name and first moment, the same on all ranks.
    pub begun: Begun,
    /// The benchmark with its settings.
    pub benchmark: &'a B,
    /// Same seed, same operations.
    pub seed: u64,
    /// What the run is called.
    pub label: String,
    /// What stands in its configuration besides the benchmark's settings, such as how the storage is reached.
    pub more_config: Vec<(&'static str, Value)>,
    /// What else must be the same on all ranks, by name.
    pub more_terms: Vec<(&'static str, String)>,
    /// Settings that each rank may have of its own.
    pub of_rank: &'static [&'static str],
    /// What a second Ctrl-C would leave behind, and how to remove it; empty for nothing.
    pub would_leave: String,
    /// What it will do, said before it begins.
    pub forecast: Forecast,
    /// What a run with `--quick` does not show; none for a run without.
    pub quick: Option<String>,
    /// Processors that the benchmark's thread, and what it starts, runs on.
    pub pin: Option<&'a CpuList>,
}

/// What surrounds every run of a verb.
pub struct Around<'a> {
    /// The verb's surroundings.
    pub context: &'a Context,
    /// Ends the run early.
    pub stop: &'a Arc<AtomicBool>,
    /// Where results go.
    pub output: &'a OutputArgs,
    /// The ranks.
    pub group: &'a mut RankGroup,
}

/// Terms longer than this are compared, and shown, by their digest.
const TERM_LETTERS_MAX: usize = 100;

impl<B: Benchmark> Plan<'_, B> {
    /// Makes the run on what `open` opens.
    ///
    /// # Errors
    /// When the ranks differ, the storage cannot be opened, or nothing was measured because of an error.
    pub fn measure(
        self,
        around: Around<'_>,
        open: impl FnOnce() -> anyhow::Result<B::Storage>,
    ) -> anyhow::Result<Run> {
        let Around { context, stop, output, group } = around;
        let config = self.config()?;
        group.same_terms(self.terms(&config))?;
        let mut storage = on_all(group, "reaching the storage", open())?;
        if !context.quiet {
            self.forecast.announced().iter().for_each(|text| say(wrapped("", text).trim_end()));
            ranks::announce(group);
        }
        let would_leave = (!self.would_leave.is_empty()).then_some(self.would_leave.as_str());
        let leaving = would_leave.map(|what| context.interruption.would_leave(what));
        let config = ranks::with_hosts(Value::Object(config), group.hosts());
        let marks = self.listen_for_marks(context, group);
        let record = |figures: Figures| RunRecord {
            annotations: marks.as_ref().map(MarkListener::marks).unwrap_or_default(),
            verdict: self.remarked(figures.verdict),
            config: with_chosen(config.clone(), figures.chosen),
            seed: self.seed,
            complete: figures.complete,
            points: figures.points,
            phases: figures.phases,
            curves: figures.curves,
            metrics: figures.metrics,
            not_seen: figures.not_seen,
            headline: figures.headline,
            ..self.begun.clone().record(context, self.label.clone())
        };
        let (mut any_kept, mut is_shown) = (false, false);
        let keep = |figures: Figures, is_all: bool| {
            let any_measured = figures.any_measured;
            let mut record = record(figures);
            mark(&mut record, is_all && stop.load(Ordering::Relaxed));
            let kept = output.keep(context, &record);
            any_kept |= kept;
            if let (Some(tables), true, true) = (self.tables, is_all, any_measured) {
                record.declare(&declarations::of(&record.benchmark));
                is_shown = output.show_early(context, &record, tables, kept);
            }
            is_shown
        };
        let progress = self.progress(context, output);
        let ran = self.run(&mut storage, group, stop, (context, progress), keep)?;
        let error = ran.error.map(|error| {
            let error = match error {
                RunError::Benchmark(error) => error.into(),
                RunError::Ranks(error) => error.into(),
            };
            match &leaving {
                Some(leaving) => leaving.said_in(error),
                None => error,
            }
        });
        let any_measured = ran.figures.as_ref().is_some_and(|figures| figures.any_measured);
        if !any_measured && any_kept {
            output.forget(context, &self.begun.id);
        }
        let nothing = || Figures { complete: false, ..Figures::of(Verdict::valid()) };
        let mut record = record(ran.figures.unwrap_or_else(nothing));
        record.complete &= error.is_none();
        let interrupted = stop.load(Ordering::Relaxed);
        mark(&mut record, interrupted && error.is_none());
        Ok(Run { record, any_measured, error, interrupted, is_shown })
    }

    /// Of several ranks only the first has a record. A run that cannot be marked is as good as any.
    fn listen_for_marks(&self, context: &Context, group: &RankGroup) -> Option<MarkListener> {
        if group.rank() != 0 {
            return None;
        }
        let mut failed = None;
        for directory in &context.mark_directories {
            let started = self.begun.started();
            let since_begin = move || Timestamp::now().duration_since(started).as_secs_f64();
            match MarkListener::start(directory, &self.begun.id.0, since_begin) {
                Ok(listener) => return Some(listener),
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            tracing::info!("`crumb mark` cannot reach this run: {}", measure::error_chain(&error));
        }
        None
    }

    /// Runs the benchmark in a thread of its own, so that what it is pinned to is not for the rest of this program.
    fn run(
        &self,
        storage: &mut B::Storage,
        group: &mut RankGroup,
        stop: &Arc<AtomicBool>,
        (context, mut progress): (&Context, Progress),
        mut keep: impl FnMut(Figures, bool) -> bool,
    ) -> anyhow::Result<Ran<B::Error>> {
        let (events, mut heard) = Events::new();
        let silent = context.silent;
        let (benchmark, pin) = (self.benchmark, self.pin);
        let run = move || {
            let pinned = pin.map_or(Ok(()), CpuList::pin).map_err(|error| error.context(BadUsage));
            on_all(group, "its processors", pinned)?;
            anyhow::Ok(harness::run(benchmark, storage, group, stop, events))
        };
        std::thread::scope(|scope| {
            let runner = std::thread::Builder::new().name(B::NAME.to_owned()).spawn_scoped(scope, run);
            let runner = runner.context("cannot start the run's thread")?;
            while let Some(event) = progress.next_of(&mut heard) {
                match event {
                    // The process may be killed at any moment: what is measured is in the store before it is shown.
                    Event::Checkpoint(figures) => {
                        progress.aside(|| keep(*figures, false));
                    }
                    Event::Measured { figures, files } => {
                        let is_shown = progress.aside(|| keep(*figures, true));
                        if is_shown {
                            context.interruption.cleans_up();
                        }
                        progress.say(&removing_text(files, is_shown));
                    }
                    Event::Warning(text) if !silent => progress.warn(&text),
                    event => progress.show(&event),
                }
            }
            progress.finish();
            runner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// What the terminal shows of it while it runs.
    fn progress(&self, context: &Context, output: &OutputArgs) -> Progress {
        let title = format!("{}: {}", B::NAME, self.label);
        if output.no_live { None } else { Progress::of_run(context, title, self.begun.directory()) }
            .unwrap_or_else(|| Progress::new(context.quiet))
    }

    /// The fields of the record's configuration.
    fn config(&self) -> anyhow::Result<Map<String, Value>> {
        let config =
            serde_json::to_value(self.benchmark.config()).context("cannot write the settings as JSON")?;
        let Value::Object(mut fields) = config else { anyhow::bail!("the settings are no JSON object") };
        fields.extend(self.quick.iter().map(|_| (QUICK.to_owned(), true.into())));
        fields.extend(self.more_config.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Ok(fields)
    }

    /// A verdict with what a quick run does not show.
    fn remarked(&self, mut verdict: Verdict) -> Verdict {
        if let Some(limits) = &self.quick {
            verdict.remark(QUICK, limits);
        }
        verdict
    }

    /// What must be the same on all ranks, by name.
    fn terms(&self, config: &Map<String, Value>) -> Vec<(String, String)> {
        let of_all = config.iter().filter(|(name, _)| !self.of_rank.contains(&name.as_str()));
        let settings = of_all.map(|(name, value)| (name.replace('_', " "), term(value)));
        let named = |(name, term): &(&str, String)| ((*name).to_owned(), term.clone());
        let first = [("target", self.begun.target().to_owned()), ("seed", self.seed.to_string())];
        first.iter().chain(&self.more_terms).map(named).chain(settings).collect()
    }
}

/// What is true of a run of any benchmark, whatever its own verdict says.
fn mark(record: &mut RunRecord, interrupted: bool) {
    let verdict = &mut record.verdict;
    if !record.complete {
        if interrupted && !verdict.has("interrupted") {
            verdict.invalidate("interrupted", "the run was interrupted");
        }
        // A benchmark's own remark, in its place: half a run is not to be taken for a whole one.
        verdict.reasons.retain(|reason| reason.code != "incomplete" || reason.fatal);
        if !verdict.has("incomplete") {
            let text = "the run did not reach its end; it holds what was measured until then";
            verdict.invalidate("incomplete", text);
        }
    }
    if cfg!(debug_assertions) && !verdict.has("debug-build") {
        verdict.remark("debug-build", "measured with a debug build: do not trust the figures");
    }
}

fn removing_text(files: u64, is_shown: bool) -> String {
    let what = if files > 0 { counted(files as usize, "file", "files") } else { "the files".to_owned() };
    let end = if is_shown { "; Ctrl-C leaves the rest behind" } else { "" };
    format!("removing {what}{end}")
}

/// A configuration with what the run itself chose.
pub fn with_chosen(mut config: Value, chosen: Vec<(&'static str, Value)>) -> Value {
    chosen.into_iter().for_each(|(name, value)| config[name] = value);
    config
}

fn term(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    if text.len() <= TERM_LETTERS_MAX {
        return text;
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("digest {:016x}", hasher.finish())
}
