//! A little NFS server that does as a test tells it: mounts properly, then answers each call with given bytes.
#![allow(dead_code)] // Each test file uses its part.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use files::{
    Completion, Fsinfo, HandleRef, NfsProto, NfsTarget, OpKind, Outcome, Reply, Request, Ticket, Transport,
    TransportError,
};
use nfs::{
    client::{ClientOptions, SourcePort, UdpOptions},
    wire::{
        mount3, nfs3,
        record::{self, RecordReader},
        rpc::{self, Refusal},
    },
};

pub const ROOT: HandleRef<'static> = HandleRef(b"root");
/// No wait in a test is longer; when one is reached, the test has failed.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// An NFS call as the script sees it.
pub struct Asked<'a> {
    /// Connections before this one, those for mounting included.
    pub connection: u32,
    pub xid: u32,
    pub kind: OpKind,
    pub message: &'a [u8],
}

/// What the script wants done.
pub enum Act {
    /// A message: as a record of one fragment, or a datagram.
    Reply(Vec<u8>),
    /// Bytes for the stream as they are.
    Raw(Vec<u8>),
    /// End of the connection.
    Close,
}

pub type Script = dyn Fn(&Asked<'_>) -> Vec<Act> + Send + Sync;

/// How the peer answers MNT.
#[derive(Clone)]
pub enum Mounting {
    Fine,
    Fails(mount3::MountStatus),
    Flavours(Vec<u32>),
    NoSuchProgram,
    Silent,
    /// Mounted at once, but so many FSINFO calls are to be asked again later.
    PutsOff(Arc<AtomicU32>),
}

pub struct Peer {
    pub address: SocketAddr,
    proto: NfsProto,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    pub fn start(
        proto: NfsProto,
        mounting: Mounting,
        script: impl Fn(&Asked<'_>) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let script: Arc<Script> = Arc::new(script);
        let (address, thread) = match proto {
            NfsProto::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let stop = Arc::clone(&stop);
                (address, std::thread::spawn(move || serve_tcp(&listener, &stop, &mounting, &script)))
            }
            NfsProto::Udp => {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                let address = socket.local_addr().unwrap();
                let stop = Arc::clone(&stop);
                (address, std::thread::spawn(move || serve_udp(&socket, &stop, &mounting, &*script)))
            }
        };
        Self { address, proto, stop, thread: Some(thread) }
    }

    pub fn tcp(script: impl Fn(&Asked<'_>) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::start(NfsProto::Tcp, Mounting::Fine, script)
    }

    pub fn udp(script: impl Fn(&Asked<'_>) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::start(NfsProto::Udp, Mounting::Fine, script)
    }

    pub fn target(&self) -> NfsTarget {
        NfsTarget {
            host: "127.0.0.1".into(),
            port: Some(self.address.port()),
            mount_port: None,
            export: "/export".into(),
            proto: Some(self.proto),
        }
    }

    pub fn connect(&self, options: &ClientOptions) -> Box<dyn Transport> {
        nfs::client::connect(&self.target(), options, quanta::Clock::new()).unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the accept or receive call.
        match self.proto {
            NfsProto::Tcp => drop(TcpStream::connect(self.address)),
            NfsProto::Udp => {
                let waker = UdpSocket::bind("127.0.0.1:0").unwrap();
                waker.send_to(b"stop", self.address).unwrap();
            }
        }
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the peer panicked");
        }
    }
}

fn serve_tcp(listener: &TcpListener, stop: &AtomicBool, mounting: &Mounting, script: &Arc<Script>) {
    let connections = AtomicU32::new(0);
    for stream in listener.incoming() {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let connection = connections.fetch_add(1, Ordering::SeqCst);
        let (mounting, script) = (mounting.clone(), Arc::clone(script));
        // Ends when the client closes its end.
        std::thread::spawn(move || serve_stream(stream.unwrap(), connection, &mounting, &*script));
    }
}

fn serve_stream(mut stream: TcpStream, connection: u32, mounting: &Mounting, script: &Script) {
    let mut records = RecordReader::new(4 << 20);
    let (mut received, mut chunk) = (Vec::new(), vec![0; 65_536]);
    loop {
        match stream.read(&mut chunk) {
            Ok(bytes) if bytes > 0 => received.extend_from_slice(&chunk[..bytes]),
            _ => return,
        }
        let mut rest = &received[..];
        while let Some(message) = records.next(&mut rest).unwrap() {
            for act in answer(message, connection, mounting, script) {
                let sent = match act {
                    Act::Reply(reply) => stream.write_all(&in_record(&reply)),
                    Act::Raw(bytes) => stream.write_all(&bytes),
                    Act::Close => return,
                };
                if sent.is_err() {
                    return;
                }
            }
        }
        received = rest.to_vec();
    }
}

fn serve_udp(socket: &UdpSocket, stop: &AtomicBool, mounting: &Mounting, script: &Script) {
    let mut datagram = vec![0; 65_536];
    loop {
        let (bytes, from) = socket.recv_from(&mut datagram).unwrap();
        if stop.load(Ordering::SeqCst) {
            return;
        }
        for act in answer(&datagram[..bytes], 0, mounting, script) {
            if let Act::Reply(reply) | Act::Raw(reply) = act {
                socket.send_to(&reply, from).unwrap();
            }
        }
    }
}

fn answer(message: &[u8], connection: u32, mounting: &Mounting, script: &Script) -> Vec<Act> {
    let call = rpc::decode_call(message).unwrap();
    let mut out = Vec::new();
    if call.program == mount3::PROGRAM {
        match (mounting, mount3::Procedure::from_number(call.procedure).unwrap()) {
            (Mounting::NoSuchProgram, _) => {
                rpc::put_refusal(&mut out, call.xid, Refusal::ProgramUnavailable);
            }
            (Mounting::Silent, _) => return Vec::new(),
            (Mounting::Fine | Mounting::Flavours(_) | Mounting::Fails(_), mount3::Procedure::Export) => {
                rpc::put_success(&mut out, call.xid);
                mount3::put_exports(&mut out, [(&b"/mail"[..], &[&b"*"[..]][..]), (b"/news", &[])]);
            }
            (mounting, _) => {
                rpc::put_success(&mut out, call.xid);
                mount3::put_mounted(
                    &mut out,
                    match mounting {
                        Mounting::Fails(status) => Err(*status),
                        Mounting::Flavours(flavours) => Ok((ROOT, flavours)),
                        _ => Ok((ROOT, &[rpc::AUTH_SYS])),
                    },
                );
            }
        }
        return vec![Act::Reply(out)];
    }
    let kind = OpKind::from_number(call.procedure).unwrap();
    if kind == OpKind::Fsinfo {
        if let Mounting::PutsOff(left) = mounting
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        {
            rpc::put_success(&mut out, call.xid);
            nfs3::put_reply(&mut out, kind, &Err(files::Status::JUKEBOX));
            return vec![Act::Reply(out)];
        }
        let limits = Fsinfo { read_max: 65_536, write_max: 32_768, ..Fsinfo::default() };
        rpc::put_success(&mut out, call.xid);
        nfs3::put_reply(&mut out, kind, &Ok(Reply::Fsinfo { attributes: None, limits }));
        return vec![Act::Reply(out)];
    }
    script(&Asked { connection, xid: call.xid, kind, message })
}

/// The reply to NULL.
pub fn null_reply(xid: u32) -> Vec<u8> {
    let mut out = Vec::new();
    rpc::put_success(&mut out, xid);
    out
}

pub fn in_record(message: &[u8]) -> Vec<u8> {
    in_fragments(message, message.len().max(1))
}

pub fn in_fragments(message: &[u8], fragment_bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut fragments = message.chunks(fragment_bytes).peekable();
    while let Some(fragment) = fragments.next() {
        let last = if fragments.peek().is_none() { record::mark(0) } else { 0 };
        out.extend((last | fragment.len() as u32).to_be_bytes());
        out.extend_from_slice(fragment);
    }
    out
}

/// Options that keep tests short.
pub fn options() -> ClientOptions {
    ClientOptions {
        connect_timeout: Duration::from_secs(5),
        reconnect_timeout: Duration::from_millis(300),
        udp: UdpOptions {
            timeout: Duration::from_millis(20),
            retransmits_max: 3,
            timeout_max: Duration::from_secs(1),
        },
        source_port: SourcePort::Any,
        ..ClientOptions::default()
    }
}

/// How a call ended, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub ticket: u32,
    pub how: String,
    pub retransmits: u32,
}

pub fn ended(ticket: u32, how: &str, retransmits: u32) -> Ended {
    Ended { ticket, how: how.into(), retransmits }
}

fn in_short(completion: &Completion<'_>) -> Ended {
    let how = match &completion.outcome {
        Outcome::Ok(Reply::Read { bytes, .. }) => format!("ok, {} bytes", bytes.len()),
        Outcome::Ok(_) => "ok".into(),
        Outcome::Failed(status) => status.to_string(),
        Outcome::Cancelled => "cancelled".into(),
        Outcome::Lost => "lost".into(),
        Outcome::Rejected(name) => format!("rejected: {name}"),
        Outcome::BadReply => "bad reply".into(),
    };
    ended(completion.ticket.0, &how, completion.retransmits)
}

/// Submits NULL calls under these tickets and flushes.
pub fn submit_nulls(transport: &mut dyn Transport, tickets: impl IntoIterator<Item = u32>) {
    for ticket in tickets {
        transport.submit(Ticket(ticket), &Request::Null).unwrap();
    }
    transport.flush().unwrap();
}

/// Polls until nothing is in flight.
pub fn drain(transport: &mut dyn Transport) -> Result<Vec<Ended>, TransportError> {
    let clock = quanta::Clock::new();
    let end = clock.now() + PATIENCE;
    let mut all = Vec::new();
    while transport.in_flight() > 0 {
        let before = all.len();
        let delivered = transport.poll(Some(end), &mut |completion| all.push(in_short(&completion)))?;
        assert_eq!(delivered, all.len() - before, "poll tells how many it delivered");
        assert!(delivered > 0, "nothing came in {PATIENCE:?}; so far {all:?}");
    }
    Ok(all)
}
