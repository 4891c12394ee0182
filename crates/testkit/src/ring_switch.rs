//! FUSE over io_uring, switched on or off for the moment in which a mount begins. A mount that has begun keeps its rings.
//!
//! Always holds: the switch belongs to the whole machine, so a lock on it keeps other tests out meanwhile, of other processes too; it is
//! as it was when the lock is released.

use std::fs::{self, File};

use rustix::fs::{FlockOperation, flock};

use crate::need::{self, HostFeature};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Does what begins a mount, with the kernel's FUSE over io_uring switched on; `None` where it has none, and the test is skipped or
/// fails.
pub fn with_fuse_ring<T>(begin: impl FnOnce() -> T) -> Option<T> {
    switched("1", begin)
}

/// The same, switched off.
pub fn without_fuse_ring<T>(begin: impl FnOnce() -> T) -> Option<T> {
    switched("0", begin)
}

fn switched<T>(to: &str, begin: impl FnOnce() -> T) -> Option<T> {
    if !need::fuse() {
        return None;
    }
    let switch = File::open(SWITCH).map_err(|error| format!("{SWITCH}: {error} (Linux 6.14 and later)"));
    let switch = need::host(HostFeature::FuseRing, switch)?;
    flock(&switch, FlockOperation::LockExclusive).expect("a lock");
    let before = Before(fs::read_to_string(SWITCH).expect("readable"));
    fs::write(SWITCH, to).expect("root switches it");
    let begun = begin();
    drop(before);
    Some(begun)
}

/// The switch as it was, put back also when the test fails; before the lock is released.
struct Before(String);

impl Drop for Before {
    fn drop(&mut self) {
        let _ = fs::write(SWITCH, self.0.trim());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_as_it_is_wanted_inside() {
        let state = || fs::read_to_string(SWITCH).expect("readable");
        let (Some(on), Some(off)) = (with_fuse_ring(state), without_fuse_ring(state)) else { return };
        assert_eq!((&on[..], &off[..]), ("Y\n", "N\n"));
    }
}
