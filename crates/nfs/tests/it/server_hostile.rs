//! Servers under mangled calls: every bit of real ones flipped at random, over TCP and UDP, and they still serve.

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use files::{CreateHow, DirectoryOptions, HandleRef, Request, SetAttributes, Stability};
use nfs::server::{Server, ServerOptions, serve_dir, serve_null};
use nfs::wire::rpc::AuthSys;
use nfs::wire::{nfs3, rpc};

fn message(request: &Request<'_>) -> Vec<u8> {
    let auth = AuthSys { stamp: 1, machine: b"host".to_vec(), uid: 0, gid: 0, gids: vec![1, 2, 3] };
    let mut out = Vec::new();
    rpc::put_call(&mut out, 42, nfs3::PROGRAM, nfs3::VERSION, request.kind() as u32, &auth);
    nfs3::put_request(&mut out, request);
    out
}

fn messages(root: HandleRef<'_>) -> Vec<Vec<u8>> {
    let new = SetAttributes::default();
    [
        Request::Getattr { object: root },
        Request::Setattr { object: root, new, guard: None },
        Request::Lookup { dir: root, name: b"name" },
        Request::Read { file: root, offset: 0, count: 100 },
        Request::Write { file: root, offset: 0, bytes: b"bytes", stability: Stability::Unstable },
        Request::Create { dir: root, name: b"name", how: CreateHow::Unchecked(new) },
        Request::Symlink { dir: root, name: b"l", target: b"t", new },
        Request::Rename { from_dir: root, from_name: b"name", to_dir: root, to_name: b"b" },
        Request::Readdirplus { dir: root, cookie: 0, verifier: [0; 8], name_bytes: 100, reply_bytes: 1000 },
        Request::Null,
    ]
    .map(|request| message(&request))
    .to_vec()
}

/// Splitmix64: the same junk each time.
struct Junk(u64);

impl Junk {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }

    fn mangle(&mut self, message: &mut Vec<u8>) {
        for _ in 0..1 + self.next() % 4 {
            let at = (self.next() as usize) % message.len();
            match self.next() % 4 {
                0 => message[at] = 0xff,
                1 => message.truncate(at.max(1)),
                2 => message[at] ^= 1 << (self.next() % 8),
                _ => message[at] = self.next() as u8,
            }
        }
    }
}

fn assault(server: &Server, root: HandleRef<'_>) {
    let templates = messages(root);
    let mut junk = Junk(7);
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let connect = || {
        let stream = TcpStream::connect(server.addr()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let mut stream = connect();
    let mut sink = vec![0; 65_536];
    for round in 0..4000 {
        let mut message = templates[round % templates.len()].clone();
        junk.mangle(&mut message);
        let _ = udp.send_to(&message, server.addr());
        let mut record = (0x8000_0000 | message.len() as u32).to_be_bytes().to_vec();
        if junk.next().is_multiple_of(50) {
            record[(junk.next() % 4) as usize] ^= 0x41;
        }
        record.extend_from_slice(&message);
        // Closed by the server, or its record mark led it to wait for more: a new one.
        let closed = match stream.read(&mut sink) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        };
        if stream.write_all(&record).is_err() || closed || round % 100 == 99 {
            stream = connect();
        }
    }
    // It still answers, and its threads are all there.
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let null = message(&Request::Null);
    stream.write_all(&[&(0x8000_0000 | null.len() as u32).to_be_bytes()[..], &null].concat()).unwrap();
    let mut reply = [0; 28];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], 42_u32.to_be_bytes());
    udp.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let answered = (0..50).any(|_| {
        udp.send_to(&null, server.addr()).unwrap();
        udp.recv(&mut sink).is_ok()
    });
    assert!(answered, "nobody answers UDP any more");
    assert!(server.counters().refused > 100);
}

#[test]
fn mangled_calls_stop_neither_server_nor_leave_the_export() {
    assault(&serve_null(ServerOptions::default()).unwrap(), HandleRef(b"crumb null: dir."));
    let folder = tempfile::tempdir().unwrap();
    let export = folder.path().join("export");
    std::fs::create_dir(&export).unwrap();
    let server = serve_dir(&export, ServerOptions::default(), DirectoryOptions::default()).unwrap();
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    let mut mount = Vec::new();
    for word in [0x8000_0000_u32 | 48, 1, 0, 2, 100_005, 3, 1, 0, 0, 0, 0, 1, 0x2f00_0000] {
        mount.extend_from_slice(&word.to_be_bytes());
    }
    stream.write_all(&mount).unwrap();
    let mut reply = [0; 4 + 24 + 4 + 4 + 24];
    stream.read_exact(&mut reply).unwrap();
    assault(&server, HandleRef(&reply[36..60]));
    let beside: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(beside, ["export"]);
}
