//! People reading while articles come in: threads that open, read and close articles at random.
//!
//! ```text
//! unbatch --stored articles, a batch at a time--> (group, number) --pick--> reader: open, read all, close; timed
//! ```
//!
//! Every article in the spool is as likely as any other. A reader reads the next as soon as one is done: a closed
//! loop, one article at a time for each reader.
//!
//! Always holds: the lock of the stored articles is held to pick or to add, never across a call to storage; a reader's latencies
//! are its own until it ends.
//! Not here: which articles people prefer. Beyond the paper, which names reading and leaves it out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::Instant;

use files::{FileSystem, FsError, Status};
use measure::LatencyHistogram;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::spool::decimal;
use crate::spool::groups::{GroupId, Groups};
use crate::spool::layout::places::{PlaceId, Places};
use crate::spool::whole::{ARTICLE_FILE_BYTES_MAX, path_of, read_whole};

/// What the readers did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Readings {
    /// Latency of opening, reading and closing one article.
    pub latency: LatencyHistogram,
    /// Bytes read.
    pub bytes: u64,
    /// Articles cancelled or expired between being picked and opened.
    pub gone: u64,
    /// Failed otherwise.
    pub errors: u64,
}

impl Readings {
    /// Adds another reader's, or another pass's.
    pub fn merge(&mut self, other: &Self) {
        self.latency.merge(&other.latency);
        self.bytes += other.bytes;
        self.gone += other.gone;
        self.errors += other.errors;
    }

    /// As counters of the phase in which they read, which took `wall_s` seconds.
    pub(crate) fn counters(&self, wall_s: f64) -> [(String, f64); 5] {
        let latency = self.latency.summary();
        [
            ("read_articles_per_sec", latency.count as f64 / wall_s.max(1e-9)),
            ("read_latency_p50_us", latency.p50),
            ("read_latency_p99_us", latency.p99),
            ("read_gone", self.gone as f64),
            ("read_errors", self.errors as f64),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }
}

/// The articles stored so far, from which readers pick.
#[derive(Default)]
struct Stored {
    articles: Vec<(GroupId, u64)>,
    /// By group.
    directories: Vec<(PlaceId, Box<[u8]>)>,
}

/// The reader threads.
pub(crate) struct Readers {
    stored: Arc<RwLock<Stored>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Readings>>,
}

impl Readers {
    /// Starts `count` readers with nothing to read yet.
    pub(crate) fn start(count: u32, places: &Places, seed: u64) -> std::io::Result<Self> {
        let mut readers = Self { stored: Arc::default(), stop: Arc::default(), threads: Vec::new() };
        for number in 0..count {
            let (stored, stop) = (Arc::clone(&readers.stored), Arc::clone(&readers.stop));
            let roots = places.roots().to_vec();
            let rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (u64::from(number) << 32));
            let thread = std::thread::Builder::new().name(format!("reader-{number}"));
            readers.threads.push(thread.spawn(move || read_until(&stop, &stored, &roots, rng))?);
        }
        Ok(readers)
    }

    /// Adds stored articles to pick from.
    pub(crate) fn add(&self, groups: &Groups, articles: impl Iterator<Item = (GroupId, u64)>) {
        let mut stored = self.stored.write().expect("no thread panics while holding this lock");
        for id in groups.ids().skip(stored.directories.len()) {
            let group = groups.get(id);
            stored.directories.push((group.place, group.directory.clone()));
        }
        stored.articles.extend(articles);
        drop(stored);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
    }

    /// Stops all readers and returns their merged readings.
    pub(crate) fn end(mut self) -> Readings {
        self.stop();
        let mut all = Readings::default();
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(readings) => all.merge(&readings),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop();
        for thread in self.threads.drain(..) {
            // If a reader panicked while another error is being returned, the other error is reported.
            let _ = thread.join();
        }
    }
}

fn read_until(
    stop: &AtomicBool,
    stored: &RwLock<Stored>,
    roots: &[Arc<dyn FileSystem>],
    mut rng: Xoshiro256PlusPlus,
) -> Readings {
    let mut readings = Readings::default();
    let (mut path, mut article) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let Some(place) = pick(stored, &mut rng, &mut path) else {
            // Nothing stored yet: the first batch wakes us.
            std::thread::park();
            continue;
        };
        article.clear();
        let begun = Instant::now();
        let read: Result<usize, FsError> =
            read_whole(&*roots[usize::from(place.0)], path_of(&path), &mut article, ARTICLE_FILE_BYTES_MAX);
        match read {
            Ok(bytes) => {
                readings.latency.record(begun.elapsed());
                readings.bytes += bytes as u64;
            }
            Err(error) if error.status() == Some(Status::NOENT) => readings.gone += 1,
            Err(_) => readings.errors += 1,
        }
    }
    readings
}

fn pick(stored: &RwLock<Stored>, rng: &mut Xoshiro256PlusPlus, path: &mut Vec<u8>) -> Option<PlaceId> {
    let stored = stored.read().expect("no thread panics while holding this lock");
    if stored.articles.is_empty() {
        return None;
    }
    let (group, number) = stored.articles[rng.random_range(0..stored.articles.len())];
    let (place, directory) = &stored.directories[group.0 as usize];
    path.clear();
    path.extend_from_slice(directory);
    path.push(b'/');
    decimal::push(path, number);
    Some(*place)
}
