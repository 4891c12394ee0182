//! Keys of sorted runs: their order is that of their bytes.

use crate::table::Inode;

const NAME: u8 = 0;
const INODE: u8 = 1;
const NAME_BYTES_MAX: usize = 255;
/// Before a name: the kind of key, and the directory.
const BEFORE_NAME: usize = 9;

/// A key, without an allocation.
#[derive(Clone)]
pub(crate) struct Key {
    bytes: [u8; BEFORE_NAME + NAME_BYTES_MAX],
    length: usize,
}

impl Key {
    /// Of a name in a directory. The empty name comes before all others.
    pub(crate) fn of_name(directory: Inode, name: &[u8]) -> Self {
        let mut key = Self::of(NAME, directory);
        key.length += name.len();
        key.bytes[BEFORE_NAME..key.length].copy_from_slice(name);
        key
    }

    pub(crate) fn of_inode(inode: Inode) -> Self {
        Self::of(INODE, inode)
    }

    fn of(kind: u8, inode: Inode) -> Self {
        let mut bytes = [0; BEFORE_NAME + NAME_BYTES_MAX];
        bytes[0] = kind;
        bytes[1..BEFORE_NAME].copy_from_slice(&inode.to_be_bytes());
        Self { bytes, length: BEFORE_NAME }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The directory and the name of a key, if it is that of a name.
    pub(crate) fn as_name(bytes: &[u8]) -> Option<(Inode, &[u8])> {
        let (number, name) = bytes.split_first()?.1.split_first_chunk()?;
        (bytes[0] == NAME).then(|| (Inode::from_be_bytes(*number), name))
    }

    /// The inode of a key, if it is that of one.
    pub(crate) fn as_inode(bytes: &[u8]) -> Option<Inode> {
        let number = bytes.split_first()?.1.try_into().ok()?;
        (bytes[0] == INODE).then(|| Inode::from_be_bytes(number))
    }
}
