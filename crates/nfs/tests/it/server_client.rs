//! The crate's own client against its own servers, over TCP and UDP: what went in comes out.

use std::time::Duration;

use files::{
    CreateHow, DirectoryOptions, Handle, Outcome, Reply, Request, SetAttributes, Stability, Target, Ticket,
    Transport,
};
use nfs::client::{ClientOptions, connect};
use nfs::server::{ServerOptions, serve_dir};
use quanta::Clock;

fn finish(transport: &mut dyn Transport, clock: &Clock, mut look: impl FnMut(Ticket, Reply<'_>)) {
    let until = clock.now() + Duration::from_secs(20);
    transport.flush().unwrap();
    while transport.in_flight() > 0 {
        assert!(clock.now() < until, "{} still in flight", transport.in_flight());
        transport
            .poll(Some(until), &mut |done| match done.outcome {
                Outcome::Ok(reply) => look(done.ticket, reply),
                other => panic!("{other:?}"),
            })
            .unwrap();
    }
}

#[test]
fn a_hundred_files_are_made_written_and_read_back_through_one_transport() {
    for proto in ["tcp", "udp"] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        let server = serve_dir(folder.path(), ServerOptions::default(), DirectoryOptions::default()).unwrap();
        let url = format!("nfs://{}/sub?proto={proto}", server.addr());
        let Ok(Target::Nfs(target)) = url.parse() else { panic!("{url}") };
        let clock = Clock::new();
        let mut transport = connect(&target, &ClientOptions::default(), clock.clone()).unwrap();
        let root = Handle::new(transport.root().0).unwrap();
        let how = CreateHow::Guarded(SetAttributes::default());
        let names: Vec<String> = (0..100).map(|number| format!("file{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            let create = Request::Create { dir: root.by_ref(), name: name.as_bytes(), how };
            transport.submit(Ticket(number as u32), &create).unwrap();
        }
        let mut files = vec![None; 100];
        finish(&mut *transport, &clock, |ticket, reply| match reply {
            Reply::Created { object: Some(object), .. } => files[ticket.0 as usize] = Handle::new(object.0),
            other => panic!("{other:?}"),
        });
        // In tens: over UDP many large datagrams at once overflow a small receive buffer.
        for ten in files.chunks(10) {
            for (number, file) in ten.iter().flatten().enumerate() {
                let bytes = vec![number as u8; 8192];
                let stability = Stability::Unstable;
                let write = Request::Write { file: file.by_ref(), offset: 0, bytes: &bytes, stability };
                transport.submit(Ticket(number as u32), &write).unwrap();
            }
            finish(&mut *transport, &clock, |_, reply| {
                assert!(matches!(reply, Reply::Write { count: 8192, .. }), "{reply:?}");
            });
            for (number, file) in ten.iter().flatten().enumerate() {
                let read = Request::Read { file: file.by_ref(), offset: 0, count: 10_000 };
                transport.submit(Ticket(number as u32), &read).unwrap();
            }
            finish(&mut *transport, &clock, |ticket, reply| match reply {
                Reply::Read { bytes, end: true, .. } => assert!(bytes == [ticket.0 as u8; 8192]),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(std::fs::read_dir(folder.path().join("sub")).unwrap().count(), 100);
        assert_eq!(transport.counters().bad_replies, 0);
    }
}
