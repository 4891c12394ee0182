use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64 as Counter, Ordering};

use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use shuttle::sync::atomic::AtomicU64 as ModelledU64;

use super::*;

fn location(number: u64) -> Location {
    Location::new(number).expect("a small number")
}

#[test]
fn whatever_comes_and_goes_the_table_holds_what_a_map_holds() {
    for seed in 0..40 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        // From far below the capacity to far beyond it.
        let capacity = 1 + random.random_range(0..2_000) as usize;
        let table = FingerprintIndex::with_capacity(capacity);
        let mut model = HashMap::new();
        let mut hashes = Vec::new();
        for step in 0..8_000 {
            let hash = random.next_u64();
            // Some tags alike, some homes alike.
            let hash = if step % 7 == 0 { hash & !0xff_ffff } else { hash };
            match random.random_range(0..10) {
                0..5 => {
                    table.insert(hash, location(step));
                    model.insert(hash, step);
                    hashes.push(hash);
                }
                5..8 if !hashes.is_empty() => {
                    let hash = hashes.swap_remove(random.random_range(0..hashes.len() as u64) as usize);
                    let entry = model.remove(&hash).expect("each hash once");
                    assert!(table.remove(hash, location(entry)), "seed {seed} step {step}");
                    assert!(!table.remove(hash, location(entry)), "seed {seed} step {step}");
                }
                8 if !hashes.is_empty() => {
                    let hash = hashes[random.random_range(0..hashes.len() as u64) as usize];
                    let entry = model.get_mut(&hash).expect("there");
                    assert!(table.replace(hash, location(*entry), location(step)), "seed {seed} step {step}");
                    assert!(
                        !table.replace(hash, location(*entry), location(step)),
                        "seed {seed} step {step}"
                    );
                    *entry = step;
                }
                _ => assert_eq!(table.len(), model.len(), "seed {seed} step {step}"),
            }
        }
        for (&hash, &entry) in &model {
            let found = table.find(hash).collect::<Vec<_>>();
            assert!(found.contains(&location(entry)), "seed {seed}: {hash:x} at {entry} not in {found:?}");
        }
        for (hash, entry) in model {
            assert!(table.remove(hash, location(entry)), "seed {seed}");
        }
        assert!(table.is_empty());
        // Fifteen and more cannot be counted down.
        let still_passed = table
            .shards
            .iter()
            .flat_map(Shard::rings)
            .flat_map(Ring::words)
            .filter(|&word| word != 0 && word != 0xf << 60)
            .count();
        assert_eq!(still_passed, 0, "seed {seed}: an empty table counts nobody who passed");
    }
}

#[test]
fn at_nine_tenths_load_an_object_takes_under_nine_bytes_and_a_miss_meets_few_strangers() {
    let objects = 400_000;
    let table = FingerprintIndex::with_capacity(objects);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for number in 0..objects as u64 {
        table.insert(random.next_u64(), location(number));
    }
    assert!(!table.outgrown());
    let bytes = table.memory_bytes() as f64 / objects as f64;
    assert!(bytes < 9.3, "{bytes} bytes an object");
    let strangers = (0..1_000_000).filter(|_| table.find(random.next_u64()).next().is_some()).count();
    assert!(strangers < 20, "{strangers} strangers in a million misses");
}

/// With linear probing each search went through hundreds of buckets after a few turnovers at this load: objects that had
/// been put far from home stayed there, and what came later was put farther.
#[test]
fn searches_stay_short_however_often_all_objects_were_replaced_by_others() {
    let objects = 60_000;
    let table = FingerprintIndex::with_capacity(objects as usize);
    let hash = |number: u64| {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    (0..objects).for_each(|number| table.insert(hash(number), location(number)));
    for number in 0..objects * 4 {
        assert!(table.remove(hash(number), location(number % objects)));
        table.insert(hash(number + objects), location(number % objects));
    }
    let firsts = table.shards.iter().flat_map(Shard::rings).flat_map(|ring| ring.words().step_by(8));
    let passed = firsts.map(|word| word >> 60).collect::<Vec<_>>();
    let mean = passed.iter().sum::<u64>() as f64 / passed.len() as f64;
    assert!(mean < 4.0, "{mean} objects passed each bucket");
    assert!(!table.outgrown());
}

#[test]
fn a_table_four_times_too_small_still_finds_all() {
    let table = FingerprintIndex::with_capacity(1_000);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    let hashes = (0..4_000).map(|_| random.next_u64()).collect::<Vec<_>>();
    for (number, &hash) in hashes.iter().enumerate() {
        table.insert(hash, location(number as u64));
    }
    assert!(table.outgrown());
    for (number, &hash) in hashes.iter().enumerate() {
        assert!(table.find(hash).any(|found| found == location(number as u64)));
    }
}

#[test]
fn a_volume_that_vanished_is_forgotten_and_nothing_else() {
    let table = FingerprintIndex::with_capacity(500);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let hashes = (0..500).map(|_| random.next_u64()).collect::<Vec<_>>();
    for (number, &hash) in hashes.iter().enumerate() {
        table.insert(hash, location(number as u64));
    }
    assert_eq!(table.retain(|location| location.number() % 3 != 0), 167);
    for (number, &hash) in hashes.iter().enumerate() {
        let found = table.find(hash).any(|found| found == location(number as u64));
        assert_eq!(found, number % 3 != 0, "{number}");
    }
    assert_eq!(table.len(), 333);
}

#[test]
fn what_is_restored_is_what_was_there_and_any_flipped_bit_is_noticed() {
    let table = FingerprintIndex::with_capacity(60);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
    let hashes = (0..200).map(|_| random.next_u64()).collect::<Vec<_>>();
    for (number, &hash) in hashes.iter().enumerate() {
        table.insert(hash, location(number as u64));
    }
    let mut bytes = Vec::new();
    table.snapshot(&mut bytes).expect("memory takes it");
    let back = FingerprintIndex::restore(&mut &bytes[..], 1 << 20).expect("whole");
    assert_eq!(back.len(), 200);
    for (number, &hash) in hashes.iter().enumerate() {
        assert!(back.remove(hash, location(number as u64)));
    }
    assert!(FingerprintIndex::restore(&mut &bytes[..], 100).is_err(), "larger than allowed");
    for end in 0..bytes.len() {
        assert!(FingerprintIndex::restore(&mut &bytes[..end], 1 << 20).is_err(), "cut off at {end}");
    }
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(FingerprintIndex::restore(&mut &bytes[..], 1 << 20).is_err(), "bit {bit} flipped");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Objects that stay are found by every search while four threads put, move and delete others in the same buckets.
#[test]
fn objects_that_stay_are_found_in_every_search_while_others_come_and_go() {
    let table = FingerprintIndex::with_capacity(3_000);
    let done = AtomicBool::new(false);
    let (searched, changed) = (Counter::new(0), Counter::new(0));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let staying = (0..1_500).map(|_| random.next_u64()).collect::<Vec<_>>();
    // Come in between others, so that many lie beyond their home when those go.
    let passing = (0..2_000).map(|_| random.next_u64()).collect::<Vec<_>>();
    for (number, &hash) in passing.iter().enumerate() {
        table.insert(hash, location(10_000 + number as u64));
        if let Some(&hash) = staying.get(number) {
            table.insert(hash, location(number as u64));
        }
    }
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (table, passing, done, changed) = (&table, &passing, &done, &changed);
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(6 + part as u64);
                while !done.load(Ordering::Relaxed) {
                    let number = random.random_range(0..1_000) as usize * 2 + part;
                    let (hash, here) = (passing[number], location(10_000 + number as u64));
                    let there = location(20_000 + number as u64);
                    assert!(table.replace(hash, here, there));
                    assert!(table.remove(hash, there));
                    table.insert(hash, here);
                    changed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for part in 0..2 {
            let (table, staying, done, searched, changed) = (&table, &staying, &done, &searched, &changed);
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(8 + part);
                while changed.load(Ordering::Relaxed) < 200_000 {
                    let number = random.random_range(0..1_500) as usize;
                    let found = table.find(staying[number]).any(|found| found == location(number as u64));
                    // The writers end before a failure is reported.
                    if !found {
                        done.store(true, Ordering::Relaxed);
                    }
                    assert!(found, "{number} was there all the time");
                    searched.fetch_add(1, Ordering::Relaxed);
                }
                done.store(true, Ordering::Relaxed);
            });
        }
    });
    assert!(searched.load(Ordering::Relaxed) > 1_000);
}

impl ring::Word for ModelledU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }

    fn load(&self) -> u64 {
        self.load(Ordering::SeqCst)
    }

    fn store(&self, value: u64) {
        self.store(value, Ordering::SeqCst);
    }
}

/// Every order of the single loads and stores that 4,000 schedules try.
#[test]
fn no_order_of_single_loads_and_stores_hides_an_object_that_is_there() {
    shuttle::check_random(
        || {
            let ring = shuttle::sync::Arc::new(Ring::<ModelledU64>::new(4));
            let at = |tag: u64| (HASH, Want::new(tag));
            let put = |tag, number| {
                let (hash, want) = at(tag);
                assert!(ring.insert(hash, want, location(number)));
            };
            // The same two buckets for all: the last lies in a third.
            (0..17).for_each(|number| put(100 + number, number));
            let writer = {
                let ring = ring.clone();
                shuttle::thread::spawn(move || {
                    let (other, other_want) = at(200);
                    // In the slot that holds the count of those that passed.
                    let (early, early_want) = at(114);
                    assert!(ring.insert(other, other_want, location(50)));
                    assert!(ring.remove(early, early_want, location(14)));
                    assert!(ring.remove(other, other_want, location(50)));
                    assert!(ring.insert(other, other_want, location(51)));
                    assert!(ring.insert(early, early_want, location(14)));
                    assert!(ring.replace(other, other_want, location(51), location(52)));
                    assert!(ring.remove(other, other_want, location(52)));
                })
            };
            let (stays, stays_want) = at(116);
            for _ in 0..3 {
                let mut probe = ring.probe(stays, stays_want);
                assert_eq!(probe.next(), Some(location(16)), "it was there all the time");
                assert_eq!(probe.next(), None);
            }
            writer.join().expect("the writer ends");
        },
        4_000,
    );
}

/// Leads to three buckets of four that differ.
const HASH: u64 = 0x9876_5432_10fe_dcba;

#[test]
fn an_objects_touches_are_its_own_stay_with_it_where_it_moves_and_end_with_it() {
    let table = FingerprintIndex::with_capacity(1_000).counting();
    // Far beyond the capacity, so that further rings count too; among them pairs that look alike.
    let hashes =
        (0..4_000_u64).map(|number| (number / 2).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect::<Vec<_>>();
    let all = || hashes.iter().zip(0_u64..);
    all().for_each(|(&hash, at)| table.insert(hash, location(at)));
    for (&hash, at) in all() {
        (0..at % 6).for_each(|_| table.touch(hash, location(at)));
    }
    let wanted = |at: u64| (at % 6).min(3) as u16;
    assert!(all().all(|(&hash, at)| table.touches(hash, location(at)) == wanted(at)));
    all().for_each(|(&hash, at)| assert!(table.replace(hash, location(at), location(at + 10_000))));
    assert!(all().all(|(&hash, at)| table.touches(hash, location(at + 10_000)) == wanted(at)));
    all().for_each(|(&hash, at)| table.untouch(hash, location(at + 10_000), 2));
    assert!(
        all().all(|(&hash, at)| table.touches(hash, location(at + 10_000)) == wanted(at).saturating_sub(2))
    );
    for (&hash, at) in all() {
        assert!(table.remove(hash, location(at + 10_000)));
        assert_eq!(table.touches(hash, location(at + 10_000)), 0, "it is gone");
        table.insert(hash, location(at));
        assert_eq!(table.touches(hash, location(at)), 0, "nobody asked for it since it came");
    }
    let plain = FingerprintIndex::with_capacity(10);
    plain.insert(1, location(1));
    plain.touch(1, location(1));
    assert_eq!(plain.touches(1, location(1)), 0, "where nobody counts");
}
