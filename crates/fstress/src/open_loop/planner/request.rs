//! The request that a planned operation stands for: the handles and names of the moment it is sent, and attributes and
//! sizes that are the same for all.

use files::{CreateHow, HandleRef, NodeKind, OpKind, Request, SetAttributes, SetTime};

use super::chains::{NO_CHAIN, TRUNCATES};
use super::{Planned, Planner, Target};
use crate::objects::{DirectoryId, ObjectName};
use crate::workload::SetattrUse;

/// Room for the names of one request.
#[derive(Default)]
pub(crate) struct NameBuffers {
    first: Option<ObjectName>,
    second: Option<ObjectName>,
}

/// Bytes of directory asked by one READDIR or READDIRPLUS.
const LISTING_BYTES: u32 = 8192;
/// READ, LOOKUP, MODIFY, EXTEND, DELETE, EXECUTE (RFC 1813, section 3.3.4).
const ALL_RIGHTS: u32 = 0x3f;
/// Where every symbolic link made points to.
pub(crate) const LINK_TARGET: &[u8] = b"target-of-a-link-made-by-crumb";

/// Attributes of every file made.
pub(crate) const FILE_ATTRIBUTES: SetAttributes = SetAttributes { mode: Some(0o644), ..UNSET };
/// Attributes of every directory made.
pub(crate) const DIR_ATTRIBUTES: SetAttributes = SetAttributes { mode: Some(0o755), ..UNSET };
const UNSET: SetAttributes = SetAttributes {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: SetTime::Keep,
    mtime: SetTime::Keep,
};

impl Planner {
    /// The request that `planned` stands for.
    #[inline]
    pub fn request<'a>(&'a self, planned: &Planned, names: &'a mut NameBuffers) -> Request<'a> {
        let set = &self.set;
        let dir_handle = |dir| HandleRef(set.directory_handle(dir).unwrap_or_default());
        // Each is looked up for the operations that name it.
        let object = || match planned.target {
            Target::None => dir_handle(DirectoryId::ROOT),
            Target::File(file) => HandleRef(set.file_handle(file).unwrap_or_default()),
            Target::Dir(dir) => dir_handle(dir),
            Target::Link(link) => HandleRef(set.symlink_handle(link).unwrap_or_default()),
        };
        let file = match planned.target {
            Target::File(file) => Some(file),
            _ => None,
        };
        let parent = || dir_handle(set.file_parent(file.expect("an operation on a file")));
        let file_name = || set.file_name(file.expect("an operation on a file"));
        let new_dir = || dir_handle(planned.dir);
        match planned.kind {
            OpKind::Null => Request::Null,
            OpKind::Getattr => Request::Getattr { object: object() },
            OpKind::Setattr => {
                let truncates = match planned.chain {
                    NO_CHAIN => self.workload.access.setattr == SetattrUse::Truncate,
                    _ => planned.extra == TRUNCATES,
                };
                let size = truncates.then_some(0);
                let new = SetAttributes { size, mtime: SetTime::ServerTime, ..UNSET };
                Request::Setattr { object: object(), new, guard: None }
            }
            OpKind::Lookup => {
                Request::Lookup { dir: parent(), name: names.first.insert(file_name()).as_bytes() }
            }
            OpKind::Access => Request::Access { object: object(), rights: ALL_RIGHTS },
            OpKind::Readlink => Request::Readlink { link: object() },
            OpKind::Read => Request::Read { file: object(), offset: planned.offset, count: planned.count },
            OpKind::Write => {
                let bytes = self.payload.at(planned.offset, planned.count);
                Request::Write { file: object(), offset: planned.offset, bytes, stability: self.stability }
            }
            OpKind::Create => {
                let name = names.first.insert(file_name()).as_bytes();
                Request::Create { dir: parent(), name, how: CreateHow::Unchecked(FILE_ATTRIBUTES) }
            }
            OpKind::Remove => {
                Request::Remove { dir: parent(), name: names.first.insert(file_name()).as_bytes() }
            }
            OpKind::Mkdir | OpKind::Rmdir => {
                let Target::Dir(made) = planned.target else {
                    unreachable!("MKDIR and RMDIR name a directory")
                };
                let name = names.first.insert(set.directory_name(made)).as_bytes();
                let dir = dir_handle(set.directory_parent(made));
                if planned.kind == OpKind::Mkdir {
                    Request::Mkdir { dir, name, new: DIR_ATTRIBUTES }
                } else {
                    Request::Rmdir { dir, name }
                }
            }
            OpKind::Symlink => {
                let Target::Link(made) = planned.target else { unreachable!("SYMLINK names a link") };
                let name = names.first.insert(set.symlink_name(made)).as_bytes();
                Request::Symlink { dir: new_dir(), name, target: LINK_TARGET, new: UNSET }
            }
            OpKind::Mknod => {
                let name = names.first.insert(ObjectName::extra(planned.extra)).as_bytes();
                Request::Mknod { dir: new_dir(), name, node: NodeKind::Fifo, new: FILE_ATTRIBUTES }
            }
            OpKind::Rename => {
                let file = file.expect("RENAME names a file");
                let (old_dir, old_name) = self.renaming[&file];
                let to_name = names.second.insert(set.file_name(file)).as_bytes();
                let from_name = names.first.insert(old_name).as_bytes();
                Request::Rename { from_dir: dir_handle(old_dir), from_name, to_dir: parent(), to_name }
            }
            OpKind::Link => {
                let name = names.first.insert(ObjectName::extra(planned.extra)).as_bytes();
                Request::Link { file: object(), dir: new_dir(), name }
            }
            OpKind::Readdir => {
                Request::Readdir { dir: object(), cookie: 0, verifier: [0; 8], count: LISTING_BYTES }
            }
            OpKind::Readdirplus => Request::Readdirplus {
                dir: object(),
                cookie: 0,
                verifier: [0; 8],
                name_bytes: LISTING_BYTES,
                reply_bytes: LISTING_BYTES * 4,
            },
            OpKind::Fsstat => Request::Fsstat { root: object() },
            OpKind::Fsinfo => Request::Fsinfo { root: object() },
            OpKind::Pathconf => Request::Pathconf { object: object() },
            OpKind::Commit => Request::Commit { file: object(), offset: 0, count: 0 },
        }
    }
}
