//! One call at a time, blocking, with a time-out: for mounting, pings and lists of exports, not for load.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use files::{Reply, Request, Status};
use rustix::{event::PollFlags, io::Errno, net::SendFlags};

use super::stop_wait::StopWait;
use super::{ClientOptions, socket};
use crate::{
    NfsError,
    error::Peer,
    wire::{WireError, nfs3, record, rpc},
};

/// Longest answer taken, bytes: a READ of 1 MiB, or some 10,000 exports.
const ANSWER_BYTES_MAX: usize = (1 << 20) + (1 << 16);
const RECEIVE_BYTES: usize = 1 << 16;

/// A connection to one service for one call at a time.
#[derive(Debug)]
pub struct Control {
    peer: Peer,
    socket: OwnedFd,
    credential: rpc::AuthSys,
    timeout: Duration,
    stop: Option<Arc<AtomicBool>>,
    udp: super::UdpOptions,
    xid: u32,
    call: Vec<u8>,
    received: Vec<u8>,
    /// Bytes of `received` that hold something; the rest is room, zeroed once and used again.
    received_bytes: usize,
    retransmits: u32,
    records: record::RecordReader,
    answer: Vec<u8>,
}

/// What one call cost on the wire; RPC headers are counted, those below are not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    pub sent_bytes: usize,
    pub received_bytes: usize,
    /// Times that it was sent again.
    pub retransmits: u32,
}

impl Control {
    /// Connects to a service.
    ///
    /// # Errors
    /// When there is no connection within the options' `connect_timeout`, or the caller was asked to stop.
    pub fn connect(peer: Peer, options: &ClientOptions) -> Result<Self, NfsError> {
        Self::connect_within(options.connect_timeout, peer, options)
    }

    pub(super) fn connect_within(
        limit: Duration,
        peer: Peer,
        options: &ClientOptions,
    ) -> Result<Self, NfsError> {
        let deadline = Instant::now() + limit;
        let mut stop = StopWait::begin(options.stop.as_ref());
        let slice = &mut |left| stop.slice(left);
        let socket = socket::connect_by(deadline, slice, peer.address, peer.proto, options.source_port)
            .map_err(|source| NfsError::Connect { peer, source })?
            .ok_or_else(|| NfsError::Interrupted { peer, waited: stop.waited() })?;
        Ok(Self {
            peer,
            socket,
            credential: options.user.credential(),
            timeout: options.connect_timeout,
            stop: options.stop.clone(),
            udp: options.udp,
            xid: socket::unique(),
            call: Vec::new(),
            received: Vec::new(),
            received_bytes: 0,
            retransmits: 0,
            records: record::RecordReader::new(ANSWER_BYTES_MAX),
            answer: Vec::new(),
        })
    }

    /// Whom this speaks to.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// How long to wait for each answer from now on.
    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// What the last call cost on the wire.
    pub(super) fn last_exchange(&self) -> Exchange {
        Exchange {
            sent_bytes: self.call.len(),
            received_bytes: self.answer.len(),
            retransmits: self.retransmits,
        }
    }

    /// Calls NULL of NFS and returns how long the answer took.
    ///
    /// # Errors
    /// When there is no answer in time, or a refusal.
    pub fn ping(&mut self) -> Result<Duration, NfsError> {
        let start = Instant::now();
        self.call(nfs3::PROGRAM, nfs3::VERSION, 0, |_| ())?;
        Ok(start.elapsed())
    }

    /// Carries out one NFS operation.
    ///
    /// # Errors
    /// When there is no answer in time, a refusal, or an answer that cannot be understood. A failure of the operation
    /// itself is the inner result.
    pub fn request(&mut self, request: &Request<'_>) -> Result<Result<Reply<'_>, Status>, NfsError> {
        let (peer, kind) = (self.peer, request.kind());
        let results = self.call(nfs3::PROGRAM, nfs3::VERSION, kind as u32, |out| {
            nfs3::put_request(out, request);
        })?;
        nfs3::decode_reply(kind, results).map_err(|source| NfsError::Malformed {
            peer,
            procedure: kind.name(),
            source,
        })
    }

    /// Calls a procedure and returns its encoded results.
    pub(super) fn call(
        &mut self,
        program: u32,
        version: u32,
        procedure: u32,
        put_args: impl FnOnce(&mut Vec<u8>),
    ) -> Result<&[u8], NfsError> {
        self.xid = self.xid.wrapping_add(1);
        self.call.clear();
        let start = record::begin(&mut self.call);
        rpc::put_call(&mut self.call, self.xid, program, version, procedure, &self.credential);
        put_args(&mut self.call);
        record::end(&mut self.call, start);
        match self.peer.proto {
            files::NfsProto::Tcp => self.exchange_records()?,
            files::NfsProto::Udp => self.exchange_datagrams()?,
        }
        let reply = rpc::decode_reply(&self.answer).map_err(|source| self.malformed(source))?;
        reply.body.map_err(|refusal| NfsError::Refused { peer: self.peer, refusal })
    }

    fn malformed(&self, source: WireError) -> NfsError {
        NfsError::Malformed { peer: self.peer, procedure: "a call", source }
    }

    fn io(&self, what: &'static str, errno: Errno) -> NfsError {
        // Over UDP a closed port shows only when something was sent there.
        if errno == Errno::CONNREFUSED {
            return NfsError::Connect { peer: self.peer, source: errno.into() };
        }
        NfsError::Io { peer: self.peer, what, source: errno.into() }
    }

    fn exchange_records(&mut self) -> Result<(), NfsError> {
        let deadline = Instant::now() + self.timeout;
        let mut stop = StopWait::begin(self.stop.as_ref());
        let mut sent = 0;
        while sent < self.call.len() {
            match rustix::net::send(&self.socket, &self.call[sent..], SendFlags::NOSIGNAL) {
                Ok(bytes) => sent += bytes,
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, deadline, &mut stop)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.io("sending", errno)),
            }
        }
        loop {
            // The answer is hardly ever there at once: to look first would cost a system call for nothing.
            self.wait(PollFlags::IN, deadline, &mut stop)?;
            let filled = self.received_bytes;
            if self.received.len() < filled + RECEIVE_BYTES {
                self.received.resize(filled + RECEIVE_BYTES, 0);
            }
            match rustix::io::read(&self.socket, &mut self.received[filled..]) {
                Ok(0) => return Err(self.io("receiving", Errno::CONNRESET)),
                Ok(bytes) => {
                    self.received_bytes += bytes;
                    if self.take_answer()? {
                        return Ok(());
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(self.io("receiving", errno)),
            }
        }
    }

    /// Looks for the answer among what was received; answers to earlier calls, given up on, are dropped.
    fn take_answer(&mut self) -> Result<bool, NfsError> {
        let peer = self.peer;
        let mut rest = &self.received[..self.received_bytes];
        let mut found = false;
        while let Some(message) = self.records.next(&mut rest).map_err(|source| NfsError::Malformed {
            peer,
            procedure: "a call",
            source,
        })? {
            if message.starts_with(&self.xid.to_be_bytes()) {
                self.answer.clear();
                self.answer.extend_from_slice(message);
                found = true;
            }
        }
        let taken = self.received_bytes - rest.len();
        self.received.copy_within(taken..self.received_bytes, 0);
        self.received_bytes -= taken;
        Ok(found)
    }

    fn exchange_datagrams(&mut self) -> Result<(), NfsError> {
        let deadline = Instant::now() + self.timeout;
        let mut stop = StopWait::begin(self.stop.as_ref());
        for retransmits in 0.. {
            self.retransmits = retransmits;
            match rustix::net::send(&self.socket, &self.call[record::MARK_BYTES..], SendFlags::NOSIGNAL) {
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(self.io("sending", errno)),
            }
            let resend = (Instant::now() + self.udp.timeout_after(retransmits)).min(deadline);
            while Instant::now() < resend {
                self.received.resize(RECEIVE_BYTES, 0);
                match rustix::io::read(&self.socket, &mut self.received[..]) {
                    Ok(bytes) if self.received[..bytes].starts_with(&self.xid.to_be_bytes()) => {
                        self.answer.clear();
                        self.answer.extend_from_slice(&self.received[..bytes]);
                        return Ok(());
                    }
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => {
                        let left = resend.saturating_duration_since(Instant::now());
                        self.wait_for(PollFlags::IN, left, &mut stop)?;
                    }
                    Err(errno) => return Err(self.io("receiving", errno)),
                }
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        Err(NfsError::TimedOut { peer: self.peer, waited: self.timeout })
    }

    fn wait(&self, events: PollFlags, deadline: Instant, stop: &mut StopWait) -> Result<(), NfsError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(NfsError::TimedOut { peer: self.peer, waited: self.timeout });
        }
        self.wait_for(events, left, stop)
    }

    /// Waits for a part of `left`, which ends early when the caller is asked to stop.
    fn wait_for(&self, events: PollFlags, left: Duration, stop: &mut StopWait) -> Result<(), NfsError> {
        let peer = self.peer;
        let slice = stop.slice(left).ok_or_else(|| NfsError::Interrupted { peer, waited: stop.waited() })?;
        socket::wait(&self.socket, events, slice).map_err(|source| NfsError::Io {
            peer,
            what: "waiting",
            source,
        })
    }
}
