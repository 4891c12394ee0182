//! What every benchmark needs from its surroundings.
//!
//! A benchmark decides what to ask of storage and what the answers mean. What several of them share is here: so far the
//! rules of an open loop ([`open_loop`]) and the gate before each phase ([`PhaseGate`]).
//!
//! Not here: storage (see `files`), what is counted and recorded (see `measure`), terminals and files of results (see
//! `crumb`).

pub mod open_loop;
mod phase_gate;

pub use self::phase_gate::{Entry, NoGate, PhaseGate, RankState};
