//! What a proxy holds while its disk does not come along. A program of its own, as memory is a whole process's.

#[allow(dead_code, reason = "the other tests' proxy and origin, of which this needs little")]
#[path = "server/harness.rs"]
mod harness;

use std::sync::Arc;

use harness::{Connection, Gate, Origin, Proxy, reply};
use packstore::{Mode, Store, StoreOptions, VolumeSpec};
use testkit::{Held, HeldDisk, SimulatedDisk};

const BODY_BYTES: usize = 10_000;
const BEHIND_BYTES_MAX: u64 = 32 << 20;

#[test]
fn replies_that_wait_for_the_disk_take_little_more_than_their_own_bytes() {
    let gate = Arc::new(Gate::default());
    let disk = {
        let gate = Arc::clone(&gate);
        HeldDisk::new(SimulatedDisk::new("cache"), move |held| {
            if held == Held::Open("00000001.body") {
                gate.wait();
            }
        })
    };
    let options = StoreOptions { mode: Mode::Cache, packed_blocks: Some(1 << 14), ..StoreOptions::default() };
    let volume = VolumeSpec { disk: Arc::new(disk), size_bytes: 64 << 20 };
    let store = Arc::new(Store::create(vec![volume], options).unwrap());
    let origin = Origin::new(|_, _| reply("Cache-Control: max-age=60\r\n", [b'x'; BODY_BYTES]));
    let behind = format!("cache.behind_max_kib = {}\n", BEHIND_BYTES_MAX >> 10);
    let proxy = Proxy::on(store, origin.address, &behind);
    let mut client = Connection::new(proxy.reverse);
    let mut get = |number: u64| {
        client.send(format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(client.receive(false).unwrap().body.len(), BODY_BYTES);
    };
    get(0);
    let before = resident_bytes();
    let mut asked = 0;
    while proxy.count(|counters| counters.unstored_behind.get()) == 0 {
        asked += 1;
        assert!(asked * BODY_BYTES as u64 <= 2 * BEHIND_BYTES_MAX, "all is taken, and nothing is written");
        get(asked);
    }
    let waiting = asked * BODY_BYTES as u64;
    assert!(waiting >= BEHIND_BYTES_MAX / 2, "only {waiting} bytes were taken");
    let held = resident_bytes().saturating_sub(before);
    gate.open();
    // The origin's notes, threads and what an allocator keeps for them.
    let beside = 8 << 20;
    assert!(held <= 2 * waiting + beside, "{held} bytes are held, for {waiting} that wait");
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
