//! One table of files and the operations on it, in the order that the draws give.
//!
//! Draws of an operation, in order: the location (when there are several), the subdirectory (from two on), the
//! size; for a file that is there, slots until one is used, then the bytes to append.
//!
//! Always holds: a file is in the table from the moment it is made until it is removed, so that whatever fails in
//! between, the deleting phase finds it; what was there before is not in the table and is never touched.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use files::{Access, FileSystem, FsError, OpenFile, SyncScope};
use measure::{LatencyHistogram, TimeSeriesRecorder};

use super::outcome::{Counts, Latencies};
use super::{Phase, Place, RunOptions, SyncMode, refused};
use crate::random::Random;
use crate::stream::{STDIO_BUFFER_BYTES_MAX, Stream, StreamError};
use crate::table::{Entry, Slot, Table};
use crate::text::Text;
use crate::{PostmarkError, Settings};

pub(super) struct Worker<'a> {
    pub(super) counts: Counts,
    pub(super) transactions_done: u64,
    pub(super) out_of_files: bool,
    pub(super) latencies: Option<Box<Latencies>>,
    /// Of the phase under way, and when it began.
    time_series: Option<(Instant, TimeSeriesRecorder)>,
    settings: &'a Settings,
    sync: SyncMode,
    stop: &'a AtomicBool,
    done: Arc<AtomicU64>,
    sites: Vec<Site>,
    random: Random,
    text: Text,
    table: Table,
    stream: Stream,
    name: FileName,
    files_made: u32,
}

/// A place and what the worker made directly in it.
struct Site {
    fs: Arc<dyn FileSystem>,
    /// Weights of this place and of those before it.
    weight_to: u32,
    buffer_bytes_max: usize,
    directories_made: u32,
}

/// A path relative to its place, built in one buffer for all files.
#[derive(Default)]
struct FileName {
    bytes: Vec<u8>,
}

/// Draws between two looks at whether to stop, while looking for a used slot in a table that is nearly empty.
const DRAWS_AT_ONCE: u32 = 1 << 16;

impl<'a> Worker<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        places: &[Place],
        how: &RunOptions,
        seed: u32,
        stop: &'a AtomicBool,
    ) -> Result<Self, PostmarkError> {
        if places.is_empty() {
            return Err(PostmarkError::NoPlace);
        }
        let total = places.iter().map(|place| u64::from(place.weight.get())).sum();
        if total > i32::MAX as u64 {
            return Err(PostmarkError::Weights { total });
        }
        let mut weight_to = 0;
        let sites = places.iter().map(|place| {
            weight_to += place.weight.get();
            let local = place.fs.local_root().is_some();
            let buffer_bytes_max = if local { STDIO_BUFFER_BYTES_MAX } else { usize::MAX };
            Site { fs: Arc::clone(&place.fs), weight_to, buffer_bytes_max, directories_made: 0 }
        });
        let sites = sites.collect();
        let table = Table::new(settings.number.get())?;
        let mut random = Random::seeded(seed);
        let text = Text::draw(settings.size.high(), &mut random, stop)?;
        let sync_writes = how.sync == SyncMode::Every;
        let (read_block, write_block) = (settings.read_block, settings.write_block);
        Ok(Self {
            counts: Counts::default(),
            transactions_done: 0,
            out_of_files: false,
            latencies: how.latencies.then(Box::default),
            time_series: None,
            settings,
            sync: how.sync,
            stop,
            done: Arc::clone(&how.done),
            sites,
            random,
            text,
            table,
            stream: Stream::new(settings.buffered, read_block, write_block, sync_writes),
            name: FileName::default(),
            files_made: 0,
        })
    }

    /// One phase. When it fails in a removing phase it has removed all that can be.
    pub(super) fn work(&mut self, phase: Phase, tenth: &mut dyn FnMut()) -> Result<(), PostmarkError> {
        self.time_series = self.began().map(|began| (began, TimeSeriesRecorder::start()));
        let done = match phase {
            Phase::MakeDirectories => self.make_directories(),
            Phase::Create => self.create_files(),
            Phase::Transactions => self.transactions(tenth),
            Phase::Delete => self.delete_files(),
            Phase::RemoveDirectories => self.remove_directories(),
        };
        if phase == Phase::Transactions && self.latencies.is_some() {
            for slot in (0..self.table.slots()).filter_map(|index| self.table.used(index)) {
                self.counts.files_kept += 1;
                self.counts.bytes_kept += u64::from(self.table.entry(slot).size_bytes);
            }
        }
        if let (Some(latencies), Some((_, time_series))) = (&mut self.latencies, self.time_series.take()) {
            latencies.steps.push((phase, time_series.stop()));
        }
        done
    }

    fn make_directories(&mut self) -> Result<(), PostmarkError> {
        for site in &mut self.sites {
            for index in 0..self.settings.directories_made() {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let made = site.fs.mkdir(self.name.of_directory(index));
                made.map_err(|source| refused(source, Phase::MakeDirectories))?;
                site.directories_made += 1;
            }
        }
        Ok(())
    }

    fn create_files(&mut self) -> Result<(), PostmarkError> {
        for _ in 0..self.settings.number.get() {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if self.create(Phase::Create)? {
                self.counts.created_alone += 1;
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn transactions(&mut self, tenth: &mut dyn FnMut()) -> Result<(), PostmarkError> {
        let transactions = self.settings.transactions.get();
        // Below 10 transactions the original divides by this 0 and is gone.
        let step = (transactions / 10).max(1);
        for done in 0..transactions {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if self.counts.deleted() == self.counts.created() {
                self.out_of_files = true;
                break;
            }
            self.transaction()?;
            self.transactions_done += 1;
            self.done.fetch_add(1, Ordering::Relaxed);
            if done % step == 0 {
                tenth();
            }
        }
        Ok(())
    }

    #[inline]
    fn transaction(&mut self) -> Result<(), PostmarkError> {
        if let Some(tenths) = self.settings.read_bias.tenths() {
            let read = self.random.below(10) < tenths;
            let Some(slot) = self.any_used() else { return Ok(()) };
            if read { self.read(slot)? } else { self.append(slot)? }
        }
        if let Some(tenths) = self.settings.create_bias.tenths() {
            if self.random.below(10) < tenths {
                if self.create(Phase::Transactions)? {
                    self.counts.created_mixed += 1;
                }
            } else {
                let Some(slot) = self.any_used() else { return Ok(()) };
                self.delete(slot).map_err(|source| refused(source, Phase::Transactions))?;
                self.counts.deleted_mixed += 1;
            }
        }
        Ok(())
    }

    /// A used slot, as drawn; none when asked to stop meanwhile. At least one is used here.
    #[inline]
    fn any_used(&mut self) -> Option<Slot> {
        let slots = self.table.slots();
        loop {
            for _ in 0..DRAWS_AT_ONCE {
                let index = self.random.below(slots);
                if let Some(slot) = self.table.used(index) {
                    return Some(slot);
                }
            }
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
        }
    }

    /// Makes a file, unless the table is full.
    fn create(&mut self, phase: Phase) -> Result<bool, PostmarkError> {
        let Some(slot) = self.table.vacant() else { return Ok(false) };
        let place = self.draw_place();
        let subdirectory = self.random.below(self.settings.directories_made());
        self.files_made += 1;
        let (low, high) = (self.settings.size.low(), self.settings.size.high());
        let size_bytes = low + self.random.below(high - low);
        let entry = Entry { number: self.files_made, size_bytes, place, subdirectory };

        let began = self.began();
        let Site { fs, buffer_bytes_max, .. } = &self.sites[place as usize];
        let path = self.name.of(entry, self.settings);
        let mut file = fs.create(path).map_err(|source| refused(source, phase))?;
        self.table.occupy(slot, entry);
        let written = self.stream.write(&mut *file, self.text.first(size_bytes), *buffer_bytes_max);
        written.map_err(|error| self.failed(error, entry, phase))?;
        self.close_written(file, phase)?;
        self.note(began, |latencies| &mut latencies.create);
        self.counts.note_written(size_bytes);
        Ok(true)
    }

    fn read(&mut self, slot: Slot) -> Result<(), PostmarkError> {
        let entry = self.table.entry(slot);
        let began = self.began();
        let Site { fs, buffer_bytes_max, .. } = &self.sites[entry.place as usize];
        let path = self.name.of(entry, self.settings);
        let storage = |source| refused(source, Phase::Transactions);
        let mut file = fs.open(path, Access::Read).map_err(storage)?;
        let read = self.stream.read(&mut *file, entry.size_bytes, *buffer_bytes_max);
        read.map_err(|error| self.failed(error, entry, Phase::Transactions))?;
        file.close().map_err(storage)?;
        self.note(began, |latencies| &mut latencies.read);
        self.counts.read += 1;
        self.counts.note_read(entry.size_bytes);
        Ok(())
    }

    /// Grows a file; one that is as large as files get is left alone.
    fn append(&mut self, slot: Slot) -> Result<(), PostmarkError> {
        let entry = self.table.entry(slot);
        let high = self.settings.size.high();
        if entry.size_bytes >= high {
            return Ok(());
        }
        let by_bytes = self.random.below(high - entry.size_bytes) + 1;
        let began = self.began();
        let Site { fs, buffer_bytes_max, .. } = &self.sites[entry.place as usize];
        let path = self.name.of(entry, self.settings);
        let storage = |source| refused(source, Phase::Transactions);
        let mut file = fs.open(path, Access::Append).map_err(storage)?;
        if self.settings.buffered {
            // stdio goes to the end when it opens to append, although the kernel appends by itself.
            file.seek_end().map_err(storage)?;
        }
        let written = self.stream.write(&mut *file, self.text.first(by_bytes), *buffer_bytes_max);
        written.map_err(|error| self.failed(error, entry, Phase::Transactions))?;
        self.close_written(file, Phase::Transactions)?;
        self.note(began, |latencies| &mut latencies.append);
        self.table.grow(slot, by_bytes);
        self.counts.appended += 1;
        self.counts.note_written(by_bytes);
        Ok(())
    }

    fn delete(&mut self, slot: Slot) -> Result<(), FsError> {
        let entry = self.table.entry(slot);
        let began = self.began();
        let fs = &self.sites[entry.place as usize].fs;
        fs.unlink(self.name.of(entry, self.settings))?;
        self.note(began, |latencies| &mut latencies.delete);
        self.table.vacate(slot);
        Ok(())
    }

    /// Removes the files in the table. Continues after a file that cannot be removed, but not after the storage is lost.
    fn delete_files(&mut self) -> Result<(), PostmarkError> {
        let mut left = Left::default();
        for index in 0..self.table.slots() {
            let Some(slot) = self.table.used(index) else { continue };
            let place = self.table.entry(slot).place as usize;
            let removed = if left.lost { Err(None) } else { self.delete(slot).map_err(Some) };
            match removed {
                Ok(()) => self.counts.deleted_alone += 1,
                Err(error) => left.note(&self.sites[place], error),
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        left.into_result()
    }

    fn remove_directories(&mut self) -> Result<(), PostmarkError> {
        let mut left = Left::default();
        for site in &mut self.sites {
            for index in 0..std::mem::take(&mut site.directories_made) {
                let name = self.name.of_directory(index);
                let removed = if left.lost { Err(None) } else { site.fs.rmdir(name).map_err(Some) };
                if let Err(error) = removed {
                    left.note(site, error);
                }
            }
        }
        left.into_result()
    }

    fn draw_place(&mut self) -> u32 {
        let [.., last] = &self.sites[..] else { return 0 };
        if self.sites.len() == 1 {
            return 0;
        }
        let drawn = self.random.below(last.weight_to);
        self.sites.partition_point(|site| site.weight_to <= drawn) as u32
    }

    fn close_written(&self, mut file: Box<dyn OpenFile>, phase: Phase) -> Result<(), PostmarkError> {
        let storage = |source| refused(source, phase);
        if self.sync == SyncMode::Close {
            file.sync(SyncScope::All).map_err(storage)?;
        }
        file.close().map_err(storage)
    }

    fn failed(&self, error: StreamError, entry: Entry, phase: Phase) -> PostmarkError {
        let name = || {
            let place = self.sites[entry.place as usize].fs.place();
            format!("{}/{}", place.trim_end_matches('/'), self.name.path().display())
        };
        match error {
            StreamError::Storage(source) => refused(source, phase),
            StreamError::NothingWritten => PostmarkError::NothingWritten { name: name() },
            StreamError::Shortened { read_bytes } => {
                PostmarkError::Shortened { name: name(), read_bytes, size_bytes: entry.size_bytes }
            }
        }
    }

    fn began(&self) -> Option<Instant> {
        self.latencies.is_some().then(Instant::now)
    }

    /// An operation that began then has ended now.
    #[inline]
    fn note(&mut self, began: Option<Instant>, of: impl FnOnce(&mut Latencies) -> &mut LatencyHistogram) {
        let (Some(latencies), Some(began)) = (&mut self.latencies, began) else { return };
        let now = Instant::now();
        let latency = now.saturating_duration_since(began);
        of(latencies).record(latency);
        if let Some((phase_began, time_series)) = &mut self.time_series {
            time_series.ok(now.saturating_duration_since(*phase_began), latency);
        }
    }
}

/// What could not be removed: the first error in full, and the number of the others.
#[derive(Default)]
struct Left {
    first: Option<(String, FsError)>,
    count: u64,
    lost: bool,
}

impl Left {
    fn note(&mut self, site: &Site, error: Option<FsError>) {
        self.count += 1;
        if let Some(error) = error {
            self.lost |= matches!(error, FsError::Lost { .. });
            self.first.get_or_insert_with(|| (site.fs.place(), error));
        }
    }

    fn into_result(self) -> Result<(), PostmarkError> {
        match self.first {
            None => Ok(()),
            Some((place, source)) => Err(PostmarkError::Left { place, left: self.count, source }),
        }
    }
}

impl FileName {
    fn of_directory(&mut self, index: u32) -> &Path {
        self.bytes.clear();
        self.bytes.push(b's');
        self.push_number(index);
        self.path()
    }

    #[inline]
    fn of(&mut self, entry: Entry, settings: &Settings) -> &Path {
        self.bytes.clear();
        if settings.directories_made() > 0 {
            self.bytes.push(b's');
            self.push_number(entry.subdirectory);
            self.bytes.push(b'/');
        }
        self.push_number(entry.number);
        self.path()
    }

    fn push_number(&mut self, number: u32) {
        // Writing to memory cannot fail.
        let _ = write!(self.bytes, "{number}");
    }

    fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.bytes))
    }
}
