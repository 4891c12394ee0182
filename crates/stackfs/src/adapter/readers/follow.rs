//! Keeps the one thread that waits for requests on the CPU of the one program that makes them.
//!
//! A program that waits for an answer leaves its CPU idle, and the kernel wakes the daemon's thread on another idle one. Where
//! idle CPUs halt, each request then costs two slow wake-ups. On one CPU it costs two switches between threads.
//!
//! 1. After `lone_min` requests in a row that one thread took alone, it looks up the caller's CPU in `/proc`.
//! 2. It binds itself to that CPU and enters the idle class (`SCHED_IDLE`). The kernel counts a CPU that runs only threads of
//!    that class as idle, so an answer wakes the caller where it slept. With the usual class it would move the caller to
//!    another idle CPU.
//! 3. Every `LOOK_EVERY` requests it looks again, and moves after a caller that has moved.
//! 4. It stops when requests of two callers queue, when a second thread takes a request, or when it takes none for a tick.
//!
//! A thread of the idle class gets next to no time on a CPU that another program uses, perhaps with a lock in its hands.
//! So the looking thread (see `readers`) calls `stalled` when no request was taken for a tick, which returns the follower to
//! the usual class and to all CPUs. A follower that was stalled while it was needed waits for more lone requests the next
//! time, up to `LONE_MAX`: a CPU that is shared costs a tick or two in thousands of requests.
//!
//! Not here: whether this is worth it on this machine (see `choice`), and who is the looking thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

/// Lone requests in a row before a thread follows, at first and at most.
const LONE_MIN: u32 = 16;
const LONE_MAX: u32 = 4096;
/// Requests between two looks at where the caller is: 5 to 10 us each. After a move, each of them is 40 us slower.
const LOOK_EVERY: u32 = 16;
/// A thread that has followed for this many requests was not in need of time.
const PROVEN: u32 = 1024;

/// Where threads run, and how that is changed.
pub(super) trait Placement: Send + Sync {
    /// The calling thread.
    fn this_thread(&self) -> Pid;
    /// The CPU on which a caller ran last.
    fn cpu_of(&self, caller: u32) -> Option<usize>;
    /// Binds a thread to a CPU, in the idle class. False when it cannot be.
    fn bind(&self, thread: Pid, cpu: usize) -> bool;
    /// Returns a thread to the usual class and to all CPUs.
    fn release(&self, thread: Pid);
}

/// How often a thread followed, and how that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Times that a thread began to follow a caller.
    pub begun: u64,
    /// Times that it moved after the caller to another CPU.
    pub moved: u64,
    /// Requests that it took while it followed.
    pub requests: u64,
    /// Times that it was returned to all CPUs because it did not get on.
    pub stalled: u64,
}

pub(super) struct Follower<P = Kernel> {
    placement: P,
    /// The thread that follows; 0 when none does. Only that thread sets it back to 0.
    thread: AtomicI32,
    /// The CPU to which it is bound.
    cpu: AtomicUsize,
    /// A request was taken and the work for it is not done.
    at_work: AtomicBool,
    /// Another thread has released it.
    released: AtomicBool,
    /// Lone requests in a row.
    lone: AtomicU32,
    /// As many are needed to follow.
    lone_min: AtomicU32,
    /// The last caller that waits for its answer, and whether another request was behind its own.
    caller: AtomicU32,
    queued_behind: AtomicBool,
    begun: AtomicU64,
    moved: AtomicU64,
    requests: AtomicU64,
    stalled: AtomicU64,
}

impl Follower<Kernel> {
    /// `None` where threads cannot be bound, or cannot leave the idle class.
    pub(super) fn new() -> Option<Self> {
        Some(Self::with(Kernel::new()?))
    }
}

impl<P: Placement> Follower<P> {
    pub(super) fn with(placement: P) -> Self {
        Self {
            placement,
            thread: AtomicI32::new(0),
            cpu: AtomicUsize::new(0),
            at_work: AtomicBool::new(false),
            released: AtomicBool::new(false),
            lone: AtomicU32::new(0),
            lone_min: AtomicU32::new(LONE_MIN),
            caller: AtomicU32::new(0),
            queued_behind: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
        }
    }

    /// This thread has taken a request of `caller` (0: one that no program waits for). `alone`: no other thread waits, and
    /// one looks. `queued`: another request is behind it.
    pub(super) fn taken(&self, caller: u32, alone: bool, queued: bool) {
        self.at_work.store(true, SeqCst);
        let me = self.placement.this_thread();
        let follower = self.thread.load(SeqCst);
        let follows = follower == me.as_raw_nonzero().get();
        if follower != 0 && !follows {
            // Two threads are needed.
            self.release_other(follower);
            self.lone.store(0, SeqCst);
            return;
        }
        let mut contended = false;
        if caller != 0 {
            let before = self.caller.swap(caller, SeqCst);
            contended = self.queued_behind.swap(queued, SeqCst) && before != caller;
        }
        if follows {
            self.requests.fetch_add(1, SeqCst);
        }
        if !alone || contended || (follows && self.released.load(SeqCst)) {
            self.lone.store(0, SeqCst);
            self.leave();
            return;
        }
        let lone = self.lone.fetch_add(1, SeqCst).saturating_add(1);
        let due = if follows { lone.is_multiple_of(LOOK_EVERY) } else { lone >= self.lone_min.load(SeqCst) };
        if follows && lone >= PROVEN {
            self.lone_min.store(LONE_MIN, SeqCst);
        }
        if due && caller != 0 {
            self.follow(me, caller);
        }
    }

    fn follow(&self, me: Pid, caller: u32) {
        // Not for each request where it cannot be known.
        let Some(cpu) = self.placement.cpu_of(caller) else { return self.lone.store(0, SeqCst) };
        let follows = self.thread.load(SeqCst) != 0;
        if follows && self.cpu.load(SeqCst) == cpu {
            return;
        }
        self.released.store(false, SeqCst);
        // Before it enters the idle class: from now on `stalled` finds it.
        self.thread.store(me.as_raw_nonzero().get(), SeqCst);
        self.cpu.store(cpu, SeqCst);
        let bound = self.placement.bind(me, cpu);
        if !bound || self.released.load(SeqCst) {
            self.lone.store(0, SeqCst);
            self.leave();
        } else {
            (if follows { &self.moved } else { &self.begun }).fetch_add(1, SeqCst);
        }
    }

    /// This thread follows no longer. Called by each thread before it parks.
    pub(super) fn leave(&self) {
        let me = self.placement.this_thread();
        if self.thread.load(SeqCst) == me.as_raw_nonzero().get() {
            self.placement.release(me);
            self.thread.store(0, SeqCst);
        }
    }

    /// Whether a thread follows, or was released and does not know it yet.
    pub(super) fn is_bound(&self) -> bool {
        self.thread.load(SeqCst) != 0
    }

    /// The work for a request is done, and the answer is about to be sent. The program then computes on this CPU.
    pub(super) fn done(&self) {
        self.at_work.store(false, SeqCst);
    }

    /// No request was taken for a tick. `queued`: one waits.
    pub(super) fn stalled(&self, queued: bool) {
        let needed = queued || self.at_work.load(SeqCst);
        let follower = self.thread.load(SeqCst);
        if follower == 0 {
            return;
        }
        if needed && !self.released.load(SeqCst) {
            self.stalled.fetch_add(1, SeqCst);
            let more = self.lone_min.load(SeqCst).saturating_mul(4).min(LONE_MAX);
            self.lone_min.store(more, SeqCst);
        }
        // Again, if need be: it may have been about to bind itself.
        self.released.store(false, SeqCst);
        self.release_other(follower);
    }

    fn release_other(&self, follower: i32) {
        if !self.released.swap(true, SeqCst)
            && let Some(follower) = Pid::from_raw(follower)
        {
            self.placement.release(follower);
        }
    }

    pub(super) fn followed(&self) -> Followed {
        Followed {
            begun: self.begun.load(SeqCst),
            moved: self.moved.load(SeqCst),
            requests: self.requests.load(SeqCst),
            stalled: self.stalled.load(SeqCst),
        }
    }
}

/// The real one.
pub(super) struct Kernel {
    /// Those on which this process ran at first.
    cpus: CpuSet,
}

impl Kernel {
    fn new() -> Option<Self> {
        let cpus = sched_getaffinity(None).ok()?;
        (cpus.count() > 1 && sys::can_leave_idle_class()).then_some(Self { cpus })
    }
}

thread_local! {
    static THREAD: Cell<Option<Pid>> = const { Cell::new(None) };
}

impl Placement for Kernel {
    fn this_thread(&self) -> Pid {
        THREAD.get().unwrap_or_else(|| {
            let thread = gettid();
            THREAD.set(Some(thread));
            thread
        })
    }

    fn cpu_of(&self, caller: u32) -> Option<usize> {
        let stat = std::fs::read(format!("/proc/{caller}/stat")).ok()?;
        cpu_in(&stat).filter(|cpu| *cpu < CpuSet::MAX_CPU && self.cpus.is_set(*cpu))
    }

    fn bind(&self, thread: Pid, cpu: usize) -> bool {
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(Some(thread), &one).is_ok() && sys::set_idle_class(thread, true).is_ok()
    }

    fn release(&self, thread: Pid) {
        // The class first: a CPU that is shared may keep the thread from running, here or elsewhere.
        let class = sys::set_idle_class(thread, false);
        let affinity = sched_setaffinity(Some(thread), &self.cpus);
        for errno in [class, affinity].into_iter().filter_map(Result::err) {
            if errno != rustix::io::Errno::SRCH {
                tracing::warn!("a thread stays where it was bound: {errno}");
            }
        }
    }
}

/// Field 39 of `/proc/PID/stat`. The name, field 2, may have spaces and parentheses.
fn cpu_in(stat: &[u8]) -> Option<usize> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    fields.split_ascii_whitespace().nth(39 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests;
