//! Rewrites indexes that were lost, once it is known which records count.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::index::{end_of, index_or_records, unindexed};
use super::misplaced::misplaced;
use crate::error::StoreError;
use crate::objects::Objects;
use crate::procedures::make_room::NoRoom;
use crate::procedures::rewrite_index::rewrite_index;
use crate::segments::index_file::{IndexRead, index_of};
use crate::segments::segment::Segment;

/// Rewrites lost indexes, once it is known which records count. `others`: first the other indexes, without what counts no
/// more, as what superseded it may have been in a lost one.
pub(crate) fn restore(objects: &Objects, others: bool) {
    let segments = objects.segments.all_files();
    let is_lost = |segment: &&Arc<Segment>| segment.index_lost.load(Ordering::SeqCst);
    if objects.setup.read_only || !segments.iter().any(|segment| is_lost(&segment)) {
        return;
    }
    // Tombstones that were written while the table was filled, before the indexes that show the need are whole again.
    objects.make_durable();
    let mut turns = HashMap::from([(false, Vec::new()), (true, Vec::new())]);
    for segment in &segments {
        turns.entry(is_lost(&segment)).or_default().push(segment);
    }
    if others {
        for segment in &turns[&false] {
            let done = write_anew(objects, segment, false);
            if let Err(error) = done {
                tracing::error!(%error, file = segment.number, "an index could not be rewritten: lost ones stay lost");
                return;
            }
        }
    }
    for segment in &turns[&true] {
        segment.may_fill();
        match write_anew(objects, segment, true) {
            Ok(()) => segment.index_lost.store(false, Ordering::SeqCst),
            Err(error) => {
                segment.never_fill();
                tracing::error!(%error, file = segment.number, "a lost index could not be rewritten");
            }
        }
    }
}

/// Rewrites an index without what counts no more; one that is lost only when that is asked for. Nothing happens to a file
/// that is being filled, or is never filled.
pub(crate) fn write_anew(objects: &Objects, segment: &Arc<Segment>, lost: bool) -> Result<(), StoreError> {
    if segment.filling.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    if lost && let Some(error) = misplaced(objects, segment) {
        tracing::error!(%error, file = segment.number, "a segment is left alone");
        segment.never_fill();
        return Ok(());
    }
    let volume = objects.segments.volume(segment.volume);
    let read = if lost { all_told(objects, segment) } else { index_of(objects.setup.store, segment) };
    let done = read.map_err(NoRoom::Failed).and_then(|read| rewrite_index(objects, &volume, segment, read));
    if let Err(NoRoom::Failed(StoreError::NotAVolume { .. } | StoreError::Foreign { .. })) = done {
        // It stays as it is.
        segment.never_fill();
        return Ok(());
    }
    segment.filling.store(false, Ordering::SeqCst);
    match done {
        Ok((_, end, _)) => {
            segment.index_bytes.store(end, Ordering::Relaxed);
            Ok(())
        }
        Err(NoRoom::Full) => Err(StoreError::Full),
        Err(NoRoom::Failed(error)) => Err(error),
    }
}

/// All that counts in a file, whatever its index lacks.
fn all_told(objects: &Objects, segment: &Segment) -> Result<IndexRead, StoreError> {
    let mut read = index_or_records(objects, segment)?;
    let unindexed = unindexed(objects, segment, &read)?;
    // Zeros behind an index record that was cut off could make it whole, so that it is named twice.
    read.bytes.truncate(end_of(&read) as usize);
    read.bytes.extend_from_slice(&unindexed.index_records);
    Ok(read)
}
