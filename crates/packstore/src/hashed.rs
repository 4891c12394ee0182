//! Hash tables whose keys are numbers that this program chose: hashes of keys, or places on a volume.

/// Strangers choose the keys of objects, and not what these tables are searched by: that is a hash under the store's own seed.
/// So the table needs no secret of its own, and takes a fifth of the time of std's hasher.
pub(crate) type Hashed = foldhash::fast::FixedState;
