//! A directory as NFS and MOUNT see it.

use std::net::SocketAddr;

use files::{Directory, Handle, OpKind, Reply, Request, Scratch, Status};

use super::recent::{CallId, Recent, Verdict, check_of};
use super::replies::Replies;
use super::service::{DATAGRAM_IO_BYTES_MAX, Worker};
use crate::wire::mount3::MountStatus;
use crate::wire::nfs3;
use crate::wire::rpc::{self, Call, Refusal};

/// An exported directory.
pub(super) struct Export {
    pub directory: Directory,
    recent: Recent,
}

impl Export {
    pub(super) fn new(directory: Directory) -> Self {
        Self { directory, recent: Recent::default() }
    }

    pub(super) fn answer(
        &self,
        kind: OpKind,
        call: &Call<'_>,
        peer: Option<SocketAddr>,
        worker: &mut Worker,
        replies: &mut Replies,
    ) -> Result<(), Refusal> {
        let mut request = nfs3::decode_request(kind, call.args).map_err(|_| Refusal::GarbageArguments)?;
        let id = peer.filter(|_| Recent::concerns(kind)).map(|peer| CallId {
            peer,
            xid: call.xid,
            kind,
            args_check: check_of(call.args),
        });
        match id.map_or(Verdict::CarryOut, |id| self.recent.meet(id)) {
            Verdict::CarryOut => {}
            Verdict::Drop => return Ok(()),
            Verdict::Repeat(reply) => {
                let begun = replies.begin();
                replies.bytes.extend_from_slice(&reply);
                replies.end(&begun);
                return Ok(());
            }
        }
        if peer.is_some() {
            bound_for_datagram(&mut request);
        }
        let mut result = self.directory.execute(&request, &mut worker.scratch);
        if peer.is_some()
            && let Ok(Reply::Fsinfo { limits, .. }) = &mut result
        {
            for limit in [
                &mut limits.read_max,
                &mut limits.read_preferred,
                &mut limits.write_max,
                &mut limits.write_preferred,
                &mut limits.readdir_preferred,
            ] {
                *limit = (*limit).min(DATAGRAM_IO_BYTES_MAX);
            }
        }
        if result.is_err() {
            worker.counted.errors += 1;
        }
        let begun = replies.begin();
        rpc::put_success(&mut replies.bytes, call.xid);
        nfs3::put_reply(&mut replies.bytes, kind, &result);
        replies.end(&begun);
        if let Some(id) = id {
            self.recent.done(id, replies.since(&begun));
        }
        Ok(())
    }

    /// The handle of a directory by its path below the export. Symlinks are not followed.
    pub(super) fn mount(&self, path: &[u8], scratch: &mut Scratch) -> Result<Handle, MountStatus> {
        let mut handle = self.directory.root();
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
            if name == b".." {
                return Err(MountStatus::ACCES);
            }
            let lookup = Request::Lookup { dir: handle.by_ref(), name };
            handle = match self.directory.execute(&lookup, scratch) {
                Ok(Reply::Lookup { object, .. }) => Handle::new(object.0).ok_or(MountStatus::SERVERFAULT)?,
                Ok(_) => return Err(MountStatus::SERVERFAULT),
                Err(status) => return Err(mount_status(status)),
            };
        }
        let listable = Request::Getattr { object: handle.by_ref() };
        match self.directory.execute(&listable, scratch) {
            Ok(Reply::Getattr { attributes }) if attributes.kind == files::FileKind::Directory => Ok(handle),
            Ok(_) => Err(MountStatus::NOTDIR),
            Err(status) => Err(mount_status(status)),
        }
    }
}

/// A reply must fit into a datagram: less than asked for is always allowed.
fn bound_for_datagram(request: &mut Request<'_>) {
    match request {
        Request::Read { count, .. } | Request::Readdir { count, .. } => {
            *count = (*count).min(DATAGRAM_IO_BYTES_MAX);
        }
        Request::Readdirplus { name_bytes, reply_bytes, .. } => {
            *name_bytes = (*name_bytes).min(DATAGRAM_IO_BYTES_MAX);
            *reply_bytes = (*reply_bytes).min(DATAGRAM_IO_BYTES_MAX);
        }
        _ => {}
    }
}

fn mount_status(status: Status) -> MountStatus {
    match status {
        Status::PERM => MountStatus::PERM,
        Status::NOENT | Status::STALE => MountStatus::NOENT,
        Status::IO => MountStatus::IO,
        Status::ACCES => MountStatus::ACCES,
        Status::NOTDIR => MountStatus::NOTDIR,
        Status::INVAL => MountStatus::INVAL,
        Status::NAMETOOLONG => MountStatus::NAMETOOLONG,
        _ => MountStatus::SERVERFAULT,
    }
}
