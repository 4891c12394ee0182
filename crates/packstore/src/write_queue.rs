//! Changes on their way to disk.

pub(crate) mod buffer;
pub(crate) mod direct;
pub(crate) mod group;
pub(crate) mod keys;
pub(crate) mod requests;
pub(crate) mod staging;
pub(crate) mod syncing;
