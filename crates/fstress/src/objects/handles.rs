//! File handles by slot number: opaque bytes, as many as the server likes, up to 64 (RFC 1813, section 2.5).
//!
//! ```text
//! chunk   stride 33:  | len 1 B | handle 32 B | len 1 B | handle 32 B | ...      4096 slots, len 0 = none
//! ```
//!
//! Servers give handles of one length for nearly all objects, but no rule says so. The stride of a chunk is the
//! length of the longest handle seen when it was made; a longer one that comes later widens its chunk alone
//! (4096 slots, some microseconds), never the whole table.

/// A handle for each slot that has one.
#[derive(Default)]
pub struct HandleTable {
    chunks: Vec<HandleChunk>,
    handle_bytes_max: usize,
}

#[derive(Default)]
struct HandleChunk {
    stride: usize,
    bytes: Box<[u8]>,
}

/// Longest handle of NFSv3, in bytes.
pub const HANDLE_BYTES_LIMIT: usize = 64;

const SLOTS_PER_CHUNK: usize = 4096;

impl HandleTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The handle of a slot, if it has one.
    #[inline]
    pub fn handle(&self, slot: u32) -> Option<&[u8]> {
        let chunk = self.chunks.get(slot as usize / SLOTS_PER_CHUNK)?;
        let start = slot as usize % SLOTS_PER_CHUNK * chunk.stride;
        let len = usize::from(*chunk.bytes.get(start)?);
        if len == 0 { None } else { Some(&chunk.bytes[start + 1..start + 1 + len]) }
    }

    /// Length of the handle of a slot, zero if it has none.
    #[inline]
    pub fn handle_bytes(&self, slot: u32) -> u8 {
        let chunk = self.chunks.get(slot as usize / SLOTS_PER_CHUNK);
        chunk
            .and_then(|chunk| chunk.bytes.get(slot as usize % SLOTS_PER_CHUNK * chunk.stride))
            .copied()
            .unwrap_or(0)
    }

    /// Sets the handle of a slot. Returns false and keeps nothing if it is empty or longer than the protocol
    /// allows, which is the peer's fault.
    #[must_use = "a handle that was not kept cannot be used later"]
    pub fn set(&mut self, slot: u32, handle: &[u8]) -> bool {
        if handle.is_empty() || handle.len() > HANDLE_BYTES_LIMIT {
            return false;
        }
        self.handle_bytes_max = self.handle_bytes_max.max(handle.len());
        let index = slot as usize / SLOTS_PER_CHUNK;
        if index >= self.chunks.len() {
            self.chunks.resize_with(index + 1, HandleChunk::default);
        }
        let chunk = &mut self.chunks[index];
        if chunk.stride <= handle.len() {
            chunk.widen(self.handle_bytes_max + 1);
        }
        let start = slot as usize % SLOTS_PER_CHUNK * chunk.stride;
        chunk.bytes[start] = handle.len() as u8;
        chunk.bytes[start + 1..start + 1 + handle.len()].copy_from_slice(handle);
        true
    }

    /// Forgets the handle of a slot.
    pub fn clear(&mut self, slot: u32) {
        if let Some(chunk) = self.chunks.get_mut(slot as usize / SLOTS_PER_CHUNK) {
            let start = slot as usize % SLOTS_PER_CHUNK * chunk.stride;
            if let Some(len) = chunk.bytes.get_mut(start) {
                *len = 0;
            }
        }
    }

    /// Heap memory held, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.bytes.len()).sum::<usize>()
            + self.chunks.capacity() * size_of::<HandleChunk>()
    }
}

impl HandleChunk {
    fn widen(&mut self, stride: usize) {
        let mut bytes = vec![0; SLOTS_PER_CHUNK * stride].into_boxed_slice();
        if self.stride > 0 {
            for (old, new) in self.bytes.chunks_exact(self.stride).zip(bytes.chunks_exact_mut(stride)) {
                new[..self.stride].copy_from_slice(old);
            }
        }
        *self = Self { stride, bytes };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_handle_that_comes_late_leaves_all_earlier_ones_readable() {
        let mut table = HandleTable::new();
        for slot in 0..5000u32 {
            assert!(table.set(slot, &slot.to_be_bytes()));
        }
        let long = [7; HANDLE_BYTES_LIMIT];
        assert!(table.set(17, &long));
        assert_eq!(table.handle(17), Some(&long[..]));
        for slot in (0..5000u32).filter(|slot| *slot != 17) {
            assert_eq!(table.handle(slot), Some(&slot.to_be_bytes()[..]));
        }
        table.clear(17);
        assert_eq!(table.handle(17), None);
        assert!(table.set(17, b"x"));
        assert_eq!(table.handle(17), Some(&b"x"[..]));
    }

    #[test]
    fn a_handle_no_server_may_send_is_refused_and_changes_nothing() {
        let mut table = HandleTable::new();
        assert!(table.set(3, b"good"));
        assert!(!table.set(3, &[]));
        assert!(!table.set(3, &[1; HANDLE_BYTES_LIMIT + 1]));
        assert_eq!(table.handle(3), Some(&b"good"[..]));
        assert_eq!(table.handle(2), None);
        assert_eq!(table.handle(1_000_000), None);
        table.clear(1_000_000);
    }
}
