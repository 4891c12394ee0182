//! A client that asks as fast as it can: wrk.

use std::process::Command;

use crate::harness::{Origin, Proxy, reply};

#[test]
fn wrk_gets_whole_replies_from_the_store_whatever_it_asks_on_however_many_connections() {
    let Some(wrk) = testkit::need::program("wrk", "wrk") else { return };
    let origin = Origin::new(|_, _| reply("Cache-Control: max-age=600\r\n", vec![b'x'; 10_700]));
    let proxy = Proxy::new(&origin);
    let done = Command::new(wrk)
        .args(["-t", "2", "-c", "64", "-d", "2s", "--timeout", "30s"])
        .args(["-H", "Host: site"])
        .arg(format!("http://{}/object", proxy.reverse))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}");
    // Told only when there were some.
    assert!(!said.contains("Non-2xx") && !said.contains("Socket errors"), "{said}");
    let line = said.lines().find(|line| line.contains("requests in")).expect(&said);
    let requests: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
    assert!(requests > 100, "{said}");
    proxy.until("its connections are gone", |proxy| proxy.server().shared().clients.count() == 0);
    assert_eq!(origin.seen().len(), 1, "64 asked at once, and then many more");
    assert!(proxy.get("/object").is_hit());
}
