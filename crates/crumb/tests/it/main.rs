//! The binary as people and scripts use it: every verb, its output, its exit codes, and how it ends.
//!
//! Two programs stand beside this one. `golden_records` compares records of timed runs, so it has the CPUs to itself.
//! `house` holds what the texts and the sources must keep to, with no server and no root: `make quick` runs it.

mod advise_predict;
mod benchmark_pages;
mod binary;
mod clean;
mod compare;
mod costs;
mod demo;
mod dirscale;
mod doctor;
mod dry_run;
mod ends;
mod feed;
mod file_system_servers;
mod fstress_servers;
mod generate;
mod live_view;
mod manage;
mod mark;
mod metrics_page;
mod mount;
mod netnews;
mod online;
mod overhead;
mod pack;
mod pack_lifetimes;
mod pack_tree;
mod postmark;
mod proxy;
mod quick;
mod report;
mod run_postmark;
mod runs;
mod sample;
mod sensitivity;
mod serve;
mod shootout;
mod webload;
mod workload;
