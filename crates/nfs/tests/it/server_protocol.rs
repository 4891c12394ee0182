//! The servers at the level of bytes: the rules of RPC, fragments, batches, datagrams, and hostile peers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use files::{
    CreateHow, DirectoryOptions, Handle, HandleRef, OpKind, Reply, Request, SetAttributes, Stability, Status,
};
use nfs::server::{Server, ServerOptions, serve_dir, serve_null};
use nfs::wire::rpc::{self, AuthSys, Refusal};
use nfs::wire::{mount3, nfs3};

fn auth() -> AuthSys {
    AuthSys { stamp: 1, machine: b"test".to_vec(), uid: 0, gid: 0, gids: vec![0, 1] }
}

fn call(xid: u32, program: u32, version: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [xid, 0, 2, program, version, procedure, 0, 0, 0, 0] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(args);
    out
}

fn nfs_call(xid: u32, request: &Request<'_>) -> Vec<u8> {
    let mut args = Vec::new();
    nfs3::put_request(&mut args, request);
    call(xid, nfs3::PROGRAM, nfs3::VERSION, request.kind() as u32, &args)
}

fn record(message: &[u8]) -> Vec<u8> {
    let mark = 0x8000_0000 | message.len() as u32;
    [&mark.to_be_bytes(), message].concat()
}

/// One connection, a record at a time.
struct Peer(TcpStream);

impl Peer {
    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.addr()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark).unwrap();
        let mark = u32::from_be_bytes(mark);
        assert!(mark & 0x8000_0000 != 0, "a reply in several fragments");
        let mut message = vec![0; (mark & 0x7fff_ffff) as usize];
        self.0.read_exact(&mut message).unwrap();
        message
    }

    fn ask(&mut self, message: &[u8]) -> Vec<u8> {
        self.0.write_all(&record(message)).unwrap();
        self.receive()
    }

    fn nfs<T>(
        &mut self,
        request: &Request<'_>,
        look: impl FnOnce(Reply<'_>) -> Option<T>,
    ) -> Result<T, Status> {
        let reply = self.ask(&nfs_call(7, request));
        looked(request.kind(), &reply, look)
    }

    fn closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 1]), Ok(0) | Err(_))
    }
}

fn looked<T>(kind: OpKind, reply: &[u8], look: impl FnOnce(Reply<'_>) -> Option<T>) -> Result<T, Status> {
    let reply = rpc::decode_reply(reply).unwrap();
    let result = nfs3::decode_reply(kind, reply.body.unwrap()).unwrap();
    result.map(|reply| look(reply).expect("a reply of the right kind"))
}

fn refusal(reply: &[u8]) -> Option<Refusal> {
    rpc::decode_reply(reply).unwrap().body.err()
}

fn mount(peer: &mut Peer, path: &[u8]) -> Result<Handle, mount3::MountStatus> {
    let mut args = Vec::new();
    mount3::put_path(&mut args, path);
    let reply = peer.ask(&call(1, mount3::PROGRAM, 3, 1, &args));
    let body = rpc::decode_reply(&reply).unwrap().body.unwrap();
    mount3::decode_mounted(body).unwrap().map(|mounted| Handle::new(mounted.root.0).unwrap())
}

fn created(reply: Reply<'_>) -> Option<Handle> {
    match reply {
        Reply::Created { object: Some(object), .. } => Handle::new(object.0),
        _ => None,
    }
}

fn exported() -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("sub/deep")).unwrap();
    std::fs::write(folder.path().join("file"), "content").unwrap();
    std::os::unix::fs::symlink("/", folder.path().join("link")).unwrap();
    let server = serve_dir(folder.path(), ServerOptions::default(), DirectoryOptions::default()).unwrap();
    (folder, server)
}

const ATTRIBUTES: SetAttributes = SetAttributes {
    mode: Some(0o644),
    uid: None,
    gid: None,
    size: None,
    atime: files::SetTime::Keep,
    mtime: files::SetTime::Keep,
};

/// One of each procedure, on the handles given.
fn every_request<'a>(dir: HandleRef<'a>, file: HandleRef<'a>, bytes: &'a [u8]) -> Vec<Request<'a>> {
    use Request as R;
    let new = ATTRIBUTES;
    vec![
        R::Null,
        R::Getattr { object: file },
        R::Setattr { object: file, new, guard: None },
        R::Lookup { dir, name: b"file" },
        R::Access { object: file, rights: 0x3f },
        R::Readlink { link: file },
        R::Read { file, offset: 3, count: 8191 },
        R::Write { file, offset: 3, bytes, stability: Stability::Unstable },
        R::Create { dir, name: b"new", how: CreateHow::Unchecked(new) },
        R::Mkdir { dir, name: b"newdir", new },
        R::Symlink { dir, name: b"newlink", target: b"x", new },
        R::Mknod { dir, name: b"newfifo", node: files::NodeKind::Fifo, new },
        R::Remove { dir, name: b"none" },
        R::Rmdir { dir, name: b"none" },
        R::Rename { from_dir: dir, from_name: b"none", to_dir: dir, to_name: b"other" },
        R::Link { file, dir, name: b"name2" },
        R::Readdir { dir, cookie: 0, verifier: [0; 8], count: 4096 },
        R::Readdirplus { dir, cookie: 0, verifier: [0; 8], name_bytes: 4096, reply_bytes: 8192 },
        R::Fsstat { root: dir },
        R::Fsinfo { root: dir },
        R::Pathconf { object: file },
        R::Commit { file, offset: 0, count: 0 },
    ]
}

#[test]
fn the_null_responder_answers_every_procedure_over_tcp_and_udp() {
    let server = serve_null(ServerOptions::default()).unwrap();
    let mut peer = Peer::connect(&server);
    let root = mount(&mut peer, b"/anything").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut buffer = vec![0; 65_536];
    for (number, request) in every_request(root.by_ref(), root.by_ref(), &[5; 3000]).iter().enumerate() {
        let message = nfs_call(1000 + number as u32, request);
        let over_tcp = peer.ask(&message);
        socket.send_to(&message, server.addr()).unwrap();
        let (len, _) = socket.recv_from(&mut buffer).unwrap();
        for reply in [&over_tcp[..], &buffer[..len]] {
            let whole = rpc::decode_reply(reply).unwrap();
            assert_eq!(whole.xid, 1000 + number as u32);
            let result = nfs3::decode_reply(request.kind(), whole.body.unwrap()).unwrap();
            match result.unwrap_or_else(|status| panic!("{request:?}: {status}")) {
                Reply::Read { bytes, end, .. } => {
                    assert_eq!((bytes.len(), end), (8191, false));
                    assert!(bytes.iter().all(|byte| *byte == 0));
                }
                Reply::Write { count, .. } => assert_eq!(count, 3000),
                Reply::Access { rights, .. } => assert_eq!(rights, 0x3f),
                Reply::Getattr { attributes } => assert_eq!(attributes.kind, files::FileKind::Directory),
                _ => {}
            }
        }
    }
    assert_eq!(server.counters().calls, 2 * 22 + 1);
}

#[test]
fn many_calls_in_one_write_are_answered_in_order() {
    let server = serve_null(ServerOptions::default()).unwrap();
    let mut peer = Peer::connect(&server);
    let root = mount(&mut peer, b"/").unwrap();
    let mut batch = Vec::new();
    for xid in 0..500 {
        let count = if xid % 2 == 0 { 8192 } else { 1 };
        batch.extend_from_slice(&record(&nfs_call(
            xid,
            &Request::Read { file: root.by_ref(), offset: 0, count },
        )));
    }
    let mut sender = peer.0.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || sender.write_all(&batch).unwrap());
        for xid in 0..500 {
            let reply = peer.receive();
            assert_eq!(rpc::decode_reply(&reply).unwrap().xid, xid);
            let len = looked(OpKind::Read, &reply, |reply| match reply {
                Reply::Read { bytes, .. } => Some(bytes.len()),
                _ => None,
            });
            assert_eq!(len, Ok(if xid % 2 == 0 { 8192 } else { 1 }));
        }
    });
}

#[test]
fn the_directory_server_answers_every_procedure_within_its_rules() {
    let (folder, server) = exported();
    let mut peer = Peer::connect(&server);
    let root = mount(&mut peer, b"/").unwrap();
    let file = peer
        .nfs(&Request::Lookup { dir: root.by_ref(), name: b"file" }, |reply| match reply {
            Reply::Lookup { object, .. } => Handle::new(object.0),
            _ => None,
        })
        .unwrap();
    for request in every_request(root.by_ref(), file.by_ref(), b"NEW") {
        let expected = match request.kind() {
            OpKind::Remove | OpKind::Rmdir | OpKind::Rename => Err(Status::NOENT),
            OpKind::Readlink => Err(Status::INVAL),
            _ => Ok(()),
        };
        assert_eq!(peer.nfs(&request, |_| Some(())), expected, "{request:?}");
    }
    assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"conNEWt");
    assert_eq!(server.counters().errors, 4);
}

#[test]
fn mount_takes_directories_below_the_export_and_nothing_else() {
    let (_folder, server) = exported();
    let mut peer = Peer::connect(&server);
    let root = mount(&mut peer, b"/").unwrap();
    // Symptom: `nfs-cp FILE nfs://host/file` could not mount what is in front of `/file`.
    assert_eq!(mount(&mut peer, b""), Ok(root));
    assert_eq!(mount(&mut peer, b"//sub/../sub"), Err(mount3::MountStatus::ACCES));
    assert_eq!(mount(&mut peer, b"/.."), Err(mount3::MountStatus::ACCES));
    assert_eq!(mount(&mut peer, b"/none"), Err(mount3::MountStatus::NOENT));
    assert_eq!(mount(&mut peer, b"sub"), Err(mount3::MountStatus::NOENT));
    assert_eq!(mount(&mut peer, b"/file"), Err(mount3::MountStatus::NOTDIR));
    assert_eq!(mount(&mut peer, b"/link"), Err(mount3::MountStatus::NOTDIR));
    assert_eq!(mount(&mut peer, b"/link/etc"), Err(mount3::MountStatus::NOTDIR));
    assert_eq!(mount(&mut peer, b"/./"), Ok(root));
    let deep = mount(&mut peer, b"/sub/deep").unwrap();
    assert_ne!(deep, root);

    let exports = peer.ask(&call(2, mount3::PROGRAM, 3, 5, b""));
    let body = rpc::decode_reply(&exports).unwrap().body.unwrap();
    let paths: Vec<Vec<u8>> =
        mount3::decode_exports(body).map(|export| export.unwrap().path.to_vec()).collect();
    assert_eq!(paths, [b"/".to_vec()]);
    let mut args = Vec::new();
    mount3::put_path(&mut args, b"/sub");
    for (procedure, args) in [(0, &b""[..]), (2, b""), (3, &args), (4, b"")] {
        assert_eq!(refusal(&peer.ask(&call(3, mount3::PROGRAM, 3, procedure, args))), None);
    }
    assert_eq!(refusal(&peer.ask(&call(3, mount3::PROGRAM, 3, 6, b""))), Some(Refusal::ProcedureUnavailable));
}

#[test]
fn calls_that_break_the_rules_are_refused_by_the_rules() {
    let (_folder, export) = exported();
    for server in [export, serve_null(ServerOptions::default()).unwrap()] {
        let mut peer = Peer::connect(&server);
        let wrong_version = Refusal::VersionMismatch { low: 3, high: 3 };
        for (message, expected) in [
            (call(1, 100_099, 3, 0, b""), Refusal::ProgramUnavailable),
            (call(1, nfs3::PROGRAM, 4, 0, b""), wrong_version),
            (call(1, mount3::PROGRAM, 1, 0, b""), wrong_version),
            (call(1, nfs3::PROGRAM, 3, 22, b""), Refusal::ProcedureUnavailable),
            (call(1, nfs3::PROGRAM, 3, 1, b"abc"), Refusal::GarbageArguments),
            (call(1, nfs3::PROGRAM, 3, 1, &[0xff; 64]), Refusal::GarbageArguments),
            (call(1, mount3::PROGRAM, 3, 1, &[0xff; 8]), Refusal::GarbageArguments),
        ] {
            assert_eq!(refusal(&peer.ask(&message)), Some(expected));
        }
        let mut old_rpc = call(1, nfs3::PROGRAM, 3, 0, b"");
        old_rpc[11] = 1;
        assert_eq!(refusal(&peer.ask(&old_rpc)), Some(Refusal::RpcMismatch));
        // RPCSEC_GSS, and a credential longer than any.
        let mut gss = call(1, nfs3::PROGRAM, 3, 0, b"");
        gss[27] = 6;
        assert_eq!(refusal(&peer.ask(&gss)), Some(Refusal::AuthBadCredential));
        let mut long = call(1, nfs3::PROGRAM, 3, 0, b"");
        long[28..32].fill(0xff);
        assert_eq!(refusal(&peer.ask(&long)), Some(Refusal::AuthBadCredential));
        // AUTH_SYS is taken.
        let mut args = Vec::new();
        rpc::put_call(&mut args, 5, nfs3::PROGRAM, 3, 0, &auth());
        assert_eq!(refusal(&peer.ask(&args)), None);
        assert_eq!(server.counters().refused, 10);
    }
}

#[test]
fn what_is_no_call_closes_the_connection_after_the_answers_before_it() {
    let server = serve_null(ServerOptions::default()).unwrap();
    let good = record(&call(9, nfs3::PROGRAM, 3, 0, b""));
    // A reply instead of a call, a record without room for one, and one of two gigabytes.
    let a_reply = record(&[&9_u32.to_be_bytes()[..], &1_u32.to_be_bytes(), &[0; 24]].concat());
    for bad in [a_reply, record(b"short"), vec![0xff, 0xff, 0xff, 0xff, 0, 0]] {
        let mut peer = Peer::connect(&server);
        peer.0.write_all(&[good.clone(), bad].concat()).unwrap();
        assert_eq!(rpc::decode_reply(&peer.receive()).unwrap().xid, 9);
        assert!(peer.closed());
    }
    assert!(Peer::connect(&server).ask(&call(1, nfs3::PROGRAM, 3, 0, b"")).len() == 24);
}

#[test]
fn a_call_in_fragments_and_in_single_bytes_is_one_call() {
    let (folder, server) = exported();
    let mut peer = Peer::connect(&server);
    let root = mount(&mut peer, b"/").unwrap();
    let how = CreateHow::Guarded(ATTRIBUTES);
    let message = nfs_call(77, &Request::Create { dir: root.by_ref(), name: b"pieces", how });
    let (first, second) = message.split_at(30);
    let mut bytes = (first.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(first);
    // An empty fragment is allowed.
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&record(second));
    for byte in bytes {
        peer.0.write_all(&[byte]).unwrap();
    }
    let reply = peer.receive();
    assert_eq!(rpc::decode_reply(&reply).unwrap().xid, 77);
    assert!(looked(OpKind::Create, &reply, created).is_ok());
    assert!(folder.path().join("pieces").exists());
}

#[test]
fn the_largest_write_passes_and_its_bytes_arrive() {
    let (folder, server) = exported();
    let mut peer = Peer::connect(&server);
    let root = mount(&mut peer, b"/").unwrap();
    let how = CreateHow::Guarded(ATTRIBUTES);
    let file = peer.nfs(&Request::Create { dir: root.by_ref(), name: b"big", how }, created).unwrap();
    let bytes: Vec<u8> = (0..1 << 20).map(|number: u32| (number / 3) as u8).collect();
    let write =
        Request::Write { file: file.by_ref(), offset: 0, bytes: &bytes, stability: Stability::FileSync };
    let count = peer.nfs(&write, |reply| match reply {
        Reply::Write { count, .. } => Some(count),
        _ => None,
    });
    assert_eq!(count, Ok(1 << 20));
    let read = Request::Read { file: file.by_ref(), offset: 0, count: u32::MAX };
    let whole = peer.nfs(&read, |reply| match reply {
        Reply::Read { bytes, end, .. } => Some((bytes.to_vec(), end)),
        _ => None,
    });
    assert!(whole == Ok((bytes.clone(), true)), "read back");
    assert!(std::fs::read(folder.path().join("big")).unwrap() == bytes);
}

#[test]
fn a_peer_that_does_not_read_delays_nobody_else() {
    let server = serve_null(ServerOptions::default()).unwrap();
    let mut slow = Peer::connect(&server);
    let root = mount(&mut slow, b"/").unwrap();
    slow.0.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let read = record(&nfs_call(1, &Request::Read { file: root.by_ref(), offset: 0, count: 1 << 20 }));
    let calls = read.repeat(1000);
    while slow.0.write(&calls).is_ok() {}
    let mut other = Peer::connect(&server);
    for _ in 0..100 {
        assert_eq!(refusal(&other.ask(&call(1, nfs3::PROGRAM, 3, 0, b""))), None);
    }
}

#[test]
fn connections_over_the_limit_are_closed_and_counted() {
    let options = ServerOptions { connections_max: 2, ..ServerOptions::default() };
    let server = serve_null(options).unwrap();
    let null = call(1, nfs3::PROGRAM, 3, 0, b"");
    let mut kept: Vec<Peer> = (0..2).map(|_| Peer::connect(&server)).collect();
    for peer in &mut kept {
        peer.ask(&null);
    }
    assert!(Peer::connect(&server).closed());
    assert_eq!(server.counters().connections_refused, 1);
    drop(kept.pop());
    // The server notices the end in its own time; a connection is taken again once it has.
    let taken = (0..1000).any(|_| {
        let mut peer = Peer::connect(&server);
        peer.0.write_all(&record(&null)).is_ok() && !peer.closed()
    });
    assert!(taken);
}

struct Datagrams(UdpSocket, SocketAddr);

impl Datagrams {
    fn to(server: &Server) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self(socket, server.addr())
    }

    fn ask(&self, message: &[u8]) -> Vec<u8> {
        self.0.send_to(message, self.1).unwrap();
        let mut buffer = vec![0; 65_536];
        let len = self.0.recv(&mut buffer).unwrap();
        buffer.truncate(len);
        buffer
    }
}

#[test]
fn a_call_repeated_over_udp_is_carried_out_once() {
    let (folder, server) = exported();
    let root = mount(&mut Peer::connect(&server), b"/").unwrap();
    let udp = Datagrams::to(&server);
    let remove = nfs_call(5, &Request::Remove { dir: root.by_ref(), name: b"file" });
    let first = udp.ask(&remove);
    assert!(looked(OpKind::Remove, &first, |_| Some(())).is_ok());
    assert_eq!(udp.ask(&remove), first);
    assert!(!folder.path().join("file").exists());
    let another = nfs_call(6, &Request::Remove { dir: root.by_ref(), name: b"file" });
    assert_eq!(looked(OpKind::Remove, &udp.ask(&another), |_| Some(())), Err(Status::NOENT));
}

#[test]
fn udp_replies_fit_into_datagrams_and_junk_is_dropped() {
    let (folder, server) = exported();
    std::fs::write(folder.path().join("large"), vec![1; 200_000]).unwrap();
    let mut peer = Peer::connect(&server);
    let root = mount(&mut peer, b"/").unwrap();
    let lookup = Request::Lookup { dir: root.by_ref(), name: b"large" };
    let file = peer
        .nfs(&lookup, |reply| match reply {
            Reply::Lookup { object, .. } => Handle::new(object.0),
            _ => None,
        })
        .unwrap();
    let udp = Datagrams::to(&server);
    for junk in [&b""[..], b"x", &[0; 23], &[0xff; 1000]] {
        udp.0.send_to(junk, udp.1).unwrap();
    }
    let read = nfs_call(1, &Request::Read { file: file.by_ref(), offset: 0, count: 1 << 20 });
    let len = looked(OpKind::Read, &udp.ask(&read), |reply| match reply {
        Reply::Read { bytes, end: false, .. } => Some(bytes.len()),
        _ => None,
    });
    assert_eq!(len, Ok(32 * 1024));
    let fsinfo = nfs_call(2, &Request::Fsinfo { root: root.by_ref() });
    let limits = looked(OpKind::Fsinfo, &udp.ask(&fsinfo), |reply| match reply {
        Reply::Fsinfo { limits, .. } => Some((limits.read_max, limits.write_max)),
        _ => None,
    });
    assert_eq!(limits, Ok((32 * 1024, 32 * 1024)));
}

#[test]
fn a_handle_survives_a_rename_by_another_client_and_is_stale_after_removal() {
    let (_folder, server) = exported();
    let (mut one, mut two) = (Peer::connect(&server), Peer::connect(&server));
    let root = mount(&mut one, b"/").unwrap();
    let sub = mount(&mut two, b"/sub").unwrap();
    let how = CreateHow::Guarded(ATTRIBUTES);
    let file = one.nfs(&Request::Create { dir: sub.by_ref(), name: b"a", how }, created).unwrap();
    let rename = |from: &'static [u8], to: &'static [u8]| Request::Rename {
        from_dir: root.by_ref(),
        from_name: from,
        to_dir: root.by_ref(),
        to_name: to,
    };
    assert_eq!(two.nfs(&rename(b"sub", b"moved"), |_| Some(())), Ok(()));
    let getattr = Request::Getattr { object: file.by_ref() };
    assert_eq!(one.nfs(&getattr, |_| Some(())), Ok(()));
    assert_eq!(two.nfs(&Request::Remove { dir: sub.by_ref(), name: b"a" }, |_| Some(())), Ok(()));
    assert_eq!(one.nfs(&getattr, |_| Some(())), Err(Status::STALE));
}

#[test]
fn an_address_in_use_is_named_with_what_to_do() {
    let server = serve_null(ServerOptions::default()).unwrap();
    let again = serve_null(ServerOptions { listen: server.addr(), ..ServerOptions::default() });
    let Err(error) = again else { panic!("two servers on one port") };
    assert!(error.to_string().contains(&server.addr().to_string()), "{error}");
}
