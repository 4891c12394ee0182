//! One file a verb: flags in, reports out, no logic worth a unit test.

pub mod report;
pub mod run_fstress;
pub mod runs;
pub mod serve;
pub mod workload;
