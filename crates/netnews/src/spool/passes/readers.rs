//! People reading while articles come in: threads that open, read and close articles at random.
//!
//! ```text
//! unbatch --stored--> shelf (group, number), a batch at a time --pick--> reader: open, read all, close; timed
//! ```
//!
//! Every article in the spool is as likely as any other. A reader reads the next as soon as one is done: a closed
//! loop, one article at a time for each reader.
//!
//! Always holds: the shelf's lock is held to pick or to add, never across a call to the storage; a reader's latencies
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

/// What there is to read.
#[derive(Default)]
struct Shelf {
    articles: Vec<(GroupId, u64)>,
    /// By group.
    directories: Vec<(PlaceId, Box<[u8]>)>,
}

/// The threads.
pub(crate) struct Readers {
    shelf: Arc<RwLock<Shelf>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Readings>>,
}

impl Readers {
    /// Starts `count` readers with nothing to read yet.
    pub(crate) fn start(count: u32, places: &Places, seed: u64) -> std::io::Result<Self> {
        let mut readers = Self { shelf: Arc::default(), stop: Arc::default(), threads: Vec::new() };
        for number in 0..count {
            let (shelf, stop) = (Arc::clone(&readers.shelf), Arc::clone(&readers.stop));
            let roots = places.roots().to_vec();
            let rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (u64::from(number) << 32));
            let thread = std::thread::Builder::new().name(format!("reader-{number}"));
            readers.threads.push(thread.spawn(move || read_until(&stop, &shelf, &roots, rng))?);
        }
        Ok(readers)
    }

    /// Puts articles on the shelf.
    pub(crate) fn add(&self, groups: &Groups, articles: impl Iterator<Item = (GroupId, u64)>) {
        let mut shelf = self.shelf.write().expect("nobody panics while holding the shelf");
        for id in groups.ids().skip(shelf.directories.len()) {
            let group = groups.get(id);
            shelf.directories.push((group.place, group.directory.clone()));
        }
        shelf.articles.extend(articles);
        drop(shelf);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.iter().for_each(|thread| thread.thread().unpark());
    }

    /// Ends all and gives what they found.
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
            // A panic of a reader while another error is under way: that one is told.
            let _ = thread.join();
        }
    }
}

fn read_until(
    stop: &AtomicBool,
    shelf: &RwLock<Shelf>,
    roots: &[Arc<dyn FileSystem>],
    mut rng: Xoshiro256PlusPlus,
) -> Readings {
    let mut readings = Readings::default();
    let (mut path, mut article) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let Some(place) = pick(shelf, &mut rng, &mut path) else {
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

fn pick(shelf: &RwLock<Shelf>, rng: &mut Xoshiro256PlusPlus, path: &mut Vec<u8>) -> Option<PlaceId> {
    let shelf = shelf.read().expect("nobody panics while holding the shelf");
    if shelf.articles.is_empty() {
        return None;
    }
    let (group, number) = shelf.articles[rng.random_range(0..shelf.articles.len())];
    let (place, directory) = &shelf.directories[group.0 as usize];
    path.clear();
    path.extend_from_slice(directory);
    path.push(b'/');
    decimal::push(path, number);
    Some(*place)
}
