//! What people and programs read of a run while it goes on and when it ended: results, notes, progress, tables.
//!
//! Always holds: results go to standard output, everything else to standard error.
//! Not here: errors and exit codes (`exit`), HTML and SVG (`report`).

pub(super) mod layout;
pub(super) mod output;
pub(super) mod progress;
pub(super) mod slow_server;
pub(super) mod tables;
