//! `NfsFs` against the crate's own server passes the suite that a local directory passes, in every mode.

use std::path::Path;
use std::time::Duration;

use files::{DirectoryOptions, NfsTarget, Target};
use nfs::client::{CacheMode, FsOptions, NfsFs, WriteMode};
use nfs::server::{Server, ServerOptions, serve_dir};
use testkit::conformance::{Quirks, check};

fn scratch() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("crumb-test").tempdir_in(parent).expect("a scratch folder")
}

fn target(server: &Server, proto: &str) -> NfsTarget {
    let url = format!("nfs://{}/?proto={proto}", server.addr());
    let Ok(Target::Nfs(target)) = url.parse() else { panic!("{url}") };
    target
}

fn check_every_mode(proto: &str) {
    let folder = scratch();
    let server = serve_dir(folder.path(), ServerOptions::default(), DirectoryOptions::default()).unwrap();
    for cache in [CacheMode::Off, CacheMode::default(), CacheMode::For(Duration::from_millis(1))] {
        for writes in [WriteMode::Unstable, WriteMode::Stable] {
            let options = FsOptions { cache, writes, ..FsOptions::default() };
            let fs = NfsFs::open(&target(&server, proto), &options).expect("mounted");
            // Paging does not depend on the modes: once is enough for the large listing.
            let first = (cache, writes) == (CacheMode::Off, WriteMode::Unstable);
            let listing_entries = if first { 3000 } else { 200 };
            check(&fs, Quirks { listing_entries, ..Quirks::NFS });
            let counters = fs.counters();
            assert_eq!((counters.resent_calls, counters.found_done, counters.rewritten_bytes), (0, 0, 0));
            assert_eq!(
                std::fs::read_dir(folder.path()).unwrap().count(),
                0,
                "cache {cache}, writes {writes}"
            );
        }
    }
}

#[test]
fn an_export_of_our_own_server_over_tcp_is_a_file_system() {
    check_every_mode("tcp");
}

#[test]
fn an_export_of_our_own_server_over_udp_is_a_file_system() {
    check_every_mode("udp");
}
