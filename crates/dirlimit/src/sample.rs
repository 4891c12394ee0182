//! A sample of names, all equally likely, of as many as there are, in one pass; and what their inodes say.
//!
//! Source: Vitter, "Random Sampling with a Reservoir", ACM TOMS 11(1), 1985, algorithm R.

use std::ffi::CStr;
use std::os::fd::AsFd;

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::fs::{AtFlags, StatxFlags};

/// Names kept of a stream of them.
#[derive(Clone, Debug)]
pub(crate) struct Reservoir<T> {
    kept: Vec<T>,
    kept_max: usize,
    seen: u64,
    rng: Xoshiro256PlusPlus,
}

impl<T> Reservoir<T> {
    pub fn new(kept_max: usize) -> Self {
        Self { kept: Vec::new(), kept_max, seen: 0, rng: Xoshiro256PlusPlus::seed_from_u64(1) }
    }

    /// Offers one; it is made only when it is kept.
    pub fn offer(&mut self, make: impl FnOnce() -> T) {
        self.seen += 1;
        if self.kept.len() < self.kept_max {
            self.kept.push(make());
            return;
        }
        let place = self.rng.random_range(0..self.seen);
        if let Some(kept) = usize::try_from(place).ok().and_then(|place| self.kept.get_mut(place)) {
            *kept = make();
        }
    }

    pub fn kept(&self) -> &[T] {
        &self.kept
    }
}

/// What an inode says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Inode {
    /// Seconds since 1970 when it was made, or last changed where the file system keeps no birth times.
    pub made_s: f64,
    /// Whether that is its birth time.
    pub is_birth: bool,
    /// Bytes of storage that it takes.
    pub bytes: u64,
}

impl Inode {
    /// That of a name in a directory, not followed; none when it is gone.
    pub fn of(directory: impl AsFd, name: &CStr) -> Option<Self> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found = rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, wanted).ok()?;
        let is_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let time = if is_birth { found.stx_btime } else { found.stx_ctime };
        let made_s = time.tv_sec as f64 + f64::from(time.tv_nsec) / 1e9;
        Some(Self { made_s, is_birth, bytes: found.stx_blocks * 512 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_a_stream_is_kept_as_often_as_any_other() {
        let mut reservoir = Reservoir::new(500);
        (0..20_000_u32).for_each(|number| reservoir.offer(|| number));
        assert_eq!(reservoir.kept().len(), 500);
        let mean = reservoir.kept().iter().map(|number| f64::from(*number)).sum::<f64>() / 500.0;
        // Its standard deviation is 258.
        assert!((mean - 10_000.0).abs() < 1100.0, "{mean}");
        let mut few = Reservoir::new(5);
        (0..3).for_each(|number| few.offer(|| number));
        assert_eq!(few.kept(), [0, 1, 2]);
    }

    #[test]
    fn an_inode_says_when_it_was_made_and_a_missing_one_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), vec![1; 5000]).unwrap();
        let open = std::fs::File::open(directory.path()).unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let inode = Inode::of(&open, c"a").unwrap();
        assert!((now.as_secs_f64() - inode.made_s).abs() < 60.0, "{inode:?}");
        assert_eq!(Inode::of(&open, c"b"), None);
    }
}
