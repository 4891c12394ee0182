//! Which batches of a feed each pass stores.
//!
//! ```text
//! 10 batches, 4 passes                        1 2 | 3 4 5 | 6 7 | 8 9 10     all, spread evenly
//! 8,277 batches, 14 passes of 592             … | 7697 … 8277                the last pass is short by 11, as the paper's
//! 10 batches, 3 passes of 2                   1 2 | 3 4 | 5 6                4 are not offered, and the run says so
//! ```
//!
//! Always holds: each pass has at least one batch; batches come in the feed's order, none twice.

use std::num::NonZeroU64;

use crate::NetnewsError;
use crate::spool::config::NetnewsConfig;

/// How a feed is spread over passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    batches: u64,
    passes: u32,
    /// None: evenly.
    per_pass: Option<NonZeroU64>,
}

impl Split {
    /// # Errors
    /// When a pass would have no batch.
    pub(crate) fn of(batches: u64, config: &NetnewsConfig) -> Result<Self, NetnewsError> {
        let passes = config.passes.get();
        let even = batches / u64::from(passes);
        let per_pass = match config.batches_per_pass {
            // Where it comes out even the passes are of one size: a run of other passes may go on with it.
            None if batches.is_multiple_of(passes.into()) => NonZeroU64::new(even),
            asked => asked,
        };
        let split = Self { batches, passes, per_pass };
        if even == 0 || split.end_of(passes - 1) >= batches {
            let per_pass = config.batches_per_pass;
            return Err(NetnewsError::FeedTooSmall { batches, passes, per_pass });
        }
        Ok(split)
    }

    /// The last batch of a pass, which is how many there were until then.
    pub(crate) fn end_of(&self, pass: u32) -> u64 {
        match self.per_pass {
            Some(per_pass) => per_pass.get().saturating_mul(pass.into()).min(self.batches),
            None => {
                let end = u128::from(self.batches) * u128::from(pass) / u128::from(self.passes);
                u64::try_from(end).unwrap_or(u64::MAX)
            }
        }
    }

    /// The first batch of a pass.
    pub(crate) fn begin_of(&self, pass: u32) -> u64 {
        self.end_of(pass - 1) + 1
    }

    /// Batches of a pass, as if the last one were not short: what its time is divided by.
    pub(crate) fn slots_of(&self, pass: u32) -> u64 {
        self.per_pass.map_or_else(|| self.end_of(pass) - self.end_of(pass - 1), NonZeroU64::get)
    }

    /// Batches of all passes together.
    pub(crate) fn offered(&self) -> u64 {
        self.end_of(self.passes)
    }

    /// For the journal: what two runs must have in common to work on one spool.
    pub(crate) fn per_pass(&self) -> u64 {
        self.per_pass.map_or(0, NonZeroU64::get)
    }

    /// For the journal: passes that the feed is spread over, where they are not of one size.
    pub(crate) fn spread_over(&self) -> Option<u32> {
        self.per_pass.is_none().then_some(self.passes)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn split(batches: u64, passes: u32, per_pass: u64) -> Result<Split, NetnewsError> {
        let passes = NonZeroU32::new(passes).unwrap();
        let batches_per_pass = NonZeroU64::new(per_pass);
        Split::of(batches, &NetnewsConfig { passes, batches_per_pass, ..NetnewsConfig::paper("x") })
    }

    fn ends(batches: u64, passes: u32, per_pass: u64) -> Vec<u64> {
        let split = split(batches, passes, per_pass).unwrap();
        (1..=passes).map(|pass| split.end_of(pass)).collect()
    }

    #[test]
    fn the_papers_feed_has_a_short_last_pass() {
        let ends = ends(8277, 14, 592);
        assert_eq!((ends[0], ends[12], ends[13]), (592, 7696, 8277));
        assert_eq!(split(8277, 14, 592).unwrap().offered(), 8277);
        assert_eq!(split(8277, 14, 592).unwrap().slots_of(14), 592);
    }

    #[test]
    fn without_a_size_every_batch_is_in_a_pass_and_no_two_passes_differ_by_more_than_one() {
        for (batches, passes) in [(10, 4), (5, 4), (14, 14), (8277, 14), (27, 14), (183, 5)] {
            let split = split(batches, passes, 0).unwrap();
            assert_eq!((split.end_of(0), split.offered()), (0, batches));
            let of: Vec<u64> = (1..=passes).map(|pass| split.slots_of(pass)).collect();
            let (least, most) = (of.iter().min().unwrap(), of.iter().max().unwrap());
            assert!(*least > 0 && most - least <= 1, "{of:?}");
            assert_eq!(of.iter().sum::<u64>(), batches);
        }
        assert_eq!(ends(10, 4, 0), [2, 5, 7, 10]);
    }

    #[test]
    fn a_pass_without_a_batch_is_refused_and_what_is_left_out_is_known() {
        assert_eq!(split(10, 3, 2).unwrap().offered(), 6);
        for (batches, passes, per_pass) in [(3, 4, 0), (10, 4, 4), (0, 1, 0), (592, 2, 592)] {
            let message = split(batches, passes, per_pass).unwrap_err().to_string();
            assert!(message.contains(&format!("{batches} batches")), "{message}");
        }
    }
}
