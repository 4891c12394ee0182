//! Crumb's transport in the same closed loop: every reply is decoded, and makes room for the next call.

use std::time::Duration;

use files::{NfsTarget, Outcome, Ticket};
use nfs::client::{ClientOptions, SourcePort, UdpOptions};
use quanta::Clock;

use crate::{Moment, Rate, Run, mix};

/// Calls submitted between flushes, when that many may go: as many as the bare loop puts into one write.
const BATCH: usize = 16;

pub fn run(run: &Run, spins: bool) -> Rate {
    let target = NfsTarget {
        host: run.addr.ip().to_string(),
        port: Some(run.addr.port()),
        mount_port: None,
        export: "/".into(),
        proto: Some(run.proto),
    };
    let options = ClientOptions {
        source_port: SourcePort::Any,
        udp: UdpOptions { timeout: Duration::from_secs(5), ..UdpOptions::default() },
        ..ClientOptions::default()
    };
    let clock = Clock::new();
    let mut transport = nfs::client::connect(&target, &options, clock.clone()).expect("a responder");
    let requests: Vec<_> = run.mix.round().into_iter().map(mix::request).collect();
    let outstanding = usize::from(run.outstanding.get());
    let batch = BATCH.min(outstanding);
    let (mut next, mut free, mut answered) = (0, outstanding, 0_u64);
    let warm_until = clock.now() + run.warm;
    let until = warm_until + run.measure;
    let mut counted_from: Option<Moment> = None;
    loop {
        if free >= batch {
            for _ in 0..free {
                transport.submit(Ticket(0), &requests[next]).expect("room");
                next = if next + 1 == requests.len() { 0 } else { next + 1 };
            }
            free = 0;
            transport.flush().unwrap();
        }
        let mut last = None;
        let delivered = transport
            .poll((!spins).then_some(until), &mut |completion| {
                assert!(matches!(completion.outcome, Outcome::Ok(_)), "{:?}", completion.outcome);
                last = Some(completion.done);
            })
            .unwrap();
        answered += delivered as u64;
        free += delivered;
        let now = last.unwrap_or_else(|| clock.now());
        match counted_from {
            None if now >= warm_until => counted_from = Some(Moment::now(answered)),
            Some(from) if now >= until => return Moment::rate_until(from, Moment::now(answered)),
            _ => {}
        }
    }
}
