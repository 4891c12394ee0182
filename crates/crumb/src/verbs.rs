//! One file a verb: flags in, reports out, no logic worth a unit test.

#[cfg(feature = "mount")]
pub mod advise;
#[cfg(feature = "mount")]
pub mod check;
pub mod compare;
pub mod feed;
pub mod feed_verify;
#[cfg(feature = "mount")]
pub mod manage;
#[cfg(feature = "mount")]
pub mod mount;
#[cfg(feature = "pack")]
pub mod pack;
pub mod postmark;
#[cfg(feature = "proxy")]
pub mod proxy;
pub mod report;
pub mod run;
pub mod runs;
pub mod serve;
pub mod serve_origin;
#[cfg(feature = "mount")]
pub mod unmanage;
#[cfg(feature = "mount")]
pub mod unmount;
pub mod workload;
