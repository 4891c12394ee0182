//! Which addresses clients of the forward side reach, by whatever name.

use std::net::SocketAddr;

use crate::harness::{Connection, Nobody, Origin, Proxy, reply};

/// Status of a request for an absolute URL, or of CONNECT.
fn status(address: SocketAddr, request: &str) -> u16 {
    let mut connection = Connection::new(address);
    connection.send(format!("{request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"));
    connection.receive_head().unwrap_or_else(|| panic!("no reply to {request}")).0
}

fn origin() -> Origin {
    Origin::new(|_, _| reply("Cache-Control: no-store\r\n", "from inside"))
}

/// Symptom: `hosts_denied = ["127.0.0.1"]` was passed by `http://0.0.0.0:PORT/` and by names. Cause: only what the client wrote
/// was compared. Fix: the address that is connected to is judged.
#[test]
fn internal_addresses_are_not_reached_by_any_name_and_sites_and_parents_are() {
    let inside = origin();
    let port = inside.address.port();
    for rule in
        ["internal = 'deny'", "hosts_denied = ['127.0.0.1']", "destinations_denied = ['127.0.0.0/8', '::1']"]
    {
        let more =
            format!("[access]\n{rule}\nupgrades = ['websocket']\n[forward]\nconnect_ports = [{port}]\n");
        let proxy = Proxy::with(inside.address, &more);
        for host in [
            "127.0.0.1",
            "0.0.0.0",
            "127.9.9.9",
            "localhost",
            "LocalHost",
            "[::]",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:0:0]",
        ] {
            let asks = [
                format!("GET http://{host}:{port}/"),
                format!("POST http://{host}:{port}/"),
                format!("CONNECT {host}:{port}"),
            ];
            for ask in asks {
                assert_eq!(status(proxy.forward, &ask), 403, "{rule}: {ask}");
            }
        }
        let mut upgrade = Connection::new(proxy.forward);
        upgrade.send(format!(
            "GET http://localhost:{port}/ HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        ));
        assert_eq!(upgrade.receive_head().unwrap().0, 403, "{rule}");
        assert!(inside.seen().is_empty(), "{rule}: {:?}", inside.seen());
        assert_eq!(proxy.get("/").text(), "from inside", "{rule}: what the operator configured is served");
        inside.forget();
    }
    // A parent is asked for a name, which is then the parent's to judge.
    let parent = Origin::new(|_, _| reply("Cache-Control: no-store\r\n", "from the parent"));
    let more = format!("access.internal = 'deny'\n[[parent]]\naddress = '{}'\n", parent.address);
    let proxy = Proxy::with(inside.address, &more);
    assert_eq!(proxy.get_url("http://outside.example/", "").text(), "from the parent");
    let dead = Nobody::new();
    let more = format!("access.internal = 'deny'\n[[parent]]\naddress = '{}'\n", dead.address);
    let proxy = Proxy::with(inside.address, &more);
    let got = proxy.get_url(&format!("http://localhost:{port}/"), "");
    assert_eq!((got.status, inside.seen().len()), (403, 0), "when no parent answers, it is ours: {got:?}");
}

#[test]
fn a_connection_that_was_made_for_a_site_or_under_other_rules_is_judged_again() {
    let inside = origin();
    let port = inside.address.port();
    let site = format!("http://localhost:{port}");
    let rules = |internal: &str| format!("[access]\ninternal = '{internal}'\n");
    let proxy = Proxy::with(inside.address, &rules("allow"));
    let forward = || status(proxy.forward, &format!("GET {site}/"));
    // Each loop has its own connections: one is kept by both.
    for _ in 0..20 {
        assert_eq!(forward(), 200);
    }
    let before = inside.seen().len();
    proxy.reload(&rules("deny"));
    for _ in 0..20 {
        assert_eq!(forward(), 403);
    }
    assert_eq!(inside.seen().len(), before);
    proxy.reload("[access]\ninternal = 'deny'\ninternal_allowed = ['127.0.0.0/8']\n");
    assert_eq!(forward(), 200, "excepted");
}

#[test]
fn what_is_stored_stands_in_for_no_address_that_clients_may_not_reach() {
    let inside = Origin::new(|_, _| {
        reply("Cache-Control: max-age=0, stale-if-error=600\r\nETag: \"a\"\r\n", "from inside")
    });
    let proxy = Proxy::with(inside.address, "");
    let url = format!("http://localhost:{}/", inside.address.port());
    assert_eq!(proxy.get_url(&url, "").status, 200);
    proxy.settled();
    proxy.reload("access.internal = 'deny'");
    let got = proxy.get_url(&url, "");
    assert_eq!(got.status, 403, "{got:?}");
    assert!(got.text().contains("access.internal"), "the reason is told: {}", got.text());
}
