//! READDIR and READDIRPLUS.
//!
//! ```text
//! request --> window of its directory and cookie --+-- is kept --> its entries behind the cookie
//!                                                  `-- none -----> all names are looked at, and the first ones behind it are a window
//! ```
//!
//! A cookie is a hash of the entry's name, and entries come in the order of their cookies. So a listing continues after any pause,
//! also after the tree was opened again, and shows every name that was there all the time exactly once, unless two names of one
//! directory have one hash of 63 bits. The cookie verifier is therefore constant.
//!
//! Names are stored in another order, so finding those behind a cookie takes a look at all of them. A window keeps the next 131,072: a
//! directory that has no more is read once for each listing. Once the directory has changed, each entry of a window is looked up before it
//! is returned. A new listing has a window of its own; that of one that has ended is dropped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use files::{DirEntry, Entries, HandleRef, ListingRoom, Reply, Scratch, Status};

use super::{PackTree, attributes};
use crate::error::Refusal;
use crate::table::{Inode, Node};

const COOKIE_VERIFIER: [u8; 8] = [0; 8];
/// Cookies of `.` and `..`; names have higher ones.
const ITSELF: u64 = 1;
const ABOVE: u64 = 2;
/// Names that are looked at under one lock.
const NAMES_AT_ONCE: usize = 1024;
/// Entries of a window: some 8 MB.
const WINDOW_ENTRIES: usize = 1 << 17;
/// Listings under way whose windows are kept.
const WINDOWS: usize = 4;

/// Windows of the listings that are under way, the last one used last.
#[derive(Default)]
pub(super) struct Listings {
    windows: Mutex<VecDeque<Window>>,
    /// Names that were looked at to make windows.
    names_read: AtomicU64,
}

/// Entries of a directory behind a cookie, in the order of their cookies.
struct Window {
    directory: Inode,
    /// As it was before the names were read: any change of them makes another one.
    node: Arc<Node>,
    behind: u64,
    entries: Vec<Found>,
    /// There are no more behind them.
    is_last: bool,
}

/// Cookie, name, inode.
type Found = (u64, Box<[u8]>, Inode);

impl Listings {
    fn take(&self, directory: Inode, cookie: u64) -> Option<Window> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let at = windows.iter().position(|window| window.has(directory, cookie))?;
        windows.remove(at)
    }

    fn keep(&self, window: Window) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() == WINDOWS {
            windows.pop_front();
        }
        windows.push_back(window);
    }
}

impl Window {
    /// Whether a listing continues here. One that begins shows the directory as it is now.
    fn has(&self, directory: Inode, cookie: u64) -> bool {
        let end = self.entries.last().map_or(self.behind, |(last, ..)| *last);
        self.directory == directory && cookie != 0 && self.behind <= cookie && (self.is_last || cookie < end)
    }
}

impl PackTree {
    pub(super) fn list(
        &self,
        dir: HandleRef<'_>,
        (mut cookie, verifier): (u64, [u8; 8]),
        mut room: ListingRoom,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Refusal> {
        let (inode, node) = self.tree.engine.look(|state| self.directory(state, dir))?;
        if cookie != 0 && verifier != COOKIE_VERIFIER || cookie > i64::MAX as u64 {
            return Err(Status::BAD_COOKIE.into());
        }
        let listings = &self.answering().listings;
        let end = loop {
            let window = match listings.take(inode, cookie) {
                Some(window) => window,
                None => self.window(inode, &node, cookie)?,
            };
            let listed = self.list_from(&window, &node, cookie, &mut room, scratch)?;
            if listed.is_full {
                if listed.entries == 0 {
                    return Err(Status::TOOSMALL.into());
                }
                listings.keep(window);
                break false;
            }
            if window.is_last || listed.entries > 0 {
                break window.is_last;
            }
            // All entries of this one were removed meanwhile.
            cookie = window.entries.last().map_or(cookie, |(last, ..)| *last);
        };
        Ok(Reply::Listing {
            dir: Some(attributes(inode, &node, self.tree.fsid)),
            verifier: COOKIE_VERIFIER,
            entries: Entries::Listed(&[]),
            end,
        })
    }

    /// Adds the entries of a window behind a cookie that are still there.
    fn list_from(
        &self,
        window: &Window,
        node: &Arc<Node>,
        cookie: u64,
        room: &mut ListingRoom,
        scratch: &mut Scratch,
    ) -> Result<Listed, Refusal> {
        let engine = &self.tree.engine;
        let is_unchanged = Arc::ptr_eq(&window.node, node);
        let start = window.entries.partition_point(|(at, ..)| *at <= cookie);
        let mut entries = 0;
        for (at, name, inode) in &window.entries[start..] {
            let mut inode = *inode;
            if !is_unchanged && *at > ABOVE {
                match engine.look(|state| state.table.name(window.directory, name))? {
                    Some(named) => inode = named.inode,
                    None => continue,
                }
            }
            if !room.take(name.len()) {
                return Ok(Listed { entries, is_full: true });
            }
            entries += 1;
            let object = self.handle(inode);
            let of_entry = match room.is_plus() {
                true => engine.look(|state| state.table.node(inode))?,
                false => None,
            };
            scratch.add_entry(&DirEntry {
                fileid: inode,
                name,
                cookie: *at,
                attributes: of_entry.as_ref().map(|node| attributes(inode, node, self.tree.fsid)),
                object: of_entry.as_ref().map(|_| object.by_ref()),
            });
        }
        Ok(Listed { entries, is_full: false })
    }

    /// Looks at all names of a directory. `node` is what it was before.
    fn window(&self, directory: Inode, node: &Arc<Node>, behind: u64) -> Result<Window, Refusal> {
        let mut first = First { behind, found: Vec::new(), all: 0 };
        first.add(ITSELF, b".", directory);
        first.add(ABOVE, b"..", self.above(directory, node));
        let mut after: Box<[u8]> = [].into();
        loop {
            let names = self.tree.engine.look(|state| state.table.list(directory, &after, NAMES_AT_ONCE))?;
            if let Some(lost) = names.damaged {
                return Err(lost);
            }
            self.answering().listings.names_read.fetch_add(names.names.len() as u64, Ordering::Relaxed);
            names.names.iter().for_each(|(name, named)| first.add(cookie_of(name), name, named.inode));
            if names.is_end {
                break;
            }
            after = names.names.into_iter().next_back().map_or(after, |(last, _)| last);
        }
        let (entries, all) = first.sorted();
        let (node, is_last) = (node.clone(), entries.len() == all);
        Ok(Window { directory, node, behind, entries, is_last })
    }
}

/// What a window gave to one reply.
struct Listed {
    entries: usize,
    /// The reply takes no more.
    is_full: bool,
}

/// The entries of the lowest cookies behind one.
struct First {
    behind: u64,
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
        if self.found.len() >= 2 * WINDOW_ENTRIES {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if self.found.len() > WINDOW_ENTRIES {
            self.found.select_nth_unstable(WINDOW_ENTRIES);
            self.found.truncate(WINDOW_ENTRIES);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use files::{FileService as _, FileSystem as _, Handle, Request};
    use testkit::SimulatedDisk;

    use super::*;
    use crate::TreeOptions;

    const OPTIONS: TreeOptions = TreeOptions {
        segment_bytes: 1 << 20,
        journal_bytes: 128 << 10,
        flush_every: None,
        cache_bytes: 1 << 20,
    };

    fn opened(machine: &SimulatedDisk) -> PackTree {
        PackTree::open(Arc::new(machine.clone()), &OPTIONS, "pack:test").unwrap()
    }

    fn with_names(count: usize) -> (SimulatedDisk, PackTree) {
        let machine = SimulatedDisk::new("machine");
        PackTree::create(&machine, &OPTIONS).unwrap();
        let tree = opened(&machine);
        tree.mkdir(Path::new("d")).unwrap();
        (0..count).for_each(|number| drop(tree.create(Path::new(&format!("d/name-{number}"))).unwrap()));
        (machine, tree)
    }

    fn directory(tree: &PackTree) -> Handle {
        let mut scratch = Scratch::new();
        let root = tree.root();
        match tree.execute(&Request::Lookup { dir: root.by_ref(), name: b"d" }, &mut scratch).unwrap() {
            Reply::Lookup { object, .. } => Handle::new(object.0).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Some 100 names behind a cookie, the last one's cookie, and whether they are the last.
    fn page(tree: &PackTree, dir: &Handle, cookie: u64) -> (Vec<String>, u64, bool) {
        let mut scratch = Scratch::new();
        let request = Request::Readdir { dir: dir.by_ref(), cookie, verifier: [0; 8], count: 4096 };
        let Reply::Listing { entries, end, .. } = tree.execute(&request, &mut scratch).unwrap() else {
            panic!()
        };
        let (mut names, mut last) = (Vec::new(), cookie);
        for entry in entries {
            last = entry.cookie;
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        }
        names.retain(|name| !name.starts_with('.'));
        (names, last, end)
    }

    fn names_read(tree: &PackTree) -> u64 {
        tree.answering().listings.names_read.load(Ordering::Relaxed)
    }

    /// Symptom: each request looked at all names, so that a listing of 100,000 names by pages of 100 looked at 100,000,000.
    #[test]
    fn a_listing_of_100_000_names_by_pages_of_a_hundred_looks_at_each_name_once() {
        let (_, tree) = with_names(100_000);
        let dir = directory(&tree);
        let (mut found, mut cookie, mut pages) = (BTreeSet::new(), 0, 0);
        loop {
            let (names, last, end) = page(&tree, &dir, cookie);
            pages += 1;
            names.into_iter().for_each(|name| assert!(found.insert(name.clone()), "{name} twice"));
            if end {
                break;
            }
            cookie = last;
        }
        assert!(found.len() == 100_000 && pages > 800, "{} names in {pages} pages", found.len());
        assert_eq!(names_read(&tree), 100_000);
        let kept = tree.answering().listings.windows.lock().unwrap().len();
        assert_eq!(kept, 0, "a listing that has ended needs no memory");
    }

    #[test]
    fn a_listing_whose_names_are_removed_page_by_page_returns_all_of_them_and_looks_at_each_once() {
        let (_, tree) = with_names(5_000);
        let dir = directory(&tree);
        let (mut removed, mut cookie, mut end) = (0, 0, false);
        while !end {
            let names;
            (names, cookie, end) = page(&tree, &dir, cookie);
            removed += names.len();
            names.iter().for_each(|name| tree.unlink(&Path::new("d").join(name)).unwrap());
        }
        assert_eq!((removed, names_read(&tree)), (5_000, 5_000));
        assert_eq!(page(&tree, &dir, 0), (vec![], ABOVE, true));
    }

    #[test]
    fn what_was_removed_or_replaced_since_the_first_page_is_not_shown_as_it_was() {
        let (machine, tree) = with_names(1_000);
        let dir = directory(&tree);
        let (first, cookie, _) = page(&tree, &dir, 0);
        let mut rest: BTreeSet<String> = (0..1_000).map(|number| format!("name-{number}")).collect();
        first.iter().for_each(|name| assert!(rest.remove(name)));
        let gone: Vec<String> = rest.iter().step_by(2).cloned().collect();
        for name in &gone {
            tree.unlink(&Path::new("d").join(name)).unwrap();
            rest.remove(name);
        }
        // The same cookie, answered by the kept window and by a tree that was opened again.
        let listed = |tree: &PackTree| {
            let (mut found, mut cookie, mut end) = (BTreeSet::new(), cookie, false);
            while !end {
                let names;
                (names, cookie, end) = page(tree, &dir, cookie);
                found.extend(names);
            }
            found
        };
        assert_eq!(listed(&tree), rest);
        tree.close().unwrap();
        assert_eq!(listed(&opened(&machine)), rest);
    }
}
