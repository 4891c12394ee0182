//! Open files: a cursor on an inode. What one writes, all others see at once; an inode stays while it is open.

use std::path::PathBuf;
use std::sync::Arc;

use files::{Access, FsError, FsOp, OpenFile, Status, SyncScope};

use super::{Opened, failed};
use crate::engine::Cached;
use crate::error::Refusal;
use crate::table::Inode;

/// What one transfer should carry: stream buffers are sized by it. Each write is a record of the journal.
const TRANSFER_BYTES: usize = 64 << 10;

/// What a file was opened for, making it included.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Made,
    Opened(Access),
}

pub(super) struct TreeFile {
    tree: Arc<Opened>,
    inode: Inode,
    how: How,
    cursor: u64,
    path: PathBuf,
    cached: Cached,
}

impl TreeFile {
    /// Takes over a hold on the inode.
    pub(super) fn new(tree: Arc<Opened>, inode: Inode, how: How, path: PathBuf) -> Self {
        Self { tree, inode, how, cursor: 0, path, cached: Cached::default() }
    }

    fn failed(&self, op: FsOp, refusal: impl Into<Refusal>) -> FsError {
        failed(op, self.path.clone(), refusal.into())
    }
}

impl OpenFile for TreeFile {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, FsError> {
        if matches!(self.how, How::Made | How::Opened(Access::Write | Access::Append)) {
            return Err(self.failed(FsOp::Read, Status::IO));
        }
        let read = self.tree.engine.read_file(self.inode, self.cursor, buf, &mut self.cached);
        let read = read.map_err(|refusal| self.failed(FsOp::Read, refusal))?;
        self.cursor += read as u64;
        Ok(read)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, FsError> {
        if self.how == How::Opened(Access::Read) {
            return Err(self.failed(FsOp::Write, Status::IO));
        }
        if bytes.is_empty() {
            return Ok(0);
        }
        let offset = (self.how != How::Opened(Access::Append)).then_some(self.cursor);
        let written = self.tree.engine.write_file(self.inode, offset, bytes);
        let (start, written) = written.map_err(|refusal| self.failed(FsOp::Write, refusal))?;
        self.cursor = start + written as u64;
        Ok(written)
    }

    fn seek_end(&mut self) -> Result<u64, FsError> {
        let size = self.tree.engine.size_of(self.inode);
        self.cursor = size.map_err(|refusal| self.failed(FsOp::Seek, refusal))?;
        Ok(self.cursor)
    }

    fn seek(&mut self, offset_bytes: u64) -> Result<(), FsError> {
        if i64::try_from(offset_bytes).is_err() {
            return Err(self.failed(FsOp::Seek, Status::INVAL));
        }
        self.cursor = offset_bytes;
        Ok(())
    }

    fn block_bytes(&mut self) -> Result<usize, FsError> {
        Ok(TRANSFER_BYTES)
    }

    fn sync(&mut self, _scope: SyncScope) -> Result<(), FsError> {
        self.tree.engine.sync().map_err(|error| self.failed(FsOp::Sync, error))
    }

    fn close(self: Box<Self>) -> Result<(), FsError> {
        Ok(())
    }
}

impl Drop for TreeFile {
    fn drop(&mut self) {
        self.tree.engine.let_go(self.inode);
    }
}
