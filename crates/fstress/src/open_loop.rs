//! The open loop of a load point: when a request is due, which one it is, and how it is sent.
//!
//! ```text
//! arrivals (when) --+--> metronome --> files::Transport --> replies --> results::tally, results::raw
//! planner (what)  --'
//! ```
//!
//! Not here: which load levels there are (`load`), waiting and lateness (`harness::open_loop`).

pub(super) mod arrivals;
pub(super) mod metronome;
pub(super) mod planner;
