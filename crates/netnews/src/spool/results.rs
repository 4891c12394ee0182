//! What a run measured and what it comes to: counts, the raw part of each rank, figures, verdict.
//!
//! ```text
//! passes --> Outcome (counts of one run) --> Part, one a rank --merged--> figures, verdict
//! ```
//!
//! Always holds: figures and verdict are computed from the merged part alone.
//! Not here: timing a phase (see `passes::meter`), what a page shows (`crate::views`).

pub(super) mod bound;
pub(super) mod counts;
pub(super) mod figures;
pub(super) mod outcome;
pub(super) mod part;
pub(super) mod verdict;
