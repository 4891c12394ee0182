//! What a packed file's index told, learnt again when the index is lost.
//!
//! ```text
//! index file --> head and control blocks
//!            `-> head damaged: the control blocks' checksums tell the salt
//!            `-> no control blocks: body file --> each whole record --> a control block, marked as recovered
//! ```
//!
//! A body file does not tell which of its records count: tombstones and what they void are in indexes alone. After a clean
//! stop the table tells. After any other stop a store keeps what it finds, marked; a cache drops all that it holds, as what
//! was purged may be among it.
//!
//! Always holds: nothing is deleted because something else is missing.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::bitmap::Bitmap;
use crate::core::Core;
use crate::error::StoreError;
use crate::format::{
    Control, Controls, INDEX_HEAD_BYTES, IndexHead, KEY_BYTES_MAX, Kind, META_BYTES_MAX, Manifest, Name, Put,
    RECORD_HEAD_BYTES, RecordHead, SHARED, crc, salt_of,
};
use crate::packed::Packed;
use crate::read::Depth;
use crate::refill::{IndexRead, Lost, NoRoom, index_in, index_of, rewrite_index};
use crate::writer::make_durable;

/// A body file is looked through in such steps.
const STEP_BYTES: usize = 1 << 20;

/// A record of a body file, whole by its checksums.
pub(crate) struct Record<'a> {
    pub block: u32,
    pub head: RecordHead,
    pub key: &'a [u8],
    pub body: &'a [u8],
}

impl Record<'_> {
    pub(crate) fn name(&self) -> Name<'_> {
        Name { internal: self.head.internal, key: self.key }
    }
}

/// What a packed file's index holds; when it cannot be used, what can be learnt otherwise.
pub(crate) fn index_or_records(core: &Core, packed: &Packed) -> Result<IndexRead, StoreError> {
    let whole = index_of(core, packed);
    let Err(why) = whole else { return whole };
    if packed.removed.load(Ordering::SeqCst) {
        return Err(why);
    }
    if let Some(read) = without_head(core, packed) {
        return Ok(read);
    }
    // When the body cannot be read either, the index is what is to be told of.
    index_from_records(core, packed).map_err(|_| why)
}

/// The control blocks of an index whose head alone is damaged.
fn without_head(core: &Core, packed: &Packed) -> Option<IndexRead> {
    let mut bytes = packed.read_index().ok()?;
    let salt = salt_of(&bytes)?;
    // In place of the damaged one, so that what reads it finds none of it; its generation is not known.
    let head = index_head(core, packed);
    bytes[..INDEX_HEAD_BYTES].copy_from_slice(&head.encode());
    let mut read = IndexRead { salt, ..index_in(core, packed, bytes).ok()? };
    read.mend();
    read.lost = Some(Lost::Head);
    Some(read)
}

fn index_head(core: &Core, packed: &Packed) -> IndexHead {
    IndexHead {
        store: core.store,
        file: packed.number,
        generation: packed.generation.load(Ordering::SeqCst),
        since: packed.since.load(Ordering::SeqCst),
        lane: packed.lane.load(Ordering::Relaxed),
    }
}

/// An index made from the records of the body file.
fn index_from_records(core: &Core, packed: &Packed) -> Result<IndexRead, StoreError> {
    let head = index_head(core, packed);
    let salt = head.salt();
    let recovered = packed.recovered.load(Ordering::SeqCst);
    let mut bytes = head.encode().to_vec();
    each_record(core, packed, |record| {
        if let Some(put) = put_of(core, record, recovered) {
            Control::Put(put).encode(salt, &mut bytes);
        }
    })?;
    // Their bodies were compared.
    Control::Mark { durable_end: bytes.len() as u64 }.encode(salt, &mut bytes);
    Ok(IndexRead { head, salt, bytes, mended: Vec::new(), lost: Some(Lost::Whole) })
}

/// The control block of a record; `None` when it is not one that the store wrote.
fn put_of<'a>(core: &Core, record: &'a Record<'_>, recovered: bool) -> Option<Put<'a>> {
    let (id, length) = match record.head.kind {
        Kind::Whole => (0, 0),
        Kind::Manifest => {
            let manifest = Manifest::decode(record.body)?;
            (manifest.id, manifest.length())
        }
        Kind::Alias => {
            let id = u64::from_le_bytes(*record.body.first_chunk()?);
            (id, length_of_shared(core, id))
        }
    };
    Some(Put {
        kind: record.head.kind,
        name: record.name(),
        sequence: record.head.sequence,
        victim: None,
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
fn length_of_shared(core: &Core, id: u64) -> u64 {
    let Ok(Some(shared)) = core.find_internal(id, SHARED, Depth::Whole) else { return 0 };
    match core.manifest_of(&shared) {
        Ok(Some(manifest)) => manifest.length(),
        _ => shared.head.body_len.into(),
    }
}

/// Goes through all whole records of a body file. One that begins within another is not seen.
pub(crate) fn each_record(
    core: &Core,
    packed: &Packed,
    mut each: impl FnMut(&Record<'_>),
) -> Result<(), StoreError> {
    let block_bytes = core.shape.block_bytes as usize;
    let salt = core.body_salt(packed.number);
    let body = packed.body()?;
    // The longest record but a long list of pieces is whole in one of two reads.
    let record_bytes_max = RECORD_HEAD_BYTES + KEY_BYTES_MAX + META_BYTES_MAX + core.shape.piece_bytes();
    let step_blocks = (STEP_BYTES / block_bytes) as u32;
    let mut bytes = vec![0; step_blocks as usize * block_bytes + record_bytes_max];
    let mut block = 0;
    while block < core.shape.packed_blocks {
        let first = block;
        let read = body.read_at(&mut bytes, core.shape.offset(first))?;
        let step = &bytes[..read];
        if step.is_empty() {
            break;
        }
        let end = (first + step_blocks).min(core.shape.packed_blocks);
        while block < end {
            let from = step.get((block - first) as usize * block_bytes..).unwrap_or_default();
            let blocks = match RecordHead::decode(from, salt) {
                Some(head) => {
                    let blocks = core.shape.blocks(head.record_bytes());
                    let fits = block.checked_add(blocks).is_some_and(|end| end <= core.shape.packed_blocks);
                    let is_whole =
                        fits && look(body, core.shape.offset(block), block, head, from, &mut each)?;
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
    file: &Arc<dyn files::DiskFile>,
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
    each(&Record { block, head, key, body });
    Ok(true)
}

/// Records of the body file that count by the table, and of which the index tells nothing: keys where they are a user's.
pub(crate) fn untold(
    core: &Core,
    packed: &Packed,
    read: &IndexRead,
) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
    let mut told = Bitmap::new(core.shape.packed_blocks);
    for (_, control) in Controls::new(&read.bytes, read.salt) {
        if let Control::Put(put) = control
            && put.block < core.shape.packed_blocks
        {
            told.mark(put.block, 1);
        }
    }
    let mut untold = Vec::new();
    each_record(core, packed, |record| {
        let hash = record.name().hash(core.hash_seed);
        if !told.is_taken(record.block) && core.place_of(hash, packed.number, record.block).is_some() {
            untold.push((!record.head.internal).then(|| record.key.to_vec()));
        }
    })?;
    Ok(untold)
}

/// Writes lost indexes anew, once it is known which records count. `others`: first the other indexes, without what counts no
/// more, as what made it void may have been told in a lost one.
pub(crate) fn restore(core: &Core, others: bool) {
    let files = core.all_files();
    let is_lost = |file: &&Arc<Packed>| file.index_lost.load(Ordering::SeqCst);
    if core.read_only || !files.iter().any(|file| is_lost(&file)) {
        return;
    }
    // What was made void by name while the table was filled, before the indexes that show the need are whole again.
    make_durable(core);
    let mut turns = HashMap::from([(false, Vec::new()), (true, Vec::new())]);
    for file in &files {
        turns.entry(is_lost(&file)).or_default().push(file);
    }
    if others {
        for file in &turns[&false] {
            let done = write_anew(core, file, false);
            if let Err(error) = done {
                tracing::error!(%error, file = file.number, "an index could not be written anew: lost ones stay lost");
                return;
            }
        }
    }
    for file in &turns[&true] {
        // It was held so that nothing else was put there.
        file.filling.store(false, Ordering::SeqCst);
        match write_anew(core, file, true) {
            Ok(()) => file.index_lost.store(false, Ordering::SeqCst),
            Err(error) => {
                file.filling.store(true, Ordering::SeqCst);
                tracing::error!(%error, file = file.number, "a lost index could not be written anew");
            }
        }
    }
}

/// Writes an index anew, without what counts no more; one that is lost only when that is asked for. Nothing happens to a file
/// that is being filled, or is never filled.
pub(crate) fn write_anew(core: &Core, file: &Arc<Packed>, lost: bool) -> Result<(), StoreError> {
    if file.filling.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    let volume = core.volume(file.volume);
    let read = if lost { index_or_records(core, file) } else { index_of(core, file) };
    let done = read.map_err(NoRoom::Failed).and_then(|read| rewrite_index(core, &volume, file, read));
    if let Err(NoRoom::Failed(StoreError::NotAVolume { .. } | StoreError::Foreign { .. })) = done {
        // It stays as it is, never to be filled.
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

/// Whether a file is not there, as its disk says.
pub(crate) fn is_gone(error: &StoreError) -> bool {
    matches!(error, StoreError::Disk(error) if error.kind() == ErrorKind::NotFound)
}
