//! Queues of slots, oldest first, linked one way: five bytes a slot for all of a policy's queues together.
//!
//! A removed object's slot stays linked as a hole until the queue comes to it. When the slot is used again before, the
//! new object takes the hole's place: it is a little older than it should be, and nothing needs a second link.

use std::sync::atomic::{AtomicU8, Ordering};

/// What links all slots of one policy.
pub(super) struct Links {
    /// The next younger one.
    next: Vec<u32>,
    marks: Vec<AtomicU8>,
    len: usize,
}

/// One queue.
#[derive(Default)]
pub(super) struct Queue {
    ends: Option<Ends>,
    /// With holes.
    pub(super) linked: usize,
}

struct Ends {
    oldest: u32,
    newest: u32,
}

impl Links {
    pub(super) fn new(slots: u32) -> Self {
        let mut links = Self { next: Vec::new(), marks: Vec::new(), len: 0 };
        links.next.reserve_exact(slots as usize);
        links.marks.reserve_exact(slots as usize);
        links
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.next.capacity() * size_of::<u32>() + self.marks.capacity()
    }

    /// Makes the object known. True when its slot was a hole and has its place in a queue already.
    pub(super) fn fill(&mut self, slot: u32) -> bool {
        let index = slot as usize;
        if index >= self.next.len() {
            self.next.resize(index + 1, NONE);
            self.marks.resize_with(index + 1, AtomicU8::default);
        }
        let marks = self.marks[index].get_mut();
        if *marks & HELD == 0 {
            self.len += 1;
        }
        *marks = (*marks & (LINKED | LATER)) | HELD;
        *marks & LINKED != 0
    }

    /// Leaves a hole.
    pub(super) fn leave(&mut self, slot: u32) {
        if let Some(marks) = self.marks.get_mut(slot as usize) {
            let marks = marks.get_mut();
            if *marks & HELD != 0 {
                *marks &= !(HELD | TOUCHES);
                self.len -= 1;
            }
        }
    }

    /// One more request, up to `most`.
    pub(super) fn touch(&self, slot: u32, most: u8) {
        // A request that overtakes another may be lost, and nothing depends on it.
        if let Some(marks) = self.marks.get(slot as usize) {
            let seen = marks.load(Ordering::Relaxed);
            if seen & HELD != 0 && seen & TOUCHES < most {
                let _ = marks.compare_exchange(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Requests since they were last taken off.
    pub(super) fn touches(&self, slot: u32) -> u8 {
        self.marks[slot as usize].load(Ordering::Relaxed) & TOUCHES
    }

    pub(super) fn set_touches(&mut self, slot: u32, touches: u8) {
        let marks = self.marks[slot as usize].get_mut();
        *marks = (*marks & !TOUCHES) | touches;
    }

    /// A mark for the policy's own use.
    pub(super) fn set_later(&mut self, slot: u32, later: bool) {
        let marks = self.marks[slot as usize].get_mut();
        *marks = if later { *marks | LATER } else { *marks & !LATER };
    }

    pub(super) fn is_later(&self, slot: u32) -> bool {
        self.marks[slot as usize].load(Ordering::Relaxed) & LATER != 0
    }

    pub(super) fn is_hole(&self, slot: u32) -> bool {
        self.marks[slot as usize].load(Ordering::Relaxed) & HELD == 0
    }
}

impl Queue {
    /// Links a slot that is in no queue at the young end.
    pub(super) fn push(&mut self, links: &mut Links, slot: u32) {
        links.next[slot as usize] = NONE;
        *links.marks[slot as usize].get_mut() |= LINKED;
        self.linked += 1;
        match &mut self.ends {
            Some(ends) => {
                links.next[ends.newest as usize] = slot;
                ends.newest = slot;
            }
            None => self.ends = Some(Ends { oldest: slot, newest: slot }),
        }
    }

    /// The slot after `before`; the oldest without one.
    pub(super) fn after(&self, links: &Links, before: Option<u32>) -> Option<u32> {
        match before {
            None => self.ends.as_ref().map(|ends| ends.oldest),
            Some(before) => Some(links.next[before as usize]).filter(|&next| next != NONE),
        }
    }

    /// Takes out the slot after `before`; its marks stay, but for that of being linked.
    pub(super) fn unlink(&mut self, links: &mut Links, before: Option<u32>) -> Option<u32> {
        let slot = self.after(links, before)?;
        let ends = self.ends.as_mut()?;
        let next = links.next[slot as usize];
        match before {
            Some(before) => links.next[before as usize] = next,
            None => ends.oldest = next,
        }
        if ends.newest == slot {
            match before {
                Some(before) => ends.newest = before,
                None => self.ends = None,
            }
        }
        *links.marks[slot as usize].get_mut() &= !LINKED;
        self.linked -= 1;
        Some(slot)
    }
}

const NONE: u32 = u32::MAX;
const TOUCHES: u8 = 0b11;
const HELD: u8 = 1 << 2;
const LINKED: u8 = 1 << 3;
const LATER: u8 = 1 << 4;
