//! The TCP transport against a server that misbehaves as told.

use std::{
    num::NonZeroU16,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::client_peer::*;
use files::{HandleRef, OpKind, Reply, Request, SubmitError, Ticket, Transport, TransportError};
use nfs::{
    client::ClientOptions,
    wire::{
        nfs3, record,
        rpc::{self, Refusal},
    },
};

#[test]
fn replies_find_their_tickets_in_whatever_order_they_come() {
    let held = Mutex::new(Vec::new());
    let peer = Peer::tcp(move |asked| {
        let mut held = held.lock().unwrap();
        held.push(asked.xid);
        if held.len() < 50 {
            return Vec::new();
        }
        held.drain(..).rev().map(|xid| Act::Reply(null_reply(xid))).collect()
    });
    let mut transport = peer.connect(&options());
    assert_eq!((transport.root(), transport.io_bytes_max()), (ROOT, 32_768));
    submit_nulls(&mut *transport, 100..150);
    assert_eq!(transport.in_flight(), 50);
    let expected: Vec<_> = (100..150).rev().map(|ticket| ended(ticket, "ok", 0)).collect();
    assert_eq!(drain(&mut *transport).unwrap(), expected);
    assert_eq!(transport.counters().bad_replies, 0);
}

#[test]
fn a_reply_in_fragments_of_any_size_is_put_together() {
    let sizes = AtomicU32::new(1);
    let peer = Peer::tcp(move |asked| {
        let fragment_bytes = sizes.fetch_add(97, Ordering::SeqCst) as usize;
        let mut reply = null_reply(asked.xid);
        let bytes = [7; 9000];
        let read = Reply::Read { attributes: None, bytes: &bytes, end: true };
        nfs3::put_reply(&mut reply, OpKind::Read, &Ok(read));
        vec![Act::Raw(in_fragments(&reply, fragment_bytes))]
    });
    let mut transport = peer.connect(&options());
    for ticket in 0..5 {
        let read = Request::Read { file: HandleRef(b"file"), offset: 0, count: 9000 };
        transport.submit(Ticket(ticket), &read).unwrap();
    }
    transport.flush().unwrap();
    let expected: Vec<_> = (0..5).map(|ticket| ended(ticket, "ok, 9000 bytes", 0)).collect();
    assert_eq!(drain(&mut *transport).unwrap(), expected);
}

/// Breaks the first connection for load with `break_it`, answers properly on later ones.
fn breaks_once(break_it: impl Fn(u32) -> Vec<Act> + Send + Sync + 'static) -> Peer {
    let first = AtomicU32::new(u32::MAX);
    Peer::tcp(move |asked| {
        let _ = first.compare_exchange(u32::MAX, asked.connection, Ordering::SeqCst, Ordering::SeqCst);
        if asked.connection == first.load(Ordering::SeqCst) {
            break_it(asked.xid)
        } else {
            vec![Act::Reply(null_reply(asked.xid))]
        }
    })
}

fn calls_are_lost_and_the_connection_regained(peer: &Peer) {
    let mut transport = peer.connect(&options());
    submit_nulls(&mut *transport, 0..3);
    let lost: Vec<_> = (0..3).map(|ticket| ended(ticket, "lost", 0)).collect();
    assert!(transport.is_connected());
    assert_eq!(drain(&mut *transport).unwrap(), lost);
    // Nothing is taken while the connection is away; polling brings it back.
    let clock = quanta::Clock::new();
    let end = clock.now() + PATIENCE;
    while transport.submit(Ticket(9), &Request::Null) == Err(SubmitError::Full) {
        assert!(clock.now() < end, "not regained");
        assert!(!transport.is_connected(), "refused for want of a connection");
        transport.poll(Some(clock.now() + Duration::from_millis(1)), &mut |_| ()).unwrap();
    }
    transport.flush().unwrap();
    assert_eq!(drain(&mut *transport).unwrap(), [ended(9, "ok", 0)]);
    assert_eq!(transport.counters().reconnects, 1);
}

#[test]
fn a_connection_closed_within_a_record_loses_its_calls_and_is_regained() {
    calls_are_lost_and_the_connection_regained(&breaks_once(|xid| {
        let whole = in_record(&null_reply(xid));
        vec![Act::Raw(whole[..11].to_vec()), Act::Close]
    }));
}

#[test]
fn a_record_of_two_gigabytes_ends_the_connection_not_the_memory() {
    calls_are_lost_and_the_connection_regained(&breaks_once(|_| {
        vec![Act::Raw(record::mark(0x7fff_fff0).to_be_bytes().to_vec())]
    }));
}

#[test]
fn replies_to_nothing_are_counted_and_the_right_one_still_counts() {
    let peer = Peer::tcp(|asked| {
        let reply = null_reply(asked.xid);
        let mut call = reply.clone();
        call[7] = 0;
        vec![
            Act::Reply(null_reply(asked.xid ^ 0x8000_0000)),
            Act::Reply(b"nonsense".to_vec()),
            Act::Reply(Vec::new()),
            Act::Raw(record::mark(0).to_be_bytes().to_vec()),
            Act::Reply(call),
            Act::Reply(reply.clone()),
            Act::Reply(reply),
        ]
    });
    let mut transport = peer.connect(&options());
    submit_nulls(&mut *transport, [1]);
    assert_eq!(drain(&mut *transport).unwrap(), [ended(1, "ok", 0)]);
    submit_nulls(&mut *transport, [2]);
    assert_eq!(drain(&mut *transport).unwrap(), [ended(2, "ok", 0)]);
    // Those before the second reply for sure; what follows it may not have arrived yet.
    assert!(transport.counters().bad_replies >= 9, "{:?}", transport.counters());
}

#[test]
fn results_that_are_none_and_refusals_end_their_calls() {
    let peer = Peer::tcp(|asked| {
        let mut reply = Vec::new();
        match asked.kind {
            OpKind::Null => rpc::put_refusal(&mut reply, asked.xid, Refusal::AuthTooWeak),
            OpKind::Getattr => reply = [null_reply(asked.xid), vec![0, 0, 0, 0, 1, 2, 3, 4]].concat(),
            // The head itself is spoilt.
            _ => reply = [asked.xid, 1, 0, 0, u32::MAX].map(u32::to_be_bytes).concat(),
        }
        vec![Act::Reply(reply)]
    });
    let mut transport = peer.connect(&options());
    let file = HandleRef(b"file");
    for (ticket, request) in
        [Request::Null, Request::Getattr { object: file }, Request::Readlink { link: file }]
            .iter()
            .enumerate()
    {
        transport.submit(Ticket(ticket as u32), request).unwrap();
    }
    transport.flush().unwrap();
    assert_eq!(
        drain(&mut *transport).unwrap(),
        [ended(0, "rejected: AUTH_TOOWEAK", 0), ended(1, "bad reply", 0), ended(2, "bad reply", 0)]
    );
}

#[test]
fn a_server_gone_for_good_is_an_error_after_the_lost_calls() {
    let peer = Peer::tcp(|_| vec![Act::Close]);
    let mut transport = peer.connect(&options());
    submit_nulls(&mut *transport, [5]);
    drop(peer);
    assert_eq!(drain(&mut *transport).unwrap(), [ended(5, "lost", 0)]);
    let clock = quanta::Clock::new();
    let start = clock.now();
    let error = loop {
        match transport.poll(Some(start + PATIENCE), &mut |_| ()) {
            Ok(_) => assert!(start.elapsed() < PATIENCE, "no error came"),
            Err(error) => break error,
        }
    };
    let TransportError::Disconnected { target, waited_s, .. } = &error else { panic!("{error}") };
    assert!(target.starts_with("nfs://127.0.0.1:"), "{target}");
    assert!((0.3..5.0).contains(waited_s), "{waited_s}");
}

#[test]
fn a_poll_ends_at_its_time_when_nothing_comes_and_silence_ends_the_calls() {
    let clock = quanta::Clock::new();
    let peer = Peer::tcp(|_| Vec::new());
    // Silence ends nothing within this test, so that only its time can end the poll.
    let mut transport =
        peer.connect(&ClientOptions { silence_timeout: Duration::from_secs(3600), ..options() });
    submit_nulls(&mut *transport, [1]);
    let until = clock.now() + Duration::from_millis(40);
    assert_eq!(transport.poll(Some(until), &mut |_| ()).unwrap(), 0);
    assert!(clock.now() >= until);

    let peer = Peer::tcp(|_| Vec::new());
    let silence_timeout = Duration::from_millis(150);
    let mut transport = peer.connect(&ClientOptions { silence_timeout, ..options() });
    let start = clock.now();
    submit_nulls(&mut *transport, [1]);
    assert_eq!(transport.poll(None, &mut |_| ()).unwrap(), 0);
    assert_eq!(drain(&mut *transport).unwrap(), [ended(1, "lost", 0)]);
    assert!(start.elapsed() >= silence_timeout);
}

#[test]
fn a_server_that_is_connected_and_answers_nothing_is_gone_after_the_reconnect_timeout() {
    let peer = Peer::tcp(|_| Vec::new());
    // The silence of a single connection has a much longer limit.
    let mut transport = peer.connect(&options());
    submit_nulls(&mut *transport, [1, 2]);
    let clock = quanta::Clock::new();
    let end = clock.now() + PATIENCE;
    let mut lost = Vec::new();
    let error = loop {
        match transport.poll(Some(end), &mut |completion| lost.push(completion.ticket.0)) {
            Ok(_) => assert!(clock.now() < end, "no error came"),
            Err(error) => break error,
        }
    };
    let TransportError::Silent { target, waited_s } = &error else { panic!("{error}") };
    assert!(target.starts_with("nfs://127.0.0.1:"), "{target}");
    assert!((0.3..5.0).contains(waited_s), "{waited_s}");
    assert_eq!(lost, [1, 2], "what was in flight is given back first");
}

#[test]
fn calls_beyond_the_limit_are_not_taken_and_all_connections_carry_load() {
    let seen = std::sync::Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let peer = Peer::tcp({
        let seen = std::sync::Arc::clone(&seen);
        move |asked| {
            seen.lock().unwrap().insert(asked.connection);
            vec![Act::Reply(null_reply(asked.xid))]
        }
    });
    let three = NonZeroU16::new(3).unwrap();
    let limited = ClientOptions { connections: three, in_flight_max: three, ..options() };
    let mut transport = peer.connect(&limited);
    submit_nulls(&mut *transport, 0..9);
    assert_eq!(transport.submit(Ticket(9), &Request::Null), Err(SubmitError::Full));
    let mut tickets: Vec<_> = drain(&mut *transport).unwrap().into_iter().map(|end| end.ticket).collect();
    tickets.sort_unstable();
    assert_eq!(tickets, (0..9).collect::<Vec<_>>());
    assert_eq!(seen.lock().unwrap().len(), 3);
}

#[test]
fn large_writes_arrive_whole_though_the_socket_takes_them_in_pieces() {
    let peer = Peer::tcp(|asked| {
        let call = rpc::decode_call(asked.message).unwrap();
        let Ok(Request::Write { bytes, stability, .. }) = nfs3::decode_request(OpKind::Write, call.args)
        else {
            panic!("no write")
        };
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8));
        let mut reply = null_reply(asked.xid);
        let file = files::Wcc::default();
        let count = bytes.len() as u32;
        nfs3::put_reply(
            &mut reply,
            OpKind::Write,
            &Ok(Reply::Write { file, count, stability, verifier: [0; 8] }),
        );
        vec![Act::Reply(reply)]
    });
    let mut transport: Box<dyn Transport> = peer.connect(&options());
    let bytes: Vec<u8> = (0..32_768).map(|at| at as u8).collect();
    let write = Request::Write {
        file: HandleRef(b"file"),
        offset: 0,
        bytes: &bytes,
        stability: files::Stability::FileSync,
    };
    let mut done = 0;
    let mut submitted = 0;
    let clock = quanta::Clock::new();
    let end = clock.now() + PATIENCE;
    while done < 400 {
        assert!(clock.now() < end, "{done} of 400");
        while submitted < 400 && transport.submit(Ticket(submitted), &write).is_ok() {
            submitted += 1;
        }
        transport
            .poll(Some(clock.now() + Duration::from_millis(5)), &mut |completion| {
                assert!(matches!(completion.outcome, files::Outcome::Ok(_)));
                done += 1;
            })
            .unwrap();
    }
}
