//! All names at one moment, as the records that would make them: the file `names`, replaced by rename.
//!
//! ```text
//! | head: sequence, next inode, records, salt | Make | Link | Write | ... |      a directory before what is in it
//! ```
//!
//! Always holds: what is there was durable, contents included, when it got its name; a damaged record costs what it names.
//! Not here: when it is written (`engine`).

use std::collections::HashSet;

use disk::{Disk, DiskError, DiskOpen};

use crate::format::{HEAD_BYTES, NamesHead, RECORD_BYTES_MAX, Record, frame, records};
use crate::journal::salt;
use crate::table::{Body, Extent, Inode, Node, NodeKind, ROOT, Table};

const NAME: &str = "names";
const NEW: &str = "names.new";
/// Pieces in one record.
const PIECES_MAX: usize = 128;

/// A checkpoint that was read.
pub(crate) struct Checkpoint {
    pub head: NamesHead,
    pub records: Vec<(u64, Record)>,
    pub bytes: u64,
}

/// The bytes of the file.
pub(crate) fn encode(table: &Table, id: u128, sequence: u64) -> Vec<u8> {
    let mut encoder =
        Encoder { bytes: vec![0; HEAD_BYTES], salt: salt(), records: 0, linked: HashSet::new() };
    let mut directories = vec![ROOT];
    while let Some(inode) = directories.pop() {
        let Some(directory) = table.directory(inode) else { continue };
        for (name, &inode_named) in &directory.entries {
            let Some(node) = table.node(inode_named) else { continue };
            encoder.entry(inode, name, inode_named, node);
            if matches!(node.body, Body::Directory(_)) {
                directories.push(inode_named);
            }
        }
    }
    let (salt, records) = (encoder.salt, encoder.records);
    let head = NamesHead { id, sequence, next_inode: table.next_inode, records, salt };
    encoder.bytes[..HEAD_BYTES].copy_from_slice(&head.encode());
    encoder.bytes
}

struct Encoder {
    bytes: Vec<u8>,
    salt: u32,
    records: u64,
    /// Files with several names that have one already.
    linked: HashSet<Inode>,
}

impl Encoder {
    fn put(&mut self, record: &Record) {
        self.records += 1;
        frame(record, self.records, self.salt, &mut self.bytes);
    }

    fn entry(&mut self, directory: Inode, name: &[u8], inode: Inode, node: &Node) {
        let (time, name) = (node.time, name.into());
        let kind = match &node.body {
            Body::File(_) => NodeKind::File,
            Body::Directory(_) => NodeKind::Directory,
            Body::Symlink(text) => NodeKind::Symlink(text.clone()),
        };
        if node.links > 1 && kind != NodeKind::Directory && !self.linked.insert(inode) {
            return self.put(&Record::Link { time, directory, name, inode });
        }
        self.put(&Record::Make { time, directory, name, inode, mode: node.mode, kind });
        let Body::File(extents) = &node.body else { return };
        let together = |before: &Extent, next: &Extent| before.end() == next.offset;
        for stretch in extents.all().chunk_by(together) {
            for some in stretch.chunks(PIECES_MAX) {
                let pieces = some.iter().map(|extent| extent.piece).collect();
                self.put(&Record::Write { time, inode, offset: some[0].offset, pieces });
            }
        }
    }
}

/// Puts it in the place of the last one, durably.
pub(crate) fn write(disk: &dyn Disk, bytes: &[u8]) -> Result<(), DiskError> {
    if let Err(error) = disk.remove(NEW)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let file = disk.open(NEW, DiskOpen::New)?;
    file.write_at(bytes, 0)?;
    file.sync()?;
    disk.rename(NEW, NAME)?;
    disk.sync_names()
}

/// Reads it. `None`: it is missing, or its head is damaged.
pub(crate) fn read(disk: &dyn Disk, id: u128) -> Result<Option<Checkpoint>, DiskError> {
    let file = match disk.open(NAME, DiskOpen::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut head = [0; HEAD_BYTES];
    let read = file.read_at(&mut head, 0)?;
    let Some(head) = NamesHead::decode(&head[..read], id) else { return Ok(None) };
    let length = file.length()?;
    // Longer than its records can be: not one that was written here, and perhaps more than fits in memory.
    if length > HEAD_BYTES as u64 + head.records.saturating_mul(RECORD_BYTES_MAX as u64) {
        return Ok(None);
    }
    let mut bytes = vec![0; length as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    let records = records(&bytes[HEAD_BYTES..], head.salt).collect();
    Ok(Some(Checkpoint { head, records, bytes: bytes.len() as u64 }))
}
