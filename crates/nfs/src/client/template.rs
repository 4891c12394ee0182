//! The head of every call of one user, encoded once.
//!
//! ```text
//! | record mark | XID | 0 | 2 | 100003 | 3 | procedure | AUTH_SYS credential | verifier | arguments
//!   per call      per call                   per call
//! ```

use files::{OpKind, Request};

use crate::wire::{nfs3, record, rpc};

/// A prebuilt call, to be copied and patched.
#[derive(Clone, Debug)]
pub(super) struct Template {
    /// With the place of a record mark in front.
    head: Vec<u8>,
}

const XID_AT: usize = record::MARK_BYTES;
const PROCEDURE_AT: usize = XID_AT + 20;

impl Template {
    pub(super) fn new(credential: &rpc::AuthSys) -> Self {
        let mut head = Vec::new();
        record::begin(&mut head);
        rpc::put_call(&mut head, 0, nfs3::PROGRAM, nfs3::VERSION, 0, credential);
        Self { head }
    }

    /// Appends a record with the call.
    #[inline]
    pub(super) fn put_record(&self, out: &mut Vec<u8>, xid: u32, request: &Request<'_>) {
        let start = out.len();
        out.extend_from_slice(&self.head);
        patch(&mut out[start..], XID_AT, PROCEDURE_AT, xid, request.kind());
        nfs3::put_request(out, request);
        let mark = record::mark(out.len() - start - record::MARK_BYTES);
        out[start..start + record::MARK_BYTES].copy_from_slice(&mark.to_be_bytes());
    }

    /// Replaces what is in `out` by a datagram with the call.
    #[inline]
    pub(super) fn put_datagram(&self, out: &mut Vec<u8>, xid: u32, request: &Request<'_>) {
        const MARK: usize = record::MARK_BYTES;
        out.clear();
        out.extend_from_slice(&self.head[MARK..]);
        patch(out, XID_AT - MARK, PROCEDURE_AT - MARK, xid, request.kind());
        nfs3::put_request(out, request);
    }
}

#[inline]
fn patch(call: &mut [u8], xid_at: usize, procedure_at: usize, xid: u32, kind: OpKind) {
    call[xid_at..xid_at + 4].copy_from_slice(&xid.to_be_bytes());
    // The other three bytes of the procedure's number are zero in the template.
    call[procedure_at + 3] = kind as u8;
}

#[cfg(test)]
mod tests {
    use super::*;
    use files::HandleRef;

    #[test]
    fn a_patched_template_equals_a_call_built_from_scratch() {
        let credential = rpc::AuthSys { stamp: 1, machine: b"bench".to_vec(), uid: 7, gid: 8, gids: vec![9] };
        let template = Template::new(&credential);
        let request = Request::Read { file: HandleRef(b"handle-1"), offset: 1 << 40, count: 8192 };
        let mut built = Vec::new();
        rpc::put_call(&mut built, 0xdead_beef, nfs3::PROGRAM, nfs3::VERSION, 6, &credential);
        nfs3::put_request(&mut built, &request);

        let mut datagram = b"left over".to_vec();
        template.put_datagram(&mut datagram, 0xdead_beef, &request);
        assert_eq!(datagram, built);
        let mut stream = b"earlier".to_vec();
        template.put_record(&mut stream, 0xdead_beef, &request);
        let mut rest = &stream[7..];
        assert_eq!(record::RecordReader::new(1000).next(&mut rest), Ok(Some(&built[..])));
        assert!(rest.is_empty());
    }
}
