//! Many sockets in one thread: robots and the origin wait for theirs in the same way.
//!
//! `poller` waits for all of them and for a moment; `slots` numbers the connections, so that an event reaches the right one.

pub(super) mod poller;
pub(super) mod slots;
