//! Replies given a moment ago to calls that must not be carried out twice.
//!
//! Over UDP a client sends a call again when its reply is late or lost. A second REMOVE would then find
//! nothing and say so; instead the first reply is given again. While the first is still being carried out,
//! a repeat is dropped: its reply will come.
//!
//! Bounded: the last [`KEPT`] such replies, each of at most [`REPLY_BYTES_MAX`] bytes.
//! Source: Juszczak, "Improving the performance and correctness of an NFS server", USENIX Winter 1989.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use files::OpKind;

const KEPT: usize = 4096;
/// A CREATE's is 300 bytes.
const REPLY_BYTES_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct Recent(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    by_call: HashMap<CallId, State>,
    oldest_first: VecDeque<CallId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CallId {
    pub peer: SocketAddr,
    pub xid: u32,
    pub kind: OpKind,
    /// Of the arguments: a client may use an XID again for another call.
    pub args_check: u64,
}

enum State {
    Running,
    Done(Vec<u8>),
}

/// What to do with a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    CarryOut,
    Drop,
    Repeat(Vec<u8>),
}

impl Recent {
    pub(super) fn concerns(kind: OpKind) -> bool {
        use OpKind as K;
        matches!(
            kind,
            K::Setattr
                | K::Create
                | K::Mkdir
                | K::Symlink
                | K::Mknod
                | K::Remove
                | K::Rmdir
                | K::Rename
                | K::Link
        )
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn meet(&self, call: CallId) -> Verdict {
        let mut inner = self.lock();
        match inner.by_call.get(&call) {
            Some(State::Running) => Verdict::Drop,
            Some(State::Done(reply)) => Verdict::Repeat(reply.clone()),
            None => {
                if inner.oldest_first.len() == KEPT
                    && let Some(oldest) = inner.oldest_first.pop_front()
                {
                    inner.by_call.remove(&oldest);
                }
                inner.by_call.insert(call, State::Running);
                inner.oldest_first.push_back(call);
                Verdict::CarryOut
            }
        }
    }

    pub(super) fn done(&self, call: CallId, reply: &[u8]) {
        if let Some(state) = self.lock().by_call.get_mut(&call) {
            *state = State::Done(reply[..reply.len().min(REPLY_BYTES_MAX)].to_vec());
        }
    }
}

/// FNV-1a of the first 256 bytes: enough to tell two calls of one client apart.
pub(super) fn check_of(args: &[u8]) -> u64 {
    args.iter()
        .take(256)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(xid: u32) -> CallId {
        CallId { peer: ([127, 0, 0, 1], 700).into(), xid, kind: OpKind::Remove, args_check: 1 }
    }

    #[test]
    fn a_repeated_call_gets_the_first_reply_and_old_ones_are_forgotten() {
        let recent = Recent::default();
        assert_eq!(recent.meet(call(1)), Verdict::CarryOut);
        assert_eq!(recent.meet(call(1)), Verdict::Drop);
        recent.done(call(1), b"done");
        assert_eq!(recent.meet(call(1)), Verdict::Repeat(b"done".to_vec()));
        for xid in 2..2 + KEPT as u32 {
            assert_eq!(recent.meet(call(xid)), Verdict::CarryOut);
        }
        assert_eq!(recent.meet(call(1)), Verdict::CarryOut);
        assert_eq!(recent.lock().by_call.len(), KEPT);
    }
}
