//! Limits how many threads wait for requests: one, while it keeps up.
//!
//! For each request the kernel wakes another waiting thread. When a single program works (open, close, open), two
//! threads alternate, contend for the queue's lock and, on few CPUs, displace the program: opening, reading and closing
//! a file took 72 us instead of 50 on two CPUs. So a thread that has answered and finds another one waiting
//! parks. It resumes in one of two ways:
//!
//! 1. A thread that takes a request, leaves no thread waiting, and has repeatedly found more requests queued (many
//!    programs) calls a parked one.
//! 2. A parked thread sees that no thread waits and none has come back for a tick (a request takes long).
//!
//! One parked thread, the looking one, checks every `TICK_MIN` while requests arrive, ever less often while none do, and
//! finally only when the next one arrives: an idle mount wakes no CPU. It also notices the end of the connection, and
//! releases all threads.
//!
//! Always holds: while a thread is parked, a request waits at most two ticks of `TICK_MIN` behind others, or of `TICK_FOLLOWED`
//! where a thread follows.
//! The count of waiting threads may briefly be wrong by one: then one thread too many waits, or parks later.
//!
//! All of this is about the device. Over io_uring the kernel wakes the thread that was free last on the caller's CPU, and nothing is
//! counted here (`unused`).
//!
//! That is the policy `Park`. With `Free` no thread parks. With `Follow` the thread that waits alone also stays on the CPU of
//! a caller that works alone (`follow`). Which one a mount has is in `choice`.

mod follow;
mod policy;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::follow::Follower;
use crate::tree::nodes::lock;

pub use self::follow::Followed;
pub use self::policy::ReaderPolicy;

/// A program alone leaves a RELEASE in the queue, for which it does not wait, but nothing more.
const QUEUED_TO_CALL: usize = 4;
/// While one caller makes all requests, the queue is looked at once in this number of requests: each look is a system call. Only what it does not
/// wait for, such as reading ahead, can then be queued.
const LOOK_AT_QUEUE_EVERY: u64 = 8;
const TICK_MIN: Duration = Duration::from_millis(2);
/// While a thread follows a caller: each tick wakes another CPU from its halt, and the kernel then moves the caller there, away from the
/// follower. With ticks of 2 ms half of the requests went from one CPU to the other.
const TICK_FOLLOWED: Duration = Duration::from_millis(8);
const TICK_MAX: Duration = Duration::from_millis(64);

pub(super) struct Readers {
    /// The FUSE connection; until it is set, no thread parks.
    connection: OnceLock<OwnedFd>,
    /// Threads that read requests, or are about to.
    waiting: AtomicUsize,
    /// Requests taken.
    taken: AtomicU64,
    /// Who made the last request that a program waits for.
    caller: AtomicU32,
    /// Requests taken, one after another, with more in the queue.
    queued_in_a_row: AtomicUsize,
    /// A copy of `Parked::threads` that can be read without the lock.
    parked_hint: AtomicUsize,
    /// The looking thread ticks slowly, because no requests arrive.
    slow: AtomicBool,
    parked: Mutex<Parked>,
    woken: Condvar,
    /// Requests do not come by the device.
    unused: AtomicBool,
    parks: bool,
    follower: Option<Follower>,
    /// Times that a thread parked.
    parkings: AtomicU64,
}

/// What the threads did by their policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// Times that a thread parked.
    pub parked: u64,
    /// What threads did that followed a caller.
    pub followed: Followed,
}

#[derive(Default)]
struct Parked {
    threads: usize,
    /// How many of these were called back to reading; `waiting` already counts them.
    called: usize,
    /// One of them looks.
    looking: bool,
    /// The connection has ended.
    over: bool,
}

/// A request being served. Dropped when it is answered; the drop may park the thread.
pub(super) struct Turn<'a>(&'a Readers);

impl Readers {
    /// For this many threads. Where no thread can follow, `Follow` is as `Park`; see `policy`.
    pub(super) fn new(threads: usize, policy: ReaderPolicy) -> Self {
        let follows = policy == ReaderPolicy::Follow && threads > 1;
        Self {
            parks: policy != ReaderPolicy::Free,
            follower: follows.then(Follower::new).flatten(),
            unused: AtomicBool::new(false),
            parkings: AtomicU64::new(0),
            connection: OnceLock::new(),
            waiting: AtomicUsize::new(threads),
            taken: AtomicU64::new(0),
            caller: AtomicU32::new(0),
            queued_in_a_row: AtomicUsize::new(0),
            parked_hint: AtomicUsize::new(0),
            slow: AtomicBool::new(false),
            parked: Mutex::default(),
            woken: Condvar::new(),
        }
    }

    /// The policy that is in effect.
    pub(super) fn policy(&self) -> ReaderPolicy {
        match (&self.follower, self.parks) {
            (Some(_), _) => ReaderPolicy::Follow,
            (None, true) => ReaderPolicy::Park,
            (None, false) => ReaderPolicy::Free,
        }
    }

    pub(super) fn waited(&self) -> Waited {
        Waited {
            parked: self.parkings.load(Ordering::Relaxed),
            followed: self.follower.as_ref().map(Follower::followed).unwrap_or_default(),
        }
    }

    /// Allows threads to park. If the descriptor cannot be duplicated, all threads keep reading.
    pub(super) fn connected(&self, connection: impl AsFd) {
        if self.parks
            && let Ok(connection) = connection.as_fd().try_clone_to_owned()
        {
            let _ = self.connection.set(connection);
        }
    }

    /// Requests do not come by the device: threads are neither counted nor parked.
    pub(super) fn unused(&self) {
        self.unused.store(true, Ordering::Relaxed);
    }

    /// A thread has taken a request of the caller with this number, 0 for one that no program waits for.
    pub(super) fn turn(&self, caller: u32) -> Turn<'_> {
        if self.unused.load(Ordering::Relaxed) {
            return Turn(self);
        }
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        let is_another = caller != 0 && self.caller.swap(caller, Ordering::Relaxed) != caller;
        let looks = is_another || taken.is_multiple_of(LOOK_AT_QUEUE_EVERY);
        let was_last = self.waiting.fetch_sub(1, Ordering::SeqCst) <= 1;
        let alone = was_last && self.parked_hint.load(Ordering::SeqCst) > 0;
        let queued = alone && looks && self.asked(PollFlags::IN);
        if let Some(follower) = &self.follower {
            follower.taken(caller, alone, queued);
        }
        if alone && looks {
            let queued_in_a_row = if queued { self.queued_in_a_row.load(Ordering::Relaxed) + 1 } else { 0 };
            self.queued_in_a_row.store(queued_in_a_row, Ordering::Relaxed);
            if queued_in_a_row >= QUEUED_TO_CALL {
                self.queued_in_a_row.store(0, Ordering::Relaxed);
                self.call_one();
                return Turn(self);
            }
        }
        if alone && self.slow.swap(false, Ordering::Relaxed) {
            // Wake the looking thread: this request may take long.
            self.woken.notify_all();
        }
        Turn(self)
    }

    /// The work for a request is done, and the answer is about to be sent.
    pub(super) fn done(&self) {
        if let Some(follower) = &self.follower
            && !self.unused.load(Ordering::Relaxed)
        {
            follower.done();
        }
    }

    fn asked(&self, flags: PollFlags) -> bool {
        let Some(connection) = self.connection.get() else { return false };
        let mut polled = [PollFd::new(connection, flags)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).is_ok_and(|_| polled[0].revents().intersects(flags))
    }

    /// Sleeps until a request waits; true when the connection has ended.
    fn until_asked(&self) -> bool {
        let Some(connection) = self.connection.get() else { return false };
        let mut polled = [PollFd::new(connection, PollFlags::IN)];
        match poll(&mut polled, None) {
            // If poll fails, release all threads.
            Err(errno) => errno != rustix::io::Errno::INTR,
            Ok(_) => polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP),
        }
    }

    /// No request was taken for a tick: a thread that follows may not get on.
    fn rescue(&self) {
        if let Some(follower) = &self.follower
            && follower.is_bound()
        {
            follower.stalled(self.asked(PollFlags::IN));
        }
    }

    fn call_one(&self) {
        if let Some(follower) = &self.follower {
            // A thread that gets no time must not have the lock.
            follower.leave();
        }
        let mut parked = lock(&self.parked);
        if parked.called < parked.threads {
            parked.called += 1;
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.woken.notify_all();
        }
    }

    /// Waits until this thread is called, or sees that it is needed.
    fn park(&self) {
        if let Some(follower) = &self.follower {
            follower.leave();
        }
        self.parkings.fetch_add(1, Ordering::Relaxed);
        let mut parked = lock(&self.parked);
        parked.threads += 1;
        self.parked_hint.store(parked.threads, Ordering::SeqCst);
        let mut looks = false;
        let (mut tick, mut taken_before) = (TICK_MIN, u64::MAX);
        while !parked.over && parked.called == 0 {
            if !looks && parked.looking {
                parked = self.woken.wait(parked).unwrap_or_else(|poisoned| poisoned.into_inner());
                continue;
            }
            (looks, parked.looking) = (true, true);
            let follows = self.follower.as_ref().is_some_and(Follower::is_bound);
            let waited =
                self.woken.wait_timeout(parked, if follows { tick.max(TICK_FOLLOWED) } else { tick });
            let (again, passed) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
            parked = again;
            let taken = self.taken.load(Ordering::Relaxed);
            if passed.timed_out() && taken == taken_before {
                self.rescue();
            }
            if !passed.timed_out() || taken != taken_before {
                tick = TICK_MIN;
            } else if self.waiting.load(Ordering::SeqCst) == 0 || self.asked(PollFlags::IN) {
                // All other threads are busy with long requests, or one counted as waiting is gone.
                parked.called += 1;
                self.waiting.fetch_add(1, Ordering::SeqCst);
            } else if tick < TICK_MAX {
                tick = (tick * 2).min(TICK_MAX);
                self.slow.store(true, Ordering::Relaxed);
                parked.over = self.asked(PollFlags::ERR);
            } else {
                // No request for a while: sleep until the next one arrives, then look again.
                drop(parked);
                let over = self.until_asked();
                parked = lock(&self.parked);
                parked.over |= over;
                tick = TICK_MIN;
            }
            taken_before = taken;
        }
        if parked.over {
            self.waiting.fetch_add(1, Ordering::SeqCst);
        } else {
            parked.called -= 1;
        }
        parked.threads -= 1;
        self.parked_hint.store(parked.threads, Ordering::SeqCst);
        if looks {
            parked.looking = false;
        }
        if looks || parked.over {
            // Another parked thread takes over looking.
            self.woken.notify_all();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let readers = self.0;
        if std::thread::panicking() || readers.unused.load(Ordering::Relaxed) {
            // This thread will not wait any more, or not here.
            return;
        }
        // One more after the first would be one too many.
        if readers.waiting.load(Ordering::SeqCst) == 0 || readers.connection.get().is_none() {
            readers.waiting.fetch_add(1, Ordering::SeqCst);
        } else {
            readers.park();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    /// A daemon whose requests are bytes of a pipe.
    struct Daemon {
        readers: Arc<Readers>,
        requests: PipeWriter,
        connection: PipeReader,
        served: (Sender<u8>, Receiver<u8>),
    }

    impl Daemon {
        fn of(threads: usize) -> Self {
            let (connection, requests) = pipe().unwrap();
            let readers = Arc::new(Readers::new(threads, ReaderPolicy::Park));
            readers.connected(&connection);
            Self { readers, requests, connection, served: channel() }
        }

        /// Starts a thread that serves one request after another by `work`.
        fn start(&self, work: impl Fn(u8) + Send + 'static) {
            let (readers, served) = (Arc::clone(&self.readers), self.served.0.clone());
            let mut connection = self.connection.try_clone().unwrap();
            std::thread::spawn(move || {
                let mut request = [0];
                while connection.read_exact(&mut request).is_ok() {
                    let _turn = readers.turn(0);
                    work(request[0]);
                    if served.send(request[0]).is_err() {
                        return;
                    }
                }
            });
        }

        fn ask(&mut self, request: u8) {
            self.requests.write_all(&[request]).unwrap();
        }

        fn answer(&self) -> u8 {
            self.served.1.recv_timeout(LONG).expect("a thread goes back to waiting")
        }
    }

    #[test]
    fn requests_are_served_though_a_thread_that_counts_as_waiting_is_gone() {
        let mut daemon = Daemon::of(3);
        // Two that were to wait are not there.
        daemon.start(|_| {});
        for request in 0..3 {
            daemon.ask(request);
            assert_eq!(daemon.answer(), request);
        }
    }

    #[test]
    fn without_the_device_no_thread_parks() {
        let daemon = Daemon::of(2);
        daemon.readers.unused();
        for _ in 0..3 {
            // Both would be one too many.
            drop((daemon.readers.turn(7), daemon.readers.turn(7)));
        }
        assert_eq!((daemon.readers.waiting.load(Ordering::SeqCst), daemon.readers.waited().parked), (2, 0));
    }

    #[test]
    fn a_thread_that_panics_is_not_held_and_the_others_go_on() {
        let mut daemon = Daemon::of(2);
        let (gone, went) = channel();
        let readers = Arc::clone(&daemon.readers);
        std::thread::spawn(move || {
            // Quietly: the message would stand among those of tests that fail.
            let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _turn = readers.turn(0);
                std::panic::resume_unwind(Box::new("as a request may"));
            }));
            gone.send(unwound.is_err()).unwrap();
        });
        assert_eq!(went.recv_timeout(LONG), Ok(true), "it is held while it unwinds");
        daemon.start(|_| {});
        for request in 0..3 {
            daemon.ask(request);
            assert_eq!(daemon.answer(), request);
        }
    }

    #[test]
    fn while_one_is_held_up_the_next_takes_over() {
        let mut daemon = Daemon::of(2);
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        for _ in 0..2 {
            let released = Arc::clone(&released);
            daemon.start(move |request| {
                if request == 0 {
                    let _ = lock(&released).recv();
                }
            });
        }
        for request in 1..20 {
            daemon.ask(request);
            assert_eq!(daemon.answer(), request);
        }
        daemon.ask(0);
        for request in 1..20 {
            daemon.ask(request);
            assert_eq!(daemon.answer(), request);
        }
        release.send(()).unwrap();
        assert_eq!(daemon.answer(), 0);
    }
}
