//! One segment in memory: its number, its open files, how much of it is live.
//!
//! ```text
//! 00000012.body    records, each at a block boundary
//! 00000012.index   index records, in the order of writing
//! ```

use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use disk::{Disk, DiskError, DiskFile, DiskOpen};
use rustix::fs::{Advice, fadvise, fstat};

use crate::options::Mode;

/// A segment.
pub(crate) struct Segment {
    pub number: u32,
    /// Index of its volume in the store.
    pub volume: usize,
    /// Of its index: each rewriting has a higher one.
    pub generation: AtomicU64,
    /// What supersedes records of this segment must be kept when it names this generation or a later one.
    pub since: AtomicU64,
    /// Changes begun from this instant on name the generation, not one before.
    pub generation_from: AtomicU64,
    pub live_blocks: AtomicU32,
    /// Live blocks when it last turned out to have no room that could be used; `u32::MAX`: never.
    pub exhausted_at: AtomicU32,
    /// The shortest free run that was looked for in vain.
    pub exhausted_for: AtomicU32,
    /// Who changes times in place holds it: its blocks are not given to others meanwhile.
    pub pins: AtomicU32,
    /// Being written.
    pub filling: AtomicBool,
    /// Its free blocks are being sought, to be written: who pins it now may come too late.
    pub sorting: AtomicBool,
    /// Being removed, empty: its index may be gone already.
    pub removed: AtomicBool,
    pub index_bytes: AtomicU64,
    /// Its index file was not there when the store was opened.
    pub index_lost: AtomicBool,
    /// It takes no more objects until it was repaired.
    unfit: AtomicBool,
    /// Its index was repaired, and lacks what counts no more: it is to be rewritten before that could be taken for lost.
    pub rewrite_due: AtomicBool,
    /// Which of the data file's records count was not known when its lost index was replaced.
    pub recovered: AtomicBool,
    /// A [`crate::cache_policy::queues::FifoQueue`].
    pub queue_kind: AtomicU8,
    /// As [`ExpiryRange`].
    expiry_first_s: AtomicU32,
    expiry_last_s: AtomicU32,
    disk: Arc<dyn Disk>,
    body: OnceLock<Arc<dyn DiskFile>>,
    opening: Mutex<()>,
    access: Access,
}

/// When the first and the last of some objects expire, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpiryRange {
    pub first_s: u32,
    /// [`ExpiryRange::NEVER_S`] when one of them never does.
    pub last_s: u32,
}

impl ExpiryRange {
    pub(crate) const NEVER_S: u32 = u32::MAX;
    /// Of no objects.
    pub(crate) const EMPTY: Self = Self { first_s: Self::NEVER_S, last_s: 0 };

    fn time_of(expires_s: u32) -> u32 {
        if expires_s == 0 { Self::NEVER_S } else { expires_s }
    }

    /// One object more; 0: it never expires.
    pub(crate) fn add(&mut self, expires_s: u32) {
        let expires_s = Self::time_of(expires_s);
        self.first_s = self.first_s.min(expires_s);
        self.last_s = self.last_s.max(expires_s);
    }
}

/// An index is at most this many times as long as all that its volume can hold: objects of one byte take 64 bytes and 56 in an index, and
/// their deletions twice 40 and marks, all of which may be in one index.
const INDEX_SHARE_MAX: u64 = 4;

/// How segments are used.
#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub writable: bool,
    /// Objects are read here and there, in no order that they were put in: a cache's.
    pub scattered: bool,
    /// No index of the volume is longer.
    pub index_bytes_max: u64,
}

impl Access {
    /// `volume_bytes`: what the volume can hold.
    pub(crate) fn of(mode: Mode, read_only: bool, volume_bytes: u64) -> Self {
        let index_bytes_max = volume_bytes.saturating_mul(INDEX_SHARE_MAX);
        Self { writable: !read_only, scattered: mode == Mode::Cache, index_bytes_max }
    }
}

/// Why an index file is not read though its length could be that of one: as good as all of it is a hole, which would only take memory. No
/// compression of a file system makes an index that small.
fn why_too_empty(file: &Arc<dyn DiskFile>, length: u64) -> Option<String> {
    let stored = fstat(file.descriptor()?).ok()?.st_blocks.cast_unsigned().saturating_mul(512);
    (length > HOLES_FROM_BYTES && stored < length / 64).then(|| {
        format!(
            "it has {length} bytes, of which {stored} are stored: it is not what the store wrote; `crumb pack repair` makes it again \
             from the data file"
        )
    })
}

/// At most this many bytes of a file.
fn read_begin(file: &dyn DiskFile, bytes_max: u64) -> Result<Vec<u8>, DiskError> {
    let mut bytes = vec![0; bytes_max as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// A shorter index takes little memory, whatever is in it.
const HOLES_FROM_BYTES: u64 = 64 << 20;

impl Segment {
    pub(crate) fn new(
        number: u32,
        volume: usize,
        disk: Arc<dyn Disk>,
        access: Access,
        generation: u64,
    ) -> Self {
        Self {
            number,
            volume,
            generation: AtomicU64::new(generation),
            since: AtomicU64::new(generation),
            generation_from: AtomicU64::new(0),
            live_blocks: AtomicU32::new(0),
            exhausted_at: AtomicU32::new(u32::MAX),
            exhausted_for: AtomicU32::new(u32::MAX),
            pins: AtomicU32::new(0),
            filling: AtomicBool::new(false),
            sorting: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            index_bytes: AtomicU64::new(0),
            index_lost: AtomicBool::new(false),
            unfit: AtomicBool::new(false),
            rewrite_due: AtomicBool::new(false),
            recovered: AtomicBool::new(false),
            queue_kind: AtomicU8::new(0),
            expiry_first_s: AtomicU32::new(ExpiryRange::EMPTY.first_s),
            expiry_last_s: AtomicU32::new(ExpiryRange::EMPTY.last_s),
            disk,
            body: OnceLock::new(),
            opening: Mutex::new(()),
            access,
        }
    }

    pub(crate) fn data_name(number: u32) -> String {
        format!("{number:08}.body")
    }

    pub(crate) fn index_name(number: u32) -> String {
        format!("{number:08}.index")
    }

    /// A data file before its index is durable.
    pub(crate) fn new_data_name(number: u32) -> String {
        format!("{number:08}.body.new")
    }

    /// A data file whose removal has begun.
    pub(crate) fn gone_data_name(number: u32) -> String {
        format!("{number:08}.body.gone")
    }

    /// The data file, opened on first use.
    pub(crate) fn body(&self) -> Result<&Arc<dyn DiskFile>, DiskError> {
        if let Some(body) = self.body.get() {
            return Ok(body);
        }
        let _turn = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.body.get().is_none() {
            let how = if self.access.writable { DiskOpen::Write } else { DiskOpen::Read };
            let body = self.disk.open(&Self::data_name(self.number), how)?;
            // Else what lies around an object is read with it, and takes the page cache from what is asked for. (Advice: who
            // does not take it does just that.)
            if let Some(descriptor) = body.descriptor().filter(|_| self.access.scattered) {
                let _ = fadvise(descriptor, 0, None, Advice::Random);
            }
            let _ = self.body.set(body);
        }
        Ok(self.body.get().expect("just set"))
    }

    /// The whole index file.
    ///
    /// # Errors
    /// When it cannot be read, and when it is longer than what the volume can hold has index records: something else is in its place.
    pub(crate) fn read_index(&self) -> Result<Vec<u8>, DiskError> {
        let name = Self::index_name(self.number);
        let file = self.disk.open(&name, DiskOpen::Read)?;
        let length = file.length()?;
        if let Some(why) = self.why_too_long(length).or_else(|| why_too_empty(&file, length)) {
            let source = io::Error::new(io::ErrorKind::FileTooLarge, why);
            return Err(DiskError { place: self.place(), name, operation: "read", source });
        }
        read_begin(&*file, length)
    }

    /// Why a file of this length is not the segment's index, if it is too long.
    pub(crate) fn why_too_long(&self, length: u64) -> Option<String> {
        let most = self.access.index_bytes_max;
        (length > most).then(|| {
            format!(
                "it has {length} bytes, and an index of this volume has {most} at most: it is not what the store wrote; `crumb pack \
                 repair` makes it again from the data file"
            )
        })
    }

    /// At most this many bytes of it.
    pub(crate) fn read_index_begin(&self, bytes_max: usize) -> Result<Vec<u8>, DiskError> {
        let file = self.disk.open(&Self::index_name(self.number), DiskOpen::Read)?;
        read_begin(&*file, file.length()?.min(bytes_max as u64))
    }

    /// Writes zeros over ranges of the index file, durably.
    pub(crate) fn clear_in_index(&self, ranges: &[Range<u64>]) -> Result<(), DiskError> {
        let file = self.disk.open(&Self::index_name(self.number), DiskOpen::Write)?;
        for range in ranges {
            file.write_at(&vec![0; (range.end - range.start) as usize], range.start)?;
        }
        file.sync()
    }

    pub(crate) fn pin(self: &Arc<Self>) -> Pin {
        self.pins.fetch_add(1, Ordering::SeqCst);
        Pin(self.clone())
    }

    /// Damage was found in it: nothing is put there, whichever thread holds it.
    pub(crate) fn never_fill(&self) {
        self.unfit.store(true, Ordering::SeqCst);
        self.filling.store(true, Ordering::SeqCst);
    }

    /// It is about to be repaired.
    pub(crate) fn may_fill(&self) {
        if self.unfit.swap(false, Ordering::SeqCst) {
            self.filling.store(false, Ordering::SeqCst);
        }
    }

    pub(crate) fn is_unfit(&self) -> bool {
        self.unfit.load(Ordering::SeqCst)
    }

    /// The volume that it is on, as its disk says.
    pub(crate) fn place(&self) -> String {
        self.disk.place()
    }

    /// Whether its data file is missing.
    pub(crate) fn lacks_data(&self) -> bool {
        self.body().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    }

    /// Why its data file cannot be opened, though something is there.
    pub(crate) fn no_access(&self) -> Option<DiskError> {
        self.body().err().filter(|error| error.kind() != std::io::ErrorKind::NotFound)
    }

    /// When its objects expire. Objects that are gone may be counted too, until the segment is swept or filled again.
    pub(crate) fn expiry(&self) -> ExpiryRange {
        ExpiryRange {
            first_s: self.expiry_first_s.load(Ordering::Relaxed),
            last_s: self.expiry_last_s.load(Ordering::Relaxed),
        }
    }

    /// Nothing is put into it meanwhile.
    pub(crate) fn set_expiry(&self, range: ExpiryRange) {
        self.expiry_first_s.store(range.first_s, Ordering::Relaxed);
        self.expiry_last_s.store(range.last_s, Ordering::Relaxed);
    }

    /// An object is put into it that expires then; 0: never.
    pub(crate) fn note_expiry(&self, expires_s: u32) {
        let expires_s = ExpiryRange::time_of(expires_s);
        self.expiry_first_s.fetch_min(expires_s, Ordering::Relaxed);
        self.expiry_last_s.fetch_max(expires_s, Ordering::Relaxed);
    }

    pub(crate) fn gain(&self, blocks: u32) {
        self.live_blocks.fetch_add(blocks, Ordering::Relaxed);
    }

    pub(crate) fn lose(&self, blocks: u32) {
        let before = self.live_blocks.fetch_sub(blocks, Ordering::Relaxed);
        debug_assert!(before >= blocks, "file {} lost more than it had", self.number);
    }
}

/// Keeps a segment's blocks from being given to other objects.
pub(crate) struct Pin(pub Arc<Segment>);

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.pins.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Announces to the kernel what a reader of a body from its beginning will read next.
pub(crate) struct Onward<'a> {
    segment: &'a Segment,
    told_end: u64,
}

/// As much as any kernel reads ahead at once, of its own.
const AHEAD_STEP_BYTES: u64 = 128 << 10;
const AHEAD_STEPS: u64 = 4;

impl<'a> Onward<'a> {
    pub(crate) fn of(segment: &'a Segment) -> Self {
        Self { segment, told_end: 0 }
    }

    /// He is there.
    pub(crate) fn at(&mut self, offset: u64) {
        let Some(descriptor) = self.segment.body().ok().and_then(|body| body.descriptor()) else { return };
        self.told_end = self.told_end.max(offset);
        while self.told_end < offset + AHEAD_STEPS * AHEAD_STEP_BYTES {
            // Advice: without it all is read the same, later.
            let _ = fadvise(descriptor, self.told_end, NonZeroU64::new(AHEAD_STEP_BYTES), Advice::WillNeed);
            self.told_end += AHEAD_STEP_BYTES;
        }
    }
}
