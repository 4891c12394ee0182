//! What every benchmark needs from its surroundings.
//!
//! ```text
//! verb (flags) -> a benchmark's run on each rank -> ranks: begin together, add up -> RunRecord
//! ```
//!
//! Here: several ranks that run as one ([`ranks`]), the gate before each phase ([`PhaseGate`]), the rules of an open loop
//! ([`open_loop`]).
//! Always holds: nothing here knows a benchmark, its storage, or how bytes get from one rank to another.
//! Not here: what a benchmark does (`fstress`, `postmark`, `netnews`), storage (see `files`), what is counted and recorded
//! (see `measure`), the message passing (`crumb-mpi`), terminals and files of results (see `crumb`).

pub mod open_loop;
mod phase_gate;
pub mod ranks;

pub use self::phase_gate::{Entry, NoGate, PhaseGate, RankState};
pub use self::ranks::RanksError;
