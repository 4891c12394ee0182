//! A directory behind the Transport seam: every ticket once, within its time, no thread left.

use std::time::Duration;

use files::{
    CreateHow, DirectoryTransport, DirectoryTransportOptions, Handle, HandleRef, Outcome, Reply, Request,
    SetAttributes, Stability, Status, SubmitError, Ticket, Transport,
};
use quanta::Clock;

fn open(options: DirectoryTransportOptions) -> (tempfile::TempDir, DirectoryTransport, Clock) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::new();
    let transport = DirectoryTransport::open(folder.path(), options, clock.clone()).unwrap();
    (folder, transport, clock)
}

/// Polls until nothing is in flight; shows each completion to `look`.
fn finish(transport: &mut DirectoryTransport, clock: &Clock, mut look: impl FnMut(Ticket, Outcome<'_>)) {
    let until = clock.now() + Duration::from_secs(20);
    while transport.in_flight() > 0 {
        assert!(clock.now() < until, "{} still in flight", transport.in_flight());
        transport.poll(Some(until), &mut |done| look(done.ticket, done.outcome)).unwrap();
    }
}

#[test]
fn requests_of_every_shape_reach_the_directory_and_their_replies_the_caller() {
    let (folder, mut transport, clock) = open(DirectoryTransportOptions::default());
    let root = Handle::new(transport.root().0).unwrap();
    let how = CreateHow::Guarded(SetAttributes::default());
    for number in 0..100_u32 {
        let name = format!("file{number}");
        let create = Request::Create { dir: root.by_ref(), name: name.as_bytes(), how };
        transport.submit(Ticket(number), &create).unwrap();
    }
    let mut files = vec![None; 100];
    finish(&mut transport, &clock, |ticket, outcome| match outcome {
        Outcome::Ok(Reply::Created { object: Some(object), .. }) => {
            assert!(files[ticket.0 as usize].replace(Handle::new(object.0).unwrap()).is_none());
        }
        other => panic!("{other:?}"),
    });
    for (number, file) in files.iter().flatten().enumerate() {
        let bytes = vec![number as u8; 1000 + number];
        let write =
            Request::Write { file: file.by_ref(), offset: 0, bytes: &bytes, stability: Stability::Unstable };
        transport.submit(Ticket(number as u32), &write).unwrap();
    }
    finish(&mut transport, &clock, |ticket, outcome| match outcome {
        Outcome::Ok(Reply::Write { count, .. }) => assert_eq!(count, 1000 + ticket.0),
        other => panic!("{other:?}"),
    });
    for (number, file) in files.iter().flatten().enumerate() {
        let read = Request::Read { file: file.by_ref(), offset: 0, count: 10_000 };
        transport.submit(Ticket(number as u32), &read).unwrap();
    }
    finish(&mut transport, &clock, |ticket, outcome| match outcome {
        Outcome::Ok(Reply::Read { bytes, end: true, .. }) => {
            assert!(bytes == vec![ticket.0 as u8; 1000 + ticket.0 as usize]);
        }
        other => panic!("{other:?}"),
    });
    // Two names, two handles, and a text beside a name.
    let dir = root.by_ref();
    let file = files[1].unwrap();
    let requests = [
        Request::Rename { from_dir: dir, from_name: b"file0", to_dir: dir, to_name: b"renamed" },
        Request::Symlink { dir, name: b"link", target: b"where", new: SetAttributes::default() },
        Request::Link { file: file.by_ref(), dir, name: b"second" },
        Request::Readdir { dir, cookie: 0, verifier: [0; 8], count: 512 },
        Request::Getattr { object: HandleRef(&[1; 65]) },
        Request::Null,
    ];
    for (number, request) in requests.iter().enumerate() {
        transport.submit(Ticket(number as u32), request).unwrap();
    }
    let mut failed = Vec::new();
    finish(&mut transport, &clock, |ticket, outcome| match outcome {
        Outcome::Ok(Reply::Listing { entries, .. }) => assert!(entries.count() > 3),
        Outcome::Ok(_) => {}
        Outcome::Failed(status) => failed.push((ticket.0, status)),
        other => panic!("{other:?}"),
    });
    assert_eq!(failed, [(4, Status::BADHANDLE)]);
    assert!(folder.path().join("renamed").exists() && folder.path().join("second").exists());
    assert_eq!(std::fs::read_link(folder.path().join("link")).unwrap().to_str(), Some("where"));
}

#[test]
fn more_than_may_be_in_flight_is_refused_and_taken_after_a_poll() {
    let options = DirectoryTransportOptions { in_flight_max: 8, ..Default::default() };
    let (_folder, mut transport, clock) = open(options);
    for number in 0..8 {
        assert_eq!(transport.submit(Ticket(number), &Request::Null), Ok(()));
    }
    assert_eq!(transport.submit(Ticket(8), &Request::Null), Err(SubmitError::Full));
    finish(&mut transport, &clock, |_, _| {});
    assert_eq!(transport.submit(Ticket(8), &Request::Null), Ok(()));
}

#[test]
fn poll_keeps_its_time() {
    let (_folder, mut transport, clock) = open(DirectoryTransportOptions::default());
    assert_eq!(transport.poll(None, &mut |_| panic!("nothing was asked")).unwrap(), 0);
    let until = clock.now() + Duration::from_millis(20);
    assert_eq!(transport.poll(Some(until), &mut |_| panic!("nothing was asked")).unwrap(), 0);
    assert!(clock.now() >= until, "it came back early");
    let began = clock.now();
    transport.submit(Ticket(1), &Request::Null).unwrap();
    let mut done = None;
    let late = began + Duration::from_secs(10);
    transport.poll(Some(late), &mut |completion| done = Some(completion.done)).unwrap();
    assert!(done.is_some_and(|done| began <= done && done <= clock.now()));
    assert!(clock.now() < late);
}

#[test]
fn dropping_the_transport_ends_its_threads() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let options = DirectoryTransportOptions { threads: 40, threads_max: 60, ..Default::default() };
    let (_folder, mut transport, _) = open(options);
    for number in 0..100 {
        transport.submit(Ticket(number), &Request::Null).unwrap();
    }
    transport.flush().unwrap();
    let during = threads();
    drop(transport);
    // Other tests of this process start and end some of their own.
    assert!(threads() + 20 < during, "{during} before, {} after", threads());
}
