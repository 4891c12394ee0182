//! From one message to its reply: the rules of RPC, then NFS or MOUNT.

use std::net::SocketAddr;

use files::{OpKind, Scratch};

use super::ServerCounters;
use super::export::Export;
use super::null::NullReplies;
use super::replies::Replies;
use crate::wire::mount3::{self, MountStatus, Procedure};
use crate::wire::nfs3;
use crate::wire::rpc::{self, AUTH_NONE, AUTH_SYS, Call, CallError, Refusal, decode_call};

/// The most that one READ, WRITE or listing carries over UDP: a datagram holds 65,507 bytes, headers
/// included, and 32 KiB is what clients ask for.
pub(super) const DATAGRAM_IO_BYTES_MAX: u32 = 32 * 1024;

/// What answers.
pub(super) enum Service {
    Null(Box<NullReplies>),
    Export(Box<Export>),
}

/// One thread's memory for answering.
pub(super) struct Worker {
    pub scratch: Scratch,
    pub counted: ServerCounters,
}

impl Worker {
    pub(super) fn new() -> Self {
        Self { scratch: Scratch::new(), counted: ServerCounters::default() }
    }
}

/// The message is no call: there is nobody to answer.
#[derive(Debug)]
pub(super) struct NotACall;

impl Service {
    /// The most bytes a call may have: the largest WRITE with its headers.
    pub(super) fn call_bytes_max(&self) -> usize {
        let io_bytes_max = match self {
            Self::Null(_) => super::replies::ZEROS_MAX,
            Self::Export(export) => export.directory.io_bytes_max() as usize,
        };
        io_bytes_max.max(64 * 1024) + 4096
    }

    /// Whether a call may take long, so that replies before it should not wait for it.
    pub(super) fn may_wait(&self) -> bool {
        matches!(self, Self::Export(_))
    }

    /// Appends the reply to `message`. `peer` is given for datagrams, which may arrive twice.
    #[inline]
    pub(super) fn answer(
        &self,
        message: &[u8],
        peer: Option<SocketAddr>,
        worker: &mut Worker,
        replies: &mut Replies,
    ) -> Result<(), NotACall> {
        let call = match decode_call(message) {
            Ok(call) => call,
            Err(error) => {
                worker.counted.refused += 1;
                let (xid, refusal) = match error {
                    CallError::RpcMismatch { xid } => (xid, Refusal::RpcMismatch),
                    CallError::Auth { xid } => (xid, Refusal::AuthBadCredential),
                    CallError::Garbage => return Err(NotACall),
                };
                refuse(replies, xid, refusal);
                return Ok(());
            }
        };
        let answered = match (call.program, call.version) {
            (nfs3::PROGRAM, nfs3::VERSION) => match OpKind::from_number(call.procedure) {
                Some(kind) => match self {
                    Self::Null(null) => null.answer(kind, &call, replies),
                    Self::Export(export) => export.answer(kind, &call, peer, worker, replies),
                },
                None => Err(Refusal::ProcedureUnavailable),
            },
            (mount3::PROGRAM, mount3::VERSION) => self.mount(&call, worker, replies),
            (nfs3::PROGRAM | mount3::PROGRAM, _) => Err(Refusal::VersionMismatch { low: 3, high: 3 }),
            _ => Err(Refusal::ProgramUnavailable),
        };
        match answered {
            Ok(()) => worker.counted.calls += 1,
            Err(refusal) => {
                worker.counted.refused += 1;
                refuse(replies, call.xid, refusal);
            }
        }
        Ok(())
    }

    fn mount(&self, call: &Call<'_>, worker: &mut Worker, replies: &mut Replies) -> Result<(), Refusal> {
        let procedure = Procedure::from_number(call.procedure).ok_or(Refusal::ProcedureUnavailable)?;
        let path = || mount3::decode_path(call.args).map_err(|_| Refusal::GarbageArguments);
        let mounted = match procedure {
            Procedure::Mnt => Some(match (self, path()?) {
                // libnfs mounts the directory part of `nfs://host/file`, which is nothing at all.
                (_, path) if !path.is_empty() && !path.starts_with(b"/") => Err(MountStatus::NOENT),
                (Self::Null(null), _) => Ok(null.root()),
                (Self::Export(export), path) => export.mount(path, &mut worker.scratch),
            }),
            Procedure::Umnt => {
                path()?;
                None
            }
            _ => None,
        };
        let begun = replies.begin();
        let out = &mut replies.bytes;
        rpc::put_success(out, call.xid);
        match procedure {
            Procedure::Null | Procedure::Umnt | Procedure::Umntall => {}
            Procedure::Mnt => {
                let mounted = mounted.unwrap_or(Err(MountStatus::SERVERFAULT));
                let flavours = &[AUTH_SYS, AUTH_NONE];
                mount3::put_mounted(
                    out,
                    mounted.as_ref().map(|root| (root.by_ref(), &flavours[..])).map_err(|status| *status),
                );
            }
            // Nobody is remembered: the list is for people, and serves no call.
            Procedure::Dump => mount3::put_mounts(out, []),
            Procedure::Export => mount3::put_exports(out, [(&b"/"[..], &[][..])]),
        }
        replies.end(&begun);
        Ok(())
    }
}

fn refuse(replies: &mut Replies, xid: u32, refusal: Refusal) {
    let begun = replies.begin();
    rpc::put_refusal(&mut replies.bytes, xid, refusal);
    replies.end(&begun);
}
