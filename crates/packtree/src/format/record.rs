//! One change of the tree: each record is one, whole or not at all.

use super::fields::{Reader, put_name, put_u16, put_u32, put_u64};

/// A change. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A new file, directory or symbolic link with its first name.
    Make { time: u64, directory: u64, name: Box<[u8]>, inode: u64, mode: u16, kind: NodeKind },
    /// One more name of a file.
    Link { time: u64, directory: u64, name: Box<[u8]>, inode: u64 },
    /// A name goes: of a file, a link or an empty directory.
    Unlink { time: u64, directory: u64, name: Box<[u8]> },
    /// A name moves; what had the new one loses it.
    Rename { time: u64, from: u64, old: Box<[u8]>, to: u64, new: Box<[u8]> },
    /// From `offset` on a file consists of these pieces; pieces that lay there are gone.
    Write { time: u64, inode: u64, offset: u64, pieces: Vec<Piece> },
    /// All records up to this one, and the contents that they name, were durable when this was written.
    Mark { durable: u64 },
}

/// What an inode is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    File,
    Directory,
    /// With its text.
    Symlink(Box<[u8]>),
}

/// Bytes of a file, together and with one checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub block: u64,
    pub bytes: u32,
    pub crc: u32,
}

impl Record {
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Make { .. } => 1,
            Self::Link { .. } => 2,
            Self::Unlink { .. } => 3,
            Self::Rename { .. } => 4,
            Self::Write { .. } => 5,
            Self::Mark { .. } => 6,
        }
    }

    pub(super) fn put_fields(&self, into: &mut Vec<u8>) {
        match self {
            Self::Make { time, directory, name, inode, mode, kind } => {
                [*time, *directory, *inode].iter().for_each(|number| put_u64(into, *number));
                put_u16(into, *mode);
                put_name(into, name);
                match kind {
                    NodeKind::File => into.push(0),
                    NodeKind::Directory => into.push(1),
                    NodeKind::Symlink(text) => {
                        into.push(2);
                        put_u16(into, u16::try_from(text.len()).expect("texts are at most 4095 bytes"));
                        into.extend_from_slice(text);
                    }
                }
            }
            Self::Link { time, directory, name, inode } => {
                [*time, *directory, *inode].iter().for_each(|number| put_u64(into, *number));
                put_name(into, name);
            }
            Self::Unlink { time, directory, name } => {
                [*time, *directory].iter().for_each(|number| put_u64(into, *number));
                put_name(into, name);
            }
            Self::Rename { time, from, old, to, new } => {
                [*time, *from, *to].iter().for_each(|number| put_u64(into, *number));
                put_name(into, old);
                put_name(into, new);
            }
            Self::Write { time, inode, offset, pieces } => {
                [*time, *inode, *offset].iter().for_each(|number| put_u64(into, *number));
                put_u16(into, u16::try_from(pieces.len()).expect("a write has few pieces"));
                for piece in pieces {
                    put_u64(into, piece.block);
                    put_u32(into, piece.bytes);
                    put_u32(into, piece.crc);
                }
            }
            Self::Mark { durable } => put_u64(into, *durable),
        }
    }

    pub(super) fn take_fields(kind: u8, from: &mut Reader<'_>) -> Option<Self> {
        Some(match kind {
            1 => {
                let [time, directory, inode] = numbers(from)?;
                let mode = from.u16()?;
                let name = from.name()?;
                let kind = match from.u8()? {
                    0 => NodeKind::File,
                    1 => NodeKind::Directory,
                    2 => {
                        let length = from.u16()?;
                        NodeKind::Symlink(from.bytes(length.into())?.into())
                    }
                    _ => return None,
                };
                Self::Make { time, directory, name, inode, mode, kind }
            }
            2 => {
                let [time, directory, inode] = numbers(from)?;
                Self::Link { time, directory, name: from.name()?, inode }
            }
            3 => {
                let [time, directory] = numbers(from)?;
                Self::Unlink { time, directory, name: from.name()? }
            }
            4 => {
                let [time, old_directory, to] = numbers(from)?;
                Self::Rename { time, from: old_directory, old: from.name()?, to, new: from.name()? }
            }
            5 => {
                let [time, inode, offset] = numbers(from)?;
                let count = from.u16()?;
                let piece = |from: &mut Reader<'_>| {
                    Some(Piece { block: from.u64()?, bytes: from.u32()?, crc: from.u32()? })
                };
                let pieces = (0..count).map(|_| piece(from)).collect::<Option<_>>()?;
                Self::Write { time, inode, offset, pieces }
            }
            6 => Self::Mark { durable: from.u64()? },
            _ => return None,
        })
    }
}

fn numbers<const N: usize>(from: &mut Reader<'_>) -> Option<[u64; N]> {
    let mut taken = [0; N];
    for number in &mut taken {
        *number = from.u64()?;
    }
    Some(taken)
}
