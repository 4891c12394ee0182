use super::Policy;
use super::chain::{Links, Queue};

/// SIEVE: a hand goes from old to young, spares what was asked for since it came by, and takes the first that was not.
/// What it spares keeps its place, so that newcomers prove themselves within one round.
pub struct Sieve {
    links: Links,
    queue: Queue,
    /// The slot that the hand passed last; none at the old end.
    passed: Option<u32>,
}

impl Sieve {
    /// For this many slots; more make it grow.
    pub fn new(slots: u32) -> Self {
        Self { links: Links::new(slots), queue: Queue::default(), passed: None }
    }
}

impl Policy for Sieve {
    fn inserted(&mut self, slot: u32, _key: u64) {
        if !self.links.fill(slot) {
            self.queue.push(&mut self.links, slot);
        }
    }

    fn touched(&self, slot: u32) {
        self.links.touch(slot, 1);
    }

    fn removed(&mut self, slot: u32) {
        self.links.leave(slot);
    }

    fn victim(&mut self) -> Option<u32> {
        loop {
            let Some(slot) = self.queue.after(&self.links, self.passed) else {
                // From the young end on to the old one; an empty queue has neither.
                self.passed.take()?;
                continue;
            };
            if self.links.touches(slot) > 0 {
                self.links.set_touches(slot, 0);
                self.passed = Some(slot);
                continue;
            }
            self.queue.unlink(&mut self.links, self.passed);
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
