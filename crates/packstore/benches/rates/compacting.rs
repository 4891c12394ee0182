//! Gets while the store is compacted, and without it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::load::{Load, key};
use crate::peers::{Packed, Peer};
use crate::{empty, percentile};

/// Moved in one step.
const STEP_BYTES: u64 = 8 << 20;

pub fn print(dir: &Path, load: &Load) {
    println!("\n{}: gets of one thread while half of the objects' room is given back", load.name);
    let root = empty(dir, "compact");
    let packed = Packed::make(&root, load, true);
    let mut pending = Vec::new();
    for at in 0..load.count() {
        let put =
            packed.store.put_deferred(key(at).as_bytes(), load.body(at), packstore::PutOptions::default());
        pending.push(put.expect("put"));
    }
    pending.drain(..).for_each(|put| put.wait().expect("durable"));
    // Every other one: each segment is half empty.
    for at in (1..load.count()).step_by(2) {
        pending.push(packed.store.delete_deferred(key(at).as_bytes()).expect("deleted").1);
    }
    pending.drain(..).for_each(|deleted| deleted.wait().expect("durable"));
    let gets_until = |ended: &dyn Fn() -> bool| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let (mut took_ns, mut body) = (Vec::new(), Vec::new());
        while !ended() {
            let at = random.random_range(0..load.count().div_ceil(2)) * 2;
            let begun = Instant::now();
            assert!(packed.get(at, &mut body), "{at} was put");
            took_ns.push(begun.elapsed().as_nanos() as u64);
        }
        took_ns.sort_unstable();
        took_ns
    };
    let begun = Instant::now();
    let without = gets_until(&|| begun.elapsed() > Duration::from_secs(1));
    let done = AtomicBool::new(false);
    let (files, begun) = (packed.store.usage().packed_files, Instant::now());
    let (beside, (moved_bytes, took)) = std::thread::scope(|scope| {
        let compacting = scope.spawn(|| {
            let mut moved_bytes = 0;
            loop {
                let report = packed.store.compact(STEP_BYTES).expect("compacted");
                moved_bytes += report.bytes_moved;
                if !report.more {
                    done.store(true, Ordering::Relaxed);
                    return (moved_bytes, begun.elapsed());
                }
            }
        });
        let beside = gets_until(&|| done.load(Ordering::Relaxed));
        (beside, compacting.join().expect("compacted"))
    });
    for (name, took_ns) in [("without", &without), ("beside it", &beside)] {
        println!(
            "  {name:<10} median {:.1} us, p99 {:.1} us, p99.9 {:.1} us, longest {:.1} us of {} gets",
            percentile(took_ns, 0.5) as f64 / 1e3,
            percentile(took_ns, 0.99) as f64 / 1e3,
            percentile(took_ns, 0.999) as f64 / 1e3,
            percentile(took_ns, 1.0) as f64 / 1e3,
            took_ns.len()
        );
    }
    println!(
        "  {} of {files} segments left, {} MB moved in {:.2} s",
        packed.store.usage().packed_files,
        moved_bytes >> 20,
        took.as_secs_f64()
    );
    drop(packed);
    std::fs::remove_dir_all(&root).expect("removed");
}
