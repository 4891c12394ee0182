//! Between which numbers of names a directory refuses the next one: many runs of [`Tree`], and what they spread over.
//!
//! Not here: the growth of one tree (see `growth`), from which day to which (see `prediction`).

use std::thread;

use super::{Records, Shape, Tree};

/// A number of names that is known from `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Names {
    /// The fewest names, with near certainty.
    pub low: f64,
    /// The most names.
    pub high: f64,
}

/// A directory as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Names in it.
    pub names: u64,
    /// Blocks of it, the index included.
    pub blocks: u64,
}

/// Splits that all runs together may take: a run takes some 9,000 with blocks of 1 KiB, and 140,000 with 4 KiB.
const SPLITS_MAX: u64 = 4_000_000;
const RUNS: std::ops::RangeInclusive<u64> = 16..=400;
/// Of the most leaves that an index can name, how many there are when it refuses a name: 0.55 to 0.6 by simulation.
const USED_SHARE: f64 = 0.6;
/// The largest blocks that are simulated. An index of larger ones has millions of leaves.
const BLOCK_BYTES_MAX: u32 = 8192;
/// Number of runs of which the most extreme one at either end is left out.
const RUNS_PER_OUTLIER: usize = 200;
/// The ends of few runs are too near: the range is widened at either end by this many standard deviations, divided by the runs.
const DEVIATIONS_OF_FEW: f64 = 24.0;
/// Runs that must reach the blocks that a directory has, as a share.
const REACHING_SHARE_MIN: f64 = 0.25;

/// Between which numbers of names a directory refuses the next one, if none is removed from now on. With `now`, from the
/// directory as it is; otherwise from an empty one. None for blocks that are too large to simulate.
///
/// About one directory in a hundred is outside: the range is that of all runs but the most extreme ones, widened where runs are
/// few. It is no interval around a mean, as the numbers of names are skewed: few directories hold far more than most.
pub fn names_when_full(shape: Shape, records: &Records, now: Option<Now>) -> Option<Names> {
    if shape.block_bytes > BLOCK_BYTES_MAX {
        return None;
    }
    let leaves = shape.root_entries() as f64 * shape.node_entries() as f64 * USED_SHARE;
    let runs = (SPLITS_MAX / leaves as u64).clamp(*RUNS.start(), *RUNS.end());
    // A directory of one block has no index yet, and is where every run begins.
    let now = now.filter(|now| now.blocks > 1);
    let run = |seed: u64| {
        let mut tree = Tree::new(shape, records.clone(), seed);
        if let Some(now) = now {
            if !tree.grow_to_blocks(now.blocks) {
                return None;
            }
            tree.with_names(now.names as f64);
        }
        Some(tree.names_until_refused())
    };
    let mut refused: Vec<f64> = in_threads(runs, run).into_iter().flatten().collect();
    refused.sort_by(f64::total_cmp);
    let names_now = now.map_or(0.0, |now| now.names as f64);
    if (refused.len() as f64) < runs as f64 * REACHING_SHARE_MIN {
        // It has more blocks than nearly all runs reach: the next name may be the one.
        let high = refused.last().map_or(names_now, |names| names.max(names_now));
        return Some(Names { low: names_now, high });
    }
    let mean = refused.iter().sum::<f64>() / refused.len() as f64;
    let squares: f64 = refused.iter().map(|names| (names - mean).powi(2)).sum();
    let deviation = (squares / (refused.len() as f64 - 1.0)).sqrt();
    let away = deviation * DEVIATIONS_OF_FEW / refused.len() as f64;
    let outliers = refused.len() / RUNS_PER_OUTLIER;
    let (first, last) = (refused[outliers], refused[refused.len() - 1 - outliers]);
    Some(Names { low: (first - away).max(names_now), high: last + away })
}

/// The results of `run` for 1 to `runs`, by as many threads as there are processors.
fn in_threads(runs: u64, run: impl Fn(u64) -> Option<f64> + Sync) -> Vec<Option<f64>> {
    let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64).min(runs);
    let part = |first: u64| {
        let run = &run;
        move || (first..=runs).step_by(threads as usize).map(run).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let others: Vec<_> = (2..=threads)
            .map(|first| {
                let builder = thread::Builder::new().name("index".to_owned());
                builder.spawn_scoped(scope, part(first)).map_err(|_| first)
            })
            .collect();
        let mut all = part(1)();
        for other in others {
            // A thread that could not be started: its part is done here.
            all.extend(
                other.map_or_else(
                    |first| part(first)(),
                    |thread| thread.join().expect("a run does not panic"),
                ),
            );
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Shape = Shape { block_bytes: 1024, checksums: true, blocks_max: None };

    fn width(names: Names) -> f64 {
        (names.high - names.low) / names.low.midpoint(names.high)
    }

    /// Counted on ext4 in images of 1 KiB blocks, kernel 6.18: results/2026-11-25-directory-index.
    #[test]
    fn the_range_holds_what_was_counted_on_real_file_systems_and_is_narrow() {
        for (bytes, counted) in
            [(24, [265_520.0, 265_773.0, 261_261.0]), (48, [134_399.0, 130_264.0, 132_472.0])]
        {
            let range = names_when_full(SMALL, &Records::Same(bytes), None).unwrap();
            assert!(width(range) < 0.15, "{bytes}: {range:?}");
            for names in counted {
                assert!(range.low < names && names < range.high, "{bytes}: {names} is outside {range:?}");
            }
        }
    }

    #[test]
    fn the_nearer_the_end_the_narrower_the_range_and_never_below_what_is_there() {
        let from =
            |names, blocks| names_when_full(SMALL, &Records::Same(24), Some(Now { names, blocks })).unwrap();
        let (far, near) = (from(1000, 60), from(245_000, 8500));
        assert!(width(near) < width(far), "{near:?} and {far:?}");
        assert!(near.low >= 245_000.0);
        let full = from(262_000, 14_000);
        assert_eq!(full.low, 262_000.0, "{full:?}");
    }

    #[test]
    fn the_same_directory_gets_the_same_range_and_large_blocks_get_none() {
        let range = || names_when_full(SMALL, &Records::Same(48), None);
        assert_eq!(range(), range());
        assert_eq!(names_when_full(Shape { block_bytes: 65_536, ..SMALL }, &Records::Same(24), None), None);
    }
}
