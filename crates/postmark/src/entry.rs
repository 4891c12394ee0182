//! What PostMark says of its records, for lists, comparisons and pages.

use measure::{BenchmarkEntry, Role};

/// Its metrics and the roles of its configuration's fields.
pub const ENTRY: BenchmarkEntry =
    BenchmarkEntry { settings: &[("nfs", Role::Reach)], ..BenchmarkEntry::of(crate::figures::METRICS) };
