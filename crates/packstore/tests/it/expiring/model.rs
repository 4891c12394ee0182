//! Random operations, and the passing of time, on a store and on a map say the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{Disk, LocalDisk};
use packstore::{Clock, OpenOptions, PutOptions, Store, StoreOptions, VolumeSpec};
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{BEGUN_S, options};

type Random = Xoshiro256PlusPlus;
/// Body, and when it expires.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, u32)>;

fn key(random: &mut Random) -> Vec<u8> {
    format!("k{}", random.random_range(0..40_u32)).into_bytes()
}

fn some_body(random: &mut Random) -> Vec<u8> {
    let length = match random.random_range(0..20) {
        0 => 0,
        1 => random.random_range(100_000..300_000),
        2..6 => random.random_range(5_000..30_000),
        _ => random.random_range(1..3_000),
    };
    let mut body = vec![0; length];
    random.fill_bytes(&mut body);
    body
}

fn compare(store: &Store, model: &Model, when: &str) {
    for (key, (body, expires_s)) in model {
        let object = store.get(key).unwrap_or_else(|error| panic!("{when}: {error}"));
        let object = object.unwrap_or_else(|| panic!("{when}: {} is gone", key.escape_ascii()));
        assert!(object.read_all().expect("whole") == *body, "{when}: wrong body of {}", key.escape_ascii());
        assert_eq!(object.stat().expires_s, *expires_s, "{when}");
    }
    let listed = store.iter_ordered(b"").expect("listed").map(|entry| entry.key).collect::<Vec<_>>();
    assert_eq!(listed, model.keys().cloned().collect::<Vec<_>>(), "{when}");
}

fn run(seed: u64) {
    let mut random = Random::seed_from_u64(seed);
    let memory = std::path::Path::new("/dev/shm");
    let new_dir = || if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let dirs = (0..random.random_range(1..3)).map(|_| new_dir().expect("a directory")).collect::<Vec<_>>();
    let disk =
        |dir: &tempfile::TempDir| Arc::new(LocalDisk::open(dir.path()).expect("it opens")) as Arc<dyn Disk>;
    let clock = Clock::manual(BEGUN_S);
    let block_bytes = [64, 512][random.random_range(0..2)];
    let made =
        StoreOptions { block_bytes, packed_blocks: Some((512 << 10) / block_bytes), ..options(&clock) };
    let volumes = dirs.iter().map(|dir| VolumeSpec { disk: disk(dir), size_bytes: 12 << 20 }).collect();
    let mut store = Store::create(volumes, made).expect("made");
    let mut model = Model::new();
    let mut now_s = BEGUN_S;
    for step in 0..random.random_range(50..200) {
        let when = format!("seed {seed} step {step}");
        let key = key(&mut random);
        match random.random_range(0..100) {
            0..45 => {
                let body = some_body(&mut random);
                let expires_s = match random.random_range(0..4) {
                    0 => 0,
                    1 => now_s + random.random_range(1..100_000),
                    _ => now_s + random.random_range(0..60),
                };
                store.put(&key, &body, PutOptions { expires_s, ..PutOptions::default() }).expect("put");
                model.insert(key.clone(), (body, expires_s));
            }
            45..52 => {
                assert_eq!(store.delete(&key).expect("deleted"), model.remove(&key).is_some(), "{when}")
            }
            52..66 => {
                let other = self::key(&mut random);
                let renames = random.random_range(0..3) == 0;
                let done = if renames { store.rename(&key, &other) } else { store.link(&key, &other) };
                assert_eq!(done.expect("linked"), model.contains_key(&key), "{when}");
                if let Some(found) = model.get(&key).cloned() {
                    if renames {
                        model.remove(&key);
                    }
                    model.insert(other, found);
                }
            }
            66..82 => {
                now_s += random.random_range(1..40);
                clock.set(now_s);
            }
            82..85 => {
                store.compact(4 << 20).expect("compacted");
            }
            85..88 => {
                store.forget_expired().expect("swept");
            }
            88..96 => {
                if random.random() {
                    store.close().expect("closed");
                } else {
                    drop(store);
                }
                let options = OpenOptions { clock: clock.clone(), ..OpenOptions::default() };
                store = Store::open(dirs.iter().map(disk).collect(), options).expect("opened");
            }
            96..98 => assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{when}"),
            _ => compare(&store, &model, &when),
        }
        model.retain(|_, (_, expires_s)| *expires_s == 0 || *expires_s > now_s);
    }
    compare(&store, &model, &format!("seed {seed}, at the end"));
    let report = store.check(|_, _| {}).expect("checked");
    assert_eq!((report.faults, report.objects), (vec![], model.len() as u64), "seed {seed}");
    store.forget_expired().expect("swept");
    assert_eq!(store.usage().objects, model.len() as u64, "seed {seed}");
}

#[test]
fn whatever_is_done_and_however_time_passes_the_store_holds_what_a_map_holds() {
    (0..150).for_each(run);
}
