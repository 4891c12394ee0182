//! What Fstress says of its records, for lists, comparisons and pages.

use measure::{BenchmarkEntry, Role};

/// Its metrics and the roles of its configuration's fields.
pub const ENTRY: BenchmarkEntry = BenchmarkEntry {
    settings: &[
        ("workload", Role::Identity),
        ("workload_toml", Role::Identity),
        // Sets of files are named after their runs.
        ("file_set", Role::Place),
        ("proto", Role::Reach),
        ("wait", Role::Chosen),
        ("cpus_awake", Role::Chosen),
    ],
    answer: crate::answer::answer,
    ..BenchmarkEntry::of(crate::METRICS)
};
