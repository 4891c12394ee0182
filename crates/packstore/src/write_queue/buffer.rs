//! Memory of a group's records, laid out so that it can be written past the page cache.
//!
//! Always holds: byte 0 lies at a page's beginning, also after it grew.

use std::ops::Range;

/// What direct writes are aligned to, in memory and in the file.
pub(crate) const PAGE_BYTES: usize = 4096;
const FIRST_BYTES: usize = 1 << 20;

/// Bytes that grow at their end.
#[derive(Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Before byte 0.
    lead: usize,
}

impl Buffer {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.lead
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(self.lead);
    }

    pub(crate) fn at(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[self.lead + range.start..self.lead + range.end]
    }

    /// To append at most this many bytes to.
    pub(crate) fn tail(&mut self, bytes: usize) -> &mut Vec<u8> {
        if self.bytes.len() + bytes > self.bytes.capacity() {
            self.grow(bytes);
        }
        &mut self.bytes
    }

    /// Appends zeros.
    pub(crate) fn zeros(&mut self, bytes: usize) {
        let tail = self.tail(bytes);
        tail.resize(tail.len() + bytes, 0);
    }

    fn grow(&mut self, bytes: usize) {
        let wanted = (self.len() + bytes).max(self.len() * 2).max(FIRST_BYTES);
        let mut grown: Vec<u8> = Vec::with_capacity(wanted + PAGE_BYTES);
        let lead = grown.as_ptr().align_offset(PAGE_BYTES).min(PAGE_BYTES);
        grown.resize(lead, 0);
        grown.extend_from_slice(&self.bytes[self.lead..]);
        (self.bytes, self.lead) = (grown, lead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_stays_and_the_first_byte_begins_a_page_however_it_grows() {
        let mut buffer = Buffer::default();
        let mut all = Vec::new();
        for step in 0..300_usize {
            buffer.zeros(3);
            all.resize(all.len() + 3, 0);
            let more = vec![step as u8; step * 97];
            buffer.tail(more.len()).extend_from_slice(&more);
            all.extend_from_slice(&more);
            assert!(buffer.at(0..0).as_ptr().cast::<u8>().align_offset(PAGE_BYTES) == 0, "step {step}");
        }
        assert!(buffer.at(0..buffer.len()) == all);
        buffer.clear();
        assert_eq!(buffer.len(), 0);
    }
}
