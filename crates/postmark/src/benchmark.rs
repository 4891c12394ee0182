//! PostMark's run as one of the benchmarks: on storage of any kind, with latencies, threads and ranks.
//!
//! ```text
//! Postmark { config } -- run --> Part (counts, times, latencies of one rank) -- merge --> Part -- figures --> record
//! ```
//!
//! Always holds: all is done in a folder of the run's own, which is removed at the end; ranks draw different operations from
//! one seed, as the threads of one process do.
//! Not here: the five phases (see `engine`), the original's command language (see `Session`).

mod config;
mod folder;
mod part;
mod watch;

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::{Arc, mpsc};

use files::{FileSystem, Fsstat};
use harness::{Benchmark, Context, Ended, Figures, PhaseGate as _, Surroundings};
use measure::{EndedThreads, KeptFiles, MachineMeter, MeterScope, MetricDeclaration, RankPart};

pub use self::config::PostmarkConfig;
use self::folder::Folder;
pub use self::part::Part;
use self::watch::Watch;
use crate::engine::{self, Ending, Place, RunEnd, RunOptions};
use crate::{PostmarkError, figures};

/// PostMark with its settings.
#[derive(Clone, Debug)]
pub struct Postmark {
    /// What is asked of it.
    pub config: PostmarkConfig,
    /// The run's own folder in the storage; each rank of several has one of its own.
    pub folder: String,
}

impl Benchmark for Postmark {
    const NAME: &'static str = "postmark";
    const METRICS: &'static [MetricDeclaration] = figures::METRICS;
    type Config = PostmarkConfig;
    type Storage = Arc<dyn FileSystem>;
    type Part = Part;
    type Error = PostmarkError;

    fn config(&self) -> &PostmarkConfig {
        &self.config
    }

    fn run(&self, storage: &mut Self::Storage, context: &mut Context<'_>) -> Ended<Part, PostmarkError> {
        let without_files = if storage.has_room_of_its_own() { None } else { storage.statfs().ok() };
        let with_files = Cell::new(None);
        let folder = match Folder::make(storage, &context.ranks.own_name(&self.folder)) {
            Ok(folder) => folder,
            Err(error) => return Ended::failed(error),
        };
        let (ended, has_ranks) = (EndedThreads::default(), context.ranks.is_joined());
        let scope = MeterScope {
            ended: ended.clone(),
            has_ranks,
            ..MeterScope::of_threads(self.config.threads.get())
        };
        let mut watch = Watch::new(&**storage, has_ranks, scope.clone());
        // Read in the thread that measures: the watch beside it may wake when all is over.
        let meter = MachineMeter::start(scope);
        let outcome = self.drive(&folder, &mut watch, ended, &with_files, context);
        watch.note_machine(meter.stop());
        // Also after an error: the folder is ours and empty, unless something in it could not be removed.
        let removed = folder.remove();
        match outcome {
            Ok(RunEnd { outcome, error }) => {
                let (threads, remote) = (self.config.threads.get(), storage.local_root().is_none());
                let used =
                    without_files.zip(with_files.get()).map(|(before, with)| kept(&before, &with, &outcome));
                let part = Part { kept: used, ..Part::of(outcome, &watch, threads, remote) };
                Ended { part: Some(part), error: error.or(removed.err()) }
            }
            Err(error) => Ended::failed(error),
        }
    }

    fn merge(&self, parts: Vec<(RankPart, Part)>) -> Part {
        part::merged(parts)
    }

    fn figures(&self, whole: &Part, around: &Surroundings) -> Figures {
        let mut verdict = figures::verdict(whole);
        part::judge_ranks(whole, around, &mut verdict);
        Figures {
            points: vec![figures::load_point(whole)],
            phases: whole.recorded_phases(),
            metrics: figures::metrics(whole),
            not_seen: whole.cost().not_seen(),
            complete: whole.is_complete(),
            any_measured: whole.ending != Ending::Failed || whole.counts.created() > 0,
            ..Figures::of(verdict)
        }
    }
}

impl Postmark {
    fn drive(
        &self,
        folder: &Folder<'_>,
        watch: &mut Watch,
        ended: EndedThreads,
        with_files: &Cell<Option<Fsstat>>,
        context: &mut Context<'_>,
    ) -> Result<RunEnd, PostmarkError> {
        let settings = self.config.settings_of_rank(context.ranks.group().rank());
        let places = [Place { fs: Arc::clone(&folder.inside), weight: NonZeroU32::MIN }];
        let how = RunOptions { sync: self.config.sync, latencies: true, ended, ..RunOptions::default() };
        let (tell, heard) = mpsc::channel();
        std::thread::scope(|scope| {
            let (done, events, expected) = (&how.done, &context.events, self.config.expected());
            let listen = move || watch.listen(&heard, done, &expected, events);
            std::thread::Builder::new()
                .name("postmark-watch".to_owned())
                .spawn_scoped(scope, listen)
                .map_err(|source| PostmarkError::Watch { source })?;
            // Moved in here: the other thread listens for as long as there is a sender.
            let mut tell = move |event| {
                if matches!(event, engine::Event::Begins(engine::Phase::Delete)) {
                    // One call, before the first file goes.
                    with_files.set(folder.inside.statfs().ok());
                }
                drop(tell.send(event));
            };
            let (threads, ranks) = (self.config.threads, &mut context.ranks);
            engine::run_as_rank(&settings, &places, &how, threads, ranks, context.stop, &mut tell)
        })
    }
}

/// What the file system had less free with the files there.
fn kept(before: &Fsstat, with: &Fsstat, outcome: &engine::Outcome) -> KeptFiles {
    KeptFiles {
        files: outcome.counts.files_kept,
        bytes: outcome.counts.bytes_kept,
        disk_bytes: before.bytes_free.saturating_sub(with.bytes_free),
        inodes: before.files_free.saturating_sub(with.files_free),
    }
}
