//! The passes of a run: unbatch, batch now and then, expire; each timed by itself.
//!
//! ```text
//! pass 1    unbatch,                                                                   flush
//! pass 3    unbatch, batch (the articles of pass 2),                                   flush
//! pass 7    unbatch,                                 expire (the articles of pass 1),  flush
//! ```
//!
//! A flush makes durable what the pass left in memory: the device's part of the work, which else would fall into the
//! next pass or behind the end of the run. With `cold` the kernel's caches are dropped before batch and expire.
//!
//! One article after another: a closed loop without parallelism, as relaynews is. So the figures are rates and not
//! what a server would answer in.
//!
//! Always holds: no other process works on the spool meanwhile (see `lock`); a phase is in the outcome when it took in anything, however the run ends; a spool that is not to be
//! kept is removed however the run ends; one that is kept can be resumed.
//! Not here: timing a phase (see `phases`), what the phases do (see their modules), figures computed from them (see `figures`).
//! Source: Swartz 1996, section "All the News That's Fit to Test".

pub(super) mod clock;
pub(super) mod cold;
pub(super) mod costs;
pub(super) mod meter;
mod phases;
mod progress;
pub(super) mod readers;
pub(super) mod split;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use harness::{NoGate, PhaseGate};

use self::cold::ColdLog;
use self::costs::CostMeter;
use self::progress::Progress;
use self::split::Split;
use super::config::{Keep, NetnewsConfig};
use super::layout::{Storage, Whereabouts};
use super::recovery::{self, Opening};
use super::unbatch::Spool;
use crate::NetnewsError;
use crate::feed::Feed;
use crate::spool::layout::lock::SpoolLock;
use crate::spool::layout::sweep;
use crate::spool::results::outcome::{Event, Outcome, Work, local_findings};
use crate::spool::results::part::{Ending, MeasuredPhase, Part};
use crate::spool::resume::journal::Journal;
use crate::spool::resume::state::{Stage, Standing};
use crate::spool::unbatch::outgoing::{self, Outgoing};

/// Whether to end early.
#[derive(Clone, Copy)]
struct Halt<'a> {
    asked: &'a AtomicBool,
    deadline: Option<Instant>,
}

impl Halt<'_> {
    /// Asked for. Cheap enough for every article.
    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Asked for, or out of time.
    fn is_due(&self) -> bool {
        self.is_asked() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Has the run end as soon as possible.
    fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }
}

struct Runner<'a> {
    config: &'a NetnewsConfig,
    storage: &'a Storage,
    feed: &'a Feed,
    stop: Halt<'a>,
    gate: &'a mut dyn PhaseGate,
    progress: Progress<'a>,
    split: Split,
    journal: Journal,
    /// Held until the run is over.
    lock: Option<SpoolLock>,
    /// Deleting was begun and not ended.
    deleting: bool,
    part: Part,
    cold: ColdLog,
    costs: CostMeter,
}

/// Runs the passes that are left.
pub fn run(
    config: &NetnewsConfig,
    storage: &Storage,
    feed: &Feed,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Outcome {
    run_as_rank(config, storage, feed, &mut NoGate, stop, tell)
}

/// The same as one rank of several. After each phase the rank enters `gate` for what follows it. A failure here sets `stop`,
/// and so does the gate when another rank failed.
pub fn run_as_rank(
    config: &NetnewsConfig,
    storage: &Storage,
    feed: &Feed,
    gate: &mut dyn PhaseGate,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Outcome {
    let deadline = config.time_limit.and_then(|limit| Instant::now().checked_add(limit));
    let stop = Halt { asked: stop, deadline };
    let split = match Split::of(feed.batch_count(), config) {
        Ok(split) => split,
        Err(error) => {
            let part = Part { ending: Ending::Failed, ..Part::default() };
            return Outcome { part, error: Some(error) };
        }
    };
    let mut runner = Runner {
        config,
        storage,
        feed,
        stop,
        progress: Progress::new(tell, config.passes.get(), gate.is_joined()),
        gate,
        split,
        journal: Journal::default(),
        lock: None,
        deleting: false,
        part: Part { feed_batches: feed.batch_count(), batches_taken: split.offered(), ..Part::default() },
        cold: ColdLog::default(),
        costs: CostMeter::start(&*storage.spool, config.keep),
    };
    let mut made = false;
    let mut error = match runner.work(&mut made) {
        Ok(ending) => {
            runner.part.ending = ending;
            None
        }
        Err(error) => {
            runner.part.ending = Ending::Failed;
            if runner.gate.is_joined() {
                // The other ranks need not continue until they hear of it; removing the spool may take long.
                runner.stop.ask();
            }
            Some(error)
        }
    };
    if made && config.keep == Keep::Remove {
        runner.remove(&mut error);
    }
    Outcome { part: runner.whole_part(), error }
}

impl Runner<'_> {
    fn work(&mut self, made: &mut bool) -> Result<Ending, NetnewsError> {
        let mut spool = self.open(made)?;
        while let Some(standing) = self.next_standing(&spool) {
            if !self.pass(&mut spool, standing)? {
                let asked = self.stop.is_asked();
                if !asked {
                    self.note("the time limit is reached: the run ends with what it has".to_owned());
                }
                self.close(&mut spool)?;
                return Ok(if asked { Ending::Interrupted } else { Ending::OutOfTime });
            }
        }
        self.note_idle_rules(&spool);
        self.close(&mut spool)?;
        Ok(Ending::Complete)
    }

    /// A rule that no group follows was meant otherwise: all its articles are in the target.
    fn note_idle_rules(&mut self, spool: &Spool) {
        for (hierarchy, fs) in &self.storage.places {
            if !spool.groups.ids().any(|id| hierarchy.holds(&spool.groups.get(id).name)) {
                let text =
                    format!("no group of the feed is in {hierarchy}: nothing was put on {}", fs.place());
                self.part.idle_rules.push(text);
            }
        }
    }

    fn open(&mut self, made: &mut bool) -> Result<Spool, NetnewsError> {
        let (config, storage) = (self.config, self.storage);
        let name = &config.name;
        self.journal = Journal {
            feed_articles: self.feed.articles(),
            feed_bytes: self.feed.bytes(),
            batches_per_pass: self.split.per_pass(),
            spread_over_passes: self.split.spread_over(),
            host: config.host.clone(),
            history_index: config.history_index.name().to_owned(),
            phases: Vec::new(),
        };
        let opening = Opening {
            host: &config.host,
            link: config.link,
            sync: config.sync,
            articles: self.feed.articles(),
            retention: config.retention.get(),
            history_index: config.history_index,
        };
        if config.keep != Keep::Resume {
            self.lock = Some(storage.begin(name)?);
            *made = true;
            let homes = storage.make(name)?;
            if config.keep == Keep::Remove {
                storage.mark(name)?;
            }
            let spool = recovery::create(homes, &opening)?;
            if config.keep == Keep::Keep {
                self.journal.write(&*spool.lib)?;
            }
            return Ok(spool);
        }
        // Whether there is one is asked first: a lock file is made in a spool and nowhere else.
        Whereabouts::read(&*storage.spool, name)?;
        self.lock = Some(SpoolLock::take(&storage.spool, name)?);
        let (was, asked) = (Whereabouts::read(&*storage.spool, name)?, storage.whereabouts());
        if was != asked {
            let (was, asked) = (was.to_string(), asked.to_string());
            return Err(NetnewsError::OtherSpool { name: name.clone(), was, asked });
        }
        // A kill may have come before all directories were there.
        let homes = storage.make(name)?;
        match Journal::read(&*homes.lib)? {
            Some(journal) => {
                journal.fits(&self.journal, name)?;
                let (was, asked) = (&journal.history_index, config.history_index.name());
                if !was.is_empty() && was != asked {
                    self.note(format!(
                        "the passes before looked history up in {was}, those from here on in {asked}: \
                         do not judge ageing by them"
                    ));
                }
                self.journal = journal;
                let earlier = self.journal.phases.iter().cloned();
                self.part.phases = earlier.map(MeasuredPhase::of_earlier_run).collect();
            }
            None => self.journal.write(&*homes.lib)?,
        }
        let (spool, recovered) = recovery::open(homes, &opening)?;
        if recovered.was_cut_short {
            self.note(format!(
                "the spool had not been closed in order: {} names removed that history does not have, {} missing, \
                 {} bytes of a torn line cut off",
                recovered.names_removed, recovered.names_missing, recovered.torn_bytes
            ));
        }
        self.part.recovered = Some(recovered);
        Ok(spool)
    }

    /// Where to go on; none when all passes are done.
    fn next_standing(&self, spool: &Spool) -> Option<Standing> {
        let standing = Standing { retention: self.config.retention.get(), ..spool.state.standing() };
        let next = match standing.stage {
            Stage::Done => Standing { pass: standing.pass + 1, stage: Stage::Unbatch, ..standing },
            _ => standing,
        };
        (next.pass <= self.config.passes.get()).then_some(next)
    }

    /// Does what is left of a pass; false when stopped in it.
    fn pass(&mut self, spool: &mut Spool, mut standing: Standing) -> Result<bool, NetnewsError> {
        let pass = standing.pass;
        if self.is_stopped() {
            return Ok(false);
        }
        if standing.stage == Stage::Unbatch {
            if spool.state.standing().stage == Stage::Done {
                spool.outgoing = Outgoing::create(&*spool.lib, pass)?;
                // Expiry rewrote the text: all its lines belong to batches that are done.
                standing.history_bytes = spool.history.text_bytes();
            }
            spool.state.write(standing)?;
            let Some(done) = self.unbatch(spool, standing)? else { return Ok(false) };
            // The first pass that expires is the one after the retention.
            if pass <= self.config.retention.get() {
                self.costs.stored_without_expiry(&*self.storage.spool, &self.part.counts);
            }
            standing = Standing { stage: Stage::Batch, ..done };
            spool.state.write(standing)?;
        }
        if standing.stage == Stage::Batch {
            let due = self.config.batch_every.is_some_and(|every| pass.is_multiple_of(every.get()));
            if due && pass > 1 && !self.batch(spool, pass)? {
                return Ok(false);
            }
            standing.stage = Stage::Expire;
            spool.state.write(standing)?;
        }
        if self.is_stopped() {
            return Ok(false);
        }
        if standing.stage == Stage::Expire {
            if pass > self.config.retention.get() && !self.expire(spool, pass)? {
                return Ok(false);
            }
            outgoing::remove(&*spool.lib, pass - 1)?;
            if self.is_stopped() {
                return Ok(false);
            }
            self.flush(spool, pass)?;
            spool.state.write(Standing { stage: Stage::Done, ..standing })?;
        }
        Ok(true)
    }

    fn close(&mut self, spool: &mut Spool) -> Result<(), NetnewsError> {
        if self.config.keep == Keep::Remove {
            return Ok(());
        }
        // After a stop within deleting, names are left that history does not have: that is for recovery to mend.
        if self.deleting { Ok(()) } else { spool.settle() }
    }

    fn remove(&mut self, error: &mut Option<NetnewsError>) {
        let part = Box::new(self.whole_part());
        self.progress.tell(Event::Measured(part));
        let progress = &mut self.progress;
        progress.pass = self.part.phases.last().map_or(1, |phase| phase.phase.pass);
        let mut removed = |done| progress.step(Work::Remove, done, 0);
        match sweep::remove(self.storage, &self.config.name, &mut removed) {
            Ok(_) => {}
            // What ended the run is the better story; both are reported.
            Err(left) if error.is_some() => {
                self.note(format!("the spool crumb-netnews-{} is left behind: {left}", self.config.name));
            }
            Err(left) => *error = Some(left.into()),
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_due()
    }

    fn note(&mut self, text: String) {
        self.progress.tell(Event::Note(text));
    }

    /// What was measured, with what this machine alone shows of it.
    fn whole_part(&self) -> Part {
        let mut part = self.part.clone();
        part.costs = self.costs.costs;
        part.local = local_findings(&part.recorded_phases(), self.storage);
        self.cold.judge(&mut part);
        part
    }
}
