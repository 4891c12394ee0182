//! Fields of HTTP messages, read and written one by one: directives, dates, lists, validators.
//!
//! Not here: what the fields mean for a reply that is to be stored or reused (see `storing`, `freshness`, `reuse`).

pub mod cache_control;
pub mod cache_status;
pub mod date;
pub mod lists;
pub mod targeted;
pub mod validators;
pub mod vary;
