//! Every procedure's messages against nfs3_types, an independent encoding of the same RFCs: equal bytes for
//! equal values, and from those bytes the value again.

use crate::wire_values::{Material, material};
use files::{
    Attributes, CreateHow, DirEntry, FileKind, NodeKind, NodeTime, OpKind, Reply, Request, SetAttributes,
    SetTime, Stability, Status, Wcc,
};
use nfs::wire::{mount3, nfs3, portmap2, rpc};
use nfs3_types::{
    mount as their_mount,
    nfs3::{self as theirs, Nfs3Option, Nfs3Result},
    portmap as their_portmap, rpc as their_rpc,
    xdr_codec::{List, Opaque, Pack, Unpack, Void},
};
use proptest::prelude::*;

fn packed(value: &impl Pack) -> Vec<u8> {
    let mut out = Vec::new();
    value.pack(&mut out).unwrap();
    out
}

fn maybe<A, B: Pack + Unpack>(value: Option<A>, convert: impl Fn(A) -> B) -> Nfs3Option<B> {
    value.map_or(Nfs3Option::None, |value| Nfs3Option::Some(convert(value)))
}

fn handle(bytes: &[u8]) -> theirs::nfs_fh3 {
    theirs::nfs_fh3 { data: Opaque::owned(bytes.to_vec()) }
}

fn place<'a>(dir: &[u8], name: &'a [u8]) -> theirs::diropargs3<'a> {
    theirs::diropargs3 { dir: handle(dir), name: name.into() }
}

fn time(time: NodeTime) -> theirs::nfstime3 {
    theirs::nfstime3 { seconds: time.s, nseconds: time.ns }
}

fn stability(stability: Stability) -> theirs::stable_how {
    match stability {
        Stability::Unstable => theirs::stable_how::UNSTABLE,
        Stability::DataSync => theirs::stable_how::DATA_SYNC,
        Stability::FileSync => theirs::stable_how::FILE_SYNC,
    }
}

fn set(new: &SetAttributes) -> theirs::sattr3 {
    theirs::sattr3 {
        mode: maybe(new.mode, |mode| mode),
        uid: maybe(new.uid, |uid| uid),
        gid: maybe(new.gid, |gid| gid),
        size: maybe(new.size, |size| size),
        atime: match new.atime {
            SetTime::Keep => theirs::set_atime::DONT_CHANGE,
            SetTime::ServerTime => theirs::set_atime::SET_TO_SERVER_TIME,
            SetTime::To(to) => theirs::set_atime::SET_TO_CLIENT_TIME(time(to)),
        },
        mtime: match new.mtime {
            SetTime::Keep => theirs::set_mtime::DONT_CHANGE,
            SetTime::ServerTime => theirs::set_mtime::SET_TO_SERVER_TIME,
            SetTime::To(to) => theirs::set_mtime::SET_TO_CLIENT_TIME(time(to)),
        },
    }
}

fn device((major, minor): (u32, u32)) -> theirs::specdata3 {
    theirs::specdata3 { specdata1: major, specdata2: minor }
}

fn attributes(ours: Attributes) -> theirs::fattr3 {
    theirs::fattr3 {
        type_: match ours.kind {
            FileKind::Regular => theirs::ftype3::NF3REG,
            FileKind::Directory => theirs::ftype3::NF3DIR,
            FileKind::BlockDevice => theirs::ftype3::NF3BLK,
            FileKind::CharDevice => theirs::ftype3::NF3CHR,
            FileKind::Symlink => theirs::ftype3::NF3LNK,
            FileKind::Socket => theirs::ftype3::NF3SOCK,
            FileKind::Fifo => theirs::ftype3::NF3FIFO,
        },
        mode: ours.mode,
        nlink: ours.links,
        uid: ours.uid,
        gid: ours.gid,
        size: ours.size,
        used: ours.used,
        rdev: device(ours.device),
        fsid: ours.fsid,
        fileid: ours.fileid,
        atime: time(ours.atime),
        mtime: time(ours.mtime),
        ctime: time(ours.ctime),
    }
}

fn post(ours: Option<Attributes>) -> theirs::post_op_attr {
    maybe(ours, attributes)
}

fn wcc(ours: Wcc) -> theirs::wcc_data {
    theirs::wcc_data {
        before: maybe(ours.before, |before| theirs::wcc_attr {
            size: before.size,
            mtime: time(before.mtime),
            ctime: time(before.ctime),
        }),
        after: post(ours.after),
    }
}

fn their_request(request: &Request<'_>) -> Vec<u8> {
    match *request {
        Request::Null => packed(&Void),
        Request::Getattr { object } => packed(&theirs::GETATTR3args { object: handle(object.0) }),
        Request::Setattr { object, ref new, guard } => packed(&theirs::SETATTR3args {
            object: handle(object.0),
            new_attributes: set(new),
            guard: maybe(guard, time),
        }),
        Request::Lookup { dir, name } => packed(&theirs::LOOKUP3args { what: place(dir.0, name) }),
        Request::Access { object, rights } => {
            packed(&theirs::ACCESS3args { object: handle(object.0), access: rights })
        }
        Request::Readlink { link } => packed(&theirs::READLINK3args { symlink: handle(link.0) }),
        Request::Read { file, offset, count } => {
            packed(&theirs::READ3args { file: handle(file.0), offset, count })
        }
        Request::Write { file, offset, bytes, stability: how } => packed(&theirs::WRITE3args {
            file: handle(file.0),
            offset,
            count: bytes.len() as u32,
            stable: stability(how),
            data: Opaque::borrowed(bytes),
        }),
        Request::Create { dir, name, ref how } => packed(&theirs::CREATE3args {
            where_: place(dir.0, name),
            how: match how {
                CreateHow::Unchecked(new) => theirs::createhow3::UNCHECKED(set(new)),
                CreateHow::Guarded(new) => theirs::createhow3::GUARDED(set(new)),
                CreateHow::Exclusive(verifier) => {
                    theirs::createhow3::EXCLUSIVE(theirs::createverf3(*verifier))
                }
            },
        }),
        Request::Mkdir { dir, name, ref new } => {
            packed(&theirs::MKDIR3args { where_: place(dir.0, name), attributes: set(new) })
        }
        Request::Symlink { dir, name, target, ref new } => packed(&theirs::SYMLINK3args {
            where_: place(dir.0, name),
            symlink: theirs::symlinkdata3 {
                symlink_attributes: set(new),
                symlink_data: theirs::nfspath3(Opaque::borrowed(target)),
            },
        }),
        Request::Mknod { dir, name, node, ref new } => {
            let with = |numbers| theirs::devicedata3 { dev_attributes: set(new), spec: device(numbers) };
            packed(&theirs::MKNOD3args {
                where_: place(dir.0, name),
                what: match node {
                    NodeKind::BlockDevice { device } => theirs::mknoddata3::NF3BLK(with(device)),
                    NodeKind::CharDevice { device } => theirs::mknoddata3::NF3CHR(with(device)),
                    NodeKind::Socket => theirs::mknoddata3::NF3SOCK(set(new)),
                    NodeKind::Fifo => theirs::mknoddata3::NF3FIFO(set(new)),
                },
            })
        }
        Request::Remove { dir, name } => packed(&theirs::REMOVE3args { object: place(dir.0, name) }),
        Request::Rmdir { dir, name } => packed(&theirs::RMDIR3args { object: place(dir.0, name) }),
        Request::Rename { from_dir, from_name, to_dir, to_name } => {
            packed(&theirs::RENAME3args { from: place(from_dir.0, from_name), to: place(to_dir.0, to_name) })
        }
        Request::Link { file, dir, name } => {
            packed(&theirs::LINK3args { file: handle(file.0), link: place(dir.0, name) })
        }
        Request::Readdir { dir, cookie, verifier, count } => packed(&theirs::READDIR3args {
            dir: handle(dir.0),
            cookie,
            cookieverf: theirs::cookieverf3(verifier),
            count,
        }),
        Request::Readdirplus { dir, cookie, verifier, name_bytes, reply_bytes } => {
            packed(&theirs::READDIRPLUS3args {
                dir: handle(dir.0),
                cookie,
                cookieverf: theirs::cookieverf3(verifier),
                dircount: name_bytes,
                maxcount: reply_bytes,
            })
        }
        Request::Fsstat { root } => packed(&theirs::FSSTAT3args { fsroot: handle(root.0) }),
        Request::Fsinfo { root } => packed(&theirs::FSINFO3args { fsroot: handle(root.0) }),
        Request::Pathconf { object } => packed(&theirs::PATHCONF3args { object: handle(object.0) }),
        Request::Commit { file, offset, count } => {
            packed(&theirs::COMMIT3args { file: handle(file.0), offset, count })
        }
    }
}

/// `Nfs3Result` with whatever failure type, which is not looked at.
fn ok(value: impl Pack) -> Vec<u8> {
    packed(&Nfs3Result::<_, Void>::Ok(value))
}

fn their_reply(kind: OpKind, reply: &Reply<'_>) -> Vec<u8> {
    match *reply {
        Reply::Null => packed(&Void),
        Reply::Getattr { attributes: of } => ok(theirs::GETATTR3resok { obj_attributes: attributes(of) }),
        Reply::Setattr { object } => ok(theirs::SETATTR3resok { obj_wcc: wcc(object) }),
        Reply::Lookup { object, attributes, dir } => ok(theirs::LOOKUP3resok {
            object: handle(object.0),
            obj_attributes: post(attributes),
            dir_attributes: post(dir),
        }),
        Reply::Access { attributes, rights } => {
            ok(theirs::ACCESS3resok { obj_attributes: post(attributes), access: rights })
        }
        Reply::Readlink { attributes, target } => ok(theirs::READLINK3resok {
            symlink_attributes: post(attributes),
            data: theirs::nfspath3(Opaque::borrowed(target)),
        }),
        Reply::Read { attributes, bytes, end } => ok(theirs::READ3resok {
            file_attributes: post(attributes),
            count: bytes.len() as u32,
            eof: end,
            data: Opaque::borrowed(bytes),
        }),
        Reply::Write { file, count, stability: how, verifier } => ok(theirs::WRITE3resok {
            file_wcc: wcc(file),
            count,
            committed: stability(how),
            verf: theirs::writeverf3(verifier),
        }),
        Reply::Created { object, attributes, dir } => {
            let obj = maybe(object, |object| handle(object.0));
            let (obj_attributes, dir_wcc) = (post(attributes), wcc(dir));
            match kind {
                OpKind::Create => ok(theirs::CREATE3resok { obj, obj_attributes, dir_wcc }),
                OpKind::Mkdir => ok(theirs::MKDIR3resok { obj, obj_attributes, dir_wcc }),
                OpKind::Symlink => ok(theirs::SYMLINK3resok { obj, obj_attributes, dir_wcc }),
                _ => ok(theirs::MKNOD3resok { obj, obj_attributes, dir_wcc }),
            }
        }
        Reply::Removed { dir } if kind == OpKind::Remove => ok(theirs::REMOVE3resok { dir_wcc: wcc(dir) }),
        Reply::Removed { dir } => ok(theirs::RMDIR3resok { dir_wcc: wcc(dir) }),
        Reply::Rename { from_dir, to_dir } => {
            ok(theirs::RENAME3resok { fromdir_wcc: wcc(from_dir), todir_wcc: wcc(to_dir) })
        }
        Reply::Link { attributes, dir } => {
            ok(theirs::LINK3resok { file_attributes: post(attributes), linkdir_wcc: wcc(dir) })
        }
        Reply::Listing { dir, verifier, entries, end } if kind == OpKind::Readdir => {
            let entry = |entry: DirEntry<'_>| theirs::entry3 {
                fileid: entry.fileid,
                name: entry.name.to_vec().into(),
                cookie: entry.cookie,
            };
            ok(theirs::READDIR3resok {
                dir_attributes: post(dir),
                cookieverf: theirs::cookieverf3(verifier),
                reply: theirs::dirlist3 { entries: List(entries.map(entry).collect()), eof: end },
            })
        }
        Reply::Listing { dir, verifier, entries, end } => {
            let entry = |entry: DirEntry<'_>| theirs::entryplus3 {
                fileid: entry.fileid,
                name: entry.name.to_vec().into(),
                cookie: entry.cookie,
                name_attributes: post(entry.attributes),
                name_handle: maybe(entry.object, |object| handle(object.0)),
            };
            ok(theirs::READDIRPLUS3resok {
                dir_attributes: post(dir),
                cookieverf: theirs::cookieverf3(verifier),
                reply: theirs::dirlistplus3 { entries: List(entries.map(entry).collect()), eof: end },
            })
        }
        Reply::Fsstat { attributes, stat } => ok(theirs::FSSTAT3resok {
            obj_attributes: post(attributes),
            tbytes: stat.bytes_total,
            fbytes: stat.bytes_free,
            abytes: stat.bytes_available,
            tfiles: stat.files_total,
            ffiles: stat.files_free,
            afiles: stat.files_available,
            invarsec: stat.stable_s,
        }),
        Reply::Fsinfo { attributes, limits } => ok(theirs::FSINFO3resok {
            obj_attributes: post(attributes),
            rtmax: limits.read_max,
            rtpref: limits.read_preferred,
            rtmult: limits.read_multiple,
            wtmax: limits.write_max,
            wtpref: limits.write_preferred,
            wtmult: limits.write_multiple,
            dtpref: limits.readdir_preferred,
            maxfilesize: limits.file_size_max,
            time_delta: time(limits.time_delta),
            properties: limits.properties,
        }),
        Reply::Pathconf { attributes, limits } => ok(theirs::PATHCONF3resok {
            obj_attributes: post(attributes),
            linkmax: limits.links_max,
            name_max: limits.name_bytes_max,
            no_trunc: limits.no_truncation,
            chown_restricted: limits.chown_restricted,
            case_insensitive: limits.case_insensitive,
            case_preserving: limits.case_preserving,
        }),
        Reply::Commit { file, verifier } => {
            ok(theirs::COMMIT3resok { file_wcc: wcc(file), verf: theirs::writeverf3(verifier) })
        }
    }
}

/// A failure with whatever attributes, as other servers send it.
fn their_failure(kind: OpKind, status: theirs::nfsstat3, material: &Material) -> Vec<u8> {
    let [attributes, _] = material.attributes;
    let [first, second] = material.wcc;
    macro_rules! failed {
        ($res:ident { $($field:ident: $value:expr),* }) => {
            packed(&Nfs3Result::<Void, _>::Err((status, theirs::$res { $($field: $value),* })))
        };
    }
    match kind {
        OpKind::Null => Vec::new(),
        OpKind::Getattr => packed(&Nfs3Result::<Void, _>::Err((status, Void))),
        OpKind::Setattr => failed!(SETATTR3resfail { obj_wcc: wcc(first) }),
        OpKind::Lookup => failed!(LOOKUP3resfail { dir_attributes: post(attributes) }),
        OpKind::Access => failed!(ACCESS3resfail { obj_attributes: post(attributes) }),
        OpKind::Readlink => failed!(READLINK3resfail { symlink_attributes: post(attributes) }),
        OpKind::Read => failed!(READ3resfail { file_attributes: post(attributes) }),
        OpKind::Write => failed!(WRITE3resfail { file_wcc: wcc(first) }),
        OpKind::Create => failed!(CREATE3resfail { dir_wcc: wcc(first) }),
        OpKind::Mkdir => failed!(MKDIR3resfail { dir_wcc: wcc(first) }),
        OpKind::Symlink => failed!(SYMLINK3resfail { dir_wcc: wcc(first) }),
        OpKind::Mknod => failed!(MKNOD3resfail { dir_wcc: wcc(first) }),
        OpKind::Remove => failed!(REMOVE3resfail { dir_wcc: wcc(first) }),
        OpKind::Rmdir => failed!(RMDIR3resfail { dir_wcc: wcc(first) }),
        OpKind::Rename => failed!(RENAME3resfail { fromdir_wcc: wcc(first), todir_wcc: wcc(second) }),
        OpKind::Link => failed!(LINK3resfail { file_attributes: post(attributes), linkdir_wcc: wcc(first) }),
        OpKind::Readdir => failed!(READDIR3resfail { dir_attributes: post(attributes) }),
        OpKind::Readdirplus => failed!(READDIRPLUS3resfail { dir_attributes: post(attributes) }),
        OpKind::Fsstat => failed!(FSSTAT3resfail { obj_attributes: post(attributes) }),
        OpKind::Fsinfo => failed!(FSINFO3resfail { obj_attributes: post(attributes) }),
        OpKind::Pathconf => failed!(PATHCONF3resfail { obj_attributes: post(attributes) }),
        OpKind::Commit => failed!(COMMIT3resfail { file_wcc: wcc(first) }),
    }
}

proptest! {
    #[test]
    fn every_procedures_arguments_are_the_oracles_bytes(material in material()) {
        for kind in OpKind::ALL {
            let request = material.request(kind);
            let mut ours = Vec::new();
            nfs3::put_request(&mut ours, &request);
            prop_assert_eq!(&ours, &their_request(&request), "{:?}", &request);
            prop_assert_eq!(nfs3::decode_request(kind, &ours), Ok(request));
        }
    }

    #[test]
    fn every_procedures_results_are_the_oracles_bytes(material in material()) {
        for kind in OpKind::ALL {
            let entries = material.entries(kind);
            let reply = material.reply(kind, &entries);
            let mut ours = Vec::new();
            nfs3::put_reply(&mut ours, kind, &Ok(reply));
            prop_assert_eq!(&ours, &their_reply(kind, &reply), "{:?}", &reply);
            prop_assert_eq!(nfs3::decode_reply(kind, &ours), Ok(Ok(reply)));
            if let Reply::Listing { dir, entries, .. } = reply {
                let entries: usize = entries.map(|entry| nfs3::entry_bytes(kind, &entry)).sum();
                let absent = if dir.is_none() { nfs3::ATTRIBUTES_BYTES } else { 0 };
                prop_assert_eq!(ours.len(), nfs3::LISTING_BYTES - absent + entries);
            }
        }
    }

    #[test]
    fn every_procedures_failure_is_read_with_and_without_attributes(material in material()) {
        for kind in OpKind::ALL.into_iter().filter(|kind| *kind != OpKind::Null) {
            let theirs = their_failure(kind, theirs::nfsstat3::NFS3ERR_STALE, &material);
            prop_assert_eq!(nfs3::decode_reply(kind, &theirs), Ok(Err(Status::STALE)), "{}", kind.name());
            let bare = Material { attributes: [None; 2], wcc: [Wcc::default(); 2], ..material.clone() };
            let mut ours = Vec::new();
            nfs3::put_reply(&mut ours, kind, &Err(Status::STALE));
            prop_assert_eq!(ours, their_failure(kind, theirs::nfsstat3::NFS3ERR_STALE, &bare), "{}", kind.name());
        }
    }

    #[test]
    fn calls_are_the_oracles_bytes(
        xid: u32, procedure in 0_u32..22, machine in proptest::collection::vec(any::<u8>(), 0..40),
        uid: u32, gid: u32, gids in proptest::collection::vec(any::<u32>(), 0..=16),
    ) {
        let user = rpc::AuthSys { stamp: 1, machine, uid, gid, gids };
        let mut ours = Vec::new();
        rpc::put_call(&mut ours, xid, nfs3::PROGRAM, nfs3::VERSION, procedure, &user);
        let unix = their_rpc::auth_unix {
            stamp: 1, machinename: Opaque::owned(user.machine), uid, gid, gids: user.gids,
        };
        let call = their_rpc::call_body {
            rpcvers: 2, prog: nfs3::PROGRAM, vers: nfs3::VERSION, proc: procedure,
            cred: their_rpc::opaque_auth::auth_unix(&unix), verf: their_rpc::opaque_auth::default(),
        };
        prop_assert_eq!(ours, packed(&their_rpc::rpc_msg { xid, body: their_rpc::msg_body::CALL(call) }));
    }

    #[test]
    fn mounts_are_the_oracles_bytes(
        root in proptest::collection::vec(any::<u8>(), 0..=64), flavours in proptest::collection::vec(any::<u32>(), 0..5),
        path in proptest::collection::vec(any::<u8>(), 0..30), port: u16,
    ) {
        let mut ours = Vec::new();
        mount3::put_mounted(&mut ours, Ok((files::HandleRef(&root), &flavours)));
        let theirs = their_mount::mountres3_ok {
            fhandle: their_mount::fhandle3(Opaque::borrowed(&root)), auth_flavors: flavours,
        };
        prop_assert_eq!(&ours, &packed(&their_mount::mountres3::Ok(theirs)));
        let mut ours = Vec::new();
        mount3::put_path(&mut ours, &path);
        prop_assert_eq!(ours, packed(&their_mount::dirpath(Opaque::borrowed(&path))));

        let wanted = portmap2::Wanted { program: nfs3::PROGRAM, version: 3, protocol: portmap2::UDP };
        let mut ours = Vec::new();
        portmap2::put_getport(&mut ours, wanted);
        let theirs = their_portmap::mapping { prog: nfs3::PROGRAM, vers: 3, prot: 17, port: 0 };
        prop_assert_eq!(ours, packed(&theirs));
        prop_assert_eq!(portmap2::decode_port(&packed(&u32::from(port))), Ok(Some(port).filter(|port| *port != 0)));
    }
}

#[test]
fn refusals_are_the_oracles_bytes() {
    use rpc::Refusal;
    use their_rpc::{accept_stat_data, auth_stat, rejected_reply, reply_body};
    let accepted = |reply_data| {
        reply_body::MSG_ACCEPTED(their_rpc::accepted_reply {
            verf: their_rpc::opaque_auth::default(),
            reply_data,
        })
    };
    let denied = reply_body::MSG_DENIED;
    for (ours, theirs) in [
        (Refusal::ProgramUnavailable, accepted(accept_stat_data::PROG_UNAVAIL)),
        (
            Refusal::VersionMismatch { low: 3, high: 4 },
            accepted(accept_stat_data::PROG_MISMATCH { low: 3, high: 4 }),
        ),
        (Refusal::ProcedureUnavailable, accepted(accept_stat_data::PROC_UNAVAIL)),
        (Refusal::GarbageArguments, accepted(accept_stat_data::GARBAGE_ARGS)),
        (Refusal::SystemError, accepted(accept_stat_data::SYSTEM_ERR)),
        (Refusal::RpcMismatch, denied(rejected_reply::rpc_mismatch(2, 2))),
        (Refusal::AuthBadCredential, denied(rejected_reply::auth_error(auth_stat::AUTH_BADCRED))),
        (Refusal::AuthTooWeak, denied(rejected_reply::auth_error(auth_stat::AUTH_TOOWEAK))),
    ] {
        let mut out = Vec::new();
        rpc::put_refusal(&mut out, 77, ours);
        let theirs = their_rpc::rpc_msg { xid: 77, body: their_rpc::msg_body::REPLY(theirs) };
        assert_eq!(out, packed(&theirs), "{ours:?}");
    }
}
