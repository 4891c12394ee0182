//! The table: put, durable put, get and miss of all peers, and what an object of the store costs.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::load::Load;
use crate::peers::{KINDS, Kind, Packed, Peer};
use crate::{empty, rate};

const DURABLE_THREADS: usize = 64;
/// Put by one thread until all of them are durable.
const AT_ONCE: usize = 1024;
/// What one thread puts durably takes so long, or what it puts at once takes longer.
const ALONE_FOR: Duration = Duration::from_millis(500);
/// Half of the room that a store has beside the load.
const ALONE_BYTES_MAX: u32 = 32 << 20;
/// Bodies that one peer puts durably in a round, one in so many of all, and those who take less time for it more of them.
const DURABLE_OF: usize = 20;

/// Rates a second of one round.
#[derive(Clone, Copy)]
struct Round {
    put: f64,
    put_us: f64,
    durable: f64,
    durable_alone: f64,
    durable_at_once: f64,
    get: f64,
    miss: f64,
}

/// Its name, and where it is in a round.
type Figure = (&'static str, fn(&Round) -> f64);

const FIGURES: [Figure; 7] = [
    ("put, 1/s", |round| round.put),
    ("put, us of processor", |round| round.put_us),
    ("durable put, 64 threads", |round| round.durable),
    ("  one thread, each waited", |round| round.durable_alone),
    ("  one thread, 1,024 a time", |round| round.durable_at_once),
    ("get, warm", |round| round.get),
    ("miss", |round| round.miss),
];

pub fn print(dir: &Path, load: &Load, rounds: usize) {
    println!("\n{}", load.name);
    let order = load.shuffled();
    let mut played = KINDS.each_ref().map(|_| Vec::new());
    for round in 0..rounds {
        // Turn about, so that none always comes after the same.
        for step in 0..KINDS.len() {
            let at = (round + step) % KINDS.len();
            played[at].push(play(dir, &KINDS[at], load, &order));
        }
    }
    print!("  {:<24}", "");
    KINDS.iter().for_each(|kind| print!("{:>14}", kind.name));
    println!();
    for (name, figure) in FIGURES {
        print!("  {name:<24}");
        let of = |rounds: &[Round]| median(rounds.iter().map(figure).collect());
        let first = of(&played[0]);
        for (at, rounds) in played.iter().enumerate() {
            let value = of(rounds);
            if at == 0 || first == 0.0 || value == 0.0 {
                print!("{value:>14.1}");
            } else {
                print!("{value:>14.1} ({:.1}x)", value / first);
            }
        }
        println!();
    }
    costs(dir, load, &order);
}

fn play(dir: &Path, kind: &Kind, load: &Load, order: &[usize]) -> Round {
    let count = load.count();
    let root = empty(dir, kind.name);
    let peer = (kind.make)(&root, load, false);
    warm(load.total_bytes() * 2);
    let (begun, used) = (Instant::now(), Used::now());
    (0..count).for_each(|at| peer.put(at, load.body(at)));
    let (put, put_us) = (rate(count, begun), used.each(count));
    peer.flush();
    let mut body = Vec::new();
    // Once before, so that all is in the page cache.
    order.iter().for_each(|&at| assert!(peer.get(at, &mut body), "{}: {at} was put", kind.name));
    let begun = Instant::now();
    order.iter().for_each(|&at| assert!(peer.get(at, &mut body)));
    let get = rate(count, begun);
    let begun = Instant::now();
    (0..count).for_each(|at| assert!(!peer.get(at + 10 * count, &mut body)));
    let miss = rate(count, begun);
    drop(peer);

    let peer = (kind.make)(&empty(dir, kind.name), load, true);
    let durable = (count / DURABLE_OF).max(DURABLE_THREADS);
    let put_durably = |from: usize, count: usize| {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..DURABLE_THREADS {
                let (peer, load) = (&peer, &load);
                scope.spawn(move || {
                    (from + thread..from + count)
                        .step_by(DURABLE_THREADS)
                        .for_each(|at| peer.put(at, load.body(at)));
                });
            }
        });
        begun.elapsed()
    };
    // As many as take about as long for each.
    let took = put_durably(0, durable);
    let more = (durable as f64 * (0.5 / took.as_secs_f64().max(0.001)).min(8.0)) as usize;
    let put_before = durable + more;
    let durable = if more > durable {
        more as f64 / put_durably(durable, more).as_secs_f64()
    } else {
        durable as f64 / took.as_secs_f64()
    };
    // Numbers that were not put before.
    let mut next = count.max(put_before);
    let begun = Instant::now();
    // Where a sync costs nothing it would be more than the store has room for.
    let (from, alone_max) = (next, (ALONE_BYTES_MAX / load.mean_bytes().max(1)) as usize);
    while begun.elapsed() < ALONE_FOR && next < from + alone_max {
        peer.put(next, load.body(next));
        next += 1;
    }
    let durable_alone = rate(next - from, begun);
    let (begun, first) = (Instant::now(), next);
    while begun.elapsed() < ALONE_FOR && next < first + count / 2 {
        let bodies: Vec<&[u8]> = (next..next + AT_ONCE.min(count)).map(|at| load.body(at)).collect();
        peer.put_durably(next, &bodies);
        next += bodies.len();
    }
    let durable_at_once = rate(next - first, begun);
    drop(peer);
    std::fs::remove_dir_all(&root).expect("removed");
    Round { put, put_us, durable, durable_alone, durable_at_once, get, miss }
}

/// What only the store can tell.
fn costs(dir: &Path, load: &Load, order: &[usize]) {
    let root = empty(dir, "costs");
    let packed = Packed::make(&root, load, false);
    let (count, total_bytes) = (load.count(), load.total_bytes());
    let begun = Instant::now();
    (0..count).for_each(|at| packed.put(at, load.body(at)));
    packed.flush();
    let flushed = rate(count, begun);
    let mut body = Vec::new();
    let before = packed.store.usage();
    order.iter().for_each(|&at| assert!(packed.get(at, &mut body)));
    let hit = packed.store.usage();
    (0..count).for_each(|at| assert!(!packed.get(at + 10 * count, &mut body)));
    let usage = packed.store.usage();
    let each = |reads: u64| reads as f64 / count as f64;
    let written = usage.body_written_bytes + usage.index_written_bytes;
    let held = usage.live_bytes + usage.index_bytes;
    println!("  puts until all is durable {flushed:.0}/s");
    println!(
        "  reads of segments a get {:.4}, a miss {:.6}",
        each(hit.disk_reads - before.disk_reads),
        each(usage.disk_reads - hit.disk_reads)
    );
    println!(
        "  memory {:.2} B an object; overhead {:.1}%; written {:.3} B an object byte; {} segments",
        usage.memory_bytes as f64 / count as f64,
        (held as f64 / total_bytes as f64 - 1.0) * 100.0,
        written as f64 / total_bytes as f64,
        usage.packed_files
    );
    drop(packed);
    std::fs::remove_dir_all(&root).expect("removed");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Touches as much memory as the next step will want, and lets it go: a virtual machine's host may have taken free memory
/// away, and then whoever needs it first pays for getting it back.
fn warm(bytes: u64) {
    let mut memory = vec![0_u8; (bytes.min(1 << 30)) as usize];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

/// Microseconds of processor time that this process used.
struct Used(f64);

impl Used {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect::<Vec<_>>();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        // User and system time, in ticks of 10 ms.
        Self((ticks(11) + ticks(12)) * 10_000.0)
    }

    fn each(&self, count: usize) -> f64 {
        (Self::now().0 - self.0) / count as f64
    }
}
