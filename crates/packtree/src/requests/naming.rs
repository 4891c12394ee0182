//! The requests that change names: making, removing, moving and linking.

use files::{
    CreateHow, FileKind, HandleRef, Reply, Scratch, SetAttributes, Status, check_name, check_new_name,
};

use super::PackTree;
use super::contents::change_of;
use crate::engine::State;
use crate::error::Refusal;
use crate::file_system::{LINK_BYTES_MAX, LINKS_MAX, removable, renamable};
use crate::format::{Change, NodeKind, Owner, Record};
use crate::nodes::named;
use crate::table::Inode;
use crate::time::now;

impl PackTree {
    pub(super) fn create_at(
        &self,
        dir: HandleRef<'_>,
        name: &[u8],
        how: CreateHow,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Refusal> {
        check_new_name(name)?;
        let new = match how {
            CreateHow::Unchecked(new) | CreateHow::Guarded(new) => new,
            CreateHow::Exclusive(_) => SetAttributes::default(),
        };
        let rest = rest_of(&new)?;
        let time = now();
        let made = self.tree.engine.change(|state| {
            let (directory, _) = self.directory(state, dir)?;
            match named(state, directory, name)? {
                None => {
                    self.make_node(state, (directory, name), (&new, 0o644), &NodeKind::File, time).map(Ok)
                }
                Some(there) => Ok(Err(there.inode)),
            }
        })?;
        let inode = match (made, how) {
            (Ok(inode), CreateHow::Exclusive(verifier)) => {
                let mtime = Some(time_of_verifier(verifier));
                self.set(inode, Change { mtime, ..Change::default() })?;
                inode
            }
            (Ok(inode), _) => {
                self.shape(inode, new.size.filter(|size| *size > 0))?;
                self.set(inode, rest)?;
                inode
            }
            (Err(there), how) => self.take_existing(there, how)?,
        };
        self.created(inode, dir, scratch)
    }

    /// The name is taken: by a file that will do, or not.
    fn take_existing(&self, inode: Inode, how: CreateHow) -> Result<Inode, Refusal> {
        let found = self.attributes_of_inode(inode)?;
        if found.kind != FileKind::Regular {
            return Err(Status::EXIST.into());
        }
        match how {
            CreateHow::Guarded(_) => Err(Status::EXIST.into()),
            CreateHow::Unchecked(new) => {
                self.shape(inode, new.size)?;
                Ok(inode)
            }
            CreateHow::Exclusive(verifier) => {
                let node = self.tree.engine.look(|state| state.table.node(inode))?;
                let time = node.map(|node| node.mtime);
                let is_repeat = found.size == 0 && time == Some(time_of_verifier(verifier));
                if is_repeat { Ok(inode) } else { Err(Status::EXIST.into()) }
            }
        }
    }

    fn shape(&self, inode: Inode, size: Option<u64>) -> Result<(), Refusal> {
        let Some(size) = size else { return Ok(()) };
        let held = self.tree.engine.hold(inode)?;
        self.tree.engine.truncate(held.inode, size)
    }

    pub(super) fn mkdir_at(
        &self,
        dir: HandleRef<'_>,
        name: &[u8],
        new: &SetAttributes,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Refusal> {
        self.make_at(dir, name, (new, 0o755), &NodeKind::Directory, scratch)
    }

    pub(super) fn mknod_at(
        &self,
        dir: HandleRef<'_>,
        name: &[u8],
        node: files::NodeKind,
        new: &SetAttributes,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Refusal> {
        let kind = match node {
            files::NodeKind::BlockDevice { device: (major, minor) } => NodeKind::BlockDevice { major, minor },
            files::NodeKind::CharDevice { device: (major, minor) } => NodeKind::CharDevice { major, minor },
            files::NodeKind::Socket => NodeKind::Socket,
            files::NodeKind::Fifo => NodeKind::Fifo,
        };
        self.make_at(dir, name, (new, 0o644), &kind, scratch)
    }

    pub(super) fn symlink_at(
        &self,
        dir: HandleRef<'_>,
        name: &[u8],
        target: &[u8],
        new: &SetAttributes,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Refusal> {
        if target.is_empty() || target.contains(&0) {
            return Err(Status::INVAL.into());
        }
        if target.len() > LINK_BYTES_MAX {
            return Err(Status::NAMETOOLONG.into());
        }
        // Symbolic links have no modes of their own.
        let new = SetAttributes { mode: None, ..*new };
        self.make_at(dir, name, (&new, 0o777), &NodeKind::Symlink(target.into()), scratch)
    }

    fn make_at(
        &self,
        dir: HandleRef<'_>,
        name: &[u8],
        (new, mode): (&SetAttributes, u32),
        kind: &NodeKind,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Refusal> {
        check_new_name(name)?;
        let rest = rest_of(new)?;
        let time = now();
        let inode = self.tree.engine.change(|state| {
            let (directory, _) = self.directory(state, dir)?;
            match named(state, directory, name)? {
                Some(_) => Err(Status::EXIST.into()),
                None => self.make_node(state, (directory, name), (new, mode), kind, time),
            }
        })?;
        self.set(inode, rest)?;
        self.created(inode, dir, scratch)
    }

    fn make_node(
        &self,
        state: &mut State,
        (directory, name): (Inode, &[u8]),
        (new, mode): (&SetAttributes, u32),
        kind: &NodeKind,
        time: i64,
    ) -> Result<Inode, Refusal> {
        let own = self.tree.owner;
        let owner = Owner { uid: new.uid.unwrap_or(own.uid), gid: new.gid.unwrap_or(own.gid) };
        let mode = (new.mode.unwrap_or(mode) & 0o7777) as u16;
        let (inode, name, kind) = (state.table.next_inode, name.into(), kind.clone());
        state.commit(&Record::Make { time, directory, name, inode, mode, owner, kind })?;
        Ok(inode)
    }

    fn created(
        &self,
        inode: Inode,
        dir: HandleRef<'_>,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Refusal> {
        scratch.set_handle(self.handle(inode));
        // Another client may have removed it by now.
        let attributes = self.attributes_of_inode(inode).ok();
        Ok(Reply::Created { object: None, attributes, dir: self.after(dir) })
    }

    pub(super) fn remove_at(
        &self,
        dir: HandleRef<'_>,
        name: &[u8],
        as_directory: bool,
    ) -> Result<Reply<'static>, Refusal> {
        match (as_directory, name) {
            (false, b"." | b"..") => return Err(Status::ISDIR.into()),
            (true, b".") => return Err(Status::INVAL.into()),
            (true, b"..") => return Err(Status::EXIST.into()),
            _ => check_name(name)?,
        }
        let time = now();
        self.tree.engine.change(|state| {
            let (directory, _) = self.directory(state, dir)?;
            let named = named(state, directory, name)?.ok_or(Status::NOENT)?;
            let node = state.table.node(named.inode)?.ok_or(Status::IO)?;
            removable(&node, as_directory)?;
            state.commit(&Record::Unlink { time, directory, name: name.into() }).map(drop)
        })?;
        Ok(Reply::Removed { dir: self.after(dir) })
    }

    pub(super) fn rename_at(
        &self,
        from_dir: HandleRef<'_>,
        from_name: &[u8],
        to_dir: HandleRef<'_>,
        to_name: &[u8],
    ) -> Result<Reply<'static>, Refusal> {
        for name in [from_name, to_name] {
            match name {
                b"." | b".." => return Err(Status::INVAL.into()),
                _ => check_name(name)?,
            }
        }
        let time = now();
        self.tree.engine.change(|state| {
            let ((from, _), (to, _)) = (self.directory(state, from_dir)?, self.directory(state, to_dir)?);
            let moved = named(state, from, from_name)?.ok_or(Status::NOENT)?.inode;
            let replaced = named(state, to, to_name)?.map(|replaced| replaced.inode);
            if replaced == Some(moved) {
                return Ok(());
            }
            renamable(state, moved, to, replaced)?;
            let (old, new) = (from_name.into(), to_name.into());
            state.commit(&Record::Rename { time, from, old, to, new }).map(drop)
        })?;
        Ok(Reply::Rename { from_dir: self.after(from_dir), to_dir: self.after(to_dir) })
    }

    pub(super) fn link_at(
        &self,
        file: HandleRef<'_>,
        dir: HandleRef<'_>,
        name: &[u8],
    ) -> Result<Reply<'static>, Refusal> {
        check_new_name(name)?;
        let time = now();
        self.tree.engine.change(|state| {
            let (inode, node) = self.node(state, file)?;
            if node.is_directory() {
                return Err(Status::INVAL.into());
            }
            let (directory, _) = self.directory(state, dir)?;
            if named(state, directory, name)?.is_some() {
                return Err(Status::EXIST.into());
            }
            if node.links >= LINKS_MAX {
                return Err(Status::MLINK.into());
            }
            state.commit(&Record::Link { time, directory, name: name.into(), inode }).map(drop)
        })?;
        Ok(Reply::Link { attributes: self.attributes_of(file).ok(), dir: self.after(dir) })
    }
}

/// What a new object does not get by being made: times, where they are not those of now.
fn rest_of(new: &SetAttributes) -> Result<Change, Status> {
    Ok(Change { mode: None, uid: None, gid: None, ..change_of(new)? })
}

/// A verifier is kept as the time of the file, as servers do: here it is less than a lifetime after 1970.
fn time_of_verifier(verifier: [u8; 8]) -> i64 {
    (u64::from_le_bytes(verifier) >> 3) as i64
}
