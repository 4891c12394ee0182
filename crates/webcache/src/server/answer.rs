//! Answers requests: the loop that decides and executes, and the replies that it builds.
//!
//! ```text
//! handler ─> driver ─┬─> stored ─> reply          background: fetches without a client
//!                    └─> server::fetch ─> reply
//! ```

pub(super) mod background;
pub(super) mod driver;
pub(super) mod handler;
pub(super) mod reply;
pub(super) mod stored;
