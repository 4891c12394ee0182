//! A mixed load on a store that is nearly full.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::time::Instant;

use packstore::{Mode, Pending, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::load::{Load, key};
use crate::peers::disk;

/// A store nine tenths full, for so many seconds: half gets, half puts and deletes; rates of each tenth of the time.
pub fn print(dir: &Path, load: &Load, seconds: usize) {
    for mode in [Mode::Store, Mode::Cache] {
        let root = dir.join("steady");
        fs::create_dir_all(&root).expect("made");
        let size_bytes = load.total_bytes() * 104 / 100 * 10 / 9;
        let volumes = vec![VolumeSpec { disk: disk(&root), size_bytes }];
        let options = StoreOptions { mode, memory_bytes_max: 16 << 20, ..StoreOptions::default() };
        let store = Store::create(volumes, options).expect("made");
        let mut puts = Puts { store: &store, load, pending: VecDeque::new(), refused: 0 };
        (0..load.count()).for_each(|at| puts.put(at, 0));
        puts.wait(0);
        let before = store.usage();
        println!(
            "\n{}, {mode:?}: {:.1}% of {} MB full",
            load.name,
            before.live_bytes as f64 / size_bytes as f64 * 100.0,
            size_bytes >> 20
        );
        let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
        let begun = Instant::now();
        let slice = seconds as f64 / 10.0;
        let (mut rates, mut gets_ns) = (Vec::new(), Vec::new());
        let mut user_bytes = 0_u64;
        for part in 1..=10 {
            let (from, mut done) = (Instant::now(), 0_u64);
            while begun.elapsed().as_secs_f64() < slice * f64::from(part) {
                for _ in 0..64 {
                    let at = random.random_range(0..load.count());
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
                            let shift = random.random_range(0..load.count());
                            user_bytes += load.body(at + shift).len() as u64;
                            puts.put(at, shift);
                        }
                    }
                    done += 1;
                }
            }
            rates.push(done as f64 / from.elapsed().as_secs_f64());
        }
        puts.wait(0);
        let full = puts.refused;
        store.flush().expect("flushed");
        let after = store.usage();
        gets_ns.sort_unstable();
        let of = |part: f64| gets_ns[((gets_ns.len() - 1) as f64 * part) as usize] as f64 / 1000.0;
        let written = after.body_written_bytes + after.index_written_bytes
            - before.body_written_bytes
            - before.index_written_bytes;
        println!(
            "  operations/s by tenths of {} s: {}",
            seconds,
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

/// Puts on their way.
struct Puts<'s> {
    store: &'s Store,
    load: &'s Load,
    pending: VecDeque<Pending>,
    /// As the store was full.
    refused: u64,
}

/// So many at once.
const PENDING_MAX: usize = 256;

impl Puts<'_> {
    fn put(&mut self, at: usize, shift: usize) {
        let body = self.load.body(at + shift);
        match self.store.put_deferred(key(at).as_bytes(), body, PutOptions::default()) {
            Ok(put) => self.pending.push_back(put),
            Err(error) => self.refused(&error),
        }
        self.wait(PENDING_MAX);
    }

    /// Until no more than so many are on their way.
    fn wait(&mut self, left: usize) {
        while self.pending.len() > left {
            if let Err(error) = self.pending.pop_front().expect("there are some").wait() {
                self.refused(&error);
            }
        }
    }

    fn refused(&mut self, error: &StoreError) {
        assert!(matches!(error, StoreError::Full), "{error}");
        self.refused += 1;
    }
}
