//! Changes that go to disk together: bytes to write, what then counts, who waits for it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::buffer::Buffer;
use super::filling::Session;
use crate::error::StoreError;
use crate::format::{Control, Manifest, Tombstone};
use crate::hashed::Hashed;
use crate::signatures::Place;

/// An object as the table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub hash: u64,
    pub place: Place,
    pub blocks: u32,
    /// A user's, not one of ours.
    pub visible: bool,
}

/// What counts once a group is where it must be.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// An object is there, in place of another.
    Put {
        new: Held,
        old: Option<Held>,
    },
    /// An object is gone.
    Remove(Held),
    /// An object lies elsewhere, if it is still there.
    Move {
        new: Held,
        old: Held,
    },
    /// A large object is gone, and its pieces with it.
    Pieces(Manifest),
    /// A shared object has one name more, or one less.
    Link(u64),
    Unlink(u64),
}

/// What is to be done after a change, without locks, as it may read the disk.
#[derive(Clone, Debug)]
pub(crate) enum After {
    /// A shared object has no name any more.
    Forget(u64),
    /// These pieces are nobody's.
    Pieces(Manifest),
}

/// Told once, to all who wait. They share no lock: sixty-four that are told at once do not queue for it.
#[derive(Default)]
pub(crate) struct Gate(OnceLock<Result<(), StoreError>>);

impl Gate {
    pub(crate) fn open(&self, result: Result<(), StoreError>) {
        let _ = self.0.set(result);
    }

    pub(crate) fn wait(&self) -> Result<(), StoreError> {
        self.0.wait().clone()
    }
}

/// A stretch of a body file to write.
pub(crate) struct Run {
    pub session: Arc<Session>,
    pub offset: u64,
    pub start: usize,
    pub len: usize,
}

/// Changes of one volume.
pub(crate) struct Group {
    pub bytes: Buffer,
    pub runs: Vec<Run>,
    /// Control blocks for each index file, in order.
    pub control: Vec<(Arc<Session>, Vec<u8>)>,
    /// Those of them that are to be told twice.
    pub tombstones: Vec<(Arc<Session>, Vec<u8>)>,
    pub changes: Vec<Change>,
    /// Keys to give back at the end.
    pub keys: Vec<u64>,
    /// Cache mode: where in `bytes` the records of a file's block are, until they are on disk.
    pub records: HashMap<(u32, u32), (usize, usize), Hashed>,
    /// How often somebody staged something.
    pub stagings: usize,
    pub gate: Arc<Gate>,
    /// Somebody waits for it to be durable.
    pub sync: bool,
}

impl Group {
    pub(crate) fn new(bytes: Buffer) -> Self {
        Self {
            bytes,
            runs: Vec::new(),
            control: Vec::new(),
            tombstones: Vec::new(),
            changes: Vec::new(),
            keys: Vec::new(),
            records: HashMap::default(),
            stagings: 0,
            gate: Arc::default(),
            sync: false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.control.is_empty() && self.keys.is_empty() && !self.sync
    }

    /// A tombstone.
    pub(crate) fn tell_void(&mut self, session: &Arc<Session>, tombstone: &Tombstone) {
        let mut bytes = Vec::new();
        Control::Tombstone(*tombstone).encode(session.index_salt, &mut bytes);
        self.control_of(session).extend_from_slice(&bytes);
        self.tombstones.push((session.clone(), bytes));
    }

    /// The control blocks of a session, to append to.
    pub(crate) fn control_of(&mut self, session: &Arc<Session>) -> &mut Vec<u8> {
        // Each file once: the writer appends what it finds here in one go.
        let at =
            self.control.iter().rposition(|(other, _)| Arc::ptr_eq(other, session)).unwrap_or_else(|| {
                self.control.push((session.clone(), Vec::new()));
                self.control.len() - 1
            });
        &mut self.control[at].1
    }
}
