//! `NfsFs` against a server that misbehaves as told: every call ends, in a value or a fitting error.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::client_peer::*;
use files::{
    Access, Attributes, DirEntry, Entries, FileKind, FileSystem, FsError, FsOp, HandleRef, NfsProto,
    NodeTime, OpKind, OpenFile, Pathconf, Reply, Request, Stability, Status, SyncScope, Wcc,
};
use nfs::client::{CacheMode, FsOptions, NfsFs, WriteMode};
use nfs::wire::{nfs3, rpc};

const FILE: HandleRef<'static> = HandleRef(b"file");

fn attributes(kind: FileKind, size: u64) -> Attributes {
    let time = NodeTime { s: 1, ns: 0 };
    Attributes {
        kind,
        mode: 0o644,
        links: 1,
        uid: 0,
        gid: 0,
        size,
        used: size,
        device: (0, 0),
        fsid: 1,
        fileid: 2,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

/// The answer to an NFS call.
fn answered(asked: &Asked<'_>, reply: &Result<Reply<'_>, Status>) -> Vec<Act> {
    let mut out = Vec::new();
    rpc::put_success(&mut out, asked.xid);
    nfs3::put_reply(&mut out, asked.kind, reply);
    vec![Act::Reply(out)]
}

fn found_file(size: u64) -> Reply<'static> {
    Reply::Lookup { object: FILE, attributes: Some(attributes(FileKind::Regular, size)), dir: None }
}

fn made_file() -> Reply<'static> {
    Reply::Created { object: Some(FILE), attributes: None, dir: Wcc::default() }
}

/// A server whose answers `script` gives, except to PATHCONF.
fn peer(
    script: impl Fn(&Asked<'_>, &Request<'_>) -> Vec<Act> + Send + Sync + 'static,
) -> impl Fn(&Asked<'_>) -> Vec<Act> + Send + Sync + 'static {
    move |asked| {
        if asked.kind == OpKind::Pathconf {
            let limits = Pathconf { name_bytes_max: 255, ..Pathconf::default() };
            return answered(asked, &Ok(Reply::Pathconf { attributes: None, limits }));
        }
        let call = rpc::decode_call(asked.message).unwrap();
        script(asked, &nfs3::decode_request(asked.kind, call.args).unwrap())
    }
}

fn open(peer: &Peer, cache: CacheMode) -> NfsFs {
    let options = FsOptions { client: options(), cache, writes: WriteMode::Unstable };
    NfsFs::open(&peer.target(), &options).unwrap()
}

fn status<T>(outcome: Result<T, FsError>) -> Option<Status> {
    outcome.map(drop).expect_err("it worked").status()
}

fn write_all(file: &mut dyn OpenFile, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let written = file.write(bytes).unwrap();
        bytes = &bytes[written..];
    }
}

#[test]
fn what_a_server_lost_in_a_restart_before_commit_is_written_again() {
    #[derive(Default)]
    struct Disk {
        durable: Vec<u8>,
        volatile: Vec<u8>,
        commits: u64,
    }
    let put = |disk: &mut Vec<u8>, offset: u64, bytes: &[u8]| {
        let end = offset as usize + bytes.len();
        disk.resize(disk.len().max(end), 0);
        disk[offset as usize..end].copy_from_slice(bytes);
    };
    let disk = Arc::new(Mutex::new(Disk::default()));
    let shared = Arc::clone(&disk);
    let peer = Peer::tcp(peer(move |asked, request| {
        let mut disk = shared.lock().unwrap();
        // Restarted before the first COMMIT: the verifier is another one, and what was volatile is gone.
        let verifier = disk.commits.min(1).to_be_bytes();
        match *request {
            Request::Create { .. } => answered(asked, &Ok(made_file())),
            Request::Write { offset, bytes, stability, .. } => {
                match stability {
                    Stability::FileSync => put(&mut disk.durable, offset, bytes),
                    _ => put(&mut disk.volatile, offset, bytes),
                }
                let count = bytes.len() as u32;
                answered(asked, &Ok(Reply::Write { file: Wcc::default(), count, stability, verifier }))
            }
            Request::Commit { .. } => {
                disk.commits += 1;
                if disk.commits == 1 {
                    disk.volatile.clear();
                } else {
                    disk.durable = disk.volatile.clone();
                }
                let verifier = 1_u64.to_be_bytes();
                answered(asked, &Ok(Reply::Commit { file: Wcc::default(), verifier }))
            }
            _ => panic!("{request:?}"),
        }
    }));
    let fs = open(&peer, CacheMode::Off);
    let wanted: Vec<u8> = (0..150_000_u32).map(|number| number as u8).collect();
    let mut file = fs.create(Path::new("file")).unwrap();
    write_all(&mut *file, &wanted);
    file.sync(SyncScope::Data).unwrap();
    assert!(disk.lock().unwrap().durable == wanted, "lost");
    file.close().unwrap();
    let counters = fs.counters();
    assert_eq!((counters.rewritten_bytes, counters.calls(OpKind::Commit)), (150_000, 1));
}

#[test]
fn a_server_whose_verifier_never_stays_is_given_up() {
    let epoch = AtomicU64::new(0);
    let peer = Peer::tcp(peer(move |asked, request| {
        let verifier = epoch.fetch_add(1, Ordering::SeqCst).to_be_bytes();
        let file = Wcc::default();
        match *request {
            Request::Create { .. } => answered(asked, &Ok(made_file())),
            // Never durable, whatever was asked for.
            Request::Write { bytes, .. } => {
                let (count, stability) = (bytes.len() as u32, Stability::Unstable);
                answered(asked, &Ok(Reply::Write { file, count, stability, verifier }))
            }
            Request::Commit { .. } => answered(asked, &Ok(Reply::Commit { file, verifier })),
            _ => panic!("{request:?}"),
        }
    }));
    let fs = open(&peer, CacheMode::Off);
    let mut file = fs.create(Path::new("file")).unwrap();
    write_all(&mut *file, &[1; 100]);
    assert_eq!(status(file.sync(SyncScope::All)), Some(Status::IO));
    // And from then on the file says so, rather than pretend.
    assert_eq!(status(file.write(b"more")), Some(Status::IO));
    assert_eq!(status(file.close()), Some(Status::IO));
}

#[test]
fn a_write_that_is_taken_in_bits_arrives_whole_and_one_not_taken_is_an_error() {
    let written = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&written);
    let peer = Peer::tcp(peer(move |asked, request| match *request {
        Request::Create { .. } => answered(asked, &Ok(made_file())),
        Request::Write { offset, bytes, stability, .. } => {
            let mut written = shared.lock().unwrap();
            assert_eq!(offset, written.len() as u64);
            let count = match (bytes[0], bytes.len()) {
                (b'0', _) => 0,
                (b'9', all) => all + 1,
                (_, all) => all.min(777),
            };
            written.extend_from_slice(&bytes[..count.min(bytes.len())]);
            let (file, count, verifier) = (Wcc::default(), count as u32, [0; 8]);
            answered(asked, &Ok(Reply::Write { file, count, stability, verifier }))
        }
        _ => panic!("{request:?}"),
    }));
    let fs = open(&peer, CacheMode::Off);
    let mut file = fs.create(Path::new("file")).unwrap();
    let wanted: Vec<u8> = (0..10_000_u32).map(|number| 100 + number as u8 % 100).collect();
    write_all(&mut *file, &wanted);
    file.close().unwrap();
    assert!(*written.lock().unwrap() == wanted);
    for nonsense in [b'0', b'9'] {
        written.lock().unwrap().clear();
        let mut file = fs.create(Path::new("file")).unwrap();
        write_all(&mut *file, &[nonsense; 10]);
        assert_eq!(status(file.close()), Some(Status::SERVERFAULT));
    }
}

#[test]
fn a_call_whose_connection_broke_is_carried_out_on_the_next_and_its_traces_are_understood() {
    for (size, gives) in [(0, None), (5, Some(Status::EXIST))] {
        let broken = Mutex::new(Vec::new());
        let peer = Peer::tcp(peer(move |asked, request| {
            let mut broken = broken.lock().unwrap();
            let kind = request.kind();
            if matches!(kind, OpKind::Remove | OpKind::Create | OpKind::Getattr) && !broken.contains(&kind) {
                // Carried out, but the answer is lost with the connection.
                broken.push(kind);
                return vec![Act::Close];
            }
            let reply = match request {
                Request::Remove { .. } => Err(Status::NOENT),
                Request::Create { .. } => Err(Status::EXIST),
                Request::Lookup { .. } => Ok(found_file(size)),
                Request::Getattr { .. } => {
                    Ok(Reply::Getattr { attributes: attributes(FileKind::Regular, size) })
                }
                _ => panic!("{request:?}"),
            };
            answered(asked, &reply)
        }));
        let fs = open(&peer, CacheMode::Off);
        assert!(fs.stat(Path::new("")).is_ok(), "GETATTR can be repeated without a thought");
        fs.unlink(Path::new("file")).unwrap();
        // Without a break the same answer means what it says.
        assert_eq!(status(fs.unlink(Path::new("file"))), Some(Status::NOENT));
        // An empty file is the one just made; another one is somebody else's.
        assert_eq!(fs.create(Path::new("file")).err().and_then(|error| error.status()), gives);
        assert_eq!(status(fs.create(Path::new("file"))), Some(Status::EXIST));
        let counters = fs.counters();
        assert_eq!(counters.found_done, if gives.is_none() { 2 } else { 1 });
        assert_eq!((counters.resent_calls, counters.connections), (3, 4));
    }
}

#[test]
fn a_server_that_asks_for_patience_gets_it_and_is_given_up_after_the_agreed_time() {
    let asked_times = AtomicU32::new(0);
    let peer = Peer::tcp(peer(move |asked, request| {
        let patient = asked_times.fetch_add(1, Ordering::SeqCst) == 2;
        let Request::Lookup { name, .. } = request else { panic!("{request:?}") };
        let reply = if patient && *name == b"slow" { Ok(found_file(5)) } else { Err(Status::JUKEBOX) };
        answered(asked, &reply)
    }));
    let fs = open(&peer, CacheMode::Off);
    assert_eq!(fs.stat(Path::new("slow")).unwrap().size, 5);
    assert_eq!(fs.counters().jukebox_waits, 2);
    // It answers JUKEBOX for ever: that this returns at all is the agreed time.
    assert_eq!(status(fs.stat(Path::new("never"))), Some(Status::JUKEBOX));
    assert!(fs.counters().jukebox_waits > 2, "it was not given any time");
}

#[test]
fn a_server_that_is_gone_is_lost_after_the_agreed_time() {
    for proto in ["tcp", "udp"] {
        let folder = tempfile::tempdir().unwrap();
        let server = nfs::server::serve_dir(folder.path(), Default::default(), Default::default()).unwrap();
        let Ok(files::Target::Nfs(target)) = format!("nfs://{}/?proto={proto}", server.addr()).parse() else {
            panic!("no target")
        };
        let options = FsOptions { client: options(), ..FsOptions::default() };
        let fs = NfsFs::open(&target, &options).unwrap();
        let mut file = fs.create(Path::new("file")).unwrap();
        write_all(&mut *file, b"bytes under way");
        server.stop();
        let error = fs.stat(Path::new("another")).unwrap_err();
        assert!(matches!(error, FsError::Lost { op: FsOp::Stat, .. }), "{error:?}");
        assert!(error.to_string().contains("another") && error.to_string().contains("gone"), "{error}");
        assert!(matches!(file.close(), Err(FsError::Lost { op: FsOp::Close, .. })), "{proto}");
        assert!(fs.counters().resent_calls > 0 || proto == "udp");
    }
}

/// A server that answers LOOKUP until `silent` is set, and then nothing.
fn answers_until(
    silent: &Arc<AtomicBool>,
    heard: &Arc<AtomicU32>,
) -> impl Fn(&Asked<'_>) -> Vec<Act> + Send + Sync + 'static {
    let (silent, heard) = (Arc::clone(silent), Arc::clone(heard));
    peer(move |asked, request| {
        heard.fetch_add(1, Ordering::SeqCst);
        match request {
            _ if silent.load(Ordering::SeqCst) => Vec::new(),
            Request::Lookup { .. } => answered(asked, &Ok(found_file(5))),
            Request::Remove { .. } => answered(asked, &Err(Status::NOENT)),
            _ => panic!("{request:?}"),
        }
    })
}

/// Symptom: a benchmark on a server that stopped answering took a minute for each file that it tried to remove. Cause: each
/// call waited for itself. Fix: after one that was given up the others wait for a second together, then fail at once.
#[test]
fn after_a_server_fell_silent_not_every_call_waits_and_its_first_answer_ends_that() {
    for proto in [NfsProto::Tcp, NfsProto::Udp] {
        let (silent, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let peer = Peer::start(proto, Mounting::Fine, answers_until(&silent, &heard));
        let client = nfs::client::ClientOptions { silence_timeout: Duration::from_millis(200), ..options() };
        let options = FsOptions { client, cache: CacheMode::Off, ..FsOptions::default() };
        let fs = NfsFs::open(&peer.target(), &options).unwrap();
        let path = Path::new("file");
        fs.stat(path).unwrap();

        silent.store(true, Ordering::SeqCst);
        assert!(matches!(fs.stat(path), Err(FsError::Lost { .. })), "{proto}");
        silent.store(false, Ordering::SeqCst);
        fs.stat(path).expect("the next call is tried, and the server answers again");

        silent.store(true, Ordering::SeqCst);
        assert!(matches!(fs.stat(path), Err(FsError::Lost { .. })), "{proto}");
        let before = fs.counters().calls_total();
        let mut last = String::new();
        for _ in 0..1000 {
            let error = fs.unlink(path).unwrap_err();
            assert!(matches!(error, FsError::Lost { .. }), "{proto}: {error:?}");
            last = std::error::Error::source(&error).unwrap().to_string();
        }
        let calls = fs.counters().calls_total() - before;
        assert!((1..=3).contains(&calls), "{proto}: of 1000 calls {calls} were sent");
        assert!(last.contains(&peer.address.to_string()), "{last} does not name the server");
    }
}

#[test]
fn a_call_that_waits_ends_soon_when_its_caller_is_asked_to_stop() {
    for proto in [NfsProto::Tcp, NfsProto::Udp] {
        let (silent, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let peer = Peer::start(proto, Mounting::Fine, answers_until(&silent, &heard));
        let stop = Arc::new(AtomicBool::new(false));
        let client = nfs::client::ClientOptions {
            silence_timeout: 10 * PATIENCE,
            reconnect_timeout: 10 * PATIENCE,
            stop: Some(Arc::clone(&stop)),
            ..options()
        };
        let options = FsOptions { client, cache: CacheMode::Off, ..FsOptions::default() };
        let fs = NfsFs::open(&peer.target(), &options).unwrap();
        let path = Path::new("file");
        fs.stat(path).unwrap();
        silent.store(true, Ordering::SeqCst);
        let before = heard.load(Ordering::SeqCst);
        let begun = Instant::now();
        let error = std::thread::scope(|scope| {
            let waits = scope.spawn(|| fs.stat(path).unwrap_err());
            while heard.load(Ordering::SeqCst) == before {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::SeqCst);
            waits.join().unwrap()
        });
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("interrupted"), "{proto}: {source}");
        // What cleans up is answered as ever while the server answers.
        silent.store(false, Ordering::SeqCst);
        fs.stat(path).unwrap();
        // And waits a little when it does not.
        silent.store(true, Ordering::SeqCst);
        for _ in 0..100 {
            assert!(matches!(fs.unlink(path), Err(FsError::Lost { .. })), "{proto}");
        }
        assert!(begun.elapsed() < PATIENCE, "{proto}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_server_that_wants_to_be_asked_later_is_not_asked_on_when_the_caller_is_asked_to_stop() {
    let stop = Arc::new(AtomicBool::new(false));
    let asks = Arc::clone(&stop);
    let peer = Peer::tcp(peer(move |asked, _| {
        asks.store(true, Ordering::SeqCst);
        answered(asked, &Err(Status::JUKEBOX))
    }));
    let client =
        nfs::client::ClientOptions { reconnect_timeout: 10 * PATIENCE, stop: Some(stop), ..options() };
    let options = FsOptions { client, cache: CacheMode::Off, ..FsOptions::default() };
    let fs = NfsFs::open(&peer.target(), &options).unwrap();
    let begun = Instant::now();
    assert_eq!(status(fs.stat(Path::new("file"))), Some(Status::JUKEBOX));
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = nfs::server::serve_dir(folder.path(), Default::default(), Default::default()).unwrap();
    let listen = server.addr();
    let Ok(files::Target::Nfs(target)) = format!("nfs://{listen}/").parse() else { panic!("no target") };
    let client = nfs::client::ClientOptions { reconnect_timeout: PATIENCE, ..options() };
    let fs = NfsFs::open(&target, &FsOptions { client, ..FsOptions::default() }).unwrap();
    fs.create(Path::new("file")).unwrap().close().unwrap();
    server.stop();
    std::thread::scope(|scope| {
        // Sent to nobody; carried out when somebody is there again.
        let room = scope.spawn(|| fs.statfs());
        let options = nfs::server::ServerOptions { listen, ..Default::default() };
        let _server = nfs::server::serve_dir(folder.path(), options, Default::default()).unwrap();
        // A handle of before means nothing to the new server, and that is all there is to it.
        assert_eq!(status(room.join().unwrap()), Some(Status::STALE));
    });
    assert!(fs.counters().resent_calls > 0);
}

#[test]
fn a_lost_datagram_is_sent_again_and_counted() {
    let seen = Mutex::new(Vec::new());
    let peer = Peer::udp(peer(move |asked, request| {
        let mut seen = seen.lock().unwrap();
        if !seen.contains(&asked.xid) {
            seen.push(asked.xid);
            return Vec::new();
        }
        let reply = match request {
            Request::Lookup { .. } => Ok(found_file(5)),
            Request::Remove { .. } => Err(Status::NOENT),
            _ => panic!("{request:?}"),
        };
        answered(asked, &reply)
    }));
    let fs = open(&peer, CacheMode::Off);
    assert_eq!(fs.stat(Path::new("file")).unwrap().size, 5);
    // The server knows the repeat by its XID; what it answers then is true.
    assert_eq!(status(fs.unlink(Path::new("file"))), Some(Status::NOENT));
    let counters = fs.counters();
    assert_eq!((counters.retransmits, counters.resent_calls, counters.found_done), (2, 0, 0));
}

#[test]
fn a_listing_that_does_not_move_on_and_an_end_that_is_none_are_errors() {
    let peer = Peer::tcp(peer(|asked, request| match *request {
        Request::Lookup { name: b"file", .. } => answered(asked, &Ok(found_file(100))),
        Request::Lookup { name, .. } => {
            let attributes = Some(attributes(FileKind::Directory, 0));
            answered(asked, &Ok(Reply::Lookup { object: HandleRef(name), attributes, dir: None }))
        }
        Request::Read { .. } => {
            let attributes = Some(attributes(FileKind::Regular, 100));
            answered(asked, &Ok(Reply::Read { attributes, bytes: b"", end: false }))
        }
        Request::Readdir { dir, .. } => {
            let entry = DirEntry { fileid: 1, name: b"name", cookie: 7, attributes: None, object: None };
            let listed: &[DirEntry<'_>] = if dir == HandleRef(b"empty") { &[] } else { &[entry] };
            let entries = Entries::Listed(listed);
            let reply = Reply::Listing { dir: None, verifier: [0; 8], entries, end: false };
            answered(asked, &Ok(reply))
        }
        _ => panic!("{request:?}"),
    }));
    let fs = open(&peer, CacheMode::Off);
    for dir in ["empty", "again"] {
        assert_eq!(status(fs.readdir(Path::new(dir), &mut |_| ())), Some(Status::SERVERFAULT), "{dir}");
    }
    let mut file = fs.open(Path::new("file"), Access::Read).unwrap();
    assert_eq!(status(file.read(&mut [0; 10])), Some(Status::SERVERFAULT));
}

#[test]
fn nonsense_in_answers_ends_in_errors() {
    // Each reply begins well and goes on at random; every call must come back.
    let state = AtomicU64::new(0x9e37_79b9_7f4a_7c15);
    let peer = Peer::tcp(peer(move |asked, _| {
        let next = || {
            let mut word = state.load(Ordering::SeqCst);
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            state.store(word, Ordering::SeqCst);
            word
        };
        let mut out = Vec::new();
        rpc::put_success(&mut out, asked.xid);
        if next() % 8 == 0 {
            out.truncate((next() % 24) as usize);
            out.splice(0..out.len().min(4), asked.xid.to_be_bytes().into_iter().take(out.len().min(4)));
        } else {
            for _ in 0..next() % 60 {
                // Small numbers get further than large ones.
                let word = if next() % 4 == 0 { next() as u32 } else { (next() % 9) as u32 };
                out.extend(word.to_be_bytes());
            }
        }
        if out.len() < 4 {
            return vec![Act::Close];
        }
        vec![Act::Reply(out)]
    }));
    for cache in [CacheMode::Off, CacheMode::default()] {
        let mut client = options();
        client.reconnect_timeout = Duration::from_millis(20);
        let options = FsOptions { client, cache, writes: WriteMode::Unstable };
        let fs = NfsFs::open(&peer.target(), &options).unwrap();
        let path = Path::new("a/b");
        for _ in 0..150 {
            let _ = fs.stat(path);
            let _ = fs.statfs();
            let _ = fs.mkdir(path);
            let _ = fs.rmdir(path);
            let _ = fs.rename(path, Path::new("c"));
            let _ = fs.link(path, Path::new("c"));
            let _ = fs.symlink(path, Path::new("c"));
            let _ = fs.readlink(path);
            let mut names = 0;
            let _ = fs.readdir(Path::new(""), &mut |_| names += 1);
            for access in [Access::Append, Access::ReadWrite] {
                if let Ok(mut file) = fs.open(Path::new("x"), access) {
                    let _ = file.write(b"bytes");
                    let _ = file.seek_end();
                    let _ = file.read(&mut [0; 100]);
                    let _ = file.close();
                }
            }
            let _ = fs.create(Path::new("x")).map(|mut file| file.write(b"bytes").map(drop));
        }
        assert!(fs.counters().calls_total() > 1000);
    }
}
