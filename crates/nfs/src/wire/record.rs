//! Records in a byte stream: each message in fragments, each fragment behind its length (RFC 5531, section 11).
//!
//! ```text
//! | last? 1 bit | fragment bytes 31 bits | fragment | ...
//! ```
//!
//! Always holds: a record of one fragment, which is what everybody sends, is handed out in place; only
//! several fragments are copied together, and never more than the bound.

use super::WireError;
use super::xdr::put_u32;

/// Bytes of a record mark.
pub const MARK_BYTES: usize = 4;

const LAST: u32 = 1 << 31;

/// The mark of a record of one fragment.
#[inline]
pub fn mark(record_bytes: usize) -> u32 {
    debug_assert!(record_bytes < LAST as usize, "a record of 2 GiB or more is asked for");
    LAST | record_bytes as u32
}

/// Leaves room for a mark; give what this returns to [`end`] when the record is appended.
#[inline]
pub fn begin(out: &mut Vec<u8>) -> usize {
    put_u32(out, 0);
    out.len()
}

/// Fills in the mark of the record that began at `record_start` and ends here.
#[inline]
pub fn end(out: &mut [u8], record_start: usize) {
    let mark = mark(out.len() - record_start);
    out[record_start - MARK_BYTES..record_start].copy_from_slice(&mark.to_be_bytes());
}

/// Takes records off received bytes.
#[derive(Debug)]
pub struct RecordReader {
    record_bytes_max: usize,
    joined: Vec<u8>,
    joined_is_whole: bool,
}

impl RecordReader {
    /// A reader that refuses records over `record_bytes_max`. The receiver needs a buffer for one such record and
    /// a mark, as a fragment is only taken whole.
    pub fn new(record_bytes_max: usize) -> Self {
        Self { record_bytes_max, joined: Vec::new(), joined_is_whole: false }
    }

    /// Takes the next record off the front of `received`; `None` when more must be received first.
    /// What it takes of an incomplete record it keeps.
    ///
    /// # Errors
    /// `Long` when the record exceeds the bound; the stream is useless from there on.
    #[inline]
    pub fn next<'r, 'b: 'r>(&'r mut self, received: &mut &'b [u8]) -> Result<Option<&'r [u8]>, WireError> {
        if self.joined_is_whole {
            self.joined_is_whole = false;
            self.joined.clear();
        }
        while let Some((mark, rest)) = received.split_first_chunk::<MARK_BYTES>() {
            let mark = u32::from_be_bytes(*mark);
            let fragment_bytes = (mark & !LAST) as usize;
            if fragment_bytes > self.record_bytes_max - self.joined.len() {
                return Err(WireError::Long);
            }
            let Some((fragment, rest)) = rest.split_at_checked(fragment_bytes) else { break };
            *received = rest;
            let last = mark & LAST != 0;
            if last && self.joined.is_empty() {
                return Ok(Some(fragment));
            }
            self.joined.extend_from_slice(fragment);
            if last {
                self.joined_is_whole = true;
                return Ok(Some(&self.joined));
            }
        }
        Ok(None)
    }

    /// Forgets an incomplete record, for a new connection.
    pub fn reset(&mut self) {
        self.joined.clear();
        self.joined_is_whole = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_over_the_bound_is_refused_before_it_arrives() {
        let mut reader = RecordReader::new(100);
        assert_eq!(reader.next(&mut &(LAST | 101).to_be_bytes()[..]), Err(WireError::Long));
        let mut stream = Vec::new();
        put_u32(&mut stream, 60);
        stream.extend([7; 60]);
        put_u32(&mut stream, LAST | 41);
        let mut reader = RecordReader::new(100);
        assert_eq!(reader.next(&mut &stream[..]), Err(WireError::Long), "the fragments together exceed it");
    }

    proptest! {
        #[test]
        fn records_survive_any_fragments_and_any_arrival(
            records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..6),
            fragment_bytes in 1_usize..17, arrival_bytes in 1_usize..23,
        ) {
            let mut stream = Vec::new();
            for record in &records {
                let mut fragments = record.chunks(fragment_bytes).peekable();
                if fragments.peek().is_none() {
                    put_u32(&mut stream, LAST);
                }
                while let Some(fragment) = fragments.next() {
                    let last = if fragments.peek().is_none() { LAST } else { 0 };
                    put_u32(&mut stream, last | fragment.len() as u32);
                    stream.extend_from_slice(fragment);
                }
            }
            let mut reader = RecordReader::new(40);
            let (mut seen, mut buffer) = (Vec::new(), Vec::new());
            for arrived in stream.chunks(arrival_bytes) {
                buffer.extend_from_slice(arrived);
                let mut rest = &buffer[..];
                while let Some(record) = reader.next(&mut rest).unwrap() {
                    seen.push(record.to_vec());
                }
                buffer = rest.to_vec();
            }
            prop_assert_eq!(seen, records);
            prop_assert!(buffer.is_empty());
        }
    }
}
