//! Notices to the kernel about what it caches (`enum fuse_notify_code` of linux/fuse.h): that names or attributes which it believes
//! are no longer right.

use std::io;
use std::os::fd::OwnedFd;

use crate::device::Device;
use crate::protocol::INodeNo;

const INVALIDATE_INODE: i32 = 2;
const INCREMENT_EPOCH: i32 = 8;

/// Sends notices. One about pages waits, uninterruptibly, for requests of the file that are under way, so no thread that serves requests
/// may send it; the others wait for nothing. There is none about a single name, as it waits for requests in its directory: when the
/// daemon is killed meanwhile, both wait for ever.
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

    /// No name that was looked up before is believed any more (Linux 6.16 and later).
    ///
    /// # Errors
    /// `InvalidInput` where the kernel does not have it.
    pub fn increment_epoch(&self) -> io::Result<()> {
        self.device.notify(INCREMENT_EPOCH, [&[], &[]])
    }
}
