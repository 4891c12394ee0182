//! Hit ratios of the eviction policies on the three request sequences of `shared/data/web_cache2k.tar.zst` (two web
//! sites, one file server), with caches of 1%, 5% and 10% of the objects, all of one size, beside the best possible. "Clock 3"
//! gives up to three lives; "after 2nd" is S3-FIFO that stores an object at its second request.
//!
//! Then the engine's own, with segments of eight objects each, as the sequences are short.
//!
//! `cargo bench -p packstore --bench hit_ratio [-- SEQUENCE]`. Run as a test it takes a short made-up sequence.

#![expect(clippy::print_stdout, reason = "a table is what it is for")]

use std::collections::{BTreeSet, HashMap};
use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use flate2::read::GzDecoder;
use packstore::eviction::{Clock, Fifo, Lru, Policy, Recent, S3Fifo, Sieve};
use packstore::{CacheOptions, Eviction, Mode, PutOptions, Store, StoreOptions, VolumeSpec};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

fn main() {
    let traces = if std::env::args().any(|arg| arg == "--bench") { real() } else { None };
    let traces = traces.unwrap_or_else(|| vec![("made up".to_owned(), skewed(2_000, 20_000))]);
    println!(
        "| trace (requests, objects) | cache | FIFO | LRU | clock 1 | clock 3 | SIEVE | S3-FIFO | after 2nd | optimum |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (name, requests) in &traces {
        let objects = requests.iter().collect::<BTreeSet<_>>().len() as u32;
        for percent in [1, 5, 10] {
            let slots = (objects * percent / 100).max(1);
            let hits = [
                replay(requests, slots, Fifo::new(slots), false),
                replay(requests, slots, Lru::new(slots), false),
                replay(requests, slots, Clock::new(slots, 1), false),
                replay(requests, slots, Clock::new(slots, 3), false),
                replay(requests, slots, Sieve::new(slots), false),
                replay(requests, slots, S3Fifo::new(slots), false),
                replay(requests, slots, S3Fifo::new(slots), true),
                optimum(requests, slots as usize),
            ];
            assert!(hits.iter().all(|&one| one <= hits[7]), "nothing beats the optimum");
            let ratios = hits.map(|hits| format!("{:.2}%", 100.0 * hits as f64 / requests.len() as f64));
            println!("| {name} ({}, {objects}) | {percent}% | {} |", requests.len(), ratios.join(" | "));
        }
    }
    println!();
    println!("The engine itself, with room for as many objects, beside the models above:");
    println!(
        "| trace | cache | cyclic | clock | S3-FIFO | written an object put (S3-FIFO) | LRU | optimum |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let wanted = std::env::args().nth(1).filter(|arg| !arg.starts_with('-')).unwrap_or_default();
    for (name, requests) in traces.iter().filter(|(name, _)| name.contains(&wanted)) {
        let objects = requests.iter().collect::<BTreeSet<_>>().len() as u32;
        for percent in [1, 5, 10] {
            let slots = (objects * percent / 100).max(1);
            let mut cells = Vec::new();
            let mut promoted = 0.0;
            for eviction in [Eviction::Cyclic, Eviction::Clock, Eviction::S3Fifo] {
                let (hits, written) = engine(requests, slots, eviction);
                cells.push(hits);
                promoted = written;
            }
            cells.push(replay(requests, slots, Lru::new(slots), false));
            cells.push(optimum(requests, slots as usize));
            let mut cells = cells
                .into_iter()
                .map(|hits| format!("{:.2}%", 100.0 * hits as f64 / requests.len() as f64))
                .collect::<Vec<_>>();
            cells.insert(3, format!("{promoted:.2}"));
            println!("| {name} | {percent}% ({slots}) | {} |", cells.join(" | "));
        }
    }
    println!();
    println!("| | FIFO | LRU | SIEVE | S3-FIFO |\n|---|---|---|---|---|");
    let slots = 1_000_000;
    let filled: [Box<dyn Policy>; 4] = [
        Box::new(Fifo::new(slots)),
        Box::new(Lru::new(slots)),
        Box::new(Sieve::new(slots)),
        Box::new(S3Fifo::new(slots)),
    ];
    let bytes = filled.map(|mut policy| {
        (0..slots).for_each(|slot| policy.inserted(slot, u64::from(slot)));
        format!("{:.2}", policy.memory_bytes() as f64 / f64::from(slots))
    });
    println!("| bytes an object | {} |", bytes.join(" | "));
}

/// Requests that a store in cache mode answers, and records written for each that was put: objects all of one size, so that so
/// many of them fill its segments.
fn engine(requests: &[u32], slots: u32, eviction: Eviction) -> (usize, f64) {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let dir = dir.expect("a directory");
    // With head and key; a file of 512 KB, the smallest there is, has eight of them.
    const RECORD_BYTES: u64 = 64 << 10;
    let body = vec![7_u8; RECORD_BYTES as usize - 48 - 4];
    let packed_bytes = 512 << 10;
    let files = (u64::from(slots) * RECORD_BYTES).div_ceil(packed_bytes);
    // And their index files.
    let size_bytes = files * (packed_bytes + 2048) + packed_bytes / 8;
    let options = StoreOptions {
        mode: Mode::Cache,
        packed_blocks: Some(packed_bytes as u32 / 64),
        object_bytes_mean: RECORD_BYTES as u32,
        cache: CacheOptions { eviction, ..CacheOptions::default() },
        memory_bytes_max: 0,
        ..StoreOptions::default()
    };
    let disk = Arc::new(disk::LocalDisk::open(dir.path()).expect("it opens"));
    let store = Store::create(vec![VolumeSpec { disk, size_bytes }], options).expect("made");
    let (mut hits, mut puts) = (0, 0_u64);
    for object in requests {
        let key = object.to_le_bytes();
        if store.get(&key).expect("whole").is_some() {
            hits += 1;
        } else {
            puts += 1;
            store.put(&key, &body, PutOptions::default()).expect("a cache is never full");
        }
    }
    store.flush().expect("flushed");
    let usage = store.usage();
    assert!(usage.packed_files <= files, "{usage:?}, wanted {files} files");
    (hits, usage.body_written_bytes as f64 / (puts * RECORD_BYTES) as f64)
}

/// Requests that were hits. `second`: objects are stored at their second request.
fn replay(requests: &[u32], slots: u32, mut policy: impl Policy, second: bool) -> usize {
    let mut stored = HashMap::new();
    let mut objects = vec![0; slots as usize];
    let mut free = (0..slots).collect::<Vec<_>>();
    let mut seen = Recent::new(slots * 4);
    let mut hits = 0;
    for &object in requests {
        if let Some(&slot) = stored.get(&object) {
            policy.touched(slot);
            hits += 1;
            continue;
        }
        if second && !seen.admits(hash(object)) {
            continue;
        }
        let slot = free.pop().unwrap_or_else(|| {
            let slot = policy.victim().expect("a full cache has a victim");
            let gone: u32 = objects[slot as usize];
            policy.evicted(slot, hash(gone));
            stored.remove(&gone).expect("a victim is stored");
            slot
        });
        objects[slot as usize] = object;
        stored.insert(object, slot);
        policy.inserted(slot, hash(object));
    }
    hits
}

/// Belady's: what is asked for last goes first, and what would go first is not stored at all.
fn optimum(requests: &[u32], slots: usize) -> usize {
    let mut next = vec![usize::MAX; requests.len()];
    let mut later = HashMap::new();
    for (time, object) in requests.iter().enumerate().rev() {
        next[time] = later.insert(object, time).unwrap_or(usize::MAX);
    }
    let mut stored = BTreeSet::new();
    let mut hits = 0;
    for (time, &object) in requests.iter().enumerate() {
        hits += usize::from(stored.remove(&(time, object)));
        stored.insert((next[time], object));
        if stored.len() > slots {
            stored.pop_last();
        }
    }
    hits
}

fn hash(object: u32) -> u64 {
    xxhash_rust::xxh3::xxh3_64(&object.to_le_bytes())
}

/// Popular ones and a long tail.
fn skewed(objects: u32, requests: usize) -> Vec<u32> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    (0..requests).map(|_| (f64::from(objects) * random.random::<f64>().powi(3)) as u32).collect()
}

fn real() -> Option<Vec<(String, Vec<u32>)>> {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/web_cache2k.tar.zst");
    let folder = tempfile::tempdir().expect("a directory");
    let script = r#"zstd -dc --long=27 "$0" | tar -x -C "$1""#;
    let status = Command::new("sh").arg("-c").arg(script).arg(&archive).arg(folder.path()).status();
    if !archive.exists() || !status.is_ok_and(|status| status.success()) {
        println!("SKIPPED the real sequences: {} cannot be unpacked with zstd and tar", archive.display());
        return None;
    }
    let names = ["trace-mt-20121220", "trace-mt-20130703", "trace-sprite"];
    let read = |name: &str| {
        let path = folder.path().join("web_cache2k").join(format!("{name}.trc.bin.gz"));
        let mut bytes = Vec::new();
        let packed = std::fs::File::open(path).expect("the archive has it");
        GzDecoder::new(packed).read_to_end(&mut bytes).expect("gzip");
        bytes.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect()
    };
    Some(names.map(|name| (name.to_owned(), read(name))).into())
}
