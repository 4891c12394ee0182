//! Files under a segment's name that another segment wrote: renamed, swapped, or from another store.
//!
//! 1. The first record of a data file is read. Each record's checksum covers the salt of its segment, so that a whole record shows which
//!    segment wrote it. Nearly always that is the file's own, and nothing more is read.
//! 2. Otherwise the file's first 256 KiB are searched for whole records. Only if they contain records of another segment and none of its
//!    own, the rest of the file is searched for one of its own.
//! 3. Without a data file the head of the index names the segment.
//! 4. A file of a segment of this store that has such a file itself is a copy: it is worth nothing.
//!
//! [`looks_misplaced`] ends after the first record if that is no whole record: for what happens often. [`misplaced`] is for a check and a
//! repair, and for an index that is made from the data file.
//!
//! Always holds: what another segment lacks, or another store wrote, is not written over, and a repair refuses while it is there.

use std::collections::HashMap;
use std::sync::Arc;

use disk::DiskFile;

use crate::error::StoreError;
use crate::format::{
    INDEX_HEAD_BYTES, IndexHead, KEY_BYTES_MAX, META_BYTES_MAX, RECORD_HEAD_BYTES, RecordHead, crc,
};
use crate::objects::Objects;
use crate::segments::segment::Segment;

/// A data file is searched in such steps.
const STEP_BYTES: usize = 256 << 10;

/// Nearly always the first record is one of its own.
const FIRST_LOOK_BYTES: usize = 8 << 10;

/// Which segment wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// That of its name, as far as is known.
    Own,
    /// Unknown: it is empty, or not there.
    None,
    /// Another segment of the store.
    Segment(u32),
    /// None that the store has.
    Stranger,
}

/// As [`misplaced`], when the first record of the data file raises the suspicion. Costs one read of a few KB.
pub(crate) fn looks_misplaced(objects: &Objects, segment: &Segment) -> Option<StoreError> {
    let mut bytes = vec![0; FIRST_LOOK_BYTES];
    let read = segment.body().ok()?.read_at(&mut bytes, 0).ok()?;
    let (salt, _) = RecordHead::salt_of(&bytes[..read])?;
    if salt == objects.setup.body_salt(segment.number) {
        return None;
    }
    misplaced(objects, segment)
}

/// Why the files of a segment must be left alone: they are another's, which may be nowhere else.
pub(crate) fn misplaced(objects: &Objects, segment: &Segment) -> Option<StoreError> {
    let (writer, name) = match writer_of_data(objects, segment) {
        Writer::None => (writer_of_index(objects, segment), Segment::index_name(segment.number)),
        writer => (writer, Segment::data_name(segment.number)),
    };
    let is_data = name.ends_with(".body");
    let place = segment.place();
    match writer {
        Writer::Own | Writer::None => None,
        Writer::Stranger => Some(StoreError::Misplaced { place, name, belongs: None }),
        Writer::Segment(number) => {
            let lacks = match objects.segments.file(number) {
                Some(other) if is_data => writer_of_data(objects, &other) != Writer::Own,
                Some(other) => writer_of_index(objects, &other) != Writer::Own,
                None => objects.segments.lost().files.contains_key(&number),
            };
            let belongs = if is_data { Segment::data_name(number) } else { Segment::index_name(number) };
            lacks.then_some(StoreError::Misplaced { place, name, belongs: Some(belongs) })
        }
    }
}

fn writer_of_index(objects: &Objects, segment: &Segment) -> Writer {
    let mut bytes = match segment.read_index_begin(INDEX_HEAD_BYTES) {
        Ok(bytes) => bytes,
        Err(_) => return Writer::None,
    };
    match IndexHead::decode_repairing(&mut bytes) {
        Err(_) => Writer::None,
        Ok((head, _)) if head.store != objects.setup.store => Writer::Stranger,
        Ok((head, _)) if head.file != segment.number => Writer::Segment(head.file),
        Ok(_) => Writer::Own,
    }
}

fn writer_of_data(objects: &Objects, segment: &Segment) -> Writer {
    let data = match segment.body() {
        Ok(data) => data,
        Err(_) if segment.lacks_data() => return Writer::None,
        // It is there, and no more is known: a repair refuses for that.
        Err(_) => return Writer::Own,
    };
    let Some(salts) = salts_of_others(objects, segment, data) else { return Writer::Own };
    let here = objects.segments.all_files().into_iter().map(|segment| segment.number);
    let mut numbers = here.chain(objects.segments.lost().files.into_keys());
    match numbers.find(|&number| salts.contains_key(&objects.setup.body_salt(number))) {
        Some(number) => Writer::Segment(number),
        // One alone may be a record of its own with a damaged head.
        None if salts.values().any(|&records| records > 1) => Writer::Stranger,
        None => Writer::None,
    }
}

/// The salts of the records in a data file, and how many have each; `None` when one is of the segment's own, or the file
/// cannot be read. Beyond the first step only where that contains records of others.
fn salts_of_others(
    objects: &Objects,
    segment: &Segment,
    data: &Arc<dyn DiskFile>,
) -> Option<HashMap<u32, u32>> {
    let (shape, own) = (objects.setup.shape, objects.setup.body_salt(segment.number));
    let mut bytes = vec![0; FIRST_LOOK_BYTES];
    let read = data.read_at(&mut bytes, 0).unwrap_or(0);
    if RecordHead::decode(&bytes[..read], own).is_some() {
        return None;
    }
    let record_bytes_max = RECORD_HEAD_BYTES + KEY_BYTES_MAX + META_BYTES_MAX + shape.piece_bytes();
    let step_blocks = (STEP_BYTES / shape.block_bytes as usize) as u32;
    let mut bytes = vec![0; STEP_BYTES + record_bytes_max];
    let (mut first, mut others) = (0, HashMap::new());
    while first < shape.segment_blocks {
        // Where it cannot be read nothing is known, and nothing is rewritten either.
        let read = data.read_at(&mut bytes, shape.offset(first)).ok()?;
        for block in 0..step_blocks {
            let Some(record) = bytes[..read].get(shape.offset(block) as usize..) else { break };
            match RecordHead::salt_of(record) {
                Some((salt, _)) if salt == own => return None,
                Some((salt, head)) if has_its_body(record, &head) => *others.entry(salt).or_default() += 1,
                _ => {}
            }
        }
        // Where the first step shows nothing, the file is empty or damaged, as far as is known.
        if read < bytes.len() || others.is_empty() {
            break;
        }
        first += step_blocks;
    }
    Some(others)
}

/// Whether a record's body, of some bytes, has its checksum, which no salt is part of.
fn has_its_body(record: &[u8], head: &RecordHead) -> bool {
    let body = record.get(head.record_bytes() - head.body_len as usize..head.record_bytes());
    head.body_len > 0 && body.is_some_and(|body| crc(body) == head.body_crc)
}
