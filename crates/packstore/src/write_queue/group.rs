//! Changes that go to disk together: bytes to write, what then counts, who waits for it.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::buffer::Buffer;
use super::filling::Session;
use crate::error::StoreError;
use crate::fingerprints::Location;
use crate::format::{IndexRecord, Manifest, Tombstone};
use crate::hashed::Hashed;

/// An object as the table knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableEntry {
    pub hash: u64,
    pub location: Location,
    pub blocks: u32,
    /// A user's, not one of ours.
    pub visible: bool,
}

/// What counts once a group is where it must be.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// An object is there, in place of another.
    Put {
        new: TableEntry,
        old: Option<TableEntry>,
    },
    /// An object is gone.
    Remove(TableEntry),
    /// An object lies elsewhere, if it is still there.
    Move {
        new: TableEntry,
        old: TableEntry,
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

/// The outcome, sent once to all waiters. They share no lock, so 64 waiters that wake at once do not queue for it.
#[derive(Default)]
pub(crate) struct Ack(OnceLock<Result<(), StoreError>>);

impl Ack {
    pub(crate) fn open(&self, result: Result<(), StoreError>) {
        let _ = self.0.set(result);
    }

    pub(crate) fn wait(&self) -> Result<(), StoreError> {
        self.0.wait().clone()
    }
}

/// A range of a data file to write.
pub(super) struct Run {
    pub(super) session: Arc<Session>,
    pub(super) offset: u64,
    pub(super) start: usize,
    pub(super) len: usize,
}

/// Changes of one volume.
pub(super) struct Group {
    pub(super) bytes: Buffer,
    pub(super) runs: Vec<Run>,
    /// Index records for each index file, in order.
    pub(super) index_records: Vec<(Arc<Session>, Vec<u8>)>,
    /// Those of them that are to be written twice.
    pub(super) tombstones: Vec<(Arc<Session>, Vec<u8>)>,
    pub(super) changes: Vec<Change>,
    /// Keys to give back at the end.
    pub(super) keys: Vec<u64>,
    /// Cache mode: where in `bytes` the records of a file's block are, until they are on disk.
    pub(super) records: HashMap<(u32, u32), (usize, usize), Hashed>,
    /// How often somebody staged something.
    pub(super) stagings: usize,
    pub(super) ack: Arc<Ack>,
    /// Somebody waits for it to be durable.
    pub(super) sync: bool,
    /// Somebody waits for it to be with the kernel.
    pub(super) write_now: bool,
}

impl Group {
    pub(super) fn new(bytes: Buffer) -> Self {
        Self {
            bytes,
            runs: Vec::new(),
            index_records: Vec::new(),
            tombstones: Vec::new(),
            changes: Vec::new(),
            keys: Vec::new(),
            records: HashMap::default(),
            stagings: 0,
            ack: Arc::default(),
            sync: false,
            write_now: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.index_records.is_empty() && self.keys.is_empty() && !self.sync
    }

    /// A tombstone.
    pub(super) fn add_tombstone(&mut self, session: &Arc<Session>, tombstone: &Tombstone) {
        let mut bytes = Vec::new();
        IndexRecord::Tombstone(*tombstone).encode(session.index_salt, &mut bytes);
        self.index_records_of(session).extend_from_slice(&bytes);
        self.tombstones.push((session.clone(), bytes));
    }

    /// The index records of a session, to append to.
    pub(super) fn index_records_of(&mut self, session: &Arc<Session>) -> &mut Vec<u8> {
        // Each file once: the writer appends what it finds here in one go.
        let at =
            self.index_records.iter().rposition(|(other, _)| Arc::ptr_eq(other, session)).unwrap_or_else(
                || {
                    self.index_records.push((session.clone(), Vec::new()));
                    self.index_records.len() - 1
                },
            );
        &mut self.index_records[at].1
    }
}
