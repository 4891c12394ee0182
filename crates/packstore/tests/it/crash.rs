//! Loss of power at every operation of many histories, on a simulated disk; faults; and real kills of a real process.
//!
//! `CRUMB_CRASH_POINTS` (10,000 unless told) is how many crash points are tried, `CRUMB_CRASH_SEED` where the seeds begin:
//! a soak is many points from another seed. `CRUMB_CRASH_ONLY=seed:operation` tries one again.

mod attacked;
mod faults;
mod kills;
mod lost;
mod misplaced;
mod model;
mod points;
mod rebuild;
mod repair_killed;
mod repaired;
mod scenario;
