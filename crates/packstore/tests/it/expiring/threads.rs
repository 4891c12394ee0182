//! Threads read what expires and is written over meanwhile: each object whole, or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use disk::LocalDisk;
use packstore::{Clock, OpenOptions, PutOptions, Store, VolumeSpec};

use super::{BEGUN_S, options};

const PUTS: u32 = 6_000;
const LIVES_S: u32 = 300;

/// Tells its number in each of its words; one in 50 is of several pieces.
fn body(number: u32) -> Vec<u8> {
    let words = if number.is_multiple_of(50) { 40_000 } else { 100 + number * 7 % 1_500 };
    (0..words).flat_map(|at| (u64::from(number) << 32 | u64::from(at)).to_le_bytes()).collect()
}

#[test]
fn readers_of_segments_that_are_emptied_and_filled_again_get_an_object_whole_or_not_at_all() {
    let memory = std::path::Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let dir = dir.expect("a directory");
    let disk = || Arc::new(LocalDisk::open(dir.path()).expect("it opens"));
    let clock = Clock::manual(BEGUN_S);
    let volume = VolumeSpec { disk: disk(), size_bytes: 10 << 20 };
    let store = Store::create(vec![volume], options(&clock)).expect("a new store");
    let (newest, ended, hits) = (AtomicU32::new(0), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..6_u32 {
            let (store, newest, ended, hits) = (&store, &newest, &ended, &hits);
            scope.spawn(move || {
                for step in 0_u32.. {
                    if ended.load(Ordering::Relaxed) && hits.load(Ordering::Relaxed) > 1_000 {
                        return;
                    }
                    // Around the age at which they go.
                    let age = (step.wrapping_mul(7 + thread) % (LIVES_S * 5 / 4))
                        .min(newest.load(Ordering::Relaxed));
                    let number = newest.load(Ordering::Relaxed) - age;
                    let Some(object) = store.get(&number.to_le_bytes()).expect("never an error") else {
                        continue;
                    };
                    std::thread::yield_now();
                    assert!(object.read_all().expect("whole, once it was got") == body(number), "{number}");
                    hits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for number in 0..PUTS {
            clock.set(BEGUN_S + number);
            let options = PutOptions { expires_s: BEGUN_S + number + LIVES_S, ..PutOptions::default() };
            store.put(&number.to_le_bytes(), &body(number), options).expect("put");
            newest.store(number, Ordering::Relaxed);
            if number % 500 == 499 {
                store.compact(1 << 20).expect("compacted");
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert!(store.usage().expired > u64::from(PUTS) / 2, "{:?}", store.usage());
    let holds_all = |store: &Store| {
        for number in 0..PUTS {
            let object = store.get(&number.to_le_bytes()).expect("readable");
            assert_eq!(object.is_some(), number + LIVES_S >= PUTS, "{number}");
        }
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
    };
    holds_all(&store);
    drop(store);
    let options = OpenOptions { clock: clock.clone(), ..OpenOptions::default() };
    holds_all(&Store::open(vec![disk()], options).expect("it opens"));
}
