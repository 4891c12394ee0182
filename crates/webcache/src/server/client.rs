//! A client's connection: accept it, guard it, parse its requests, write its replies.
//!
//! ```text
//! listener ─> connection (request_guard ─ hyper) ─> parsed_request ─> ... ─> reply_body ─> access_entry, request_count
//!                                              └─> tunnel
//! ```

pub(super) mod access_entry;
pub(super) mod chunks;
pub(super) mod connection;
pub(super) mod listener;
pub(crate) mod parsed_request;
pub(super) mod reply_body;
pub(super) mod request_count;
pub(crate) mod request_guard;
pub(super) mod tunnel;
