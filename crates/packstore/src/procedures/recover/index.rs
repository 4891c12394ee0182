//! What a segment's index holds, or what it would hold: from its index file, or from the records of its data file.

use std::cmp::Reverse;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;

use super::records::{Record, each_record};
use crate::error::StoreError;
use crate::format::{
    INDEX_HEAD_BYTES, IndexHead, IndexRecord, IndexRecords, KEY_BYTES_MAX, Kind, META_BYTES_MAX, Manifest,
    Put, RECORD_HEAD_BYTES, RecordHead, SHARED, salt_of, u16_at,
};
use crate::objects::Objects;
use crate::objects::read::Depth;
use crate::segments::bitmap::Bitmap;
use crate::segments::index_file::{IndexRead, Lost, index_in, index_of};
use crate::segments::segment::Segment;

/// What a segment's index holds; when it cannot be used, what can be learnt otherwise.
pub(crate) fn index_or_records(objects: &Objects, segment: &Segment) -> Result<IndexRead, StoreError> {
    let whole = index_of(objects.setup.store, segment);
    let Err(why) = whole else { return whole };
    if segment.removed.load(Ordering::SeqCst) || matches!(why, StoreError::NoDescriptors { .. }) {
        return Err(why);
    }
    // One of another segment would name what is not here, and supersede with it what is elsewhere.
    let is_another = matches!(why, StoreError::Foreign { .. });
    if !is_another && let Some(read) = without_head(objects, segment) {
        return Ok(read);
    }
    // When the body cannot be read either, the index is what is to be reported.
    index_from_records(objects, segment).map_err(|_| why)
}

/// The index records of an index whose head alone is damaged.
fn without_head(objects: &Objects, segment: &Segment) -> Option<IndexRead> {
    let mut bytes = segment.read_index().ok()?;
    let salt = salt_of(&bytes)?;
    // In place of the damaged one, so that what reads it finds none of it; its generation is not known.
    let head = index_head(objects, segment);
    bytes[..INDEX_HEAD_BYTES].copy_from_slice(&head.encode());
    let mut read = IndexRead { salt, ..index_in(objects.setup.store, segment, bytes).ok()? };
    read.repair();
    read.lost = Some(Lost::Head);
    is_own(objects, segment, &read).then_some(read)
}

/// Whether an index without its head is that of the segment in whose place it is: one of its newest records is where the index says. That of
/// another segment would name what is not here, and supersede what is elsewhere.
fn is_own(objects: &Objects, segment: &Segment, read: &IndexRead) -> bool {
    let puts = IndexRecords::new(&read.bytes, read.salt).filter_map(|(_, index_record)| match index_record {
        IndexRecord::Put(put) => Some((put.sequence, put.block)),
        _ => None,
    });
    let mut puts = puts.collect::<Vec<_>>();
    puts.sort_unstable_by_key(|&(sequence, _)| Reverse(sequence));
    let Ok(body) = segment.body() else { return true };
    let mut bytes = vec![0; RECORD_HEAD_BYTES + KEY_BYTES_MAX + META_BYTES_MAX];
    let salt = objects.setup.body_salt(segment.number);
    let mut is_there = |sequence, block| {
        let read = body.read_at(&mut bytes, objects.setup.shape.offset(block)).unwrap_or(0);
        RecordHead::decode(&bytes[..read], salt).is_some_and(|head| head.sequence == sequence)
    };
    puts.is_empty() || puts.iter().take(LOOKS_MAX).any(|&(sequence, block)| is_there(sequence, block))
}

/// Some of the newest records may be damaged.
const LOOKS_MAX: usize = 64;

fn index_head(objects: &Objects, segment: &Segment) -> IndexHead {
    IndexHead {
        store: objects.setup.store,
        file: segment.number,
        generation: segment.generation.load(Ordering::SeqCst),
        since: segment.since.load(Ordering::SeqCst),
        queue_kind: segment.queue_kind.load(Ordering::Relaxed),
        is_first: false,
        time_s: objects.time_of_heads(),
    }
}

/// An index made from the records of the data file.
fn index_from_records(objects: &Objects, segment: &Segment) -> Result<IndexRead, StoreError> {
    let head = index_head(objects, segment);
    let salt = head.salt();
    let recovered = segment.recovered.load(Ordering::SeqCst);
    let mut bytes = head.encode().to_vec();
    each_record(objects, segment, |record| {
        if let Some(put) = put_of(objects, record, recovered) {
            IndexRecord::Put(put).encode(salt, &mut bytes);
        }
    })?;
    // Their bodies were compared.
    IndexRecord::Mark { durable_end: bytes.len() as u64 }.encode(salt, &mut bytes);
    Ok(IndexRead { head, salt, bytes, repaired: Vec::new(), lost: Some(Lost::Whole) })
}

/// The index record of a record; `None` when it is not one that the store wrote.
pub(super) fn put_of<'a>(objects: &Objects, record: &'a Record<'_>, recovered: bool) -> Option<Put<'a>> {
    let (id, length) = match record.head.kind {
        Kind::Whole => (0, 0),
        Kind::Manifest => {
            let manifest = Manifest::decode(record.body)?;
            (manifest.id, manifest.length())
        }
        Kind::Alias => {
            let id = u64::from_le_bytes(*record.body.first_chunk()?);
            (id, length_of_shared(objects, id))
        }
    };
    Some(Put {
        kind: record.head.kind,
        name: record.name(),
        sequence: record.head.sequence,
        superseded: None,
        block: record.block,
        meta_len: record.head.meta_len,
        body_len: record.head.body_len,
        created_s: record.head.created_s,
        expires_s: record.head.expires_s,
        id,
        length,
        recovered,
    })
}

/// 0 as long as the table does not tell where it is.
fn length_of_shared(objects: &Objects, id: u64) -> u64 {
    let Ok(Some(shared)) = objects.find_internal(id, SHARED, Depth::Whole) else { return 0 };
    match objects.manifest_of(&shared) {
        Ok(Some(manifest)) => manifest.length(),
        _ => shared.head.body_len.into(),
    }
}

/// What an index lacks.
#[derive(Default)]
pub(crate) struct Unindexed {
    pub index_records: Vec<u8>,
    pub keys: Vec<Option<Vec<u8>>>,
}

/// Index records of the records that count by the table and that the index does not name; and their keys, where they are
/// a user's.
pub(crate) fn unindexed(
    objects: &Objects,
    segment: &Segment,
    read: &IndexRead,
) -> Result<Unindexed, StoreError> {
    let indexed = indexed_blocks(objects, read);
    let recovered = segment.recovered.load(Ordering::SeqCst);
    let mut unindexed = Unindexed::default();
    each_record(objects, segment, |record| {
        let hash = record.name().hash(objects.setup.hash_seed);
        if indexed.is_taken(record.block)
            || objects.index.location_of(hash, segment.number, record.block).is_none()
        {
            return;
        }
        if let Some(put) = put_of(objects, record, recovered) {
            IndexRecord::Put(put).encode(read.salt, &mut unindexed.index_records);
            unindexed.keys.push((!record.head.internal).then(|| record.key.to_vec()));
        }
    })?;
    Ok(unindexed)
}

/// First blocks of the records that an index names.
pub(super) fn indexed_blocks(objects: &Objects, read: &IndexRead) -> Bitmap {
    let mut indexed = Bitmap::new(objects.setup.shape.segment_blocks);
    for (_, index_record) in IndexRecords::new(&read.bytes, read.salt) {
        if let IndexRecord::Put(put) = index_record
            && put.block < objects.setup.shape.segment_blocks
        {
            indexed.mark(put.block, 1);
        }
    }
    indexed
}

/// Where the last index record of an index ends.
pub(in crate::procedures) fn end_of(read: &IndexRead) -> u64 {
    let last = IndexRecords::new(&read.bytes, read.salt).last().map_or(0, |(at, _)| at as usize);
    match last {
        0 => INDEX_HEAD_BYTES as u64,
        at => at as u64 + u64::from(u16_at(&read.bytes, at + 4)) * 8,
    }
}

/// Whether a file is not there, as its disk says.
pub(crate) fn is_gone(error: &StoreError) -> bool {
    matches!(error, StoreError::Disk(error) if error.kind() == ErrorKind::NotFound)
}
