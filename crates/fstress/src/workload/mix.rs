//! Which operations a workload asks for, in which shares, and the deck that deals them.
//!
//! ```text
//! read  54%   |---x---|-x-----|------x|---x---|     one occurrence in each interval of 1/0.54 draws
//! write 35%   |-----x-----|-x---------|----x--|     one in each interval of 1/0.35 draws
//! deal:           r   w r    w     r r   w r        all occurrences in the order of their times
//! ```
//!
//! Drawing each operation independently would leave a mix of 100,000 requests off by up to half a percentage
//! point; the bar is a tenth. Shuffled blocks are exact at their ends but off by tens of operations within, and
//! a measured interval ends where it likes. So every kind of operation has time cut into intervals as long as
//! its mean distance, and occurs once at a random moment of each: irregular from one request to the next,
//! steady over any span.
//!
//! Always holds: after any number of draws n, a kind of share p among k kinds was dealt p n times, off by less
//! than 1 + p (k - 2) operations (1 + p for a mix of two, usually under 2 for any); equal seeds deal equally.
//! Source: Anderson, "Fstress", sections 3.2 (operation mix), 5.2 (table 2), 6.2 (mix within 0.1%).

use files::OpKind;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::chains::{CHAINS_MAX, Chain};
use crate::error::ValueProblem;

/// Shares of the operations, as they were written and normalised.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    weights: Vec<(OpKind, f64)>,
    shares: [f64; OpKind::COUNT],
}

impl Mix {
    /// A mix of these weights, which need not sum to 100. An operation may stand once.
    pub fn new(weights: impl IntoIterator<Item = (OpKind, f64)>) -> Result<Self, ValueProblem> {
        let weights: Vec<_> = weights.into_iter().collect();
        let mut shares = [0.0; OpKind::COUNT];
        let mut seen = [false; OpKind::COUNT];
        for (op, weight) in &weights {
            if !weight.is_finite() || *weight < 0.0 {
                return Err(ValueProblem::new(
                    format_args!("{} = {weight}", op.name()),
                    "a number of 0 or more",
                ));
            }
            if std::mem::replace(&mut seen[*op as usize], true) {
                return Err(ValueProblem::new(op.name(), "each operation once"));
            }
            shares[*op as usize] = *weight;
        }
        let total: f64 = shares.iter().sum();
        if total.is_nan() || total <= 0.0 || total.is_infinite() {
            return Err(ValueProblem::new("an empty mix", "at least one operation with a share above zero"));
        }
        shares.iter_mut().for_each(|share| *share /= total);
        Ok(Self { weights, shares })
    }

    /// No operations: for a workload of chains alone.
    pub(crate) fn none() -> Self {
        Self { weights: vec![], shares: [0.0; OpKind::COUNT] }
    }

    /// What was written: operation and number, in that order, zeros included.
    pub fn as_written(&self) -> &[(OpKind, f64)] {
        &self.weights
    }

    /// Sum of the numbers as they were written; 100 if the author took care.
    pub fn total_as_written(&self) -> f64 {
        self.weights.iter().map(|(_, weight)| weight).sum()
    }

    /// Share of an operation in what is sent, 0 to 1.
    pub fn share(&self, op: OpKind) -> f64 {
        self.shares[op as usize]
    }

    /// Operations that do occur, with their shares (0 to 1), largest first.
    pub fn shares(&self) -> Vec<(OpKind, f64)> {
        let mut shares: Vec<_> = OpKind::ALL
            .into_iter()
            .map(|op| (op, self.share(op)))
            .filter(|(_, share)| *share > 0.0)
            .collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1));
        shares
    }

    /// Whether the operation occurs at all.
    pub fn has(&self, op: OpKind) -> bool {
        self.share(op) > 0.0
    }
}

/// What a deck deals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dealt {
    /// One operation of the mix.
    Op(OpKind),
    /// One of the workload's chains.
    Chain(usize),
}

/// Deals operations so that every stretch of them has the shares of the mix. See the head of this file.
#[derive(Clone, Debug)]
pub struct OpDeck {
    // Fixed point: one draw is 2^24 units of time. The low five bits of `due` hold the lane, so that the
    // smallest number names the operation to deal.
    due: [u64; LANES_MAX],
    interval_end: [u64; LANES_MAX],
    interval: [u64; LANES_MAX],
    ops: [OpKind; OpKind::COUNT],
    /// The first lane of a chain.
    chains_from: usize,
    lanes: usize,
    rng: Xoshiro256PlusPlus,
}

const UNITS_PER_DRAW: f64 = (1 << 24) as f64;
const LANE_BITS: u32 = 5;
const LANES_AT_ONCE: usize = 4;
const LANES_MAX: usize = (OpKind::COUNT + CHAINS_MAX).next_multiple_of(LANES_AT_ONCE);
const _: () = assert!(LANES_MAX <= 1 << LANE_BITS);
// Eight billion draws; then all times are moved back, so that they never overflow.
const TIME_MAX: u64 = 1 << 57;
const INTERVAL_MAX: u64 = 1 << 54;

impl OpDeck {
    /// A deck for `mix`, shuffled by `seed`.
    pub fn new(mix: &Mix, seed: u64) -> Self {
        Self::with_chains(mix, &[], seed)
    }

    /// A deck for `mix` and `chains` together.
    pub(crate) fn with_chains(mix: &Mix, chains: &[Chain], seed: u64) -> Self {
        let mut deck = Self {
            due: [u64::MAX; LANES_MAX],
            interval_end: [0; LANES_MAX],
            interval: [0; LANES_MAX],
            ops: OpKind::ALL,
            chains_from: 0,
            lanes: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        };
        let of_chains: f64 = chains.iter().map(Chain::weight).sum();
        let total = mix.total_as_written() + of_chains;
        // Exactly 1 without chains: they must not move what a seed deals.
        let of_mix = if of_chains > 0.0 { mix.total_as_written() / total } else { 1.0 };
        for (lane, (op, share)) in mix.shares().into_iter().enumerate() {
            deck.ops[lane] = op;
            deck.add_lane(share * of_mix);
        }
        deck.chains_from = deck.lanes;
        // A chain that is never offered has its lane, so that lanes count as chains do.
        chains.iter().for_each(|chain| deck.add_lane(chain.weight() / total));
        deck
    }

    fn add_lane(&mut self, share: f64) {
        let lane = self.lanes;
        self.lanes += 1;
        if share > 0.0 {
            self.interval[lane] = ((UNITS_PER_DRAW / share).round() as u64).min(INTERVAL_MAX);
            self.place_next(lane);
        }
    }

    /// The next operation of a mix without chains.
    #[inline]
    pub fn draw(&mut self) -> OpKind {
        let lane = self.draw_lane();
        self.ops[lane]
    }

    /// The next operation or chain.
    #[inline]
    pub(crate) fn deal(&mut self) -> Dealt {
        let lane = self.draw_lane();
        if lane < self.chains_from {
            Dealt::Op(self.ops[lane])
        } else {
            Dealt::Chain(lane - self.chains_from)
        }
    }

    #[inline]
    fn draw_lane(&mut self) -> usize {
        // Four minima at once, as each comparison would have to wait for the one before.
        let mut firsts = [u64::MAX; LANES_AT_ONCE];
        for dues in self.due[..self.lanes.next_multiple_of(LANES_AT_ONCE)].chunks_exact(LANES_AT_ONCE) {
            for (first, due) in firsts.iter_mut().zip(dues) {
                *first = (*first).min(*due);
            }
        }
        let first = firsts[0].min(firsts[1]).min(firsts[2].min(firsts[3]));
        let lane = (first & ((1 << LANE_BITS) - 1)) as usize;
        self.place_next(lane);
        if first >> LANE_BITS > TIME_MAX {
            self.move_times_back(first >> LANE_BITS);
        }
        lane
    }

    #[inline]
    fn place_next(&mut self, lane: usize) {
        let within = ((u128::from(self.rng.next_u64()) * u128::from(self.interval[lane])) >> 64) as u64;
        self.due[lane] = (self.interval_end[lane] + within) << LANE_BITS | lane as u64;
        self.interval_end[lane] += self.interval[lane];
    }

    // The interval that holds `due` may have begun before `by`, but its end has not come, so nothing is lost.
    #[cold]
    fn move_times_back(&mut self, by: u64) {
        for lane in (0..self.lanes).filter(|lane| self.interval[*lane] > 0) {
            self.interval_end[lane] -= by;
            self.due[lane] -= by << LANE_BITS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(weights: &[(OpKind, f64)]) -> Mix {
        Mix::new(weights.iter().copied()).unwrap()
    }

    #[test]
    fn numbers_that_do_not_sum_to_100_are_normalised_and_kept_as_written() {
        let mix = mix(&[(OpKind::Read, 60.0), (OpKind::Write, 20.0), (OpKind::Mkdir, 0.0)]);
        assert_eq!(mix.share(OpKind::Read), 0.75);
        assert_eq!(mix.total_as_written(), 80.0);
        assert_eq!(mix.as_written()[1], (OpKind::Write, 20.0));
        assert_eq!(mix.shares(), vec![(OpKind::Read, 0.75), (OpKind::Write, 0.25)]);
        assert!(!mix.has(OpKind::Mkdir));
    }

    #[test]
    fn a_mix_of_nothing_or_of_negative_shares_is_refused() {
        assert!(Mix::new([]).is_err());
        assert!(Mix::new([(OpKind::Read, 0.0)]).is_err());
        assert!(Mix::new([(OpKind::Read, -1.0)]).is_err());
        assert!(Mix::new([(OpKind::Read, f64::NAN)]).is_err());
        assert!(Mix::new([(OpKind::Read, 1.0), (OpKind::Read, 1.0)]).is_err());
    }

    #[test]
    fn the_same_seed_deals_the_same_and_another_deals_otherwise() {
        let mix = mix(&[(OpKind::Read, 54.0), (OpKind::Write, 35.0), (OpKind::Getattr, 11.0)]);
        let dealt = |seed| {
            let mut deck = OpDeck::new(&mix, seed);
            (0..200).map(|_| deck.draw()).collect::<Vec<_>>()
        };
        assert_eq!(dealt(1), dealt(1));
        assert_ne!(dealt(1), dealt(2));
    }

    #[test]
    fn the_deal_is_irregular_from_one_request_to_the_next() {
        let mix = mix(&[(OpKind::Read, 50.0), (OpKind::Write, 50.0)]);
        let mut deck = OpDeck::new(&mix, 3);
        let mut longest_run = 0;
        let mut run = 0;
        let mut previous = OpKind::Null;
        for _ in 0..10_000 {
            let op = deck.draw();
            run = if op == previous { run + 1 } else { 1 };
            previous = op;
            longest_run = longest_run.max(run);
        }
        assert!((2..=4).contains(&longest_run), "{longest_run}");
    }

    #[test]
    fn moving_times_back_after_billions_of_draws_loses_no_operation() {
        let mix = mix(&[(OpKind::Read, 70.0), (OpKind::Write, 29.9), (OpKind::Create, 0.1)]);
        let mut deck = OpDeck::new(&mix, 9);
        let later = TIME_MAX - 5_000 * (1 << 24);
        for lane in 0..deck.lanes {
            deck.interval_end[lane] += later;
            deck.due[lane] += later << LANE_BITS;
        }
        let mut counts = [0u32; OpKind::COUNT];
        for _ in 0..20_000 {
            counts[deck.draw() as usize] += 1;
        }
        assert!(deck.interval_end[0] < TIME_MAX / 2, "times were not moved back");
        assert!(counts[OpKind::Read as usize].abs_diff(14_000) <= 2, "{counts:?}");
        assert!(counts[OpKind::Create as usize].abs_diff(20) <= 1, "{counts:?}");
    }
}
