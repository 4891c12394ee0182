//! Reads of files that an event loop does not wait for: io_uring(7), one ring a loop.
//!
//! ```text
//! read ─ in the page cache? ─┬─ yes ─────────────────────────────────────> done within the call
//!                            └─ no ─> disk ─> ring readable ─> `attend` ─> who asked is woken
//! ```
//!
//! Always holds: memory that the kernel may write to belongs to the ring, and to nobody else before the kernel has said that it
//! is done with it, whether who asked still waits or not.
//! Not here: what to do where the kernel has no rings.

#![expect(unsafe_code, reason = "the kernel writes to memory while the program goes on")]

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, RawFd};
use std::rc::Rc;
use std::task::{Poll, Waker};

use io_uring::{IoUring, opcode, types};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Reads that can wait to be handed over; each is handed over as it comes.
const ENTRIES: u32 = 64;
/// Reads that can be done before we look; of more the kernel keeps note itself.
const DONE_ENTRIES: u32 = 1024;

/// The reads of one loop. What is not done when it is dropped is waited for.
pub struct Reads {
    /// Before the ring, whose descriptor it watches.
    ready: AsyncFd<RawFd>,
    ring: RefCell<IoUring>,
    slots: RefCell<Slots>,
}

fn ring() -> io::Result<IoUring> {
    let mut how = IoUring::builder();
    // What the kernel has to do for a read in our thread it does when that enters it anyway.
    how.setup_single_issuer().setup_coop_taskrun().setup_cqsize(DONE_ENTRIES);
    how.build(ENTRIES)
}

impl Reads {
    /// For the loop of this thread, a tokio `LocalSet`; nothing where the kernel has no rings (before 6.0, or forbidden).
    pub fn start() -> Option<Rc<Self>> {
        let ring = ring().inspect_err(|error| tracing::debug!(%error, "no io_uring")).ok()?;
        // SAFETY: `ready` watches the ring's own descriptor, and is dropped before `ring`, the field after it.
        let ready = unsafe { AsyncFd::register_with_interest(ring.as_raw_fd(), Interest::READABLE) }.ok()?;
        let reads = Rc::new(Self { ready, ring: RefCell::new(ring), slots: RefCell::default() });
        tokio::task::spawn_local(Rc::clone(&reads).attend());
        Some(reads)
    }

    /// Whether [`Reads::start`] would start here.
    pub fn are_possible() -> bool {
        ring().is_ok()
    }

    /// Reads this many bytes from an offset on; fewer where the file ends.
    ///
    /// # Errors
    /// What pread(2) knows; when the kernel takes no more reads.
    pub async fn read(&self, file: &impl AsFd, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let asked = self.ask(file, offset, bytes)?;
        poll_fn(|context| asked.poll(context.waker())).await
    }

    fn ask(&self, file: &impl AsFd, offset: u64, bytes: usize) -> io::Result<Asked<'_>> {
        let length = u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut memory = Vec::with_capacity(bytes);
        let address = memory.as_mut_ptr();
        let file = types::Fd(file.as_fd().as_raw_fd());
        let at = self.slots.borrow_mut().take(memory);
        let entry = opcode::Read::new(file, address, length).offset(offset).build().user_data(at as u64);
        let mut ring = self.ring.borrow_mut();
        // SAFETY: `address` begins `length` bytes that the slot owns. A slot is emptied only once the kernel is done with it:
        // by `finish`, or by who asked after `finish` said so; and `Reads::drop` waits for all. `file` is borrowed for longer
        // than `submit` takes, after which the kernel holds it itself; what `submit` failed to hand over is read into the slot
        // all the same, and forgotten.
        if unsafe { ring.submission().push(&entry) }.is_err() {
            self.slots.borrow_mut().empty(at);
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let submitted = ring.submit();
        drop(ring);
        let asked = Asked { reads: self, at };
        submitted?;
        self.finish();
        Ok(asked)
    }

    /// Reports to the callers what the kernel has done.
    fn finish(&self) {
        let (mut ring, mut slots) = (self.ring.borrow_mut(), self.slots.borrow_mut());
        loop {
            for done in ring.completion() {
                slots.done(done.user_data() as usize, done.result());
            }
            // There were more than it had room to tell.
            if !ring.submission().cq_overflow() || ring.submit().is_err() {
                break;
            }
        }
    }

    async fn attend(self: Rc<Self>) {
        while let Ok(mut ready) = self.ready.readable().await {
            // First, so that the kernel signals again what completes from now on.
            ready.clear_ready();
            self.finish();
        }
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        while self.slots.borrow().are_the_kernels() {
            match self.ring.borrow().submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    // Better lost than taken from the kernel.
                    std::mem::forget(self.slots.take());
                    return;
                }
                _ => {}
            }
            self.finish();
        }
    }
}

/// One read, as its caller sees it; it continues without the caller.
struct Asked<'a> {
    reads: &'a Reads,
    at: usize,
}

impl Asked<'_> {
    fn poll(&self, waker: &Waker) -> Poll<io::Result<Vec<u8>>> {
        let mut slots = self.reads.slots.borrow_mut();
        let Slot { bytes, state } = &mut slots.all[self.at];
        match state {
            State::Asked(waiting) => {
                *waiting = Some(waker.clone());
                Poll::Pending
            }
            State::Done(result) if *result < 0 => Poll::Ready(Err(io::Error::from_raw_os_error(-*result))),
            State::Done(result) => {
                let mut bytes = std::mem::take(bytes);
                // SAFETY: the kernel has written this many bytes to its beginning, and was given no more room than there is.
                unsafe { bytes.set_len(*result as usize) };
                *state = State::Done(0);
                Poll::Ready(Ok(bytes))
            }
            State::Free | State::Left => unreachable!("who asked is there"),
        }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut slots = self.reads.slots.borrow_mut();
        match &mut slots.all[self.at].state {
            State::Done(_) => slots.empty(self.at),
            state => *state = State::Left,
        }
    }
}

/// The memory of all reads.
#[derive(Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<usize>,
}

struct Slot {
    /// Of no length, for the kernel to fill.
    bytes: Vec<u8>,
    state: State,
}

enum State {
    Free,
    /// The kernel's, for who waits.
    Asked(Option<Waker>),
    /// The kernel's, for nobody.
    Left,
    /// With this result, as of the system call.
    Done(i32),
}

impl Slots {
    fn take(&mut self, bytes: Vec<u8>) -> usize {
        let slot = Slot { bytes, state: State::Asked(None) };
        match self.free.pop() {
            Some(at) => {
                self.all[at] = slot;
                at
            }
            None => {
                self.all.push(slot);
                self.all.len() - 1
            }
        }
    }

    fn empty(&mut self, at: usize) {
        self.all[at] = Slot { bytes: Vec::new(), state: State::Free };
        self.free.push(at);
    }

    fn done(&mut self, at: usize, result: i32) {
        match std::mem::replace(&mut self.all[at].state, State::Done(result)) {
            State::Asked(waiting) => {
                if let Some(waiting) = waiting {
                    waiting.wake();
                }
            }
            _ => self.empty(at),
        }
    }

    fn are_the_kernels(&self) -> bool {
        self.all.iter().any(|slot| matches!(slot.state, State::Asked(_) | State::Left))
    }
}
