//! Other caches: beside this one and above it, asked by ICP and answered.

pub(super) mod answering;
pub(super) mod hashing;
pub(super) mod neighbours;
pub(super) mod siblings;
