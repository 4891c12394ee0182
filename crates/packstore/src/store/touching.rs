//! Times of requests: readers note them, a volume's writer writes them into the records, in place.
//!
//! As with `relatime` of a file system, a time is written only when the one on disk is older than [`STEP_S`]: a hot object
//! costs 12 bytes a day, and the time of a request is at most a day older than the request.
//!
//! Always holds: who reads never waits. A note is dropped when the writer has too many already, when its lock is held, or when
//! the key is being changed: the next request notes it again.
//! Not here: `Store::touch`, which writes at once and always.

use crate::clock::{about_now_s, now_s};
use crate::error::StoreError;
use crate::format::{Name, TIMES_AT, encode_times};
use crate::objects::Objects;
use crate::objects::read::{Depth, Record};
use crate::segments::volume::{full, is_full};
use crate::store::Store;
use crate::write_queue::group::TableEntry;
use crate::write_queue::keys::Taken;

/// A time on disk that is younger than this stays.
const STEP_S: u32 = 24 * 60 * 60;

impl Store {
    /// Notes that an object was asked for, and when it expires from now on if that changed; false when there is none.
    /// Written in place, not synced: after power loss the old times may be back.
    ///
    /// # Errors
    /// When it cannot be read or written; [`StoreError::Expiry`] when it is to expire at another time in a store in which that removes
    /// it: segments know when their objects expire from their puts.
    pub fn touch(&self, key: &[u8], expires_s: Option<u32>) -> Result<bool, StoreError> {
        Self::checked(key, &[])?;
        self.readiness.wait_ready()?;
        if self.objects.setup.read_only {
            return Err(StoreError::ReadOnly { why: "the store was opened read-only".to_owned() });
        }
        let hash = self.name_hash(key);
        let _taken = Taken::one(self.objects.queue.keys(), hash);
        let Some(record) = self.objects.find(Name::of(key), hash, Depth::Head)? else { return Ok(false) };
        if self.objects.has_expired(record.head.expires_s) {
            return Ok(false);
        }
        if self.objects.setup.expires && expires_s.is_some_and(|expires_s| expires_s != record.head.expires_s)
        {
            return Err(StoreError::Expiry);
        }
        self.objects.index.touch(&record.entry);
        if self.objects.is_unwritten(record.address) {
            // The group that brings the record to disk would write over the times.
            self.flush()?;
        }
        let expires_s = expires_s.unwrap_or(record.head.expires_s);
        write_times(&self.objects, &record, expires_s)
    }
}

/// Whether the time of the last request is so old that a new one is worth a write. Times that are damaged (0) stay as they are.
fn is_old(requested_s: u32, now_s: u32) -> bool {
    requested_s != 0 && now_s.saturating_sub(requested_s) >= STEP_S
}

/// Somebody requested an object: counts for eviction, and for its time when that is old.
pub(crate) fn requested(objects: &Objects, key: &[u8], entry: &TableEntry, requested_s: u32) {
    objects.index.touch(entry);
    if objects.setup.read_only || !is_old(requested_s, about_now_s()) {
        return;
    }
    let Some(segment) = objects.segments.segment_at(entry.location) else { return };
    objects.segments.volume(segment.volume).queue.note_request(entry.hash, key);
}

/// Writes that an object was requested, unless it is being changed or waits to be written itcore. By the volume's writer, which
/// must wait for neither: both may wait for it.
///
/// # Errors
/// When the record cannot be read or written.
pub(crate) fn write_request(objects: &Objects, hash: u64, key: &[u8]) -> Result<(), StoreError> {
    let Some(_taken) = Taken::one_at_once(objects.queue.keys(), hash) else { return Ok(()) };
    let Some(record) = objects.find(Name::of(key), hash, Depth::Head)? else { return Ok(()) };
    if is_old(record.head.requested_s, about_now_s()) && !objects.is_unwritten(record.address) {
        write_times(objects, &record, record.head.expires_s)?;
    }
    Ok(())
}

/// Writes into a record that it was requested now, and when it expires; false when it is not there any more. Its key must be
/// taken, and it must have reached the disk.
pub(crate) fn write_times(objects: &Objects, record: &Record, expires_s: u32) -> Result<bool, StoreError> {
    let times = encode_times(record.head.sequence, now_s(), expires_s);
    let Some(segment) = objects.segments.file(record.address.file) else { return Ok(false) };
    let volume = objects.segments.volume(segment.volume);
    if let Some(failure) = volume.failure() {
        return Err(failure);
    }
    let pin = segment.pin();
    if !objects.index.has(record.entry.hash, record.entry.location) {
        return Ok(false);
    }
    let offset = objects.setup.shape.offset(record.address.block) + TIMES_AT;
    let written = pin.0.body()?.write_at(&times, offset);
    // Not before: a reader meanwhile keeps the old times.
    objects.policy.memory().forget(record.entry.hash);
    match written {
        Ok(()) => Ok(true),
        // A full disk is no broken one: on a file system that copies on writing, this too takes room.
        Err(error) if is_full(&error) => Err(full(error)),
        Err(error) => Err(volume.fail(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_time_that_is_a_day_old_is_written_anew() {
        let now_s = 1_800_000_000;
        assert!(is_old(now_s - STEP_S, now_s) && is_old(1, now_s));
        assert!(!is_old(now_s - STEP_S + 1, now_s), "younger than a day");
        assert!(!is_old(now_s + 10, now_s), "the clock was set back");
        assert!(!is_old(0, now_s), "damaged");
    }
}
