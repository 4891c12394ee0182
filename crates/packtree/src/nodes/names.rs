//! Names of directories: looked up, made, linked, moved and removed.

use files::Status;

use super::{NodeAttributes, NodeError, OpenNode, TreeNodes, attributes};
use crate::engine::State;
use crate::error::Refusal;
use crate::file_system::{LINK_BYTES_MAX, LINKS_MAX, removable, renamable};
use crate::format::{Named, NodeKind, Owner, Record};
use crate::table::Inode;
use crate::time::now;

/// Longest name, as on Linux.
const NAME_BYTES_MAX: usize = 255;

/// An inode to be made.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // As in `NodeAttributes`.
pub struct NewNode<'a> {
    pub kind: NewKind<'a>,
    /// Permission bits, with set-id and sticky bits.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
}

/// What to make.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // As mknod(2) has them.
pub enum NewKind<'a> {
    File,
    Directory,
    /// With its text.
    Symlink(&'a [u8]),
    CharDevice {
        major: u32,
        minor: u32,
    },
    BlockDevice {
        major: u32,
        minor: u32,
    },
    Fifo,
    Socket,
}

/// What a rename does when the new name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameHow {
    /// It replaces what is there.
    Replace,
    /// It is refused: `EXIST`.
    NoReplace,
    /// Both change places; both must be there.
    Exchange,
}

impl TreeNodes {
    /// What a name in a directory leads to.
    ///
    /// # Errors
    /// `NOENT`, `NOTDIR`, `STALE` when the directory is gone.
    pub fn lookup(&self, directory: u64, name: &[u8]) -> Result<NodeAttributes, NodeError> {
        let found = self.engine().look(|state| {
            let named = named(state, directory, name)?.ok_or(Status::NOENT)?;
            Ok((named.inode, state.table.node(named.inode)?.ok_or(Status::IO)?))
        });
        let (inode, node) = self.done(found)?;
        Ok(attributes(inode, &node))
    }

    /// Makes an inode with a name.
    ///
    /// # Errors
    /// `EXIST`, `NOTDIR`, `INVAL` and `NAMETOOLONG` for the name or the text, `NOSPC`, `ROFS`.
    pub fn make(&self, directory: u64, name: &[u8], new: &NewNode<'_>) -> Result<NodeAttributes, NodeError> {
        let inode = self.made(directory, name, new, false)?;
        self.attributes(inode)
    }

    /// As [`TreeNodes::make`], and it is open at once.
    ///
    /// # Errors
    /// As [`TreeNodes::make`].
    pub fn create(&self, directory: u64, name: &[u8], new: &NewNode<'_>) -> Result<OpenNode, NodeError> {
        let inode = self.made(directory, name, new, true)?;
        Ok(OpenNode { nodes: self.clone(), inode, cached: Default::default() })
    }

    fn made(
        &self,
        directory: u64,
        name: &[u8],
        new: &NewNode<'_>,
        is_open: bool,
    ) -> Result<Inode, NodeError> {
        let NewNode { kind, mode, uid, gid } = *new;
        let kind = self.done(node_kind(kind).map_err(Refusal::from))?;
        let (time, mode, owner) = (now(), mode & 0o7777, Owner { uid, gid });
        let made = self.engine().change(|state| {
            if named(state, directory, name)?.is_some() {
                return Err(Status::EXIST.into());
            }
            let (inode, name, kind) = (state.table.next_inode, name.into(), kind.clone());
            state.commit(&Record::Make { time, directory, name, inode, mode, owner, kind })?;
            if is_open {
                state.table.hold(inode);
            }
            Ok(inode)
        });
        self.done(made)
    }

    /// Gives an inode that is no directory one more name.
    ///
    /// # Errors
    /// `PERM` for a directory, `EXIST`, `MLINK`, `NOENT` when it has no name any more.
    pub fn link(&self, inode: u64, directory: u64, name: &[u8]) -> Result<NodeAttributes, NodeError> {
        let time = now();
        let linked = self.engine().change(|state| {
            let node = state.table.node(inode)?.ok_or(Status::STALE)?;
            match () {
                () if node.is_directory() => return Err(Status::PERM.into()),
                () if node.links == 0 => return Err(Status::NOENT.into()),
                () if node.links >= LINKS_MAX => return Err(Status::MLINK.into()),
                () => {}
            }
            if named(state, directory, name)?.is_some() {
                return Err(Status::EXIST.into());
            }
            state.commit(&Record::Link { time, directory, name: name.into(), inode }).map(drop)
        });
        self.done(linked)?;
        self.attributes(inode)
    }

    /// Removes a name of what is no directory.
    ///
    /// # Errors
    /// `NOENT`, `ISDIR`, `ROFS`.
    pub fn unlink(&self, directory: u64, name: &[u8]) -> Result<(), NodeError> {
        self.remove(directory, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NOENT`, `NOTDIR`, `NOTEMPTY`, `ROFS`.
    pub fn rmdir(&self, directory: u64, name: &[u8]) -> Result<(), NodeError> {
        self.remove(directory, name, true)
    }

    fn remove(&self, directory: u64, name: &[u8], as_directory: bool) -> Result<(), NodeError> {
        let time = now();
        let removed = self.engine().change(|state| {
            let named = named(state, directory, name)?.ok_or(Status::NOENT)?;
            let node = state.table.node(named.inode)?.ok_or(Status::IO)?;
            removable(&node, as_directory)?;
            state.commit(&Record::Unlink { time, directory, name: name.into() }).map(drop)
        });
        self.done(removed)
    }

    /// Moves a name, as renameat2(2): at once, whatever is below it.
    ///
    /// # Errors
    /// `NOENT`, `EXIST`, `INVAL` for a directory into itself, `ISDIR`, `NOTDIR`, `NOTEMPTY`.
    pub fn rename(
        &self,
        (from, old): (u64, &[u8]),
        (to, new): (u64, &[u8]),
        how: RenameHow,
    ) -> Result<(), NodeError> {
        let time = now();
        let renamed = self.engine().change(|state| {
            let moved = named(state, from, old)?.ok_or(Status::NOENT)?;
            let replaced = named(state, to, new)?;
            match (how, replaced) {
                (RenameHow::NoReplace, Some(_)) => return Err(Status::EXIST.into()),
                (RenameHow::Exchange, None) => return Err(Status::NOENT.into()),
                (_, Some(replaced)) if replaced.inode == moved.inode => return Ok(()),
                _ => {}
            }
            let (old, new) = (old.into(), new.into());
            let record = if how == RenameHow::Exchange {
                // Each moves into the directory of the other.
                renamable(state, moved.inode, to, None)?;
                renamable(state, replaced.map_or(0, |replaced| replaced.inode), from, None)?;
                Record::Exchange { time, from, old, to, new }
            } else {
                renamable(state, moved.inode, to, replaced.map(|replaced| replaced.inode))?;
                Record::Rename { time, from, old, to, new }
            };
            state.commit(&record).map(drop)
        });
        self.done(renamed)
    }
}

/// What a name leads to, in a directory that must be there.
pub(crate) fn named(state: &State, directory: Inode, name: &[u8]) -> Result<Option<Named>, Refusal> {
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(Status::INVAL.into());
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Status::NAMETOOLONG.into());
    }
    let node = state.table.node(directory)?.ok_or(Status::STALE)?;
    match node.as_directory() {
        Some(_) => state.table.name(directory, name),
        None if node.is_directory() => Err(Status::NOENT.into()),
        None => Err(Status::NOTDIR.into()),
    }
}

fn node_kind(kind: NewKind<'_>) -> Result<NodeKind, Status> {
    Ok(match kind {
        NewKind::File => NodeKind::File,
        NewKind::Directory => NodeKind::Directory,
        NewKind::Symlink([]) => return Err(Status::NOENT),
        NewKind::Symlink(text) if text.len() > LINK_BYTES_MAX => return Err(Status::NAMETOOLONG),
        NewKind::Symlink(text) if text.contains(&0) => return Err(Status::INVAL),
        NewKind::Symlink(text) => NodeKind::Symlink(text.into()),
        NewKind::CharDevice { major, minor } => NodeKind::CharDevice { major, minor },
        NewKind::BlockDevice { major, minor } => NodeKind::BlockDevice { major, minor },
        NewKind::Fifo => NodeKind::Fifo,
        NewKind::Socket => NodeKind::Socket,
    })
}
