//! One change of the tree: each record is one, whole or not at all.

use super::fields::{Reader, put_name, put_u16, put_u32, put_u64};

/// A change. Times are nanoseconds since 1970, negative before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A new inode with its first name. Its three times are that of the change.
    Make { time: i64, directory: u64, name: Box<[u8]>, inode: u64, mode: u16, owner: Owner, kind: NodeKind },
    /// One more name of a file.
    Link { time: i64, directory: u64, name: Box<[u8]>, inode: u64 },
    /// A name goes: of a file, a link or an empty directory.
    Unlink { time: i64, directory: u64, name: Box<[u8]> },
    /// A name moves; what had the new one loses it.
    Rename { time: i64, from: u64, old: Box<[u8]>, to: u64, new: Box<[u8]> },
    /// Two names change places.
    Exchange { time: i64, from: u64, old: Box<[u8]>, to: u64, new: Box<[u8]> },
    /// From `offset` on a file consists of these pieces; pieces that were there are gone.
    Write { time: i64, inode: u64, offset: u64, pieces: Vec<Piece> },
    /// A file's bytes from `start` to `end` become a hole, but for these pieces at their offsets; then it has `size` bytes.
    Reshape { time: i64, inode: u64, start: u64, end: u64, size: u64, pieces: Vec<(u64, Piece)> },
    /// Attributes change; the time of the change (ctime) is `time`.
    Set { time: i64, inode: u64, change: Change },
    /// An extended attribute gets a value, or goes.
    Xattr { time: i64, inode: u64, name: Box<[u8]>, value: Option<Box<[u8]>> },
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

/// User and group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// Attributes to be set; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub atime: Option<i64>,
    pub mtime: Option<i64>,
}

/// Bytes of a file, together and with one checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub block: u64,
    pub bytes: u32,
    pub crc: u32,
}

/// Bits of `Change` that are there, in the order of its fields.
const MODE: u8 = 1;
const UID: u8 = 2;
const GID: u8 = 4;
const ATIME: u8 = 8;
const MTIME: u8 = 16;

impl Record {
    /// Kind 1 is version 1's `Make`, which has no owner.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Link { .. } => 2,
            Self::Unlink { .. } => 3,
            Self::Rename { .. } => 4,
            Self::Write { .. } => 5,
            Self::Mark { .. } => 6,
            Self::Make { .. } => 7,
            Self::Set { .. } => 8,
            Self::Reshape { .. } => 9,
            Self::Xattr { .. } => 10,
            Self::Exchange { .. } => 11,
        }
    }

    pub(super) fn put_fields(&self, into: &mut Vec<u8>) {
        match self {
            Self::Make { time, directory, name, inode, mode, owner, kind } => {
                [*time as u64, *directory, *inode].iter().for_each(|number| put_u64(into, *number));
                put_u16(into, *mode);
                put_u32(into, owner.uid);
                put_u32(into, owner.gid);
                put_name(into, name);
                kind.put(into);
            }
            Self::Link { time, directory, name, inode } => {
                [*time as u64, *directory, *inode].iter().for_each(|number| put_u64(into, *number));
                put_name(into, name);
            }
            Self::Unlink { time, directory, name } => {
                [*time as u64, *directory].iter().for_each(|number| put_u64(into, *number));
                put_name(into, name);
            }
            Self::Rename { time, from, old, to, new } | Self::Exchange { time, from, old, to, new } => {
                [*time as u64, *from, *to].iter().for_each(|number| put_u64(into, *number));
                put_name(into, old);
                put_name(into, new);
            }
            Self::Write { time, inode, offset, pieces } => {
                [*time as u64, *inode, *offset].iter().for_each(|number| put_u64(into, *number));
                put_u16(into, u16::try_from(pieces.len()).expect("a write has few pieces"));
                pieces.iter().for_each(|piece| piece.put(into));
            }
            Self::Reshape { time, inode, start, end, size, pieces } => {
                let numbers = [*time as u64, *inode, *start, *end, *size];
                numbers.iter().for_each(|number| put_u64(into, *number));
                put_u16(into, u16::try_from(pieces.len()).expect("the ends of a hole are few pieces"));
                for (offset, piece) in pieces {
                    put_u64(into, *offset);
                    piece.put(into);
                }
            }
            Self::Set { time, inode, change } => {
                [*time as u64, *inode].iter().for_each(|number| put_u64(into, *number));
                change.put(into);
            }
            Self::Xattr { time, inode, name, value } => {
                [*time as u64, *inode].iter().for_each(|number| put_u64(into, *number));
                put_name(into, name);
                into.push(value.is_some().into());
                if let Some(value) = value {
                    put_text(into, value);
                }
            }
            Self::Mark { durable } => put_u64(into, *durable),
        }
    }

    pub(super) fn take_fields(kind: u8, from: &mut Reader<'_>) -> Option<Self> {
        Some(match kind {
            1 | 7 => {
                let [time, directory, inode] = numbers(from)?;
                let mode = from.u16()?;
                let owner = match kind {
                    1 => Owner::default(),
                    _ => Owner { uid: from.u32()?, gid: from.u32()? },
                };
                let name = from.name()?;
                let kind = NodeKind::take(from)?;
                Self::Make { time: time as i64, directory, name, inode, mode, owner, kind }
            }
            2 => {
                let [time, directory, inode] = numbers(from)?;
                Self::Link { time: time as i64, directory, name: from.name()?, inode }
            }
            3 => {
                let [time, directory] = numbers(from)?;
                Self::Unlink { time: time as i64, directory, name: from.name()? }
            }
            4 | 11 => {
                let [time, from_directory, to] = numbers(from)?;
                let (time, old, new) = (time as i64, from.name()?, from.name()?);
                match kind {
                    4 => Self::Rename { time, from: from_directory, old, to, new },
                    _ => Self::Exchange { time, from: from_directory, old, to, new },
                }
            }
            5 => {
                let [time, inode, offset] = numbers(from)?;
                let count = from.u16()?;
                let pieces = (0..count).map(|_| Piece::take(from)).collect::<Option<_>>()?;
                Self::Write { time: time as i64, inode, offset, pieces }
            }
            6 => Self::Mark { durable: from.u64()? },
            8 => {
                let [time, inode] = numbers(from)?;
                Self::Set { time: time as i64, inode, change: Change::take(from)? }
            }
            9 => {
                let [time, inode, start, end, size] = numbers(from)?;
                let count = from.u16()?;
                let piece = |from: &mut Reader<'_>| Some((from.u64()?, Piece::take(from)?));
                let pieces = (0..count).map(|_| piece(from)).collect::<Option<_>>()?;
                Self::Reshape { time: time as i64, inode, start, end, size, pieces }
            }
            10 => {
                let [time, inode] = numbers(from)?;
                let name = from.name()?;
                let value = match from.u8()? {
                    0 => None,
                    _ => Some(take_text(from)?),
                };
                Self::Xattr { time: time as i64, inode, name, value }
            }
            _ => return None,
        })
    }

    /// The pieces that it names.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        let (run, apart) = match self {
            Self::Write { pieces, .. } => (&pieces[..], &[][..]),
            Self::Reshape { pieces, .. } => (&[][..], &pieces[..]),
            _ => (&[][..], &[][..]),
        };
        run.iter().chain(apart.iter().map(|(_, piece)| piece))
    }
}

impl NodeKind {
    fn put(&self, into: &mut Vec<u8>) {
        match self {
            Self::File => into.push(0),
            Self::Directory => into.push(1),
            Self::Symlink(text) => {
                into.push(2);
                put_text(into, text);
            }
            Self::CharDevice { major, minor } => put_device(into, 3, *major, *minor),
            Self::BlockDevice { major, minor } => put_device(into, 4, *major, *minor),
            Self::Fifo => into.push(5),
            Self::Socket => into.push(6),
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Some(match from.u8()? {
            0 => Self::File,
            1 => Self::Directory,
            2 => Self::Symlink(take_text(from)?),
            3 => Self::CharDevice { major: from.u32()?, minor: from.u32()? },
            4 => Self::BlockDevice { major: from.u32()?, minor: from.u32()? },
            5 => Self::Fifo,
            6 => Self::Socket,
            _ => return None,
        })
    }
}

impl Piece {
    fn put(&self, into: &mut Vec<u8>) {
        put_u64(into, self.block);
        put_u32(into, self.bytes);
        put_u32(into, self.crc);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self { block: from.u64()?, bytes: from.u32()?, crc: from.u32()? })
    }
}

impl Change {
    fn put(&self, into: &mut Vec<u8>) {
        let Self { mode, uid, gid, atime, mtime } = self;
        let there = [
            (mode.is_some(), MODE),
            (uid.is_some(), UID),
            (gid.is_some(), GID),
            (atime.is_some(), ATIME),
            (mtime.is_some(), MTIME),
        ];
        into.push(there.iter().filter(|(is_there, _)| *is_there).map(|(_, bit)| bit).sum());
        mode.iter().for_each(|mode| put_u16(into, *mode));
        uid.iter().chain(gid).for_each(|number| put_u32(into, *number));
        atime.iter().chain(mtime).for_each(|time| put_u64(into, *time as u64));
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let there = from.u8()?;
        let mut change = Self::default();
        if there & MODE != 0 {
            change.mode = Some(from.u16()?);
        }
        if there & UID != 0 {
            change.uid = Some(from.u32()?);
        }
        if there & GID != 0 {
            change.gid = Some(from.u32()?);
        }
        if there & ATIME != 0 {
            change.atime = Some(from.u64()? as i64);
        }
        if there & MTIME != 0 {
            change.mtime = Some(from.u64()? as i64);
        }
        Some(change)
    }
}

fn put_text(into: &mut Vec<u8>, text: &[u8]) {
    put_u16(into, u16::try_from(text.len()).expect("texts and values are at most 4096 bytes"));
    into.extend_from_slice(text);
}

fn take_text(from: &mut Reader<'_>) -> Option<Box<[u8]>> {
    let length = from.u16()?;
    from.bytes(length.into()).map(Into::into)
}

fn put_device(into: &mut Vec<u8>, kind: u8, major: u32, minor: u32) {
    into.push(kind);
    put_u32(into, major);
    put_u32(into, minor);
}

fn numbers<const N: usize>(from: &mut Reader<'_>) -> Option<[u64; N]> {
    let mut taken = [0; N];
    for number in &mut taken {
        *number = from.u64()?;
    }
    Some(taken)
}
