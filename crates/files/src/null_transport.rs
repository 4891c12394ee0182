//! A target that is not there: every request succeeds at once, in this process.
//!
//! Driving it measures what the generator itself costs, without network or server. Answers are of the
//! right shape (a handle for a created file, full reads) but lead nowhere.

use quanta::{Clock, Instant};

use crate::{
    Attributes, Completion, Entries, FileKind, Fsinfo, Fsstat, HandleRef, NodeTime, Outcome, Pathconf, Reply,
    Request, SubmitError, Ticket, Transport, TransportCounters, TransportError, Wcc,
};

/// Answers every request with success at the next poll.
pub struct NullTransport {
    clock: Clock,
    answered: Vec<(Ticket, PlausibleReply)>,
    zeros: Vec<u8>,
}

/// A success of the right shape for a request, without anything behind it.
#[derive(Clone, Copy, Debug)]
pub struct PlausibleReply {
    kind: crate::OpKind,
    bytes: u32,
}

const IN_FLIGHT_MAX: usize = 65_536;
const IO_BYTES_MAX: u32 = 1 << 20;
const HANDLE: &[u8] = &[0; 16];
const VERIFIER: [u8; 8] = [0; 8];

impl NullTransport {
    /// A transport whose completions carry the times of `clock`.
    pub fn new(clock: Clock) -> Self {
        Self { clock, answered: Vec::with_capacity(1024), zeros: vec![0; IO_BYTES_MAX as usize] }
    }
}

impl PlausibleReply {
    /// What of `request` its answer depends on.
    pub fn to(request: &Request<'_>) -> Self {
        let bytes = match request {
            Request::Read { count, .. } => (*count).min(IO_BYTES_MAX),
            Request::Write { bytes, .. } => bytes.len() as u32,
            Request::Access { rights, .. } => *rights,
            _ => 0,
        };
        Self { kind: request.kind(), bytes }
    }

    /// The reply; `zeros` is what a READ brings and must be as long as the largest one.
    pub fn reply(self, zeros: &[u8]) -> Reply<'_> {
        use crate::OpKind as K;
        let attributes = Some(ATTRIBUTES);
        let wcc = Wcc { before: None, after: attributes };
        match self.kind {
            K::Null => Reply::Null,
            K::Getattr => Reply::Getattr { attributes: ATTRIBUTES },
            K::Setattr => Reply::Setattr { object: wcc },
            K::Lookup => Reply::Lookup { object: HandleRef(HANDLE), attributes, dir: attributes },
            K::Access => Reply::Access { attributes, rights: self.bytes },
            K::Readlink => Reply::Readlink { attributes, target: b"target" },
            K::Read => {
                Reply::Read { attributes, bytes: &zeros[..zeros.len().min(self.bytes as usize)], end: false }
            }
            K::Write => Reply::Write {
                file: wcc,
                count: self.bytes,
                stability: crate::Stability::FileSync,
                verifier: VERIFIER,
            },
            K::Create | K::Mkdir | K::Symlink | K::Mknod => {
                Reply::Created { object: Some(HandleRef(HANDLE)), attributes, dir: wcc }
            }
            K::Remove | K::Rmdir => Reply::Removed { dir: wcc },
            K::Rename => Reply::Rename { from_dir: wcc, to_dir: wcc },
            K::Link => Reply::Link { attributes, dir: wcc },
            K::Readdir | K::Readdirplus => Reply::Listing {
                dir: attributes,
                verifier: VERIFIER,
                entries: Entries::Listed(&[]),
                end: true,
            },
            K::Fsstat => Reply::Fsstat { attributes, stat: ENDLESS_SPACE },
            K::Fsinfo => Reply::Fsinfo { attributes, limits: LIMITS },
            K::Pathconf => Reply::Pathconf { attributes, limits: NAMES },
            K::Commit => Reply::Commit { file: wcc, verifier: VERIFIER },
        }
    }
}

const ATTRIBUTES: Attributes = Attributes {
    kind: FileKind::Regular,
    mode: 0o644,
    links: 1,
    uid: 0,
    gid: 0,
    size: 0,
    used: 0,
    device: (0, 0),
    fsid: 1,
    fileid: 1,
    atime: NodeTime { s: 0, ns: 0 },
    mtime: NodeTime { s: 0, ns: 0 },
    ctime: NodeTime { s: 0, ns: 0 },
};

const ENDLESS_SPACE: Fsstat = Fsstat {
    bytes_total: 1 << 60,
    bytes_free: 1 << 60,
    bytes_available: 1 << 60,
    files_total: 1 << 50,
    files_free: 1 << 50,
    files_available: 1 << 50,
    stable_s: 0,
};

const LIMITS: Fsinfo = Fsinfo {
    read_max: IO_BYTES_MAX,
    read_preferred: IO_BYTES_MAX,
    read_multiple: 4096,
    write_max: IO_BYTES_MAX,
    write_preferred: IO_BYTES_MAX,
    write_multiple: 4096,
    readdir_preferred: 65_536,
    file_size_max: 1 << 62,
    time_delta: NodeTime { s: 0, ns: 1 },
    properties: 0x1b,
};

const NAMES: Pathconf = Pathconf {
    links_max: 32_000,
    name_bytes_max: 255,
    no_truncation: true,
    chown_restricted: true,
    case_insensitive: false,
    case_preserving: true,
};

impl Transport for NullTransport {
    fn submit(&mut self, ticket: Ticket, request: &Request<'_>) -> Result<(), SubmitError> {
        if self.answered.len() == IN_FLIGHT_MAX {
            return Err(SubmitError::Full);
        }
        self.answered.push((ticket, PlausibleReply::to(request)));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    fn poll(
        &mut self,
        until: Option<Instant>,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> Result<usize, TransportError> {
        let delivered = self.answered.len();
        if delivered == 0 {
            if let Some(until) = until {
                std::thread::sleep(until.saturating_duration_since(self.clock.now()));
            }
            return Ok(0);
        }
        let done = self.clock.now();
        for (ticket, plausible) in self.answered.drain(..) {
            deliver(Completion {
                ticket,
                outcome: Outcome::Ok(plausible.reply(&self.zeros)),
                retransmits: 0,
                done,
                arrived: Some(done),
                began: None,
            });
        }
        Ok(delivered)
    }

    fn in_flight(&self) -> usize {
        self.answered.len()
    }

    fn root(&self) -> HandleRef<'_> {
        HandleRef(HANDLE)
    }

    fn io_bytes_max(&self) -> u32 {
        IO_BYTES_MAX
    }

    fn counters(&self) -> TransportCounters {
        TransportCounters::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ticket_comes_back_once_with_success() {
        let mut transport = NullTransport::new(Clock::new());
        for number in 0..100 {
            let read = Request::Read { file: HandleRef(HANDLE), offset: 0, count: number };
            transport.submit(Ticket(number), &read).unwrap();
        }
        let mut seen = Vec::new();
        let delivered = transport.poll(None, &mut |completion| {
            let Outcome::Ok(Reply::Read { bytes, .. }) = completion.outcome else { panic!("not a read") };
            assert_eq!(bytes.len(), completion.ticket.0 as usize);
            seen.push(completion.ticket.0);
        });
        assert_eq!(delivered.unwrap(), 100);
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        assert_eq!(transport.in_flight(), 0);
    }
}
