//! The timed parts of a pass, each a phase of the outcome: unbatch, batch, the scan and the deletions of expire.
//!
//! Always holds: a meter stands around what is named and nothing else; what was counted goes into the phase and into the
//! sums of the run alike.

use std::fs::File;

use harness::{Entry, RankState};
use measure::{LapRecorder, MeterScope, Phase};

use super::super::batcher;
use super::super::config::Keep;
use super::super::expire;
use super::super::history::line::HistoryLine;
use super::super::history::{LookupCounts, TEXT_FILE, text};
use super::super::unbatch::Spool;
use super::Runner;
use super::clock;
use super::meter::PhaseMeter;
use super::readers::Readers;
use crate::NetnewsError;
use crate::batch::{BatchError, BatchReader};
use crate::spool::results::figures;
use crate::spool::results::outcome::{Event, Work};
use crate::spool::results::part::MeasuredPhase;
use crate::spool::resume::state::Standing;

impl Runner<'_> {
    /// Stores the pass's batches; none when stopped before the end.
    pub(super) fn unbatch(
        &mut self,
        spool: &mut Spool,
        mut standing: Standing,
    ) -> Result<Option<Standing>, NetnewsError> {
        let (pass, split) = (standing.pass, self.split);
        let (first_of_pass, last) = (split.begin_of(pass), split.end_of(pass));
        let readers = self.start_readers(spool)?;
        let before = (spool.counts, spool.storer.counts(), spool.history.counts());
        let mut reader: Option<BatchReader<File>> = None;
        let mut stopped = false;
        let meter = self.meter("unbatch", pass);
        let mut laps = LapRecorder::start();
        self.progress.begin(pass);
        let mut take_all = || -> Result<(), NetnewsError> {
            for number in standing.batches_done + 1..=last {
                let batch = self.feed.batch(number);
                let mut open = match reader.take() {
                    Some(before) => batch.open_with(before)?,
                    None => batch.open()?,
                };
                let arrived = clock::arrival(pass, number - first_of_pass, split.slots_of(pass));
                loop {
                    match open.next() {
                        Ok(Some(article)) => laps.lap(spool.offer(article, arrived)?),
                        Ok(None) => break,
                        Err(BatchError::Damaged { .. }) => {
                            self.part.counts.damaged += 1;
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
                self.part.counts.batches_offered += 1;
                standing.history_bytes = spool.history.text_bytes();
                if let Some(readers) = &readers {
                    let stored: Vec<_> = spool.take_stored().collect();
                    readers.add(&spool.groups, stored.into_iter());
                }
                self.progress.step(Work::Unbatch, number + 1 - first_of_pass, last + 1 - first_of_pass);
                reader = Some(open);
                stopped = number < last && self.stop.is_due();
                if stopped {
                    break;
                }
            }
            Ok(())
        };
        let taken = take_all();
        let (unbatch, store, looked) =
            (spool.counts - before.0, spool.storer.counts() - before.1, spool.history.counts());
        let mut phase = meter.stop(unbatch.stored, store.bytes);
        phase.timed = laps.stop();
        phase.readings = readers.map(Readers::end);
        spool.tell_stored(false);
        figures::count_unbatch(&mut phase.phase, &unbatch, &store);
        self.part.counts.unbatch += unbatch;
        self.part.counts.store += store;
        self.count_lookups(before.2, looked);
        let done = taken.is_ok() && !stopped;
        self.phase(spool, phase, done)?;
        taken?;
        Ok(done.then_some(standing))
    }

    /// Begins a phase.
    fn meter(&self, name: &'static str, pass: u32) -> PhaseMeter {
        let readers = if name == "unbatch" { self.config.readers as usize } else { 0 };
        let scope = MeterScope { has_ranks: self.gate.is_joined(), ..MeterScope::of_threads(1 + readers) };
        PhaseMeter::start(name, pass, self.storage, scope)
    }

    fn count_lookups(&mut self, before: LookupCounts, now: LookupCounts) {
        let counts = &mut self.part.counts;
        counts.lookups += now.lookups - before.lookups;
        counts.lookup_text_reads += now.text_reads - before.text_reads;
        counts.lookup_tag_misses += now.tag_misses - before.tag_misses;
        counts.index_reads += now.slots.reads - before.slots.reads;
        counts.index_writes += now.slots.writes - before.slots.writes;
    }

    /// Starts readers that may read any article of the spool.
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

    pub(super) fn batch(&mut self, spool: &mut Spool, pass: u32) -> Result<bool, NetnewsError> {
        let (config, stop) = (self.config, self.stop);
        if config.cold {
            self.cold.chill(spool, |arrived| arrived == pass - 1)?;
        }
        let mut stopped = false;
        let meter = self.meter("batch", pass);
        let (mut laps, mut written) = (LapRecorder::start(), 0);
        self.progress.begin(pass);
        let progress = &mut self.progress;
        let counts = batcher::batch(spool, pass - 1, &config.batches_to, config.batch_bytes, |done| {
            // A name whose article is gone is no operation.
            laps.lap(std::mem::replace(&mut written, done) < done);
            if done.is_multiple_of(256) {
                progress.step(Work::Batch, done, 0);
            }
            stopped = if done.is_multiple_of(256) { stop.is_due() } else { stop.is_asked() };
            !stopped
        })?;
        let mut phase = meter.stop(counts.articles, counts.bytes);
        phase.timed = laps.stop();
        phase.phase.counters.insert("missing".to_owned(), counts.missing as f64);
        phase.phase.counters.insert("batches".to_owned(), counts.batches as f64);
        self.part.counts.batch += counts;
        self.phase(spool, phase, !stopped)?;
        Ok(!stopped)
    }

    pub(super) fn expire(&mut self, spool: &mut Spool, pass: u32) -> Result<bool, NetnewsError> {
        let (config, stop) = (self.config, self.stop);
        self.progress.begin(pass);
        self.progress.step(Work::ExpireScan, 0, spool.history.ids());
        let (retention, remember) = (config.retention.get(), config.remember.get());
        let more = self.articles_to_come(pass);
        if config.cold {
            self.cold.chill(spool, |arrived| arrived <= pass.saturating_sub(retention))?;
        }
        let meter = self.meter("expire-scan", pass);
        self.progress.begin(pass);
        let index = config.history_index;
        let mut doomed = expire::rebuild(spool, pass, retention, remember, config.removal, more, index)?;
        let scan = meter.stop(doomed.counts.lines, 0);
        self.phase(spool, scan, true)?;

        let (names, mut stopped) = (doomed.counts.names, false);
        let meter = self.meter("expire", pass);
        let mut laps = LapRecorder::start();
        self.progress.begin(pass);
        let progress = &mut self.progress;
        self.deleting = true;
        let deleted =
            expire::delete(&spool.places, &spool.groups, &mut doomed, config.removal, &mut laps, |done| {
                progress.step(Work::Expire, done, names);
                stopped = stop.is_due();
                !stopped
            })?;
        let mut phase = meter.stop(deleted, 0);
        phase.timed = laps.stop();
        phase.phase.counters.insert("articles".to_owned(), doomed.counts.articles as f64);
        phase.phase.counters.insert("names_missing".to_owned(), doomed.counts.names_missing as f64);
        self.part.counts.expire += doomed.counts;
        self.deleting = stopped;
        self.phase(spool, phase, !stopped)?;
        Ok(!stopped)
    }

    /// Makes durable what the pass left in memory.
    pub(super) fn flush(&mut self, spool: &Spool, pass: u32) -> Result<(), NetnewsError> {
        let meter = self.meter("flush", pass);
        self.progress.begin(pass);
        spool.make_durable()?;
        let phase = meter.stop(0, 0);
        self.costs.flushed(&self.part.counts);
        self.phase(spool, phase, true)
    }

    /// Articles that may still come, for the size of the new index.
    fn articles_to_come(&self, pass: u32) -> u64 {
        let left = self.split.offered().saturating_sub(self.split.end_of(pass));
        let per_batch = self.feed.articles().div_ceil(self.feed.batch_count().max(1));
        left * per_batch
    }

    /// Waits until every rank is ready for what follows `phase`, which ended here before its work was done unless `done`.
    fn enter_gate_after(&mut self, phase: &MeasuredPhase, done: bool) {
        let state = match (self.stop.is_asked(), self.stop.is_due(), done) {
            (false, false, true) => RankState::On,
            (false, true, _) => RankState::TimeUp,
            _ => RankState::Failed,
        };
        let next = format!("what follows {} of pass {}", phase.phase.name, phase.phase.pass);
        let entry = self.gate.enter(&next, state);
        if entry == Entry::Stop || state == RankState::Failed && self.gate.is_joined() {
            self.stop.ask();
        }
    }

    /// Keeps a phase. One that was cut short and did nothing is not worth a line.
    fn phase(&mut self, spool: &Spool, measured: MeasuredPhase, done: bool) -> Result<(), NetnewsError> {
        let steps = self.progress.steps(&measured.phase);
        let recorded = measured.recorded();
        self.progress.tell(Event::PhaseDone { phase: Box::new(recorded.clone()) });
        self.enter_gate_after(&measured, done);
        if done || recorded.items > 0 {
            self.part.phases.push(MeasuredPhase { steps, whole: done, ..measured });
        }
        if !done {
            return Ok(());
        }
        // A resumed run reports its figures, and not how it went from second to second.
        self.journal.phases.push(Phase { time_series: None, ..recorded });
        if self.config.keep == Keep::Remove { Ok(()) } else { self.journal.write(&*spool.lib) }
    }
}
