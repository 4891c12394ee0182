//! When what is stored must be durable, the flush of each pass, and caches that are dropped.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::spool_scene::{Scene, config, figures, phases, run};
use files::{Access, Attributes, FileSystem, FsError, Fsstat, ListedEntry, Locking, OpenFile, SyncScope};
use netnews::spool::{Keep, NetnewsConfig, Storage, SyncWhen};

/// Storage that counts what it is asked to make durable.
#[derive(Clone)]
struct Counting {
    inner: Arc<dyn FileSystem>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    files: AtomicU64,
    all: AtomicU64,
}

struct CountingFile {
    inner: Box<dyn OpenFile>,
    counts: Arc<Counts>,
}

impl Counting {
    fn file(&self, file: Box<dyn OpenFile>) -> Box<dyn OpenFile> {
        Box::new(CountingFile { inner: file, counts: Arc::clone(&self.counts) })
    }
}

impl FileSystem for Counting {
    fn create(&self, path: &Path) -> Result<Box<dyn OpenFile>, FsError> {
        Ok(self.file(self.inner.create(path)?))
    }
    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn OpenFile>, FsError> {
        Ok(self.file(self.inner.open(path, access)?))
    }
    fn link(&self, existing: &Path, new: &Path) -> Result<(), FsError> {
        self.inner.link(existing, new)
    }
    fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError> {
        self.inner.symlink(target, path)
    }
    fn readlink(&self, path: &Path) -> Result<PathBuf, FsError> {
        self.inner.readlink(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        self.inner.rename(from, to)
    }
    fn unlink(&self, path: &Path) -> Result<(), FsError> {
        self.inner.unlink(path)
    }
    fn mkdir(&self, path: &Path) -> Result<(), FsError> {
        self.inner.mkdir(path)
    }
    fn rmdir(&self, path: &Path) -> Result<(), FsError> {
        self.inner.rmdir(path)
    }
    fn readdir(&self, path: &Path, each: &mut dyn FnMut(ListedEntry<'_>)) -> Result<(), FsError> {
        self.inner.readdir(path, each)
    }
    fn stat(&self, path: &Path) -> Result<Attributes, FsError> {
        self.inner.stat(path)
    }
    fn statfs(&self) -> Result<Fsstat, FsError> {
        self.inner.statfs()
    }
    fn sync_dir(&self, path: &Path) -> Result<(), FsError> {
        self.inner.sync_dir(path)
    }
    fn sync_all(&self) -> Result<(), FsError> {
        self.counts.all.fetch_add(1, Ordering::Relaxed);
        self.inner.sync_all()
    }
    fn below(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        Ok(Arc::new(Self { inner: self.inner.below(path)?, counts: Arc::clone(&self.counts) }))
    }
    fn lock(&self, path: &Path) -> Result<Locking, FsError> {
        self.inner.lock(path)
    }
    fn place(&self) -> String {
        self.inner.place()
    }
    fn local_root(&self) -> Option<&Path> {
        self.inner.local_root()
    }
}

impl OpenFile for CountingFile {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, FsError> {
        self.inner.read(buf)
    }
    fn write(&mut self, bytes: &[u8]) -> Result<usize, FsError> {
        self.inner.write(bytes)
    }
    fn seek_end(&mut self) -> Result<u64, FsError> {
        self.inner.seek_end()
    }
    fn seek(&mut self, offset_bytes: u64) -> Result<(), FsError> {
        self.inner.seek(offset_bytes)
    }
    fn block_bytes(&mut self) -> Result<usize, FsError> {
        self.inner.block_bytes()
    }
    fn sync(&mut self, scope: SyncScope) -> Result<(), FsError> {
        assert_eq!(scope, SyncScope::All, "a new file's size and name belong to it");
        self.counts.files.fetch_add(1, Ordering::Relaxed);
        self.inner.sync(scope)
    }
    fn close(self: Box<Self>) -> Result<(), FsError> {
        self.inner.close()
    }
}

#[test]
fn files_are_synced_one_by_one_or_batch_by_batch_and_each_pass_ends_with_a_timed_flush() {
    let scene = Scene::new();
    // 30 batches in 3 passes; articles and history each are one place.
    let feed = scene.feed(300, 10);
    for (sync, each_file, per_batch) in
        [(SyncWhen::None, false, 0), (SyncWhen::Article, true, 2), (SyncWhen::Batch, false, 2)]
    {
        let counts = Arc::new(Counts::default());
        let storage = Storage::of(Arc::new(Counting { inner: scene.fs("target"), counts: counts.clone() }));
        let config = NetnewsConfig { sync, ..config(3, 1, Keep::Remove) };
        let outcome = run(&config, &storage, &feed);
        let files = if each_file { outcome.part.counts.store.files } else { 0 };
        assert_eq!(counts.files.load(Ordering::Relaxed), files, "{sync:?}");
        assert_eq!(counts.all.load(Ordering::Relaxed), 3 * 2 + 30 * per_batch, "{sync:?}");
        let flushes: Vec<u32> = phases(&outcome, "flush").iter().map(|phase| phase.pass).collect();
        assert_eq!(flushes, [1, 2, 3]);
        let metrics = figures(&config, &outcome).metrics;
        let metric = |name: &str| metrics[name];
        assert!(metric("flush_s") > 0.0);
        assert!(metric("unbatch_flushed_articles_per_sec") < metric("unbatch_articles_per_sec"));
    }
}

/// Symptom: a run that read everything back from memory was VALID without a word.
#[test]
fn storage_in_memory_is_told_as_such_and_is_never_called_cold() {
    let scene = Scene::new();
    if !scene.path("").starts_with("/dev/shm") {
        return;
    }
    let feed = scene.feed(300, 10);
    let cold = NetnewsConfig { cold: true, ..config(3, 1, Keep::Remove) };
    let outcome = figures(&cold, &run(&cold, &Storage::of(scene.fs("target")), &feed));
    let text = |code: &str| {
        let found = outcome.verdict.reasons.iter().find(|reason| reason.code == code);
        found.map(|reason| reason.text.clone()).unwrap_or_else(|| panic!("{code}: {:?}", outcome.verdict))
    };
    assert!(text("cache-bound").contains("unbatch was done in memory, on tmpfs"), "{}", text("cache-bound"));
    assert!(text("cache-always-warm").contains("tmpfs"), "{}", text("cache-always-warm"));
    // Before the batch of pass 3, and before the expiries of passes 2 and 3.
    assert_eq!((outcome.metrics["cache_drops"], outcome.metrics["cache_drops_proven_cold"]), (3.0, 0.0));
    let config = config(3, 1, Keep::Remove);
    let warm = figures(&config, &run(&config, &Storage::of(scene.fs("target")), &feed));
    assert!(!warm.metrics.contains_key("cache_drops"));
}
