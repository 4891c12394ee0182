//! The nodes that the kernel knows by number, and their names: a tree of names, without descriptors.
//!
//! ```text
//! number (the lower inode's) -> parent's number, name, how often looked up, what it is
//! ```
//!
//! Renaming a directory renames everything below it, because entries refer to it by number. If the kernel knows several
//! names of a file, the node holds the latest and `aside` the others. A stale name is dropped when an operation finds it
//! wrong, and the next one is tried, so unlinking needs no bookkeeping. A node costs about 110 bytes (a test below
//! measures it), plus the name if it is longer than 24 bytes.
//!
//! Always holds: a node exists as long as the kernel holds a reference; node 1 is the root and stays.
//! Locks, each a leaf: a shard's, `aside`.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use files::Layout;

/// The root's number in the protocol, whatever its inode is.
pub(crate) const ROOT: u64 = 1;
/// Further names remembered per file; beyond this, the oldest is forgotten.
const ASIDE_MAX: usize = 256;
const SHARDS: usize = 64;
/// A shard never shrinks below this capacity.
const ROOM_MIN: usize = 256;

/// What a node is, as far as names are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Anything that is not a directory.
    Leaf,
    /// An ordinary directory.
    Plain,
    /// A directory whose entries are stored one or two levels deeper.
    Managed(Layout),
    /// A managed directory whose layout is not known: nothing in it can be found.
    Unreadable,
    /// A directory that this mount converts: see `converting`.
    Converting,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) parent: u64,
    pub(crate) name: Box<[u8]>,
}

struct Node {
    place: Place,
    /// References that the kernel holds. Saturates at the maximum; the node then stays forever.
    lookups: u32,
    kind: Kind,
    /// The kernel may believe its attributes and names for longer than the time-outs say.
    believed: bool,
}

type Shard = HashMap<u64, Node, ByInode>;

/// All nodes.
pub(crate) struct Nodes {
    shards: Vec<Mutex<Shard>>,
    aside: Mutex<HashMap<u64, Vec<Place>>>,
    /// A plain directory has become a managed one, or the other way round.
    reshaped: AtomicBool,
}

impl Nodes {
    pub(crate) fn new(root: Kind) -> Self {
        let nodes = Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            aside: Mutex::default(),
            reshaped: AtomicBool::new(false),
        };
        let place = Place { parent: ROOT, name: Box::default() };
        nodes.shard(ROOT).insert(ROOT, Node { place, lookups: u32::MAX, kind: root, believed: false });
        nodes
    }

    /// Counts a reference of the kernel to the node at `name` in `parent`.
    pub(crate) fn refer(&self, id: u64, parent: u64, name: &[u8], kind: Kind) {
        let mut shard = self.shard(id);
        let Some(node) = shard.get_mut(&id) else {
            let place = Place { parent, name: name.into() };
            shard.insert(id, Node { place, lookups: 1, kind, believed: false });
            return;
        };
        node.lookups = node.lookups.saturating_add(1);
        self.note_shape(node.kind, kind);
        node.kind = kind;
        if id != ROOT && (node.place.parent != parent || *node.place.name != *name) {
            let before = std::mem::replace(&mut node.place, Place { parent, name: name.into() });
            drop(shard);
            // A directory has only one name: drop the previous one.
            if kind == Kind::Leaf {
                self.put_aside(id, before, parent, name);
            }
        }
    }

    /// Returns references of the kernel. If the last one is gone, removes the node and returns its kind.
    pub(crate) fn forget(&self, id: u64, lookups: u64) -> Option<Kind> {
        let mut shard = self.shard(id);
        let node = shard.get_mut(&id)?;
        if node.lookups == u32::MAX {
            return None;
        }
        node.lookups = node.lookups.saturating_sub(lookups.try_into().unwrap_or(u32::MAX));
        if node.lookups > 0 {
            return None;
        }
        let kind = node.kind;
        shard.remove(&id);
        // Release memory after a walk through a million files.
        if shard.capacity() > ROOM_MIN && shard.len() < shard.capacity() / 8 {
            let room = shard.len() * 2;
            shard.shrink_to(room);
        }
        drop(shard);
        if kind == Kind::Leaf {
            let mut aside = lock(&self.aside);
            if !aside.is_empty() {
                aside.remove(&id);
            }
        }
        Some(kind)
    }

    pub(crate) fn place(&self, id: u64) -> Option<Place> {
        self.shard(id).get(&id).map(|node| node.place.clone())
    }

    pub(crate) fn kind(&self, id: u64) -> Option<Kind> {
        self.shard(id).get(&id).map(|node| node.kind)
    }

    /// Notes that a directory has become managed or another layout's; nothing when it is not known.
    pub(crate) fn set_kind(&self, id: u64, kind: Kind) {
        if let Some(node) = self.shard(id).get_mut(&id) {
            self.note_shape(node.kind, kind);
            node.kind = kind;
        }
    }

    fn note_shape(&self, before: Kind, now: Kind) {
        let shows = |kind| matches!(kind, Kind::Plain | Kind::Managed(_));
        if before != now && shows(before) && shows(now) {
            self.reshaped.store(true, Ordering::SeqCst);
        }
    }

    /// Whether a directory has come to show other names since this was asked last: names believed before may lead elsewhere.
    pub(crate) fn take_reshaped(&self) -> bool {
        self.reshaped.swap(false, Ordering::SeqCst)
    }

    /// Follows a rename.
    pub(crate) fn renamed(&self, id: u64, from: &Place, to: Place) {
        let mut shard = self.shard(id);
        let Some(node) = shard.get_mut(&id) else { return };
        if node.place == *from || node.kind != Kind::Leaf {
            node.place = to;
            return;
        }
        drop(shard);
        let mut aside = lock(&self.aside);
        if let Some(found) =
            aside.get_mut(&id).and_then(|places| places.iter_mut().find(|place| *place == from))
        {
            *found = to;
        }
    }

    /// Drops `wrong`, which does not lead to the node; false if no other name is known.
    pub(crate) fn next_place(&self, id: u64, wrong: &Place) -> bool {
        let Some(next) = lock(&self.aside).get_mut(&id).and_then(Vec::pop) else { return false };
        let mut shard = self.shard(id);
        match shard.get_mut(&id) {
            Some(node) if node.place == *wrong => {
                node.place = next;
                true
            }
            other => other.is_some(),
        }
    }

    /// Marks a node as believed by the kernel for long; false when it is not known.
    pub(crate) fn believe(&self, id: u64) -> bool {
        let mut shard = self.shard(id);
        let Some(node) = shard.get_mut(&id) else { return false };
        node.believed = true;
        true
    }

    /// Takes that mark away; whether it was there.
    pub(crate) fn doubt(&self, id: u64) -> bool {
        self.shard(id).get_mut(&id).is_some_and(|node| std::mem::take(&mut node.believed))
    }

    /// Takes all marks away, and returns the nodes that had one.
    pub(crate) fn doubt_all(&self) -> Vec<u64> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            for (id, node) in shard.iter_mut() {
                if std::mem::take(&mut node.believed) {
                    all.push(*id);
                }
            }
        }
        all
    }

    /// Nodes known, the root among them.
    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    fn put_aside(&self, id: u64, before: Place, parent: u64, name: &[u8]) {
        let mut aside = lock(&self.aside);
        let places = aside.entry(id).or_default();
        places.retain(|place| *place != before && !(place.parent == parent && *place.name == *name));
        if places.len() >= ASIDE_MAX {
            places.remove(0);
        }
        places.push(before);
    }

    fn shard(&self, id: u64) -> std::sync::MutexGuard<'_, Shard> {
        // Inode numbers of one directory are neighbours: their low bits spread them.
        lock(&self.shards[id as usize % SHARDS])
    }
}

/// A thread that panicked held the lock over plain assignments only: what it guards is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// For tables by inode number. The lower file system chooses the numbers, not a user: no secret is needed, and std's hasher
/// takes five times as long.
pub(crate) type ByInode = foldhash::fast::FixedState;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(parent: u64, name: &str) -> Place {
        Place { parent, name: name.as_bytes().into() }
    }

    #[test]
    fn a_node_stays_until_the_last_reference_is_given_back() {
        let nodes = Nodes::new(Kind::Plain);
        nodes.refer(7, ROOT, b"a", Kind::Leaf);
        nodes.refer(7, ROOT, b"a", Kind::Leaf);
        assert_eq!(nodes.forget(7, 1), None);
        assert_eq!(nodes.place(7), Some(at(ROOT, "a")));
        assert_eq!(nodes.forget(7, 1), Some(Kind::Leaf));
        assert_eq!(nodes.place(7), None);
        assert_eq!(nodes.forget(ROOT, 5), None, "the root stays");
    }

    #[test]
    fn a_file_whose_latest_name_is_gone_is_found_by_an_earlier_one() {
        let nodes = Nodes::new(Kind::Plain);
        for name in ["a", "b", "c"] {
            nodes.refer(7, ROOT, name.as_bytes(), Kind::Leaf);
        }
        assert!(nodes.next_place(7, &at(ROOT, "c")));
        assert_eq!(nodes.place(7), Some(at(ROOT, "b")));
        assert!(nodes.next_place(7, &at(ROOT, "b")));
        assert_eq!(nodes.place(7), Some(at(ROOT, "a")));
        assert!(!nodes.next_place(7, &at(ROOT, "a")));
    }

    #[test]
    fn a_million_nodes_cost_less_than_150_bytes_each() {
        let resident = || {
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
        };
        let before = resident();
        let nodes = Nodes::new(Kind::Plain);
        for id in 2..1_000_002u64 {
            nodes.refer(id, 1 + id % 1000, format!("{:07}", id).as_bytes(), Kind::Leaf);
        }
        let bytes = (resident() - before) / nodes.count();
        assert!(bytes < 150, "{bytes} bytes each");
    }

    #[test]
    fn room_for_nodes_that_are_forgotten_is_given_back() {
        let nodes = Nodes::new(Kind::Plain);
        let ids = 2..100_002u64;
        ids.clone().for_each(|id| nodes.refer(id, ROOT, b"name", Kind::Leaf));
        assert!(ids.clone().all(|id| nodes.forget(id, 1).is_some()));
        let room: usize = nodes.shards.iter().map(|shard| lock(shard).capacity()).sum();
        assert!(room <= SHARDS * 2 * ROOM_MIN, "room for {room} nodes");
        assert_eq!(nodes.count(), 1);
    }

    #[test]
    fn a_rename_of_one_of_several_names_changes_that_one() {
        let nodes = Nodes::new(Kind::Plain);
        nodes.refer(7, ROOT, b"a", Kind::Leaf);
        nodes.refer(7, ROOT, b"b", Kind::Leaf);
        nodes.renamed(7, &at(ROOT, "a"), at(9, "z"));
        assert_eq!(nodes.place(7), Some(at(ROOT, "b")));
        assert!(nodes.next_place(7, &at(ROOT, "b")));
        assert_eq!(nodes.place(7), Some(at(9, "z")));
    }
}
