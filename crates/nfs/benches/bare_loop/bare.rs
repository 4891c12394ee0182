//! The bare loop: prebuilt bytes out, XIDs in, over one blocking socket.

use std::{
    io::Write,
    net::{TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use files::NfsProto;
use nfs::wire::{nfs3, record, rpc};
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use std::os::fd::AsFd;

use crate::{Moment, Rate, Run, mix};

/// Calls in one write, when that many may go.
const BATCH: usize = 16;
/// Replies between looks at the clock.
const LOOK: u64 = 1024;
/// Lost datagrams show as a panic, not as a hang.
const LOST: Duration = Duration::from_secs(5);

pub fn run(run: &Run) -> Rate {
    let user = rpc::AuthSys { stamp: 0, machine: b"bench".to_vec(), uid: 0, gid: 0, gids: Vec::new() };
    let calls: Vec<Vec<u8>> = run
        .mix
        .round()
        .into_iter()
        .map(|kind| {
            let mut out = Vec::new();
            let start = record::begin(&mut out);
            rpc::put_call(&mut out, 0, nfs3::PROGRAM, nfs3::VERSION, kind as u32, &user);
            nfs3::put_request(&mut out, &mix::request(kind));
            record::end(&mut out, start);
            out
        })
        .collect();
    match run.proto {
        NfsProto::Tcp => tcp(run, &calls),
        NfsProto::Udp => udp(run, &calls),
    }
}

/// Calls in flight, by XID, and the rate of those that came back.
struct Matcher {
    in_flight: Vec<bool>,
    free: Vec<u32>,
    answered: u64,
    warm_until: Instant,
    until: Instant,
    counted_from: Option<Moment>,
    rate: Option<Rate>,
}

impl Matcher {
    fn new(run: &Run) -> Self {
        let now = Instant::now();
        let outstanding = u32::from(run.outstanding.get());
        Self {
            in_flight: vec![false; outstanding as usize],
            free: (0..outstanding).collect(),
            answered: 0,
            warm_until: now + run.warm,
            until: now + run.warm + run.measure,
            counted_from: None,
            rate: None,
        }
    }

    fn answered(&mut self, message: &[u8]) {
        let xid = u32::from_be_bytes(message[..4].try_into().unwrap());
        let slot = &mut self.in_flight[xid as usize];
        assert!(std::mem::take(slot), "a reply to nothing");
        self.free.push(xid);
        self.answered += 1;
        if self.answered.is_multiple_of(LOOK) {
            self.look();
        }
    }

    fn look(&mut self) {
        let now = Instant::now();
        match self.counted_from {
            None if now >= self.warm_until => self.counted_from = Some(Moment::now(self.answered)),
            Some(from) if now >= self.until => {
                self.rate = Some(from.rate_until(Moment::now(self.answered)));
            }
            _ => {}
        }
    }
}

/// Waits for bytes: asleep, or looking all the time.
fn receive(socket: impl AsFd, buffer: &mut [u8], spin: bool) -> usize {
    let flags = if spin { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
    let mut since = None;
    loop {
        match recv(&socket, &mut *buffer, flags) {
            Ok((bytes, _)) => return bytes,
            Err(Errno::AGAIN) if spin => {
                let since = since.get_or_insert_with(Instant::now);
                assert!(since.elapsed() < LOST, "no reply; was a datagram lost?");
            }
            Err(error) => panic!("no reply; was a datagram lost? {error}"),
        }
    }
}

fn tcp(run: &Run, calls: &[Vec<u8>]) -> Rate {
    let mut stream = TcpStream::connect(run.addr).expect("a responder");
    stream.set_nodelay(true).unwrap();
    let mut matcher = Matcher::new(run);
    let batch = BATCH.min(usize::from(run.outstanding.get()));
    let (mut out, mut next) = (Vec::new(), 0);
    let (mut received, mut filled) = (vec![0; 1 << 20], 0);
    loop {
        if matcher.free.len() >= batch {
            out.clear();
            for xid in matcher.free.drain(..) {
                let start = out.len();
                out.extend_from_slice(&calls[next]);
                out[start + 4..start + 8].copy_from_slice(&xid.to_be_bytes());
                matcher.in_flight[xid as usize] = true;
                next = if next + 1 == calls.len() { 0 } else { next + 1 };
            }
            stream.write_all(&out).unwrap();
        }
        let bytes = receive(&stream, &mut received[filled..], run.spin);
        assert!(bytes > 0, "the responder went away");
        filled += bytes;
        let mut at = 0;
        while let Some(mark) = received[at..filled].first_chunk::<4>() {
            let end = at + 4 + (u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize;
            if end > filled {
                break;
            }
            matcher.answered(&received[at + 4..end]);
            at = end;
        }
        received.copy_within(at..filled, 0);
        filled -= at;
        if let Some(rate) = matcher.rate {
            return rate;
        }
    }
}

fn udp(run: &Run, calls: &[Vec<u8>]) -> Rate {
    let socket = UdpSocket::bind((run.addr.ip(), 0)).unwrap();
    socket.connect(run.addr).unwrap();
    socket.set_read_timeout(Some(LOST)).unwrap();
    let mut calls: Vec<Vec<u8>> = calls.iter().map(|call| call[4..].to_vec()).collect();
    let mut matcher = Matcher::new(run);
    let (mut next, mut received) = (0, vec![0; 65_536]);
    loop {
        while let Some(xid) = matcher.free.pop() {
            calls[next][..4].copy_from_slice(&xid.to_be_bytes());
            socket.send(&calls[next]).unwrap();
            matcher.in_flight[xid as usize] = true;
            next = if next + 1 == calls.len() { 0 } else { next + 1 };
        }
        let bytes = receive(&socket, &mut received, run.spin);
        matcher.answered(&received[..bytes]);
        if let Some(rate) = matcher.rate {
            return rate;
        }
    }
}
