//! Killed at any moment and resumed: history and spool agree, no accepted article is lost, none is stored twice.
//!
//! Once in this process, deterministically, on storage that stops at its k-th call, for every k; and once for real, by
//! SIGKILL at random moments.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::spool_scene::{Scene, assert_right, config, files_below, run, run_until};
use files::{
    Access, Attributes, FileSystem, FsError, FsOp, Fsstat, ListedEntry, LocalFs, Locking, OpenFile, SyncScope,
};
use netnews::feed::Feed;
use netnews::spool::{Event, HistoryIndex, Keep, NetnewsConfig, Storage};

/// Storage that works for a number of calls and fails from then on.
#[derive(Clone)]
struct Stopping {
    inner: Arc<dyn FileSystem>,
    left: Arc<Left>,
}

struct Left {
    calls: AtomicU64,
    made: Mutex<Vec<FsOp>>,
    /// The call that ends it writes half of what it was given, when it is a write.
    tears: bool,
}

impl Left {
    fn new(calls: u64, tears: bool) -> Arc<Self> {
        Arc::new(Self { calls: calls.into(), made: Mutex::default(), tears })
    }

    /// Whether this is the last call, or an error when it was made before.
    fn call(&self, op: FsOp) -> Result<bool, FsError> {
        self.made.lock().unwrap().push(op);
        let left = self.calls.load(Ordering::Relaxed);
        if left == 0 {
            return Err(gone(op));
        }
        self.calls.store(left - 1, Ordering::Relaxed);
        Ok(left == 1)
    }
}

fn gone(op: FsOp) -> FsError {
    FsError::Lost { op, path: PathBuf::from("stopped"), source: "stopped by the test".into() }
}

struct StoppingFile {
    inner: Box<dyn OpenFile>,
    left: Arc<Left>,
}

impl Stopping {
    fn file(&self, file: Box<dyn OpenFile>) -> Box<dyn OpenFile> {
        Box::new(StoppingFile { inner: file, left: Arc::clone(&self.left) })
    }
}

impl FileSystem for Stopping {
    fn create(&self, path: &Path) -> Result<Box<dyn OpenFile>, FsError> {
        self.left.call(FsOp::Create)?;
        Ok(self.file(self.inner.create(path)?))
    }
    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn OpenFile>, FsError> {
        self.left.call(FsOp::Open)?;
        Ok(self.file(self.inner.open(path, access)?))
    }
    fn link(&self, existing: &Path, new: &Path) -> Result<(), FsError> {
        self.left.call(FsOp::Link)?;
        self.inner.link(existing, new)
    }
    fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError> {
        self.left.call(FsOp::Symlink)?;
        self.inner.symlink(target, path)
    }
    fn readlink(&self, path: &Path) -> Result<PathBuf, FsError> {
        self.left.call(FsOp::Readlink)?;
        self.inner.readlink(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        self.left.call(FsOp::Rename)?;
        self.inner.rename(from, to)
    }
    fn unlink(&self, path: &Path) -> Result<(), FsError> {
        self.left.call(FsOp::Unlink)?;
        self.inner.unlink(path)
    }
    fn mkdir(&self, path: &Path) -> Result<(), FsError> {
        self.left.call(FsOp::Mkdir)?;
        self.inner.mkdir(path)
    }
    fn rmdir(&self, path: &Path) -> Result<(), FsError> {
        self.left.call(FsOp::Rmdir)?;
        self.inner.rmdir(path)
    }
    fn readdir(&self, path: &Path, each: &mut dyn FnMut(ListedEntry<'_>)) -> Result<(), FsError> {
        self.left.call(FsOp::Readdir)?;
        self.inner.readdir(path, each)
    }
    fn stat(&self, path: &Path) -> Result<Attributes, FsError> {
        self.left.call(FsOp::Stat)?;
        self.inner.stat(path)
    }
    fn statfs(&self) -> Result<Fsstat, FsError> {
        self.inner.statfs()
    }
    fn sync_dir(&self, path: &Path) -> Result<(), FsError> {
        self.inner.sync_dir(path)
    }
    fn below(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        Ok(Arc::new(Self { inner: self.inner.below(path)?, left: Arc::clone(&self.left) }))
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
        None
    }
}

impl OpenFile for StoppingFile {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, FsError> {
        self.left.call(FsOp::Read)?;
        self.inner.read(buf)
    }
    fn write(&mut self, bytes: &[u8]) -> Result<usize, FsError> {
        let last = self.left.call(FsOp::Write)?;
        if last && self.left.tears {
            self.inner.write(&bytes[..bytes.len() / 2])?;
            return Err(gone(FsOp::Write));
        }
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
        self.inner.sync(scope)
    }
    fn close(self: Box<Self>) -> Result<(), FsError> {
        self.inner.close()
    }
}

/// What must be the same however a run came to its end.
fn contents(target: &Path) -> Vec<(String, Vec<u8>)> {
    let files = files_below(&target.join("crumb-netnews-s"));
    let of =
        |name: &str| name.starts_with("articles/") || name == "lib/history" || name.starts_with("lib/active");
    files.into_iter().filter(|(name, _)| of(name)).collect()
}

/// Files that are there on one side only, or where they begin to differ.
fn differences(found: &[(String, Vec<u8>)], expected: &[(String, Vec<u8>)]) -> Vec<String> {
    let found: BTreeMap<_, _> = found.iter().map(|(name, bytes)| (name, bytes)).collect();
    let expected: BTreeMap<_, _> = expected.iter().map(|(name, bytes)| (name, bytes)).collect();
    let names: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let different = names.into_iter().filter_map(|name| match (found.get(name), expected.get(name)) {
        (Some(found), Some(expected)) if found == expected => None,
        (Some(found), Some(expected)) => {
            let at = found.iter().zip(expected.iter()).take_while(|(one, other)| one == other).count();
            let from = |bytes: &[u8]| bytes[at..].iter().take(120).copied().collect::<Vec<_>>();
            let (found_on, expected_on) = (from(found), from(expected));
            Some(format!(
                "{name} from byte {at} of {}: {}, not {}",
                expected.len(),
                found_on.escape_ascii(),
                expected_on.escape_ascii()
            ))
        }
        (Some(_), None) => Some(format!("{name} should not be there")),
        _ => Some(format!("{name} is missing")),
    });
    different.collect()
}

fn small(history_index: HistoryIndex) -> NetnewsConfig {
    NetnewsConfig { history_index, ..config(3, 1, Keep::Keep) }
}

fn resuming(config: NetnewsConfig) -> NetnewsConfig {
    NetnewsConfig { keep: Keep::Resume, ..config }
}

/// Goes on with what a stop left, with another stop after `again` calls when there is one, and looks at the end.
fn recover(scene: &Scene, feed: &Feed, small: &NetnewsConfig, again: Option<u64>, context: &str) {
    let real = Storage::of(scene.fs("target"));
    if !scene.path("target/crumb-netnews-s/where").exists() {
        // Stopped before there was a spool: begun anew, over what there is of it.
        let _ = std::fs::remove_dir_all(scene.path("target/crumb-netnews-s"));
        run(small, &real, feed);
        return;
    }
    if let Some(calls) = again {
        let stopping = Stopping { inner: real.spool.clone(), left: Left::new(calls, true) };
        let storage = Storage::of(Arc::new(stopping));
        run_until(&resuming(small.clone()), &storage, feed, &AtomicBool::new(false), &mut |_| {});
    }
    // Opened and closed only: what recovery alone makes of it.
    let outcome = run_until(&resuming(small.clone()), &real, feed, &AtomicBool::new(true), &mut |_| {});
    assert!(outcome.error.is_none(), "{context}: {:?}", outcome.error);
    assert_eq!(outcome.part.recovered.expect("resumed").names_missing, 0, "{context}");
    assert_right(&real, feed);
    run(&resuming(small.clone()), &real, feed);
}

/// Stops a run at every call, or tears every write in two; goes on, and wants the spool of a run that was not stopped.
fn stop_everywhere(tears: bool, index: HistoryIndex) {
    let small = small(index);
    let scene = Scene::new();
    let feed = scene.feed(45, 5);
    let left = Left::new(u64::MAX, false);
    let counting = Stopping { inner: scene.fs("whole"), left: Arc::clone(&left) };
    run(&small, &Storage::of(Arc::new(counting)), &feed);
    let made = left.made.lock().unwrap().clone();
    let expected = contents(&scene.path("whole"));
    assert!(made.len() > 300 && expected.len() > 15, "{} calls, {} files", made.len(), expected.len());
    let of = made.len() as u64;
    for call in (1..of).filter(|call| !tears || made[*call as usize - 1] == FsOp::Write) {
        let context = format!("stopped at call {call} of {of}, {}", made[call as usize - 1]);
        let stopping = Stopping { inner: scene.fs("target"), left: Left::new(call, tears) };
        let storage = Storage::of(Arc::new(stopping));
        let outcome = run_until(&small, &storage, &feed, &AtomicBool::new(false), &mut |_| {});
        assert!(outcome.error.is_some(), "{context}");
        // Every few calls the resumed run is stopped as well, somewhere else.
        let again = (call % 5 == 0).then_some(call * 31 % of + 1);
        recover(&scene, &feed, &small, again, &context);
        assert!(contents(&scene.path("target")) == expected, "{context}");
        std::fs::remove_dir_all(scene.path("target")).unwrap();
    }
}

#[test]
fn stopped_at_any_call_whatsoever_a_resumed_run_ends_in_the_very_same_spool() {
    stop_everywhere(false, HistoryIndex::Memory);
}

#[test]
fn with_any_write_torn_in_two_a_resumed_run_ends_in_the_very_same_spool() {
    stop_everywhere(true, HistoryIndex::Memory);
}

#[test]
fn with_the_index_in_its_file_a_run_stopped_at_any_call_ends_in_the_very_same_spool_too() {
    stop_everywhere(false, HistoryIndex::File);
}

#[test]
fn with_the_index_in_its_file_any_write_may_be_torn_in_two() {
    stop_everywhere(true, HistoryIndex::File);
}

const CHILD: &str = "CRUMB_TEST_SPOOL_CHILD";
/// Whether the child has the index in its file.
const CHILD_INDEX: &str = "CRUMB_TEST_SPOOL_INDEX";
const KILLS: usize = 60;

/// Not a test of its own: what the test below starts and kills.
#[test]
#[allow(clippy::print_stdout, reason = "the parent counts the lines")]
fn child_that_unbatches() {
    let Some(folder) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
    let feed = Feed::open(folder.join("feed")).unwrap();
    let target = folder.join("target");
    let keep = if target.join("crumb-netnews-s/where").exists() { Keep::Resume } else { Keep::Keep };
    let storage = Storage::of(Arc::new(LocalFs::open(target).unwrap()));
    let mut tell = |event: Event| {
        if matches!(event, Event::Step { .. }) {
            println!("step");
        }
    };
    let history_index = std::env::var(CHILD_INDEX).unwrap().parse().unwrap();
    let config = NetnewsConfig { keep, history_index, ..killed_config() };
    let outcome = run_until(&config, &storage, &feed, &AtomicBool::new(false), &mut tell);
    assert!(outcome.part.is_complete(), "{:?}", outcome.error);
}

fn killed_config() -> NetnewsConfig {
    config(4, 2, Keep::Keep)
}

/// Starts the child and kills it some moments after that many steps; whether it was done before.
fn run_and_kill(folder: &Path, steps: u64, moments: u64, index: HistoryIndex) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["spool_killed::child_that_unbatches", "--exact", "--nocapture"])
        .env(CHILD, folder)
        .env(CHILD_INDEX, index.name())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let said = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut lines = said.lines().map_while(Result::ok);
    let taken = lines.by_ref().filter(|line| line.ends_with("step")).take(steps as usize).count() as u64;
    if taken == steps {
        // Not a whole step: a batch takes a few hundred microseconds.
        let until = Instant::now() + Duration::from_micros(moments);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
    }
    child.wait().unwrap().success()
}

#[test]
fn killed_by_sigkill_sixty_times_the_spool_is_right_after_each_and_the_same_in_the_end() {
    let scene = Scene::new();
    let feed = scene.feed(2000, 20);
    run(&killed_config(), &Storage::of(scene.fs("whole")), &feed);
    let expected = contents(&scene.path("whole"));
    let folder = scene.path("");
    let (mut kills, mut finished, mut cut_short) = (0, 0, 0);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    while kills < KILLS || finished == 0 {
        let storage = Storage::of(scene.fs("target"));
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // A spool is killed several times before it is done; the last one is let be.
        let steps = if kills < KILLS { (random >> 33) % 30 } else { u64::MAX };
        // A spool is gone on with by both ways of looking up, in turns.
        let index = if random >> 40 & 1 == 0 { HistoryIndex::Memory } else { HistoryIndex::File };
        let ended_well = run_and_kill(&folder, steps, (random >> 20) % 2000, index);
        if ended_well {
            finished += 1;
            assert_right(&storage, &feed);
            let different = differences(&contents(&scene.path("target")), &expected);
            assert!(different.is_empty(), "after {kills} kills: {}", different.join(", "));
            std::fs::remove_dir_all(scene.path("target")).unwrap();
            continue;
        }
        kills += 1;
        if !scene.path("target/crumb-netnews-s/where").exists() {
            std::fs::remove_dir_all(scene.path("target")).unwrap();
            continue;
        }
        let resume = NetnewsConfig { keep: Keep::Resume, history_index: index, ..killed_config() };
        let outcome = run_until(&resume, &storage, &feed, &AtomicBool::new(true), &mut |_| {});
        assert!(outcome.error.is_none(), "kill {kills}: {:?}", outcome.error);
        let recovered = outcome.part.recovered.expect("resumed");
        assert_eq!(recovered.names_missing, 0, "kill {kills}");
        cut_short += u32::from(recovered.was_cut_short);
        assert_right(&storage, &feed);
    }
    assert!(cut_short > 20, "only {cut_short} of {kills} kills came while the spool was at work");
}
