//! The stackable file system on real file systems: what it shows, what it keeps, and how directories are converted.
//!
//! Four programs stand beside this one. `descriptors` sets the process's limit on descriptors, `lost_changes` the machine's limit
//! on changes that wait to be read. `waking` sees whether idle
//! CPUs are kept awake, which holds only while nothing else runs. `posix` runs the conformance suite, for minutes.

mod convert;
mod counted;
mod differential;
mod half_converted;
mod lifecycle;
mod listing;
mod online;
mod reopening;
mod ring;
mod scene;
mod semantics;
mod strangers;
mod translation;
mod unopened;
mod watching;
