//! The news spool as a `Benchmark`: each rank stores its own feed in its own spool.
//!
//! ```text
//! Netnews { config } -- run --> Part (phases, counts, latencies of one rank) -- merge --> Part -- figures --> record
//! ```
//!
//! Always holds: ranks begin each phase together; a resumed rank that is ahead waits for the others before anything is timed.
//! Not here: the passes (see `spool`), the feed's making (see `feed`).

use harness::ranks::Replicas;
use harness::{Benchmark, Context, Ended, Event, Figures, PhaseGate as _, RankState, Step, Surroundings};
use measure::{MetricDeclaration, RankPart};

use crate::NetnewsError;
use crate::feed::Feed;
use crate::spool::{
    self, Keep, METRICS, NetnewsConfig, Outcome, Part, ResumeAlignment, Storage, Work, run_as_rank,
};

/// The news spool with its settings.
#[derive(Clone, Debug)]
pub struct Netnews {
    /// What is asked of it; each of several ranks has a spool of its own, by this name and its number.
    pub config: NetnewsConfig,
}

/// What a run works on.
pub struct Supplies {
    /// Where the spool is.
    pub storage: Storage,
    /// What is stored in it.
    pub feed: Feed,
}

impl Benchmark for Netnews {
    const NAME: &'static str = "netnews";
    const METRICS: &'static [MetricDeclaration] = METRICS;
    type Config = NetnewsConfig;
    type Storage = Supplies;
    type Part = Part;
    type Error = NetnewsError;

    fn config(&self) -> &NetnewsConfig {
        &self.config
    }

    fn run(&self, supplies: &mut Supplies, context: &mut Context<'_>) -> Ended<Part, NetnewsError> {
        let Supplies { storage, feed } = supplies;
        let Context { ranks, stop, events } = context;
        let own = self.config_of_rank(ranks);
        let aligned = match self.align(ranks, &own, storage) {
            Ok(aligned) => aligned,
            Err(error) => return Ended::failed(error),
        };
        ranks.enter("the first pass", RankState::On);
        for (phase, pass) in &aligned.done_before {
            ranks.enter(&format!("what follows {phase} of pass {pass}"), RankState::On);
        }
        let joined = ranks.is_joined();
        let mut tell = |event: spool::Event| match event {
            // Of several ranks it is a part.
            spool::Event::Measured(_) if joined => {}
            spool::Event::Measured(part) => {
                let figures = Box::new(self.figures(&part, &Surroundings::default()));
                events.send(Event::Measured { figures, files: 0 });
            }
            event => reported(event).into_iter().for_each(|event| events.send(event)),
        };
        let Outcome { mut part, error } = run_as_rank(&own, storage, feed, ranks, stop, &mut tell);
        if part.had_nothing_left() && !joined {
            let (name, passes) = (own.name, own.passes.get());
            return Ended::failed(NetnewsError::NothingLeft { name, passes });
        }
        for measured in &mut part.phases {
            let of_pass = (measured.phase.name.clone(), measured.phase.pass);
            measured.whole &= !aligned.not_whole.contains(&of_pass);
        }
        // Also after an error, and though nothing may be in it: a phase that not all ranks have is none of the whole.
        Ended { part: Some(part), error }
    }

    fn merge(&self, parts: Vec<(RankPart, Part)>) -> Part {
        spool::merged(parts)
    }

    fn figures(&self, whole: &Part, _around: &Surroundings) -> Figures {
        let (metrics, curves) = spool::figures(whole, &self.config);
        Figures {
            phases: whole.recorded_phases(),
            curves,
            metrics,
            not_seen: spool::cost(whole).not_seen(),
            complete: whole.is_complete(),
            any_measured: !whole.phases.is_empty(),
            ..Figures::of(spool::verdict(whole))
        }
    }
}

impl Netnews {
    fn config_of_rank(&self, ranks: &mut Replicas<'_>) -> NetnewsConfig {
        if !ranks.is_joined() {
            return self.config.clone();
        }
        self.config.of_rank(ranks.own_name(&self.config.name), ranks.group().rank())
    }

    fn align(
        &self,
        ranks: &mut Replicas<'_>,
        own: &NetnewsConfig,
        storage: &Storage,
    ) -> Result<ResumeAlignment, NetnewsError> {
        if own.keep == Keep::Resume && ranks.is_joined() {
            ResumeAlignment::agree(ranks.group(), &self.config, own, storage)
        } else {
            Ok(ResumeAlignment::default())
        }
    }
}

/// The user's message for an event; `None` for the end of a phase, whose figures are reported at the end.
fn reported(event: spool::Event) -> Option<Event> {
    match event {
        spool::Event::Note(text) => Some(Event::Note(text)),
        spool::Event::Step { work, pass, passes, done, of } => {
            let what = match work {
                Work::Unbatch => "storing batches",
                Work::Batch => "writing outgoing batches, articles",
                Work::ExpireScan => "reading history, lines",
                Work::Expire => "deleting expired files",
                Work::Remove => "removing the spool, files",
            };
            let work = format!("[{pass}/{passes}] {what}");
            Some(Event::Step(Step { work, done, of: (of > 0).then_some(of), ..Step::default() }))
        }
        spool::Event::PhaseDone { .. } | spool::Event::Measured(_) => None,
    }
}
