//! The UDP transport against a network that loses and repeats.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::client_peer::*;
use files::{Request, SubmitError, Ticket, TransportError};
use nfs::client::ClientOptions;

/// Options under which calls are cancelled long before the server is given up.
fn patient() -> ClientOptions {
    ClientOptions { reconnect_timeout: PATIENCE, ..options() }
}

#[test]
fn a_lost_datagram_is_sent_again_byte_for_byte() {
    let seen = Arc::new(Mutex::new(HashMap::<u32, Vec<Vec<u8>>>::new()));
    let peer = Peer::udp({
        let seen = Arc::clone(&seen);
        move |asked| {
            let mut seen = seen.lock().unwrap();
            let sent = seen.entry(asked.xid).or_default();
            sent.push(asked.message.to_vec());
            // Each call's first datagram is lost, of every third the second as well.
            let needed = if asked.xid.is_multiple_of(3) { 3 } else { 2 };
            if sent.len() < needed { Vec::new() } else { vec![Act::Reply(null_reply(asked.xid))] }
        }
    });
    let mut transport = peer.connect(&options());
    submit_nulls(&mut *transport, 0..30);
    let ends = drain(&mut *transport).unwrap();
    assert_eq!(ends.len(), 30);
    assert!(ends.iter().all(|end| end.how == "ok" && (1..=3).contains(&end.retransmits)), "{ends:?}");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 30, "a retransmission keeps its XID");
    assert!(seen.values().all(|sent| sent.iter().all(|datagram| *datagram == sent[0])));
    let retransmits: u32 = ends.iter().map(|end| end.retransmits).sum();
    assert_eq!(transport.counters().retransmits, u64::from(retransmits));
}

#[test]
fn repeated_replies_are_counted_not_delivered() {
    let peer = Peer::udp(|asked| {
        let reply = || Act::Reply(null_reply(asked.xid));
        vec![reply(), reply(), reply(), Act::Reply(b"junk".to_vec())]
    });
    let mut transport = peer.connect(&options());
    for ticket in 0..10 {
        submit_nulls(&mut *transport, [ticket]);
        assert_eq!(drain(&mut *transport).unwrap(), [ended(ticket, "ok", 0)]);
    }
    // What followed the last reply may not have arrived.
    assert!((27..=30).contains(&transport.counters().bad_replies), "{:?}", transport.counters());
    assert!((9..=10).contains(&transport.counters().garbage), "{:?}", transport.counters());
}

#[test]
fn a_call_never_answered_is_cancelled_after_its_last_time_out() {
    let peer = Peer::udp(|_| Vec::new());
    let mut transport = peer.connect(&patient());
    let start = Instant::now();
    submit_nulls(&mut *transport, 0..5);
    let expected: Vec<_> = (0..5).map(|ticket| ended(ticket, "cancelled", 3)).collect();
    assert_eq!(drain(&mut *transport).unwrap(), expected);
    // 20, 40, 80 and 160 ms.
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    assert_eq!(transport.counters().retransmits, 15);
}

#[test]
fn a_reply_after_the_cancellation_matches_no_later_call() {
    let first = Mutex::new(None);
    let peer = Peer::udp(move |asked| {
        let mut first = first.lock().unwrap();
        match *first {
            None => *first = Some(asked.xid),
            Some(xid) if xid == asked.xid => {}
            // The second call is answered by the late reply to the first one, and then properly.
            Some(xid) => return vec![Act::Reply(null_reply(xid)), Act::Reply(null_reply(asked.xid))],
        }
        Vec::new()
    });
    let mut transport = peer.connect(&patient());
    submit_nulls(&mut *transport, [1]);
    assert_eq!(drain(&mut *transport).unwrap(), [ended(1, "cancelled", 3)]);
    submit_nulls(&mut *transport, [2]);
    assert_eq!(drain(&mut *transport).unwrap(), [ended(2, "ok", 0)]);
    assert_eq!(transport.counters().bad_replies, 1);
}

#[test]
fn a_server_that_went_away_costs_its_calls_and_not_the_transport() {
    let peer = Peer::udp(|asked| vec![Act::Reply(null_reply(asked.xid))]);
    let mut transport = peer.connect(&patient());
    submit_nulls(&mut *transport, [1]);
    assert_eq!(drain(&mut *transport).unwrap(), [ended(1, "ok", 0)]);
    // From here on each datagram is answered by "port unreachable".
    drop(peer);
    submit_nulls(&mut *transport, [2, 3]);
    assert_eq!(drain(&mut *transport).unwrap(), [ended(2, "cancelled", 3), ended(3, "cancelled", 3)]);
}

/// Symptom: a run against a silent server went on for as long as calls could be made anew. Cause: nothing but the end of
/// each call was looked at. Fix: only a reply ends a silence, which has a limit.
#[test]
fn a_server_that_answers_nothing_is_gone_however_often_calls_are_cancelled_and_made_anew() {
    let silent = std::sync::atomic::AtomicBool::new(false);
    let peer = Peer::udp(move |asked| {
        // One answer, so that it is known to have been there.
        if silent.swap(true, std::sync::atomic::Ordering::SeqCst) {
            return vec![Act::Reply(b"garbage".to_vec())];
        }
        vec![Act::Reply(null_reply(asked.xid))]
    });
    let reconnect_timeout = Duration::from_millis(700);
    let mut transport = peer.connect(&ClientOptions { reconnect_timeout, ..options() });
    submit_nulls(&mut *transport, [0]);
    assert_eq!(drain(&mut *transport).unwrap(), [ended(0, "ok", 0)]);
    let (start, mut cancelled) = (Instant::now(), 0);
    let error = loop {
        assert!(start.elapsed() < PATIENCE, "it was never given up");
        if transport.in_flight() == 0 {
            // Once it is given up nothing more need be taken.
            let _ = transport.submit(Ticket(1), &Request::Null);
        }
        let until = quanta::Clock::new().now() + Duration::from_millis(50);
        let polled = transport.poll(Some(until), &mut |completion| {
            cancelled += u32::from(matches!(completion.outcome, files::Outcome::Cancelled));
        });
        if let Err(error) = polled {
            break error;
        }
    };
    let TransportError::Silent { target, waited_s } = &error else { panic!("{error}") };
    assert!(target.starts_with("nfs://127.0.0.1:"), "{target}");
    assert!(*waited_s >= 0.7 && start.elapsed() >= reconnect_timeout, "{waited_s}");
    assert!(cancelled >= 1, "a call ends after 300 ms");
}

#[test]
fn calls_beyond_the_limit_are_not_taken() {
    let peer = Peer::udp(|asked| vec![Act::Reply(null_reply(asked.xid))]);
    let two = std::num::NonZeroU16::new(2).unwrap();
    let mut transport = peer.connect(&ClientOptions { connections: two, in_flight_max: two, ..options() });
    submit_nulls(&mut *transport, 0..4);
    assert_eq!(transport.submit(Ticket(4), &Request::Null), Err(SubmitError::Full));
    assert_eq!(drain(&mut *transport).unwrap().len(), 4);
    submit_nulls(&mut *transport, [4]);
    assert_eq!(drain(&mut *transport).unwrap(), [ended(4, "ok", 0)]);
}
