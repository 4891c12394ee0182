//! Writes past the page cache, on a file system that knows them: what is put is what is read, in both modes, at once and
//! after a restart.

use std::io::Write as _;
use std::sync::Arc;

use disk::LocalDisk;
use packstore::{Mode, OpenOptions, PutOptions, Store, StoreOptions, VolumeSpec};
use rustix::fs::{CWD, Mode as FileMode, OFlags, openat};

fn body(number: u32, round: u32) -> Vec<u8> {
    let len = 200 + (number * 7_919 + round * 31) % 30_000;
    (0..len).map(|at| (number.wrapping_mul(31) ^ round ^ at.wrapping_mul(7) ^ at >> 8) as u8).collect()
}

fn same(store: &Store, numbers: u32, round: u32) {
    for number in 0..numbers {
        let object = store.get(&number.to_le_bytes());
        let object = object.unwrap_or_else(|error| panic!("{number}: {error}")).expect("there");
        assert!(object.whole() == Some(&body(number, round)[..]), "{number} of round {round}");
    }
}

#[test]
fn what_went_past_the_page_cache_is_read_as_it_was_put() {
    for mode in [Mode::Store, Mode::Cache] {
        for direct_writes in [Some(true), Some(false)] {
            let dir = tempfile::tempdir().expect("a directory");
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::DIRECT;
            if let Err(why) = openat(CWD, dir.path().join("tried"), flags, FileMode::RWXU) {
                let told =
                    format!("SKIPPED: {} has no writes past the page cache: {why}\n", dir.path().display());
                let _ = std::io::stderr().write_all(told.as_bytes());
                return;
            }
            std::fs::remove_file(dir.path().join("tried")).expect("just made");
            let disk = || -> Arc<dyn disk::Disk> { Arc::new(LocalDisk::open(dir.path()).expect("it opens")) };
            let volumes = vec![VolumeSpec { disk: disk(), size_bytes: 64 << 20 }];
            let options = StoreOptions { mode, direct_writes, ..StoreOptions::default() };
            let store = Store::create(volumes, options).expect("made");
            let numbers = 1_000;
            for round in 0..2 {
                let mut pending = Vec::new();
                for number in 0..numbers {
                    let body = body(number, round);
                    let put = store.put_deferred(&number.to_le_bytes(), &body, PutOptions::default());
                    pending.push(put.expect("put"));
                }
                pending.into_iter().for_each(|put| put.wait().expect("written"));
                same(&store, numbers, round);
                store.flush().expect("flushed");
                same(&store, numbers, round);
            }
            drop(store);
            let store = Store::open(vec![disk()], OpenOptions::default()).expect("opened");
            store.iter().expect("it waits until all is known");
            same(&store, numbers, 1);
            assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
        }
    }
}
