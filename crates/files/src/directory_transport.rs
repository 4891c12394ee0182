//! A local directory, or another [`FileService`], under open-loop load: blocking calls made by worker threads.
//!
//! ```text
//! submit -> batch -> flush -> waiting (Mutex, Condvar) -> worker: FileService, stamps `done`
//!    ^                                                        |
//!    idle jobs <-- deliver <-- poll <-- finished (Mutex, Condvar, count)
//! ```
//!
//! A worker that finds more jobs waiting than workers are free starts one more, up to `threads_max`. Beyond that jobs wait
//! for a thread, and `counters` says for how long there were such: that is this program's limit, and not the disk's.
//!
//! A job owns a copy of its request and the buffers of its reply, and goes round this circle: in the steady
//! state nothing is allocated. `poll` sleeps on the condition variable.
//!
//! Locks: `waiting` and `finished` are never held together, nor across a system call of a worker.
//! Always holds: at most `in_flight_max` jobs exist; dropping the transport ends and joins all workers.

// A job is about a kilobyte: what moves between the queues is its address.
#![allow(clippy::vec_box)]

mod job;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use quanta::{Clock, Instant};

use self::job::Job;
use crate::{
    Completion, Directory, DirectoryError, DirectoryOptions, FileService, Handle, HandleRef, Request,
    SubmitError, Ticket, Transport, TransportCounters, TransportError,
};

/// How a directory is driven.
#[derive(Clone, Debug)]
pub struct DirectoryTransportOptions {
    /// Worker threads. Default: four for each CPU, from 2 to 64, because a worker sleeps in the kernel while
    /// the disk works, and a disk wants several requests at once to be fast.
    pub threads: usize,
    /// The most worker threads, when all are busy and jobs wait. Default 256. As many as `threads` means that none are added.
    pub threads_max: usize,
    /// The most requests in flight; more are refused with `Full`. Default 1024: each may keep as many bytes
    /// as its largest READ or WRITE had.
    pub in_flight_max: usize,
    /// How the directory is opened.
    pub directory: DirectoryOptions,
}

/// A disk with a deep queue is kept busy by far fewer, and a network file system by some hundreds.
const THREADS_MAX: usize = 256;

impl Default for DirectoryTransportOptions {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            threads: (cpus * 4).clamp(2, 64),
            threads_max: THREADS_MAX,
            in_flight_max: 1024,
            directory: DirectoryOptions::default(),
        }
    }
}

/// Requests to a local directory, or to another [`FileService`].
pub struct DirectoryTransport {
    shared: Arc<Shared>,
    clock: Clock,
    path: PathBuf,
    root: Handle,
    io_bytes_max: u32,
    in_flight_max: usize,
    in_flight: usize,
    idle: Vec<Box<Job>>,
    /// Submitted since the last flush.
    batch: Vec<Box<Job>>,
    /// Swapped with the finished ones at each poll.
    taken: Vec<Box<Job>>,
}

struct Shared {
    service: Arc<dyn FileService>,
    waiting: Mutex<Waiting>,
    more: Condvar,
    finished: Mutex<Finished>,
    some_finished: Condvar,
    /// Jobs in `finished`, to spin on without its lock.
    finished_count: AtomicUsize,
}

struct Waiting {
    jobs: VecDeque<Box<Job>>,
    sleepers: usize,
    stop: bool,
    workers: Vec<JoinHandle<()>>,
    /// Workers there are or that are being started.
    threads: usize,
    threads_max: usize,
    /// Since when jobs wait while there may be no more workers.
    short_since: Option<Instant>,
    /// Time in which that was so, up to `short_since`.
    short: Duration,
}

impl Waiting {
    /// Notes whether jobs wait for a thread that there may not be.
    fn note_room(&mut self, now: Instant) {
        let is_short = self.threads == self.threads_max && self.jobs.len() > self.sleepers;
        match (is_short, self.short_since) {
            (true, None) => self.short_since = Some(now),
            (false, Some(since)) => {
                self.short += now.saturating_duration_since(since);
                self.short_since = None;
            }
            _ => {}
        }
    }

    fn short_until(&self, now: Instant) -> Duration {
        self.short + self.short_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Takes the right to start one more worker, when jobs wait for which none is free.
    fn claim_thread(&mut self) -> bool {
        let is_wanted = self.jobs.len() > self.sleepers && self.threads < self.threads_max && !self.stop;
        self.threads += usize::from(is_wanted);
        is_wanted
    }
}

struct Finished {
    jobs: Vec<Box<Job>>,
    poller_sleeps: bool,
}

impl DirectoryTransport {
    /// Opens the directory at `path` and starts the workers. Completions carry the times of `clock`.
    ///
    /// # Errors
    /// When the directory cannot be opened or a thread not be started.
    pub fn open(
        path: impl AsRef<Path>,
        options: DirectoryTransportOptions,
        clock: Clock,
    ) -> Result<Self, DirectoryError> {
        let path = path.as_ref();
        let directory = Directory::open(path, options.directory.clone())?;
        Self::over(Arc::new(directory), path, &options, clock)
    }

    /// Starts workers in front of `service`, which errors call `path`. [`DirectoryTransportOptions::directory`] has no meaning here.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn over(
        service: Arc<dyn FileService>,
        path: &Path,
        options: &DirectoryTransportOptions,
        clock: Clock,
    ) -> Result<Self, DirectoryError> {
        let (root, io_bytes_max) = (service.root(), service.io_bytes_max());
        let shared = Arc::new(Shared {
            service,
            waiting: Mutex::new(Waiting {
                jobs: VecDeque::new(),
                sleepers: 0,
                stop: false,
                workers: Vec::new(),
                threads: options.threads.max(1),
                threads_max: options.threads_max.max(options.threads).max(1),
                short_since: None,
                short: Duration::ZERO,
            }),
            more: Condvar::new(),
            finished: Mutex::new(Finished { jobs: Vec::new(), poller_sleeps: false }),
            some_finished: Condvar::new(),
            finished_count: AtomicUsize::new(0),
        });
        let transport = Self {
            shared,
            clock,
            path: path.to_owned(),
            root,
            io_bytes_max,
            in_flight_max: options.in_flight_max.max(1),
            in_flight: 0,
            idle: Vec::new(),
            batch: Vec::new(),
            taken: Vec::new(),
        };
        for _ in 0..options.threads.max(1) {
            // Dropping the transport joins those that were started.
            Shared::start_worker(&transport.shared, &transport.clock)
                .map_err(|source| DirectoryError::Thread { path: transport.path.clone(), source })?;
        }
        Ok(transport)
    }

    /// The directory's path, as given.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn start_worker(shared: &Arc<Self>, clock: &Clock) -> std::io::Result<()> {
        let (own, clock) = (Arc::clone(shared), clock.clone());
        let worker = std::thread::Builder::new().name("directory".to_owned());
        // Without the lock, for which the generator would have to wait.
        let worker = worker.spawn(move || Self::work(&own, &clock))?;
        lock(&shared.waiting).workers.push(worker);
        Ok(())
    }

    /// One more worker, for which the right was claimed. Without it the others do its work.
    #[cold]
    fn add_worker(shared: &Arc<Self>, clock: &Clock) {
        if let Err(error) = Self::start_worker(shared, clock) {
            let mut waiting = lock(&shared.waiting);
            waiting.threads -= 1;
            waiting.threads_max = waiting.threads;
            tracing::warn!(%error, threads = waiting.threads, "no more worker threads for the directory can be started");
        }
    }

    fn work(shared: &Arc<Self>, clock: &Clock) {
        while let Some((mut job, adds_worker)) = shared.next(clock) {
            if adds_worker {
                Self::add_worker(shared, clock);
            }
            job.run(&*shared.service, clock);
            shared.finish(job);
        }
    }

    fn finish(&self, job: Box<Job>) {
        let mut finished = lock(&self.finished);
        finished.jobs.push(job);
        self.finished_count.store(finished.jobs.len(), Ordering::Release);
        let wake = std::mem::take(&mut finished.poller_sleeps);
        drop(finished);
        if wake {
            self.some_finished.notify_one();
        }
    }

    /// The next job, and whether this worker is to start another one before it.
    fn next(&self, clock: &Clock) -> Option<(Box<Job>, bool)> {
        let mut waiting = lock(&self.waiting);
        loop {
            if waiting.stop {
                return None;
            }
            if let Some(job) = waiting.jobs.pop_front() {
                if waiting.short_since.is_some() {
                    waiting.note_room(clock.now());
                }
                return Some((job, waiting.claim_thread()));
            }
            waiting.sleepers += 1;
            waiting = self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.sleepers -= 1;
        }
    }
}

impl Transport for DirectoryTransport {
    fn submit(&mut self, ticket: Ticket, request: &Request<'_>) -> Result<(), SubmitError> {
        if self.in_flight == self.in_flight_max {
            return Err(SubmitError::Full);
        }
        let mut job = self.idle.pop().unwrap_or_else(|| Box::new(Job::new()));
        job.load(ticket, request);
        self.batch.push(job);
        self.in_flight += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let mut waiting = lock(&self.shared.waiting);
        let wake = waiting.sleepers.min(self.batch.len());
        waiting.jobs.extend(self.batch.drain(..));
        if waiting.jobs.len() > waiting.sleepers {
            waiting.note_room(self.clock.now());
        }
        drop(waiting);
        for _ in 0..wake {
            self.shared.more.notify_one();
        }
        Ok(())
    }

    fn poll(
        &mut self,
        until: Option<Instant>,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> Result<usize, TransportError> {
        self.flush()?;
        loop {
            if self.shared.finished_count.load(Ordering::Acquire) > 0 {
                let mut finished = lock(&self.shared.finished);
                std::mem::swap(&mut finished.jobs, &mut self.taken);
                self.shared.finished_count.store(0, Ordering::Release);
                drop(finished);
                let delivered = self.taken.len();
                self.in_flight -= delivered;
                for job in self.taken.drain(..) {
                    deliver(job.completion());
                    self.idle.push(job);
                }
                return Ok(delivered);
            }
            let Some(until) = until else { return Ok(0) };
            let now = self.clock.now();
            if now >= until {
                return Ok(0);
            }
            let mut finished = lock(&self.shared.finished);
            if finished.jobs.is_empty() {
                finished.poller_sleeps = true;
                let left = until.duration_since(now);
                let waited = self.shared.some_finished.wait_timeout(finished, left);
                let (mut finished, _) = waited.unwrap_or_else(PoisonError::into_inner);
                finished.poller_sleeps = false;
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn root(&self) -> HandleRef<'_> {
        self.root.by_ref()
    }

    fn io_bytes_max(&self) -> u32 {
        self.io_bytes_max
    }

    fn has_room_of_its_own(&self) -> bool {
        self.shared.service.has_room_of_its_own()
    }

    fn is_local(&self) -> bool {
        true
    }

    fn counters(&self) -> TransportCounters {
        let waited_for_thread = lock(&self.shared.waiting).short_until(self.clock.now());
        TransportCounters { waited_for_thread, ..TransportCounters::default() }
    }
}

impl Drop for DirectoryTransport {
    /// Requests not yet begun are dropped; a worker ends when its system call returns.
    fn drop(&mut self) {
        lock(&self.shared.waiting).stop = true;
        self.shared.more.notify_all();
        loop {
            // One of them may be starting another one.
            let workers = std::mem::take(&mut lock(&self.shared.waiting).workers);
            if workers.is_empty() {
                break;
            }
            for worker in workers {
                // A worker's panic was printed where it happened.
                let _ = worker.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(threads: usize, jobs: usize, sleepers: usize) -> Waiting {
        Waiting {
            jobs: (0..jobs).map(|_| Box::new(Job::new())).collect(),
            sleepers,
            stop: false,
            workers: Vec::new(),
            threads,
            threads_max: 4,
            short_since: None,
            short: Duration::ZERO,
        }
    }

    /// Symptom: a storage that takes 20 ms read as saturated at 334/s, which is what 8 threads do. Fix: threads are added
    /// while jobs wait for one.
    #[test]
    fn a_thread_is_added_only_while_jobs_wait_for_one_and_up_to_the_most() {
        for (threads, jobs, sleepers, is_added) in [
            (2, 1, 0, true),
            (2, 1, 1, false),
            (2, 3, 1, true),
            (3, 1, 0, true),
            (4, 9, 0, false),
            (2, 0, 0, false),
        ] {
            let mut waiting = waiting(threads, jobs, sleepers);
            assert_eq!(waiting.claim_thread(), is_added, "{threads} threads, {jobs} jobs, {sleepers} asleep");
            assert_eq!(waiting.threads, threads + usize::from(is_added));
        }
    }

    #[test]
    fn time_without_a_free_thread_counts_only_when_there_may_be_no_more() {
        let (clock, mock) = Clock::mock();
        let tick = Duration::from_millis(3);
        for (threads, expected) in [(3, Duration::ZERO), (4, tick)] {
            let mut waiting = waiting(threads, 2, 0);
            waiting.note_room(clock.now());
            mock.increment(tick);
            assert_eq!(waiting.short_until(clock.now()), expected, "it is still so");
            waiting.jobs.clear();
            waiting.note_room(clock.now());
            mock.increment(tick);
            assert_eq!(waiting.short_until(clock.now()), expected, "it is over");
        }
    }
}
