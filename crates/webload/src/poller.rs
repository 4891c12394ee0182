//! Waiting for many sockets at once, and for a moment, whichever comes first.
//!
//! Epoll's own time-out is in milliseconds and up to one late, so the wait is a `ppoll` on the epoll descriptor until
//! shortly before the moment, and the rest is spun: sleepers come 50 to 100 microseconds late.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Events taken at once.
const EVENTS_MAX: usize = 512;
/// How long before the moment to begin to spin, where it is worth it.
const SPIN: Duration = Duration::from_micros(60);

/// What to be told of.
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
    /// Whether to spin before a moment.
    exact: bool,
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
    pub fn new(exact: bool) -> std::io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, exact })
    }

    pub fn add(&self, socket: impl AsFd, token: u64, interest: Interest) -> std::io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(token), flags(interest))?)
    }

    pub fn change(&self, socket: impl AsFd, token: u64, interest: Interest) -> std::io::Result<()> {
        Ok(epoll::modify(&self.epoll, socket, EventData::new_u64(token), flags(interest))?)
    }

    /// Waits for sockets, no longer than until the moment, and puts the ready ones into the batch. How long it had
    /// nothing to do: none of that is work.
    pub fn wait(&self, until: Instant, batch: &mut Batch) -> std::io::Result<Duration> {
        batch.ready.clear();
        if self.take(batch)? > 0 {
            return Ok(Duration::ZERO);
        }
        let idle_from = Instant::now();
        loop {
            let now = Instant::now();
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                return Ok(now - idle_from);
            }
            let sleep = if self.exact { left.saturating_sub(SPIN) } else { left };
            if !sleep.is_zero() {
                self.sleep(sleep)?;
            }
            let before = Instant::now();
            if self.take(batch)? > 0 {
                return Ok(before - idle_from);
            }
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
