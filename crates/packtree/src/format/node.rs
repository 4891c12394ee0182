//! The values of sorted runs: an inode with all its attributes and pieces, and what a name leads to.
//!
//! ```text
//! inode: | kind u8 | mode u16 | uid, gid u32 | atime, mtime, ctime i64 | links | extended attributes | body |
//! name:  | inode | kind u8 |                        numbers without a width are of seven bits a byte
//! ```
//!
//! Not here: the keys, and where the values are stored (`names`).

use super::fields::{Reader, put_name, put_u16, put_u32, put_u64, put_varint};
use super::{Owner, Piece};
use crate::table::{Body, Content, Directory, Extent, Extents, Kind, Node, Special};

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub inode: u64,
    pub kind: Kind,
}

impl Named {
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        put_varint(into, self.inode);
        into.push(self.kind as u8);
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        Some(Self { inode: from.varint()?, kind: Kind::of(from.u8()?)? })
    }
}

pub(crate) fn encode_node(node: &Node, into: &mut Vec<u8>) {
    into.push(node.kind() as u8);
    put_u16(into, node.mode);
    put_u32(into, node.owner.uid);
    put_u32(into, node.owner.gid);
    [node.atime, node.mtime, node.ctime].iter().for_each(|time| put_u64(into, *time as u64));
    put_varint(into, node.links.into());
    put_varint(into, node.xattrs.len() as u64);
    for (name, value) in &node.xattrs {
        put_name(into, name);
        put_text(into, value);
    }
    match &node.body {
        Body::File(content) => {
            put_varint(into, content.size);
            put_varint(into, content.extents.all().len() as u64);
            let mut end = 0;
            for Extent { offset, piece } in content.extents.all() {
                put_varint(into, offset - end);
                put_varint(into, piece.block);
                put_varint(into, piece.bytes.into());
                put_u32(into, piece.crc);
                end = offset + u64::from(piece.bytes);
            }
        }
        Body::Directory(directory) => {
            put_varint(into, directory.parent);
            put_text(into, &directory.name);
            put_varint(into, directory.names);
            put_varint(into, directory.subdirectories.into());
        }
        Body::Symlink(text) => put_text(into, text),
        Body::Special(Special { major, minor, .. }) => {
            put_varint(into, (*major).into());
            put_varint(into, (*minor).into());
        }
    }
}

pub(crate) fn decode_node(bytes: &[u8]) -> Option<Node> {
    let mut from = Reader::new(bytes);
    let kind = Kind::of(from.u8()?)?;
    let mode = from.u16()?;
    let owner = Owner { uid: from.u32()?, gid: from.u32()? };
    let [atime, mtime, ctime] = [from.u64()? as i64, from.u64()? as i64, from.u64()? as i64];
    let links = number(&mut from)?;
    let count = from.varint()?;
    let xattrs = (0..count).map(|_| Some((from.name()?, text(&mut from)?))).collect::<Option<_>>()?;
    let body = match kind {
        Kind::File => {
            let size = from.varint()?;
            let count = from.varint()?;
            let mut end: u64 = 0;
            let mut extent = || {
                let offset = end.checked_add(from.varint()?)?;
                let (block, bytes) = (from.varint()?, number(&mut from)?);
                let crc = from.u32()?;
                end = offset.checked_add(bytes.into())?;
                Some(Extent { offset, piece: Piece { block, bytes, crc } })
            };
            let extents = (0..count).map(|_| extent()).collect::<Option<Vec<_>>>()?;
            Body::File(Content { size, extents: Extents::from(extents) })
        }
        Kind::Directory => {
            let (parent, name) = (from.varint()?, text(&mut from)?);
            let (names, subdirectories) = (from.varint()?, number(&mut from)?);
            Body::Directory(Box::new(Directory { parent, name, names, subdirectories }))
        }
        Kind::Symlink => Body::Symlink(text(&mut from)?),
        Kind::CharDevice | Kind::BlockDevice | Kind::Fifo | Kind::Socket => {
            Body::Special(Special { kind, major: number(&mut from)?, minor: number(&mut from)? })
        }
    };
    Some(Node { mode, owner, atime, mtime, ctime, links, xattrs, body })
}

fn number(from: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(from.varint()?).ok()
}

fn put_text(into: &mut Vec<u8>, text: &[u8]) {
    put_varint(into, text.len() as u64);
    into.extend_from_slice(text);
}

fn text(from: &mut Reader<'_>) -> Option<Box<[u8]>> {
    let length = usize::try_from(from.varint()?).ok()?;
    from.bytes(length).map(Into::into)
}
