//! Open files: all that is open of one file shares its bytes, so that what one writes the others see at once.
//!
//! ```text
//! PackFile (cursor) --+-- Opened --+-- base: the object as it was found, read from the store
//! PackFile (cursor) --'            `-- content: its bytes once something is written, put again at sync and close
//! ```
//!
//! Objects are immutable: an append of ten bytes to a file of a megabyte reads the megabyte and, at close, writes it.
//!
//! Always holds: what is open stays readable when its names are gone; a file that was written and dropped is put.
//! Locks, in order: state of the open file, names' stripes, tree.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use files::{Access, FsError, FsOp, OpenFile, Status, SyncScope};
use packstore::{Object, StoreError};

use super::content::Content;
use super::locked;
use super::shared::Shared;
use super::tree::NodeId;

/// Longest file: what a large object can be.
const FILE_BYTES_MAX: u64 = 16 << 30;
/// What is read of a large object at a time.
const WINDOW_BYTES: usize = 256 << 10;

pub(super) struct Opened {
    pub node: NodeId,
    pub state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub base: Option<Arc<Object>>,
    pub content: Option<Content>,
    pub dirty: bool,
}

impl State {
    pub(super) fn length(&self) -> u64 {
        match (&self.content, &self.base) {
            (Some(content), _) => content.length(),
            (None, Some(base)) => base.length(),
            (None, None) => 0,
        }
    }
}

/// What a file was opened for, making it included.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Made,
    Opened(Access),
}

pub(super) struct PackFile {
    pub shared: Arc<Shared>,
    /// `None` once it is closed.
    pub opened: Option<Arc<Opened>>,
    pub how: How,
    pub cursor: u64,
    pub path: PathBuf,
    pub window: Option<Window>,
}

/// A stretch of a large object.
pub(super) struct Window {
    object: Arc<Object>,
    start: u64,
    bytes: Vec<u8>,
}

impl PackFile {
    fn failed(&self, op: FsOp, status: Status) -> FsError {
        FsError::refused_here(op, self.path.clone(), status)
    }

    fn store_failed(&self, op: FsOp, error: StoreError) -> FsError {
        super::failed(op, self.path.clone(), error)
    }

    fn opened(&self) -> Arc<Opened> {
        self.opened.clone().expect("there until it is closed")
    }

    fn read_object(&mut self, object: Arc<Object>, buf: &mut [u8]) -> Result<usize, StoreError> {
        if object.whole().is_some() || buf.len() >= WINDOW_BYTES {
            return object.read_range(self.cursor, buf);
        }
        let at = self.cursor;
        let fits = |window: &&Window| {
            Arc::ptr_eq(&window.object, &object)
                && (window.start..window.start + window.bytes.len() as u64).contains(&at)
        };
        let window = match self.window.take().filter(|window| fits(&window)) {
            Some(window) => window,
            None => {
                let mut bytes = vec![0; WINDOW_BYTES];
                let read = object.read_range(at, &mut bytes)?;
                bytes.truncate(read);
                Window { object, start: at, bytes }
            }
        };
        let from = &window.bytes[(at - window.start) as usize..];
        let length = from.len().min(buf.len());
        buf[..length].copy_from_slice(&from[..length]);
        self.window = Some(window);
        Ok(length)
    }

    fn end(&mut self) -> Result<(), StoreError> {
        let Some(opened) = self.opened.take() else { return Ok(()) };
        self.window = None;
        let mut committed = Ok(());
        if self.how != How::Opened(Access::Read) {
            committed = self.shared.commit(&opened, &mut locked(&opened.state));
            if committed.is_err() && Arc::strong_count(&opened) == 1 {
                self.shared.revert(&opened);
            }
        }
        self.shared.closed(opened);
        committed
    }
}

impl Drop for PackFile {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(path = %self.path.display(), %error, "a file was dropped and could not be put");
        }
    }
}

impl OpenFile for PackFile {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, FsError> {
        if matches!(self.how, How::Made | How::Opened(Access::Write | Access::Append)) {
            return Err(self.failed(FsOp::Read, Status::IO));
        }
        if buf.is_empty() {
            return Ok(0);
        }
        let opened = self.opened();
        let state = locked(&opened.state);
        let read = match (&state.content, state.base.clone()) {
            (Some(content), _) => content.read_at(self.cursor, buf),
            (None, Some(object)) => {
                drop(state);
                self.read_object(object, buf)
            }
            (None, None) => Ok(0),
        };
        let read = read.map_err(|error| self.store_failed(FsOp::Read, error))?;
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
        let opened = self.opened();
        let mut state = locked(&opened.state);
        if self.how == How::Opened(Access::Append) {
            self.cursor = state.length();
        }
        if self.cursor + bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(self.failed(FsOp::Write, Status::FBIG));
        }
        let disk = self.shared.scratch_disk();
        let written = (|| {
            if state.content.is_none() {
                let content = match &state.base {
                    Some(object) => Content::of(object, disk)?,
                    None => Content::empty(),
                };
                (state.content, state.base) = (Some(content), None);
            }
            let content = state.content.as_mut().expect("made above");
            content.write_at(self.cursor, bytes, disk)?;
            Ok(content.length())
        })();
        let length = written.map_err(|error| self.store_failed(FsOp::Write, error))?;
        state.dirty = true;
        self.shared.grown(opened.node, length);
        self.cursor += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn seek_end(&mut self) -> Result<u64, FsError> {
        let opened = self.opened();
        self.cursor = locked(&opened.state).length();
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
        Ok(super::BLOCK_BYTES)
    }

    fn sync(&mut self, _scope: SyncScope) -> Result<(), FsError> {
        let opened = self.opened();
        let committed = self.shared.commit(&opened, &mut locked(&opened.state));
        committed.and_then(|()| self.shared.flush()).map_err(|error| self.store_failed(FsOp::Sync, error))
    }

    fn close(mut self: Box<Self>) -> Result<(), FsError> {
        self.end().map_err(|error| self.store_failed(FsOp::Close, error))
    }
}
