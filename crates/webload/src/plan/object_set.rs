//! Plain object sets for benches: all asked for once, then again by Zipf's law; or always something new.

use std::num::NonZeroU64;
use std::time::Duration;

use rand::SeedableRng as _;
use rand_distr::{Distribution as _, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::object::{Object, mix};
use super::{Class, Planned, Share};

/// A set of objects and what is done with it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectSet {
    /// How many.
    pub count: NonZeroU64,
    /// Their mean size, bytes; sizes are lognormal with a deviation as large.
    pub mean_bytes: u64,
    /// What is asked for.
    pub used: SetUse,
    /// Phases before this one ask for each object once.
    pub fill_phases: usize,
}

/// What is asked for once the set is filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SetUse {
    /// Objects of the set, by Zipf's law with this exponent.
    Again {
        /// 0 is uniform.
        zipf: f64,
    },
    /// Objects never asked for before: each is a miss, and stored.
    New,
}

pub(crate) struct ObjectSetPlanner {
    set: ObjectSet,
    share: Share,
    random: Xoshiro256PlusPlus,
    zipf: Option<Zipf<f64>>,
    asked: u64,
    /// Odd and without a divisor in common with the count: turns ranks into numbers all over the set.
    stride: u64,
    world: u64,
}

/// Numbers of a set are below it, and those apart from the set above.
pub(crate) const NUMBERS_MAX: u64 = 1 << 39;
/// Which request goes with which connection does not matter to a set.
const ROBOTS: u32 = 1 << 20;

impl ObjectSetPlanner {
    pub fn new(set: &ObjectSet, share: Share) -> Self {
        let count = set.count.get();
        let zipf = match set.used {
            SetUse::Again { zipf } => Zipf::new(count as f64, zipf).ok(),
            SetUse::New => None,
        };
        Self {
            set: set.clone(),
            random: Xoshiro256PlusPlus::seed_from_u64(mix(share.seed ^ 0x736574) ^ share.number),
            zipf,
            asked: 0,
            stride: (0..)
                .map(|step| (count as f64 * 0.618) as u64 + step)
                .find(|&n| gcd(n, count) == 1)
                .unwrap_or(1),
            world: (mix(share.seed ^ 0x6f626a) & 0xff_ffff) << 40,
            share,
        }
    }

    pub fn next(&mut self, phase: usize) -> Option<Planned> {
        let turn = self.asked * self.share.of + self.share.number;
        self.asked += 1;
        let filling = phase < self.set.fill_phases;
        let count = self.set.count.get();
        let (number, is_new) = match &self.zipf {
            _ if filling => (turn % count, true),
            Some(zipf) => {
                let rank = zipf.sample(&mut self.random) as u64 - 1;
                ((u128::from(rank) * u128::from(self.stride) % u128::from(count)) as u64, false)
            }
            // Apart from the set.
            None => (NUMBERS_MAX | turn, true),
        };
        let object = Object::of_mean(self.world | number, self.set.mean_bytes);
        // Without a filling phase nobody knows what was there before: the set is taken to be.
        let could_hit = !is_new;
        let robot = (turn % u64::from(ROBOTS)) as u32;
        Some(Planned {
            object,
            class: Class::Plain,
            robot,
            could_hit,
            is_new,
            tail: (0, 0),
            due: Duration::ZERO,
        })
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn set(used: SetUse) -> ObjectSet {
        ObjectSet { count: NonZeroU64::new(1000).unwrap(), mean_bytes: 10_700, used, fill_phases: 1 }
    }

    #[test]
    fn filling_asks_for_each_object_once_between_all_generators() {
        let mut numbers = HashSet::new();
        for number in 0..3 {
            let mut planner =
                ObjectSetPlanner::new(&set(SetUse::Again { zipf: 0.8 }), Share { number, of: 3, seed: 1 });
            for _ in 0..334 {
                numbers.insert(planner.next(0).unwrap().object.number);
            }
        }
        assert_eq!(numbers.len(), 1000);
        let mut planner =
            ObjectSetPlanner::new(&set(SetUse::Again { zipf: 0.8 }), Share { number: 0, of: 1, seed: 1 });
        for _ in 0..5_000 {
            let planned = planner.next(1).unwrap();
            assert!(planned.could_hit && numbers.contains(&planned.object.number));
        }
    }

    #[test]
    fn what_is_new_was_never_asked_for() {
        let mut planner = ObjectSetPlanner::new(&set(SetUse::New), Share { number: 0, of: 1, seed: 1 });
        let numbers: HashSet<u64> =
            (0..5_000).map(|turn| planner.next(turn / 1000).unwrap().object.number).collect();
        assert_eq!(numbers.len(), 5_000);
    }
}
