//! Answers every call with prebuilt bytes: the least that a server can do.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
};

use files::{
    Attributes, DirEntry, Entries, FileKind, Fsinfo, Fsstat, HandleRef, NodeTime, OpKind, Pathconf, Reply,
    Stability, Wcc,
};
use nfs::wire::{mount3, nfs3, record, rpc};

use crate::mix::IO_BYTES;

/// A thread a connection, and one for datagrams; they end with the program.
pub struct Responder {
    addr: SocketAddr,
    accepting: thread::JoinHandle<()>,
}

impl Responder {
    pub fn start(addr: SocketAddr, cpu: Option<usize>) -> Self {
        let listener = TcpListener::bind(addr).expect("the address is free");
        let addr = listener.local_addr().unwrap();
        let datagrams = UdpSocket::bind(addr).expect("the port is free for UDP as well");
        let replies = replies();
        let for_datagrams = replies.clone();
        thread::spawn(move || {
            crate::pin(cpu);
            serve_datagrams(&datagrams, &for_datagrams);
        });
        let accepting = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let replies = replies.clone();
                thread::spawn(move || {
                    crate::pin(cpu);
                    serve_stream(stream, &replies);
                });
            }
        });
        Self { addr, accepting }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn wait(self) {
        self.accepting.join().unwrap();
    }
}

/// By procedure: the records of NFS, then those of MNT and EXPORT (libnfs asks for nested exports).
fn replies() -> Vec<Vec<u8>> {
    let nfs =
        OpKind::ALL.into_iter().map(|kind| in_record(|out| nfs3::put_reply(out, kind, &Ok(reply(kind)))));
    let mount = in_record(|out| mount3::put_mounted(out, Ok((HANDLE, &[rpc::AUTH_SYS]))));
    let exports = in_record(|out| mount3::put_exports(out, []));
    nfs.chain([mount, exports]).collect()
}

fn in_record(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let start = record::begin(&mut out);
    rpc::put_success(&mut out, 0);
    put(&mut out);
    record::end(&mut out, start);
    out
}

fn serve_stream(mut stream: TcpStream, replies: &[Vec<u8>]) {
    stream.set_nodelay(true).unwrap();
    let (mut received, mut filled) = (vec![0; 1 << 20], 0);
    let mut out = Vec::new();
    loop {
        match stream.read(&mut received[filled..]) {
            Ok(bytes) if bytes > 0 => filled += bytes,
            _ => return,
        }
        let mut at = 0;
        while let Some(mark) = received[at..filled].first_chunk::<4>() {
            let end = at + 4 + (u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize;
            if end > filled {
                break;
            }
            put_answer(&mut out, &received[at + 4..end], replies);
            at = end;
        }
        received.copy_within(at..filled, 0);
        filled -= at;
        if stream.write_all(&out).is_err() {
            return;
        }
        out.clear();
    }
}

fn serve_datagrams(socket: &UdpSocket, replies: &[Vec<u8>]) {
    let (mut received, mut out) = (vec![0; 65_536], Vec::new());
    loop {
        // An error tells of a client that has gone.
        if let Ok((bytes, from)) = socket.recv_from(&mut received) {
            out.clear();
            put_answer(&mut out, &received[..bytes], replies);
            let _ = socket.send_to(&out[4..], from);
        }
    }
}

fn put_answer(out: &mut Vec<u8>, call: &[u8], replies: &[Vec<u8>]) {
    let word = |at: usize| u32::from_be_bytes(call[at..at + 4].try_into().unwrap());
    let (program, procedure) = (word(12), word(20) as usize);
    let reply = match (program, procedure) {
        (mount3::PROGRAM, 1) => &replies[OpKind::COUNT],
        (mount3::PROGRAM, 5) => &replies[OpKind::COUNT + 1],
        (nfs3::PROGRAM, known) if known < OpKind::COUNT => &replies[known],
        _ => &replies[0],
    };
    let start = out.len();
    out.extend_from_slice(reply);
    out[start + 4..start + 8].copy_from_slice(&call[..4]);
}

const HANDLE: HandleRef<'static> = HandleRef(&[0xcd; 32]);
static DATA: [u8; IO_BYTES] = [0; IO_BYTES];
const ATTRIBUTES: Attributes = Attributes {
    kind: FileKind::Directory,
    mode: 0o755,
    links: 2,
    uid: 0,
    gid: 0,
    size: 4096,
    used: 4096,
    device: (0, 0),
    fsid: 1,
    fileid: 2,
    atime: NodeTime { s: 1, ns: 0 },
    mtime: NodeTime { s: 1, ns: 0 },
    ctime: NodeTime { s: 1, ns: 0 },
};
const ENTRY: DirEntry<'static> = DirEntry {
    fileid: 7,
    name: b"file-000123",
    cookie: 1,
    attributes: Some(ATTRIBUTES),
    object: Some(HANDLE),
};

fn reply(kind: OpKind) -> Reply<'static> {
    let attributes = Some(ATTRIBUTES);
    let dir = attributes;
    let wcc = Wcc { before: None, after: attributes };
    let (verifier, count, stability) = ([0; 8], IO_BYTES as u32, Stability::FileSync);
    match kind {
        OpKind::Null => Reply::Null,
        OpKind::Getattr => Reply::Getattr { attributes: ATTRIBUTES },
        OpKind::Setattr => Reply::Setattr { object: wcc },
        OpKind::Lookup => Reply::Lookup { object: HANDLE, attributes, dir },
        OpKind::Access => Reply::Access { attributes, rights: 0x3f },
        OpKind::Readlink => Reply::Readlink { attributes, target: b"target" },
        OpKind::Read => Reply::Read { attributes, bytes: &DATA, end: false },
        OpKind::Write => Reply::Write { file: wcc, count, stability, verifier },
        OpKind::Create | OpKind::Mkdir | OpKind::Symlink | OpKind::Mknod => {
            Reply::Created { object: Some(HANDLE), attributes, dir: wcc }
        }
        OpKind::Remove | OpKind::Rmdir => Reply::Removed { dir: wcc },
        OpKind::Rename => Reply::Rename { from_dir: wcc, to_dir: wcc },
        OpKind::Link => Reply::Link { attributes, dir: wcc },
        OpKind::Readdir | OpKind::Readdirplus => {
            Reply::Listing { dir, verifier, entries: Entries::Listed(&[ENTRY; 4]), end: true }
        }
        OpKind::Fsstat => Reply::Fsstat { attributes, stat: Fsstat::default() },
        OpKind::Fsinfo => {
            let limits = Fsinfo {
                read_max: 1 << 20,
                read_preferred: 1 << 20,
                read_multiple: 4096,
                write_max: 1 << 20,
                write_preferred: 1 << 20,
                write_multiple: 4096,
                readdir_preferred: 1 << 16,
                file_size_max: 1 << 62,
                ..Fsinfo::default()
            };
            Reply::Fsinfo { attributes, limits }
        }
        OpKind::Pathconf => Reply::Pathconf { attributes, limits: Pathconf::default() },
        OpKind::Commit => Reply::Commit { file: wcc, verifier },
    }
}
