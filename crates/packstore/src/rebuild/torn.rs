//! Which records lack their bodies: read and compared, in the order in which they lie, as many at a time as one read takes.
//!
//! Not here: which records power may have torn; what counts in their place.

use crate::core::Core;
use crate::format::{RecordHead, crc};
use crate::packed::Packed;

/// What one read takes at most; a longer record is read by itself.
const READ_BYTES: u32 = 1 << 20;

/// A record whose body power may have taken.
pub(super) struct Suspect {
    /// Offset of its control block in the index.
    pub at: u64,
    pub sequence: u64,
    pub block: u32,
    pub blocks: u32,
    /// Where the heap has it: in which part, or among ours, and its place there.
    pub part: Option<usize>,
    pub index: usize,
}

impl Suspect {
    fn end(&self) -> u32 {
        self.block + self.blocks
    }
}

/// Those of a file's records, as its index tells of them, that are torn.
pub(super) fn torn<'s>(core: &Core, file: &Packed, suspects: &'s [Suspect]) -> Vec<&'s Suspect> {
    let blocks_max = READ_BYTES / core.shape.block_bytes;
    let mut torn = Vec::new();
    let mut left = suspects;
    while let [first, others @ ..] = left {
        let close =
            others.iter().take_while(|one| one.block >= first.block && one.end() - first.block <= blocks_max);
        let (run, rest) = left.split_at(1 + close.count());
        look(core, file, run, &mut torn);
        left = rest;
    }
    torn
}

/// Reads a run at once, and adds what of it is torn.
fn look<'s>(core: &Core, file: &Packed, run: &'s [Suspect], torn: &mut Vec<&'s Suspect>) {
    let Some(start) = run.first().map(|first| first.block) else { return };
    let end = run.iter().map(Suspect::end).max().unwrap_or(start);
    let bytes_of = |blocks: u32| blocks as usize * core.shape.block_bytes as usize;
    let mut bytes = vec![0; bytes_of(end - start)];
    match file.body().and_then(|body| body.read_at(&mut bytes, core.shape.offset(start))) {
        Ok(read) => torn.extend(run.iter().filter(|suspect| {
            let end = bytes_of(suspect.end() - start).min(read);
            let record = bytes.get(bytes_of(suspect.block - start)..end);
            !record.is_some_and(|record| is_whole(suspect, record, core.body_salt(file.number)))
        })),
        // Where one cannot be read, the others may be whole.
        Err(_) if run.len() > 1 => run.chunks(1).for_each(|one| look(core, file, one, torn)),
        Err(_) => torn.extend(run),
    }
}

/// Whether what stands there is the record that its control block was written for.
fn is_whole(suspect: &Suspect, record: &[u8], body_salt: u32) -> bool {
    let Some(head) = RecordHead::decode(record, body_salt) else { return false };
    let start = head.record_bytes() - head.body_len as usize;
    let body = record.get(start..head.record_bytes());
    head.sequence == suspect.sequence && body.is_some_and(|body| crc(body) == head.body_crc)
}
