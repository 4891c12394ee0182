//! READDIR and READDIRPLUS.
//!
//! A cookie is a hash of the entry's name, and entries come in the order of their cookies. So a listing continues after any pause,
//! also after the tree was opened again, and shows every name that was there all the time exactly once, unless two names of one
//! directory have one hash of 63 bits. The cookie verifier is therefore constant. Each request looks at all names of the directory, and
//! keeps those that it needs.

use files::{DirEntry, Entries, HandleRef, ListingRoom, Reply, Scratch, Status};

use super::{PackTree, attributes};
use crate::error::Refusal;
use crate::table::Inode;

const COOKIE_VERIFIER: [u8; 8] = [0; 8];
/// Cookies of `.` and `..`; names have higher ones.
const ITSELF: u64 = 1;
const ABOVE: u64 = 2;
/// Names that are looked at under one lock.
const NAMES_AT_ONCE: usize = 1024;

impl PackTree {
    pub(super) fn list(
        &self,
        dir: HandleRef<'_>,
        (cookie, verifier): (u64, [u8; 8]),
        mut room: ListingRoom,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Refusal> {
        let (inode, node) = self.tree.engine.look(|state| self.directory(state, dir))?;
        if cookie != 0 && verifier != COOKIE_VERIFIER || cookie > i64::MAX as u64 {
            return Err(Status::BAD_COOKIE.into());
        }
        // The first one is refused below, where it does not fit.
        let wanted = room.entries_max().max(1);
        let mut first = First { behind: cookie, wanted, found: Vec::new(), all: 0 };
        first.add(ITSELF, b".", inode);
        first.add(ABOVE, b"..", self.above(inode, &node));
        let mut after: Box<[u8]> = [].into();
        loop {
            let names = self.tree.engine.look(|state| state.table.list(inode, &after, NAMES_AT_ONCE))?;
            if let Some(lost) = names.damaged {
                return Err(lost);
            }
            names.names.iter().for_each(|(name, named)| first.add(cookie_of(name), name, named.inode));
            if names.is_end {
                break;
            }
            after = names.names.into_iter().next_back().map_or(after, |(last, _)| last);
        }
        let (found, all) = first.sorted();
        let mut listed = 0;
        for (at, name, inode) in &found {
            if !room.take(name.len()) {
                if listed == 0 {
                    return Err(Status::TOOSMALL.into());
                }
                break;
            }
            listed += 1;
            let object = self.handle(*inode);
            let of_entry = match room.is_plus() {
                true => self.tree.engine.look(|state| state.table.node(*inode))?,
                false => None,
            };
            scratch.add_entry(&DirEntry {
                fileid: *inode,
                name,
                cookie: *at,
                attributes: of_entry.as_ref().map(|node| attributes(*inode, node, self.tree.fsid)),
                object: of_entry.as_ref().map(|_| object.by_ref()),
            });
        }
        Ok(Reply::Listing {
            dir: Some(attributes(inode, &node, self.tree.fsid)),
            verifier: COOKIE_VERIFIER,
            entries: Entries::Listed(&[]),
            end: listed == all,
        })
    }
}

/// Cookie, name, inode.
type Found = (u64, Box<[u8]>, Inode);

/// The entries of the lowest cookies behind one.
struct First {
    behind: u64,
    wanted: usize,
    found: Vec<Found>,
    /// How many there are in all.
    all: usize,
}

impl First {
    fn add(&mut self, at: u64, name: &[u8], inode: Inode) {
        if at <= self.behind {
            return;
        }
        self.all += 1;
        self.found.push((at, name.into(), inode));
        if self.found.len() >= 2 * self.wanted.max(NAMES_AT_ONCE) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if self.found.len() > self.wanted {
            self.found.select_nth_unstable(self.wanted);
            self.found.truncate(self.wanted);
        }
    }

    fn sorted(mut self) -> (Vec<Found>, usize) {
        self.cut();
        self.found.sort_unstable();
        (self.found, self.all)
    }
}

/// FNV-1a of 64 bits, its bits mixed: the same for a name in every process and version.
fn cookie_of(name: &[u8]) -> u64 {
    let fnv = name.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let mixed = (fnv ^ fnv >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((mixed ^ mixed >> 29) >> 1).max(ABOVE + 1)
}
