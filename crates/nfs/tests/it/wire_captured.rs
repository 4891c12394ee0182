//! Messages that libnfs and nfs-ganesha exchanged (testdata/nfs3-ganesha): decoded, and encoded to the same bytes.

use std::{fs, path::PathBuf};

use files::{CreateHow, FileKind, OpKind, Reply, Request, Stability, Status};
use nfs::wire::{mount3, nfs3, rpc};

fn captured(file: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/nfs3-ganesha").join(file);
    fs::read(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn call(message: &[u8]) -> rpc::Call<'_> {
    let call = rpc::decode_call(message).unwrap();
    let rpc::Credential::Sys(user) = call.credential else { panic!("not AUTH_SYS") };
    assert_eq!((user.machine, user.uid), (&b"libnfs"[..], 0));
    call
}

fn results(message: &[u8]) -> &[u8] {
    rpc::decode_reply(message).unwrap().body.unwrap()
}

#[test]
fn libnfs_calls_decode_and_encode_to_the_same_bytes() {
    let mut seen = 0;
    for kind in OpKind::ALL {
        let file = format!("{}.call", kind.name());
        if !PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/nfs3-ganesha").join(&file).exists() {
            continue;
        }
        let message = captured(&file);
        let call = call(&message);
        assert_eq!((call.program, call.version, call.procedure), (nfs3::PROGRAM, 3, kind as u32));
        let request = nfs3::decode_request(kind, call.args).unwrap_or_else(|error| panic!("{file}: {error}"));
        let mut out = Vec::new();
        nfs3::put_request(&mut out, &request);
        assert_eq!(out, call.args, "{file}");
        seen += 1;
    }
    assert_eq!(seen, 11);
}

#[test]
fn ganesha_replies_to_all_procedures_decode_and_encode_to_the_same_bytes() {
    for kind in OpKind::ALL {
        let message = captured(&format!("{}.reply", kind.name()));
        let reply =
            nfs3::decode_reply(kind, results(&message)).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        let mut out = Vec::new();
        nfs3::put_reply(&mut out, kind, &reply);
        assert_eq!(out, results(&message), "{kind:?}");
    }
    let message = captured("lookup-failed.reply");
    assert_eq!(nfs3::decode_reply(OpKind::Lookup, results(&message)), Ok(Err(Status::NOENT)));
}

#[test]
fn the_values_in_them_are_the_ones_that_were_sent() {
    let lookup = captured("lookup.call");
    let Ok(Request::Lookup { name, .. }) = nfs3::decode_request(OpKind::Lookup, call(&lookup).args) else {
        panic!("no lookup")
    };
    assert_eq!(name, b"letter");
    let create = captured("create.call");
    let Ok(Request::Create { how: CreateHow::Guarded(new), .. }) =
        nfs3::decode_request(OpKind::Create, call(&create).args)
    else {
        panic!("no create")
    };
    assert_eq!(new.mode, Some(0o660));
    let write = captured("write.call");
    let Ok(Request::Write { bytes, offset: 0, stability: Stability::Unstable, .. }) =
        nfs3::decode_request(OpKind::Write, call(&write).args)
    else {
        panic!("no write")
    };
    let read = captured("read.reply");
    let Ok(Ok(Reply::Read { bytes: read, end: true, attributes: Some(attributes) })) =
        nfs3::decode_reply(OpKind::Read, results(&read))
    else {
        panic!("no read")
    };
    assert_eq!((bytes.len(), attributes.size), (406, 406));
    assert_eq!(bytes, read, "what was written was read");
    let fsinfo = captured("fsinfo.reply");
    let Ok(Ok(Reply::Fsinfo { limits, .. })) = nfs3::decode_reply(OpKind::Fsinfo, results(&fsinfo)) else {
        panic!("no fsinfo")
    };
    assert_eq!((limits.read_max, limits.write_max), (64 << 20, 64 << 20));
    let listing = captured("readdirplus.reply");
    let Ok(Ok(Reply::Listing { entries, end: true, .. })) =
        nfs3::decode_reply(OpKind::Readdirplus, results(&listing))
    else {
        panic!("no listing")
    };
    let letter = entries.into_iter().find(|entry| entry.name == b"letter").unwrap();
    assert_eq!(letter.attributes.map(|of| (of.kind, of.size)), Some((FileKind::Regular, 406)));
    assert!(letter.object.is_some());
}

#[test]
fn mounting_decodes() {
    let mnt = captured("mnt.call");
    let asked = call(&mnt);
    assert_eq!((asked.program, asked.version, asked.procedure), (mount3::PROGRAM, 3, 1));
    assert_eq!(mount3::decode_path(asked.args), Ok(&b"/vfs"[..]));
    let mounted = captured("mnt.reply");
    let root = mount3::decode_mounted(results(&mounted)).unwrap().unwrap();
    assert!(!root.root.0.is_empty() && root.flavours().any(|flavour| flavour == rpc::AUTH_SYS));
    let failed = captured("mnt-failed.reply");
    assert!(mount3::decode_mounted(results(&failed)).unwrap().is_err());
    let exports = captured("export.reply");
    let paths: Vec<_> =
        mount3::decode_exports(results(&exports)).map(|export| export.unwrap().path).collect();
    assert_eq!(paths, [b"/vfs"]);
}
