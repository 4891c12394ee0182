//! Sixteen threads put, read, delete, link and list at once; what they read is always what somebody put.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::LocalDisk;
use packstore::{Begun, Mode, Object, OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

const KEYS: u32 = 400;
/// Of each thread; about 4 s on two processors.
const OPERATIONS: u32 = 16_000;

/// A body tells its key and version in each of its words.
fn body(key: u32, version: u32) -> Vec<u8> {
    let words = if version.is_multiple_of(50) { 80_000 } else { 4 + (key * 7 + version * 13) % 900 };
    let word = u64::from(key) << 32 | u64::from(version);
    (0..words)
        .flat_map(|at| (word ^ u64::from(at).wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes())
        .collect()
}

fn version_of(key: u32, body: &[u8]) -> Option<u32> {
    let first = u64::from_le_bytes(*body.first_chunk::<8>()?);
    let version = first as u32;
    (first >> 32 == u64::from(key) && body == self::body(key, version)).then_some(version)
}

/// Like one who does not wait for the disk.
fn in_two_halves(store: &Store, key: &[u8]) -> Result<Option<Object>, StoreError> {
    match store.begin_get(key)? {
        Begun::Done(object) => Ok(object),
        Begun::Read(reading) => {
            let mut bytes = vec![0; reading.bytes()];
            let read = rustix::io::pread(&reading, &mut bytes, reading.offset()).expect("read");
            bytes.truncate(read);
            // Others have time to change everything.
            std::thread::yield_now();
            store.end_get(key, reading, Some(bytes))
        }
    }
}

fn mixed(mode: Mode, size_bytes: u64) {
    let memory = std::path::Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let dir = dir.expect("a directory");
    let disk = || -> Arc<dyn disk::Disk> { Arc::new(LocalDisk::open(dir.path()).expect("it opens")) };
    let volumes = vec![VolumeSpec { disk: disk(), size_bytes }];
    let store = Store::create(volumes, StoreOptions { mode, ..StoreOptions::default() }).expect("made");
    let (hits, puts) = (AtomicU64::new(0), AtomicU64::new(0));
    // Each key has one writer, so that the last acknowledged version is known to it.
    let last = std::thread::scope(|scope| {
        let threads = (0..16u32).map(|thread| {
            let (store, hits, puts) = (&store, &hits, &puts);
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(u64::from(thread));
                let mut last = vec![None; KEYS as usize];
                for _ in 0..OPERATIONS {
                    let key = random.random_range(0..KEYS);
                    let name = key.to_le_bytes();
                    match random.random_range(0..20) {
                        0..6 => {
                            let key = key / 16 * 16 + thread;
                            if key >= KEYS {
                                continue;
                            }
                            let version = puts.fetch_add(1, Ordering::Relaxed) as u32;
                            store
                                .put(&key.to_le_bytes(), &body(key, version), PutOptions::default())
                                .expect("put");
                            last[key as usize] = Some(version);
                        }
                        6 => {
                            let key = key / 16 * 16 + thread;
                            if key < KEYS {
                                store.delete(&key.to_le_bytes()).expect("deleted");
                                last[key as usize] = None;
                            }
                        }
                        7 if thread == 0 => {
                            store.compact(1 << 20).ok();
                        }
                        8 if thread == 1 => {
                            for entry in store.iter().expect("listed") {
                                entry.expect("an entry");
                            }
                        }
                        9 => {
                            store.touch(&name, None).expect("touched");
                        }
                        _ => {
                            let found = match thread % 2 {
                                0 => store.get(&name),
                                _ => in_two_halves(store, &name),
                            };
                            if let Some(object) = found.expect("whole") {
                                match object.read_all() {
                                    Ok(body) => {
                                        assert!(version_of(key, &body).is_some(), "{key}: a mixed body")
                                    }
                                    // A cache may evict a large object's pieces before it is held.
                                    Err(error) => assert!(mode == Mode::Cache, "{error}"),
                                }
                                hits.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                }
                last
            })
        });
        threads
            .collect::<Vec<_>>()
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect::<Vec<_>>()
    });
    assert!(hits.load(Ordering::Relaxed) > 100 && puts.load(Ordering::Relaxed) > 100);
    let holds_last = |store: &Store| {
        for key in 0..KEYS {
            let found =
                store.get(&key.to_le_bytes()).expect("whole").map(|object| object.read_all().expect("whole"));
            let version = found.map(|body| version_of(key, &body).expect("not mixed"));
            assert_eq!(version, last[key as usize % 16][key as usize], "{key}");
        }
    };
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
    if mode == Mode::Store {
        holds_last(&store);
    }
    drop(store);
    let store = Store::open(vec![disk()], OpenOptions::default()).expect("opened");
    if mode == Mode::Store {
        holds_last(&store);
    }
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
}

#[test]
fn sixteen_threads_on_a_store_read_only_what_was_put_and_the_last_put_stays() {
    mixed(Mode::Store, 64 << 20);
}

#[test]
fn sixteen_threads_on_a_cache_that_evicts_read_only_what_was_put() {
    mixed(Mode::Cache, 4 << 20);
}
