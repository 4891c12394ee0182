//! One connection of a robot: a request goes out, its reply comes in and is checked as it comes.

use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use harness::open_loop::{Received, receive, receive_stamped, stamp_arrivals};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use crate::plan::body::{BodyCheck, BodyFault};
use crate::plan::{Class, Planned};
use crate::sockets::poller::{Interest, Ready};
use crate::wire::{Malformed, OriginNote, ReplyHead, Unframe, head_len};

/// A request under way.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub planned: Planned,
    /// Names it to the origin.
    pub request: u64,
    pub due: Instant,
    /// When it was really sent.
    pub sent: Instant,
    /// It waited for a connection.
    pub waited: bool,
    pub phase: u32,
    pub check: BodyCheck,
    /// It was lost with a connection that had been idle, and may go out once more.
    pub retried: bool,
}

/// Why a request has no good reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Fault {
    ConnectFailed,
    ConnectionLost,
    TimedOut,
    BadReply,
    /// 304 to one who has nothing.
    UnaskedNotModified,
    Status(u16),
    WrongLength,
    WrongBody,
    MixedBody,
    StaleBody,
    CutBody,
}

impl Fault {
    /// Its name in the record.
    pub fn name(self) -> String {
        match self {
            Self::ConnectFailed => "CONNECT_FAILED".to_owned(),
            Self::ConnectionLost => "CONNECTION_LOST".to_owned(),
            Self::TimedOut => "TIMED_OUT".to_owned(),
            Self::BadReply => "BAD_REPLY".to_owned(),
            Self::UnaskedNotModified => "UNASKED_304".to_owned(),
            Self::Status(status) => format!("HTTP_{status}"),
            Self::WrongLength => "WRONG_LENGTH".to_owned(),
            Self::WrongBody => "WRONG_BODY".to_owned(),
            Self::MixedBody => "MIXED_BODY".to_owned(),
            Self::StaleBody => "STALE_BODY".to_owned(),
            Self::CutBody => "CUT_BODY".to_owned(),
        }
    }

    /// Whether the content was false, which no proxy may ever do.
    pub fn is_false_content(self) -> bool {
        matches!(self, Self::WrongLength | Self::WrongBody | Self::MixedBody | Self::StaleBody)
    }
}

impl From<BodyFault> for Fault {
    fn from(fault: BodyFault) -> Self {
        match fault {
            BodyFault::Wrong => Self::WrongBody,
            BodyFault::Mixed => Self::MixedBody,
            BodyFault::Stale => Self::StaleBody,
            BodyFault::Cut => Self::CutBody,
            BodyFault::TooLong => Self::WrongLength,
        }
    }
}

/// A reply that came whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    pub not_modified: bool,
    pub origin: Option<OriginNote>,
    pub body_bytes: u64,
    pub fault: Option<Fault>,
    pub keep_alive: bool,
    /// When its last byte had arrived at this machine, if the kernel stamped it.
    pub arrived: Option<Instant>,
}

/// How it stands after an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Progress {
    Going,
    Whole(Reply),
    /// The connection is of no more use. `unanswered`: no byte of a reply came.
    Broken {
        fault: Fault,
        unanswered: bool,
    },
}

pub(crate) struct Client {
    stream: TcpStream,
    pub robot: u32,
    pub flight: Option<Flight>,
    /// Requests it will still carry.
    pub requests_left: Option<u32>,
    /// Replies it has carried.
    pub replies: u32,
    pub idle_since: Instant,
    connecting: bool,
    /// The kernel stamps what arrives.
    is_stamped: bool,
    /// Not taken by the socket yet.
    unsent: Vec<u8>,
    /// A head that came in pieces.
    head: Vec<u8>,
    reading: Reading,
}

enum Reading {
    Head,
    Body { head: ReplyHead, unframe: Unframe },
}

impl Client {
    /// A connection under way. `wants_stamps`: its replies say when they arrived, where the kernel can tell.
    pub fn connect(
        address: SocketAddr,
        robot: u32,
        requests_left: Option<u32>,
        wants_stamps: bool,
    ) -> std::io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        rustix::net::sockopt::set_tcp_nodelay(&socket, true)?;
        // Without stamps a generator knows less of its own lateness, and all else is as before.
        let is_stamped = wants_stamps && stamp_arrivals(&socket, true).is_ok();
        let connecting = match rustix::net::connect(&socket, &address) {
            Ok(()) => false,
            Err(Errno::INPROGRESS) => true,
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            stream: TcpStream::from(socket),
            robot,
            flight: None,
            requests_left,
            replies: 0,
            idle_since: Instant::now(),
            connecting,
            is_stamped,
            unsent: Vec::new(),
            head: Vec::new(),
            reading: Reading::Head,
        })
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// What epoll is to watch for.
    pub fn interest(&self) -> Interest {
        if self.connecting || !self.unsent.is_empty() { Interest::ReadWrite } else { Interest::Read }
    }

    /// Sends a request, or as much as the socket takes now.
    pub fn send(&mut self, flight: Flight, request: &[u8]) -> Result<(), Fault> {
        self.flight = Some(flight);
        self.reading = Reading::Head;
        self.head.clear();
        if let Some(left) = &mut self.requests_left {
            *left = left.saturating_sub(1);
        }
        if self.connecting {
            self.unsent.extend_from_slice(request);
            return Ok(());
        }
        let sent = write_some(&self.stream, request)?;
        self.unsent.extend_from_slice(&request[sent..]);
        Ok(())
    }

    /// Whether it may carry another request after this reply.
    pub fn stays(&self, reply: &Reply) -> bool {
        reply.keep_alive && self.requests_left != Some(0)
    }

    pub fn on_ready(&mut self, ready: Ready, scratch: &mut [u8]) -> Progress {
        if ready.writable {
            if self.connecting {
                match rustix::net::sockopt::socket_error(&self.stream) {
                    Ok(Ok(())) => self.connecting = false,
                    _ => return Progress::Broken { fault: Fault::ConnectFailed, unanswered: false },
                }
            }
            match write_some(&self.stream, &self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(fault) => return Progress::Broken { fault, unanswered: self.is_unanswered() },
            }
        }
        if !ready.readable {
            return Progress::Going;
        }
        loop {
            match self.receive(scratch) {
                Ok(Received { bytes: 0, .. }) => return self.ended(),
                Ok(Received { bytes: read, waited }) => match self.take(&scratch[..read]) {
                    Ok(Some(reply)) => {
                        let arrived = waited.and_then(|waited| Instant::now().checked_sub(waited));
                        return Progress::Whole(Reply { arrived, ..reply });
                    }
                    Ok(None) if read < scratch.len() => return Progress::Going,
                    Ok(None) => {}
                    Err(Malformed) => {
                        return Progress::Broken { fault: Fault::BadReply, unanswered: false };
                    }
                },
                Err(Errno::AGAIN) => return Progress::Going,
                Err(Errno::INTR) => {}
                Err(_) => {
                    return Progress::Broken {
                        fault: Fault::ConnectionLost,
                        unanswered: self.is_unanswered(),
                    };
                }
            }
        }
    }

    #[inline]
    fn receive(&self, buffer: &mut [u8]) -> Result<Received, Errno> {
        if self.is_stamped { receive_stamped(&self.stream, buffer) } else { receive(&self.stream, buffer) }
    }

    fn is_unanswered(&self) -> bool {
        matches!(self.reading, Reading::Head) && self.head.is_empty()
    }

    /// The peer has closed: the end of a body without a length, or too early.
    fn ended(&mut self) -> Progress {
        if let Reading::Body { head, unframe: Unframe::UntilClose } = &self.reading {
            let head = *head;
            return Progress::Whole(self.whole(&head));
        }
        let fault = match self.reading {
            Reading::Head => Fault::ConnectionLost,
            Reading::Body { .. } => Fault::CutBody,
        };
        Progress::Broken { fault, unanswered: self.is_unanswered() }
    }

    /// Takes what came; the reply, once it is whole.
    fn take(&mut self, mut input: &[u8]) -> Result<Option<Reply>, Malformed> {
        loop {
            match &mut self.reading {
                Reading::Head => {
                    // A reply that nobody asked for.
                    if self.flight.is_none() {
                        return Err(Malformed);
                    }
                    let head = if self.head.is_empty() {
                        match head_len(input)? {
                            Some(len) => {
                                let head = ReplyHead::read(&input[..len])?;
                                input = &input[len..];
                                head
                            }
                            None => {
                                self.head.extend_from_slice(input);
                                return Ok(None);
                            }
                        }
                    } else {
                        let before = self.head.len();
                        self.head.extend_from_slice(input);
                        let Some(len) = head_len(&self.head)? else { return Ok(None) };
                        let head = ReplyHead::read(&self.head[..len])?;
                        input = &input[len - before..];
                        self.head.clear();
                        head
                    };
                    // 100, 103 and such only announce the reply.
                    if head.status >= 200 {
                        self.reading = Reading::Body { head, unframe: Unframe::new(head.framing) };
                    }
                }
                Reading::Body { head, unframe } => {
                    let Some(flight) = &mut self.flight else { return Err(Malformed) };
                    let (checked, check) = (head.status == 200, &mut flight.check);
                    let taken = unframe.take(input, |bytes| {
                        if checked {
                            check.feed(bytes);
                        }
                    })?;
                    if !unframe.is_done() {
                        return Ok(None);
                    }
                    let head = *head;
                    let mut reply = self.whole(&head);
                    // What follows belongs to nothing we asked for.
                    reply.keep_alive &= taken == input.len();
                    return Ok(Some(reply));
                }
            }
        }
    }

    fn whole(&mut self, head: &ReplyHead) -> Reply {
        self.replies += 1;
        self.reading = Reading::Head;
        let (body_bytes, fault) = match (&self.flight, head.status) {
            (Some(flight), 200) => (flight.check.seen_bytes(), flight.check.finish().map(Fault::from)),
            (Some(flight), 304) => {
                let asked = matches!(flight.planned.class, Class::ImsUnchanged | Class::ImsChanged);
                (0, (!asked).then_some(Fault::UnaskedNotModified))
            }
            (_, status) => (0, Some(Fault::Status(status))),
        };
        Reply {
            not_modified: head.status == 304,
            origin: head.origin,
            body_bytes,
            fault,
            keep_alive: head.keep_alive && self.unsent.is_empty(),
            arrived: None,
        }
    }
}

fn write_some(mut stream: &TcpStream, bytes: &[u8]) -> Result<usize, Fault> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(0) => return Err(Fault::ConnectionLost),
            Ok(written) => sent += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err(Fault::ConnectionLost),
        }
    }
    Ok(sent)
}
