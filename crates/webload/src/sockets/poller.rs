//! Waiting for many sockets at once, and for a moment, whichever comes first.
//!
//! Epoll's own time-out is in milliseconds and up to one late, so the wait is a `ppoll` on the epoll descriptor. Who needs
//! a moment more exactly than sleepers meet it ends the sleep earlier and looks until then (`harness::open_loop::Pacer`).

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Events taken at once.
const EVENTS_MAX: usize = 512;

/// The events to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    ReadWrite,
}

/// A socket that something can be done with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub token: u64,
    pub readable: bool,
    pub writable: bool,
}

pub(crate) struct Poller {
    epoll: OwnedFd,
}

/// What a wait brings; it stays with the thread that waits.
pub(crate) struct Batch {
    events: Vec<Event>,
    pub ready: Vec<Ready>,
}

impl Batch {
    pub fn new() -> Self {
        Self { events: Vec::with_capacity(EVENTS_MAX), ready: Vec::with_capacity(EVENTS_MAX) }
    }
}

impl Poller {
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    pub fn add(&self, socket: impl AsFd, token: u64, interest: Interest) -> std::io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(token), flags(interest))?)
    }

    pub fn change(&self, socket: impl AsFd, token: u64, interest: Interest) -> std::io::Result<()> {
        Ok(epoll::modify(&self.epoll, socket, EventData::new_u64(token), flags(interest))?)
    }

    /// Puts the sockets that are ready now into the batch. How many.
    pub fn look(&self, batch: &mut Batch) -> std::io::Result<usize> {
        batch.ready.clear();
        self.take(batch)
    }

    /// Sleeps until a socket is ready, no longer than until the moment, and puts the ready ones into the batch. How many.
    pub fn wait(&self, until: Instant, batch: &mut Batch) -> std::io::Result<usize> {
        batch.ready.clear();
        loop {
            let ready = self.take(batch)?;
            let left = until.saturating_duration_since(Instant::now());
            if ready > 0 || left.is_zero() {
                return Ok(ready);
            }
            self.sleep(left)?;
        }
    }

    fn sleep(&self, span: Duration) -> std::io::Result<()> {
        let span = Timespec { tv_sec: span.as_secs() as i64, tv_nsec: i64::from(span.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], Some(&span)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take(&self, batch: &mut Batch) -> std::io::Result<usize> {
        batch.events.clear();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut batch.events), Some(&now)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &batch.events {
            let Event { flags, data, .. } = *event;
            let ended = flags.intersects(EventFlags::ERR | EventFlags::HUP | EventFlags::RDHUP);
            batch.ready.push(Ready {
                token: data.u64(),
                readable: ended || flags.contains(EventFlags::IN),
                writable: ended || flags.contains(EventFlags::OUT),
            });
        }
        Ok(batch.ready.len())
    }
}

fn flags(interest: Interest) -> EventFlags {
    match interest {
        Interest::Read => EventFlags::IN,
        Interest::ReadWrite => EventFlags::IN | EventFlags::OUT,
    }
}
