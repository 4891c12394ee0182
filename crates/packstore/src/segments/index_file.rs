//! What a segment's index file holds, as it is read: its head and its index records, with single flipped bits repaired.
//!
//! Not here: what can be learnt when it cannot be read (`recover`); rewriting it (`rewrite_index`).

use super::segment::Segment;
use crate::error::StoreError;
use crate::format::{IndexHead, expose_copies, repair_index_records};

/// What a segment's index holds.
pub(crate) struct IndexRead {
    pub head: IndexHead,
    /// Of the index records' checksums.
    pub salt: u32,
    /// The whole file, with flipped bits repaired where there was one in a block, and without second copies of a put.
    pub bytes: Vec<u8>,
    /// Where that was done: the file is still as it was.
    pub repaired: Vec<u64>,
    /// Why the index file itself could not be used, when it could not.
    pub lost: Option<Lost>,
}

/// An index file that could not be used as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Its head is damaged; all index records could be read.
    Head,
    /// All of it: the index records were made from the data file's records.
    Whole,
}

/// What a segment's index holds, whole.
pub(crate) fn index_of(store: u128, segment: &Segment) -> Result<IndexRead, StoreError> {
    let mut read = index_as_it_is(store, segment)?;
    read.repair();
    Ok(read)
}

impl IndexRead {
    /// Repairs what can be, and shows as damaged what is there twice.
    pub(crate) fn repair(&mut self) {
        self.repaired.extend(repair_index_records(&mut self.bytes, self.salt));
        expose_copies(&mut self.bytes, self.salt);
    }
}

/// As [`index_of`], with the index records as they are.
pub(crate) fn index_as_it_is(store: u128, segment: &Segment) -> Result<IndexRead, StoreError> {
    index_in(store, segment, segment.read_index()?)
}

/// As [`index_as_it_is`], from the bytes of the file.
pub(crate) fn index_in(store: u128, segment: &Segment, mut bytes: Vec<u8>) -> Result<IndexRead, StoreError> {
    let place = segment.place();
    let name = Segment::index_name(segment.number);
    let (head, head_repaired) = IndexHead::decode_repairing(&mut bytes)
        .map_err(|why| StoreError::NotAVolume { place: format!("{place}/{name}"), why: why.to_string() })?;
    if head.store != store || head.file != segment.number {
        return Err(StoreError::Foreign {
            place: format!("{place}/{name}"),
            why: "it is the index of another segment".to_owned(),
        });
    }
    let repaired = if head_repaired { vec![0] } else { Vec::new() };
    Ok(IndexRead { head, salt: head.salt(), bytes, repaired, lost: None })
}
