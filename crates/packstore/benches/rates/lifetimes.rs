//! A store that is nine tenths full of objects with a time to live, beside a bare loop that writes as much with the same promise: bytes
//! written, and how long a put takes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use packstore::{Clock, PutOptions, Store, StoreOptions, VolumeSpec};

use crate::load::{Load, key};
use crate::peers::disk;
use crate::percentile;

/// When the day begins, in seconds since 1970.
const BEGUN_S: u32 = 1_000_000_000;
/// Puts of a round; the bare loop does as many before the next.
const ROUND: usize = 500;

/// `puts` in the course of a day of the store's clock. `lifetimes`: how many different times to live there are, each half as long as
/// the one before.
pub fn print(dir: &Path, load: &Load, puts: usize, lifetimes: u32) {
    let root = dir.join("lifetimes");
    fs::create_dir_all(root.join("store")).expect("made");
    // As many live at a time as there are objects in the load.
    let size_bytes = load.total_bytes() * 104 / 100 * 10 / 9;
    let clock = Clock::manual(BEGUN_S);
    let options = StoreOptions { expires: true, clock: clock.clone(), ..StoreOptions::default() };
    let volumes = vec![VolumeSpec { disk: disk(&root.join("store")), size_bytes }];
    let store = Store::create(volumes, options).expect("made");
    let mut bare = Bare::new(&root.join("bare"), size_bytes);
    let (mut put_ns, mut bare_ns) = (Vec::with_capacity(puts), Vec::with_capacity(puts));
    let ticks_s = 86_400.0 / puts as f64;
    let life = Life::of(load.count(), lifetimes);
    let (mut user_bytes, mut full) = (0_u64, 0);
    for first in (0..puts).step_by(ROUND) {
        let round = first..puts.min(first + ROUND);
        for at in round.clone() {
            let time = |at: usize| BEGUN_S + (at as f64 * ticks_s) as u32;
            clock.set(time(at));
            let expires_s = time(at + life.puts(at)).max(time(at) + 1);
            let options = PutOptions { expires_s, ..PutOptions::default() };
            let begun = Instant::now();
            match store.put(key(at).as_bytes(), load.body(at), options) {
                Ok(()) => user_bytes += load.body(at).len() as u64,
                Err(error) => {
                    assert!(matches!(error, packstore::StoreError::Full), "{error}");
                    full += 1;
                }
            }
            put_ns.push(begun.elapsed().as_nanos() as u64);
        }
        for at in round {
            let begun = Instant::now();
            bare.put(load.body(at));
            bare_ns.push(begun.elapsed().as_nanos() as u64);
        }
    }
    report(&store, load, lifetimes, user_bytes, full, [put_ns, bare_ns]);
    drop(store);
    fs::remove_dir_all(&root).expect("removed");
}

fn report(
    store: &Store,
    load: &Load,
    lifetimes: u32,
    user_bytes: u64,
    full: u64,
    [mut put_ns, mut bare_ns]: [Vec<u64>; 2],
) {
    let usage = store.usage();
    let written = usage.body_written_bytes + usage.index_written_bytes;
    println!(
        "\n{}, {} puts, times to live: {lifetimes}; {} MB, {} expired, {full} refused as full",
        load.name,
        put_ns.len(),
        usage.size_bytes >> 20,
        usage.expired
    );
    println!("  written {:.3} B an object byte", written as f64 / user_bytes as f64);
    put_ns.sort_unstable();
    bare_ns.sort_unstable();
    for (name, part) in [("median", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)] {
        let [put, bare] = [&put_ns, &bare_ns].map(|sorted| percentile(sorted, part) as f64 / 1000.0);
        println!("  put {name}: {put:.0} us, bare loop {bare:.0} us: {:.2} times", put / bare);
    }
}

/// For how many puts an object lives, so that as many live as there are in the load.
struct Life {
    longest: f64,
    lifetimes: u32,
}

impl Life {
    fn of(objects: usize, lifetimes: u32) -> Self {
        let mean =
            (0..lifetimes).map(|halvings| 0.5_f64.powi(halvings as i32)).sum::<f64>() / f64::from(lifetimes);
        Self { longest: objects as f64 / mean, lifetimes }
    }

    fn puts(&self, at: usize) -> usize {
        (self.longest * 0.5_f64.powi((at % self.lifetimes as usize) as i32)) as usize
    }
}

/// Writes bodies one after the other into files of 16 MB that it goes through in turn, and for each 100 bytes into a second file, as an
/// index has them; syncs both.
struct Bare {
    files: Vec<[File; 2]>,
    at: u64,
    index_at: u64,
}

const BARE_BYTES: u64 = 16 << 20;
const INDEX_BYTES: u64 = 100;

impl Bare {
    fn new(dir: &Path, size_bytes: u64) -> Self {
        fs::create_dir_all(dir).expect("made");
        let file = |name: String, length| {
            let file = File::create(dir.join(name)).expect("made");
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length).expect("room");
            file
        };
        let files = (0..size_bytes.div_ceil(BARE_BYTES)).map(|number| {
            [file(format!("{number}.body"), BARE_BYTES), file(format!("{number}.index"), 1 << 20)]
        });
        Self { files: files.collect(), at: 0, index_at: 0 }
    }

    fn put(&mut self, body: &[u8]) {
        let length = (body.len() as u64).next_multiple_of(64);
        if self.at % BARE_BYTES + length > BARE_BYTES {
            self.at = self.at.next_multiple_of(BARE_BYTES);
        }
        let [file, index] = &self.files[(self.at / BARE_BYTES) as usize % self.files.len()];
        file.write_all_at(body, self.at % BARE_BYTES).expect("written");
        index.write_all_at(&[7; INDEX_BYTES as usize], self.index_at).expect("written");
        file.sync_data().and_then(|()| index.sync_data()).expect("synced");
        self.at += length;
        self.index_at = (self.index_at + INDEX_BYTES) % ((1 << 20) - INDEX_BYTES);
    }
}
