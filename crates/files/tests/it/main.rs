//! The seams to storage on a real directory: closed loops, an open loop, and the rules that every directory follows.

mod directory_conformance;
mod directory_transport;
mod local_fs;
