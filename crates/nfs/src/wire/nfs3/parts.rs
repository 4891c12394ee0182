//! What arguments and results are made of (RFC 1813, section 2.3).

use files::{
    Attributes, FileKind, HandleRef, NodeTime, PreAttributes, SetAttributes, SetTime, Stability, Wcc,
};

use super::super::xdr::{put_bool, put_opaque, put_u32, put_u64};
use super::super::{WireError, XdrReader};
use super::{ATTRIBUTES_BYTES, NAME_BYTES_MAX};

const HANDLE_BYTES_MAX: u32 = files::Handle::BYTES_MAX as u32;

#[inline]
pub(super) fn put_handle(out: &mut Vec<u8>, handle: HandleRef<'_>) {
    put_opaque(out, handle.0);
}

#[inline]
pub(super) fn handle<'a>(r: &mut XdrReader<'a>) -> Result<HandleRef<'a>, WireError> {
    r.opaque(HANDLE_BYTES_MAX).map(HandleRef)
}

#[inline]
pub(super) fn name<'a>(r: &mut XdrReader<'a>) -> Result<&'a [u8], WireError> {
    r.opaque(NAME_BYTES_MAX)
}

#[inline]
pub(super) fn put_place(out: &mut Vec<u8>, dir: HandleRef<'_>, name: &[u8]) {
    put_handle(out, dir);
    put_opaque(out, name);
}

#[inline]
pub(super) fn put_time(out: &mut Vec<u8>, time: NodeTime) {
    put_u32(out, time.s);
    put_u32(out, time.ns);
}

#[inline]
pub(super) fn time(r: &mut XdrReader<'_>) -> Result<NodeTime, WireError> {
    Ok(NodeTime { s: r.u32()?, ns: r.u32()? })
}

pub(super) fn put_set_attributes(out: &mut Vec<u8>, new: &SetAttributes) {
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

pub(super) fn set_attributes(r: &mut XdrReader<'_>) -> Result<SetAttributes, WireError> {
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
pub(super) fn stability(r: &mut XdrReader<'_>) -> Result<Stability, WireError> {
    Ok(match r.u32()? {
        0 => Stability::Unstable,
        1 => Stability::DataSync,
        2 => Stability::FileSync,
        _ => return Err(WireError::Value),
    })
}

#[inline]
pub(super) fn file_kind(number: u32) -> Result<FileKind, WireError> {
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
pub(super) fn put_attributes(out: &mut Vec<u8>, attributes: &Attributes) {
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
pub(super) fn attributes(r: &mut XdrReader<'_>) -> Result<Attributes, WireError> {
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
pub(super) fn put_post(out: &mut Vec<u8>, attributes: &Option<Attributes>) {
    put_bool(out, attributes.is_some());
    attributes.iter().for_each(|attributes| put_attributes(out, attributes));
}

#[inline]
pub(super) fn post(r: &mut XdrReader<'_>) -> Result<Option<Attributes>, WireError> {
    Ok(if r.bool()? { Some(attributes(r)?) } else { None })
}

/// `post_op_fh3`.
#[inline]
pub(super) fn post_handle<'a>(r: &mut XdrReader<'a>) -> Result<Option<HandleRef<'a>>, WireError> {
    Ok(if r.bool()? { Some(handle(r)?) } else { None })
}

#[inline]
pub(super) fn put_wcc(out: &mut Vec<u8>, wcc: &Wcc) {
    put_bool(out, wcc.before.is_some());
    if let Some(before) = &wcc.before {
        put_u64(out, before.size);
        put_time(out, before.mtime);
        put_time(out, before.ctime);
    }
    put_post(out, &wcc.after);
}

#[inline]
pub(super) fn wcc(r: &mut XdrReader<'_>) -> Result<Wcc, WireError> {
    let before = if r.bool()? {
        Some(PreAttributes { size: r.u64()?, mtime: time(r)?, ctime: time(r)? })
    } else {
        None
    };
    Ok(Wcc { before, after: post(r)? })
}
