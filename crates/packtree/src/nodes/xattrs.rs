//! Extended attributes: names with values of up to 4,096 bytes, 64 KiB for one inode.

use files::Status;

use super::{NodeError, TreeNodes};
use crate::error::Refusal;
use crate::format::Record;
use crate::table::Inode;
use crate::time::now;

const NAME_BYTES_MAX: usize = 255;
const VALUE_BYTES_MAX: usize = 4096;
/// Of all names and values of an inode.
const BYTES_MAX: usize = 64 << 10;

/// What to do when an attribute is there, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrHow {
    /// It is set.
    Set,
    /// One that is there is refused: `EXIST`.
    Create,
    /// One that is not there is refused.
    Replace,
}

impl TreeNodes {
    /// A value.
    ///
    /// # Errors
    /// [`NodeError::NoXattr`]; `STALE` when the inode is gone.
    pub fn xattr(&self, inode: u64, name: &[u8]) -> Result<Box<[u8]>, NodeError> {
        let node = self.done(self.node(inode))?;
        node.xattr(name).map(Into::into).ok_or(NodeError::NoXattr)
    }

    /// Names of all extended attributes, in the order of their bytes.
    ///
    /// # Errors
    /// `STALE` when the inode is gone.
    pub fn xattrs(&self, inode: u64) -> Result<Vec<Box<[u8]>>, NodeError> {
        let node = self.done(self.node(inode))?;
        Ok(node.xattrs.iter().map(|(name, _)| name.clone()).collect())
    }

    /// Sets a value.
    ///
    /// # Errors
    /// [`NodeError::XattrTooLong`], [`NodeError::NoXattr`], `EXIST`, `INVAL` for the name.
    pub fn set_xattr(&self, inode: u64, name: &[u8], value: &[u8], how: XattrHow) -> Result<(), NodeError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(&0) {
            return Err(NodeError::Status(Status::INVAL));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(NodeError::XattrTooLong);
        }
        self.change_xattr(inode, name, Some(value), how)
    }

    /// Removes a value.
    ///
    /// # Errors
    /// [`NodeError::NoXattr`]; `STALE` when the inode is gone.
    pub fn remove_xattr(&self, inode: u64, name: &[u8]) -> Result<(), NodeError> {
        self.change_xattr(inode, name, None, XattrHow::Replace)
    }

    fn change_xattr(
        &self,
        inode: Inode,
        name: &[u8],
        value: Option<&[u8]>,
        how: XattrHow,
    ) -> Result<(), NodeError> {
        let record = Record::Xattr { time: now(), inode, name: name.into(), value: value.map(Into::into) };
        let mut wrong = None;
        let changed = self.engine().change(|state| {
            let node = state.table.node(inode)?.ok_or(Status::STALE)?;
            let others = node.xattrs.iter().filter(|(other, _)| **other != *name);
            let bytes: usize = others.map(|(name, value)| name.len() + value.len()).sum();
            wrong = match (how, node.xattr(name)) {
                (XattrHow::Create, Some(_)) => Some(NodeError::Status(Status::EXIST)),
                (XattrHow::Replace, None) => Some(NodeError::NoXattr),
                _ if bytes + name.len() + value.map_or(0, <[u8]>::len) > BYTES_MAX => {
                    Some(NodeError::XattrTooLong)
                }
                _ => None,
            };
            match wrong {
                Some(_) => Err(Refusal::Status(Status::INVAL)),
                None => state.commit_to(inode, &record),
            }
        });
        match wrong {
            Some(wrong) => Err(wrong),
            None => self.done(changed),
        }
    }
}
