//! Random operations on a store and on a map say the same, across clean stops, kills, growth and compaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{Disk, LocalDisk};
use packstore::{Eviction, Mode, OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

type Random = Xoshiro256PlusPlus;

struct Dirs(Vec<tempfile::TempDir>);

impl Dirs {
    fn add(&mut self) -> Arc<dyn Disk> {
        let memory = std::path::Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        self.0.push(dir.expect("a directory"));
        self.disk(self.0.len() - 1)
    }

    fn disk(&self, at: usize) -> Arc<dyn Disk> {
        Arc::new(LocalDisk::open(self.0[at].path()).expect("it opens"))
    }

    fn disks(&self) -> Vec<Arc<dyn Disk>> {
        (0..self.0.len()).map(|at| self.disk(at)).collect()
    }
}

type Model = BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>, u32)>;

fn some_key(random: &mut Random) -> Vec<u8> {
    let number = random.random_range(0..60u32);
    let mut key = format!("k{number}").into_bytes();
    if number % 7 == 0 {
        key.resize(number as usize * 60 + 3, b'/');
    }
    key
}

fn some_body(random: &mut Random) -> Vec<u8> {
    let len = match random.random_range(0..20) {
        0 => 0,
        1 => random.random_range(100_000..400_000),
        2..5 => random.random_range(5_000..30_000),
        _ => random.random_range(1..3_000),
    };
    let mut body = vec![0; len];
    random.fill_bytes(&mut body);
    body
}

fn compare(store: &Store, model: &Model, seed: u64, step: usize) {
    for (key, (body, meta, expires_s)) in model {
        let object = store.get(key).unwrap_or_else(|error| panic!("seed {seed} step {step}: {error}"));
        let object =
            object.unwrap_or_else(|| panic!("seed {seed} step {step}: {} is gone", key.escape_ascii()));
        let right = object.read_all().expect("whole") == *body;
        assert!(right, "seed {seed} step {step}: wrong body of {}", key.escape_ascii());
        assert_eq!(object.meta(), meta, "seed {seed} step {step}");
        assert_eq!(object.stat().expires_s, *expires_s, "seed {seed} step {step}");
    }
    let listed = store.iter_ordered(b"").expect("listed").map(|entry| (entry.key, entry.stat.length));
    let expected = model.iter().map(|(key, (body, ..))| (key.clone(), body.len() as u64));
    assert_eq!(listed.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "seed {seed} step {step}");
    assert_eq!(store.usage().objects, model.len() as u64, "seed {seed} step {step}");
}

fn run(seed: u64) {
    let mut random = Random::seed_from_u64(seed);
    let mut dirs = Dirs(Vec::new());
    let mode = if seed.is_multiple_of(3) { Mode::Cache } else { Mode::Store };
    let volumes =
        (0..random.random_range(1..4)).map(|_| VolumeSpec { disk: dirs.add(), size_bytes: 24 << 20 });
    let options = StoreOptions {
        mode,
        block_bytes: [64, 512, 4096][random.random_range(0..3)],
        ..StoreOptions::default()
    };
    let mut store = Store::create(volumes.collect(), options).expect("made");
    let mut model = Model::new();
    for step in 0..random.random_range(50..250) {
        let key = some_key(&mut random);
        match random.random_range(0..100) {
            0..45 => {
                let body = some_body(&mut random);
                let meta = vec![7; random.random_range(0..300)];
                let expires_s = random.random_range(0..u32::MAX);
                let options = PutOptions { meta: &meta, expires_s, created_s: None };
                if random.random() {
                    store.put(&key, &body, options).expect("put");
                } else {
                    let mut writer = store.put_stream(&key, options).expect("begun");
                    for part in body.chunks(70_000) {
                        writer.write(part).expect("written");
                    }
                    if random.random_range(0..8) == 0 {
                        writer.abort();
                        continue;
                    }
                    writer.commit().expect("committed");
                }
                model.insert(key, (body, meta, expires_s));
            }
            45..60 => {
                assert_eq!(store.delete(&key).expect("deleted"), model.remove(&key).is_some(), "seed {seed}")
            }
            60..68 => {
                let new_key = some_key(&mut random);
                let linked = store.link(&key, &new_key).expect("linked");
                assert_eq!(linked, model.contains_key(&key), "seed {seed} step {step}");
                if let Some(found) = model.get(&key).cloned() {
                    model.insert(new_key, found);
                }
            }
            68..74 => {
                let new_key = some_key(&mut random);
                let renamed = store.rename(&key, &new_key).expect("renamed");
                assert_eq!(renamed, model.contains_key(&key), "seed {seed} step {step}");
                if let Some(found) = model.remove(&key) {
                    model.insert(new_key, found);
                }
            }
            74..80 => {
                let touched = store.touch(&key, Some(77)).expect("touched");
                assert_eq!(touched, model.contains_key(&key), "seed {seed} step {step}");
                if let Some(found) = model.get_mut(&key) {
                    found.2 = 77;
                }
            }
            80..85 => {
                let mut bytes = vec![0; 5_000];
                let object = store.get(&key).expect("got");
                assert_eq!(object.is_some(), model.contains_key(&key), "seed {seed} step {step}");
                if let Some(object) = object {
                    let body = &model[&key].0;
                    let offset = random.random_range(0..body.len() + 10);
                    let read = object.read_range(offset as u64, &mut bytes).expect("read");
                    let from = body.get(offset..).unwrap_or_default();
                    assert!(bytes[..read] == from[..from.len().min(5_000)], "seed {seed} step {step}");
                }
            }
            85..88 => {
                store.compact(4 << 20).expect("compacted");
            }
            88..90 => compare(&store, &model, seed, step),
            90..91 if dirs.0.len() < 5 => {
                store.add_volume(VolumeSpec { disk: dirs.add(), size_bytes: 24 << 20 }).expect("added");
            }
            91..95 => {
                store.close().expect("closed");
                store = Store::open(dirs.disks(), OpenOptions::default()).expect("opened");
            }
            95..98 => {
                // In this mode a kill may forget what was not flushed.
                if mode == Mode::Cache {
                    store.flush().expect("flushed");
                }
                drop(store);
                store = Store::open(dirs.disks(), OpenOptions::default()).expect("opened");
                if mode == Mode::Cache {
                    store.iter().expect("it waits until all is known");
                }
            }
            _ => {
                let report = store.check(|_, _| {}).expect("checked");
                assert_eq!(report.faults, [], "seed {seed} step {step}");
            }
        }
    }
    compare(&store, &model, seed, usize::MAX);
    let report = store.check(|_, _| {}).expect("checked");
    assert_eq!(report.faults, [], "seed {seed}");
    assert_eq!(report.objects, model.len() as u64, "seed {seed}");
    store.close().expect("closed");
    let store =
        Store::open(dirs.disks(), OpenOptions { read_only: true, ..OpenOptions::default() }).expect("opened");
    compare(&store, &model, seed, usize::MAX);
    assert!(matches!(store.put(b"x", b"", PutOptions::default()), Err(StoreError::ReadOnly { .. })));
}

#[test]
fn whatever_is_done_the_store_holds_what_a_map_holds() {
    for seed in 0..300 {
        run(seed);
    }
}

/// A small store is written over many times: what is deleted and replaced makes room again, in whatever sizes.
#[test]
fn a_store_that_is_nine_tenths_full_takes_as_much_again_and_again() {
    let mut random = Random::seed_from_u64(5);
    let mut dirs = Dirs(Vec::new());
    let volumes = vec![VolumeSpec { disk: dirs.add(), size_bytes: 16 << 20 }];
    let mut store = Store::create(volumes, StoreOptions::default()).expect("made");
    let mut model = BTreeMap::new();
    let (mut held, mut written) = (0, 0);
    while written < 100 << 20 {
        let len = random.random_range(100..10_000);
        while held + len > (16 << 20) * 82 / 100 {
            let at = random.random_range(0..model.len());
            let key: u32 = *model.keys().nth(at).expect("there");
            held -= model.remove(&key).map_or(0, |body: Vec<u8>| body.len());
            assert!(store.delete(&key.to_le_bytes()).expect("deleted"));
        }
        let key: u32 = random.random();
        let body = vec![key as u8; len];
        let put = store.put(&key.to_le_bytes(), &body, PutOptions::default());
        assert!(put.is_ok(), "{put:?} of {len} bytes after {written}: {held} of {:?}", store.usage());
        (held, written) = (held + len, written + len);
        model.insert(key, body);
        if random.random_range(0..4_000) == 0 {
            drop(store);
            store = Store::open(dirs.disks(), OpenOptions::default()).expect("opened");
        }
    }
    let usage = store.usage();
    assert!(usage.body_bytes + usage.index_bytes <= 16 << 20, "{usage:?}");
    for (key, body) in &model {
        let object = store.get(&key.to_le_bytes()).expect("got").expect("there");
        assert!(object.read_all().expect("whole") == *body, "{key} is another");
    }
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
    assert_eq!(store.usage().objects, model.len() as u64);
}

#[test]
fn a_full_cache_makes_room_and_spares_what_was_asked_for() {
    for eviction in [Eviction::Cyclic, Eviction::Clock, Eviction::S3Fifo] {
        let mut dirs = Dirs(Vec::new());
        let cache = packstore::CacheOptions { eviction, ..Default::default() };
        let options = StoreOptions { mode: Mode::Cache, cache, ..StoreOptions::default() };
        // Files enough for two lanes.
        let size_bytes = 16 << 20;
        let volumes = vec![VolumeSpec { disk: dirs.add(), size_bytes }];
        let store = Store::create(volumes, options).expect("made");
        let body = |number: u32| vec![number as u8; 4_000];
        let mut hits = 0;
        for number in 0..20_000u32 {
            store
                .put(&number.to_le_bytes(), &body(number), PutOptions::default())
                .expect("a cache is never full");
            let hot = number % 100;
            match store.get(&hot.to_le_bytes()).expect("whole") {
                Some(object) => {
                    assert_eq!(object.whole(), Some(&body(hot)[..]));
                    hits += 1;
                }
                None if number >= 100 => {
                    store.put(&hot.to_le_bytes(), &body(hot), PutOptions::default()).expect("put")
                }
                None => {}
            }
        }
        store.flush().expect("flushed");
        let usage = store.usage();
        assert!(usage.evicted > 10_000, "{usage:?}");
        assert!(usage.body_bytes + usage.index_bytes <= size_bytes, "{usage:?}");
        assert!(usage.packed_files >= packstore::eviction::SEGMENTS_FOR_QUEUES, "{usage:?}");
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
        match eviction {
            Eviction::Clock | Eviction::S3Fifo => assert!(hits > 19_500, "{hits} of 20000 hot ones hit"),
            Eviction::Cyclic => assert!(hits > 18_000 && hits < 19_900, "{hits} of 20000 hot ones hit"),
        }
    }
}

#[test]
fn a_cache_with_room_enough_evicts_nothing_and_writes_nothing_twice_however_often_it_is_asked() {
    for eviction in [Eviction::Clock, Eviction::S3Fifo] {
        let mut dirs = Dirs(Vec::new());
        let cache = packstore::CacheOptions { eviction, ..Default::default() };
        let options = StoreOptions {
            mode: Mode::Cache,
            cache,
            packed_blocks: Some((512 << 10) / 64),
            memory_bytes_max: 0,
            ..StoreOptions::default()
        };
        let size_bytes = 24 << 20;
        let volumes = vec![VolumeSpec { disk: dirs.add(), size_bytes }];
        let store = Store::create(volumes, options).expect("made");
        let body = |number: u32| vec![number as u8; 10_000];
        let mut put_bytes = 0;
        // Live objects take half of it; each comes anew many times, and is asked for meanwhile.
        for round in 0..12 {
            for number in 0..1_300_u32 {
                store.put(&number.to_le_bytes(), &body(number + round), PutOptions::default()).expect("put");
                put_bytes += 10_000;
                for asked in [number, number / 2, number / 3] {
                    let object = store.get(&asked.to_le_bytes()).expect("whole").expect("it is there");
                    assert_eq!(object.length(), 10_000);
                }
            }
        }
        store.flush().expect("flushed");
        let usage = store.usage();
        assert!(usage.packed_files >= packstore::eviction::SEGMENTS_FOR_QUEUES, "{usage:?}");
        assert_eq!(usage.evicted, 0, "{eviction:?}");
        let written = usage.body_written_bytes as f64 / put_bytes as f64;
        assert!(written < 1.02, "{eviction:?}: {written} bytes written for each that was put");
    }
}

#[test]
fn a_large_object_that_is_being_read_outlasts_all_that_is_not() {
    for eviction in [Eviction::Cyclic, Eviction::Clock, Eviction::S3Fifo] {
        let mut dirs = Dirs(Vec::new());
        let options = StoreOptions {
            mode: Mode::Cache,
            cache: packstore::CacheOptions { eviction, ..Default::default() },
            packed_blocks: Some((512 << 10) / 64),
            memory_bytes_max: 0,
            ..StoreOptions::default()
        };
        let size_bytes = 12 << 20;
        let store = Store::create(vec![VolumeSpec { disk: dirs.add(), size_bytes }], options).expect("made");
        let whole: Vec<u8> = (0..900_000_u32).map(|at| (at % 251) as u8).collect();
        store.put(b"large", &whole, PutOptions::default()).expect("put");
        let being_read = store.get(b"large").expect("whole").expect("it is there");
        // Five times as much as there is room for, of many lengths.
        for number in 0..4_000_u32 {
            let body = vec![number as u8; 1_000 + number as usize * 7 % 30_000];
            store.put(&number.to_le_bytes(), &body, PutOptions::default()).expect("put");
        }
        assert!(store.usage().evicted > 1_000, "{:?}", store.usage());
        assert!(being_read.read_all().expect("all of it is there") == whole, "{eviction:?}");
        drop(being_read);
        for number in 0..4_000_u32 {
            store.put(&number.to_le_bytes(), &[0; 15_000], PutOptions::default()).expect("put");
        }
        assert!(store.get(b"large").expect("whole").is_none(), "{eviction:?}: its room is given to others");
        store.flush().expect("flushed");
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
    }
}

#[test]
fn objects_that_were_promoted_outlive_a_scan_of_what_is_asked_for_once() {
    let mut dirs = Dirs(Vec::new());
    let options = StoreOptions { mode: Mode::Cache, memory_bytes_max: 0, ..StoreOptions::default() };
    let volumes = vec![VolumeSpec { disk: dirs.add(), size_bytes: 16 << 20 }];
    let store = Store::create(volumes, options).expect("made");
    let put = |number: u32| {
        store.put(&number.to_le_bytes(), &[7; 4_000], PutOptions::default()).expect("put");
    };
    let asked = |number: u32| store.get(&number.to_le_bytes()).expect("whole").is_some();
    // Full: some 3,900 of them.
    (100_000..106_000).for_each(put);
    for number in 0..400_u32 {
        put(number);
        assert!((0..3).all(|_| asked(number)));
        put(1_000 + number);
    }
    (10_000..13_500).for_each(put);
    let kept = [0..400, 1_000..1_400].map(|numbers| numbers.filter(|&number| asked(number)).count());
    assert!(kept[0] > 360 && kept[1] < 40, "{kept:?} of 400 each");
}
