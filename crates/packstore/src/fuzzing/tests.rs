//! Random and mutated bytes for all that reads bytes from a disk: the fuzz targets' entries, run on the sample store's files.

use std::fs;
use std::path::Path;

use packstore::fuzzing;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

#[path = "../../fuzz/entry.rs"]
mod entry;

#[test]
fn no_bytes_whatever_make_a_parser_panic_or_take_memory_without_bound() {
    let seed = 11;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for _ in 0..20_000 {
        let len = random.random_range(0..400);
        let mut bytes = (0..len).map(|_| random.random()).collect::<Vec<u8>>();
        if let Some(units) = bytes.get_mut(8..11).filter(|_| random.random()) {
            // A length and a kind that can be.
            units.copy_from_slice(&[random.random_range(0..50), 0, random.random_range(0..20)]);
        }
        entry::index(&bytes);
        entry::control(&bytes);
    }
}

#[test]
fn the_sample_stores_files_with_bytes_changed_cut_and_moved_make_no_parser_panic() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/pack-v1");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(12);
    let index = fs::read(sample.join("00000000.index")).expect("the sample has it");
    assert!(fuzzing::index(&index) > 5, "as it is, it has its index records");
    assert!(fuzzing::volume(&fs::read(sample.join("volume")).expect("the sample has it")));
    for name in ["00000000.index", "volume", "table", "00000000.body"] {
        let whole = fs::read(sample.join(name)).expect("the sample has it");
        let whole = &whole[..whole.len().min(8192)];
        for _ in 0..1_500 {
            let mut bytes = whole.to_vec();
            for _ in 0..random.random_range(1..6) {
                let at = random.random_range(0..bytes.len());
                match random.random_range(0..4) {
                    0 => bytes[at] ^= 1 << random.random_range(0..8),
                    1 => bytes[at] = random.random(),
                    2 => bytes.truncate(at.max(1)),
                    _ => bytes.rotate_left(at),
                }
            }
            entry::index(&bytes);
            entry::control(&bytes);
        }
    }
}
