//! The caching web proxy on the packed store.
//!
//! ```text
//! config ─> server: client ─> answer ─┬─> object_cache ─> packstore      http-cache-rules decides at every step
//!            admin, log      (driver) └─> fetch ─> upstream ─> origin
//!                                           └─> readers, object_cache
//! ```
//!
//! Always holds: what HTTP lets a shared cache do is said in [`http_cache_rules`] alone, without a socket, a file or a clock; a loop
//! waits for no disk that writes.
//! Not here: the store's layout (`packstore`), opening it, flags and signals (`crumb`), traffic (`webload`).
//! Design: `docs/design/webcache.md`.

mod admin;
pub mod config;
#[doc(hidden)]
pub mod fuzzing;
pub mod icp;
pub mod log;
pub mod object_cache;
pub mod server;
