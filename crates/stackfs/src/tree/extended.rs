//! Extended attributes and access control lists by node number; Crumb's own are not seen.

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::hidden::by_descriptor;
use super::nodes::Kind;
use super::{Done, Tree};
use crate::managed::OWN_ATTRIBUTES;

const LISTS: &str = "system.posix_acl_";

/// Attributes that only root reads, writes and sees (xattr(7)).
const TRUSTED: &str = "trusted.";

impl Tree {
    /// The value of an extended attribute; into no buffer, its length.
    pub(crate) fn extended(&self, id: u64, name: &[u8], buffer: &mut [u8]) -> Done<usize> {
        if is_own(name) {
            return Err(Errno::NODATA);
        }
        // The kernel asks before a first write: then the file is open, and asking by its descriptor takes a third.
        if let Some(file) = self.opened.any_of(id) {
            // Into an empty buffer rustix gives 0 bytes of any value.
            return if buffer.is_empty() {
                rustix::fs::fgetxattr_query(&file.descriptor, name)
            } else {
                rustix::fs::fgetxattr(&file.descriptor, name, buffer)
            };
        }
        let node = self.handle(id)?;
        if buffer.is_empty() {
            rustix::fs::getxattr_query(by_descriptor(&*node), name)
        } else {
            rustix::fs::getxattr(by_descriptor(&*node), name, buffer)
        }
    }

    /// All names, each ended by a zero byte.
    /// All for root, as trusted ones are nobody else's to see.
    pub(crate) fn extended_names(&self, id: u64, is_root: bool) -> Done<Vec<u8>> {
        let node = self.handle(id)?;
        let mut names = vec![0; NAMES_BYTES_MAX];
        let len = rustix::fs::listxattr(by_descriptor(&*node), &mut names[..])?;
        names.truncate(len);
        let is_seen = |name: &&[u8]| !is_own(name) && (is_root || !name.starts_with(TRUSTED.as_bytes()));
        let seen = names.split_inclusive(|byte| *byte == 0).filter(is_seen);
        Ok(seen.flatten().copied().collect())
    }

    pub(crate) fn set_extended(&self, id: u64, name: &[u8], value: &[u8], flags: XattrFlags) -> Done<()> {
        if is_own(name) {
            return Err(Errno::PERM);
        }
        let node = self.handle(id)?;
        self.identity.with_fsetid(|| rustix::fs::setxattr(by_descriptor(&*node), name, value, flags))?;
        self.lists_follow(id, name)
    }

    pub(crate) fn remove_extended(&self, id: u64, name: &[u8]) -> Done<()> {
        if is_own(name) {
            return Err(Errno::PERM);
        }
        let node = self.handle(id)?;
        self.identity.with_fsetid(|| rustix::fs::removexattr(by_descriptor(&*node), name))?;
        self.lists_follow(id, name)
    }

    /// What inherits from a managed directory inherits from its hidden ones.
    fn lists_follow(&self, id: u64, name: &[u8]) -> Done<()> {
        if !name.starts_with(LISTS.as_bytes()) {
            return Ok(());
        }
        let _passed = self.pass(id);
        match self.now(id)? {
            (_, Some((conversion, _))) => {
                let _paused = conversion.pause();
                let before = super::holders::owner(&conversion.directory)?;
                self.follow_in_conversion(&conversion, before)
            }
            (Kind::Managed(layout), None) => self.follow(&*self.directory(id)?, layout, None),
            _ => Ok(()),
        }
    }
}

fn is_own(name: &[u8]) -> bool {
    name.starts_with(OWN_ATTRIBUTES.as_bytes())
}

/// Linux lists no more than this.
const NAMES_BYTES_MAX: usize = 65_536;
