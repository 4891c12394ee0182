//! The store as its callers see it: on real, full, failing and simulated disks, across kills and loss of power.

mod crash;
mod cyclic;
mod direct;
mod disks;
mod expiring;
mod faults;
mod format;
mod limits;
mod model;
mod serving;
mod threads;
mod times;
