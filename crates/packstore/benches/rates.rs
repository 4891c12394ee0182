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
    /// Only puts, of so many rounds of the objects, into one cache: for a profiler.
    puts: usize,
    /// Only a mixed load on a nearly full store, for so many seconds.
    steady: usize,
}

fn settings() -> Settings {
    let memory = Path::new("/dev/shm");
    let mut dir = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let bench = std::env::args().any(|arg| arg == "--bench");
    let (mut objects, mut rounds, mut restart) = if bench { (50_000, 3, 0) } else { (300, 1, 2_000) };
    let (mut puts, mut steady) = (0, 0);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|text| text.parse().ok()).unwrap_or(0);
        match arg.as_str() {
            "--objects" => objects = number(),
            "--rounds" => rounds = number(),
            "--restart" => restart = number(),
            "--puts" => puts = number(),
            "--steady" => steady = number(),
            path if !path.starts_with('-') => dir = PathBuf::from(path),
            _ => {}
        }
    }
    Settings { dir, objects, rounds, restart, durable: objects / 20, puts, steady }
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
    put_us: f64,
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
    warm(load.total() * 2);
    let (begun, used) = (Instant::now(), Used::now());
    (0..count).for_each(|at| put(at, false));
    let puts = rate(count, begun);
    let put_us = used.each(count);
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
    Round { put: puts, put_us, durable: durables, get: gets, miss: misses }
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

/// Touches as much memory as the next step will want, and lets it go: a virtual machine's host may have taken free memory
/// away, and then whoever needs it first pays for getting it back.
fn warm(bytes: u64) {
    let mut memory = vec![0_u8; (bytes.min(1 << 30)) as usize];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

/// Microseconds of processor time that this process used for each of `count`.
struct Used(f64);

impl Used {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect::<Vec<_>>();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        // User and system time, in ticks of 10 ms.
        Self((ticks(11) + ticks(12)) * 10_000.0)
    }

    fn each(&self, count: usize) -> f64 {
        (Self::now().0 - self.0) / count as f64
    }
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
    // More of them, as they take less time each.
    let durable = (durable * 8).min(count);
    let keys = (0..count + durable * 2).map(key).collect::<Vec<_>>();
    let store = made(Mode::Store);
    // The first packed file is made with the first put.
    store.put(b"first", b"", PutOptions::default()).expect("put");
    let begun = Instant::now();
    threads(DURABLE_THREADS, durable, |at| {
        store.put(keys[at].as_bytes(), load.body(at), PutOptions::default()).expect("put");
    });
    let durables = rate(durable, begun);
    let groups = store.usage().groups;
    let alone = durable / 64;
    let begun = Instant::now();
    for (at, key) in keys.iter().enumerate().skip(count).take(alone) {
        store.put(key.as_bytes(), load.body(at - count), PutOptions::default()).expect("put");
    }
    let alone = rate(alone, begun);
    // One thread with many on their way.
    let begun = Instant::now();
    let mut pending: Vec<Pending> = Vec::new();
    for (at, key) in keys.iter().enumerate().skip(count + durable).take(durable) {
        pending.push(
            store
                .put_deferred(key.as_bytes(), load.body(at - count - durable), PutOptions::default())
                .expect("put"),
        );
        if pending.len() == 1024 {
            pending.drain(..).for_each(|put| put.wait().expect("durable"));
        }
    }
    pending.drain(..).for_each(|put| put.wait().expect("durable"));
    let deferred = rate(durable, begun);
    drop(store);

    let store = made(Mode::Cache);
    warm(total * 2);
    let (begun, used) = (Instant::now(), Used::now());
    for (at, key) in keys.iter().enumerate().take(count) {
        store.put(key.as_bytes(), load.body(at), PutOptions::default()).expect("put");
    }
    let puts = rate(count, begun);
    let put_us = used.each(count);
    store.flush().expect("flushed");
    let flushed = rate(count, begun);
    // Once before, so that both are in the page cache.
    for &at in order {
        std::hint::black_box(store.get(keys[at].as_bytes()).expect("whole").expect("there").length());
    }
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
        println!("  durable puts of 64 threads in groups of {:.1}", durable as f64 / groups as f64);
        println!("  durable puts of one thread, one after the other {alone:.0}/s");
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
    Round { put: puts, put_us, durable: durables, get: gets, miss: misses }
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

/// A store nine tenths full, for so many seconds: half gets, half puts and deletes; rates of each tenth of the time.
fn steady(dir: &Path, settings: &Settings) {
    for mode in [Mode::Store, Mode::Cache] {
        let root = dir.join("steady");
        fs::create_dir_all(&root).expect("made");
        let load = Load::new(settings.objects, 10_600.0);
        let size_bytes = load.total() * 104 / 100 * 10 / 9;
        let volumes = vec![VolumeSpec { disk: disk(&root), size_bytes }];
        let options = StoreOptions { mode, memory_bytes_max: 16 << 20, ..StoreOptions::default() };
        let store = Store::create(volumes, options).expect("made");
        let mut pending = std::collections::VecDeque::new();
        let put = |at: usize, shift: usize, pending: &mut std::collections::VecDeque<Pending>| {
            let body = load.body((at + shift) % load.lens.len());
            match store.put_deferred(key(at).as_bytes(), body, PutOptions::default()) {
                Ok(put) => pending.push_back(put),
                Err(error) => assert!(matches!(error, packstore::StoreError::Full), "{error}"),
            }
            while pending.len() > 256 {
                let put = pending.pop_front().expect("there are some");
                let _ = put.wait();
            }
        };
        let mut full = 0_u64;
        (0..settings.objects).for_each(|at| put(at, 0, &mut pending));
        pending.drain(..).for_each(|put| drop(put.wait()));
        let before = store.usage();
        println!(
            "{mode:?}: {:.1}% of {} MB full",
            before.live_bytes as f64 / size_bytes as f64 * 100.0,
            size_bytes >> 20
        );
        let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
        let begun = Instant::now();
        let slice = settings.steady as f64 / 10.0;
        let (mut rates, mut gets_ns) = (Vec::new(), Vec::new());
        let mut user_bytes = 0_u64;
        for part in 1..=10 {
            let (from, mut done) = (Instant::now(), 0_u64);
            while begun.elapsed().as_secs_f64() < slice * f64::from(part) {
                for _ in 0..64 {
                    let at = random.random_range(0..settings.objects);
                    match random.random_range(0..20) {
                        0..10 => {
                            let asked = Instant::now();
                            let object = store.get(key(at).as_bytes()).expect("whole");
                            std::hint::black_box(object.map(|object| object.length()));
                            gets_ns.push(asked.elapsed().as_nanos() as u64);
                        }
                        // Whatever is deleted comes back, in another size.
                        draw => {
                            if draw == 10 {
                                store.delete_deferred(key(at).as_bytes()).expect("deleted");
                            }
                            let shift = random.random_range(0..settings.objects);
                            user_bytes += load.lens[(at + shift) % load.lens.len()] as u64;
                            let had = pending.len();
                            put(at, shift, &mut pending);
                            full += u64::from(pending.len() == had && had < 256);
                        }
                    }
                    done += 1;
                }
            }
            rates.push(done as f64 / from.elapsed().as_secs_f64());
        }
        pending.drain(..).for_each(|put| drop(put.wait()));
        store.flush().expect("flushed");
        let after = store.usage();
        gets_ns.sort_unstable();
        let of = |part: f64| gets_ns[((gets_ns.len() - 1) as f64 * part) as usize] as f64 / 1000.0;
        let written = after.body_written_bytes + after.index_written_bytes
            - before.body_written_bytes
            - before.index_written_bytes;
        println!(
            "  operations/s by tenths of {} s: {}",
            settings.steady,
            rates.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join(" ")
        );
        println!(
            "  gets beside it: median {:.0} us, p99 {:.0} us, p99.9 {:.0} us; refused as full {full}",
            of(0.5),
            of(0.99),
            of(0.999)
        );
        println!(
            "  of it bodies {:.3}; {} groups, {} syncs",
            (after.body_written_bytes - before.body_written_bytes) as f64 / user_bytes as f64,
            after.groups - before.groups,
            after.syncs - before.syncs
        );
        println!(
            "  written {:.3} B an object byte; evicted {}; live {:.1}%",
            written as f64 / user_bytes as f64,
            after.evicted,
            after.live_bytes as f64 / size_bytes as f64 * 100.0
        );
        drop(store);
        fs::remove_dir_all(&root).expect("removed");
    }
}

fn only_puts(dir: &Path, settings: &Settings) {
    let load = Load::new(settings.objects, 10_600.0);
    let volumes = vec![VolumeSpec { disk: disk(dir), size_bytes: load.total() * 3 / 2 + (64 << 20) }];
    let options = StoreOptions { mode: Mode::Cache, ..StoreOptions::default() };
    let store = Store::create(volumes, options).expect("made");
    let keys = (0..settings.objects).map(key).collect::<Vec<_>>();
    for round in 0..settings.puts {
        let (begun, used) = (Instant::now(), Used::now());
        for (at, key) in keys.iter().enumerate() {
            store.put(key.as_bytes(), load.body(at), PutOptions::default()).expect("put");
        }
        let (puts, each) = (rate(keys.len(), begun), used.each(keys.len()));
        println!("round {round}: {puts:.0} puts/s, {each:.1} us of processor each");
    }
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
    if settings.steady > 0 {
        return steady(scratch.path(), &settings);
    }
    if settings.puts > 0 {
        only_puts(scratch.path(), &settings);
        return;
    }
    for mean in if settings.objects == 0 { &[][..] } else { &[10_600.0, 1_000.0][..] }.iter().copied() {
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
        let figures: [Figure; 5] = [
            ("put", |round| round.put),
            ("put, us of processor", |round| round.put_us),
            ("durable put, 64 threads", |round| round.durable),
            ("get, warm", |round| round.get),
            ("miss", |round| round.miss),
        ];
        for (name, figure) in figures {
            let files = median(rounds.iter().map(|(files, _)| figure(files)).collect());
            let store = median(rounds.iter().map(|(_, store)| figure(store)).collect());
            println!("  {name:<24} files {files:>12.1}   store {store:>12.1}   {:.1} times", store / files);
        }
    }
    if settings.restart > 0 {
        restart(scratch.path(), settings.restart);
    }
}
