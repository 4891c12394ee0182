//! Arguments and results of the 22 procedures of NFS version 3, between bytes and the types of `files` (RFC 1813).
//!
//! Always holds: a failure is sent without attributes; a listing is checked whole when it arrives and then walked
//! in place. Names are bounded by [`NAME_BYTES_MAX`], link targets by [`PATH_BYTES_MAX`], data by the message.
//! A MKNOD for anything but a device, socket or FIFO is malformed here, where RFC 1813 has NFS3ERR_BADTYPE.

use files::{
    Attributes, CreateHow, DirEntry, Entries, FileKind, Fsinfo, Fsstat, HandleRef, NodeKind, NodeTime,
    OpKind, Pathconf, PreAttributes, Reply, Request, SetAttributes, SetTime, Stability, Status, Wcc,
};

use super::xdr::{put_bool, put_fixed, put_opaque, put_u32, put_u64};
use super::{WireError, XdrReader};

/// RPC program number.
pub const PROGRAM: u32 = 100_003;
/// Program version.
pub const VERSION: u32 = 3;
/// The usual port.
pub const PORT: u16 = 2049;
/// The longest name accepted from a peer, bytes. RFC 1813 sets no bound; no file system goes beyond this.
pub const NAME_BYTES_MAX: u32 = 4096;
/// The longest link target accepted from a peer, bytes.
pub const PATH_BYTES_MAX: u32 = 65_536;
/// Bytes of `fattr3`.
pub const ATTRIBUTES_BYTES: usize = 84;

const HANDLE_BYTES_MAX: u32 = files::Handle::BYTES_MAX as u32;

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

/// What attributes a failed procedure's result carries.
enum FailureShape {
    Nothing,
    Attributes,
    Wcc,
    TwoWcc,
    AttributesAndWcc,
}

fn failure_shape(kind: OpKind) -> FailureShape {
    match kind {
        OpKind::Null | OpKind::Getattr => FailureShape::Nothing,
        OpKind::Lookup
        | OpKind::Access
        | OpKind::Readlink
        | OpKind::Read
        | OpKind::Readdir
        | OpKind::Readdirplus
        | OpKind::Fsstat
        | OpKind::Fsinfo
        | OpKind::Pathconf => FailureShape::Attributes,
        OpKind::Setattr
        | OpKind::Write
        | OpKind::Create
        | OpKind::Mkdir
        | OpKind::Symlink
        | OpKind::Mknod
        | OpKind::Remove
        | OpKind::Rmdir
        | OpKind::Commit => FailureShape::Wcc,
        OpKind::Rename => FailureShape::TwoWcc,
        OpKind::Link => FailureShape::AttributesAndWcc,
    }
}

/// Appends the results of procedure `kind`. A failure goes without attributes. The entries of a listing are
/// sent as they are: whoever lists cuts them to the request's limits ([`entry_bytes`] tells their sizes).
///
/// # Panics
/// When the reply is another procedure's.
#[inline]
pub fn put_reply(out: &mut Vec<u8>, kind: OpKind, reply: &Result<Reply<'_>, Status>) {
    match reply {
        Ok(Reply::Null) => {}
        Ok(reply) => {
            put_u32(out, 0);
            put_success(out, kind, reply);
        }
        Err(_) if kind == OpKind::Null => {}
        Err(status) => {
            put_u32(out, status.0);
            let absent = match failure_shape(kind) {
                FailureShape::Nothing => 0,
                FailureShape::Attributes => 1,
                FailureShape::Wcc => 2,
                FailureShape::TwoWcc => 4,
                FailureShape::AttributesAndWcc => 3,
            };
            out.extend_from_slice(&[0; 16][..4 * absent]);
        }
    }
}

#[inline]
fn put_success(out: &mut Vec<u8>, kind: OpKind, reply: &Reply<'_>) {
    match (kind, reply) {
        (OpKind::Getattr, Reply::Getattr { attributes }) => put_attributes(out, attributes),
        (OpKind::Setattr, Reply::Setattr { object }) => put_wcc(out, object),
        (OpKind::Lookup, Reply::Lookup { object, attributes, dir }) => {
            put_handle(out, *object);
            put_post(out, attributes);
            put_post(out, dir);
        }
        (OpKind::Access, Reply::Access { attributes, rights }) => {
            put_post(out, attributes);
            put_u32(out, *rights);
        }
        (OpKind::Readlink, Reply::Readlink { attributes, target }) => {
            put_post(out, attributes);
            put_opaque(out, target);
        }
        (OpKind::Read, Reply::Read { attributes, bytes, end }) => {
            put_post(out, attributes);
            put_u32(out, bytes.len() as u32);
            put_bool(out, *end);
            put_opaque(out, bytes);
        }
        (OpKind::Write, Reply::Write { file, count, stability, verifier }) => {
            put_wcc(out, file);
            put_u32(out, *count);
            put_u32(out, *stability as u32);
            put_fixed(out, verifier);
        }
        (
            OpKind::Create | OpKind::Mkdir | OpKind::Symlink | OpKind::Mknod,
            Reply::Created { object, attributes, dir },
        ) => {
            put_bool(out, object.is_some());
            object.iter().for_each(|object| put_handle(out, *object));
            put_post(out, attributes);
            put_wcc(out, dir);
        }
        (OpKind::Remove | OpKind::Rmdir, Reply::Removed { dir }) => put_wcc(out, dir),
        (OpKind::Rename, Reply::Rename { from_dir, to_dir }) => {
            put_wcc(out, from_dir);
            put_wcc(out, to_dir);
        }
        (OpKind::Link, Reply::Link { attributes, dir }) => {
            put_post(out, attributes);
            put_wcc(out, dir);
        }
        (OpKind::Readdir | OpKind::Readdirplus, Reply::Listing { dir, verifier, entries, end }) => {
            put_post(out, dir);
            put_fixed(out, verifier);
            for entry in *entries {
                put_entry(out, kind, &entry);
            }
            put_bool(out, false);
            put_bool(out, *end);
        }
        (OpKind::Fsstat, Reply::Fsstat { attributes, stat }) => {
            put_post(out, attributes);
            for number in [
                stat.bytes_total,
                stat.bytes_free,
                stat.bytes_available,
                stat.files_total,
                stat.files_free,
                stat.files_available,
            ] {
                put_u64(out, number);
            }
            put_u32(out, stat.stable_s);
        }
        (OpKind::Fsinfo, Reply::Fsinfo { attributes, limits }) => {
            put_post(out, attributes);
            for number in [
                limits.read_max,
                limits.read_preferred,
                limits.read_multiple,
                limits.write_max,
                limits.write_preferred,
                limits.write_multiple,
                limits.readdir_preferred,
            ] {
                put_u32(out, number);
            }
            put_u64(out, limits.file_size_max);
            put_time(out, limits.time_delta);
            put_u32(out, limits.properties);
        }
        (OpKind::Pathconf, Reply::Pathconf { attributes, limits }) => {
            put_post(out, attributes);
            put_u32(out, limits.links_max);
            put_u32(out, limits.name_bytes_max);
            put_bool(out, limits.no_truncation);
            put_bool(out, limits.chown_restricted);
            put_bool(out, limits.case_insensitive);
            put_bool(out, limits.case_preserving);
        }
        (OpKind::Commit, Reply::Commit { file, verifier }) => {
            put_wcc(out, file);
            put_fixed(out, verifier);
        }
        _ => panic!("a reply to {} cannot be {reply:?}", kind.name()),
    }
}

fn put_entry(out: &mut Vec<u8>, kind: OpKind, entry: &DirEntry<'_>) {
    put_bool(out, true);
    put_u64(out, entry.fileid);
    put_opaque(out, entry.name);
    put_u64(out, entry.cookie);
    if kind == OpKind::Readdirplus {
        put_post(out, &entry.attributes);
        put_bool(out, entry.object.is_some());
        entry.object.iter().for_each(|object| put_handle(out, *object));
    }
}

/// Bytes that an entry takes in a reply to `kind`, READDIR or READDIRPLUS.
pub fn entry_bytes(kind: OpKind, entry: &DirEntry<'_>) -> usize {
    let plain = 4 + 8 + counted_bytes(entry.name) + 8;
    if kind != OpKind::Readdirplus {
        return plain;
    }
    let attributes = entry.attributes.map_or(0, |_| ATTRIBUTES_BYTES);
    plain + 4 + attributes + 4 + entry.object.map_or(0, |object| counted_bytes(object.0))
}

/// Bytes of a listing's reply around its entries, directory attributes included: what counts against the limit of
/// READDIR and READDIRPLUS besides [`entry_bytes`].
pub const LISTING_BYTES: usize = 4 + 4 + ATTRIBUTES_BYTES + 8 + 4 + 4;

fn counted_bytes(bytes: &[u8]) -> usize {
    4 + bytes.len().next_multiple_of(4)
}

/// Reads the results of procedure `kind`.
///
/// # Errors
/// When they are not that procedure's results.
#[inline]
pub fn decode_reply(kind: OpKind, results: &[u8]) -> Result<Result<Reply<'_>, Status>, WireError> {
    let mut reader = XdrReader::new(results);
    let r = &mut reader;
    if kind == OpKind::Null {
        reader.finish()?;
        return Ok(Ok(Reply::Null));
    }
    let status = r.u32()?;
    if status != 0 {
        skip_failure(kind, r)?;
        reader.finish()?;
        return Ok(Err(Status(status)));
    }
    let reply = success(kind, r)?;
    reader.finish()?;
    Ok(Ok(reply))
}

fn skip_failure(kind: OpKind, r: &mut XdrReader<'_>) -> Result<(), WireError> {
    match failure_shape(kind) {
        FailureShape::Nothing => {}
        FailureShape::Attributes => drop(post(r)?),
        FailureShape::Wcc => drop(wcc(r)?),
        FailureShape::TwoWcc => {
            wcc(r)?;
            wcc(r)?;
        }
        FailureShape::AttributesAndWcc => {
            post(r)?;
            wcc(r)?;
        }
    }
    Ok(())
}

#[inline]
fn success<'a>(kind: OpKind, r: &mut XdrReader<'a>) -> Result<Reply<'a>, WireError> {
    Ok(match kind {
        OpKind::Null => Reply::Null,
        OpKind::Getattr => Reply::Getattr { attributes: attributes(r)? },
        OpKind::Setattr => Reply::Setattr { object: wcc(r)? },
        OpKind::Lookup => Reply::Lookup { object: handle(r)?, attributes: post(r)?, dir: post(r)? },
        OpKind::Access => Reply::Access { attributes: post(r)?, rights: r.u32()? },
        OpKind::Readlink => Reply::Readlink { attributes: post(r)?, target: r.opaque(PATH_BYTES_MAX)? },
        OpKind::Read => {
            let (attributes, count, end) = (post(r)?, r.u32()?, r.bool()?);
            let bytes = r.opaque(u32::MAX)?;
            if bytes.len() != count as usize {
                return Err(WireError::Value);
            }
            Reply::Read { attributes, bytes, end }
        }
        OpKind::Write => {
            Reply::Write { file: wcc(r)?, count: r.u32()?, stability: stability(r)?, verifier: *r.fixed()? }
        }
        OpKind::Create | OpKind::Mkdir | OpKind::Symlink | OpKind::Mknod => {
            Reply::Created { object: post_handle(r)?, attributes: post(r)?, dir: wcc(r)? }
        }
        OpKind::Remove | OpKind::Rmdir => Reply::Removed { dir: wcc(r)? },
        OpKind::Rename => Reply::Rename { from_dir: wcc(r)?, to_dir: wcc(r)? },
        OpKind::Link => Reply::Link { attributes: post(r)?, dir: wcc(r)? },
        OpKind::Readdir | OpKind::Readdirplus => {
            let (dir, verifier) = (post(r)?, *r.fixed()?);
            let encoded = r.remaining();
            let plus = kind == OpKind::Readdirplus;
            while entry(r, plus)?.is_some() {}
            let bytes = &encoded[..encoded.len() - r.remaining().len()];
            let step = if plus { entry_plus_step } else { entry_step };
            Reply::Listing { dir, verifier, entries: Entries::Encoded { bytes, step }, end: r.bool()? }
        }
        OpKind::Fsstat => Reply::Fsstat {
            attributes: post(r)?,
            stat: Fsstat {
                bytes_total: r.u64()?,
                bytes_free: r.u64()?,
                bytes_available: r.u64()?,
                files_total: r.u64()?,
                files_free: r.u64()?,
                files_available: r.u64()?,
                stable_s: r.u32()?,
            },
        },
        OpKind::Fsinfo => Reply::Fsinfo {
            attributes: post(r)?,
            limits: Fsinfo {
                read_max: r.u32()?,
                read_preferred: r.u32()?,
                read_multiple: r.u32()?,
                write_max: r.u32()?,
                write_preferred: r.u32()?,
                write_multiple: r.u32()?,
                readdir_preferred: r.u32()?,
                file_size_max: r.u64()?,
                time_delta: time(r)?,
                properties: r.u32()?,
            },
        },
        OpKind::Pathconf => Reply::Pathconf {
            attributes: post(r)?,
            limits: Pathconf {
                links_max: r.u32()?,
                name_bytes_max: r.u32()?,
                no_truncation: r.bool()?,
                chown_restricted: r.bool()?,
                case_insensitive: r.bool()?,
                case_preserving: r.bool()?,
            },
        },
        OpKind::Commit => Reply::Commit { file: wcc(r)?, verifier: *r.fixed()? },
    })
}

/// The next entry of a listing, or `None` at its end.
#[inline]
fn entry<'a>(r: &mut XdrReader<'a>, plus: bool) -> Result<Option<DirEntry<'a>>, WireError> {
    if !r.bool()? {
        return Ok(None);
    }
    let (fileid, name, cookie) = (r.u64()?, name(r)?, r.u64()?);
    let (attributes, object) = if plus { (post(r)?, post_handle(r)?) } else { (None, None) };
    Ok(Some(DirEntry { fileid, name, cookie, attributes, object }))
}

fn entry_step(encoded: &[u8]) -> Option<(DirEntry<'_>, &[u8])> {
    let mut reader = XdrReader::new(encoded);
    entry(&mut reader, false).ok().flatten().map(|first| (first, reader.remaining()))
}

fn entry_plus_step(encoded: &[u8]) -> Option<(DirEntry<'_>, &[u8])> {
    let mut reader = XdrReader::new(encoded);
    entry(&mut reader, true).ok().flatten().map(|first| (first, reader.remaining()))
}

#[inline]
fn put_handle(out: &mut Vec<u8>, handle: HandleRef<'_>) {
    put_opaque(out, handle.0);
}

#[inline]
fn handle<'a>(r: &mut XdrReader<'a>) -> Result<HandleRef<'a>, WireError> {
    r.opaque(HANDLE_BYTES_MAX).map(HandleRef)
}

#[inline]
fn name<'a>(r: &mut XdrReader<'a>) -> Result<&'a [u8], WireError> {
    r.opaque(NAME_BYTES_MAX)
}

#[inline]
fn put_place(out: &mut Vec<u8>, dir: HandleRef<'_>, name: &[u8]) {
    put_handle(out, dir);
    put_opaque(out, name);
}

#[inline]
fn put_time(out: &mut Vec<u8>, time: NodeTime) {
    put_u32(out, time.s);
    put_u32(out, time.ns);
}

#[inline]
fn time(r: &mut XdrReader<'_>) -> Result<NodeTime, WireError> {
    Ok(NodeTime { s: r.u32()?, ns: r.u32()? })
}

fn put_set_attributes(out: &mut Vec<u8>, new: &SetAttributes) {
    for number in [new.mode, new.uid, new.gid] {
        put_bool(out, number.is_some());
        number.iter().for_each(|number| put_u32(out, *number));
    }
    put_bool(out, new.size.is_some());
    new.size.iter().for_each(|size| put_u64(out, *size));
    for time in [new.atime, new.mtime] {
        match time {
            SetTime::Keep => put_u32(out, 0),
            SetTime::ServerTime => put_u32(out, 1),
            SetTime::To(time) => {
                put_u32(out, 2);
                put_time(out, time);
            }
        }
    }
}

fn set_attributes(r: &mut XdrReader<'_>) -> Result<SetAttributes, WireError> {
    fn number(r: &mut XdrReader<'_>) -> Result<Option<u32>, WireError> {
        Ok(if r.bool()? { Some(r.u32()?) } else { None })
    }
    fn set_time(r: &mut XdrReader<'_>) -> Result<SetTime, WireError> {
        Ok(match r.u32()? {
            0 => SetTime::Keep,
            1 => SetTime::ServerTime,
            2 => SetTime::To(time(r)?),
            _ => return Err(WireError::Value),
        })
    }
    Ok(SetAttributes {
        mode: number(r)?,
        uid: number(r)?,
        gid: number(r)?,
        size: if r.bool()? { Some(r.u64()?) } else { None },
        atime: set_time(r)?,
        mtime: set_time(r)?,
    })
}

#[inline]
fn stability(r: &mut XdrReader<'_>) -> Result<Stability, WireError> {
    Ok(match r.u32()? {
        0 => Stability::Unstable,
        1 => Stability::DataSync,
        2 => Stability::FileSync,
        _ => return Err(WireError::Value),
    })
}

#[inline]
fn file_kind(number: u32) -> Result<FileKind, WireError> {
    Ok(match number {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::BlockDevice,
        4 => FileKind::CharDevice,
        5 => FileKind::Symlink,
        6 => FileKind::Socket,
        7 => FileKind::Fifo,
        _ => return Err(WireError::Value),
    })
}

/// Appends `fattr3` in one piece: a reply may hold thousands of them.
#[inline]
fn put_attributes(out: &mut Vec<u8>, attributes: &Attributes) {
    let Attributes {
        kind,
        mode,
        links,
        uid,
        gid,
        size,
        used,
        device: (major, minor),
        fsid,
        fileid,
        atime,
        mtime,
        ctime,
    } = *attributes;
    let halves = |number: u64| [(number >> 32) as u32, number as u32];
    let [[size_high, size_low], [used_high, used_low]] = [halves(size), halves(used)];
    let [[fsid_high, fsid_low], [fileid_high, fileid_low]] = [halves(fsid), halves(fileid)];
    let words: [u32; ATTRIBUTES_BYTES / 4] = [
        kind as u32,
        mode,
        links,
        uid,
        gid,
        size_high,
        size_low,
        used_high,
        used_low,
        major,
        minor,
        fsid_high,
        fsid_low,
        fileid_high,
        fileid_low,
        atime.s,
        atime.ns,
        mtime.s,
        mtime.ns,
        ctime.s,
        ctime.ns,
    ];
    out.extend_from_slice(words.map(u32::to_be_bytes).as_flattened());
}

#[inline]
fn attributes(r: &mut XdrReader<'_>) -> Result<Attributes, WireError> {
    // One check of the length for all fields; the reader below then never runs short.
    let mut fields = XdrReader::new(r.fixed::<ATTRIBUTES_BYTES>()?);
    let r = &mut fields;
    Ok(Attributes {
        kind: file_kind(r.u32()?)?,
        mode: r.u32()?,
        links: r.u32()?,
        uid: r.u32()?,
        gid: r.u32()?,
        size: r.u64()?,
        used: r.u64()?,
        device: (r.u32()?, r.u32()?),
        fsid: r.u64()?,
        fileid: r.u64()?,
        atime: time(r)?,
        mtime: time(r)?,
        ctime: time(r)?,
    })
}

/// `post_op_attr`.
#[inline]
fn put_post(out: &mut Vec<u8>, attributes: &Option<Attributes>) {
    put_bool(out, attributes.is_some());
    attributes.iter().for_each(|attributes| put_attributes(out, attributes));
}

#[inline]
fn post(r: &mut XdrReader<'_>) -> Result<Option<Attributes>, WireError> {
    Ok(if r.bool()? { Some(attributes(r)?) } else { None })
}

/// `post_op_fh3`.
#[inline]
fn post_handle<'a>(r: &mut XdrReader<'a>) -> Result<Option<HandleRef<'a>>, WireError> {
    Ok(if r.bool()? { Some(handle(r)?) } else { None })
}

#[inline]
fn put_wcc(out: &mut Vec<u8>, wcc: &Wcc) {
    put_bool(out, wcc.before.is_some());
    if let Some(before) = &wcc.before {
        put_u64(out, before.size);
        put_time(out, before.mtime);
        put_time(out, before.ctime);
    }
    put_post(out, &wcc.after);
}

#[inline]
fn wcc(r: &mut XdrReader<'_>) -> Result<Wcc, WireError> {
    let before = if r.bool()? {
        Some(PreAttributes { size: r.u64()?, mtime: time(r)?, ctime: time(r)? })
    } else {
        None
    };
    Ok(Wcc { before, after: post(r)? })
}
