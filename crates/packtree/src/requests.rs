//! The tree as a [`FileService`]: requests on handles, for open-loop load.
//!
//! ```text
//! Request -> handle = number of the tree, inode -> Engine -> Reply in the caller's Scratch
//! ```
//!
//! A handle is valid for as long as its object has a name, also after the tree was closed and opened again: inode numbers are never used
//! twice. Who may change what is not asked: all requests are those of the user who opened the tree.
//!
//! Always holds: an inode that is written is held meanwhile, so that its removal waits for the write; a reply comes after the kernel has
//! the change, and of a WRITE that asks for stability, and of COMMIT, after a sync.
//! Not here: threads (`files::DirectoryTransport`); calls of a mount (`nodes`).
//! Source: RFC 1813, section 3.3.

mod contents;
mod listing;
mod naming;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use files::{
    Attributes, Caller, FileKind, FileService, FileSystem as _, Fsinfo, Handle, HandleRef, NodeTime,
    Pathconf, Reply, Request, Scratch, Status, Wcc, check_name,
};

use crate::engine::{Cached, State};
use crate::error::{Refusal, TreeError};
use crate::file_system::{LINKS_MAX, PackTree, attributes};
use crate::nodes::named;
use crate::table::{Body, Inode, Node};

/// What one READ or WRITE carries at most.
const IO_BYTES_MAX: u32 = 1 << 20;
/// Pieces that were read last, for reads that follow one another: by inode number.
const CACHED: usize = 16;

/// What requests need beside the engine.
pub(crate) struct Answering {
    cached: Vec<Mutex<Cached>>,
    listings: listing::Listings,
    /// Another one after each opening: what was not committed before may be lost.
    verifier: [u8; 8],
    caller: Option<Caller>,
    failure_logged: AtomicBool,
}

impl Answering {
    pub(crate) fn new() -> Self {
        Self {
            cached: (0..CACHED).map(|_| Mutex::default()).collect(),
            listings: listing::Listings::default(),
            verifier: RandomState::new().hash_one(2).to_le_bytes(),
            caller: Caller::current().ok(),
            failure_logged: AtomicBool::new(false),
        }
    }
}

impl FileService for PackTree {
    fn root(&self) -> Handle {
        self.handle(self.root)
    }

    fn io_bytes_max(&self) -> u32 {
        IO_BYTES_MAX
    }

    fn has_room_of_its_own(&self) -> bool {
        true
    }

    fn perform(&self, request: &Request<'_>, scratch: &mut Scratch) -> Result<Reply<'static>, Status> {
        scratch.clear();
        self.answer(request, scratch).map_err(|refusal| self.status_of(refusal))
    }
}

impl PackTree {
    fn answer(&self, request: &Request<'_>, scratch: &mut Scratch) -> Result<Reply<'static>, Refusal> {
        use Request as R;
        match *request {
            R::Null => Ok(Reply::Null),
            R::Getattr { object } => Ok(Reply::Getattr { attributes: self.attributes_of(object)? }),
            R::Setattr { object, new, guard } => self.setattr(object, &new, guard),
            R::Lookup { dir, name } => self.lookup(dir, name, scratch),
            R::Access { object, rights } => {
                let attributes = self.attributes_of(object)?;
                let granted = self.answering().caller.as_ref().map_or(0, |caller| caller.rights(&attributes));
                Ok(Reply::Access { attributes: Some(attributes), rights: rights & granted })
            }
            R::Readlink { link } => self.target(link, scratch),
            R::Read { file, offset, count } => self.read(file, offset, count, scratch),
            R::Write { file, offset, bytes, stability } => self.write(file, offset, bytes, stability),
            R::Create { dir, name, how } => self.create_at(dir, name, how, scratch),
            R::Mkdir { dir, name, new } => self.mkdir_at(dir, name, &new, scratch),
            R::Symlink { dir, name, target, new } => self.symlink_at(dir, name, target, &new, scratch),
            R::Mknod { dir, name, node, new } => self.mknod_at(dir, name, node, &new, scratch),
            R::Remove { dir, name } => self.remove_at(dir, name, false),
            R::Rmdir { dir, name } => self.remove_at(dir, name, true),
            R::Rename { from_dir, from_name, to_dir, to_name } => {
                self.rename_at(from_dir, from_name, to_dir, to_name)
            }
            R::Link { file, dir, name } => self.link_at(file, dir, name),
            R::Readdir { dir, cookie, verifier, count } => {
                self.list(dir, (cookie, verifier), files::ListingRoom::of_readdir(count)?, scratch)
            }
            R::Readdirplus { dir, cookie, verifier, name_bytes, reply_bytes } => self.list(
                dir,
                (cookie, verifier),
                files::ListingRoom::of_readdirplus(name_bytes, reply_bytes)?,
                scratch,
            ),
            R::Fsstat { root } => {
                let attributes = Some(self.attributes_of(root)?);
                let stat = self.statfs().map_err(|error| error.status().unwrap_or(Status::IO))?;
                Ok(Reply::Fsstat { attributes, stat })
            }
            R::Fsinfo { root } => {
                Ok(Reply::Fsinfo { attributes: Some(self.attributes_of(root)?), limits: LIMITS })
            }
            R::Pathconf { object } => {
                Ok(Reply::Pathconf { attributes: Some(self.attributes_of(object)?), limits: NAME_LIMITS })
            }
            R::Commit { file, .. } => self.commit(file),
        }
    }

    fn handle(&self, inode: Inode) -> Handle {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.tree.fsid.to_le_bytes());
        bytes[8..].copy_from_slice(&inode.to_le_bytes());
        Handle::new(&bytes).expect("16 bytes are few enough")
    }

    fn inode(&self, handle: HandleRef<'_>) -> Result<Inode, Status> {
        let bytes: [u8; 16] = handle.0.try_into().map_err(|_| Status::BADHANDLE)?;
        let (tree, inode) = bytes.split_at(8);
        if tree != self.tree.fsid.to_le_bytes() {
            return Err(Status::STALE);
        }
        Ok(u64::from_le_bytes(inode.try_into().expect("8 of 16 bytes")))
    }

    /// The inode of a handle, as long as it has a name.
    fn node(&self, state: &State, handle: HandleRef<'_>) -> Result<(Inode, Arc<Node>), Refusal> {
        let inode = self.inode(handle)?;
        let node = state.table.node(inode)?.filter(|node| node.links > 0).ok_or(Status::STALE)?;
        Ok((inode, node))
    }

    fn directory(&self, state: &State, handle: HandleRef<'_>) -> Result<(Inode, Arc<Node>), Refusal> {
        let (inode, node) = self.node(state, handle)?;
        if node.is_directory() { Ok((inode, node)) } else { Err(Status::NOTDIR.into()) }
    }

    fn attributes_of(&self, handle: HandleRef<'_>) -> Result<Attributes, Refusal> {
        let (inode, node) = self.tree.engine.look(|state| self.node(state, handle))?;
        Ok(attributes(inode, &node, self.tree.fsid))
    }

    fn attributes_of_inode(&self, inode: Inode) -> Result<Attributes, Refusal> {
        let node = self.tree.engine.look(|state| Ok(state.table.node(inode)?.ok_or(Status::STALE)?))?;
        Ok(attributes(inode, &node, self.tree.fsid))
    }

    /// What a reply says of an object after a change: nothing, when it is gone by then.
    fn after(&self, handle: HandleRef<'_>) -> Wcc {
        Wcc { before: None, after: self.attributes_of(handle).ok() }
    }

    /// The directory above one, as far as this view goes.
    fn above(&self, inode: Inode, node: &Node) -> Inode {
        match node.as_directory() {
            Some(directory) if inode != self.root => directory.parent,
            _ => inode,
        }
    }

    fn lookup(
        &self,
        dir: HandleRef<'_>,
        name: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Refusal> {
        let (found, node) = self.tree.engine.look(|state| {
            let (inode, node) = self.directory(state, dir)?;
            let found = match name {
                b"." => inode,
                b".." => self.above(inode, &node),
                _ => {
                    check_name(name)?;
                    named(state, inode, name)?.ok_or(Status::NOENT)?.inode
                }
            };
            Ok((found, state.table.node(found)?.ok_or(Status::IO)?))
        })?;
        scratch.set_handle(self.handle(found));
        let attributes = Some(attributes(found, &node, self.tree.fsid));
        Ok(Reply::Lookup { object: HandleRef(&[]), attributes, dir: None })
    }

    fn target(&self, link: HandleRef<'_>, scratch: &mut Scratch) -> Result<Reply<'static>, Refusal> {
        let (inode, node) = self.tree.engine.look(|state| self.node(state, link))?;
        let Body::Symlink(text) = &node.body else { return Err(Status::INVAL.into()) };
        scratch.set_bytes(text.len(), |bytes| {
            bytes.copy_from_slice(text);
            Ok::<_, Status>(text.len())
        })?;
        let attributes = Some(attributes(inode, &node, self.tree.fsid));
        Ok(Reply::Readlink { attributes, target: &[] })
    }

    fn answering(&self) -> &Answering {
        &self.tree.answering
    }

    /// A status says little of what is wrong with the tree: the first time, the log says it.
    fn status_of(&self, refusal: Refusal) -> Status {
        let error = match refusal {
            Refusal::Status(status) => return status,
            Refusal::Room => return Status::NOSPC,
            Refusal::Tree(TreeError::Disk(error)) if error.kind() == std::io::ErrorKind::StorageFull => {
                return Status::NOSPC;
            }
            Refusal::Tree(error) => error.with_cause(),
            other => other.reason(),
        };
        if !self.answering().failure_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(place = %self.tree.engine.place, "{error}");
        }
        Status::IO
    }
}

const LIMITS: Fsinfo = Fsinfo {
    read_max: IO_BYTES_MAX,
    read_preferred: IO_BYTES_MAX,
    read_multiple: 4096,
    write_max: IO_BYTES_MAX,
    write_preferred: IO_BYTES_MAX,
    write_multiple: 4096,
    readdir_preferred: 65_536,
    file_size_max: crate::engine::FILE_BYTES_MAX,
    time_delta: NodeTime { s: 0, ns: 1 },
    // FSF3_LINK, FSF3_SYMLINK, FSF3_HOMOGENEOUS, FSF3_CANSETTIME.
    properties: 0x1 | 0x2 | 0x8 | 0x10,
};

const NAME_LIMITS: Pathconf = Pathconf {
    links_max: LINKS_MAX,
    name_bytes_max: 255,
    no_truncation: true,
    chown_restricted: true,
    case_insensitive: false,
    case_preserving: true,
};

/// Whether a file's handle names one.
fn expect_file(kind: FileKind) -> Result<(), Status> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Status::ISDIR),
        _ => Err(Status::INVAL),
    }
}
