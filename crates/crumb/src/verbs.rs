//! One file a verb: flags in, reports out, no logic worth a unit test.

pub mod advise;
pub mod check;
pub mod compare;
pub mod feed;
pub mod feed_verify;
pub mod manage;
pub mod mount;
pub mod pack;
pub mod postmark;
pub mod proxy;
pub mod report;
pub mod run;
pub mod runs;
pub mod serve;
pub mod serve_origin;
pub mod unmanage;
pub mod unmount;
pub mod workload;
