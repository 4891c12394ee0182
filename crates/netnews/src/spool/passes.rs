//! The passes of a run: unbatch, batch now and then, expire; each timed by itself.
//!
//! ```text
//! pass 1    unbatch
//! pass 3    unbatch, batch (the articles of pass 2)
//! pass 7    unbatch,                                 expire (the articles of pass 1)
//! ```
//!
//! One article after another: a closed loop without parallelism, as relaynews is. So the figures are rates and not
//! what a server would answer in.
//!
//! Always holds: a phase is in the outcome when it took in anything, however the run ends; a spool that is not to be
//! kept is removed however the run ends; one that is kept can be resumed.
//! Not here: what the phases do (see their modules), figures made of them (see `figures`).
//! Source: Swartz 1996, section "All the News That's Fit to Test".

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use measure::Phase;

use super::batcher;
use super::config::{Keep, NetnewsConfig};
use super::expire;
use super::figures;
use super::history::line::HistoryLine;
use super::history::{LookupCounts, TEXT_FILE, text};
use super::journal::Journal;
use super::layout::{Storage, Whereabouts};
use super::meter::PhaseMeter;
use super::outcome::{self, Event, Outcome, Work};
use super::outgoing::{self, Outgoing};
use super::readers::Readers;
use super::recovery::{self, Opening};
use super::state::{Stage, Standing};
use super::unbatch::Spool;
use super::{clock, sweep};
use crate::NetnewsError;
use crate::batch::{BatchError, BatchReader};
use crate::feed::{Batch, Feed};

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
}

struct Runner<'a> {
    config: &'a NetnewsConfig,
    storage: &'a Storage,
    feed: &'a Feed,
    stop: Halt<'a>,
    tell: &'a mut dyn FnMut(Event),
    batches_per_pass: u64,
    journal: Journal,
    /// Deleting was begun and not ended.
    deleting: bool,
    /// A phase that was cut short: told, and not in the journal.
    partial: Option<Phase>,
    outcome: Outcome,
}

/// Runs the passes that are left.
pub fn run(
    config: &NetnewsConfig,
    storage: &Storage,
    feed: &Feed,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Outcome {
    let deadline = config.time_limit.and_then(|limit| Instant::now().checked_add(limit));
    let stop = Halt { asked: stop, deadline };
    let mut runner = Runner {
        config,
        storage,
        feed,
        stop,
        tell,
        batches_per_pass: 0,
        journal: Journal::default(),
        deleting: false,
        partial: None,
        outcome: Outcome::default(),
    };
    let mut made = false;
    match runner.work(&mut made) {
        Ok(complete) => runner.outcome.complete = complete,
        Err(error) => runner.outcome.error = Some(error),
    }
    if made && config.keep == Keep::Remove {
        runner.remove();
    }
    runner.finish()
}

impl Runner<'_> {
    /// Whether all passes were done.
    fn work(&mut self, made: &mut bool) -> Result<bool, NetnewsError> {
        let (config, passes) = (self.config, self.config.passes.get());
        self.batches_per_pass = match config.batches_per_pass {
            Some(batches) => batches.get(),
            None => self.feed.batch_count() / u64::from(passes),
        };
        if self.batches_per_pass == 0 || self.batches_per_pass * u64::from(passes) > self.feed.batch_count() {
            return Err(NetnewsError::FeedTooSmall { batches: self.feed.batch_count(), passes });
        }
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
        self.close(&mut spool)?;
        Ok(true)
    }

    fn open(&mut self, made: &mut bool) -> Result<Spool, NetnewsError> {
        let (config, storage) = (self.config, self.storage);
        let name = &config.name;
        self.journal = Journal {
            feed_articles: self.feed.articles(),
            feed_bytes: self.feed.bytes(),
            batches_per_pass: self.batches_per_pass,
            host: config.host.clone(),
            phases: Vec::new(),
        };
        let opening = Opening {
            host: &config.host,
            link: config.link,
            articles: self.feed.articles(),
            retention: config.retention.get(),
        };
        if config.keep != Keep::Resume {
            if storage.has(name)? {
                return Err(NetnewsError::SpoolExists { target: storage.spool.place(), name: name.clone() });
            }
            *made = true;
            let spool = recovery::create(storage.make(name)?, &opening)?;
            if config.keep == Keep::Keep {
                self.journal.write(&*spool.lib)?;
            }
            return Ok(spool);
        }
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
                self.journal = journal;
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
            spool.state.write(Standing { stage: Stage::Done, ..standing })?;
        }
        Ok(true)
    }

    /// Stores the pass's batches; none when stopped before the end.
    fn unbatch(
        &mut self,
        spool: &mut Spool,
        mut standing: Standing,
    ) -> Result<Option<Standing>, NetnewsError> {
        let (pass, per_pass) = (standing.pass, self.batches_per_pass);
        let first_of_pass = u64::from(pass - 1) * per_pass + 1;
        let last = u64::from(pass) * per_pass;
        let readers = self.start_readers(spool)?;
        let before = (spool.counts, spool.storer.counts(), spool.history.counts());
        let mut reader: Option<BatchReader<File>> = None;
        let mut stopped = false;
        let meter = PhaseMeter::start("unbatch", pass, self.storage);
        let mut take_all = || -> Result<(), NetnewsError> {
            for number in standing.batches_done + 1..=last {
                let batch = Batch { number, path: self.feed.batch_path(number) };
                let mut open = match reader.take() {
                    Some(before) => batch.open_with(before)?,
                    None => batch.open()?,
                };
                let arrived = clock::arrival(pass, number - first_of_pass, per_pass);
                loop {
                    match open.next() {
                        Ok(Some(article)) => spool.offer(article, arrived)?,
                        Ok(None) => break,
                        Err(BatchError::Damaged { .. }) => {
                            self.outcome.counts.damaged += 1;
                            continue;
                        }
                        Err(error) => return Err(batch.error(error)),
                    };
                    stopped = self.stop.is_asked();
                    if stopped {
                        return spool.write_through(standing);
                    }
                }
                standing = Standing { batches_done: number, ..standing };
                spool.end_batch(standing)?;
                standing.history_bytes = spool.history.text_bytes();
                if let Some(readers) = &readers {
                    let stored: Vec<_> = spool.take_stored().collect();
                    readers.add(&spool.groups, stored.into_iter());
                }
                (self.tell)(Event::Step {
                    work: Work::Unbatch,
                    pass,
                    passes: self.config.passes.get(),
                    done: number + 1 - first_of_pass,
                    of: per_pass,
                });
                reader = Some(open);
                stopped = number < last && self.stop.is_due();
                if stopped {
                    break;
                }
            }
            Ok(())
        };
        let taken = take_all();
        let (unbatch, store, looked) = (
            figures::since(before.0, spool.counts),
            figures::stored_since(before.1, spool.storer.counts()),
            spool.history.counts(),
        );
        let mut phase = meter.stop(unbatch.stored, store.bytes);
        if let Some(readers) = readers {
            let readings = readers.end();
            figures::count_readings(&mut phase, &readings);
            self.outcome.readings.get_or_insert_default().merge(&readings);
        }
        spool.tell_stored(false);
        figures::count_unbatch(&mut phase, &unbatch, &store);
        figures::add_unbatch(&mut self.outcome.counts, &unbatch, &store);
        self.count_lookups(before.2, looked);
        let done = taken.is_ok() && !stopped;
        self.phase(spool, phase, done)?;
        taken?;
        Ok(done.then_some(standing))
    }

    fn count_lookups(&mut self, before: LookupCounts, now: LookupCounts) {
        let counts = &mut self.outcome.counts;
        counts.lookups += now.lookups - before.lookups;
        counts.lookup_text_reads += now.text_reads - before.text_reads;
        counts.lookup_tag_misses += now.tag_misses - before.tag_misses;
    }

    /// Readers with all that is in the spool on their shelf.
    fn start_readers(&mut self, spool: &mut Spool) -> Result<Option<Readers>, NetnewsError> {
        if self.config.readers == 0 {
            return Ok(None);
        }
        let failed = |source| NetnewsError::io("start the threads of readers for", self.feed.path(), source);
        let readers = Readers::start(self.config.readers, &spool.places, self.config.seed).map_err(failed)?;
        spool.tell_stored(true);
        let mut there = Vec::new();
        let groups = &spool.groups;
        text::scan::<NetnewsError>(&*spool.lib, std::path::Path::new(TEXT_FILE), |_, line| {
            let first = HistoryLine::parse(line).and_then(|line| line.files().next());
            there.extend(first.and_then(|(group, number)| Some((groups.find(group)?, number))));
            Ok(())
        })?;
        readers.add(groups, there.into_iter());
        Ok(Some(readers))
    }

    fn batch(&mut self, spool: &mut Spool, pass: u32) -> Result<bool, NetnewsError> {
        let (config, stop) = (self.config, self.stop);
        let passes = config.passes.get();
        let tell = &mut *self.tell;
        let mut stopped = false;
        let meter = PhaseMeter::start("batch", pass, self.storage);
        let counts = batcher::batch(spool, pass - 1, &config.batches_to, config.batch_bytes, |done| {
            if done.is_multiple_of(256) {
                tell(Event::Step { work: Work::Batch, pass, passes, done, of: 0 });
            }
            stopped = if done.is_multiple_of(256) { stop.is_due() } else { stop.is_asked() };
            !stopped
        })?;
        let mut phase = meter.stop(counts.articles, counts.bytes);
        phase.counters.insert("missing".to_owned(), counts.missing as f64);
        phase.counters.insert("batches".to_owned(), counts.batches as f64);
        let sum = &mut self.outcome.counts.batch;
        sum.articles += counts.articles;
        sum.bytes += counts.bytes;
        sum.batches += counts.batches;
        sum.missing += counts.missing;
        sum.skipped += counts.skipped;
        self.phase(spool, phase, !stopped)?;
        Ok(!stopped)
    }

    fn expire(&mut self, spool: &mut Spool, pass: u32) -> Result<bool, NetnewsError> {
        let (config, stop) = (self.config, self.stop);
        let (passes, lines) = (config.passes.get(), spool.history.ids());
        (self.tell)(Event::Step { work: Work::ExpireScan, pass, passes, done: 0, of: lines });
        let (retention, remember) = (config.retention.get(), config.remember.get());
        let more = self.articles_to_come(pass);
        let meter = PhaseMeter::start("expire-scan", pass, self.storage);
        let mut doomed = expire::rebuild(spool, pass, retention, remember, config.removal, more)?;
        let scan = meter.stop(doomed.counts.lines, 0);
        self.phase(spool, scan, true)?;

        let tell = &mut *self.tell;
        let (names, mut stopped) = (doomed.counts.names, false);
        let meter = PhaseMeter::start("expire", pass, self.storage);
        self.deleting = true;
        let deleted = expire::delete(&spool.places, &spool.groups, &mut doomed, config.removal, |done| {
            tell(Event::Step { work: Work::Expire, pass, passes, done, of: names });
            stopped = stop.is_due();
            !stopped
        })?;
        let mut phase = meter.stop(deleted, 0);
        phase.counters.insert("articles".to_owned(), doomed.counts.articles as f64);
        phase.counters.insert("names_missing".to_owned(), doomed.counts.names_missing as f64);
        let sum = &mut self.outcome.counts.expire;
        sum.lines += doomed.counts.lines;
        sum.articles += doomed.counts.articles;
        sum.lines_dropped += doomed.counts.lines_dropped;
        sum.names += doomed.counts.names;
        sum.names_missing += doomed.counts.names_missing;
        self.deleting = stopped;
        self.phase(spool, phase, !stopped)?;
        Ok(!stopped)
    }

    /// Articles that may still come, for the size of the new index.
    fn articles_to_come(&self, pass: u32) -> u64 {
        let left = self.config.passes.get().saturating_sub(pass);
        let per_batch = self.feed.articles().div_ceil(self.feed.batch_count().max(1));
        u64::from(left) * self.batches_per_pass * per_batch
    }

    /// Keeps a phase. One that was cut short and did nothing is not worth telling.
    fn phase(&mut self, spool: &Spool, phase: Phase, done: bool) -> Result<(), NetnewsError> {
        (self.tell)(Event::PhaseDone(Box::new(phase.clone())));
        if !done {
            self.partial = (phase.items > 0).then_some(phase);
            return Ok(());
        }
        self.journal.phases.push(phase);
        if self.config.keep == Keep::Remove { Ok(()) } else { self.journal.write(&*spool.lib) }
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
        figures::draw(&mut self.outcome, self.config);
        if let (true, Some(phase)) = (whole, self.partial.take()) {
            self.outcome.phases.push(phase);
        }
        outcome::judge(&mut self.outcome, self.storage);
        self.outcome
    }
}
