//! Starting, changing and ending a proxy while it is used.

use std::sync::Arc;

use crate::harness::{Connection, Gate, Origin, Proxy, Step, reply};

#[test]
fn a_new_configuration_counts_for_the_next_request_of_a_connection_that_goes_on() {
    let origin = Origin::new(|_, _| reply("Cache-Control: no-store\r\n", "x"));
    let proxy = Proxy::new(&origin);
    let mut connection = Connection::new(proxy.reverse);
    let mut via = || {
        connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        connection.receive(false).unwrap().field("via").unwrap().to_owned()
    };
    assert!(via().starts_with("1.1 crumb-"));
    assert!(proxy.reload("[proxy]\nname = \"other\"\n").is_empty());
    assert_eq!(via(), "1.1 other");
    assert_eq!(proxy.reload("[cache]\nwriters = 3\n"), ["cache.writers"]);
    let changed = "[cache]\nverify_one_in = 7\nmemory_mib = 1\nsize_mib = 2048\n[log]\nkeep = 3\n";
    for _ in 0..2 {
        // Compared with the start, not with the file that was read last: `writers` is as at the start again, the others are not.
        assert_eq!(proxy.reload(changed), ["cache.size_mib", "cache.memory_mib", "cache.verify_one_in"]);
    }
}

#[test]
fn a_reply_under_way_is_finished_before_the_end_and_what_was_stored_is_served_by_the_next_start() {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let origin = Origin::new(move |_, _| {
        vec![
            Step::Send(
                b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\n01234".to_vec(),
            ),
            Step::Wait(Arc::clone(&held)),
            Step::Send(b"56789".to_vec()),
        ]
    });
    let proxy = Proxy::new(&origin);
    let mut client = Connection::new(proxy.reverse);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.receive_head().unwrap().0, 200);
    let (address, origin_address) = (proxy.reverse, origin.address);
    let ending = std::thread::spawn(move || proxy.stop());
    while std::net::TcpStream::connect(address).is_ok() {
        std::thread::yield_now();
    }
    gate.open();
    assert_eq!(client.receive_bytes(10), b"0123456789");
    let store = ending.join().unwrap();
    let again = Proxy::on(store, origin_address, "");
    // The key holds the port of the request's Host, which has none.
    let mut client = Connection::new(again.reverse);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let got = client.receive(false).unwrap();
    assert_eq!((got.text().as_str(), got.is_hit()), ("0123456789", true));
}

#[test]
fn clients_that_come_and_go_leave_no_connection_no_fill_and_no_waiting_byte_behind() {
    let origin = Origin::new(|seen, number| match number % 4 {
        0 => reply("Cache-Control: max-age=60\r\n", vec![b'x'; 20_000]),
        1 => reply("Cache-Control: no-store\r\n", &seen.target),
        2 => vec![Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe".to_vec()), Step::Close],
        _ => vec![Step::Close],
    });
    let proxy = Proxy::new(&origin);
    std::thread::scope(|scope| {
        for client in 0..8 {
            let proxy = &proxy;
            scope.spawn(move || {
                for round in 0..50 {
                    let mut connection = Connection::new(proxy.reverse);
                    connection
                        .send(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", (client * 7 + round) % 40));
                    if round % 3 != 0 {
                        let _ = connection.receive(false);
                    }
                }
            });
        }
    });
    proxy.until("all connections have ended", |proxy| {
        let ended = proxy.count(|counters| counters.connections_ended.get());
        ended == 400 && proxy.server().shared().clients.count() == 0
    });
    proxy.settled();
    assert_eq!(proxy.server().shared().object_cache.writers().behind_bytes(), 0);
}
