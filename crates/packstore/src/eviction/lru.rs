use std::sync::{Mutex, PoisonError};

use super::Policy;

/// Least recently used: what the others are measured against. Each request takes a lock and writes to three objects.
pub struct Lru {
    order: Mutex<Order>,
}

struct Order {
    /// Younger and older neighbour; itself twice when not known.
    links: Vec<[u32; 2]>,
    newest: Option<u32>,
    oldest: Option<u32>,
    len: usize,
}

impl Lru {
    /// For this many slots; more make it grow.
    pub fn new(slots: u32) -> Self {
        let links = Vec::with_capacity(slots as usize);
        Self { order: Mutex::new(Order { links, newest: None, oldest: None, len: 0 }) }
    }

    fn order(&mut self) -> &mut Order {
        self.order.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Policy for Lru {
    fn inserted(&mut self, slot: u32, _key: u64) {
        let order = self.order();
        let known = order.links.len() as u32;
        order.links.extend((known..slot.saturating_add(1)).map(|new| [new; 2]));
        order.unlink(slot);
        order.push(slot);
    }

    fn touched(&self, slot: u32) {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if order.unlink(slot) {
            order.push(slot);
        }
    }

    fn removed(&mut self, slot: u32) {
        self.order().unlink(slot);
    }

    fn victim(&mut self) -> Option<u32> {
        let order = self.order();
        let slot = order.oldest?;
        order.unlink(slot);
        Some(slot)
    }

    fn len(&self) -> usize {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).len
    }

    fn memory_bytes(&self) -> usize {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).links.capacity() * size_of::<[u32; 2]>()
    }
}

impl Order {
    /// False when it was not known.
    fn unlink(&mut self, slot: u32) -> bool {
        let Some(&[younger, older]) = self.links.get(slot as usize) else { return false };
        if [younger, older] == [slot; 2] {
            return false;
        }
        match younger {
            END => self.newest = Some(older).filter(|&slot| slot != END),
            younger => self.links[younger as usize][1] = older,
        }
        match older {
            END => self.oldest = Some(younger).filter(|&slot| slot != END),
            older => self.links[older as usize][0] = younger,
        }
        self.links[slot as usize] = [slot; 2];
        self.len -= 1;
        true
    }

    fn push(&mut self, slot: u32) {
        match self.newest.replace(slot) {
            Some(older) => {
                self.links[slot as usize] = [END, older];
                self.links[older as usize][0] = slot;
            }
            None => {
                self.links[slot as usize] = [END, END];
                self.oldest = Some(slot);
            }
        }
        self.len += 1;
    }
}

const END: u32 = u32::MAX;
