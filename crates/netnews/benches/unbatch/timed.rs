//! Storage whose calls are timed, so that what is left of a run is the driver's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use files::{Access, Attributes, FileSystem, FsError, Fsstat, ListedEntry, Locking, OpenFile, SyncScope};

/// Nanoseconds within calls, of all that was opened through it.
#[derive(Clone, Default)]
pub struct Spent(Arc<AtomicU64>);

/// The storage below.
pub struct TimedFs {
    inner: Arc<dyn FileSystem>,
    spent: Spent,
}

struct TimedFile {
    inner: Box<dyn OpenFile>,
    spent: Spent,
}

impl Spent {
    pub fn seconds(&self) -> f64 {
        self.0.load(Ordering::Relaxed) as f64 / 1e9
    }

    fn on<T>(&self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = call();
        self.0.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

impl TimedFs {
    pub fn over(inner: Arc<dyn FileSystem>, spent: Spent) -> Arc<dyn FileSystem> {
        Arc::new(Self { inner, spent })
    }

    fn file(&self, inner: Result<Box<dyn OpenFile>, FsError>) -> Result<Box<dyn OpenFile>, FsError> {
        Ok(Box::new(TimedFile { inner: inner?, spent: self.spent.clone() }))
    }
}

impl FileSystem for TimedFs {
    fn create(&self, path: &Path) -> Result<Box<dyn OpenFile>, FsError> {
        self.file(self.spent.on(|| self.inner.create(path)))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn OpenFile>, FsError> {
        self.file(self.spent.on(|| self.inner.open(path, access)))
    }

    fn link(&self, existing: &Path, new: &Path) -> Result<(), FsError> {
        self.spent.on(|| self.inner.link(existing, new))
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError> {
        self.spent.on(|| self.inner.symlink(target, path))
    }

    fn readlink(&self, path: &Path) -> Result<PathBuf, FsError> {
        self.spent.on(|| self.inner.readlink(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        self.spent.on(|| self.inner.rename(from, to))
    }

    fn unlink(&self, path: &Path) -> Result<(), FsError> {
        self.spent.on(|| self.inner.unlink(path))
    }

    fn mkdir(&self, path: &Path) -> Result<(), FsError> {
        self.spent.on(|| self.inner.mkdir(path))
    }

    fn rmdir(&self, path: &Path) -> Result<(), FsError> {
        self.spent.on(|| self.inner.rmdir(path))
    }

    fn readdir(&self, path: &Path, each: &mut dyn FnMut(ListedEntry<'_>)) -> Result<(), FsError> {
        self.spent.on(|| self.inner.readdir(path, each))
    }

    fn stat(&self, path: &Path) -> Result<Attributes, FsError> {
        self.spent.on(|| self.inner.stat(path))
    }

    fn statfs(&self) -> Result<Fsstat, FsError> {
        self.spent.on(|| self.inner.statfs())
    }

    fn sync_dir(&self, path: &Path) -> Result<(), FsError> {
        self.spent.on(|| self.inner.sync_dir(path))
    }

    fn below(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        Ok(Self::over(self.spent.on(|| self.inner.below(path))?, self.spent.clone()))
    }

    fn place(&self) -> String {
        self.inner.place()
    }

    fn sync_all(&self) -> Result<(), FsError> {
        self.inner.sync_all()
    }
    fn lock(&self, path: &Path) -> Result<Locking, FsError> {
        self.inner.lock(path)
    }
    fn local_root(&self) -> Option<&Path> {
        self.inner.local_root()
    }
}

impl OpenFile for TimedFile {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, FsError> {
        self.spent.on(|| self.inner.read(buf))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, FsError> {
        self.spent.on(|| self.inner.write(bytes))
    }

    fn seek_end(&mut self) -> Result<u64, FsError> {
        self.spent.on(|| self.inner.seek_end())
    }

    fn seek(&mut self, offset_bytes: u64) -> Result<(), FsError> {
        self.spent.on(|| self.inner.seek(offset_bytes))
    }

    fn block_bytes(&mut self) -> Result<usize, FsError> {
        self.spent.on(|| self.inner.block_bytes())
    }

    fn sync(&mut self, scope: SyncScope) -> Result<(), FsError> {
        self.spent.on(|| self.inner.sync(scope))
    }

    fn close(self: Box<Self>) -> Result<(), FsError> {
        let Self { inner, spent } = *self;
        spent.on(|| inner.close())
    }
}
