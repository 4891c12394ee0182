//! The names in memory: every inode, what it is, and what the records of the journal make of it.
//!
//! ```text
//! record --apply--> inodes: number -> file (pieces in order), directory (name -> number), symbolic link (text)
//!               `-> runs of blocks that are free once the record is durable
//! ```
//!
//! Always holds: an entry's inode is there; the pieces of a file do not overlap, and a write replaces whole pieces; an inode
//! without names stays while it is open.
//! Not here: the disk; who may change what, and when (see `tree`).

mod walk;

use std::collections::HashMap;

use crate::format::{Piece, Record, blocks_of};
use crate::space::Run;

pub(crate) use crate::format::NodeKind;
pub(crate) use walk::{Name, Walked};

pub(crate) type Inode = u64;
pub(crate) const ROOT: Inode = 1;

/// All inodes.
pub(crate) struct Table {
    nodes: HashMap<Inode, Node, foldhash::fast::RandomState>,
    pub next_inode: Inode,
}

pub(crate) struct Node {
    pub mode: u16,
    /// Last change of the contents, nanoseconds since 1970.
    pub time: u64,
    /// Names.
    pub links: u32,
    /// Open files, or views that begin here.
    pub holders: u32,
    pub body: Body,
}

pub(crate) enum Body {
    File(Extents),
    Directory(Box<Directory>),
    Symlink(Box<[u8]>),
}

/// The pieces of a file by their offsets. Between them are zeros.
#[derive(Default)]
pub(crate) struct Extents(Vec<Extent>);

/// A piece and where in the file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub offset: u64,
    pub piece: Piece,
}

pub(crate) struct Directory {
    pub parent: Inode,
    pub name: Box<[u8]>,
    pub entries: HashMap<Box<[u8]>, Inode>,
    pub subdirectories: u32,
}

/// A record that does not fit what is there: a record before it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dangling {
    pub what: &'static str,
    pub inode: Inode,
}

impl Extent {
    pub(crate) fn end(&self) -> u64 {
        self.offset + u64::from(self.piece.bytes)
    }
}

impl Piece {
    pub(crate) fn run(&self) -> Run {
        Run { start: self.block, blocks: blocks_of(self.bytes.into()) }
    }
}

impl Extents {
    pub(crate) fn size(&self) -> u64 {
        self.0.last().map_or(0, Extent::end)
    }

    pub(crate) fn all(&self) -> &[Extent] {
        &self.0
    }

    /// Those that have bytes in `start..end`.
    pub(crate) fn within(&self, start: u64, end: u64) -> &[Extent] {
        let first = self.0.partition_point(|extent| extent.end() <= start);
        let behind = self.0.partition_point(|extent| extent.offset < end);
        self.0.get(first..behind).unwrap_or_default()
    }

    /// Replaces what is in the pieces' range; adds the runs that nothing names any more to `freed`.
    fn replace(&mut self, offset: u64, pieces: &[Piece], freed: &mut Vec<Run>) -> Result<(), &'static str> {
        let end = offset + pieces.iter().map(|piece| u64::from(piece.bytes)).sum::<u64>();
        let old = self.within(offset, end);
        if old.first().is_some_and(|first| first.offset < offset)
            || old.last().is_some_and(|last| last.end() > end)
        {
            return Err("a write over a part of a piece");
        }
        // A piece that grew where it was keeps its blocks.
        let stays = |run: &Run| pieces.iter().any(|piece| piece.block == run.start);
        freed.extend(old.iter().map(|extent| extent.piece.run()).filter(|run| !stays(run)));
        let first = self.0.partition_point(|extent| extent.end() <= offset);
        let behind = self.0.partition_point(|extent| extent.offset < end);
        let mut at = offset;
        let new = pieces.iter().map(|&piece| {
            let extent = Extent { offset: at, piece };
            at = extent.end();
            extent
        });
        self.0.splice(first..behind.max(first), new);
        Ok(())
    }
}

impl Table {
    pub(crate) fn new() -> Self {
        let root = Directory { parent: ROOT, name: [].into(), entries: HashMap::new(), subdirectories: 0 };
        let root = Node { mode: 0o755, time: 0, links: 1, holders: 0, body: Body::Directory(Box::new(root)) };
        Self { nodes: HashMap::from_iter([(ROOT, root)]), next_inode: ROOT + 1 }
    }

    pub(crate) fn node(&self, inode: Inode) -> Option<&Node> {
        self.nodes.get(&inode)
    }

    pub(crate) fn node_mut(&mut self, inode: Inode) -> Option<&mut Node> {
        self.nodes.get_mut(&inode)
    }

    /// The inode's, if it is a directory that has a name or is the root.
    pub(crate) fn directory(&self, inode: Inode) -> Option<&Directory> {
        match self.node(inode)? {
            Node { body: Body::Directory(directory), links: 1.., .. } => Some(directory),
            _ => None,
        }
    }

    pub(crate) fn extents(&self, inode: Inode) -> Option<&Extents> {
        match &self.node(inode)?.body {
            Body::File(extents) => Some(extents),
            _ => None,
        }
    }

    pub(crate) fn inodes(&self) -> impl Iterator<Item = (Inode, &Node)> {
        self.nodes.iter().map(|(inode, node)| (*inode, node))
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Makes a record's change. Nothing is changed when it does not fit.
    pub(crate) fn apply(&mut self, record: &Record, freed: &mut Vec<Run>) -> Result<(), Dangling> {
        match record {
            Record::Make { time, directory, name, inode, mode, kind } => {
                let body = match kind {
                    NodeKind::File => Body::File(Extents::default()),
                    NodeKind::Symlink(text) => Body::Symlink(text.clone()),
                    NodeKind::Directory => Body::Directory(Box::new(Directory {
                        parent: *directory,
                        name: name.clone(),
                        entries: HashMap::new(),
                        subdirectories: 0,
                    })),
                };
                self.is_vacant(*directory, name)?;
                if self.nodes.contains_key(inode) {
                    return Err(Dangling { what: "an inode that is there already", inode: *inode });
                }
                self.nodes.insert(*inode, Node { mode: *mode, time: *time, links: 0, holders: 0, body });
                self.next_inode = self.next_inode.max(inode + 1);
                self.enter(*directory, name, *inode, *time);
            }
            Record::Link { time, directory, name, inode } => {
                self.is_vacant(*directory, name)?;
                if !self.nodes.contains_key(inode) {
                    return Err(Dangling { what: "a name of a missing inode", inode: *inode });
                }
                self.enter(*directory, name, *inode, *time);
            }
            Record::Unlink { time, directory, name } => {
                let inode = self.entry(*directory, name)?;
                self.leave(*directory, name, *time);
                self.forget_unused(inode, freed);
            }
            Record::Rename { time, from, old, to, new } => {
                let inode = self.entry(*from, old)?;
                if self.directory(*to).is_none() {
                    return Err(Dangling { what: "a rename into a missing directory", inode: *to });
                }
                if let Some(replaced) = self.directory(*to).and_then(|to| to.entries.get(new).copied()) {
                    self.leave(*to, new, *time);
                    self.forget_unused(replaced, freed);
                }
                self.leave(*from, old, *time);
                self.enter(*to, new, inode, *time);
            }
            Record::Write { time, inode, offset, pieces } => {
                let wrong = |what| Dangling { what, inode: *inode };
                match self.nodes.get_mut(inode) {
                    Some(node @ Node { body: Body::File(_), .. }) => {
                        let Body::File(extents) = &mut node.body else { unreachable!("it is a file") };
                        extents.replace(*offset, pieces, freed).map_err(wrong)?;
                        node.time = *time;
                    }
                    Some(_) => return Err(wrong("a write to what is no file")),
                    None => return Err(wrong("a write to a missing inode")),
                }
            }
            Record::Mark { .. } => {}
        }
        Ok(())
    }

    /// As [`Table::apply`], for a checkpoint's records: a directory keeps the time that it has.
    pub(crate) fn apply_kept(&mut self, record: &Record, freed: &mut Vec<Run>) -> Result<(), Dangling> {
        let above = match record {
            Record::Make { directory, .. } | Record::Link { directory, .. } if *directory != ROOT => {
                *directory
            }
            _ => return self.apply(record, freed),
        };
        let time = self.node(above).map(|node| node.time);
        self.apply(record, freed)?;
        if let (Some(time), Some(node)) = (time, self.node_mut(above)) {
            node.time = time;
        }
        Ok(())
    }

    fn is_vacant(&self, directory: Inode, name: &[u8]) -> Result<(), Dangling> {
        match self.directory(directory) {
            None => Err(Dangling { what: "a name in a missing directory", inode: directory }),
            Some(found) if found.entries.contains_key(name) => {
                Err(Dangling { what: "a name that is taken", inode: directory })
            }
            Some(_) => Ok(()),
        }
    }

    fn entry(&self, directory: Inode, name: &[u8]) -> Result<Inode, Dangling> {
        let found = self.directory(directory).and_then(|directory| directory.entries.get(name));
        found.copied().ok_or(Dangling { what: "a name that is missing", inode: directory })
    }

    fn enter(&mut self, directory: Inode, name: &[u8], inode: Inode, time: u64) {
        let node = self.nodes.get_mut(&inode).expect("looked up before");
        node.links += 1;
        let is_directory = match &mut node.body {
            Body::Directory(body) => {
                (body.parent, body.name) = (directory, name.into());
                true
            }
            _ => false,
        };
        let above = self.nodes.get_mut(&directory).expect("looked up before");
        above.time = above.time.max(time);
        if let Body::Directory(above) = &mut above.body {
            above.subdirectories += u32::from(is_directory);
            above.entries.insert(name.into(), inode);
        }
    }

    fn leave(&mut self, directory: Inode, name: &[u8], time: u64) {
        let above = self.nodes.get_mut(&directory).expect("looked up before");
        above.time = above.time.max(time);
        let Body::Directory(above) = &mut above.body else { return };
        let Some(inode) = above.entries.remove(name) else { return };
        let Some(node) = self.nodes.get_mut(&inode) else { return };
        node.links -= 1;
        if matches!(node.body, Body::Directory(_))
            && let Some(Node { body: Body::Directory(above), .. }) = self.nodes.get_mut(&directory)
        {
            above.subdirectories -= 1;
        }
    }

    /// Drops an inode that has no name and is not held.
    pub(crate) fn forget_unused(&mut self, inode: Inode, freed: &mut Vec<Run>) {
        if self.node(inode).is_some_and(|node| node.links == 0 && node.holders == 0)
            && let Some(node) = self.nodes.remove(&inode)
            && let Body::File(extents) = node.body
        {
            freed.extend(extents.0.iter().map(|extent| extent.piece.run()));
        }
    }

    /// Takes an inode that lost what it needs out of the table; its names go too.
    pub(crate) fn names_of_missing(&self) -> Vec<(Inode, Box<[u8]>)> {
        let directories = self.nodes.iter().filter_map(|(inode, node)| match &node.body {
            Body::Directory(directory) => Some((*inode, directory)),
            _ => None,
        });
        let missing = directories.flat_map(|(inode, directory)| {
            let gone = directory.entries.iter().filter(|(_, named)| !self.nodes.contains_key(*named));
            gone.map(move |(name, _)| (inode, name.clone()))
        });
        missing.collect()
    }
}
