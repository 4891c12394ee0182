//! Object sets at ten million files: bytes for each file, and choices, insertions, deletions a second.
//!
//! `cargo bench -p fstress --bench object_sets`; as a test (`cargo test --benches`) with few files. The bars:
//! at most 48 bytes a file, handles aside, and at least 3 million choices a second. A binary sparse heap, as
//! the paper has it, stands beside for comparison.
#![allow(missing_docs, clippy::print_stdout)] // A bench tells its figures on standard output.

use std::hint::black_box;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use files::OpKind;
use fstress::{DirectoryId, Distribution, FileId, Mix, ObjectSets, OpDeck, WEIGHT_ONE, Workload};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The paper's structure: each entry holds its weight and the sum of the subtree below it, children of i at
/// 2i+1 and 2i+2.
struct BinarySparseHeap {
    entries: Vec<(u32, u64)>,
}

impl BinarySparseHeap {
    fn of(weights: impl Iterator<Item = u32>) -> Self {
        let mut entries: Vec<_> = weights.map(|weight| (weight, u64::from(weight))).collect();
        for child in (1..entries.len()).rev() {
            entries[(child - 1) / 2].1 += entries[child].1;
        }
        Self { entries }
    }

    fn select(&self, rng: &mut impl Rng) -> usize {
        let mut point = ((u128::from(rng.next_u64()) * u128::from(self.entries[0].1)) >> 64) as u64;
        let mut at = 0;
        loop {
            let left = 2 * at + 1;
            let left_sum = self.entries.get(left).map_or(0, |entry| entry.1);
            if point < left_sum {
                at = left;
                continue;
            }
            point -= left_sum;
            if point < u64::from(self.entries[at].0) {
                return at;
            }
            point -= u64::from(self.entries[at].0);
            at = left + 1;
        }
    }
}

fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    // Pages of 4 KiB, as on the machines this was measured on; the figure beside it comes from capacities.
    Some(pages * 4096)
}

/// Nanoseconds a call in the fastest of many short batches: what the code costs, on a machine whose cores are
/// shared with others that lengthen most batches. Criterion's figures include them.
fn best_ns<T>(mut call: impl FnMut() -> T) -> f64 {
    let (batches, calls) = if is_test() { (3, 100) } else { (400, 10_000) };
    let batch = |_| {
        let started = Instant::now();
        for _ in 0..calls {
            black_box(call());
        }
        started.elapsed().as_nanos() as f64 / f64::from(calls)
    };
    (0..batches).map(batch).fold(f64::INFINITY, f64::min)
}

fn is_test() -> bool {
    !std::env::args().any(|arg| arg == "--bench")
}

fn filled(files: u64, popularity: &Distribution, rng: &mut Xoshiro256PlusPlus) -> ObjectSets {
    let mut sets = ObjectSets::new("bench", WEIGHT_ONE);
    let mut directory = DirectoryId::ROOT;
    for number in 0..files {
        if number % 36 == 0 {
            directory = sets.insert_directory(DirectoryId::ROOT, WEIGHT_ONE);
        }
        sets.insert_file(directory, 10_500, popularity.sample_weight(files, rng));
    }
    sets
}

fn object_sets(c: &mut Criterion) {
    let files: u64 = if is_test() { 20_000 } else { 10_000_000 };
    let popularity = Distribution::zipf(0.75).expect("a valid exponent");
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(42);

    let resident_before = resident_bytes();
    let started = Instant::now();
    let mut sets = filled(files, &popularity, &mut rng);
    let filled_s = started.elapsed().as_secs_f64();
    let memory = sets.memory();
    let per_file = |bytes: u64| bytes as f64 / files as f64;
    println!(
        "object_sets: {files} files: {:.2} bytes a file by capacity; {:.2} by resident memory, which includes {:.2} of directories; {:.1} million inserted a second, weights drawn",
        per_file(memory.files_bytes as u64),
        resident_before
            .zip(resident_bytes())
            .map_or(f64::NAN, |(before, after)| per_file(after.saturating_sub(before))),
        per_file(memory.directories_bytes as u64),
        files as f64 / filled_s / 1e6,
    );

    let best = best_ns(|| black_box(sets.select_file(&mut rng)));
    println!(
        "object_sets: {:.2} million choices a second ({best:.0} ns) in the best of many short batches",
        1e3 / best
    );

    let mut group = c.benchmark_group("object_sets");
    group.throughput(Throughput::Elements(1)).sample_size(20);
    group.bench_function("select_file_by_zipf_weight", |b| b.iter(|| black_box(sets.select_file(&mut rng))));
    group.bench_function("select_file_uniformly", |b| {
        b.iter(|| black_box(sets.select_file_uniformly(&mut rng)))
    });
    group.bench_function("select_file_and_grow_it", |b| {
        b.iter(|| {
            if let Some(file) = sets.select_file(&mut rng) {
                let size_bytes = sets.file_size_bytes(file);
                sets.set_file_size_bytes(file, size_bytes + 1);
            }
        });
    });
    group.bench_function("change_weight_of_any_file", |b| {
        b.iter(|| {
            let file = sets.select_file_uniformly(&mut rng).expect("there are files");
            sets.set_file_weight(file, rng.next_u32() % 1000 + 1);
        });
    });
    group.bench_function("remove_any_file_and_insert_one", |b| {
        b.iter(|| {
            let file = sets.select_file_uniformly(&mut rng).expect("there are files");
            let parent = sets.file_parent(file);
            sets.remove_file(file);
            black_box(sets.insert_file(parent, 10_500, WEIGHT_ONE));
        });
    });
    // The longest single step while the set grows: what a measured interval may have to bear.
    let mut longest_us = 0.0f64;
    for _ in 0..files / 20 {
        let started = Instant::now();
        let file: FileId = sets.insert_file(DirectoryId::ROOT, 10_500, WEIGHT_ONE);
        black_box(file);
        longest_us = longest_us.max(started.elapsed().as_secs_f64() * 1e6);
    }
    println!("object_sets: longest of {} insertions beyond that: {longest_us:.0} us", files / 20);
    drop(sets);

    let heap = BinarySparseHeap::of((0..files).map(|_| popularity.sample_weight(files, &mut rng)));
    let heap_bytes = heap.entries.capacity() * size_of::<(u32, u64)>();
    let best = best_ns(|| black_box(heap.select(&mut rng)));
    println!(
        "binary sparse heap: {:.2} bytes an object for weight and sum; {:.2} million choices a second ({best:.0} ns)",
        per_file(heap_bytes as u64),
        1e3 / best,
    );
    group.bench_function("binary_sparse_heap_select", |b| b.iter(|| black_box(heap.select(&mut rng))));
    group.finish();
}

fn op_deck(c: &mut Criterion) {
    let mut group = c.benchmark_group("op_deck");
    group.throughput(Throughput::Elements(1)).sample_size(20);
    for name in ["sfs97", "web-server", "null"] {
        let mix: Mix = Workload::builtin(name).expect("a built-in workload").mix;
        let mut deck = OpDeck::new(&mix, 1);
        println!(
            "op_deck {name}: {:.1} ns a draw in the best of many short batches",
            best_ns(|| deck.draw())
        );
        group.bench_function(format!("draw_{name}"), |b| b.iter(|| black_box::<OpKind>(deck.draw())));
    }
    group.finish();
}

criterion_group!(benches, object_sets, op_deck);
criterion_main!(benches);
