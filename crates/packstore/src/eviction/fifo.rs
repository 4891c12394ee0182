use super::Policy;
use super::chain::{Links, Queue};

/// First in, first out: the order of a cyclic store. Requests change nothing.
pub struct Fifo {
    links: Links,
    queue: Queue,
}

impl Fifo {
    /// For this many slots; more make it grow.
    pub fn new(slots: u32) -> Self {
        Self { links: Links::new(slots), queue: Queue::default() }
    }
}

impl Policy for Fifo {
    fn inserted(&mut self, slot: u32, _key: u64) {
        if !self.links.fill(slot) {
            self.queue.push(&mut self.links, slot);
        }
    }

    fn touched(&self, _slot: u32) {}

    fn removed(&mut self, slot: u32) {
        self.links.leave(slot);
    }

    fn victim(&mut self) -> Option<u32> {
        loop {
            let slot = self.queue.unlink(&mut self.links, None)?;
            if !self.links.is_hole(slot) {
                self.links.leave(slot);
                return Some(slot);
            }
        }
    }

    fn len(&self) -> usize {
        self.links.len()
    }

    fn memory_bytes(&self) -> usize {
        self.links.memory_bytes()
    }
}
