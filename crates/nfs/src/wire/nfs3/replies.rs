//! Results of the procedures (RFC 1813, section 3.3): a status, then what the procedure gives.

use files::{DirEntry, Entries, Fsinfo, Fsstat, OpKind, Pathconf, Reply, Status};

use super::super::xdr::{put_bool, put_fixed, put_opaque, put_u32, put_u64};
use super::super::{WireError, XdrReader};
use super::parts::{
    attributes, handle, name, post, post_handle, put_attributes, put_handle, put_post, put_time, put_wcc,
    stability, time, wcc,
};
use super::{ATTRIBUTES_BYTES, PATH_BYTES_MAX};

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
/// sent as they are: the code that lists cuts them to the request's limits ([`entry_bytes`] returns their sizes).
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
