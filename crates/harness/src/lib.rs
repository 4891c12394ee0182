//! What every benchmark needs from its surroundings.
//!
//! ```text
//! verb (flags) -> Benchmark::run on each rank -> merge -> figures -> RunRecord
//! ```
//!
//! Here: the path of a run ([`Benchmark`], [`run`]), what it reports on its way ([`Event`]), several ranks that run as one
//! ([`ranks`]), the gate before each phase ([`PhaseGate`]), the order of rounds and when they are enough ([`series`]), the marks
//! that a user sets meanwhile ([`marks`]), the
//! rules of an open loop ([`open_loop`]).
//! Always holds: nothing here knows a benchmark, its storage, or how bytes get from one rank to another.
//! Not here: what a benchmark does (`fstress`, `postmark`, `netnews`), storage (see `files`), what is counted and recorded
//! (see `measure`), the message passing (`crumb-mpi`), terminals and files of results (see `crumb`).

mod benchmark;
mod event;
pub mod marks;
pub mod open_loop;
mod phase_gate;
pub mod ranks;
pub mod series;

pub use self::benchmark::{Benchmark, Context, Ended, Figures, Ran, RunError, Surroundings, run};
pub use self::event::{Event, Events, Heard, Level, LevelsAfter, Live, PhaseLive, Stage, Step};
pub use self::phase_gate::{Entry, NoGate, PhaseGate, RankState};
pub use self::ranks::RanksError;
