//! NFS over UDP: a datagram a call, sent again with the same XID when no reply comes in time.
//!
//! ```text
//! waiting calls, by retransmissions so far:  [0] oldest <-> ... <-> newest
//!                                            [1] ...          deadlines rise along each list
//! ```
//!
//! All calls sent equally often wait equally long, so each list is in order of its deadlines as calls are appended:
//! the next one due is found, and an answered one taken out, in constant time.
//!
//! Always holds: a call in flight keeps its encoded bytes until it ends; a send that the socket does not take now is
//! queued, and one that fails is a lost datagram; a reply to a call that has ended counts as a bad reply; a server that
//! answers nothing for too long is gone, however many calls were cancelled and repeated meanwhile.

use std::{collections::VecDeque, os::fd::OwnedFd, time::Duration};

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
    ClientOptions, Mount, UdpOptions,
    silence::Silence,
    slots::{Slots, count_bad_reply, read_reply},
    socket,
    template::Template,
};
use crate::NfsError;

/// The longest UDP datagram, and a little.
const DATAGRAM_BYTES: usize = 64 << 10;
/// Datagrams taken from one socket before the next one's turn, and before due retransmissions.
const RECEIVE_RUN: usize = 64;
const NONE: u32 = u32::MAX;

/// NFS over UDP.
pub(super) struct UdpTransport {
    target: String,
    clock: Clock,
    udp: UdpOptions,
    silence: Silence,
    template: Template,
    links: Vec<Link>,
    turn: usize,
    datagram: Box<[u8]>,
    root: Handle,
    io_bytes_max: u32,
    counters: TransportCounters,
}

struct Link {
    socket: OwnedFd,
    /// It stamps what arrives.
    is_stamped: bool,
    slots: Slots<Waiting>,
    /// By retransmissions so far.
    waiting: Vec<List>,
    /// Slots, with the XID they then had, whose datagram the socket did not take yet.
    unsent: VecDeque<(u32, u32)>,
}

/// What a call needs to be sent again, and its place in a list.
struct Waiting {
    call: Vec<u8>,
    retransmits: u32,
    deadline: Option<Instant>,
    earlier: u32,
    later: u32,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { call: Vec::new(), retransmits: 0, deadline: None, earlier: NONE, later: NONE }
    }
}

/// Ends of a doubly linked list through the slots.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

impl UdpTransport {
    pub(super) fn open(
        target: &NfsTarget,
        mount: &Mount,
        options: &ClientOptions,
        clock: Clock,
    ) -> Result<Self, NfsError> {
        let peer = mount.peer();
        let mut links = Vec::with_capacity(usize::from(options.connections.get()));
        for _ in 0..options.connections.get() {
            let socket = socket::begin_connect(peer.address, peer.proto, options.source_port)
                .map_err(|source| NfsError::Connect { peer, source })?;
            let levels = usize::from(options.udp.retransmits_max) + 1;
            links.push(Link {
                socket,
                is_stamped: false,
                slots: Slots::new(options.in_flight_max.get()),
                waiting: vec![List { first: NONE, last: NONE }; levels],
                unsent: VecDeque::new(),
            });
        }
        Ok(Self {
            target: target.to_string(),
            clock,
            udp: options.udp,
            // What was not sent at least twice may just have been lost on its way.
            silence: Silence::new(
                options
                    .reconnect_timeout
                    .max(options.udp.timeout_after(0).saturating_add(options.udp.timeout_after(1))),
            ),
            template: Template::new(&options.user.credential()),
            links,
            turn: 0,
            datagram: vec![0; DATAGRAM_BYTES].into_boxed_slice(),
            root: mount.root,
            io_bytes_max: mount.io_bytes_max(),
            counters: TransportCounters::default(),
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
        for link in &mut self.links {
            link.give_up(now, deliver);
        }
        TransportError::Silent { target: self.target.clone(), waited_s: lasted.as_secs_f64() }
    }

    fn wait(&self, left: Duration, now: Instant) -> Result<(), TransportError> {
        let mut left = left.min(self.silence.left(now));
        let mut fds = Vec::with_capacity(self.links.len());
        for link in &self.links {
            let out = if link.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::new(&link.socket, PollFlags::IN | out));
            if let Some(deadline) = link.next_deadline() {
                left = left.min(deadline.saturating_duration_since(now));
            }
        }
        socket::wait_any(&mut fds, left).map_err(|source| TransportError::Io {
            target: self.target.clone(),
            what: "waiting for the server",
            source,
        })
    }
}

impl Transport for UdpTransport {
    fn submit(&mut self, ticket: Ticket, request: &Request<'_>) -> Result<(), SubmitError> {
        for _ in 0..self.links.len() {
            let turn = self.turn;
            self.turn = if turn + 1 == self.links.len() { 0 } else { turn + 1 };
            let link = &mut self.links[turn];
            if let Some((index, slot)) = link.slots.take(ticket, request.kind()) {
                slot.extra.retransmits = 0;
                self.template.put_datagram(&mut slot.extra.call, slot.xid, request);
                link.send(index, &mut self.counters);
                link.append(index, self.clock.now() + self.udp.timeout_after(0));
                return Ok(());
            }
        }
        Err(SubmitError::Full)
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        for link in &mut self.links {
            link.send_queued(&mut self.counters);
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
                link.send_queued(&mut self.counters);
                delivered += link.receive(&mut self.datagram, &self.clock, &mut self.counters, deliver);
            }
            if delivered > 0 {
                self.silence.end();
            }
            let now = self.clock.now();
            for link in &mut self.links {
                delivered += link.expire(now, &self.udp, &mut self.counters, deliver);
            }
            if delivered > 0 {
                return Ok(delivered);
            }
            if let Some(lasted) = self.silence.goes_on(now, self.in_flight()) {
                return Err(self.give_up(lasted, now, deliver));
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

    fn root(&self) -> HandleRef<'_> {
        self.root.by_ref()
    }

    fn io_bytes_max(&self) -> u32 {
        self.io_bytes_max
    }

    fn stamp_arrivals(&mut self, wanted: bool) {
        for link in &mut self.links {
            link.is_stamped = socket::stamp_arrivals(&link.socket, wanted);
        }
    }

    fn counters(&self) -> TransportCounters {
        self.counters
    }
}

impl Link {
    /// Sends a call's datagram, or queues it behind those that wait for room in the socket.
    #[inline]
    fn send(&mut self, index: u32, counters: &mut TransportCounters) {
        if !self.unsent.is_empty() || !self.send_now(index, counters) {
            self.unsent.push_back((index, self.slots[index].xid));
        }
    }

    /// Returns whether the socket was done with the datagram.
    #[inline]
    fn send_now(&mut self, index: u32, counters: &mut TransportCounters) -> bool {
        let call = &self.slots[index].extra.call;
        loop {
            return match rustix::net::send(&self.socket, call, SendFlags::NOSIGNAL) {
                Ok(bytes) => {
                    counters.sent_bytes += bytes as u64;
                    true
                }
                Err(Errno::AGAIN) => false,
                Err(Errno::INTR) => continue,
                // Such as ECONNREFUSED, which reports on an earlier datagram: nobody listens just now. The datagram is
                // lost like one on the way; the time-out sees to it.
                Err(_) => true,
            };
        }
    }

    #[inline]
    fn send_queued(&mut self, counters: &mut TransportCounters) {
        while let Some((index, xid)) = self.unsent.front().copied() {
            let slot = &self.slots[index];
            if slot.busy && slot.xid == xid && !self.send_now(index, counters) {
                return;
            }
            self.unsent.pop_front();
        }
    }

    #[inline]
    fn receive(
        &mut self,
        datagram: &mut [u8],
        clock: &Clock,
        counters: &mut TransportCounters,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> usize {
        let mut delivered = 0;
        for _ in 0..RECEIVE_RUN {
            let received = socket::receive(&self.socket, &mut *datagram, self.is_stamped);
            let Received { bytes, waited } = match received {
                Ok(received) => received,
                Err(Errno::AGAIN) => break,
                // ECONNREFUSED and the like tell of a lost datagram, and there may be replies behind.
                Err(_) => continue,
            };
            let (message, done) = (&datagram[..bytes], clock.now());
            let arrived = waited.and_then(|waited| done.checked_sub(waited));
            counters.received_bytes += message.len() as u64;
            match read_reply(&self.slots, message) {
                Some((index, outcome)) => {
                    let slot = &self.slots[index];
                    let (ticket, retransmits) = (slot.ticket, slot.extra.retransmits);
                    self.end(index);
                    deliver(Completion { ticket, outcome, retransmits, done, arrived, began: None });
                    delivered += 1;
                }
                None => count_bad_reply(message, counters),
            }
        }
        delivered
    }

    /// Sends again what waited long enough, and gives up what was sent often enough.
    #[inline]
    fn expire(
        &mut self,
        now: Instant,
        udp: &UdpOptions,
        counters: &mut TransportCounters,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> usize {
        let mut cancelled = 0;
        for level in 0..self.waiting.len() {
            while let Some(index) = self.first_due(level, now) {
                self.unlink(index);
                let slot = &mut self.slots[index];
                if slot.extra.retransmits == u32::from(udp.retransmits_max) {
                    let (ticket, retransmits) = (slot.ticket, slot.extra.retransmits);
                    self.slots.release(index);
                    let (outcome, arrived) = (Outcome::Cancelled, None);
                    deliver(Completion { ticket, outcome, retransmits, done: now, arrived, began: None });
                    cancelled += 1;
                } else {
                    slot.extra.retransmits += 1;
                    let timeout = udp.timeout_after(slot.extra.retransmits);
                    counters.retransmits += 1;
                    self.send(index, counters);
                    self.append(index, now + timeout);
                }
            }
        }
        cancelled
    }

    #[cold]
    fn give_up(&mut self, now: Instant, deliver: &mut dyn FnMut(Completion<'_>)) {
        self.waiting.fill(List { first: NONE, last: NONE });
        self.unsent.clear();
        self.slots.release_all(|ticket| {
            deliver(Completion {
                ticket,
                outcome: Outcome::Lost,
                retransmits: 0,
                done: now,
                arrived: None,
                began: None,
            });
        });
    }

    #[inline]
    fn first_due(&self, level: usize, now: Instant) -> Option<u32> {
        let first = self.waiting[level].first;
        (first != NONE && self.slots[first].extra.deadline.is_some_and(|deadline| deadline <= now))
            .then_some(first)
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.waiting
            .iter()
            .filter(|list| list.first != NONE)
            .filter_map(|list| self.slots[list.first].extra.deadline)
            .min()
    }

    #[inline]
    fn end(&mut self, index: u32) {
        self.unlink(index);
        self.slots.release(index);
    }

    /// Appends a call to the list of those sent as often.
    #[inline]
    fn append(&mut self, index: u32, deadline: Instant) {
        let waiting = &mut self.slots[index].extra;
        let list = &mut self.waiting[waiting.retransmits as usize];
        waiting.deadline = Some(deadline);
        waiting.later = NONE;
        waiting.earlier = list.last;
        let last = std::mem::replace(&mut list.last, index);
        match last {
            NONE => list.first = index,
            last => self.slots[last].extra.later = index,
        }
    }

    #[inline]
    fn unlink(&mut self, index: u32) {
        let waiting = &self.slots[index].extra;
        let (earlier, later) = (waiting.earlier, waiting.later);
        let list = &mut self.waiting[waiting.retransmits as usize];
        match earlier {
            NONE => list.first = later,
            earlier => self.slots[earlier].extra.later = later,
        }
        match later {
            NONE => list.last = earlier,
            later => self.slots[later].extra.earlier = earlier,
        }
    }
}
