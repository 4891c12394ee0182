//! The caching web proxy on the packed store.
//!
//! ```text
//! config ─> server: client ─> answer ─┬─> object_cache ─> packstore      http-cache-rules decides at each step
//!            admin, log      (driver) └─> fetch ─> upstream ─> origin
//!                                           └─> readers, object_cache
//! ```
//!
//! Always holds: [`http_cache_rules`] alone says what HTTP allows a shared cache to do, without a socket, file or clock. No event
//! loop waits for a disk write.
//! Not here: the store's layout (`packstore`), opening it, flags and signals (`crumb`), generating load (`webload`).
//! Design: `docs/design/webcache.md`.

mod admin;
pub mod config;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod icp;
pub mod log;
pub mod object_cache;
pub mod server;

pub use error::WebcacheError;
