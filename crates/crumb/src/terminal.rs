//! What people and programs read of a run, during it and at its end: results, notes, progress, tables.
//!
//! Always holds: results go to standard output, everything else to standard error.
//! Not here: errors and exit codes (`exit`), HTML and SVG (`report`).

pub(super) mod layout;
pub(super) mod live;
pub(super) mod output;
pub(super) mod progress;
pub(super) mod screen;
pub(super) mod slow_server;
pub(super) mod summary;
pub(super) mod tables;
