//! What is done with hostile bytes: by the fuzz target, and with a fixed number of inputs by a test.
//!
//! The first byte chooses a procedure, the rest goes to every decoder. Whatever decodes must encode and decode again to
//! the same value; a listing must be walkable to its end.

use files::{OpKind, Reply};
use nfs::wire::{mount3, nfs3, portmap2, record::RecordReader, rpc};

pub fn hostile(input: &[u8]) {
    let Some((choice, message)) = input.split_first() else { return };
    let kind = OpKind::ALL[usize::from(*choice) % OpKind::COUNT];
    let mut out = Vec::new();

    if let Ok(call) = rpc::decode_call(message) {
        if let rpc::Credential::Sys(sys) = call.credential {
            assert!(sys.gids().count() <= 16 && sys.machine.len() <= 255);
        }
        if let Some(called) = OpKind::from_number(call.procedure) {
            request(called, call.args, &mut out);
        }
    }
    if let Ok(rpc::RpcReply { body: Ok(results), .. }) = rpc::decode_reply(message) {
        reply(kind, results, &mut out);
    }
    request(kind, message, &mut out);
    reply(kind, message, &mut out);

    let _ = portmap2::decode_getport(message);
    let _ = portmap2::decode_port(message);
    let _ = mount3::decode_path(message);
    if let Ok(Ok(mounted)) = mount3::decode_mounted(message) {
        assert!(mounted.root.0.len() <= 64 && mounted.flavours().count() <= 64);
    }
    assert!(mount3::decode_mounts(message).count() <= message.len() / 8 + 1);
    for export in mount3::decode_exports(message).flatten() {
        assert!(export.groups().count() <= message.len() / 8);
    }

    let mut records = RecordReader::new(1000);
    let mut received = message;
    while let Ok(Some(record)) = records.next(&mut received) {
        assert!(record.len() <= 1000);
    }
}

fn request(kind: OpKind, args: &[u8], out: &mut Vec<u8>) {
    if let Ok(request) = nfs3::decode_request(kind, args) {
        assert_eq!(request.kind(), kind);
        out.clear();
        nfs3::put_request(out, &request);
        assert_eq!(out.len(), args.len());
        assert_eq!(nfs3::decode_request(kind, out), Ok(request));
    }
}

fn reply(kind: OpKind, results: &[u8], out: &mut Vec<u8>) {
    if let Ok(Ok(reply)) = nfs3::decode_reply(kind, results) {
        if let Reply::Listing { entries, .. } = reply {
            assert!(entries.count() <= results.len() / 24);
        }
        out.clear();
        nfs3::put_reply(out, kind, &Ok(reply));
        assert_eq!(out.len(), results.len());
        assert_eq!(nfs3::decode_reply(kind, out), Ok(Ok(reply)));
    }
}
