//! Crashes: of simulated machines at every operation of a history, and of real processes.

mod history;
mod kills;
mod merges;
mod model;
mod points;
