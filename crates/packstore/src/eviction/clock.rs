use super::Policy;
use super::chain::{Links, Queue};

/// A clock: first in, first out, but each request since its last round is worth another round, up to `lives`. What a
/// cyclic store can do by writing the objects that were asked for to its young end again.
pub struct Clock {
    links: Links,
    queue: Queue,
    lives: u8,
}

impl Clock {
    /// For this many slots; more make it grow. `lives`: 1 to 3.
    pub fn new(slots: u32, lives: u8) -> Self {
        assert!((1..=3).contains(&lives), "{lives} lives do not fit into two bits");
        Self { links: Links::new(slots), queue: Queue::default(), lives }
    }
}

impl Policy for Clock {
    fn inserted(&mut self, slot: u32, _key: u64) {
        if !self.links.fill(slot) {
            self.queue.push(&mut self.links, slot);
        }
    }

    fn touched(&self, slot: u32) {
        self.links.touch(slot, self.lives);
    }

    fn removed(&mut self, slot: u32) {
        self.links.leave(slot);
    }

    fn victim(&mut self) -> Option<u32> {
        loop {
            let slot = self.queue.unlink(&mut self.links, None)?;
            let touches = self.links.touches(slot);
            if touches > 0 {
                self.links.set_touches(slot, touches - 1);
                self.queue.push(&mut self.links, slot);
            } else if !self.links.is_hole(slot) {
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
