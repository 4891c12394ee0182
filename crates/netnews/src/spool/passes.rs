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
//! Not here: timing a phase (see `phases`), what the phases do (see their modules), figures made of them (see `figures`).
//! Source: Swartz 1996, section "All the News That's Fit to Test".

mod phases;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use harness::{NoGate, PhaseGate};
use measure::Phase;

use super::cold::ColdLog;
use super::config::{Keep, NetnewsConfig};
use super::figures;
use super::journal::Journal;
use super::layout::{Storage, Whereabouts};
use super::lock::SpoolLock;
use super::outcome::{self, Event, Outcome, Work};
use super::outgoing::{self, Outgoing};
use super::recovery::{self, Opening};
use super::split::Split;
use super::state::{Stage, Standing};
use super::sweep;
use super::unbatch::Spool;
use crate::NetnewsError;
use crate::feed::Feed;

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
    tell: &'a mut dyn FnMut(Event),
    split: Split,
    journal: Journal,
    /// Held until the run is over.
    lock: Option<SpoolLock>,
    /// Deleting was begun and not ended.
    deleting: bool,
    /// A phase that was cut short: told, and not in the journal.
    partial: Option<Phase>,
    outcome: Outcome,
    cold: ColdLog,
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
        Err(error) => return Outcome { error: Some(error), ..Outcome::default() },
    };
    let mut runner = Runner {
        config,
        storage,
        feed,
        stop,
        gate,
        tell,
        split,
        journal: Journal::default(),
        lock: None,
        deleting: false,
        partial: None,
        outcome: Outcome::default(),
        cold: ColdLog::default(),
    };
    let mut made = false;
    match runner.work(&mut made) {
        Ok(complete) => runner.outcome.complete = complete,
        Err(error) => {
            runner.outcome.error = Some(error);
            if runner.gate.is_joined() {
                // The other ranks need not continue until they hear of it; removing the spool may take long.
                runner.stop.ask();
            }
        }
    }
    if made && config.keep == Keep::Remove {
        runner.remove();
    }
    runner.finish()
}

impl Runner<'_> {
    /// Whether all passes were done.
    fn work(&mut self, made: &mut bool) -> Result<bool, NetnewsError> {
        let mut spool = self.open(made)?;
        while let Some(standing) = self.next_standing(&spool) {
            if !self.pass(&mut spool, standing)? {
                if !self.stop.is_asked() {
                    self.note("the time limit is reached: the run ends with what it has".to_owned());
                }
                self.close(&mut spool)?;
                return Ok(false);
            }
        }
        self.note_idle_rules(&spool);
        self.close(&mut spool)?;
        Ok(true)
    }

    /// A rule that no group follows was meant otherwise: all its articles are in the target.
    fn note_idle_rules(&mut self, spool: &Spool) {
        for (hierarchy, fs) in &self.storage.places {
            if !spool.groups.ids().any(|id| hierarchy.holds(&spool.groups.get(id).name)) {
                let text =
                    format!("no group of the feed is in {hierarchy}: nothing was put on {}", fs.place());
                self.outcome.verdict.remark("place-without-groups", text);
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
            let spool = recovery::create(storage.make(name)?, &opening)?;
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
                self.outcome.phases_before = self.journal.phases.len();
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
        self.outcome.recovered = Some(recovered);
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
                // Expiry made the text anew: what is there now is of batches that are done.
                standing.history_bytes = spool.history.text_bytes();
            }
            spool.state.write(standing)?;
            let Some(done) = self.unbatch(spool, standing)? else { return Ok(false) };
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

    fn remove(&mut self) {
        let tell = &mut *self.tell;
        let pass = self.journal.phases.last().map_or(1, |phase| phase.pass);
        let passes = self.config.passes.get();
        let mut told = |done| tell(Event::Step { work: Work::Remove, pass, passes, done, of: 0 });
        match sweep::remove(self.storage, &self.config.name, &mut told) {
            Ok(_) => {}
            // What ended the run is the better story; both are told.
            Err(error) if self.outcome.error.is_some() => {
                self.note(format!("the spool crumb-netnews-{} is left behind: {error}", self.config.name));
            }
            Err(error) => self.outcome.error = Some(error.into()),
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_due()
    }

    fn note(&mut self, text: String) {
        (self.tell)(Event::Note(text));
    }

    fn finish(mut self) -> Outcome {
        self.outcome.phases = std::mem::take(&mut self.journal.phases);
        // Figures are made of whole phases, unless there is nothing else.
        let whole = !self.outcome.phases.is_empty();
        if let (false, Some(phase)) = (whole, &self.partial) {
            self.outcome.phases.push(phase.clone());
        }
        if self.split.left_out() > 0 {
            let (offered, of) = (self.split.offered(), self.feed.batch_count());
            let text = format!(
                "the passes take {offered} of the feed's {of} batches; without --batches-per-pass they take all"
            );
            self.outcome.verdict.remark("feed-not-all-offered", text);
        }
        figures::draw(&mut self.outcome, self.config);
        if let (true, Some(phase)) = (whole, self.partial.take()) {
            self.outcome.phases.push(phase);
        }
        outcome::judge(&mut self.outcome, self.storage);
        self.cold.judge(&mut self.outcome);
        self.outcome
    }
}
