//! One call at a time for each caller, on connections that are opened as callers need them.
//!
//! ```text
//! call -> take an idle connection, or open one -> request -> reply -> put the connection back
//!           broken: open another, call again, until `reconnect_timeout`     JUKEBOX: wait longer each time, again
//! ```
//!
//! One call that was given up says that the server is gone: those that follow wait a second together and then fail at
//! once (see `gone`), so that removing 10,000 files of a run ends.
//!
//! Always holds: the lock on the idle connections is held to push or pop, never across the network; every wait and
//! every repeat is counted. A call that was repeated on a new connection, and so may have been carried out before,
//! says so in its failure (`resent`): a caller that asked decides what it means.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use files::{FsError, FsOp, NfsProto, Reply, Request, Status};
use rustix::io::Errno;

use super::counters::{Tally, add};
use super::gone::{Allowance, Gone};
use crate::client::stop_wait::StopWait;
use crate::client::{ClientOptions, Control};
use crate::wire::rpc::Refusal;
use crate::{NfsError, Peer};

/// Why a call brought nothing.
#[derive(Debug)]
pub(super) enum Fail {
    /// The server's answer. `resent`: an earlier try may have been carried out.
    Refused { status: Status, resent: bool },
    /// What a local file system refuses without asking anybody.
    Os(Errno),
    /// An answer that is none, or a call that was not let in.
    Answer(NfsError),
    /// The server is gone.
    Lost(NfsError),
}

impl Fail {
    pub(super) fn of(status: Status) -> Self {
        Self::Refused { status, resent: false }
    }

    pub(super) fn status(&self) -> Option<Status> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Os(errno) => Some((*errno).into()),
            Self::Answer(_) | Self::Lost(_) => None,
        }
    }

    /// Whether the server no longer knows a handle, so that a new walk may help.
    pub(super) fn is_stale(&self) -> bool {
        matches!(self.status(), Some(Status::STALE | Status::BADHANDLE))
    }

    pub(super) fn into_error(self, op: FsOp, path: PathBuf) -> FsError {
        match self {
            Self::Refused { status, .. } => FsError::Failed { op, path, status, source: None },
            Self::Os(errno) => FsError::of_errno(op, path, errno),
            Self::Answer(error) => {
                let status = match &error {
                    NfsError::Refused { refusal: Refusal::ProcedureUnavailable, .. } => Status::NOTSUPP,
                    NfsError::Refused {
                        refusal:
                            Refusal::AuthBadCredential
                            | Refusal::AuthRejectedCredential
                            | Refusal::AuthBadVerifier
                            | Refusal::AuthRejectedVerifier
                            | Refusal::AuthTooWeak
                            | Refusal::AuthOther(_),
                        ..
                    } => Status::ACCES,
                    _ => Status::SERVERFAULT,
                };
                FsError::Failed { op, path, status, source: Some(std::io::Error::other(error)) }
            }
            Self::Lost(error) => FsError::Lost { op, path, source: Box::new(error) },
        }
    }
}

/// Connections kept when nobody uses them. More threads than these open and close theirs.
const IDLE_MAX: usize = 64;
/// First wait after `JUKEBOX`, and before the second try to connect; doubles up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// What the Linux client waits after every `JUKEBOX`.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A call that waited so long before the caller's end cut it off says that the server is gone.
const SILENT_MIN: Duration = Duration::from_secs(4);

pub(super) struct Calls {
    peer: Peer,
    options: ClientOptions,
    idle: Mutex<Vec<Control>>,
    gone: Gone,
    pub(super) tally: Tally,
}

enum Outcome<T> {
    Done(T),
    Failed(Status),
    Broken(NfsError),
    Useless(NfsError),
}

impl Calls {
    /// Calls to the server that `control` is connected to, this connection being the first.
    pub(super) fn new(control: Control, options: &ClientOptions) -> Self {
        let peer = control.peer();
        let calls = Self {
            peer,
            options: options.clone(),
            idle: Mutex::new(vec![control]),
            gone: Gone::default(),
            tally: Tally::default(),
        };
        add(&calls.tally.connections, 1);
        calls
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Control>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self, limit: Duration) -> Result<Control, NfsError> {
        let limit = limit.min(self.options.connect_timeout);
        let control = Control::connect_within(limit, self.peer, &self.options)?;
        add(&self.tally.connections, 1);
        Ok(control)
    }

    /// Carries out one operation; `take` gets the reply where it arrived, and `None` from it means that the reply
    /// makes no sense.
    pub(super) fn call<T>(
        &self,
        request: &Request<'_>,
        mut take: impl FnMut(Reply<'_>) -> Option<T>,
    ) -> Result<T, Fail> {
        let begun = Instant::now();
        let mut stop = StopWait::begin(self.options.stop.as_ref());
        let (answer_max, gone_max) = match self.gone.allowance(begun) {
            Allowance::Full => {
                (answer_timeout(self.peer.proto, &self.options), self.options.reconnect_timeout)
            }
            Allowance::Short(limit) => (limit, Duration::ZERO),
            Allowance::None(silent) => return Err(Fail::Lost(NfsError::Gone { peer: self.peer, silent })),
        };
        let (mut resent, mut silent) = (false, false);
        let mut gone_since: Option<Instant> = None;
        let mut jukebox_since: Option<Instant> = None;
        let mut pause = PAUSE_MIN;
        loop {
            // A server that was silent on one connection is not waited for as long on the next.
            let left = gone_since.filter(|_| silent).map(|since| gone_max.saturating_sub(since.elapsed()));
            let limit = left.unwrap_or(answer_max).min(answer_max);
            let (outcome, was_sent) = self.attempt(limit, request, &mut take);
            resent |= was_sent && matches!(outcome, Outcome::Broken(_));
            match outcome {
                Outcome::Done(value) => return Ok(value),
                Outcome::Failed(Status::JUKEBOX) => {
                    let since = *jukebox_since.get_or_insert_with(Instant::now);
                    if since.elapsed() + pause > self.options.reconnect_timeout {
                        return Err(Fail::Refused { status: Status::JUKEBOX, resent });
                    }
                    add(&self.tally.jukebox_waits, 1);
                    tracing::debug!(peer = %self.peer, ?pause, "the server asks to retry later");
                    if !stop.sleep(pause) {
                        return Err(Fail::Refused { status: Status::JUKEBOX, resent });
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Outcome::Failed(status) => return Err(Fail::Refused { status, resent }),
                Outcome::Useless(error) => return Err(Fail::Answer(error)),
                Outcome::Broken(error) => {
                    let first = gone_since.is_none();
                    let since = *gone_since.get_or_insert_with(Instant::now);
                    silent |= matches!(error, NfsError::TimedOut { .. });
                    let interrupted = matches!(error, NfsError::Interrupted { .. });
                    // Over UDP a call's own patience is as long as a server may be gone.
                    let gave_up = interrupted
                        || self.peer.proto == NfsProto::Udp && matches!(error, NfsError::TimedOut { .. });
                    if gave_up || since.elapsed() + pause > gone_max {
                        return Err(self.gave_up(begun, error));
                    }
                    add(&self.tally.resent_calls, 1);
                    tracing::debug!(peer = %self.peer, %error, "a connection broke: calling again");
                    // An idle connection that the server closed is no reason to wait.
                    if !first {
                        if !stop.sleep(pause) {
                            return Err(self.gave_up(begun, error));
                        }
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                }
            }
        }
    }

    /// Sends a call once, over a connection that is idle or over a new one, and waits up to `limit` for the reply; also whether
    /// it was sent.
    fn attempt<T>(
        &self,
        limit: Duration,
        request: &Request<'_>,
        take: &mut impl FnMut(Reply<'_>) -> Option<T>,
    ) -> (Outcome<T>, bool) {
        let idle = self.idle().pop();
        let connected = idle.map_or_else(|| self.connect(limit), Ok);
        let mut control = match connected {
            Ok(control) => control,
            Err(error) => return (Outcome::Broken(error), false),
        };
        control.set_timeout(limit);
        let outcome = self.exchange(&mut control, request, take);
        match outcome {
            Outcome::Broken(_) => {
                // The others were opened to the same server; most likely they are broken, too.
                let broken = std::mem::take(&mut *self.idle());
                drop(broken);
                return (outcome, true);
            }
            // A stream that brought nonsense is not to be trusted with the next call.
            Outcome::Useless(_) => {}
            _ => self.put_back(control),
        }
        self.gone.answered();
        (outcome, true)
    }

    /// The call that began at `begun` is given up.
    fn gave_up(&self, begun: Instant, error: NfsError) -> Fail {
        let now = Instant::now();
        let was_stopped = matches!(error, NfsError::Interrupted { .. });
        // One that was cut off by the caller's end soon after it began says little of the server.
        if !was_stopped || now.saturating_duration_since(begun) >= SILENT_MIN {
            self.gone.gave_up(begun, now, !was_stopped);
        }
        Fail::Lost(error)
    }

    fn exchange<T>(
        &self,
        control: &mut Control,
        request: &Request<'_>,
        take: &mut impl FnMut(Reply<'_>) -> Option<T>,
    ) -> Outcome<T> {
        add(&self.tally.calls[request.kind() as usize], 1);
        let outcome = match control.request(request) {
            Ok(Ok(reply)) => match take(reply) {
                Some(value) => Outcome::Done(value),
                None => Outcome::Failed(Status::SERVERFAULT),
            },
            Ok(Err(status)) => Outcome::Failed(status),
            Err(error @ (NfsError::Malformed { .. } | NfsError::Refused { .. })) => Outcome::Useless(error),
            Err(error) => Outcome::Broken(error),
        };
        let exchange = control.last_exchange();
        add(&self.tally.sent_bytes, exchange.sent_bytes as u64);
        add(&self.tally.received_bytes, exchange.received_bytes as u64);
        add(&self.tally.retransmits, u64::from(exchange.retransmits));
        outcome
    }

    fn put_back(&self, control: Control) {
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(control);
        } else {
            drop(idle);
            drop(control);
        }
    }
}

/// How long an answer may take before the connection counts as broken.
fn answer_timeout(proto: NfsProto, options: &ClientOptions) -> Duration {
    match proto {
        NfsProto::Tcp => options.silence_timeout,
        NfsProto::Udp => options.reconnect_timeout,
    }
}
