//! A volume's writer: the thread that writes what was staged, and finds the next file to fill.

use std::sync::Arc;

use crate::cache_policy::queues::FifoQueue;
use crate::error::StoreError;
use crate::objects::Objects;
use crate::procedures::make_room::{NoRoom, prepare};
use crate::segments::volume::Volume;
use crate::store::touching::write_request;
use crate::write_queue::{Pace, Task};

/// Writes until it is asked to stop, and then what is left.
pub(crate) fn run(objects: &Objects, volume: &Arc<Volume>, index: usize) {
    let mut pace = Pace::default();
    loop {
        match objects.queue.next_task(volume, &mut pace) {
            Task::Stop => return,
            Task::Room { blocks, queue_kind } => {
                make_room(objects, volume, index, blocks, queue_kind, &mut pace)
            }
            Task::Requests(requests) => write_requests(objects, volume, &requests),
            Task::Group => objects.write_group(volume, false),
        }
    }
}

fn make_room(
    objects: &Objects,
    volume: &Arc<Volume>,
    index: usize,
    blocks: u32,
    queue_kind: FifoQueue,
    pace: &mut Pace,
) {
    match prepare(objects, volume, index, blocks, queue_kind) {
        Ok(filling) => volume.queue.give_room(volume, queue_kind, filling),
        Err(NoRoom::Full) => volume.queue.give_none(volume, queue_kind, blocks, pace, None),
        // The disk works: once there are descriptors again, the volume takes objects.
        Err(NoRoom::Failed(error @ StoreError::NoDescriptors { .. })) => {
            volume.queue.give_none(volume, queue_kind, blocks, pace, Some(error));
        }
        Err(NoRoom::Failed(error)) => volume.queue.fail(volume, error),
    }
}

/// The next request of an object notes again what could not be written.
fn write_requests(objects: &Objects, volume: &Volume, requests: &[(u64, Vec<u8>)]) {
    for (hash, key) in requests {
        if volume.failed.get().is_some() {
            return;
        }
        if let Err(error) = write_request(objects, *hash, key) {
            tracing::debug!(%error, "the time of a request was not written");
        }
    }
}
