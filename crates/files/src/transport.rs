//! The seam for open-loop load: submit a request with a ticket, poll for completions.
//!
//! ```text
//! submit(ticket, request)*  flush()  poll(until) -> Completion { ticket, outcome, done }*
//! ```
//!
//! Shaped like io_uring so that sending never waits for a reply. Batching is the caller's: everything
//! submitted since the last `flush` may leave in one system call.
//!
//! Always holds: a ticket comes back in exactly one completion, also when a connection breaks; a request is
//! copied or sent before `submit` returns, so that its buffers are free again; nothing blocks but `poll`,
//! and `poll` not beyond its time.

use std::io;
use std::time::Duration;

use quanta::Instant;

use crate::{HandleRef, Reply, Request, Status};

/// The caller's name for a request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u32);

/// How a request ended.
#[derive(Debug)]
pub struct Completion<'a> {
    /// The request's name.
    pub ticket: Ticket,
    /// What came of it.
    pub outcome: Outcome<'a>,
    /// How often it was sent again before it ended.
    pub retransmits: u32,
    /// When it ended: as soon after the reply's arrival as the transport can tell.
    pub done: Instant,
    /// When the reply had arrived at this machine, which is how late it was taken; `done` itself where the transport made
    /// the call. None where it is not known.
    pub arrived: Option<Instant>,
    /// When the call began, where the transport made it itself; before that it waited for a thread.
    pub began: Option<Instant>,
}

/// What came of a request.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // A reply is built in place and read at once; boxing it would allocate.
pub enum Outcome<'a> {
    /// Success.
    Ok(Reply<'a>),
    /// The storage answered with an error.
    Failed(Status),
    /// No reply after the last retransmission.
    Cancelled,
    /// The connection broke while it was in flight; whether it took effect is unknown.
    Lost,
    /// The server refused the call itself, below the file service: wrong program, version or credentials.
    /// The text is one of a few fixed ones, such as `AUTH_TOOWEAK`.
    Rejected(&'static str),
    /// A reply to this request that could not be understood.
    BadReply,
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// As many are in flight, or as many bytes wait to be sent, as the transport allows: poll, then try again.
    Full,
}

/// What happened below the requests, since the transport was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportCounters {
    /// Reconnections.
    pub reconnects: u64,
    /// Messages that were no reply to anything in flight, or none at all.
    pub bad_replies: u64,
    /// Of these, messages that were none at all: no reply of RPC, whatever it may have been meant for.
    pub garbage: u64,
    /// Requests sent again.
    pub retransmits: u64,
    /// Bytes sent, with headers.
    pub sent_bytes: u64,
    /// Bytes received, with headers.
    pub received_bytes: u64,
    /// Time in which requests waited for a thread of this program, with as many as it may have.
    pub waited_for_thread: Duration,
}

/// The storage is gone for good, or was never there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The connection broke and could not be re-established.
    #[error(
        "{target}: connection lost and not regained within {waited_s:.0} s; is the server still running?"
    )]
    Disconnected {
        /// The target's URL.
        target: String,
        /// How long it was tried.
        waited_s: f64,
        /// The last attempt's error.
        source: io::Error,
    },
    /// Nothing was answered, although requests waited.
    #[error(
        "{target}: no reply for {waited_s:.0} s while requests were waiting; is the server still running, and the network up?"
    )]
    Silent {
        /// The target's URL.
        target: String,
        /// How long requests waited.
        waited_s: f64,
    },
    /// The operating system refused a call that should work.
    #[error("{target}: {what} failed")]
    Io {
        /// The target's URL.
        target: String,
        /// What was tried.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

/// Storage under load.
pub trait Transport: Send {
    /// Takes a request. It may be sent at once or at the next [`Self::flush`].
    ///
    /// # Errors
    /// `Full`: the request was not taken.
    fn submit(&mut self, ticket: Ticket, request: &Request<'_>) -> Result<(), SubmitError>;

    /// Sends what was submitted, as far as that is possible without waiting; `poll` sends the rest.
    ///
    /// # Errors
    /// When the storage is gone for good.
    fn flush(&mut self) -> Result<(), TransportError>;

    /// Delivers completions: returns as soon as at least one was delivered, or at `until` (at once when
    /// `None`), whichever comes first. Returns how many.
    ///
    /// # Errors
    /// When the storage is gone for good; the tickets in flight were delivered as `Lost` before.
    fn poll(
        &mut self,
        until: Option<Instant>,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> Result<usize, TransportError>;

    /// Whether completions are to say when replies arrived, where the transport can tell. Off at first: in a closed loop nobody
    /// asks, and it costs a larger system call and a reading of the clock for each receive.
    fn stamp_arrivals(&mut self, wanted: bool) {
        let _ = wanted;
    }

    /// Requests in flight.
    fn in_flight(&self) -> usize;

    /// Whether a connection to the storage is up. Without one every request is refused as `Full`, and that is no lack of room.
    /// Storage that needs no connection always has one.
    fn is_connected(&self) -> bool {
        true
    }

    /// The directory that the target URL names.
    fn root(&self) -> HandleRef<'_>;

    /// The most bytes that one READ or WRITE may carry.
    fn io_bytes_max(&self) -> u32;

    /// Whether the storage is a local file system, so that its errors are explained as such and not as a server's.
    fn is_local(&self) -> bool {
        false
    }

    /// As [`crate::FileSystem::has_room_of_its_own`], of the reply to FSSTAT.
    fn has_room_of_its_own(&self) -> bool {
        false
    }

    /// What happened below the requests so far.
    fn counters(&self) -> TransportCounters;
}
