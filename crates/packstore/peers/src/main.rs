//! The packed store beside foyer, a hybrid cache for Rust: put until all is written, get from memory and page cache, miss; in
//! turns, by the same objects, keys and laws of length as the bench `rates`.
//!
//! ```text
//! cd crates/packstore/peers && cargo run --release -- DIR [OBJECTS] [ROUNDS]     50000 and 5 unless told otherwise
//! ```
//!
//! foyer writes on insertion, with a queue that drops nothing; both keep 64 MiB in memory and go past the page cache where
//! their defaults say so. Both are caches: what was put last may be lost with power.

#[path = "../../benches/rates/load.rs"]
mod load;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use disk::LocalDisk;
use foyer::{
    BlockEngineConfig, DeviceBuilder as _, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    HybridCachePolicy,
};
use packstore::{Mode, PutOptions, Store, StoreOptions, VolumeSpec};
use tokio::runtime::Runtime;

use crate::load::{Load, key};

const MEMORY_BYTES: usize = 64 << 20;
/// What may wait to be written: all of it.
const QUEUE_BYTES: usize = 4 << 30;

/// Objects a second.
#[derive(Clone, Copy)]
struct Rates {
    put: f64,
    written: f64,
    get: f64,
    miss: f64,
    found_percent: f64,
}

type Figure = (&'static str, fn(&Rates) -> f64);

const FIGURES: [Figure; 5] = [
    ("put, 1/s", |rates| rates.put),
    ("put until all is written", |rates| rates.written),
    ("get, warm", |rates| rates.get),
    ("miss", |rates| rates.miss),
    ("found, %", |rates| rates.found_percent),
];

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().expect("a directory to measure in"));
    let mut number = |usual| args.next().map_or(usual, |text| text.parse().expect("a number"));
    let (objects, rounds) = (number(50_000), number(5));
    let runtime = Runtime::new().expect("threads");
    let laws = [
        Load::cdn(objects),
        Some(Load::lognormal(objects, 10_600.0)),
        Some(Load::lognormal(objects, 1_000.0)),
    ];
    for load in laws.into_iter().flatten() {
        let order = load.shuffled();
        let mut played: [Vec<Rates>; 2] = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            for step in 0..2 {
                match (round + step) % 2 {
                    0 => played[0].push(of_foyer(&empty(&dir), &load, &order, &runtime)),
                    _ => played[1].push(of_store(&empty(&dir), &load, &order)),
                }
            }
        }
        println!("\n{}\n  {:<26}{:>14}{:>14}", load.name, "", "foyer", "store");
        for (name, figure) in FIGURES {
            let [foyer, store] = played.each_ref().map(|rounds| median(rounds.iter().map(figure).collect()));
            println!("  {name:<26}{foyer:>14.1}{store:>14.1} ({:.1}x)", store / foyer);
        }
    }
    let _ = std::fs::remove_dir_all(dir.join("peers"));
}

fn of_foyer(dir: &Path, load: &Load, order: &[usize], runtime: &Runtime) -> Rates {
    let size_bytes = load.total_bytes() as usize * 2 + (256 << 20);
    let device = FsDeviceBuilder::new(dir).with_capacity(size_bytes).build().expect("a device");
    let engine = BlockEngineConfig::new(device)
        .with_flushers(2)
        .with_buffer_pool_size(MEMORY_BYTES)
        .with_submit_queue_size_threshold(QUEUE_BYTES);
    let cache: HybridCache<String, Vec<u8>> = runtime
        .block_on(
            HybridCacheBuilder::new()
                .with_policy(HybridCachePolicy::WriteOnInsertion)
                .memory(MEMORY_BYTES)
                .with_weighter(|key: &String, body: &Vec<u8>| key.len() + body.len())
                .storage()
                .with_engine_config(engine)
                .build(),
        )
        .expect("a cache");
    let begun = Instant::now();
    (0..load.count()).for_each(|at| drop(cache.insert(key(at), load.body(at).to_vec())));
    let put = rate(load, begun);
    runtime.block_on(cache.storage().wait());
    let written = rate(load, begun);
    let found = |at: usize| {
        let entry = runtime.block_on(cache.get(&key(at))).expect("readable");
        entry.is_some_and(|entry| entry.value() == load.body(at))
    };
    let (get, miss, found_percent) = asked(load, order, found);
    runtime.block_on(cache.close()).expect("closed");
    Rates { put, written, get, miss, found_percent }
}

fn of_store(dir: &Path, load: &Load, order: &[usize]) -> Rates {
    let disk = Arc::new(LocalDisk::open(dir).expect("a directory"));
    let size_bytes = load.total_bytes() * 2 + (256 << 20);
    let options =
        StoreOptions { mode: Mode::Cache, object_bytes_mean: load.mean_bytes(), ..StoreOptions::default() };
    let store = Store::create(vec![VolumeSpec { disk, size_bytes }], options).expect("a store");
    let begun = Instant::now();
    for at in 0..load.count() {
        store.put(key(at).as_bytes(), load.body(at), PutOptions::default()).expect("put");
    }
    let put = rate(load, begun);
    store.flush().expect("written");
    let written = rate(load, begun);
    let found = |at: usize| {
        let object = store.get(key(at).as_bytes()).expect("readable");
        object.is_some_and(|object| match object.whole() {
            Some(body) => body == load.body(at),
            None => object.read_all().expect("readable") == load.body(at),
        })
    };
    let (get, miss, found_percent) = asked(load, order, found);
    Rates { put, written, get, miss, found_percent }
}

/// Gets and misses a second, and how much of what was put is there. `found`: whether an object is, and is right.
fn asked(load: &Load, order: &[usize], found: impl Fn(usize) -> bool) -> (f64, f64, f64) {
    let all_found = || order.iter().filter(|&&at| found(at)).count();
    // Once before, so that all is in the page cache where it goes through that.
    all_found();
    let begun = Instant::now();
    let hits = all_found();
    let get = rate(load, begun);
    let begun = Instant::now();
    (0..load.count()).for_each(|at| assert!(!found(at + 10 * load.count())));
    (get, rate(load, begun), 100.0 * hits as f64 / load.count() as f64)
}

fn empty(dir: &Path) -> PathBuf {
    let place = dir.join("peers");
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).expect("a directory");
    place
}

fn rate(load: &Load, begun: Instant) -> f64 {
    load.count() as f64 / begun.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
