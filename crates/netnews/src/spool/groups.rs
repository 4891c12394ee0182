//! The groups that have been heard of: their numbers, their directories, where they lie.
//!
//! Groups are found by a hash of their name and known by a small number from then on. A group is made when the first
//! article names it: the feed is the list of groups.
//!
//! Always holds: `high` never falls; `low` is `high + 1` while a group is empty.
//! Not here: the file that keeps the numbers (see `active`).

pub(super) mod active;

use std::collections::HashMap;

use crate::article::is_group;
use crate::spool::layout::places::{PlaceId, Places};

/// Number of a group within a spool, by the order of first mention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub u32);

/// One group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: Box<[u8]>,
    /// Its directory in its place: the name with dots as slashes.
    pub(crate) directory: Box<[u8]>,
    pub(crate) place: PlaceId,
    /// Greatest number ever given.
    pub(crate) high: u64,
    /// Least number of an article that may be there.
    pub(crate) low: u64,
    /// `y`, `m`, … as in active(5).
    pub(crate) flag: u8,
    /// Its directory is known to be there.
    pub(crate) made: bool,
    /// Its numbers are newer than the file.
    pub(crate) dirty: bool,
}

#[derive(Default)]
pub(crate) struct Groups {
    all: Vec<Group>,
    by_name: HashMap<Box<[u8]>, GroupId>,
}

/// Whether a name can become a directory and stand in `active`, `Xref:` and history. Names come from strangers: no
/// way up or out of the spool, no separators of the files it is written to.
pub(crate) fn is_usable(name: &[u8]) -> bool {
    is_group(name) && !name.contains(&b',')
}

impl Groups {
    pub(crate) fn find(&self, name: &[u8]) -> Option<GroupId> {
        self.by_name.get(name).copied()
    }

    /// Adds a group that is not there yet. Its name must be usable.
    pub(crate) fn add(&mut self, name: &[u8], places: &Places) -> GroupId {
        assert!(is_usable(name), "the caller looks at the name first");
        let id =
            GroupId(u32::try_from(self.all.len()).expect("fewer groups than 2^32: each has a directory"));
        let directory = name.iter().map(|&byte| if byte == b'.' { b'/' } else { byte }).collect();
        self.all.push(Group {
            name: name.into(),
            directory,
            place: places.of(name),
            high: 0,
            low: 1,
            flag: b'y',
            made: false,
            dirty: false,
        });
        self.by_name.insert(name.into(), id);
        id
    }

    pub(crate) fn get(&self, id: GroupId) -> &Group {
        &self.all[id.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, id: GroupId) -> &mut Group {
        &mut self.all[id.0 as usize]
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.all.len() as u32).map(GroupId)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_from_a_stranger_leads_out_of_the_spool_or_into_another_field() {
        for name in
            ["", ".", "..", "a..b", ".a", "a.", "a/b", "../etc", "a b", "a\tb", "a:1", "a,b", "a\n", "\u{e9}"]
        {
            assert!(!is_usable(name.as_bytes()), "{name:?}");
        }
        assert!(!is_usable(&[b'a'; 500]));
        for name in ["alt", "alt.2600", "comp.lang.c++", "gnu.emacs-21_x"] {
            assert!(is_usable(name.as_bytes()), "{name:?}");
        }
    }
}
