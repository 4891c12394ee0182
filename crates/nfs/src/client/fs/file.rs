//! An open file: a cursor, a read-ahead of one READ, and the writes under way.

use std::path::PathBuf;

use files::{
    Access, Attributes, FileKind, FsError, FsOp, Handle, OpenFile, Reply, Request, Status, SyncScope,
};
use rustix::io::Errno;

use super::NfsFs;
use super::calls::Fail;
use super::counters::add;
use super::walk::{Last, Trust, split};
use super::write_back::WriteBack;

/// Bytes that one READ asks for at least, where the mount permits: what a kernel client reads ahead of a small file.
pub(super) const AHEAD_BYTES: usize = 64 << 10;
/// The same after a jump in the file, where nothing says that more will be read: a page.
pub(super) const PAGE_BYTES: usize = 4 << 10;

pub(super) struct NfsFile {
    pub fs: NfsFs,
    pub path: PathBuf,
    pub handle: Handle,
    pub kind: FileKind,
    pub access: Access,
    /// The directory in which the handle was remembered, until the server answered to the handle.
    pub remembered_in: Option<Handle>,
    pub cursor: u64,
    pub ahead: Ahead,
    /// The cursor was set elsewhere than where the last READ ended.
    pub jumped: bool,
    pub back: WriteBack,
    pub closed: bool,
}

/// What a READ brought beyond what was asked for.
#[derive(Default)]
pub(super) struct Ahead {
    bytes: Vec<u8>,
    /// How many of them were handed out; the cursor stands behind these.
    used: usize,
    /// The file ended behind them when they were read. Good for one answer: by the next the file may have grown.
    end: bool,
}

impl Ahead {
    fn drop_all(&mut self) {
        self.bytes.clear();
        self.used = 0;
        self.end = false;
    }

    fn hand_out(&mut self, buf: &mut [u8]) -> usize {
        let rest = &self.bytes[self.used..];
        let bytes = rest.len().min(buf.len());
        buf[..bytes].copy_from_slice(&rest[..bytes]);
        self.used += bytes;
        bytes
    }
}

impl NfsFile {
    fn failed(&self, op: FsOp) -> impl FnOnce(Fail) -> FsError {
        let path = self.fs.named(&self.path);
        move |fail| fail.into_error(op, path)
    }

    /// Calls with the handle; once more with a fresh one when it was only remembered and turns out stale.
    fn with_handle<T>(
        &mut self,
        mut call: impl FnMut(&NfsFs, &Handle, &mut WriteBack) -> Result<T, Fail>,
    ) -> Result<T, Fail> {
        let outcome = call(&self.fs, &self.handle, &mut self.back);
        let Some(dir) = self.remembered_in.take() else { return outcome };
        match outcome {
            Err(fail) if fail.is_stale() && self.still_named(&dir) => {
                add(&self.fs.shared.calls.tally.stale_walks, 1);
                match self.fs.walk(&self.path, Last::Follow, Trust::Fresh) {
                    Ok(found) if found.kind == self.kind => {
                        self.handle = found.handle;
                        call(&self.fs, &self.handle, &mut self.back)
                    }
                    _ => Err(fail),
                }
            }
            outcome => outcome,
        }
    }

    /// Whether our own calls left the file its name: a file that we unlinked must not become another one.
    fn still_named(&self, dir: &Handle) -> bool {
        let Some(cache) = &self.fs.shared.cache else { return false };
        matches!(split(&self.path), Ok(Some((_, name))) if cache.is_name_of(dir, name, &self.handle))
    }

    fn send_held(&mut self) -> Result<(), Fail> {
        self.back.check()?;
        if self.back.held_bytes() == 0 {
            return Ok(());
        }
        let sent = self.with_handle(|fs, file, back| back.send(fs, file));
        self.or_spoil(sent)
    }

    fn or_spoil(&mut self, outcome: Result<(), Fail>) -> Result<(), Fail> {
        outcome.inspect_err(|fail| self.back.spoil(fail))
    }

    fn attributes(&mut self, trust: Trust) -> Result<Attributes, Fail> {
        match self.fs.remembered_attributes(&self.handle, trust) {
            Some(attributes) => Ok(attributes),
            None => self.with_handle(|fs, handle, _| fs.getattr(handle)),
        }
    }

    fn read_some(&mut self, buf: &mut [u8]) -> Result<usize, Fail> {
        if !matches!(self.access, Access::Read | Access::ReadWrite) {
            return Err(Fail::Os(Errno::BADF));
        }
        if self.kind == FileKind::Directory {
            return Err(Fail::Os(Errno::ISDIR));
        }
        if self.back.held_bytes() > 0 {
            self.send_held()?;
        }
        if buf.is_empty() {
            return Ok(0);
        }
        let ready = self.ahead.hand_out(buf);
        if ready > 0 {
            self.cursor += ready as u64;
            return Ok(ready);
        }
        if std::mem::take(&mut self.ahead.end) {
            return Ok(0);
        }
        self.read_from_server(buf)
    }

    fn read_from_server(&mut self, buf: &mut [u8]) -> Result<usize, Fail> {
        let io_bytes_max = self.fs.shared.io_bytes_max;
        let least = if self.jumped { PAGE_BYTES } else { AHEAD_BYTES };
        let count = buf.len().max(least).min(io_bytes_max);
        let cursor = self.cursor;
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.drop_all();
        let (bytes, attributes) = self.with_handle(|fs, file, _| {
            let request = Request::Read { file: file.by_ref(), offset: cursor, count: count as u32 };
            fs.shared.calls.call(&request, |reply| match reply {
                Reply::Read { attributes, bytes, end } => {
                    let bytes = &bytes[..bytes.len().min(count)];
                    let (now, later) = bytes.split_at(bytes.len().min(buf.len()));
                    buf[..now.len()].copy_from_slice(now);
                    ahead.drop_all();
                    ahead.bytes.extend_from_slice(later);
                    ahead.end = end && !bytes.is_empty();
                    Some((bytes.len(), attributes))
                }
                _ => None,
            })
        })?;
        add(&self.fs.shared.calls.tally.read_bytes, bytes as u64);
        if let (Some(cache), Some(attributes)) = (&self.fs.shared.cache, attributes) {
            cache.saw_attributes(&self.handle, attributes);
        }
        // No bytes before the end would read as an end that is none, and cut a copy short in silence.
        if bytes == 0 && attributes.is_some_and(|attributes| attributes.size > cursor) {
            return Err(Fail::of(Status::SERVERFAULT));
        }
        self.ahead = ahead;
        self.jumped = false;
        let now = bytes.min(buf.len());
        self.cursor += now as u64;
        Ok(now)
    }

    fn write_some(&mut self, mut bytes: &[u8]) -> Result<usize, Fail> {
        if self.access == Access::Read {
            return Err(Fail::Os(Errno::BADF));
        }
        self.back.check()?;
        if bytes.is_empty() {
            return Ok(0);
        }
        self.ahead.drop_all();
        if self.access == Access::Append && self.back.held_bytes() == 0 {
            self.cursor = self.attributes(Trust::Fresh)?.size;
        }
        let end = self.cursor.checked_add(bytes.len() as u64);
        let end = end.filter(|end| *end <= self.fs.shared.file_bytes_max).ok_or(Fail::Os(Errno::FBIG))?;
        let all = bytes.len();
        while !bytes.is_empty() {
            let (taken, full) = self.back.hold(&self.fs, self.cursor, bytes);
            self.cursor += taken as u64;
            bytes = &bytes[taken..];
            if full {
                self.send_held()?;
            }
        }
        debug_assert_eq!(self.cursor, end);
        Ok(all)
    }

    fn finish(&mut self) -> Result<(), Fail> {
        self.back.check()?;
        if self.back.is_clean() {
            return Ok(());
        }
        let finished = self.with_handle(|fs, file, back| back.finish(fs, file));
        self.or_spoil(finished)
    }

    fn go_to_end(&mut self) -> Result<u64, Fail> {
        self.send_held()?;
        self.ahead.drop_all();
        self.cursor = self.attributes(Trust::Remembered)?.size;
        Ok(self.cursor)
    }

    fn go_to(&mut self, offset_bytes: u64) -> Result<(), Fail> {
        if offset_bytes > self.fs.shared.file_bytes_max {
            return Err(Fail::Os(Errno::INVAL));
        }
        self.send_held()?;
        self.ahead.drop_all();
        self.jumped |= offset_bytes != self.cursor;
        self.cursor = offset_bytes;
        Ok(())
    }
}

impl OpenFile for NfsFile {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, FsError> {
        self.read_some(buf).map_err(|fail| self.failed(FsOp::Read)(fail))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, FsError> {
        self.write_some(bytes).map_err(|fail| self.failed(FsOp::Write)(fail))
    }

    fn seek_end(&mut self) -> Result<u64, FsError> {
        self.go_to_end().map_err(|fail| self.failed(FsOp::Seek)(fail))
    }

    fn seek(&mut self, offset_bytes: u64) -> Result<(), FsError> {
        self.go_to(offset_bytes).map_err(|fail| self.failed(FsOp::Seek)(fail))
    }

    fn block_bytes(&mut self) -> Result<usize, FsError> {
        Ok(self.fs.shared.io_bytes_max.min(AHEAD_BYTES))
    }

    fn sync(&mut self, _: SyncScope) -> Result<(), FsError> {
        self.finish().map_err(|fail| self.failed(FsOp::Sync)(fail))
    }

    fn close(mut self: Box<Self>) -> Result<(), FsError> {
        self.closed = true;
        self.finish().map_err(|fail| self.failed(FsOp::Close)(fail))
    }
}

impl Drop for NfsFile {
    fn drop(&mut self) {
        if !self.closed {
            // The trait's bargain: a caller that drops rather than closes does not want to know.
            let _ = self.finish();
        }
    }
}
