//! The caching web proxy on the packed store.
//!
//! ```text
//! config ─> server: listener ─ connection ─ exchange ─┬─> shelf ─> packstore        rules decide at every step
//!                     admin, log                      └─> fetch ─> origin ─> fill ─> readers, shelf
//! ```
//!
//! Always holds: what HTTP lets a shared cache do is said in [`rules`] alone, without a socket, a file or a clock; a loop
//! waits for no disk that writes.
//! Not here: the store's layout (`packstore`), opening it, flags and signals (`crumb`), traffic (`webload`).
//! Design: `docs/design/webcache.md`.

mod admin;
pub mod config;
#[doc(hidden)]
pub mod fuzzing;
pub mod icp;
pub mod log;
pub mod rules;
pub mod server;
pub mod shelf;

// What a caller names at every request; the rest is asked for by its module.
pub use rules::{Exchange, Refusal, Reuse, decide, judge};
pub use rules::{Extent, Meta, MetaError, Policy, RequestFacts, StoredFacts, WallSeconds};
