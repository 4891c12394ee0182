//! Messages as a proxy forwards and makes them: framing, fields between hops, conditions, parts of a body.
//!
//! Not here: whether a reply is stored or reused (see `decide`, `response`).

pub mod completion;
pub mod conditional;
pub mod forwarding;
pub mod framing;
pub mod ranges;
