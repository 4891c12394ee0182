//! Feeds made, imported and cloned; spools stored, expired, fed on, killed and recovered; INN as a witness.
//!
//! A program of its own: `feed_synthesize` watches the memory of the process.

mod feed_clone;
mod feed_import;
mod feed_large;
mod inn;
mod real;
mod scratch;
mod spool_expiry;
mod spool_gate;
mod spool_killed;
mod spool_passes;
mod spool_real;
mod spool_scene;
mod spool_sync;
