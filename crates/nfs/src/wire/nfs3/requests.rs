//! Arguments of the procedures (RFC 1813, section 3.3).

use files::{CreateHow, FileKind, NodeKind, OpKind, Request};

use super::super::xdr::{put_bool, put_fixed, put_opaque, put_u32, put_u64};
use super::super::{WireError, XdrReader};
use super::PATH_BYTES_MAX;
use super::parts::{
    file_kind, handle, name, put_handle, put_place, put_set_attributes, put_time, set_attributes, stability,
    time,
};

/// Appends the arguments of a request.
#[inline]
pub fn put_request(out: &mut Vec<u8>, request: &Request<'_>) {
    match *request {
        Request::Null => {}
        Request::Getattr { object } | Request::Pathconf { object } => put_handle(out, object),
        Request::Readlink { link } => put_handle(out, link),
        Request::Fsstat { root } | Request::Fsinfo { root } => put_handle(out, root),
        Request::Setattr { object, ref new, guard } => {
            put_handle(out, object);
            put_set_attributes(out, new);
            put_bool(out, guard.is_some());
            guard.iter().for_each(|ctime| put_time(out, *ctime));
        }
        Request::Lookup { dir, name } | Request::Remove { dir, name } | Request::Rmdir { dir, name } => {
            put_place(out, dir, name);
        }
        Request::Access { object, rights } => {
            put_handle(out, object);
            put_u32(out, rights);
        }
        Request::Read { file, offset, count } | Request::Commit { file, offset, count } => {
            put_handle(out, file);
            put_u64(out, offset);
            put_u32(out, count);
        }
        Request::Write { file, offset, bytes, stability } => {
            put_handle(out, file);
            put_u64(out, offset);
            put_u32(out, bytes.len() as u32);
            put_u32(out, stability as u32);
            put_opaque(out, bytes);
        }
        Request::Create { dir, name, ref how } => {
            put_place(out, dir, name);
            match how {
                CreateHow::Unchecked(new) => {
                    put_u32(out, 0);
                    put_set_attributes(out, new);
                }
                CreateHow::Guarded(new) => {
                    put_u32(out, 1);
                    put_set_attributes(out, new);
                }
                CreateHow::Exclusive(verifier) => {
                    put_u32(out, 2);
                    put_fixed(out, verifier);
                }
            }
        }
        Request::Mkdir { dir, name, ref new } => {
            put_place(out, dir, name);
            put_set_attributes(out, new);
        }
        Request::Symlink { dir, name, target, ref new } => {
            put_place(out, dir, name);
            put_set_attributes(out, new);
            put_opaque(out, target);
        }
        Request::Mknod { dir, name, node, ref new } => {
            put_place(out, dir, name);
            let (kind, device) = match node {
                NodeKind::BlockDevice { device } => (FileKind::BlockDevice, Some(device)),
                NodeKind::CharDevice { device } => (FileKind::CharDevice, Some(device)),
                NodeKind::Socket => (FileKind::Socket, None),
                NodeKind::Fifo => (FileKind::Fifo, None),
            };
            put_u32(out, kind as u32);
            put_set_attributes(out, new);
            if let Some((major, minor)) = device {
                put_u32(out, major);
                put_u32(out, minor);
            }
        }
        Request::Rename { from_dir, from_name, to_dir, to_name } => {
            put_place(out, from_dir, from_name);
            put_place(out, to_dir, to_name);
        }
        Request::Link { file, dir, name } => {
            put_handle(out, file);
            put_place(out, dir, name);
        }
        Request::Readdir { dir, cookie, verifier, count } => {
            put_handle(out, dir);
            put_u64(out, cookie);
            put_fixed(out, &verifier);
            put_u32(out, count);
        }
        Request::Readdirplus { dir, cookie, verifier, name_bytes, reply_bytes } => {
            put_handle(out, dir);
            put_u64(out, cookie);
            put_fixed(out, &verifier);
            put_u32(out, name_bytes);
            put_u32(out, reply_bytes);
        }
    }
}

/// Reads the arguments of procedure `kind`.
///
/// # Errors
/// When they are not that procedure's arguments.
#[inline]
pub fn decode_request(kind: OpKind, args: &[u8]) -> Result<Request<'_>, WireError> {
    let mut reader = XdrReader::new(args);
    let r = &mut reader;
    let request = match kind {
        OpKind::Null => Request::Null,
        OpKind::Getattr => Request::Getattr { object: handle(r)? },
        OpKind::Setattr => Request::Setattr {
            object: handle(r)?,
            new: set_attributes(r)?,
            guard: if r.bool()? { Some(time(r)?) } else { None },
        },
        OpKind::Lookup => Request::Lookup { dir: handle(r)?, name: name(r)? },
        OpKind::Access => Request::Access { object: handle(r)?, rights: r.u32()? },
        OpKind::Readlink => Request::Readlink { link: handle(r)? },
        OpKind::Read => Request::Read { file: handle(r)?, offset: r.u64()?, count: r.u32()? },
        OpKind::Write => {
            let (file, offset, count) = (handle(r)?, r.u64()?, r.u32()?);
            let stability = stability(r)?;
            let bytes = r.opaque(u32::MAX)?;
            if bytes.len() != count as usize {
                return Err(WireError::Value);
            }
            Request::Write { file, offset, bytes, stability }
        }
        OpKind::Create => Request::Create {
            dir: handle(r)?,
            name: name(r)?,
            how: match r.u32()? {
                0 => CreateHow::Unchecked(set_attributes(r)?),
                1 => CreateHow::Guarded(set_attributes(r)?),
                2 => CreateHow::Exclusive(*r.fixed()?),
                _ => return Err(WireError::Value),
            },
        },
        OpKind::Mkdir => Request::Mkdir { dir: handle(r)?, name: name(r)?, new: set_attributes(r)? },
        OpKind::Symlink => {
            let (dir, name, new) = (handle(r)?, name(r)?, set_attributes(r)?);
            Request::Symlink { dir, name, new, target: r.opaque(PATH_BYTES_MAX)? }
        }
        OpKind::Mknod => {
            let (dir, name, kind) = (handle(r)?, name(r)?, file_kind(r.u32()?)?);
            if !matches!(
                kind,
                FileKind::BlockDevice | FileKind::CharDevice | FileKind::Socket | FileKind::Fifo
            ) {
                return Err(WireError::Value);
            }
            let new = set_attributes(r)?;
            let node = match kind {
                FileKind::BlockDevice => NodeKind::BlockDevice { device: (r.u32()?, r.u32()?) },
                FileKind::CharDevice => NodeKind::CharDevice { device: (r.u32()?, r.u32()?) },
                FileKind::Socket => NodeKind::Socket,
                _ => NodeKind::Fifo,
            };
            Request::Mknod { dir, name, node, new }
        }
        OpKind::Remove => Request::Remove { dir: handle(r)?, name: name(r)? },
        OpKind::Rmdir => Request::Rmdir { dir: handle(r)?, name: name(r)? },
        OpKind::Rename => Request::Rename {
            from_dir: handle(r)?,
            from_name: name(r)?,
            to_dir: handle(r)?,
            to_name: name(r)?,
        },
        OpKind::Link => Request::Link { file: handle(r)?, dir: handle(r)?, name: name(r)? },
        OpKind::Readdir => {
            Request::Readdir { dir: handle(r)?, cookie: r.u64()?, verifier: *r.fixed()?, count: r.u32()? }
        }
        OpKind::Readdirplus => Request::Readdirplus {
            dir: handle(r)?,
            cookie: r.u64()?,
            verifier: *r.fixed()?,
            name_bytes: r.u32()?,
            reply_bytes: r.u32()?,
        },
        OpKind::Fsstat => Request::Fsstat { root: handle(r)? },
        OpKind::Fsinfo => Request::Fsinfo { root: handle(r)? },
        OpKind::Pathconf => Request::Pathconf { object: handle(r)? },
        OpKind::Commit => Request::Commit { file: handle(r)?, offset: r.u64()?, count: r.u32()? },
    };
    reader.finish()?;
    Ok(request)
}
