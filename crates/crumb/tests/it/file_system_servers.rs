//! `NfsFs` against a real NFS server passes the suite that a local directory passes, in every mode.

use std::fs;
use std::path::Path;

use files::{NfsTarget, Target};
use nfs::client::{CacheMode, FsOptions, NfsFs, WriteMode};
use testkit::Ganesha;
use testkit::conformance::{Quirks, UnlinkedOpen, check};

/// A place where deleting is cheap.
fn scratch() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let parent = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("crumb-test").tempdir_in(parent).expect("a scratch folder")
}

fn target(url: &str) -> NfsTarget {
    let Ok(Target::Nfs(target)) = url.parse() else { panic!("{url}") };
    target
}

#[test]
fn an_export_of_ganesha_is_a_file_system_over_tcp_and_udp() {
    let scratch = scratch();
    let Some(ganesha) = Ganesha::needed(scratch.path()) else { return };
    for proto in ["tcp", "udp"] {
        let target = target(&format!("{}&proto={proto}", ganesha.url()));
        for cache in [CacheMode::Off, CacheMode::default()] {
            for writes in [WriteMode::Unstable, WriteMode::Stable] {
                let options = FsOptions { cache, writes, ..FsOptions::default() };
                let fs = NfsFs::open(&target, &options).expect("mounted");
                // Paging does not depend on the modes: once over each protocol is enough for a large listing, and
                // over UDP, where a reply carries less, a smaller one is large.
                let listing_entries = match (proto, cache, writes) {
                    ("tcp", CacheMode::Off, WriteMode::Unstable) => 3000,
                    ("udp", CacheMode::Off, WriteMode::Unstable) => 1500,
                    _ => 200,
                };
                let quirks = Quirks {
                    // Ganesha keeps descriptors of its own, and an unlinked file with them, as it pleases.
                    unlinked_open: UnlinkedOpen::Either,
                    listing_entries,
                    random_operations: 1000,
                    ..Quirks::NFS
                };
                check(&fs, quirks);
                let counters = fs.counters();
                assert_eq!((counters.resent_calls, counters.rewritten_bytes), (0, 0));
                assert_eq!(fs::read_dir(ganesha.export()).expect("readable").count(), 0, "left behind");
            }
        }
    }
}
