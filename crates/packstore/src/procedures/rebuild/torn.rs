//! Which records lack their bodies: read and compared, in the order in which they lie, as many at a time as one read takes.
//!
//! Not here: which records power may have torn; what counts in their place.

use std::collections::HashSet;

use super::found::Found;
use crate::format::{RecordHead, crc};
use crate::objects::Objects;
use crate::segments::segment::Segment;

/// What one read takes at most; a longer record is read by itself.
const READ_BYTES: u32 = 1 << 20;

/// A record whose body power may have taken.
pub(super) struct Suspect {
    pub found: Found,
    pub block: u32,
}

impl Suspect {
    fn end(&self) -> u32 {
        self.block + self.found.blocks
    }
}

/// Those of a file's records, as its index names them, that are torn.
pub(super) fn torn(
    objects: &Objects,
    segment: &Segment,
    suspects: impl Iterator<Item = Suspect>,
) -> HashSet<Found> {
    let blocks_max = READ_BYTES / objects.setup.shape.block_bytes;
    let mut torn = HashSet::new();
    let mut run: Vec<Suspect> = Vec::new();
    for suspect in suspects {
        let is_close = run
            .first()
            .is_none_or(|first| suspect.block >= first.block && suspect.end() - first.block <= blocks_max);
        if !is_close {
            look(objects, segment, &run, &mut torn);
            run.clear();
        }
        run.push(suspect);
    }
    look(objects, segment, &run, &mut torn);
    torn
}

/// Reads a run at once, and adds what of it is torn.
fn look(objects: &Objects, segment: &Segment, run: &[Suspect], torn: &mut HashSet<Found>) {
    let Some(start) = run.first().map(|first| first.block) else { return };
    let end = run.iter().map(Suspect::end).max().unwrap_or(start);
    let bytes_of = |blocks: u32| blocks as usize * objects.setup.shape.block_bytes as usize;
    let mut bytes = vec![0; bytes_of(end - start)];
    match segment.body().and_then(|body| body.read_at(&mut bytes, objects.setup.shape.offset(start))) {
        Ok(read) => {
            let is_torn = |suspect: &&Suspect| {
                let end = bytes_of(suspect.end() - start).min(read);
                let record = bytes.get(bytes_of(suspect.block - start)..end);
                !record.is_some_and(|record| {
                    is_whole(&suspect.found, record, objects.setup.body_salt(segment.number))
                })
            };
            torn.extend(run.iter().filter(is_torn).map(|suspect| suspect.found));
        }
        // Where one cannot be read, the others may be whole.
        Err(_) if run.len() > 1 => run.chunks(1).for_each(|one| look(objects, segment, one, torn)),
        // It may be whole too: it counts, so that reading it is an error, and its index record stays.
        Err(_) => {}
    }
}

/// Whether what stands there is the record that its index record was written for.
fn is_whole(found: &Found, record: &[u8], body_salt: u32) -> bool {
    let Some(head) = RecordHead::decode(record, body_salt) else { return false };
    let start = head.record_bytes() - head.body_len as usize;
    let body = record.get(start..head.record_bytes());
    head.sequence == found.sequence && body.is_some_and(|body| crc(body) == head.body_crc)
}
