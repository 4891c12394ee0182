//! What every benchmark needs from its surroundings.
//!
//! A benchmark decides what to ask of storage and what the answers mean. What several of them share is here: so far the
//! rules of an open loop ([`open_loop`]).
//!
//! Not here: storage (see `files`), what is counted and recorded (see `measure`), terminals and files of results (see
//! `crumb`).

pub mod open_loop;
