//! The spool's own time: a pass is half a day, as in the paper, however long it takes to run.
//!
//! Arrival times come from it, so that the same feed gives the same history and expiry does not depend on the speed of
//! what is measured. It begins at 1 August 1995, the month of the paper's feed.

/// 1 August 1995, 00:00 UTC, as Unix time.
const EPOCH: u64 = 807_235_200;
/// Two expiries a day.
const PASS_SECONDS: u64 = 43_200;

/// When batch `batch` of `batches` arrives in a pass (from 1), Unix time.
pub(crate) fn arrival(pass: u32, batch: u64, batches: u64) -> u64 {
    let within = u128::from(batch.min(batches)) * u128::from(PASS_SECONDS - 1) / u128::from(batches.max(1));
    begin_of(pass) + within as u64
}

/// When a pass begins.
pub(crate) fn begin_of(pass: u32) -> u64 {
    EPOCH + u64::from(pass.max(1) - 1) * PASS_SECONDS
}

/// The pass in which this arrived; 0 before the first.
pub(crate) fn pass_of(arrived: u64) -> u32 {
    arrived.checked_sub(EPOCH).map_or(0, |since| u32::try_from(since / PASS_SECONDS + 1).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_batch_of_a_pass_arrives_within_it() {
        for pass in [1, 2, 14, 1000] {
            for batch in 0..=592 {
                assert_eq!(pass_of(arrival(pass, batch, 592)), pass);
            }
            assert_eq!((pass_of(begin_of(pass)), pass_of(begin_of(pass) - 1)), (pass, pass - 1));
        }
    }
}
