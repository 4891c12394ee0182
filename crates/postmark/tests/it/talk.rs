//! Talks to a session in this process: lines in, what it said out.

// Each test file uses its own share of this.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use files::LocalFs;
use postmark::engine::RunOptions;
use postmark::{Clock, Session, SessionEnd, Shell, Surroundings, SystemClock};

/// Advances by 7 s at every reading, as the clock did when the goldens were recorded.
pub struct SevenSeconds {
    base: Instant,
    readings: AtomicU32,
}

impl SevenSeconds {
    pub fn new() -> Self {
        Self { base: Instant::now(), readings: AtomicU32::new(0) }
    }
}

impl Clock for SevenSeconds {
    fn now(&self) -> Instant {
        self.base + Duration::from_secs(7) * self.readings.fetch_add(1, Ordering::Relaxed)
    }
}

/// What a session said and how it ended.
#[derive(Debug)]
pub struct Said {
    pub out: String,
    pub err: String,
    pub end: SessionEnd,
}

pub fn talk(directory: &Path, configuration: Option<&str>, lines: &[u8], clock: Arc<dyn Clock>) -> Said {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (stop, idle) = (AtomicBool::new(false), AtomicBool::new(true));
    let session = Session::new(Surroundings {
        out: &mut out,
        err: &mut err,
        working_directory: directory,
        open: &|location| Ok(Arc::new(LocalFs::open(location)?)),
        how: RunOptions { clock, ..RunOptions::default() },
        stop: &stop,
        idle: &idle,
        shell: Shell::Captured,
    });
    let end = session.converse(configuration.map(Path::new), &mut &*lines).unwrap();
    assert!(idle.load(Ordering::SeqCst), "a session that has ended is idle");
    Said { out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap(), end }
}

pub fn say(directory: &Path, lines: &str) -> Said {
    talk(directory, None, lines.as_bytes(), Arc::new(SystemClock))
}

/// A directory in memory where there is one.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// What lies below a directory, relative to it, sorted.
pub fn tree(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.strip_prefix(directory).unwrap().to_owned());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found.sort();
    found
}
