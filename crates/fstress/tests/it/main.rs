//! Runs of Fstress on storage whose behaviour is known, and its workloads.

mod file_set;
mod interrupted;
mod known_latency;
mod ranks;
mod silent;
mod split;
mod verdicts;
mod workload_builtin;
mod workload_deck;
mod workload_derive;
mod workload_mistakes;
mod workload_objects;
