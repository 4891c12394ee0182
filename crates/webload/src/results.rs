//! What a run measured and what it comes to: counts by phase and over time, the part of all generators, points, verdict.
//!
//! ```text
//! generators --> Tally (one a phase), Curves --merged--> Part --judge--> points, phases, metrics, verdict
//! ```
//!
//! Not here: counting while a generator runs (see `generator::statistics`), what a page shows (`views`).

pub(super) mod curves;
pub(super) mod judge;
pub(super) mod part;
pub(super) mod tally;
