//! The table of files: twice as many slots as files at first, found and freed by the original's rules.
//!
//! ```text
//! | used | used | free | used | never used ...        a new file: the slot at `next` when that one is free,
//!                               ^ next               else the first free one from the start; `next` goes behind it
//! ```
//!
//! Which slot a file gets decides which later draws find it, so that the rules are part of every count. Free slots
//! are kept as bits, and none lies below `free_from`: 64 slots are passed over at a time.
//!
//! Always holds: a slot is used when its size is not 0; a bit is set where a slot is free.

use crate::PostmarkError;
use crate::memory::reserved;

/// A file that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its name: files are counted from 1.
    pub(crate) number: u32,
    /// 0 in a free slot alone.
    pub(crate) size_bytes: u32,
    /// Index among the run's places.
    pub(crate) place: u32,
    /// Index among the place's subdirectories, if there are any.
    pub(crate) subdirectory: u32,
}

/// Index into the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

#[derive(Debug)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    free: Vec<u64>,
    free_from: usize,
    next: usize,
}

impl Table {
    /// A table for `number` files at first.
    pub(crate) fn new(number: u32) -> Result<Self, PostmarkError> {
        let slots = u64::from(number) * 2;
        let what = "the table of files";
        if slots > u64::from(u32::MAX) {
            // Draws are 32 bits wide.
            return Err(PostmarkError::Memory { what, needed_bytes: slots * size_of::<Entry>() as u64 });
        }
        let mut entries = reserved(slots, what)?;
        entries.resize(slots as usize, Entry::default());
        let mut free = vec![u64::MAX; (slots as usize).div_ceil(64)];
        if let (Some(last), 1..) = (free.last_mut(), slots % 64) {
            *last = (1 << (slots % 64)) - 1;
        }
        Ok(Self { entries, free, free_from: 0, next: 0 })
    }

    pub(crate) fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The slot for a new file; none when all are used.
    pub(crate) fn vacant(&mut self) -> Option<Slot> {
        let found = match self.entries.get(self.next) {
            Some(entry) if entry.size_bytes == 0 => self.next,
            _ => self.first_free()?,
        };
        self.next = found + 1;
        Some(Slot(found as u32))
    }

    fn first_free(&mut self) -> Option<usize> {
        let word =
            self.free_from / 64 + self.free[self.free_from / 64..].iter().position(|bits| *bits != 0)?;
        let found = word * 64 + self.free[word].trailing_zeros() as usize;
        self.free_from = found;
        Some(found)
    }

    pub(crate) fn occupy(&mut self, slot: Slot, entry: Entry) {
        let index = slot.0 as usize;
        self.entries[index] = entry;
        self.free[index / 64] &= !(1 << (index % 64));
    }

    pub(crate) fn vacate(&mut self, slot: Slot) {
        let index = slot.0 as usize;
        self.entries[index].size_bytes = 0;
        self.free[index / 64] |= 1 << (index % 64);
        self.free_from = self.free_from.min(index);
    }

    /// The slot of this index, if a file is in it.
    #[inline]
    pub(crate) fn used(&self, index: u32) -> Option<Slot> {
        (self.entries[index as usize].size_bytes != 0).then_some(Slot(index))
    }

    #[inline]
    pub(crate) fn entry(&self, slot: Slot) -> Entry {
        self.entries[slot.0 as usize]
    }

    pub(crate) fn grow(&mut self, slot: Slot, by_bytes: u32) {
        self.entries[slot.0 as usize].size_bytes += by_bytes;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(number: u32) -> Entry {
        Entry { number, size_bytes: 1, place: 0, subdirectory: 0 }
    }

    #[test]
    fn a_new_file_takes_the_next_slot_even_when_an_earlier_one_is_free() {
        let mut table = Table::new(2).unwrap();
        for number in 1..=3 {
            let slot = table.vacant().unwrap();
            table.occupy(slot, file(number));
        }
        table.vacate(Slot(0));
        assert_eq!(table.vacant(), Some(Slot(3)));
        table.occupy(Slot(3), file(4));
        assert_eq!(table.vacant(), Some(Slot(0)));
        table.occupy(Slot(0), file(5));
        table.vacate(Slot(2));
        // Slot 1 is used: the search goes back to the start and finds slot 2.
        assert_eq!(table.vacant(), Some(Slot(2)));
        table.occupy(Slot(2), file(6));
        assert_eq!(table.vacant(), None);
    }

    #[test]
    fn a_table_that_no_machine_holds_is_refused_and_not_tried() {
        assert!(matches!(Table::new(u32::MAX), Err(PostmarkError::Memory { .. })));
    }

    proptest! {
        #[test]
        fn the_bits_find_what_a_search_from_the_start_finds(
            number in 1u32..100,
            steps in prop::collection::vec(any::<Option<prop::sample::Index>>(), 0..600),
        ) {
            let mut table = Table::new(number).unwrap();
            let mut next = 0;
            for step in steps {
                match step {
                    Some(index) => {
                        let index = index.index(table.slots() as usize) as u32;
                        if let Some(slot) = table.used(index) {
                            table.vacate(slot);
                        }
                    }
                    None => {
                        let free = |index: &u32| table.used(*index).is_none();
                        let plain = Some(next).filter(|next| *next < table.slots() && free(next));
                        let plain = plain.or_else(|| (0..table.slots()).find(free));
                        prop_assert_eq!(table.vacant(), plain.map(Slot));
                        if let Some(found) = plain {
                            table.occupy(Slot(found), file(1));
                            next = found + 1;
                        }
                    }
                }
            }
        }
    }
}
