//! Writes zeros ahead of what comes next, where little is synced at a time: ext4 and XFS note of each reserved block when it is first
//! written, and a sync of such blocks commits the note as well, with two or three writes more and a wait for the thread that commits.
//!
//! ```text
//! space: | written | next contents -> zeros, zeros, | reserved, never written      |      the journal's room likewise
//! ```
//!
//! Half a mebibyte of zeros costs one such sync, and then contents go to blocks without a note.
//!
//! Always holds: zeros go only to free blocks and behind the end of the journal, while nothing can be given out; what is there reads
//! as zeros before and after. Nothing is written ahead where the disk is nearly full, or after more than a little.

use std::ops::Range;
use std::sync::atomic::Ordering;

use disk::DiskError;

use super::{Engine, State, locked};
use crate::format::BLOCK_BYTES;

/// What is zeroed at a time.
const AHEAD_BYTES: u64 = 512 << 10;
/// Zeros that are left when the next are written.
const LEFT_BYTES: u64 = 64 << 10;
/// In the journal's room both are smaller by this: a sync of little adds a record or a few.
const JOURNAL_SHARE: u64 = 8;
/// Contents since the last sync, at most: with more than that, the note is a small part of what the sync costs.
const LITTLE_BYTES: u64 = 256 << 10;
/// File systems keep track of pages.
const PAGE_BYTES: u64 = 4096;
/// The most that is written at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Where nothing has to be written ahead. Offsets in `space`.
#[derive(Default)]
pub(super) struct Ahead {
    contents: Range<u64>,
    journal: Range<u64>,
    /// Where the next contents would have gone at the last sync.
    next: u64,
}

impl Ahead {
    fn wants(ready: &Range<u64>, free: Option<&Range<u64>>, left: u64) -> bool {
        free.is_some_and(|free| {
            !ready.contains(&free.start) || ready.end < free.end && ready.end - free.start < left
        })
    }
}

impl State {
    /// Where the next contents go if nothing else is freed, and the end of what is free there.
    fn next_contents(&self) -> Option<Range<u64>> {
        self.space.given_out_from().map(|run| run.start * BLOCK_BYTES..run.end() * BLOCK_BYTES)
    }
}

impl Engine {
    /// Before a sync, by the thread that syncs.
    pub(super) fn write_ahead(&self) {
        let mut ahead = locked(&self.ahead);
        let (contents, journal) = {
            let state = self.read();
            (state.next_contents(), state.tail.room_left())
        };
        let next = contents.as_ref().map_or(0, |free| free.start);
        let since = next.checked_sub(std::mem::replace(&mut ahead.next, next));
        if !self.has_begun.load(Ordering::Acquire) || since.is_none_or(|bytes| bytes > LITTLE_BYTES) {
            return;
        }
        let wants_contents = Ahead::wants(&ahead.contents, contents.as_ref(), LEFT_BYTES);
        let wants_journal = Ahead::wants(&ahead.journal, journal.as_ref(), LEFT_BYTES / JOURNAL_SHARE);
        if !(wants_contents || wants_journal) {
            return;
        }
        let written = self.disk.room().and_then(|room| {
            if room.free_bytes < self.shape.segment_bytes.into() {
                return Ok(());
            }
            // No contents are given out and no record is added meanwhile.
            let state = self.write();
            if wants_contents && let Some(free) = state.next_contents() {
                ahead.contents = self.zeroed(free, AHEAD_BYTES)?;
            }
            if wants_journal && let Some(free) = state.tail.room_left() {
                ahead.journal = self.zeroed(free, AHEAD_BYTES / JOURNAL_SHARE)?;
            }
            Ok(())
        });
        // It would only have saved time. If the disk fails, the sync says so.
        if let Err(error) = written {
            tracing::debug!(place = %self.place, error = error.to_string(), "nothing could be written ahead");
        }
    }

    /// Zeros of up to `bytes` at the beginning of what is free, where it was never written. Returns what is ready now.
    fn zeroed(&self, free: Range<u64>, bytes: u64) -> Result<Range<u64>, DiskError> {
        let first = free.start.next_multiple_of(PAGE_BYTES);
        let end = (first + bytes).min(free.end);
        let mut at = first;
        while at < end {
            let unwritten = self.file.unwritten_at(at)?.min(end - at).min(ZEROS.len() as u64);
            if unwritten == 0 {
                // Written already, or in the cache beside what was just written: there a large folio counts as data as a whole. Behind
                // it may be more.
                at += PAGE_BYTES;
                continue;
            }
            self.file.write_at(&ZEROS[..unwritten as usize], at)?;
            at += unwritten;
        }
        Ok(free.start..end.max(free.start))
    }
}
