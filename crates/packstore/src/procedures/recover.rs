//! Recovers what a segment's index contained when the index is lost.
//!
//! ```text
//! index file --> head and index records
//!            `-> head damaged: the index records' checksums tell the salt
//!            `-> no index records: data file --> each whole record --> an index record, marked as recovered
//! ```
//!
//! A data file does not tell which of its records count: tombstones and what they supersede are in indexes alone. After a clean
//! stop the table says. After any other stop a store keeps what it finds, marked; a cache drops all that it holds, as what
//! was purged may be among it.
//!
//! Always holds: nothing is deleted because something else is missing.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::StoreError;
use crate::format::{
    INDEX_HEAD_BYTES, IndexHead, IndexRecord, IndexRecords, KEY_BYTES_MAX, Kind, META_BYTES_MAX, Manifest,
    Name, Put, RECORD_HEAD_BYTES, RecordHead, SHARED, Tombstone, crc, decode_index_record, salt_of, u16_at,
};
use crate::index::address::location;
use crate::objects::Objects;
use crate::objects::read::Depth;
use crate::procedures::make_room::NoRoom;
use crate::procedures::rewrite_index::rewrite_index;
use crate::segments::bitmap::Bitmap;
use crate::segments::index_file::{IndexRead, Lost, index_in, index_of};
use crate::segments::segment::Segment;
use crate::write_queue::group::{Change, TableEntry};
use crate::write_queue::keys::Taken;

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

/// What a segment's index holds; when it cannot be used, what can be learnt otherwise.
pub(crate) fn index_or_records(objects: &Objects, segment: &Segment) -> Result<IndexRead, StoreError> {
    let whole = index_of(objects.setup.store, segment);
    let Err(why) = whole else { return whole };
    if segment.removed.load(Ordering::SeqCst) {
        return Err(why);
    }
    if let Some(read) = without_head(objects, segment) {
        return Ok(read);
    }
    // When the body cannot be read either, report the index.
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
    Some(read)
}

fn index_head(objects: &Objects, segment: &Segment) -> IndexHead {
    IndexHead {
        store: objects.setup.store,
        file: segment.number,
        generation: segment.generation.load(Ordering::SeqCst),
        since: segment.since.load(Ordering::SeqCst),
        queue_kind: segment.queue_kind.load(Ordering::Relaxed),
        is_first: false,
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
fn put_of<'a>(objects: &Objects, record: &'a Record<'_>, recovered: bool) -> Option<Put<'a>> {
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

/// Index records of the records that count by the table and of which the index says nothing; and their keys, where they are
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
fn indexed_blocks(objects: &Objects, read: &IndexRead) -> Bitmap {
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
fn end_of(read: &IndexRead) -> u64 {
    let last = IndexRecords::new(&read.bytes, read.salt).last().map_or(0, |(at, _)| at as usize);
    match last {
        0 => INDEX_HEAD_BYTES as u64,
        at => at as u64 + u64::from(u16_at(&read.bytes, at + 4)) * 8,
    }
}

/// A record that an index lacks since it was cut off.
pub(crate) struct CutRecord {
    put: Vec<u8>,
    salt: u32,
}

impl CutRecord {
    pub(crate) fn put(&self) -> Put<'_> {
        match decode_index_record(&self.put, self.salt) {
            Some((IndexRecord::Put(put), _)) => put,
            _ => unreachable!("it was encoded as one"),
        }
    }
}

/// Records that were written after an index that was longer than it is now, and of which it says nothing, when one of them
/// says so. Records that power loss left without an index record say nothing of the sort.
pub(crate) fn cut_records(
    objects: &Objects,
    segment: &Segment,
    read: &IndexRead,
) -> Result<Vec<CutRecord>, StoreError> {
    let (indexed, end, salt) = (indexed_blocks(objects, read), end_of(read), read.salt);
    let (mut cut, mut index_end) = (Vec::new(), 0);
    each_record(objects, segment, |record| {
        // Older ones were dropped from the index when it was rewritten, or may have been.
        if record.head.sequence <= read.head.generation && !read.head.is_first {
            return;
        }
        index_end = index_end.max(record.index_end);
        if !indexed.is_taken(record.block)
            && let Some(put) = put_of(objects, record, true)
        {
            let mut bytes = Vec::new();
            IndexRecord::Put(put).encode(salt, &mut bytes);
            cut.push(CutRecord { put: bytes, salt });
        }
    })?;
    if index_end <= end {
        cut.clear();
    }
    Ok(cut)
}

/// Whether an index seems to be cut off, by what lies where the next record would have been written. A look, not a proof of
/// the contrary: what is in the file is not overwritten then.
pub(crate) fn looks_cut(objects: &Objects, segment: &Segment, read: &IndexRead) -> bool {
    let mut indexed = Bitmap::new(objects.setup.shape.segment_blocks);
    let mut newest = (0, 0);
    for (_, index_record) in IndexRecords::new(&read.bytes, read.salt) {
        let IndexRecord::Put(put) = index_record else { continue };
        let blocks = objects.setup.shape.blocks(put.record_bytes());
        let Some(end) =
            put.block.checked_add(blocks).filter(|&end| end <= objects.setup.shape.segment_blocks)
        else {
            continue;
        };
        indexed.mark(put.block, blocks);
        newest = newest.max((put.sequence, end));
    }
    let first_free = (0..objects.setup.shape.segment_blocks).find(|&block| !indexed.is_taken(block));
    let end = end_of(read);
    let Ok(body) = segment.body() else { return false };
    let mut bytes = vec![0; LOOK_BYTES];
    for mut block in [Some(newest.1), first_free].into_iter().flatten() {
        // One after the other: the first of them may be of the time when the index was no longer than it is now.
        for _ in 0..LOOKS_MAX {
            let Ok(length) = body.read_at(&mut bytes, objects.setup.shape.offset(block)) else { break };
            let record = &bytes[..length];
            let Some(head) = RecordHead::decode(record, objects.setup.body_salt(segment.number)) else {
                break;
            };
            if head.sequence <= read.head.generation && !read.head.is_first {
                break;
            }
            if RecordHead::index_end(record) > end {
                return true;
            }
            block = block.saturating_add(objects.setup.shape.blocks(head.record_bytes()));
        }
    }
    false
}

/// More than the records of a usual group.
const LOOKS_MAX: usize = 4096;
/// Enough for a head with its key and usual attributes.
const LOOK_BYTES: usize = 8 << 10;

/// Makes records count again that a cut index lacks, where they are the newest of their key. Parts of objects come first. The index is
/// rewritten after this.
pub(crate) fn adopt(objects: &Objects, segment: &Segment, cut: &[CutRecord]) -> Result<(), StoreError> {
    segment.recovered.store(true, Ordering::SeqCst);
    let mut puts = cut.iter().map(CutRecord::put).collect::<Vec<_>>();
    puts.sort_by_key(|put| (!put.name.internal, put.sequence));
    for put in puts {
        let hash = put.name.hash(objects.setup.hash_seed);
        let _taken = Taken::one(objects.queue.keys(), hash);
        let old = objects.find(put.name, hash, Depth::Whole)?;
        let blocks = objects.setup.shape.blocks(put.record_bytes());
        let Some(location) = location(segment.number, put.block, blocks, objects.setup.shape) else {
            continue;
        };
        if old.as_ref().is_some_and(|old| old.head.sequence >= put.sequence)
            || !has_parts(objects, segment, &put)?
        {
            continue;
        }
        let visible = !put.name.internal;
        let mut changes = old.as_ref().map_or(Ok(Vec::new()), |old| objects.ends_with(old))?;
        if put.kind == Kind::Alias {
            changes.insert(0, Change::Link(put.id));
        }
        if let Some((old, superseded)) =
            old.as_ref().and_then(|old| Some((old, objects.segments.superseded_at(old.entry.location)?)))
        {
            objects.queue.stage_tombstones(&[Tombstone {
                sequence: old.head.sequence,
                hash,
                superseded,
                deleted_s: 0,
            }])?;
        }
        let new = TableEntry { hash, location, blocks, visible };
        changes.insert(0, Change::Put { new, old: old.map(|old| old.entry) });
        objects.apply_now(&changes);
    }
    Ok(())
}

/// Whether the parts of an object, or the object that it names, are there.
fn has_parts(objects: &Objects, segment: &Segment, put: &Put<'_>) -> Result<bool, StoreError> {
    match put.kind {
        Kind::Whole => Ok(true),
        Kind::Alias => Ok(objects.find_internal(put.id, SHARED, Depth::Head)?.is_some()),
        Kind::Manifest => {
            let mut bytes = vec![0; put.record_bytes()];
            segment.body()?.read_at(&mut bytes, objects.setup.shape.offset(put.block))?;
            let manifest = Manifest::decode(&bytes[put.record_bytes() - put.body_len as usize..]);
            Ok(manifest.is_some_and(|manifest| objects.has_pieces(&manifest)))
        }
    }
}

/// What an index lacks.
#[derive(Default)]
pub(crate) struct Unindexed {
    pub index_records: Vec<u8>,
    pub keys: Vec<Option<Vec<u8>>>,
}

/// Rewrites lost indexes, once it is known which records count. `others`: first the other indexes, without what counts no
/// more, as what superseded it may have been in a lost one.
pub(crate) fn restore(objects: &Objects, others: bool) {
    let files = objects.segments.all_files();
    let is_lost = |file: &&Arc<Segment>| file.index_lost.load(Ordering::SeqCst);
    if objects.setup.read_only || !files.iter().any(|file| is_lost(&file)) {
        return;
    }
    // Tombstones that were written while the table was filled, before the indexes that show the need are whole again.
    objects.make_durable();
    let mut turns = HashMap::from([(false, Vec::new()), (true, Vec::new())]);
    for file in &files {
        turns.entry(is_lost(&file)).or_default().push(file);
    }
    if others {
        for file in &turns[&false] {
            let done = write_anew(objects, file, false);
            if let Err(error) = done {
                tracing::error!(%error, file = file.number, "an index could not be rewritten: lost ones stay lost");
                return;
            }
        }
    }
    for file in &turns[&true] {
        file.may_fill();
        match write_anew(objects, file, true) {
            Ok(()) => file.index_lost.store(false, Ordering::SeqCst),
            Err(error) => {
                file.never_fill();
                tracing::error!(%error, file = file.number, "a lost index could not be rewritten");
            }
        }
    }
}

/// Rewrites an index without what counts no more; one that is lost only when that is asked for. Nothing happens to a file
/// that is being filled, or is never filled.
pub(crate) fn write_anew(objects: &Objects, file: &Arc<Segment>, lost: bool) -> Result<(), StoreError> {
    if file.filling.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    let volume = objects.segments.volume(file.volume);
    let read = if lost { all_records(objects, file) } else { index_of(objects.setup.store, file) };
    let done = read.map_err(NoRoom::Failed).and_then(|read| rewrite_index(objects, &volume, file, read));
    if let Err(NoRoom::Failed(StoreError::NotAVolume { .. } | StoreError::Foreign { .. })) = done {
        // It stays as it is.
        file.never_fill();
        return Ok(());
    }
    file.filling.store(false, Ordering::SeqCst);
    match done {
        Ok((_, end, _)) => {
            file.index_bytes.store(end, Ordering::Relaxed);
            Ok(())
        }
        Err(NoRoom::Full) => Err(StoreError::Full),
        Err(NoRoom::Failed(error)) => Err(error),
    }
}

/// All that counts in a file, whatever its index lacks.
fn all_records(objects: &Objects, file: &Segment) -> Result<IndexRead, StoreError> {
    let mut read = index_or_records(objects, file)?;
    let unindexed = unindexed(objects, file, &read)?;
    read.bytes.resize(read.bytes.len().next_multiple_of(8), 0);
    read.bytes.extend_from_slice(&unindexed.index_records);
    Ok(read)
}

/// Whether a file is not there, as its disk says.
pub(crate) fn is_gone(error: &StoreError) -> bool {
    matches!(error, StoreError::Disk(error) if error.kind() == ErrorKind::NotFound)
}
