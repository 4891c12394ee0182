//! A local directory under open-loop load: blocking system calls made by worker threads.
//!
//! ```text
//! submit -> batch -> flush -> waiting (Mutex, Condvar) -> worker: Directory, stamps `done`
//!    ^                                                        |
//!    idle jobs <-- deliver <-- poll <-- finished (Mutex, Condvar, count)
//! ```
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

use quanta::{Clock, Instant};

use self::job::Job;
use crate::{
    Completion, Directory, DirectoryError, DirectoryOptions, Handle, HandleRef, Request, SubmitError, Ticket,
    Transport, TransportCounters, TransportError,
};

/// How a directory is driven.
#[derive(Clone, Debug)]
pub struct DirectoryTransportOptions {
    /// Worker threads. Default: four for each CPU, from 2 to 64, because a worker sleeps in the kernel while
    /// the disk works, and a disk wants several requests at once to be fast.
    pub threads: usize,
    /// The most requests in flight; more are refused with `Full`. Default 1024: each may keep as many bytes
    /// as its largest READ or WRITE had.
    pub in_flight_max: usize,
    /// How the directory is opened.
    pub directory: DirectoryOptions,
}

impl Default for DirectoryTransportOptions {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self { threads: (cpus * 4).clamp(2, 64), in_flight_max: 1024, directory: DirectoryOptions::default() }
    }
}

/// Requests to a local directory.
pub struct DirectoryTransport {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
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
    directory: Directory,
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
        let path = path.as_ref().to_owned();
        let directory = Directory::open(&path, options.directory)?;
        let (root, io_bytes_max) = (directory.root(), directory.io_bytes_max());
        let shared = Arc::new(Shared {
            directory,
            waiting: Mutex::new(Waiting { jobs: VecDeque::new(), sleepers: 0, stop: false }),
            more: Condvar::new(),
            finished: Mutex::new(Finished { jobs: Vec::new(), poller_sleeps: false }),
            some_finished: Condvar::new(),
            finished_count: AtomicUsize::new(0),
        });
        let mut transport = Self {
            shared,
            workers: Vec::new(),
            clock,
            path,
            root,
            io_bytes_max,
            in_flight_max: options.in_flight_max.max(1),
            in_flight: 0,
            idle: Vec::new(),
            batch: Vec::new(),
            taken: Vec::new(),
        };
        for number in 0..options.threads.max(1) {
            let (shared, clock) = (Arc::clone(&transport.shared), transport.clock.clone());
            let worker = std::thread::Builder::new()
                .name(format!("directory-{number}"))
                .spawn(move || shared.work(&clock))
                // Dropping the transport joins those that were started.
                .map_err(|source| DirectoryError::Thread { path: transport.path.clone(), source })?;
            transport.workers.push(worker);
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
    fn work(&self, clock: &Clock) {
        while let Some(mut job) = self.next() {
            job.run(&self.directory, clock);
            let mut finished = lock(&self.finished);
            finished.jobs.push(job);
            self.finished_count.store(finished.jobs.len(), Ordering::Release);
            let wake = std::mem::take(&mut finished.poller_sleeps);
            drop(finished);
            if wake {
                self.some_finished.notify_one();
            }
        }
    }

    fn next(&self) -> Option<Box<Job>> {
        let mut waiting = lock(&self.waiting);
        loop {
            if waiting.stop {
                return None;
            }
            if let Some(job) = waiting.jobs.pop_front() {
                return Some(job);
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

    fn is_local(&self) -> bool {
        true
    }

    fn counters(&self) -> TransportCounters {
        TransportCounters::default()
    }
}

impl Drop for DirectoryTransport {
    /// Requests not yet begun are dropped; a worker ends when its system call returns.
    fn drop(&mut self) {
        lock(&self.shared.waiting).stop = true;
        self.shared.more.notify_all();
        for worker in self.workers.drain(..) {
            // A worker's panic was printed where it happened.
            let _ = worker.join();
        }
    }
}
