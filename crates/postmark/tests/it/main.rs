//! PostMark as a user talks to it, against recordings, beside the original, and on storage that fails.

mod against_original;
mod golden;
mod never_astray;
mod talk;
