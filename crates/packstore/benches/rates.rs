//! Rates of the store beside one file an object on the same directory: put, durable put, get, miss; memory, overhead,
//! bytes written; restart with many objects.
//!
//! `cargo bench -p packstore --bench rates -- [DIR] [--objects N] [--rounds N] [--restart N]`. Run as a test it is tiny.
//! Rounds are interleaved. Bodies: lognormal, mean 10.6 KB and 1 KB.

#![expect(clippy::print_stdout, reason = "a bench says what it found")]

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use files::{Disk, LocalDisk};
use packstore::{Mode, OpenOptions, Pending, PutOptions, Store, StoreOptions, VolumeSpec};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

struct Settings {
    dir: PathBuf,
    objects: usize,
    rounds: usize,
    restart: usize,
    durable: usize,
}

fn settings() -> Settings {
    let memory = Path::new("/dev/shm");
    let mut dir = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let bench = std::env::args().any(|arg| arg == "--bench");
    let (mut objects, mut rounds, mut restart) = if bench { (50_000, 3, 0) } else { (300, 1, 2_000) };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|text| text.parse().ok()).unwrap_or(0);
        match arg.as_str() {
            "--objects" => objects = number(),
            "--rounds" => rounds = number(),
            "--restart" => restart = number(),
            path if !path.starts_with('-') => dir = PathBuf::from(path),
            _ => {}
        }
    }
    Settings { dir, objects, rounds, restart, durable: objects / 20 }
}

/// Lengths of a lognormal law with this mean, and the bytes to cut bodies from.
struct Load {
    lens: Vec<usize>,
    bytes: Vec<u8>,
}

impl Load {
    fn new(objects: usize, mean: f64) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let sigma = 1.2_f64;
        let mu = mean.ln() - sigma * sigma / 2.0;
        let lens = (0..objects).map(|_| {
            // Twelve uniform numbers make a normal one, near enough.
            let normal = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
            ((mu + sigma * normal).exp() as usize).clamp(16, 1 << 20)
        });
        let lens = lens.collect();
        Self { lens, bytes: (0..2 << 20).map(|_| random.random()).collect() }
    }

    fn body(&self, at: usize) -> &[u8] {
        &self.bytes[at * 64 % (1 << 20)..][..self.lens[at]]
    }

    fn total(&self) -> u64 {
        self.lens.iter().map(|&len| len as u64).sum()
    }
}

fn key(at: usize) -> String {
    format!("http://www.example.org/objects/{at:09}.html")
}

fn file_path(dir: &Path, at: usize) -> PathBuf {
    dir.join(format!("{:02x}/{:02x}/{at:09}", at % 16, at / 16 % 64))
}

fn disk(dir: &Path) -> Arc<dyn Disk> {
    Arc::new(LocalDisk::open(dir).expect("it opens"))
}

fn shuffled(count: usize) -> Vec<usize> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(8);
    let mut order = (0..count).collect::<Vec<_>>();
    for at in (1..count).rev() {
        order.swap(at, random.random_range(0..=at));
    }
    order
}

/// Rates a second of one round.
#[derive(Default, Clone, Copy)]
struct Round {
    put: f64,
    durable: f64,
    get: f64,
    miss: f64,
}

/// Its name, and where it is in a round.
type Figure = (&'static str, fn(&Round) -> f64);

fn files_round(dir: &Path, load: &Load, order: &[usize], durable: usize) -> Round {
    let root = dir.join("files");
    for at in 0..1024 {
        fs::create_dir_all(file_path(&root, at).parent().expect("a directory")).expect("made");
    }
    let put = |at: usize, sync: bool| {
        let mut file = File::create_new(file_path(&root, at)).expect("made");
        file.write_all(load.body(at % load.lens.len())).expect("written");
        if sync {
            file.sync_all().expect("synced");
        }
    };
    let count = load.lens.len();
    let begun = Instant::now();
    (0..count).for_each(|at| put(at, false));
    let puts = rate(count, begun);
    let begun = Instant::now();
    threads(DURABLE_THREADS, durable, |at| put(count + at, true));
    let durables = rate(durable, begun);
    let begun = Instant::now();
    let mut bytes = Vec::new();
    for &at in order {
        bytes.clear();
        let mut file = File::open(file_path(&root, at)).expect("opened");
        let len = file.metadata().expect("told").len() as usize;
        bytes.resize(len, 0);
        file.read_exact(&mut bytes).expect("read");
        std::hint::black_box(&bytes);
    }
    let gets = rate(count, begun);
    let begun = Instant::now();
    for at in 0..count {
        std::hint::black_box(File::open(file_path(&root, at + 10 * count)).is_err());
    }
    let misses = rate(count, begun);
    fs::remove_dir_all(&root).expect("removed");
    Round { put: puts, durable: durables, get: gets, miss: misses }
}

const DURABLE_THREADS: usize = 64;

fn threads(threads: usize, count: usize, each: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let each = &each;
            scope.spawn(move || (thread..count).step_by(threads).for_each(each));
        }
    });
}

fn rate(count: usize, begun: Instant) -> f64 {
    count as f64 / begun.elapsed().as_secs_f64()
}

fn store_round(dir: &Path, load: &Load, order: &[usize], durable: usize, say: bool) -> Round {
    let root = dir.join("pack");
    let count = load.lens.len();
    let total = load.total();
    let mean = (total / count as u64) as u32;
    let size_bytes = total * 3 / 2 + (64 << 20);
    let made = |mode| {
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).expect("made");
        let volumes = vec![VolumeSpec { disk: disk(&root), size_bytes }];
        let options = StoreOptions { mode, object_bytes_mean: mean, ..StoreOptions::default() };
        Store::create(volumes, options).expect("made")
    };
    let keys = (0..count + durable).map(key).collect::<Vec<_>>();
    let store = made(Mode::Store);
    let begun = Instant::now();
    threads(DURABLE_THREADS, durable, |at| {
        store.put(keys[at].as_bytes(), load.body(at), PutOptions::default()).expect("put");
    });
    let durables = rate(durable, begun);
    // One thread with many on their way.
    let begun = Instant::now();
    let mut pending: Vec<Pending> = Vec::new();
    for (at, key) in keys.iter().enumerate().take(durable * 2).skip(durable) {
        pending.push(store.put_deferred(key.as_bytes(), load.body(at), PutOptions::default()).expect("put"));
        if pending.len() == 1024 {
            pending.drain(..).for_each(|put| put.wait().expect("durable"));
        }
    }
    pending.drain(..).for_each(|put| put.wait().expect("durable"));
    let deferred = rate(durable, begun);
    drop(store);

    let store = made(Mode::Cache);
    let begun = Instant::now();
    for (at, key) in keys.iter().enumerate().take(count) {
        store.put(key.as_bytes(), load.body(at), PutOptions::default()).expect("put");
    }
    let puts = rate(count, begun);
    store.flush().expect("flushed");
    let flushed = rate(count, begun);
    let before = store.usage();
    let begun = Instant::now();
    for &at in order {
        let object = store.get(keys[at].as_bytes()).expect("whole").expect("there");
        std::hint::black_box(object.whole());
    }
    let gets = rate(count, begun);
    let usage = store.usage();
    let missing = (0..count).map(|at| key(at + 10 * count)).collect::<Vec<_>>();
    let reads = usage.disk_reads;
    let begun = Instant::now();
    for key in &missing {
        std::hint::black_box(store.get(key.as_bytes()).expect("no error").is_none());
    }
    let misses = rate(count, begun);
    let miss_reads = store.usage().disk_reads - reads;
    if say {
        let written = usage.body_written_bytes + usage.index_written_bytes;
        let held = usage.live_bytes + usage.index_bytes;
        println!("  deferred durable puts {deferred:>12.0}/s; puts until flushed {flushed:>12.0}/s");
        println!(
            "  disk reads a get {:.4}; a miss {:.6}",
            (usage.disk_reads - before.disk_reads) as f64 / count as f64,
            miss_reads as f64 / count as f64
        );
        println!(
            "  memory {:.2} B an object; overhead {:.1}% of {mean} B; written {:.3} B an object byte; {} packed files",
            usage.memory_bytes as f64 / count as f64,
            (held as f64 / total as f64 - 1.0) * 100.0,
            written as f64 / total as f64,
            usage.packed_files
        );
    }
    drop(store);
    fs::remove_dir_all(&root).expect("removed");
    Round { put: puts, durable: durables, get: gets, miss: misses }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_unstable_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn restart(dir: &Path, objects: usize) {
    let root = dir.join("restart");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).expect("made");
    let volumes = vec![VolumeSpec { disk: disk(&root), size_bytes: objects as u64 * 256 + (64 << 20) }];
    let options = StoreOptions { object_bytes_mean: 256, ..StoreOptions::default() };
    let store = Store::create(volumes, options).expect("made");
    let mut pending = Vec::new();
    for at in 0..objects {
        pending.push(store.put_deferred(key(at).as_bytes(), b"small", PutOptions::default()).expect("put"));
        if pending.len() == 50_000 {
            pending.drain(..).for_each(|put| put.wait().expect("durable"));
        }
    }
    pending.drain(..).for_each(|put| put.wait().expect("durable"));
    let usage = store.usage();
    println!(
        "restart with {objects} objects: {} MB of index files, {:.2} B of memory an object",
        usage.index_bytes >> 20,
        usage.memory_bytes as f64 / objects as f64
    );
    let first = |store: &Store| {
        assert!(store.get(key(objects / 2).as_bytes()).expect("whole").is_some());
    };
    let begun = Instant::now();
    store.close().expect("closed");
    println!("  clean stop {:?}", begun.elapsed());
    let begun = Instant::now();
    let store = Store::open(vec![disk(&root)], OpenOptions::default()).expect("opened");
    first(&store);
    println!("  first hit after a clean stop {:?}", begun.elapsed());
    drop(store);
    let begun = Instant::now();
    let store = Store::open(vec![disk(&root)], OpenOptions::default()).expect("opened");
    first(&store);
    println!("  first hit after a kill {:?}", begun.elapsed());
    assert_eq!(store.usage().objects, objects as u64);
    drop(store);
    fs::remove_dir_all(&root).expect("removed");
}

fn main() {
    let settings = settings();
    let scratch = tempfile::tempdir_in(&settings.dir).expect("a directory");
    println!(
        "{} objects a round, {} rounds, in {}",
        settings.objects,
        settings.rounds,
        settings.dir.display()
    );
    for mean in [10_600.0, 1_000.0] {
        let load = Load::new(settings.objects, mean);
        let order = shuffled(settings.objects);
        println!("bodies of {} B on average", load.total() / settings.objects as u64);
        let rounds = (0..settings.rounds).map(|round| {
            let files = || files_round(scratch.path(), &load, &order, settings.durable);
            let store = || store_round(scratch.path(), &load, &order, settings.durable, round == 0);
            // Turn about, so that neither always comes after the other.
            if round % 2 == 0 {
                let files = files();
                (files, store())
            } else {
                let store = store();
                (files(), store)
            }
        });
        let rounds = rounds.collect::<Vec<_>>();
        let figures: [Figure; 4] = [
            ("put", |round| round.put),
            ("durable put, 64 threads", |round| round.durable),
            ("get, warm", |round| round.get),
            ("miss", |round| round.miss),
        ];
        for (name, figure) in figures {
            let files = median(rounds.iter().map(|(files, _)| figure(files)).collect());
            let store = median(rounds.iter().map(|(_, store)| figure(store)).collect());
            println!(
                "  {name:<24} files {files:>12.0}/s   store {store:>12.0}/s   {:.1} times",
                store / files
            );
        }
    }
    if settings.restart > 0 {
        restart(scratch.path(), settings.restart);
    }
}
