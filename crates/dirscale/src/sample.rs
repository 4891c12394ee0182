//! What was timed, and how well it is known: batches within rounds, and a bootstrap over both.
//!
//! ```text
//! 1000 operations -> 20 batches of 50 -> Samples: one row a round -> replicate: draw rows, in each draw batches
//! ```
//!
//! The figure is the median over rounds of the mean over operations: the day's cost is a sum, so means are what
//! counts, and a round that another program spoilt should not. With one round the interval says how unlike the
//! batches were, which includes that a cold directory gets warmer from the first lookup to the last; what differs
//! between one filling of the caches and the next only shows with several rounds.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

/// One measured thing at one size, in microseconds an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Samples {
    rounds: Vec<Vec<Batch>>,
}

/// A figure and its 95% confidence interval, where there is enough to tell one from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Microseconds an operation.
    pub us: f64,
    /// Lower and upper end.
    pub interval: Option<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Batch {
    us: f64,
    operations: f64,
}

const BATCHES: usize = 20;
/// Replicates of the bootstrap: the ends of a 95% interval rest on 25 of them each.
pub(crate) const REPLICATES: usize = 1000;

impl Samples {
    /// Adds a round: what each of its operations took, in nanoseconds. An empty one is not counted.
    pub fn add_round(&mut self, spent_ns: &[u64]) {
        let batches = spent_ns.len().min(BATCHES);
        let round: Vec<Batch> = (0..batches)
            .map(|batch| {
                let of = &spent_ns[batch * spent_ns.len() / batches..(batch + 1) * spent_ns.len() / batches];
                Batch { us: of.iter().sum::<u64>() as f64 / 1e3, operations: of.len() as f64 }
            })
            .collect();
        if !round.is_empty() {
            self.rounds.push(round);
        }
    }

    /// The figure itself; none without a round.
    pub fn us(&self) -> Option<f64> {
        median(self.rounds.iter().map(|round| mean(round.iter())).collect())
    }

    /// The figure and its interval; none without a round.
    pub fn estimate(&self, seed: u64) -> Option<Estimate> {
        let us = self.us()?;
        Some(Estimate { us, interval: self.has_spread().then(|| interval(&mut self.replicates(seed))) })
    }

    /// Figures as they might have come out, [`REPLICATES`] of them, by redrawing rounds and batches.
    pub(crate) fn replicates(&self, seed: u64) -> Vec<f64> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut one = || {
            let rounds = (0..self.rounds.len())
                .map(|_| {
                    let round = &self.rounds[rng.random_range(0..self.rounds.len())];
                    mean((0..round.len()).map(|_| &round[rng.random_range(0..round.len())]))
                })
                .collect();
            median(rounds).unwrap_or(0.0)
        };
        (0..REPLICATES).map(|_| one()).collect()
    }

    fn has_spread(&self) -> bool {
        self.rounds.len() > 1 || self.rounds.first().is_some_and(|round| round.len() > 1)
    }
}

/// The middle 95% of figures.
pub(crate) fn interval(figures: &mut [f64]) -> (f64, f64) {
    figures.sort_by(f64::total_cmp);
    (quantile(figures, 0.025), quantile(figures, 0.975))
}

/// The figure at this share of a sorted row that is not empty.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

fn mean<'a>(batches: impl Iterator<Item = &'a Batch>) -> f64 {
    let (us, operations) =
        batches.fold((0.0, 0.0), |(us, operations), batch| (us + batch.us, operations + batch.operations));
    us / operations
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(figures[middle]),
        _ => Some((figures[middle - 1] + figures[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rounds: &[&[u64]]) -> Samples {
        let mut samples = Samples::default();
        rounds.iter().for_each(|round| samples.add_round(round));
        samples
    }

    #[test]
    fn one_round_gives_the_mean_of_its_operations_whatever_the_batches() {
        let spent: Vec<u64> = (1..=33).map(|n| n * 1000).collect();
        assert_eq!(samples(&[&spent]).us(), Some(17.0));
    }

    #[test]
    fn a_spoilt_round_among_three_does_not_move_the_figure() {
        assert_eq!(samples(&[&[1000; 40], &[900_000; 40], &[2000; 40]]).us(), Some(2.0));
    }

    #[test]
    fn a_single_sample_has_no_interval_and_nothing_measured_no_figure() {
        assert_eq!(samples(&[&[5000]]).estimate(1), Some(Estimate { us: 5.0, interval: None }));
        assert_eq!(samples(&[&[]]).estimate(1), None);
    }

    #[test]
    fn unlike_batches_widen_the_interval_and_like_ones_close_it() {
        let steady = samples(&[&[3000; 1000]]).estimate(1).unwrap();
        assert_eq!(steady.interval, Some((3.0, 3.0)));
        let uneven: Vec<u64> = (0..1000).map(|n| if n % 100 < 50 { 1000 } else { 9000 }).collect();
        let (low, high) = samples(&[&uneven]).estimate(1).unwrap().interval.unwrap();
        assert!(low < 4.5 && high > 5.5 && low > 1.0 && high < 9.0, "{low} {high}");
    }

    #[test]
    fn rounds_that_differ_show_in_the_interval_though_each_is_steady() {
        let (low, high) =
            samples(&[&[1000; 100], &[2000; 100], &[3000; 100]]).estimate(7).unwrap().interval.unwrap();
        assert_eq!((low, high), (1.0, 3.0));
    }

    #[test]
    fn the_interval_of_noise_holds_the_truth_about_as_often_as_it_says() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let held = (0..200)
            .filter(|seed| {
                let spent: Vec<u64> = (0..1000).map(|_| rng.random_range(0..20_000)).collect();
                let (low, high) = samples(&[&spent]).estimate(*seed).unwrap().interval.unwrap();
                low <= 10.0 && 10.0 <= high
            })
            .count();
        // 95% less what twenty batches cost a percentile bootstrap.
        assert!((176..=198).contains(&held), "{held} of 200");
    }
}
