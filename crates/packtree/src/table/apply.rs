//! What the records of the journal make of names and inodes.

use std::sync::Arc;

use super::{Blocks, Body, Extent, Inode, Node, ROOT, Table, free_pieces};
use crate::error::Refusal;
use crate::format::{Named, Record};

/// A record that does not fit what is there: a record before it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dangling {
    pub what: &'static str,
    pub inode: Inode,
}

impl From<Dangling> for Refusal {
    fn from(dangling: Dangling) -> Self {
        Self::Dangling(dangling)
    }
}

impl Table {
    /// Loads what a record changes, and refuses it if it does not fit. Nothing is changed yet.
    pub(crate) fn prepare(&mut self, record: &Record) -> Result<(), Refusal> {
        match record {
            Record::Make { directory, name, inode, .. } => {
                self.prepare_new_name(*directory, name)?;
                if *inode < self.next_inode && self.node(*inode)?.is_some() {
                    return Err(Dangling { what: "an inode that is there already", inode: *inode }.into());
                }
            }
            Record::Link { directory, name, inode, .. } => {
                self.prepare_new_name(*directory, name)?;
                if self.is_orphan(*inode) {
                    return Err(
                        Dangling { what: "a name of an inode that lost its last", inode: *inode }.into()
                    );
                }
                self.load(*inode, "a name of a missing inode")?;
            }
            Record::Unlink { directory, name, .. } => {
                self.prepare_name(*directory, name)?;
            }
            Record::Rename { from, old, to, new, .. } => {
                self.prepare_name(*from, old)?;
                self.load_directory(*to, "a rename into a missing directory")?;
                let replaced = self.name(*to, new)?;
                if let Some(replaced) = replaced {
                    self.load(replaced.inode, "a name of a missing inode")?;
                }
                self.changed.set_name(*to, new, replaced);
            }
            Record::Exchange { from, old, to, new, .. } => {
                self.prepare_name(*from, old)?;
                self.prepare_name(*to, new)?;
            }
            Record::Write { inode, .. } | Record::Reshape { inode, .. } => {
                self.load(*inode, "a write to a missing inode")?;
                let refused = |what| Refusal::from(Dangling { what, inode: *inode });
                let node = self.node(*inode)?;
                let content = node.as_ref().and_then(|node| node.content());
                let content = content.ok_or_else(|| refused("a write to what is no file"))?;
                let (start, end, new) = pieces_of(record);
                content.extents.refuse(start, end, &new).map_err(refused)?;
            }
            Record::Set { inode, .. } | Record::Xattr { inode, .. } => {
                self.load(*inode, "attributes of a missing inode")?;
            }
            Record::Mark { .. } => {}
        }
        Ok(())
    }

    /// An inode that is going to be changed is in the layer of changes.
    fn load(&mut self, inode: Inode, missing: &'static str) -> Result<(), Refusal> {
        if self.orphans.contains_key(&inode) || matches!(self.changed.nodes.get(&inode), Some(Some(_))) {
            return Ok(());
        }
        let node = self.node(inode)?.ok_or(Dangling { what: missing, inode })?;
        self.changed.nodes.insert(inode, Some(node));
        self.decoded.remove(&inode);
        Ok(())
    }

    fn load_directory(&mut self, inode: Inode, missing: &'static str) -> Result<(), Refusal> {
        self.directory(inode)?.ok_or(Dangling { what: missing, inode })?;
        self.load(inode, missing)
    }

    fn prepare_new_name(&mut self, directory: Inode, name: &[u8]) -> Result<(), Refusal> {
        self.load_directory(directory, "a name in a missing directory")?;
        match self.name(directory, name)? {
            Some(_) => Err(Dangling { what: "a name that is taken", inode: directory }.into()),
            None => Ok(()),
        }
    }

    fn prepare_name(&mut self, directory: Inode, name: &[u8]) -> Result<Named, Refusal> {
        self.load_directory(directory, "a name in a missing directory")?;
        let missing = Dangling { what: "a name that is missing", inode: directory };
        let named = self.name(directory, name)?.ok_or(missing)?;
        self.load(named.inode, "a name of a missing inode")?;
        // So that it is found in memory when the change is made: the cache may have forgotten its block by then.
        self.changed.set_name(directory, name, Some(named));
        Ok(named)
    }

    /// Makes the change of a record that was prepared.
    pub(crate) fn apply(&mut self, record: &Record, blocks: &mut Blocks) {
        match record {
            Record::Make { time, directory, name, inode, mode, owner, kind } => {
                let body = Body::of_new(kind, *directory, name);
                let (mode, owner, xattrs) = (*mode, *owner, Vec::new());
                let (atime, mtime, ctime) = (*time, *time, *time);
                let node = Node { mode, owner, atime, mtime, ctime, links: 0, xattrs, body };
                self.changed.nodes.insert(*inode, Some(Arc::new(node)));
                self.next_inode = self.next_inode.max(inode + 1);
                self.inodes += 1;
                self.enter(*directory, name, *inode, *time);
            }
            Record::Link { time, directory, name, inode } => self.enter(*directory, name, *inode, *time),
            Record::Unlink { time, directory, name } => {
                let inode = self.leave(*directory, name, *time);
                self.forget_unused(inode, blocks);
            }
            Record::Rename { time, from, old, to, new } => {
                if self.prepared_name(*to, new).is_some() {
                    let replaced = self.leave(*to, new, *time);
                    self.forget_unused(replaced, blocks);
                }
                let inode = self.leave(*from, old, *time);
                self.enter(*to, new, inode, *time);
            }
            Record::Exchange { time, from, old, to, new } => {
                let (first, second) = (self.leave(*from, old, *time), self.leave(*to, new, *time));
                self.enter(*to, new, first, *time);
                self.enter(*from, old, second, *time);
            }
            Record::Write { time, inode, .. } | Record::Reshape { time, inode, .. } => {
                let (start, end, new) = pieces_of(record);
                let node = self.changing(*inode);
                let Body::File(content) = &mut node.body else { return };
                content.extents.replace(start, end, new, blocks);
                content.size = match record {
                    Record::Reshape { size, .. } => *size,
                    _ => content.size.max(end),
                };
                (node.mtime, node.ctime) = (*time, *time);
            }
            Record::Set { time, inode, change } => {
                let node = self.changing(*inode);
                node.mode = change.mode.unwrap_or(node.mode);
                node.owner.uid = change.uid.unwrap_or(node.owner.uid);
                node.owner.gid = change.gid.unwrap_or(node.owner.gid);
                node.atime = change.atime.unwrap_or(node.atime);
                node.mtime = change.mtime.unwrap_or(node.mtime);
                node.ctime = *time;
            }
            Record::Xattr { time, inode, name, value } => {
                let node = self.changing(*inode);
                node.set_xattr(name, value.as_deref());
                node.ctime = *time;
            }
            Record::Mark { .. } => {}
        }
    }

    /// An inode that was loaded.
    fn changing(&mut self, inode: Inode) -> &mut Node {
        let found = match self.orphans.get_mut(&inode) {
            Some(orphan) => Some(orphan),
            None => self.changed.nodes.get_mut(&inode).and_then(Option::as_mut),
        };
        Arc::make_mut(found.expect("loaded when the record was prepared"))
    }

    /// A name of a record that was prepared: it is in memory.
    fn prepared_name(&self, directory: Inode, name: &[u8]) -> Option<Named> {
        self.changed.name(directory, name).expect("looked up when the record was prepared")
    }

    fn enter(&mut self, directory: Inode, name: &[u8], inode: Inode, time: i64) {
        let node = self.changing(inode);
        node.links += 1;
        node.ctime = node.ctime.max(time);
        let kind = node.kind();
        if let Body::Directory(body) = &mut node.body {
            (body.parent, body.name) = (directory, name.into());
        }
        let is_directory = node.is_directory();
        self.changed.set_name(directory, name, Some(Named { inode, kind }));
        let above = self.changing(directory);
        (above.mtime, above.ctime) = (above.mtime.max(time), above.ctime.max(time));
        if let Body::Directory(above) = &mut above.body {
            above.names += 1;
            above.subdirectories += u32::from(is_directory);
        }
    }

    fn leave(&mut self, directory: Inode, name: &[u8], time: i64) -> Inode {
        let named = self.prepared_name(directory, name).expect("it is there");
        self.changed.set_name(directory, name, None);
        let node = self.changing(named.inode);
        node.links = node.links.saturating_sub(1);
        node.ctime = node.ctime.max(time);
        let is_directory = node.is_directory();
        let above = self.changing(directory);
        (above.mtime, above.ctime) = (above.mtime.max(time), above.ctime.max(time));
        if let Body::Directory(above) = &mut above.body {
            above.names = above.names.saturating_sub(1);
            above.subdirectories = above.subdirectories.saturating_sub(u32::from(is_directory));
        }
        named.inode
    }

    /// Drops an inode that has no name. While it is held, it stays apart.
    fn forget_unused(&mut self, inode: Inode, blocks: &mut Blocks) {
        if self.changing(inode).links > 0 {
            return;
        }
        let Some(Some(node)) = self.changed.nodes.insert(inode, None) else { return };
        self.inodes -= 1;
        match self.held.contains_key(&inode) {
            true => drop(self.orphans.insert(inode, node)),
            false => free_pieces(&node, blocks),
        }
    }

    /// As prepare and apply, for a record of version 1's checkpoint: a directory keeps the time that it has.
    pub(crate) fn apply_kept(&mut self, record: &Record, blocks: &mut Blocks) -> Result<(), Refusal> {
        self.prepare(record)?;
        let above = match record {
            Record::Make { directory, .. } | Record::Link { directory, .. } if *directory != ROOT => {
                *directory
            }
            _ => {
                self.apply(record, blocks);
                return Ok(());
            }
        };
        let before = self.changing(above);
        let times = (before.mtime, before.ctime);
        self.apply(record, blocks);
        let above = self.changing(above);
        (above.mtime, above.ctime) = times;
        Ok(())
    }
}

/// Which bytes of a file a record changes, and the pieces that are there afterwards.
fn pieces_of(record: &Record) -> (u64, u64, Vec<Extent>) {
    match record {
        Record::Write { offset, pieces, .. } => {
            let mut at = *offset;
            let extents = pieces.iter().map(|&piece| {
                let extent = Extent { offset: at, piece };
                at = at.saturating_add(piece.bytes.into());
                extent
            });
            let extents = extents.collect();
            (*offset, at, extents)
        }
        Record::Reshape { start, end, pieces, .. } => {
            let extents = pieces.iter().map(|&(offset, piece)| Extent { offset, piece }).collect();
            (*start, *end, extents)
        }
        _ => (0, 0, Vec::new()),
    }
}
