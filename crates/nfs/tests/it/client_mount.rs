//! What a user is told when mounting fails.

use std::{net::TcpListener, time::Duration};

use crate::client_peer::*;
use files::{NfsProto, Request};
use nfs::{
    client::{ClientOptions, Control, Mount, exports},
    wire::mount3::MountStatus,
};

fn failure(mounting: Mounting, proto: NfsProto) -> String {
    let peer = Peer::start(proto, mounting, |_| Vec::new());
    let options = ClientOptions { connect_timeout: Duration::from_millis(400), ..options() };
    Mount::open(&peer.target(), &options).expect_err("mounted").to_string()
}

#[test]
fn a_failed_mount_says_what_where_and_what_to_do() {
    for proto in [NfsProto::Tcp, NfsProto::Udp] {
        for (mounting, says) in [
            (Mounting::Fails(MountStatus::NOENT), "no export `/export`; the server exports /mail, /news"),
            // What is not exported is denied by some servers.
            (Mounting::Fails(MountStatus::ACCES), "no export `/export`; the server exports /mail, /news"),
            (Mounting::Fails(MountStatus::IO), "MNT3ERR_IO"),
            (Mounting::Flavours(vec![390_003]), "sec=sys"),
            (Mounting::NoSuchProgram, "?mountport=PORT"),
            (Mounting::Silent, "no answer within 0.4 s"),
        ] {
            let text = failure(mounting, proto);
            assert!(text.contains(says) && text.contains("127.0.0.1"), "{says}: {text}");
        }
    }
}

#[test]
fn an_export_that_is_there_but_denied_is_not_said_to_be_missing() {
    let peer = Peer::start(NfsProto::Tcp, Mounting::Fails(MountStatus::ACCES), |_| Vec::new());
    let target = files::NfsTarget { export: "/mail/spool".into(), ..peer.target() };
    let text = Mount::open(&target, &options()).expect_err("mounted").to_string();
    assert!(text.contains("may not mount `/mail/spool` (MNT3ERR_ACCES)"), "{text}");
}

#[test]
fn nobody_listening_is_told_with_the_address() {
    // Bound and dropped: the port is free, and nobody else takes it so soon.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for proto in [NfsProto::Tcp, NfsProto::Udp] {
        let target = files::NfsTarget {
            host: "127.0.0.1".into(),
            port: Some(port),
            mount_port: None,
            export: "/x".into(),
            proto: Some(proto),
        };
        let text = Mount::open(&target, &options()).expect_err("mounted").to_string();
        assert!(text.contains(&format!("127.0.0.1:{port} over {proto}")), "{text}");
        assert!(text.contains("is the server up"), "{text}");
    }
}

#[test]
fn a_host_without_address_is_told() {
    let target = files::NfsTarget {
        host: "no such host".into(),
        port: Some(1),
        mount_port: None,
        export: "/x".into(),
        proto: None,
    };
    let text = Mount::open(&target, &options()).expect_err("mounted").to_string();
    assert!(text.contains("host `no such host` has no address"), "{text}");
}

#[test]
fn exports_are_listed_and_a_mounted_server_answers_pings() {
    for proto in [NfsProto::Tcp, NfsProto::Udp] {
        let peer = Peer::start(proto, Mounting::Fine, |asked| vec![Act::Reply(null_reply(asked.xid))]);
        assert_eq!(exports(&peer.target(), &options()).unwrap(), ["/mail", "/news"]);
        let mut mount = Mount::open(&peer.target(), &options()).unwrap();
        assert_eq!((mount.root.by_ref(), mount.limits.read_max), (ROOT, 65_536));
        let control: &mut Control = &mut mount.control;
        control.ping().unwrap();
        assert_eq!(control.request(&Request::Null).unwrap(), Ok(files::Reply::Null));
    }
}

/// Symptom: a server that answered FSINFO with NFS3ERR_JUKEBOX, as one does that is just starting, ended a run at once.
#[test]
fn a_server_that_wants_to_be_asked_later_at_fsinfo_is_asked_later() {
    let left = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(2));
    let mounting = Mounting::PutsOff(std::sync::Arc::clone(&left));
    let peer = Peer::start(files::NfsProto::Tcp, mounting, |asked| vec![Act::Reply(null_reply(asked.xid))]);
    let mut transport = peer.connect(&options());
    assert_eq!(left.load(std::sync::atomic::Ordering::SeqCst), 0);
    submit_nulls(&mut *transport, [1]);
    assert_eq!(drain(&mut *transport).unwrap(), [ended(1, "ok", 0)]);
}
