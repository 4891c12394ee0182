//! What can go wrong between ranks.

use super::Lost;

/// Why the ranks of a run do not go on together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RanksError {
    /// The user asked to stop, here or on another rank.
    #[error("interrupted")]
    Interrupted,
    /// It went wrong on another rank.
    #[error("rank {rank} on {host}: {why}")]
    Elsewhere {
        /// Which rank.
        rank: u32,
        /// Where it runs.
        host: String,
        /// What it says.
        why: String,
    },
    /// A rank does not answer any more.
    #[error("the run ends with what was measured until then")]
    Lost(#[from] Lost),
    /// The ranks do not mean to do the same.
    #[error("the ranks differ in the {what}: {first}, but {other}; start the same on all hosts")]
    Unlike {
        /// In what.
        what: String,
        /// What rank 0 has, and where.
        first: String,
        /// What another one has, and where.
        other: String,
    },
}
