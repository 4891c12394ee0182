//! The next segment to fill in a cyclic store, which overwrites its oldest objects when it is full, as CNFS does.
//!
//! 1. After an opening, the newest segment of the volume, if it was not full: each opening would cost the rest of one otherwise.
//! 2. A new segment, when the volume may have one more.
//! 3. The segment that was filled longest ago. All objects in it are forgotten, whatever they are, and it is filled from its beginning.
//!
//! Always holds: a volume's segments are emptied in the order in which they were filled, by the generations of their indexes, also
//! after it was opened again. Holes that deleted objects leave are not filled before their segment's turn.
//! Not here: several volumes, each of which goes round for itself.
//! Source: Fritchie, "The Cyclic News Filesystem: Getting INN To Do More With Less", LISA 1997.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cache_policy::queues::FifoQueue;
use crate::error::StoreError;
use crate::format::{IndexRecord, IndexRecords};
use crate::objects::Objects;
use crate::procedures::make_room::{
    NoRoom, create, forget, idle, is_worth, may_have_one_more, of_volume, refill,
};
use crate::segments::index_file::{IndexRead, index_of};
use crate::segments::segment::Segment;
use crate::segments::volume::Volume;
use crate::write_queue::filling::Filling;

/// The next file to fill.
pub(crate) fn next_in_cycle(
    objects: &Objects,
    volume: &Arc<Volume>,
    index: usize,
    want_blocks: u32,
) -> Result<Filling, NoRoom> {
    let mut mine = of_volume(objects, index);
    mine.sort_by_key(|segment| segment.generation.load(Ordering::SeqCst));
    if let Some(newest) = mine.last()
        && idle(&newest)
        && is_worth(newest, objects.setup.shape.segment_blocks, want_blocks)
        && let Some(filling) = refill(objects, volume, newest, FifoQueue::Small)?
    {
        return Ok(filling);
    }
    if may_have_one_more(objects, volume, &mine) {
        match create(objects, volume, index, FifoQueue::Small) {
            // The disk is smaller than the store may be: it goes round within what there is.
            Err(NoRoom::Full) => {}
            done => return done,
        }
    }
    for segment in mine.iter().filter(|segment| !segment.filling.load(Ordering::SeqCst)) {
        match forget_all(objects, volume, segment) {
            // It takes no more objects: `refill` notices, too, and says so.
            Err(StoreError::NotAVolume { .. } | StoreError::Foreign { .. }) => {}
            done => done.map_err(NoRoom::Failed)?,
        }
        // One whose blocks are being sent is empty for readers all the same, and is filled when its turn comes next.
        if let Some(filling) = refill(objects, volume, segment, FifoQueue::Small)? {
            return Ok(filling);
        }
    }
    Err(NoRoom::Full)
}

/// Forgets all objects of a segment.
fn forget_all(objects: &Objects, volume: &Volume, segment: &Segment) -> Result<(), StoreError> {
    if segment.live_blocks.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    let IndexRead { salt, bytes, .. } = index_of(objects.setup.store, segment)?;
    for (_, index_record) in IndexRecords::new(&bytes, salt) {
        if let IndexRecord::Put(put) = index_record {
            forget(objects, volume, segment, &put, false);
        }
    }
    Ok(())
}
