//! Notices to the kernel about what it caches (`enum fuse_notify_code` of linux/fuse.h): that names or attributes which it believes
//! are no longer right.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use crate::device::Device;
use crate::protocol::INodeNo;

const INVALIDATE_INODE: i32 = 2;
const INVALIDATE_ENTRY: i32 = 3;
const INCREMENT_EPOCH: i32 = 8;

/// Sends notices. One about a name waits for requests in its directory that are under way, and one about pages for those of the file,
/// so no thread that serves requests may send them. One about attributes alone waits for nothing.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Device,
}

impl Notifier {
    /// On a connection of which the caller holds another descriptor.
    pub fn new(connection: OwnedFd) -> Self {
        Self { device: Device::new(connection) }
    }

    /// Attributes of an inode are not believed any more, and with `contents` neither is what is kept of its data or entries.
    ///
    /// # Errors
    /// `NotFound` where the kernel does not know the inode.
    pub fn inval_inode(&self, ino: INodeNo, contents: bool) -> io::Result<()> {
        // A negative offset means no pages, and a length of 0 all behind it.
        let (offset, length): (i64, i64) = (if contents { 0 } else { -1 }, 0);
        let fields = [ino.0.to_ne_bytes(), offset.to_ne_bytes(), length.to_ne_bytes()];
        self.device.notify(INVALIDATE_INODE, [fields.as_flattened(), &[]])
    }

    /// A name, there or missing, is not believed any more.
    ///
    /// # Errors
    /// `NotFound` where the kernel does not know the name.
    pub fn inval_entry(&self, parent: INodeNo, name: &OsStr) -> io::Result<()> {
        let bytes = u32::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let head = [&parent.0.to_ne_bytes()[..], &bytes.to_ne_bytes(), &0u32.to_ne_bytes()].concat();
        let name = [name.as_bytes(), &[0]].concat();
        self.device.notify(INVALIDATE_ENTRY, [&head, &name])
    }

    /// No name that was looked up before is believed any more (Linux 6.16 and later).
    ///
    /// # Errors
    /// `InvalidInput` where the kernel does not have it.
    pub fn increment_epoch(&self) -> io::Result<()> {
        self.device.notify(INCREMENT_EPOCH, [&[], &[]])
    }
}
