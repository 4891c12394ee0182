//! Calls in flight: a table whose index is part of the XID, so that a reply finds its call at once.
//!
//! ```text
//! XID = generation (high bits) | slot (low bits)
//! ```
//!
//! Always holds: a slot's generation moves on whenever it is freed, so that a late or repeated reply matches nothing;
//! it begins at random, so that two runs do not share XIDs.

use files::{OpKind, Outcome, Ticket, TransportCounters};

use super::socket::unique;
use crate::wire::{nfs3, rpc};

/// A table of calls in flight, each with an `X` besides.
#[derive(Debug)]
pub(super) struct Slots<X> {
    slots: Vec<Slot<X>>,
    free: Vec<u32>,
    slot_bits: u32,
    len_max: usize,
    first_generation: u32,
}

/// A call in flight, or the place for one.
#[derive(Debug)]
pub(super) struct Slot<X> {
    pub(super) xid: u32,
    pub(super) busy: bool,
    pub(super) kind: OpKind,
    pub(super) ticket: Ticket,
    pub(super) extra: X,
}

impl<X: Default> Slots<X> {
    pub(super) fn new(len_max: u16) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            slot_bits: u32::from(len_max).next_power_of_two().trailing_zeros(),
            len_max: usize::from(len_max),
            first_generation: unique(),
        }
    }

    /// A slot for a call; `None` when all are taken. The latest freed goes first: it is still in the cache.
    #[inline]
    pub(super) fn take(&mut self, ticket: Ticket, kind: OpKind) -> Option<(u32, &mut Slot<X>)> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow()?,
        };
        let slot = &mut self.slots[index as usize];
        slot.busy = true;
        slot.kind = kind;
        slot.ticket = ticket;
        Some((index, slot))
    }

    #[cold]
    fn grow(&mut self) -> Option<u32> {
        if self.slots.len() == self.len_max {
            return None;
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot {
            xid: self.first_generation.wrapping_shl(self.slot_bits) | index,
            busy: false,
            kind: OpKind::Null,
            ticket: Ticket(0),
            extra: X::default(),
        });
        Some(index)
    }

    /// The slot whose call has this XID.
    #[inline]
    pub(super) fn find(&self, xid: u32) -> Option<u32> {
        let index = xid & ((1 << self.slot_bits) - 1);
        self.slots.get(index as usize).filter(|slot| slot.busy && slot.xid == xid).map(|_| index)
    }

    #[inline]
    pub(super) fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.busy, "a slot is freed twice");
        slot.busy = false;
        slot.xid = slot.xid.wrapping_add(1 << self.slot_bits);
        self.free.push(index);
    }

    #[inline]
    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Frees every slot in flight and returns its ticket.
    pub(super) fn release_all(&mut self, mut each: impl FnMut(Ticket)) -> usize {
        let in_flight = self.in_flight();
        for index in 0..self.slots.len() as u32 {
            if self[index].busy {
                each(self[index].ticket);
                self.release(index);
            }
        }
        in_flight
    }
}

impl<X> std::ops::Index<u32> for Slots<X> {
    type Output = Slot<X>;
    #[inline]
    fn index(&self, index: u32) -> &Slot<X> {
        &self.slots[index as usize]
    }
}

impl<X> std::ops::IndexMut<u32> for Slots<X> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Slot<X> {
        &mut self.slots[index as usize]
    }
}

/// Reads what a message answers and how. `None`: it is no reply, or one to nothing in flight.
#[inline]
pub(super) fn read_reply<'a, X: Default>(slots: &Slots<X>, message: &'a [u8]) -> Option<(u32, Outcome<'a>)> {
    match rpc::decode_reply(message) {
        Ok(reply) => {
            let index = slots.find(reply.xid)?;
            let outcome = match reply.body {
                Ok(results) => match nfs3::decode_reply(slots[index].kind, results) {
                    Ok(Ok(reply)) => Outcome::Ok(reply),
                    Ok(Err(status)) => Outcome::Failed(status),
                    Err(_) => Outcome::BadReply,
                },
                Err(refusal) => Outcome::Rejected(refusal.name()),
            };
            Some((index, outcome))
        }
        // A reply whose head is spoilt behind its XID and direction still ends its call: over TCP no other will come.
        Err(_) => match message {
            [a, b, c, d, 0, 0, 0, 1, ..] => {
                slots.find(u32::from_be_bytes([*a, *b, *c, *d])).map(|index| (index, Outcome::BadReply))
            }
            _ => None,
        },
    }
}

/// Counts a message that answers nothing in flight: a late or repeated reply, or garbage.
#[cold]
pub(super) fn count_bad_reply(message: &[u8], counters: &mut TransportCounters) {
    counters.bad_replies += 1;
    counters.garbage += u64::from(rpc::decode_reply(message).is_err());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_slots_old_xid_matches_nothing() {
        let mut slots = Slots::<()>::new(3);
        let mut xids = Vec::new();
        for ticket in 0..3 {
            let (index, slot) = slots.take(Ticket(ticket), OpKind::Null).unwrap();
            xids.push((index, slot.xid));
        }
        assert!(slots.take(Ticket(9), OpKind::Null).is_none());
        for (index, xid) in &xids {
            assert_eq!(slots.find(*xid), Some(*index));
        }
        slots.release(xids[1].0);
        assert_eq!(slots.find(xids[1].1), None);
        let (index, slot) = slots.take(Ticket(4), OpKind::Read).unwrap();
        assert_eq!(index, xids[1].0);
        assert_ne!(slot.xid, xids[1].1);
        assert_eq!(slots.in_flight(), 3);
        let mut tickets = Vec::new();
        assert_eq!(slots.release_all(|ticket| tickets.push(ticket.0)), 3);
        assert_eq!((tickets, slots.in_flight()), (vec![0, 4, 2], 0));
    }

    #[test]
    fn xids_stay_apart_over_many_generations_with_a_table_of_one() {
        let mut slots = Slots::<()>::new(1);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10_000 {
            let (index, slot) = slots.take(Ticket(0), OpKind::Null).unwrap();
            assert!(seen.insert(slot.xid));
            slots.release(index);
        }
    }
}
