//! What a load point measured and what it comes to: counts by kind, raw requests, the judgement.
//!
//! Not here: adding up the parts of several ranks (see `ranks`), what is said of a record (`entry`).

pub(super) mod judge;
pub(super) mod raw;
pub(super) mod tally;
