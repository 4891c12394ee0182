//! NFS over TCP: many calls in one write, replies read where they were received.
//!
//! ```text
//! submit -> out  | sent | record record record |  -> send     one per connection
//! deliver <- in  | record record reco|         |  <- receive
//! ```
//!
//! Always holds: a connection that breaks gives back its calls as `Lost` at the next poll, then reconnects;
//! while it is away, the others go on. A peer's lengths never size a buffer: a record over the bound breaks the
//! connection. A server that takes connections but answers nothing for too long is gone, too.

use std::{io, os::fd::OwnedFd, time::Duration};

use files::{
    Completion, Handle, HandleRef, NfsTarget, Outcome, Request, SubmitError, Ticket, Transport,
    TransportCounters, TransportError,
};
use quanta::{Clock, Instant};
use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    net::SendFlags,
};
use sys::Received;

use super::{
    ClientOptions, Mount, SourcePort,
    silence::Silence,
    slots::{Slots, count_bad_reply, read_reply},
    socket,
    stop_wait::StopWait,
    template::Template,
};
use crate::{NfsError, error::Peer, wire::record::RecordReader};

/// Queued bytes that are sent without waiting for a flush.
const SEND_BYTES: usize = 64 << 10;
/// Queued bytes beyond which nothing more is taken.
const OUT_BYTES_MAX: usize = 1 << 20;
/// Most bytes taken by one receive: replies handled under one timestamp, still in the cache.
const RECEIVE_BYTES: usize = 256 << 10;
/// What a record may have besides the data of one READ: heads, attributes, a listing.
const RECORD_OVERHEAD_BYTES: usize = 128 << 10;
/// Calls put on one connection before the next one's turn: enough for a write to be worth its price.
const RUN_CALLS: u32 = 16;
const BACKOFF_MIN: Duration = Duration::from_millis(10);
const BACKOFF_MAX: Duration = Duration::from_secs(1);

/// NFS over TCP.
pub(super) struct TcpTransport {
    clock: Clock,
    silence: Silence,
    template: Template,
    links: Vec<Link>,
    /// Index of the link that takes the next call, and how many it took in this run.
    turn: usize,
    run_calls: u32,
    root: Handle,
    io_bytes_max: u32,
    counters: TransportCounters,
    dial: Dial,
}

/// How connections are re-established.
struct Dial {
    target: String,
    peer: Peer,
    source_port: SourcePort,
    connect_timeout: Duration,
    reconnect_timeout: Duration,
    silence_timeout: Duration,
}

/// One connection, or the attempt to have one.
struct Link {
    state: LinkState,
    slots: Slots<()>,
    out: Vec<u8>,
    /// Bytes at the front of `out` that are sent.
    sent: usize,
    /// The socket took less than it was given; wait until it takes more.
    blocked: bool,
    received: Box<[u8]>,
    /// Bytes at the front of `received` that are part of a record still to come.
    filled: usize,
    records: RecordReader,
    /// Last time anything came in, or that nothing was awaited.
    heard: Instant,
    /// A reply came in since this was last looked at.
    replied: bool,
    /// Replies are to say when they arrived.
    wants_stamps: bool,
    /// The socket stamps what arrives.
    is_stamped: bool,
    trouble: Option<Trouble>,
}

enum LinkState {
    Up(OwnedFd),
    Connecting { socket: OwnedFd, deadline: Instant },
    Down { retry: Instant },
}

/// From a break until a reply comes in again.
struct Trouble {
    since: Instant,
    backoff: Duration,
    cause: io::Error,
}

impl TcpTransport {
    pub(super) fn open(
        target: &NfsTarget,
        mount: &Mount,
        options: &ClientOptions,
        clock: Clock,
    ) -> Result<Self, NfsError> {
        let peer = mount.peer();
        let record_bytes_max = mount.io_bytes_max() as usize + RECORD_OVERHEAD_BYTES;
        let mut links = Vec::with_capacity(usize::from(options.connections.get()));
        for _ in 0..options.connections.get() {
            let deadline = std::time::Instant::now() + options.connect_timeout;
            let mut stop = StopWait::begin(options.stop.as_ref());
            let slice = &mut |left| stop.slice(left);
            let socket = socket::connect_by(deadline, slice, peer.address, peer.proto, options.source_port)
                .map_err(|source| NfsError::Connect { peer, source })?
                .ok_or_else(|| NfsError::Interrupted { peer, waited: stop.waited() })?;
            links.push(Link::new(socket, options.in_flight_max.get(), record_bytes_max, clock.now()));
        }
        Ok(Self {
            clock,
            silence: Silence::new(options.reconnect_timeout),
            template: Template::new(&options.user.credential()),
            links,
            turn: 0,
            run_calls: 0,
            root: mount.root,
            io_bytes_max: mount.io_bytes_max(),
            counters: TransportCounters::default(),
            dial: Dial {
                target: target.to_string(),
                peer,
                source_port: options.source_port,
                connect_timeout: options.connect_timeout,
                reconnect_timeout: options.reconnect_timeout,
                silence_timeout: options.silence_timeout,
            },
        })
    }

    #[inline]
    fn next_turn(&mut self) {
        self.run_calls = 0;
        self.turn += 1;
        if self.turn == self.links.len() {
            self.turn = 0;
        }
    }

    /// Waits for any link, at most for `left`.
    fn wait(&self, left: Duration, now: Instant) -> Result<(), TransportError> {
        let mut left = left.min(self.silence.left(now));
        let mut fds = Vec::with_capacity(self.links.len());
        for link in &self.links {
            match &link.state {
                LinkState::Up(socket) => {
                    let out = if link.blocked { PollFlags::OUT } else { PollFlags::empty() };
                    fds.push(PollFd::new(socket, PollFlags::IN | out));
                    if link.slots.in_flight() > 0 {
                        let silent_at = link.heard + self.dial.silence_timeout;
                        left = left.min(silent_at.saturating_duration_since(now));
                    }
                }
                LinkState::Connecting { socket, deadline } => {
                    fds.push(PollFd::new(socket, PollFlags::OUT));
                    left = left.min(deadline.saturating_duration_since(now));
                }
                LinkState::Down { retry } => left = left.min(retry.saturating_duration_since(now)),
            }
        }
        socket::wait_any(&mut fds, left).map_err(|source| TransportError::Io {
            target: self.dial.target.clone(),
            what: "waiting for the server",
            source,
        })
    }

    /// The server is as good as gone: gives back what is in flight, then says so.
    #[cold]
    fn give_up(
        &mut self,
        lasted: Duration,
        now: Instant,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> TransportError {
        for link in self.links.iter_mut().filter(|link| link.slots.in_flight() > 0) {
            // Replies that come yet would find calls that nobody knows any more.
            link.break_down(io::ErrorKind::TimedOut.into(), now);
            link.give_up_calls(&self.clock, deliver);
        }
        TransportError::Silent { target: self.dial.target.clone(), waited_s: lasted.as_secs_f64() }
    }

    /// Brings links back that are down, as far as that needs no waiting.
    #[cold]
    fn mend(&mut self, now: Instant) -> Result<(), TransportError> {
        for link in &mut self.links {
            if link.mend(&self.dial, now) {
                self.counters.reconnects += 1;
            }
        }
        if self.is_connected() {
            return Ok(());
        }
        for link in &mut self.links {
            if let Some(trouble) = &mut link.trouble {
                let waited = now.saturating_duration_since(trouble.since);
                if waited >= self.dial.reconnect_timeout {
                    return Err(TransportError::Disconnected {
                        target: self.dial.target.clone(),
                        waited_s: waited.as_secs_f64(),
                        source: std::mem::replace(&mut trouble.cause, Errno::NOTCONN.into()),
                    });
                }
            }
        }
        Ok(())
    }
}

impl Transport for TcpTransport {
    fn submit(&mut self, ticket: Ticket, request: &Request<'_>) -> Result<(), SubmitError> {
        if self.run_calls == RUN_CALLS {
            self.next_turn();
        }
        for _ in 0..self.links.len() {
            let link = &mut self.links[self.turn];
            if link.has_room()
                && let Some((_, slot)) = link.slots.take(ticket, request.kind())
            {
                self.template.put_record(&mut link.out, slot.xid, request);
                if link.out.len() - link.sent >= SEND_BYTES && !link.blocked {
                    link.send(&mut self.counters, &self.clock);
                }
                self.run_calls += 1;
                return Ok(());
            }
            self.next_turn();
        }
        Err(SubmitError::Full)
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        for link in &mut self.links {
            link.send(&mut self.counters, &self.clock);
        }
        if self.run_calls > 0 {
            self.next_turn();
        }
        Ok(())
    }

    fn poll(
        &mut self,
        until: Option<Instant>,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> Result<usize, TransportError> {
        loop {
            let mut delivered = 0;
            for link in &mut self.links {
                link.send(&mut self.counters, &self.clock);
                delivered += link.receive(&self.clock, &mut self.counters, deliver);
                if std::mem::take(&mut link.replied) {
                    self.silence.end();
                }
            }
            if delivered > 0 {
                return Ok(delivered);
            }
            let now = self.clock.now();
            if let Some(lasted) = self.silence.goes_on(now, self.in_flight()) {
                return Err(self.give_up(lasted, now, deliver));
            }
            let mut all_up = true;
            for link in &mut self.links {
                link.check_silence(now, self.dial.silence_timeout);
                all_up &= link.is_up();
            }
            // What a break left behind is delivered first: on the connection made next no reply to it comes.
            if self.links.iter().any(|link| !link.is_up() && link.slots.in_flight() > 0) {
                continue;
            }
            if !all_up {
                self.mend(now)?;
            }
            match until.map(|until| until.saturating_duration_since(now)).filter(|left| !left.is_zero()) {
                Some(left) => self.wait(left, now)?,
                None => return Ok(0),
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.links.iter().map(|link| link.slots.in_flight()).sum()
    }

    fn is_connected(&self) -> bool {
        self.links.iter().any(Link::is_up)
    }

    fn root(&self) -> HandleRef<'_> {
        self.root.by_ref()
    }

    fn io_bytes_max(&self) -> u32 {
        self.io_bytes_max
    }

    fn stamp_arrivals(&mut self, wanted: bool) {
        self.links.iter_mut().for_each(|link| link.stamp_arrivals(wanted));
    }

    fn counters(&self) -> TransportCounters {
        self.counters
    }
}

impl Link {
    fn new(socket: OwnedFd, in_flight_max: u16, record_bytes_max: usize, now: Instant) -> Self {
        Self {
            state: LinkState::Up(socket),
            slots: Slots::new(in_flight_max),
            out: Vec::with_capacity(2 * SEND_BYTES),
            sent: 0,
            blocked: false,
            received: vec![0; record_bytes_max + RECEIVE_BYTES].into_boxed_slice(),
            filled: 0,
            records: RecordReader::new(record_bytes_max),
            heard: now,
            replied: false,
            wants_stamps: false,
            is_stamped: false,
            trouble: None,
        }
    }

    fn stamp_arrivals(&mut self, wanted: bool) {
        self.wants_stamps = wanted;
        if let LinkState::Up(socket) = &self.state {
            self.is_stamped = socket::stamp_arrivals(socket, wanted);
        }
    }

    #[inline]
    fn is_up(&self) -> bool {
        matches!(self.state, LinkState::Up(_))
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.is_up() && self.out.len() - self.sent < OUT_BYTES_MAX
    }

    /// Sends what is queued, as far as the socket takes it.
    #[inline]
    fn send(&mut self, counters: &mut TransportCounters, clock: &Clock) {
        if self.sent < self.out.len() {
            self.send_some(counters, clock);
        }
    }

    fn send_some(&mut self, counters: &mut TransportCounters, clock: &Clock) {
        let LinkState::Up(socket) = &self.state else { return };
        while self.sent < self.out.len() {
            match rustix::net::send(socket, &self.out[self.sent..], SendFlags::NOSIGNAL) {
                Ok(bytes) => {
                    self.sent += bytes;
                    counters.sent_bytes += bytes as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.blocked = true;
                    if self.sent >= SEND_BYTES {
                        self.out.drain(..self.sent);
                        self.sent = 0;
                    }
                    return;
                }
                Err(errno) => return self.break_down(errno.into(), clock.now()),
            }
        }
        self.blocked = false;
        self.out.clear();
        self.sent = 0;
    }

    /// Receives once and delivers what has come in whole.
    #[inline]
    fn receive(
        &mut self,
        clock: &Clock,
        counters: &mut TransportCounters,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> usize {
        let LinkState::Up(socket) = &self.state else { return self.give_up_calls(clock, deliver) };
        let room = self.filled..(self.filled + RECEIVE_BYTES).min(self.received.len());
        let received = socket::receive(socket, &mut self.received[room], self.is_stamped);
        let Received { bytes, waited } = match received {
            Ok(Received { bytes: 0, .. }) => {
                self.break_down(io::ErrorKind::ConnectionReset.into(), clock.now());
                return self.give_up_calls(clock, deliver);
            }
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return 0,
            Err(errno) => {
                self.break_down(errno.into(), clock.now());
                return self.give_up_calls(clock, deliver);
            }
        };
        let done = clock.now();
        let arrived = waited.and_then(|waited| done.checked_sub(waited));
        self.heard = done;
        counters.received_bytes += bytes as u64;
        let filled = self.filled + bytes;
        let mut rest = &self.received[..filled];
        let mut delivered = 0;
        loop {
            match self.records.next(&mut rest) {
                Ok(Some(message)) => match read_reply(&self.slots, message) {
                    Some((index, outcome)) => {
                        let ticket = self.slots[index].ticket;
                        self.slots.release(index);
                        deliver(Completion { ticket, outcome, retransmits: 0, done, arrived, began: None });
                        delivered += 1;
                    }
                    None => count_bad_reply(message, counters),
                },
                Ok(None) => break,
                Err(error) => {
                    self.replied |= delivered > 0;
                    counters.bad_replies += 1;
                    counters.garbage += 1;
                    self.break_down(io::Error::new(io::ErrorKind::InvalidData, error), done);
                    return delivered + self.give_up_calls(clock, deliver);
                }
            }
        }
        let left = rest.len();
        if left > 0 && left < filled {
            self.received.copy_within(filled - left..filled, 0);
        }
        self.filled = left;
        if delivered > 0 {
            self.trouble = None;
            self.replied = true;
        }
        delivered
    }

    /// A server that is connected but answers nothing for long is as good as gone.
    #[inline]
    fn check_silence(&mut self, now: Instant, silence_timeout: Duration) {
        if self.slots.in_flight() == 0 {
            self.heard = now;
        } else if self.is_up() && now.saturating_duration_since(self.heard) >= silence_timeout {
            self.break_down(io::ErrorKind::TimedOut.into(), now);
        }
    }

    #[cold]
    fn break_down(&mut self, cause: io::Error, now: Instant) {
        self.out.clear();
        self.sent = 0;
        self.blocked = false;
        self.filled = 0;
        self.records.reset();
        match &mut self.trouble {
            // Broke again before any reply came: slow down, so that a server that drops every caller is not flooded.
            Some(trouble) => {
                tracing::debug!(%cause, in_flight = self.slots.in_flight(), "connection to the NFS server broke again");
                trouble.cause = cause;
                trouble.backoff = (2 * trouble.backoff).min(BACKOFF_MAX);
                self.state = LinkState::Down { retry: now + trouble.backoff };
            }
            None => {
                tracing::warn!(%cause, in_flight = self.slots.in_flight(), "connection to the NFS server broke");
                self.trouble = Some(Trouble { since: now, backoff: BACKOFF_MIN, cause });
                self.state = LinkState::Down { retry: now };
            }
        }
    }

    #[cold]
    fn give_up_calls(&mut self, clock: &Clock, deliver: &mut dyn FnMut(Completion<'_>)) -> usize {
        let done = clock.now();
        self.slots.release_all(|ticket| {
            deliver(Completion {
                ticket,
                outcome: Outcome::Lost,
                retransmits: 0,
                done,
                arrived: None,
                began: None,
            });
        })
    }

    /// Continues connecting; returns whether the link came up.
    fn mend(&mut self, dial: &Dial, now: Instant) -> bool {
        match &self.state {
            LinkState::Up(_) => return false,
            LinkState::Down { retry } if now < *retry => return false,
            LinkState::Down { .. } => {
                match socket::begin_connect(dial.peer.address, dial.peer.proto, dial.source_port) {
                    Ok(socket) => {
                        let deadline = now + dial.connect_timeout;
                        self.state = LinkState::Connecting { socket, deadline };
                    }
                    Err(cause) => {
                        self.break_down(cause, now);
                        return false;
                    }
                }
            }
            LinkState::Connecting { .. } => {}
        }
        let LinkState::Connecting { socket, deadline } = &self.state else { return false };
        match socket::outcome(socket) {
            Some(Ok(())) => {
                let retry = LinkState::Down { retry: now };
                if let LinkState::Connecting { socket, .. } = std::mem::replace(&mut self.state, retry) {
                    self.is_stamped = self.wants_stamps && socket::stamp_arrivals(&socket, true);
                    self.state = LinkState::Up(socket);
                }
                self.heard = now;
                true
            }
            Some(Err(cause)) => {
                self.break_down(cause, now);
                false
            }
            None if now >= *deadline => {
                self.break_down(io::ErrorKind::TimedOut.into(), now);
                false
            }
            None => false,
        }
    }
}
