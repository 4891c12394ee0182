//! The file set on the storage: made before the first load point, grown and shrunk between load points, removed at the end.
//!
//! ```text
//! objects (what there is to be) --> builder (what is missing or too much) --> crew (many requests in flight) --> storage
//!                                      `--> progress (what it is at, for a listener)
//! ```
//!
//! Not here: what the generator knows of its files (see `objects`).

pub(super) mod builder;
pub(super) mod crew;
pub(super) mod payload;
pub(super) mod progress;
