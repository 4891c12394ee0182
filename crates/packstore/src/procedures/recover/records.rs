//! Goes through a data file, record by record, without its index.

use std::sync::Arc;

use crate::error::StoreError;
use crate::format::{KEY_BYTES_MAX, META_BYTES_MAX, Name, RECORD_HEAD_BYTES, RecordHead, crc};
use crate::objects::Objects;
use crate::segments::segment::Segment;

/// A data file is looked through in such steps.
const STEP_BYTES: usize = 1 << 20;

/// A record of a data file, whole by its checksums.
pub(crate) struct Record<'a> {
    pub block: u32,
    pub head: RecordHead,
    pub key: &'a [u8],
    pub body: &'a [u8],
    /// As [`RecordHead::index_end`].
    pub index_end: u64,
}

impl Record<'_> {
    pub(crate) fn name(&self) -> Name<'_> {
        Name { internal: self.head.internal, key: self.key }
    }
}

/// Goes through all whole records of a data file. One that begins within another is not seen.
pub(crate) fn each_record(
    objects: &Objects,
    segment: &Segment,
    mut each: impl FnMut(&Record<'_>),
) -> Result<(), StoreError> {
    let block_bytes = objects.setup.shape.block_bytes as usize;
    let salt = objects.setup.body_salt(segment.number);
    let body = segment.body()?;
    // The longest record but a long list of pieces is whole in one of two reads.
    let record_bytes_max =
        RECORD_HEAD_BYTES + KEY_BYTES_MAX + META_BYTES_MAX + objects.setup.shape.piece_bytes();
    let step_blocks = (STEP_BYTES / block_bytes) as u32;
    let mut bytes = vec![0; step_blocks as usize * block_bytes + record_bytes_max];
    let mut block = 0;
    while block < objects.setup.shape.segment_blocks {
        let first = block;
        let read = body.read_at(&mut bytes, objects.setup.shape.offset(first))?;
        let step = &bytes[..read];
        if step.is_empty() {
            break;
        }
        let end = (first + step_blocks).min(objects.setup.shape.segment_blocks);
        while block < end {
            let from = step.get((block - first) as usize * block_bytes..).unwrap_or_default();
            let blocks = match RecordHead::decode(from, salt) {
                Some(head) => {
                    let blocks = objects.setup.shape.blocks(head.record_bytes());
                    let fits = block
                        .checked_add(blocks)
                        .is_some_and(|end| end <= objects.setup.shape.segment_blocks);
                    let is_whole =
                        fits && look(body, objects.setup.shape.offset(block), block, head, from, &mut each)?;
                    if is_whole { blocks } else { 1 }
                }
                None => 1,
            };
            block += blocks;
        }
    }
    Ok(())
}

/// Compares one record's body, and shows it if it is whole.
fn look(
    file: &Arc<dyn disk::DiskFile>,
    offset: u64,
    block: u32,
    head: RecordHead,
    from: &[u8],
    each: &mut impl FnMut(&Record<'_>),
) -> Result<bool, StoreError> {
    let whole;
    let bytes = match from.get(..head.record_bytes()) {
        Some(bytes) => bytes,
        None => {
            let mut bytes = vec![0; head.record_bytes()];
            let read = file.read_at(&mut bytes, offset)?;
            bytes.truncate(read);
            whole = bytes;
            &whole[..]
        }
    };
    let body_start = head.record_bytes() - head.body_len as usize;
    let Some(body) = bytes.get(body_start..head.record_bytes()).filter(|body| crc(body) == head.body_crc)
    else {
        return Ok(false);
    };
    let key = &bytes[RECORD_HEAD_BYTES..][..head.key_len as usize];
    each(&Record { block, head, key, body, index_end: RecordHead::index_end(bytes) });
    Ok(true)
}
