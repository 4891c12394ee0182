//! Several runs as one experiment: the order in which the sides of a comparison are measured, and when the rounds are enough.
//!
//! ```text
//! rounds 1 and 2: A B, B A     rounds 3 and 4: A B, B A or B A, A B, as the seed draws
//! ```
//!
//! Always holds: what drifts evenly in the machine adds the same to each side.
//! Not here: what a side is and how it is mounted (the binary), comparing (see `report`).

use std::time::Duration;

use measure::statistics::{median_interval, relative_half_width};

/// In which order the sides of each round are measured.
#[derive(Clone, Copy, Debug)]
pub struct TurnOrder {
    /// How many sides there are.
    pub sides: usize,
    /// Same seed, same order.
    pub seed: u64,
}

impl TurnOrder {
    /// Two rounds belong together: the second is the first backwards, so that a steady drift adds the same to each side.
    /// Which order the first has is drawn for each pair: in a fixed pattern each side would meet the same part of a load
    /// that comes and goes with the period of the turns.
    pub fn of_round(self, round: u32) -> Vec<usize> {
        let mut state = self.seed ^ (u64::from(round / 2) << 32);
        let mut order: Vec<usize> = (0..self.sides).collect();
        for last in (1..self.sides).rev() {
            order.swap(last, (split_mix(&mut state) % (last as u64 + 1)) as usize);
        }
        if round % 2 == 1 {
            order.reverse();
        }
        order
    }
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What a side is called: `A`, `B`, …, `Z`, `AA`, …
pub fn side_name(side: usize) -> String {
    let letter = char::from(b'A' + (side % 26) as u8);
    letter.to_string().repeat(side / 26 + 1)
}

/// When a series has rounds enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StopRule {
    /// No more rounds than this.
    pub rounds_max: u32,
    /// Rounds until the confidence interval of each side's median reaches no further than this share of it to either side.
    pub half_width: Option<f64>,
    /// With `half_width`: no further round begins after this time.
    pub time_limit: Duration,
}

/// What a [`StopRule`] says after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enough {
    /// Another round.
    No,
    /// The medians are known well enough.
    Known,
    /// The time is up before that.
    TimeUp,
}

/// Of the interval of a median.
pub const CONFIDENCE: f64 = 0.95;

/// Code of the remark on what was measured again because the machine or the generator, and not the storage, spoilt it.
pub const MEASURED_AGAIN: &str = "measured-again";

impl StopRule {
    /// Whether the rounds are enough, `elapsed` after the first began. `figures` are those that each side is judged by.
    pub fn after_round(&self, elapsed: Duration, figures: impl IntoIterator<Item = Vec<f64>>) -> Enough {
        let Some(half_width) = self.half_width else { return Enough::No };
        let mut figures = figures.into_iter().peekable();
        let any = figures.peek().is_some();
        let known = |figures: Vec<f64>| {
            median_interval(&figures, CONFIDENCE)
                .is_some_and(|interval| relative_half_width(interval) <= half_width)
        };
        match any && figures.all(known) {
            true => Enough::Known,
            false if elapsed >= self.time_limit => Enough::TimeUp,
            false => Enough::No,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_rounds_goes_there_and_back_so_that_each_side_is_first_as_often() {
        for (sides, seed) in [(2, 1), (2, 7), (3, 1), (5, 42)] {
            let order = TurnOrder { sides, seed };
            for pair in 0..50 {
                let (there, mut back) = (order.of_round(2 * pair), order.of_round(2 * pair + 1));
                back.reverse();
                assert_eq!(there, back, "{order:?}, pair {pair}");
                let mut all = there;
                all.sort_unstable();
                assert_eq!(all, (0..sides).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn which_side_begins_a_pair_is_drawn_from_the_seed_and_never_a_fixed_pattern() {
        let begins = |seed| -> Vec<usize> {
            (0..64).map(|pair| TurnOrder { sides: 2, seed }.of_round(2 * pair)[0]).collect()
        };
        let drawn = begins(1);
        assert_eq!(drawn, begins(1), "the same seed, the same order");
        assert_ne!(drawn, begins(2));
        let of_b: usize = drawn.iter().sum();
        assert!((16..=48).contains(&of_b), "B begins {of_b} of 64 pairs");
        for period in 1..=8 {
            assert!(
                (period..64).any(|at| drawn[at] != drawn[at - period]),
                "comes again every {period} pairs"
            );
        }
    }

    #[test]
    fn sides_beyond_z_are_still_told_apart() {
        assert_eq!([0, 1, 25, 26].map(side_name), ["A", "B", "Z", "AA"]);
    }

    #[test]
    fn rounds_go_on_until_each_side_is_known_or_the_time_is_up() {
        let rule = StopRule { rounds_max: 100, half_width: Some(0.05), time_limit: Duration::from_secs(60) };
        let (early, late) = (Duration::from_secs(1), Duration::from_secs(61));
        let narrow = vec![100.0, 101.0, 99.0, 100.0, 100.0, 100.5];
        let wide = vec![100.0, 200.0, 50.0, 100.0, 170.0, 60.0];
        assert_eq!(rule.after_round(early, [narrow.clone(), narrow.clone()]), Enough::Known);
        assert_eq!(rule.after_round(early, [narrow.clone(), wide.clone()]), Enough::No);
        assert_eq!(rule.after_round(late, [narrow.clone(), wide]), Enough::TimeUp);
        assert_eq!(rule.after_round(early, [vec![1.0]]), Enough::No, "one figure has no interval");
        assert_eq!(rule.after_round(early, []), Enough::No, "nothing measured is not known");
        let rounds_alone = StopRule { half_width: None, ..rule };
        assert_eq!(rounds_alone.after_round(late, [narrow]), Enough::No);
    }
}
