//! Segments that are being filled: their open files, their free blocks, and who gets the next.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use disk::DiskFile;

use super::direct::Direct;
use crate::format::TOMBSTONES_APART_BYTES;
use crate::locks::locked;
use crate::segments::bitmap::Bitmap;
use crate::segments::free_runs::FreeRuns;
use crate::segments::segment::Segment;

/// A segment being written: ends, when the last that writes to it lets go.
pub(crate) struct Session {
    pub(super) segment: Arc<Segment>,
    pub(super) body: Arc<dyn DiskFile>,
    pub(super) index: Arc<dyn DiskFile>,
    /// The data file for long writes, past the page cache.
    pub(super) direct: Direct,
    /// Checksums of records and of index records.
    pub(super) body_salt: u32,
    pub(super) index_salt: u32,
    /// Where the next index record goes. Only the volume's writer changes the three.
    pub(super) index_end: AtomicU64,
    /// All before this is durable.
    pub(super) durable_end: AtomicU64,
    /// What the last mark in the index says of it.
    pub(super) marked_end: AtomicU64,
    /// Room was taken up to here.
    pub(super) reserved_end: AtomicU64,
    /// Tombstones that are there once, and where they ended. They are written a second time further on, in another sector: two wrong bits
    /// in one place must not bring back what was deleted.
    pub(super) pending_copies: Mutex<Vec<(u64, Vec<u8>)>>,
}

/// So far apart are the two, at least.
const COPY_DISTANCE_BYTES: u64 = TOMBSTONES_APART_BYTES as u64;

impl Session {
    /// Of a segment whose index ends here, durably.
    pub(crate) fn new(
        segment: Arc<Segment>,
        body: Arc<dyn DiskFile>,
        index: Arc<dyn DiskFile>,
        direct: Direct,
        body_salt: u32,
        index_salt: u32,
        end: u64,
    ) -> Self {
        Self {
            segment,
            body,
            index,
            direct,
            body_salt,
            index_salt,
            index_end: AtomicU64::new(end),
            durable_end: AtomicU64::new(end),
            marked_end: AtomicU64::new(end),
            reserved_end: AtomicU64::new(end),
            pending_copies: Mutex::default(),
        }
    }

    /// Tombstones to be written again at this place, and how many they are.
    pub(super) fn copies_due(&self, at: u64) -> (Vec<u8>, usize) {
        let once = locked(&self.pending_copies);
        let due = once.iter().take_while(|(end, _)| end + COPY_DISTANCE_BYTES <= at).count();
        (once[..due].iter().flat_map(|(_, bytes)| bytes).copied().collect(), due)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.segment.filling.store(false, Ordering::SeqCst);
    }
}

/// The segments that the objects of one queue go to.
#[derive(Default)]
pub(super) struct Fillings {
    /// The first that has a free run long enough is taken. Those before the last are nearly full.
    pub(super) now: Vec<Filling>,
    pub(super) next: Option<Filling>,
    /// One more is wanted, for this many blocks; 0: for an index to write to.
    pub(super) want_blocks: Option<u32>,
}

/// Where the next objects go.
pub(crate) struct Filling {
    pub(super) session: Arc<Session>,
    pub(super) bitmap: Bitmap,
    /// Of a file that is mostly taken; else places are taken in their order, which keeps writing sequential.
    pub(super) free_runs: Option<FreeRuns>,
    /// Free when it was opened.
    pub(super) free_first: u32,
    /// The shortest run that was looked for in vain.
    pub(super) vain: u32,
}

impl Filling {
    pub(crate) fn new(session: Session, bitmap: Bitmap) -> Self {
        let free_first = bitmap.free();
        let free_runs = (free_first < bitmap.taken()).then(|| FreeRuns::of(&bitmap));
        Self { session: Arc::new(session), bitmap, free_runs, free_first, vain: u32::MAX }
    }

    /// Room for this many blocks.
    pub(super) fn take(&mut self, blocks: u32) -> Option<u32> {
        let found = match &mut self.free_runs {
            None => self.bitmap.take(blocks),
            Some(free_runs) => free_runs.take(blocks).inspect(|&at| {
                let fresh = self.bitmap.mark(at, blocks);
                assert!(fresh, "a free run was free");
            }),
        };
        if found.is_none() {
            self.vain = self.vain.min(blocks);
        }
        found
    }

    /// Nothing more goes here for now.
    pub(super) fn retire(self) {
        let segment = &self.session.segment;
        // Taken, as the bitmap has it: what was deleted since it was opened counts as won already.
        let taken = self.bitmap.taken();
        segment.exhausted_at.store(taken, Ordering::Relaxed);
        segment.exhausted_for.store(self.vain, Ordering::Relaxed);
    }
}
