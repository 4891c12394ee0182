//! Many readers of one reply: one request to the origin, served while it comes, nobody blocked by anybody.

use std::sync::Arc;

use crate::harness::{Connection, Gate, Origin, Proxy, Step, reply};

fn body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 % 251) as u8).collect()
}

/// Half of the body, then the gate, then the rest.
fn in_halves(whole: &[u8], fields: &str, gate: &Arc<Gate>) -> Vec<Step> {
    let (first, second) = whole.split_at(whole.len() / 2);
    let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", whole.len());
    vec![
        Step::Send([head.as_bytes(), first].concat()),
        Step::Wait(Arc::clone(gate)),
        Step::Send(second.to_vec()),
    ]
}

#[test]
fn many_who_ask_at_once_cost_the_origin_one_request() {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let whole = body(40_000);
    let sent = whole.clone();
    let origin = Origin::new(move |_, _| {
        let mut steps = vec![Step::Wait(Arc::clone(&held))];
        steps.extend(reply("Cache-Control: max-age=60\r\n", &sent));
        steps
    });
    let proxy = Proxy::new(&origin);
    let mut clients: Vec<Connection> = (0..20).map(|_| Connection::new(proxy.reverse)).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: site\r\n\r\n");
    }
    proxy.until("all have come", |proxy| proxy.count(|counters| counters.connections_accepted.get()) == 20);
    gate.open();
    for client in &mut clients {
        let got = client.receive(false).unwrap();
        assert!(got.whole && got.body == whole);
    }
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn a_reply_is_read_by_all_while_it_is_still_coming() {
    let gate = Arc::new(Gate::default());
    let (held, whole) = (Arc::clone(&gate), body(100_000));
    let sent = whole.clone();
    let origin = Origin::new(move |_, _| in_halves(&sent, "Cache-Control: max-age=60\r\n", &held));
    let proxy = Proxy::new(&origin);
    let mut clients: Vec<Connection> = (0..3).map(|_| Connection::new(proxy.reverse)).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: site\r\n\r\n");
        assert_eq!(client.receive_head().unwrap().0, 200);
        assert!(client.receive_bytes(50_000) == whole[..50_000], "before the origin sent the rest");
    }
    gate.open();
    for client in &mut clients {
        assert!(client.receive_bytes(50_000) == whole[50_000..]);
    }
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn who_reads_nothing_blocks_nobody_and_gets_all_in_the_end() {
    let whole = body(12 << 20);
    let sent = whole.clone();
    let origin = Origin::new(move |_, _| reply("Cache-Control: max-age=60\r\n", &sent));
    let proxy = Proxy::new(&origin);
    let mut slow = Connection::new(proxy.reverse);
    slow.send("GET / HTTP/1.1\r\nHost: site\r\n\r\n");
    assert_eq!(slow.receive_head().unwrap().0, 200);
    let mut fast = Connection::new(proxy.reverse);
    fast.send("GET / HTTP/1.1\r\nHost: site\r\n\r\n");
    assert!(fast.receive(false).unwrap().body == whole, "beside one who reads nothing");
    assert!(slow.receive_bytes(whole.len()) == whole, "from the store, where it had fallen behind");
}

#[test]
fn who_waits_too_long_for_another_goes_by_himself() {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let origin = Origin::new(move |_, number| {
        let mut steps = reply("Cache-Control: max-age=60\r\n", number.to_string());
        if number == 0 {
            steps.insert(0, Step::Wait(Arc::clone(&held)));
        }
        steps
    });
    let proxy = Proxy::with(origin.address, "[collapse]\nwait_ms = 50\n");
    let mut first = Connection::new(proxy.reverse);
    first.send("GET / HTTP/1.1\r\nHost: site\r\n\r\n");
    proxy.until("the first has reached the origin", |_| origin.seen().len() == 1);
    assert_eq!(proxy.get("/").text(), "1", "while the first still waits");
    gate.open();
    assert_eq!(first.receive(false).unwrap().text(), "0");
}

#[test]
fn what_cannot_be_shared_is_fetched_by_each_at_once() {
    let gate = Arc::new(Gate::default());
    let (held, sent) = (Arc::clone(&gate), body(1000));
    let origin = Origin::new(move |_, _| in_halves(&sent, "Cache-Control: no-store\r\n", &held));
    let proxy = Proxy::new(&origin);
    let mut clients: Vec<Connection> = (0..4).map(|_| Connection::new(proxy.reverse)).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: site\r\n\r\n");
    }
    proxy.until("all have reached the origin", |_| origin.seen().len() == 4);
    gate.open();
    assert!(clients.iter_mut().all(|client| client.receive(false).unwrap().body == body(1000)));
}

#[test]
fn a_client_that_leaves_lets_a_short_rest_be_finished_and_a_long_one_be_dropped() {
    for (bytes, finished) in [(200_000, true), (8 << 20, false)] {
        let gate = Arc::new(Gate::default());
        let (held, whole) = (Arc::clone(&gate), body(bytes));
        let sent = whole.clone();
        let origin = Origin::new(move |_, _| in_halves(&sent, "Cache-Control: max-age=60\r\n", &held));
        let proxy = Proxy::new(&origin);
        let mut client = Connection::new(proxy.reverse);
        client.send("GET / HTTP/1.1\r\nHost: site\r\n\r\n");
        assert_eq!(client.receive_head().unwrap().0, 200);
        drop(client);
        proxy.until("its end was noticed", |proxy| {
            proxy.count(|counters| counters.connections_ended.get()) == 1
        });
        gate.open();
        proxy.settled();
        let stored = proxy.count(|counters| counters.stored_objects.get()) == 1;
        assert_eq!(stored, finished, "{bytes} bytes");
        let again = proxy.get("/");
        assert!(again.body == whole && again.is_hit() == finished, "{bytes} bytes");
    }
}
