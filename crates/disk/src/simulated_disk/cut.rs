//! What a power cut leaves.

use std::collections::HashSet;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::contents::{Change, Contents, Pages};
use super::names::{NameChange, Names};

/// How much of what is not synced is kept.
#[derive(Clone, Copy)]
enum Kept {
    Nothing,
    All,
    /// What was done before this operation.
    Before(u64),
    /// Of each sector and each name something else.
    Any,
}

pub(super) fn cut(
    files: &[Contents],
    names: &Names,
    changes: &[(u64, NameChange)],
    seed: u64,
) -> (Vec<Contents>, Names) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let times = files.iter().flat_map(|file| file.changes()).map(|change| change.0);
    let oldest = times.chain(changes.iter().map(|change| change.0)).min();
    let newest = files.iter().flat_map(|file| file.changes()).map(|change| change.0);
    let newest = newest.chain(changes.iter().map(|change| change.0)).max();
    let all = match (random.random_range(0..10), oldest.zip(newest)) {
        (0, _) | (_, None) => Kept::Nothing,
        (1, _) => Kept::All,
        (2, Some((oldest, newest))) => Kept::Before(random.random_range(oldest..=newest + 1)),
        _ => Kept::Any,
    };
    // Each file, and the names, may fare in its own way.
    let mut one = || match (all, random.random_range(0..4)) {
        (Kept::Any, 0) => Kept::Nothing,
        (Kept::Any, 1) => Kept::All,
        (all, _) => all,
    };
    let kept = one();
    let files_kept = files.iter().map(|_| one()).collect::<Vec<_>>();
    let names = names_after(names, changes, kept, &mut random);
    let named = names.values().copied().collect::<HashSet<_>>();
    let after = files.iter().zip(files_kept).enumerate().map(|(number, (file, kept))| {
        let named = named.contains(&number);
        if named {
            Contents::durable_of(pages_after(file, kept, &mut random), file)
        } else {
            Contents::default()
        }
    });
    (after.collect(), names)
}

/// `durable`: as they were made durable last.
fn names_after(
    durable: &Names,
    changes: &[(u64, NameChange)],
    kept: Kept,
    random: &mut Xoshiro256PlusPlus,
) -> Names {
    let mut names = durable.clone();
    for (time, change) in changes {
        let kept = match kept {
            Kept::Nothing => false,
            Kept::All => true,
            Kept::Before(end) => *time < end,
            Kept::Any => random.random_bool(0.5),
        };
        if kept {
            change.apply(&mut names);
        }
    }
    names
}

fn pages_after(file: &Contents, kept: Kept, random: &mut Xoshiro256PlusPlus) -> Pages {
    let mut pages = file.durable().clone();
    match kept {
        Kept::Nothing => {}
        // A lost sync leaves more to be read than there is to be kept, so not what was seen.
        Kept::All => file.changes().iter().for_each(|(_, change)| pages.apply(change)),
        Kept::Before(end) => {
            let before = file.changes().iter().take_while(|(time, _)| *time < end);
            before.for_each(|(_, change)| pages.apply(change));
        }
        Kept::Any => {
            let sectors_seed: u64 = random.random();
            // Lengths the file had: one of them it has.
            let mut lengths = vec![pages.length];
            let count = file.changes().len() as u64;
            for (moment, (_, change)) in file.changes().iter().enumerate() {
                let length = lengths[moment];
                let keeps = |sector| (moment as u64) < moments_kept(sectors_seed, sector, count);
                lengths.push(match change {
                    Change::Write { offset, bytes } => {
                        for (at, piece) in sectors(*offset, bytes.len() as u64) {
                            if keeps(at / SECTOR) {
                                let from = (at - offset) as usize;
                                pages.put(at, &bytes[from..from + piece as usize]);
                            }
                        }
                        length.max(offset + bytes.len() as u64)
                    }
                    Change::Release { offset, bytes } => {
                        for (at, piece) in sectors(*offset, (*bytes).min(length.saturating_sub(*offset))) {
                            if keeps(at / SECTOR) {
                                pages.clear(at, piece);
                            }
                        }
                        length
                    }
                    Change::Length(new) => {
                        for (at, piece) in sectors(*new, length.saturating_sub(*new)) {
                            if keeps(at / SECTOR) {
                                pages.clear(at, piece);
                            }
                        }
                        *new
                    }
                    Change::Nothing => length,
                });
            }
            let length = lengths[random.random_range(0..lengths.len())];
            // Sectors beyond it that were kept are not the file's.
            pages.length = u64::MAX;
            pages.set_length(length);
        }
    }
    pages
}

/// Of this many changes, how many this sector holds: a third of all none, a third all, of the rest any first ones.
fn moments_kept(seed: u64, sector: u64, count: u64) -> u64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ sector.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    match random.random_range(0..3) {
        0 => 0,
        1 => count,
        _ => random.random_range(0..=count),
    }
}

/// The pieces of a range, sector by sector: where, and how many bytes.
fn sectors(offset: u64, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + bytes;
    let mut at = offset;
    std::iter::from_fn(move || {
        let piece = (SECTOR - at % SECTOR).min(end - at);
        let here = at;
        at += piece;
        (piece > 0).then_some((here, piece))
    })
}

const SECTOR: u64 = 512;
