//! The numbers that PostMark 1.51 draws: MT19937 as seeded in its form of 1999/10/28.
//!
//! That form fills the 624 words of state from one congruential generator, 16 bits at a time; the form of 2002,
//! which `rand_mt` seeds with, gives other numbers from the same seed. From there on both are one generator.
//! Source: M. Matsumoto and T. Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998.

use rand_mt::Mt;

/// A generator in a known state. Same seed, same numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    twister: Mt,
}

const STATE_WORDS: usize = 624;

impl Random {
    pub(crate) fn seeded(seed: u32) -> Self {
        let mut congruential = seed;
        let mut upper_half = || {
            let upper = congruential & 0xffff_0000;
            congruential = congruential.wrapping_mul(69_069).wrapping_add(1);
            upper
        };
        let state: [u32; STATE_WORDS] = std::array::from_fn(|_| upper_half() | upper_half() >> 16);
        // The crate takes a state only as the outputs it would have made, which is a bijection.
        let twister = Mt::recover(state.map(tempered)).expect("the array has as many words as the state");
        Self { twister }
    }

    /// A number below `bound`. A bound of 0 gives 0 and draws nothing, which other draws depend on.
    #[inline]
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        if bound == 0 { 0 } else { self.twister.next_u32() % bound }
    }
}

fn tempered(word: u32) -> u32 {
    let mut y = word ^ word >> 11;
    y ^= y << 7 & 0x9d2c_5680;
    y ^= y << 15 & 0xefc6_0000;
    y ^ y >> 18
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_state_is_reached_and_seed_42_draws_what_the_original_writes_into_files() {
        let mut random = Random::seeded(42);
        let drawn: Vec<u8> = (0..32).map(|_| b' ' + random.below(95) as u8).collect();
        assert_eq!(drawn, b"LeZebJ6S5~qPv$C$py}hmKd H58nM4~.");
        // 624 outputs make one state; behind it the twist must have happened.
        let later: Vec<u8> = (32..4128).map(|_| b' ' + random.below(95) as u8).skip(4064).collect();
        assert_eq!(later, b"KDIbi>%L^u%*$D'*;G;y}#9ur[!US]=o");
    }

    #[test]
    fn a_bound_of_zero_draws_nothing() {
        let (mut one, mut other) = (Random::seeded(42), Random::seeded(42));
        assert_eq!(one.below(0), 0);
        assert_eq!(one.below(1000), other.below(1000));
    }
}
