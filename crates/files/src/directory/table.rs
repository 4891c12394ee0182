//! What a directory export knows of its objects: which handle means which inode, and where it was last seen.
//!
//! ```text
//! handle, 24 B: | "crd1" | instance u64 | slot u32 | generation u32 | check u32 |      (big endian)
//! slot -> { device, inode, birth time, kind, generation, place = (parent slot, name) [, more places] }
//! (device, inode) -> slot, so that all names of one object have one handle
//! ```
//!
//! Always holds: a handle names one object for ever: a slot that is used again has another generation. A
//! place is a hint: a caller that goes there compares device, inode and birth time before believing it.
//! Memory: 48 bytes an object, its name's allocation, and 17 to 35 bytes of index: about 110 bytes.
//! Not here: system calls (see `nodes`).

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::attributes::Identity;
use crate::{FileKind, Handle, HandleRef, Status};

/// A slot and the generation that was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub slot: u32,
    pub generation: u32,
}

/// Where an object was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub parent: Node,
    pub name: Box<[u8]>,
}

/// The root's slot; it is never given up.
pub(super) const ROOT: Node = Node { slot: 0, generation: 0 };

const MAGIC: [u8; 4] = *b"crd1";
const HANDLE_BYTES: usize = 24;

/// A file with more names than this is found by the ones seen last.
const MORE_PLACES_MAX: usize = 16;

struct Entry {
    ino: u64,
    born_ns: i64,
    device: u32,
    parent: u32,
    /// Generation of the parent when the place was noted.
    parent_generation: u32,
    generation: u32,
    kind: FileKind,
    live: bool,
    name: Box<[u8]>,
}

/// All known objects of one export.
pub(super) struct Table {
    instance: u64,
    inner: RwLock<Inner>,
}

struct Inner {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// The keys are numbers that the file system chose, not the peer: std's hasher, which has a secret, takes five times as long.
    by_identity: HashMap<u64, u32, foldhash::fast::FixedState>,
    /// Further places of objects with several names.
    more: HashMap<u32, Vec<Place>>,
    /// Device numbers, so that an entry needs but an index.
    devices: Vec<u64>,
}

/// What an operation needs of an entry.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub kind: FileKind,
    pub identity: Identity,
}

impl Table {
    pub(super) fn new(instance: u64, root: Identity) -> Self {
        let mut inner = Inner {
            entries: Vec::new(),
            free: Vec::new(),
            by_identity: HashMap::default(),
            more: HashMap::new(),
            devices: Vec::new(),
        };
        inner.insert(root, FileKind::Directory, ROOT, b"");
        Self { instance, inner: RwLock::new(inner) }
    }

    // A panic elsewhere cannot leave the table half changed: no code of others runs under its lock.
    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn handle(&self, node: Node) -> Handle {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..12].copy_from_slice(&self.instance.to_be_bytes());
        bytes[12..16].copy_from_slice(&node.slot.to_be_bytes());
        bytes[16..20].copy_from_slice(&node.generation.to_be_bytes());
        let check = check_of(&bytes[..20]);
        bytes[20..].copy_from_slice(&check.to_be_bytes());
        Handle::new(&bytes).expect("24 bytes fit into a handle")
    }

    /// The object a handle means. `BADHANDLE` when it was never one of ours, `STALE` when it was of a former
    /// instance or of an object that is gone.
    pub(super) fn node(&self, handle: HandleRef<'_>) -> Result<(Node, Known), Status> {
        let bytes: &[u8; HANDLE_BYTES] = handle.0.try_into().map_err(|_| Status::BADHANDLE)?;
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..4] != MAGIC || word(20) != check_of(&bytes[..20]) {
            return Err(Status::BADHANDLE);
        }
        let instance = (u64::from(word(4)) << 32) | u64::from(word(8));
        let node = Node { slot: word(12), generation: word(16) };
        if instance != self.instance {
            return Err(Status::STALE);
        }
        Ok((node, self.known(node)?))
    }

    pub(super) fn known(&self, node: Node) -> Result<Known, Status> {
        let inner = self.read();
        let entry = inner.entry(node).ok_or(Status::STALE)?;
        Ok(Known { kind: entry.kind, identity: inner.identity(entry) })
    }

    /// The place to look first: the parent, and the name copied to the front of `name`, with its length.
    pub(super) fn first_place(&self, node: Node, name: &mut [u8; 255]) -> Result<(Node, usize), Status> {
        let inner = self.read();
        let entry = inner.entry(node).ok_or(Status::STALE)?;
        name[..entry.name.len()].copy_from_slice(&entry.name);
        Ok((Node { slot: entry.parent, generation: entry.parent_generation }, entry.name.len()))
    }

    pub(super) fn places(&self, node: Node) -> Result<Vec<Place>, Status> {
        let inner = self.read();
        let entry = inner.entry(node).ok_or(Status::STALE)?;
        let mut places = vec![entry.place()];
        places.extend(inner.more.get(&node.slot).into_iter().flatten().cloned());
        Ok(places)
    }

    /// Notes that an object was seen at a place, and says who it is.
    pub(super) fn seen(&self, identity: Identity, kind: FileKind, parent: Node, name: &[u8]) -> Node {
        {
            let inner = self.read();
            if let Some(slot) = inner.find(identity, kind) {
                let entry = &inner.entries[slot as usize];
                // The root has no place: a bind mount may show it inside itself.
                if slot == ROOT.slot || entry.is_at(parent, name) {
                    return Node { slot, generation: entry.generation };
                }
            }
        }
        let mut inner = self.write();
        match inner.find(identity, kind) {
            Some(slot) => {
                inner.note_place(slot, Place { parent, name: name.into() });
                Node { slot, generation: inner.entries[slot as usize].generation }
            }
            None => inner.insert(identity, kind, parent, name),
        }
    }

    /// Puts a place that proved right before the others.
    pub(super) fn promote(&self, node: Node, place: &Place) {
        let mut inner = self.write();
        if inner.entry(node).is_none() || inner.entries[node.slot as usize].is_at(place.parent, &place.name) {
            return;
        }
        let old = inner.entries[node.slot as usize].set_place(place.clone());
        if let Some(more) = inner.more.get_mut(&node.slot) {
            more.retain(|other| other != place);
        }
        inner.note_place(node.slot, old);
    }

    /// Replaces one place of an object by another, which comes first from now on.
    pub(super) fn moved(&self, identity: Identity, kind: FileKind, from: &Place, to: Place) {
        let mut inner = self.write();
        let Some(slot) = inner.find(identity, kind) else { return };
        let old = inner.entries[slot as usize].set_place(to);
        if let Some(more) = inner.more.get_mut(&slot) {
            more.retain(|other| other != from);
        }
        if old != *from {
            inner.note_place(slot, old);
        }
    }

    /// Forgets one name of an object, and the object with its last link. Says who it was, if it was known.
    pub(super) fn unlinked(
        &self,
        identity: Identity,
        kind: FileKind,
        place: &Place,
        last: bool,
    ) -> Option<Node> {
        let mut inner = self.write();
        let slot = inner.find(identity, kind)?;
        let node = Node { slot, generation: inner.entries[slot as usize].generation };
        if last {
            inner.free(node);
            return Some(node);
        }
        if let Some(more) = inner.more.get_mut(&slot) {
            more.retain(|other| other != place);
        }
        if inner.entries[slot as usize].is_at(place.parent, &place.name)
            && let Some(next) = inner.more.get_mut(&slot).and_then(Vec::pop)
        {
            inner.entries[slot as usize].set_place(next);
        }
        if inner.more.get(&slot).is_some_and(Vec::is_empty) {
            inner.more.remove(&slot);
        }
        Some(node)
    }

    /// Forgets an object that is gone: its handle is stale from now on.
    pub(super) fn forget(&self, node: Node) {
        if node != ROOT {
            self.write().free(node);
        }
    }

    /// How many objects are known.
    pub(super) fn len(&self) -> usize {
        let inner = self.read();
        inner.entries.len() - inner.free.len()
    }
}

impl Inner {
    fn entry(&self, node: Node) -> Option<&Entry> {
        self.entries.get(node.slot as usize).filter(|entry| entry.live && entry.generation == node.generation)
    }

    fn identity(&self, entry: &Entry) -> Identity {
        Identity { device: self.devices[entry.device as usize], ino: entry.ino, born_ns: entry.born_ns }
    }

    fn find(&self, identity: Identity, kind: FileKind) -> Option<u32> {
        let slot = *self.by_identity.get(&identity.key())?;
        let entry = &self.entries[slot as usize];
        (entry.live && entry.kind == kind && self.identity(entry) == identity).then_some(slot)
    }

    fn insert(&mut self, identity: Identity, kind: FileKind, parent: Node, name: &[u8]) -> Node {
        let device = match self.devices.iter().position(|device| *device == identity.device) {
            Some(index) => index,
            None => {
                self.devices.push(identity.device);
                self.devices.len() - 1
            }
        };
        // The inode number was used before, by an object that is gone or is no longer reached by it.
        if let Some(slot) = self.by_identity.remove(&identity.key()) {
            let old = &self.entries[slot as usize];
            let node = Node { slot, generation: old.generation };
            // Another device's object with the same key lives on, found by its place alone.
            if old.ino == identity.ino && self.devices[old.device as usize] == identity.device {
                self.free(node);
            }
        }
        let mut entry = Entry {
            ino: identity.ino,
            born_ns: identity.born_ns,
            device: device as u32,
            parent: parent.slot,
            parent_generation: parent.generation,
            generation: 0,
            kind,
            live: true,
            name: name.into(),
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                entry.generation = self.entries[slot as usize].generation;
                slot
            }
            None => u32::try_from(self.entries.len()).expect("fewer than 2^32 objects are known"),
        };
        let generation = entry.generation;
        match self.entries.get_mut(slot as usize) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
        self.by_identity.insert(identity.key(), slot);
        Node { slot, generation }
    }

    fn free(&mut self, node: Node) {
        let Some(entry) = self.entry(node) else { return };
        let key = self.identity(entry).key();
        if self.by_identity.get(&key) == Some(&node.slot) {
            self.by_identity.remove(&key);
        }
        self.more.remove(&node.slot);
        let entry = &mut self.entries[node.slot as usize];
        entry.live = false;
        entry.name = Box::default();
        // A slot whose generations are used up stays unused.
        if let Some(next) = entry.generation.checked_add(1) {
            entry.generation = next;
            self.free.push(node.slot);
        }
    }

    fn note_place(&mut self, slot: u32, place: Place) {
        if self.entries[slot as usize].is_at(place.parent, &place.name) {
            return;
        }
        let more = self.more.entry(slot).or_default();
        if !more.contains(&place) {
            if more.len() == MORE_PLACES_MAX {
                more.remove(0);
            }
            more.push(place);
        }
    }
}

impl Entry {
    fn is_at(&self, parent: Node, name: &[u8]) -> bool {
        self.parent == parent.slot && self.parent_generation == parent.generation && *self.name == *name
    }

    fn place(&self) -> Place {
        let parent = Node { slot: self.parent, generation: self.parent_generation };
        Place { parent, name: self.name.clone() }
    }

    fn set_place(&mut self, place: Place) -> Place {
        let old = self.place();
        self.parent = place.parent.slot;
        self.parent_generation = place.parent.generation;
        self.name = place.name;
        old
    }
}

/// Catches truncated and mangled handles. It is no secret: guessing `instance` is what is hard.
fn check_of(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(ino: u64) -> Identity {
        Identity { device: 1, ino, born_ns: 7 }
    }

    fn place(name: &[u8]) -> Place {
        Place { parent: ROOT, name: name.into() }
    }

    #[test]
    fn a_slot_used_again_does_not_revive_the_old_handle() {
        let table = Table::new(99, identity(1));
        let old = table.seen(identity(2), FileKind::Regular, ROOT, b"a");
        let handle = table.handle(old);
        table.unlinked(identity(2), FileKind::Regular, &place(b"a"), true);
        let new = table.seen(identity(3), FileKind::Regular, ROOT, b"b");
        assert_eq!(new.slot, old.slot);
        assert_eq!(table.node(handle.by_ref()).map(|(node, _)| node), Err(Status::STALE));
    }

    #[test]
    fn an_inode_number_with_another_birth_time_is_another_object() {
        let table = Table::new(99, identity(1));
        let old = table.seen(identity(2), FileKind::Regular, ROOT, b"a");
        let reborn = Identity { born_ns: 8, ..identity(2) };
        let new = table.seen(reborn, FileKind::Regular, ROOT, b"a");
        assert_ne!(old, new);
        assert!(table.known(old).is_err());
    }

    #[test]
    fn a_mangled_handle_is_bad_and_one_of_a_former_instance_is_stale() {
        let table = Table::new(99, identity(1));
        let handle = table.handle(ROOT);
        assert!(table.node(handle.by_ref()).is_ok());
        for at in 0..HANDLE_BYTES {
            let mut bytes = handle.as_bytes().to_vec();
            bytes[at] ^= 1;
            assert_eq!(table.node(HandleRef(&bytes)).map(|_| ()), Err(Status::BADHANDLE), "byte {at}");
        }
        let before = Table::new(98, identity(1)).handle(ROOT);
        assert_eq!(table.node(before.by_ref()).map(|_| ()), Err(Status::STALE));
    }

    #[test]
    fn a_file_with_two_names_is_found_by_the_second_when_the_first_goes() {
        let table = Table::new(99, identity(1));
        let node = table.seen(identity(2), FileKind::Regular, ROOT, b"a");
        assert_eq!(table.seen(identity(2), FileKind::Regular, ROOT, b"b"), node);
        table.unlinked(identity(2), FileKind::Regular, &place(b"a"), false);
        assert_eq!(table.places(node), Ok(vec![place(b"b")]));
        assert_eq!(table.len(), 2);
    }
}
