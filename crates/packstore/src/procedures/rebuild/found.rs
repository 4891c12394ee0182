//! One record of an index, made small: there are as many of them as records while a store is rebuilt.

use crate::fingerprints::Location;
use crate::format::Kind;

/// ```text
/// hash 8 | sequence 8 | blocks 4 | file superseded 4 | location 5 | flags 1 | zeros 2
/// ```
pub(super) const FOUND_BYTES: usize = 32;

/// A record that an index, or a data file, names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Found {
    pub hash: u64,
    pub sequence: u64,
    pub blocks: u32,
    /// The segment whose record it supersedes, as it says itself; `u32::MAX`: none.
    pub superseded: u32,
    /// Where it is and what it is, in one word.
    packed: u64,
}

const _: () = assert!(size_of::<Found>() == FOUND_BYTES);

const HAS_LOCATION: u64 = Location::END;
const IS_TORN: u64 = Location::END << 1;
const IS_UNCERTAIN: u64 = Location::END << 2;
const HAS_EXPIRED: u64 = Location::END << 3;
const IS_UNSYNCED: u64 = Location::END << 4;
const IS_FROM_DATA: u64 = Location::END << 5;
const KIND_SHIFT: u32 = Location::END.trailing_zeros() + 6;

impl Found {
    pub fn tombstone(hash: u64, sequence: u64, superseded: u32) -> Self {
        Self { hash, sequence, blocks: 0, superseded, packed: u64::from(Kind::Whole.code()) << KIND_SHIFT }
    }

    pub fn record(hash: u64, sequence: u64, kind: Kind, location: Location, blocks: u32) -> Self {
        let packed = u64::from(kind.code()) << KIND_SHIFT | HAS_LOCATION | location.number();
        Self { hash, sequence, blocks, superseded: u32::MAX, packed }
    }

    /// Found in the data file alone: all that is sure is that older ones are superseded.
    pub fn uncertain(self) -> Self {
        Self { packed: self.packed | IS_UNCERTAIN, ..self }
    }

    /// Its time to live is over: all that it does is supersede older ones.
    pub fn expired(self) -> Self {
        Self { packed: self.packed | HAS_EXPIRED, ..self }
    }

    pub fn has_expired(&self) -> bool {
        self.packed & HAS_EXPIRED != 0
    }

    /// Behind the last mark of its index: what was written with it may be lost.
    pub fn note_unsynced(&mut self) {
        self.packed |= IS_UNSYNCED;
    }

    pub fn is_unsynced(&self) -> bool {
        self.packed & IS_UNSYNCED != 0
    }

    /// Its index was lost: it is of any time.
    pub fn note_from_data(&mut self) {
        self.packed |= IS_FROM_DATA;
    }

    pub fn is_from_data(&self) -> bool {
        self.packed & IS_FROM_DATA != 0
    }

    /// Its body was lost.
    pub fn tear(&mut self) {
        self.packed |= IS_TORN;
    }

    /// `None`: a tombstone.
    pub fn location(&self) -> Option<Location> {
        Location::new(self.packed & (Location::END - 1)).filter(|_| self.packed & HAS_LOCATION != 0)
    }

    pub fn kind(&self) -> Kind {
        Kind::of((self.packed >> KIND_SHIFT) as u8).unwrap_or(Kind::Whole)
    }

    pub fn is_torn(&self) -> bool {
        self.packed & IS_TORN != 0
    }

    pub fn is_uncertain(&self) -> bool {
        self.packed & IS_UNCERTAIN != 0
    }

    pub fn encode(&self) -> [u8; FOUND_BYTES] {
        let mut bytes = [0; FOUND_BYTES];
        bytes[..8].copy_from_slice(&self.hash.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.superseded.to_le_bytes());
        bytes[24..].copy_from_slice(&self.packed.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; FOUND_BYTES]) -> Self {
        let word = |at: usize| crate::format::u64_at(bytes, at);
        Self {
            hash: word(0),
            sequence: word(8),
            blocks: word(16) as u32,
            superseded: (word(16) >> 32) as u32,
            packed: word(24),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_as_it_was() {
        let location = Location::new(Location::END - 1).unwrap();
        let record = Found::record(u64::MAX, 7, Kind::Alias, location, 9);
        let mut torn = Found { superseded: 3, ..record };
        torn.tear();
        let tombstone = Found::tombstone(5, u64::MAX, 4);
        for found in [record, record.uncertain(), record.expired(), torn, tombstone] {
            assert_eq!(Found::decode(&found.encode()), found);
        }
        assert_eq!((record.location(), record.kind()), (Some(location), Kind::Alias));
        assert!(!record.is_torn() && !record.is_uncertain() && !record.is_unsynced());
        let mut unsynced = record;
        unsynced.note_unsynced();
        assert_eq!(Found::decode(&unsynced.encode()), unsynced);
        assert!(unsynced.is_unsynced() && unsynced.kind() == Kind::Alias && !unsynced.has_expired());
        assert!(torn.is_torn() && !torn.is_uncertain() && torn.location() == Some(location));
        assert!(
            record.expired().has_expired() && !record.has_expired() && record.expired().kind() == Kind::Alias
        );
        assert!(record.uncertain().is_uncertain() && tombstone.location().is_none());
    }
}
