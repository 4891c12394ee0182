//! Notices to the kernel about what it caches.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;

use crate::device::Device;
use crate::protocol::INodeNo;

const INVALIDATE_INODE: i32 = 2;
const INVALIDATE_ENTRY: i32 = 3;
const INCREMENT_EPOCH: i32 = 8;
/// The name is looked up again, and what is known of its inode stays.
const EXPIRE_ONLY: u32 = 1 << 0;

/// Sends notices. It may wait for programs that hold the inode or directory that a notice is about, so not while a request about the
/// same one is being answered.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Device,
}

impl Notifier {
    pub(crate) fn new(device: Device) -> Self {
        Self { device }
    }

    /// Attributes of an inode, and pages from `offset`, `len` bytes (0: to the end; a negative offset: no pages), are not believed.
    ///
    /// # Errors
    /// `NotFound` where the kernel does not know the inode.
    pub fn inval_inode(&self, ino: INodeNo, offset: i64, len: i64) -> io::Result<()> {
        let fields = [ino.0.to_ne_bytes(), offset.to_ne_bytes(), len.to_ne_bytes()];
        self.device.notify(INVALIDATE_INODE, [fields.as_flattened(), &[]])
    }

    /// A name is not believed, and neither is its inode.
    ///
    /// # Errors
    /// `NotFound` where the kernel does not know the name.
    pub fn inval_entry(&self, parent: INodeNo, name: &OsStr) -> io::Result<()> {
        self.entry(parent, name, 0)
    }

    /// A name is looked up again at its next use.
    ///
    /// # Errors
    /// As [`Self::inval_entry`].
    pub fn expire_entry(&self, parent: INodeNo, name: &OsStr) -> io::Result<()> {
        self.entry(parent, name, EXPIRE_ONLY)
    }

    /// No name that was looked up before is believed (Linux 6.17 and later).
    ///
    /// # Errors
    /// `InvalidInput` where the kernel does not have it.
    pub fn increment_epoch(&self) -> io::Result<()> {
        self.device.notify(INCREMENT_EPOCH, [&[], &[]])
    }

    fn entry(&self, parent: INodeNo, name: &OsStr, flags: u32) -> io::Result<()> {
        let bytes = u32::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let head = [&parent.0.to_ne_bytes()[..], &bytes.to_ne_bytes(), &flags.to_ne_bytes()].concat();
        let name = [name.as_bytes(), &[0]].concat();
        self.device.notify(INVALIDATE_ENTRY, [&head, &name])
    }
}
