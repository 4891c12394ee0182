//! FUSE over io_uring: the kernel queues a request on the CPU of its caller, where threads of ours wait, each with one entry.
//!
//! ```text
//! before the mount agrees:  threads started and bound, rings and buffers made      a failure: the device serves
//! after it:                 entries registered in the queues of all possible CPUs  a failure: the mount ends
//! then:   queue of CPU n -> completion -> dispatch -> commit, which takes the next request
//!         FORGET, INTERRUPT -> /dev/fuse, read every 50 ms
//! ```
//!
//! 1. Each CPU has several threads. The kernel gives a request to the entry that was free last, so one thread of a CPU is busy while the
//!    others sleep, and take over while it is held up.
//! 2. CPUs that are possible but not ours, such as those that can be plugged in, share one thread, which is not bound.
//!
//! Always holds: a request gets its reply also when the file system panics, since no other thread could give it.
//! Not here: the entries themselves (`sys::fuse_ring`).

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sys::fuse_ring::{FuseRing, PAYLOAD_BYTES_MIN, RingReply, RingRequest};

use crate::device::{self, Device, DeviceSink};
use crate::dispatch::{Next, dispatch};
use crate::filesystem::Filesystem;
use crate::protocol::{Errno, Header, argument_bytes};
use crate::reply::Sink;
use crate::session::{Served, Thread, start_thread};

/// What a mount over a ring agrees to: requests and replies of a ring are as long as its buffers.
pub(crate) const MAX_WRITE: u32 = PAYLOAD_BYTES_MIN as u32;
/// FORGET and INTERRUPT stay on /dev/fuse; a thread that waited there would be woken for each.
const DRAIN_EVERY: Duration = Duration::from_millis(50);
/// Threads of a CPU, so that one that is held up does not hold up the others.
const THREADS_OF_A_CPU_MIN: usize = 2;

/// Whether the kernel has it, on or off: Linux 6.14 and later.
pub(crate) fn is_known() -> bool {
    std::path::Path::new("/sys/module/fuse/parameters/enable_uring").exists()
}

/// How many CPUs this machine may ever have: each has a queue.
fn possible_cpus() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count(text.trim()).ok_or_else(|| io::Error::other(format!("possible CPUs: {text}")))
}

/// `0-3,8` are five.
fn count(list: &str) -> Option<usize> {
    list.split(',').try_fold(0usize, |sum, part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        sum.checked_add(last.checked_sub(first)? + 1)
    })
}

/// What one thread serves.
#[derive(Debug, PartialEq, Eq)]
struct Work {
    queues: Vec<u16>,
    bound_to: Option<usize>,
}

/// One thread or more for each CPU of ours, and one for all others.
fn works(possible: usize, ours: impl Fn(usize) -> bool, threads: usize) -> Vec<Work> {
    let (own, others): (Vec<usize>, Vec<usize>) = (0..possible).partition(|cpu| ours(*cpu));
    let of_each = threads.div_ceil(own.len().max(1)).max(THREADS_OF_A_CPU_MIN);
    let bound = own.iter().flat_map(|cpu| std::iter::repeat_n(*cpu, of_each));
    let mut works: Vec<Work> =
        bound.map(|cpu| Work { queues: vec![cpu as u16], bound_to: Some(cpu) }).collect();
    if !others.is_empty() {
        works.push(Work { queues: others.into_iter().map(|cpu| cpu as u16).collect(), bound_to: None });
    }
    works
}

/// Threads that have their rings and buffers, and wait for the mount to be agreed. Dropped, they end.
pub(crate) struct Prepared<F> {
    threads: Vec<Thread>,
    starts: Vec<SyncSender<Arc<Served<F>>>>,
    heard: Receiver<io::Result<()>>,
}

impl<F: Filesystem> Prepared<F> {
    /// `threads`: as many at least.
    pub fn new(threads: usize) -> io::Result<Self> {
        let possible = possible_cpus()?;
        if possible > usize::from(u16::MAX) {
            return Err(io::Error::other(format!("{possible} possible CPUs")));
        }
        let cpus = sched_getaffinity(None)?;
        let works = works(possible, |cpu| cpu < CpuSet::MAX_CPU && cpus.is_set(cpu), threads);
        let (said, heard) = channel();
        let mut prepared = Self { threads: Vec::new(), starts: Vec::new(), heard };
        for (number, work) in works.into_iter().enumerate() {
            let (start, started) = sync_channel(1);
            let said = said.clone();
            prepared.starts.push(start);
            prepared
                .threads
                .push(start_thread(format!("crumb-ring-{number}"), move || serve(&work, &said, &started))?);
        }
        prepared.all_said()?;
        Ok(prepared)
    }

    /// One word of each thread.
    fn all_said(&self) -> io::Result<()> {
        self.threads.iter().try_for_each(|_| {
            self.heard.recv().unwrap_or_else(|_| Err(io::Error::other("a thread of a ring panicked")))
        })
    }

    /// Serves. On an error the caller has to end the mount: some entries may be registered.
    pub fn start(mut self, served: &Arc<Served<F>>) -> io::Result<Vec<Thread>> {
        for start in &self.starts {
            // A thread that is gone is missed below.
            let _ = start.send(Arc::clone(served));
        }
        let said = self.all_said();
        // From now on they end with the mount.
        let mut threads = std::mem::take(&mut self.threads);
        said?;
        let drained = Arc::clone(served);
        threads.push(start_thread("crumb-forget".to_owned(), move || drain(&drained))?);
        Ok(threads)
    }
}

impl<F> Drop for Prepared<F> {
    fn drop(&mut self) {
        self.starts.clear();
        for thread in self.threads.drain(..) {
            // What it said was heard, or is not wanted.
            let _ = thread.join();
        }
    }
}

/// A thread: its ring, then its entries, then requests.
fn serve<F: Filesystem>(
    work: &Work,
    said: &Sender<io::Result<()>>,
    started: &Receiver<Arc<Served<F>>>,
) -> io::Result<()> {
    if let Some(cpu) = work.bound_to {
        let mut here = CpuSet::new();
        here.set(cpu);
        // It was ours a moment ago; elsewhere it is slower, and serves all the same.
        let _ = sched_setaffinity(None, &here);
    }
    // Nothing hears what is said after the first error.
    let mut ring = match FuseRing::new(&work.queues, PAYLOAD_BYTES_MIN) {
        Ok(ring) => ring,
        Err(error) => {
            let _ = said.send(Err(error));
            return Ok(());
        }
    };
    let _ = said.send(Ok(()));
    let Ok(served) = started.recv() else { return Ok(()) };
    let registered = served.device.as_fd().try_clone_to_owned().and_then(|device| ring.register(device));
    let is_registered = registered.is_ok();
    let _ = said.send(registered);
    if !is_registered {
        return Ok(());
    }
    let (mut request, list) = (Vec::new(), RefCell::default());
    ring.serve(|taken| answer(&served, taken, &mut request, &list))
}

/// `request` is memory for what was asked: the reply is written where it came from.
fn answer<F: Filesystem>(
    served: &Served<F>,
    taken: RingRequest<'_>,
    request: &mut Vec<u8>,
    list: &RefCell<Vec<u8>>,
) -> RingReply {
    let Ok(header) = Header::parse(taken.header) else {
        return RingReply { unique: 0, error: -Errno::EIO.code(), bytes: 0 };
    };
    request.clear();
    request.extend_from_slice(&taken.argument[..argument_bytes(header.opcode)]);
    request.extend_from_slice(&taken.payload[..taken.payload_bytes]);
    let sink = RingSink {
        payload: RefCell::new(taken.payload),
        sent: Cell::new(None),
        device: &served.device,
        list,
    };
    let dispatched = catch_unwind(AssertUnwindSafe(|| {
        dispatch(&served.filesystem, served.owner, &header, request, &sink);
    }));
    if dispatched.is_err() {
        tracing::error!("a request (operation {}) panicked and got EIO", header.opcode);
    }
    let (error, bytes) = sink.sent.get().unwrap_or((-Errno::EIO.code(), 0));
    RingReply { unique: header.unique, error, bytes }
}

/// Where replies go that are committed.
struct RingSink<'a> {
    payload: RefCell<&'a mut [u8]>,
    /// The error, 0 or a number below it, and the bytes of the result.
    sent: Cell<Option<(i32, usize)>>,
    device: &'a Device,
    list: &'a RefCell<Vec<u8>>,
}

impl Sink for RingSink<'_> {
    fn send(&self, _unique: u64, error: i32, parts: [&[u8]; 2]) {
        let bytes = parts[0].len() + parts[1].len();
        let mut payload = self.payload.borrow_mut();
        let (Some(room), 0) = (payload.get_mut(..bytes), error) else {
            return self.sent.set(Some((if error == 0 { -Errno::EIO.code() } else { error }, 0)));
        };
        let (first, second) = room.split_at_mut(parts[0].len());
        first.copy_from_slice(parts[0]);
        second.copy_from_slice(parts[1]);
        self.sent.set(Some((0, bytes)));
    }

    fn device(&self) -> &Device {
        self.device
    }

    fn bytes_max(&self) -> usize {
        self.payload.borrow().len()
    }

    fn list(&self) -> &RefCell<Vec<u8>> {
        self.list
    }
}

/// Takes what still comes by the device: the first at once, what follows it later, all together. An idle mount wakes no CPU.
fn drain<F: Filesystem>(served: &Served<F>) -> io::Result<()> {
    let sink = DeviceSink::new(&served.device);
    let mut buffer = device::request_buffer(served.max_write);
    loop {
        loop {
            let bytes = served.device.receive(&mut buffer)?;
            if bytes == 0 || device::one(served, &buffer[..bytes], &sink) == Next::End {
                return Ok(());
            }
            let mut polled = [PollFd::new(&served.device, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            if !poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0) {
                break;
            }
        }
        std::thread::sleep(DRAIN_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_cpus_are_counted_from_ranges() {
        assert_eq!(count("0-3,8"), Some(5));
        assert_eq!(count("0"), Some(1));
        for wrong in ["", "3-0", "a", "0-"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
        assert!(possible_cpus().unwrap() >= 1);
    }

    #[test]
    fn every_possible_cpu_has_an_entry_and_ours_have_threads_that_are_bound() {
        let made = works(4, |cpu| cpu < 2, 4);
        let bound = |cpu: usize| Work { queues: vec![cpu as u16], bound_to: Some(cpu) };
        let shared = Work { queues: vec![2, 3], bound_to: None };
        assert_eq!(made, [bound(0), bound(0), bound(1), bound(1), shared]);
        assert_eq!(
            works(2, |_| true, 1).len(),
            4,
            "two of a CPU, so that one that is held up holds up no other"
        );
        assert_eq!(works(2, |_| true, 8).len(), 8);
        let none = works(2, |_| false, 2);
        assert_eq!(none, [Work { queues: vec![0, 1], bound_to: None }]);
    }
}
