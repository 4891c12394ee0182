//! What dirscale says of its records, for lists, comparisons and pages.

use measure::{BenchmarkEntry, Role};

/// Its metrics, the roles of its configuration's fields, and the remark that is its answer.
pub const ENTRY: BenchmarkEntry = BenchmarkEntry {
    settings: &[("set", Role::Place), ("storage", Role::Reach)],
    answers: &["pays-from"],
    ..BenchmarkEntry::of(crate::METRICS)
};
