//! What the operations and files of a run cost, counted on its way.
//!
//! 1. Before the directory of the set is made: the free space that the storage reports (FSSTAT).
//! 2. After each growth of the set: the same again. The largest set counts.
//! 3. Around each level: system time of this process and the operations that ended, warm-up and last replies included. What a
//!    server's processes used meanwhile is in the level's `MachineUse`. The generator of an open loop waits by system calls, whose time
//!    cannot be told from a local storage's: there it is not given.
//!
//! Always holds: a level that is measured again counts once; an error of the storage is left to the next request.

use std::collections::BTreeMap;
use std::time::Duration;

use files::Fsstat;
use measure::{COST_OF_RANKS, KeptFiles, MachineLog, StorageCost};
use serde::{Deserialize, Serialize};

/// What was counted, raw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CostCounts {
    reach: Reach,
    /// System time of this process and operations, by the number of the level.
    levels: BTreeMap<u32, (Duration, u64)>,
    /// A level was an open loop.
    open: bool,
    /// Free bytes and inodes without the set.
    free_before: Option<[u64; 2]>,
    kept: Option<KeptFiles>,
}

/// Where the system under test works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reach {
    /// In no place of its own: there is nothing behind the requests.
    #[default]
    Nowhere,
    /// In this process, as a local file system does.
    Here,
    /// Behind a socket.
    Server,
    /// Behind several ranks.
    Ranks,
}

const WAITS_COUNTED: &str = "The generator of an open loop waits by system calls of its own, which cannot be told from those of local storage; --rate max is a \
    closed loop.";
const WRITES_UNWATCHED: &str = "A load level writes into files that are there already, so that no bytes stored stand against the device’s.";

impl CostCounts {
    pub fn of(reach: Reach) -> Self {
        Self { reach, ..Self::default() }
    }

    /// Whether the storage's free space says something of this run's files alone.
    pub fn wants_space(&self) -> bool {
        matches!(self.reach, Reach::Here | Reach::Server)
    }

    /// The set is about to be made.
    pub fn begins(&mut self, space: Option<Fsstat>) {
        self.free_before = space.map(|space| [space.bytes_free, space.files_free]);
    }

    /// The set has grown to `files` files of `bytes` bytes in all.
    pub fn has_grown(&mut self, files: u64, bytes: u64, space: Option<Fsstat>) {
        let Some(([bytes_free, files_free], now)) = self.free_before.zip(space) else { return };
        let disk_bytes = bytes_free.saturating_sub(now.bytes_free);
        let inodes = files_free.saturating_sub(now.files_free);
        if self.kept.is_none_or(|kept| kept.files <= files) {
            self.kept = Some(KeptFiles { files, bytes, disk_bytes, inodes });
        }
    }

    pub fn level_done(&mut self, number: u32, sys: Duration, operations: u64, is_open: bool) {
        self.open |= is_open;
        self.levels.insert(number, (sys, operations));
    }

    /// What it comes to; nothing where nothing stands behind the requests.
    pub fn cost(&self, machine: &MachineLog) -> Option<StorageCost> {
        let sum = |(sys, operations): (Duration, u64), level: &(Duration, u64)| {
            (sys + level.0, operations + level.1)
        };
        let (sys, operations) = self.levels.values().fold((Duration::ZERO, 0), sum);
        let cpu = match self.reach {
            Reach::Nowhere => return None,
            Reach::Ranks => return Some(StorageCost::unseen(COST_OF_RANKS)),
            Reach::Here if self.open => Err(WAITS_COUNTED.to_owned()),
            Reach::Here => Ok((sys, operations)),
            Reach::Server => StorageCost::cpu_of_server(&machine.whole, operations),
        };
        let kept = StorageCost::kept_of(self.kept);
        Some(StorageCost { cpu, written: Err(WRITES_UNWATCHED.to_owned()), kept })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_set_counts_and_a_level_measured_again_counts_once() {
        let mut counts = CostCounts::of(Reach::Here);
        let space = |bytes_free, files_free| Some(Fsstat { bytes_free, files_free, ..Fsstat::default() });
        counts.begins(space(1_000_000, 500));
        counts.has_grown(10, 20_000, space(960_000, 489));
        counts.has_grown(20, 40_000, space(880_000, 478));
        counts.has_grown(10, 20_000, space(940_000, 488));
        counts.level_done(1, Duration::from_millis(5), 1_000, false);
        counts.level_done(2, Duration::from_secs(9), 1, false);
        counts.level_done(2, Duration::from_millis(15), 1_000, false);
        let metrics = counts.cost(&MachineLog::default()).unwrap().metrics();
        assert_eq!((metrics["cost_cpu_us"], metrics["cost_disk_per_byte"]), (10.0, 3.0));
        assert_eq!(metrics["cost_inodes_per_file"], 1.1);
        assert!(
            CostCounts::default().cost(&MachineLog::default()).is_none(),
            "nothing is behind a null target"
        );
        let open = CostCounts { open: true, ..counts.clone() }.cost(&MachineLog::default()).unwrap();
        assert!(!open.metrics().contains_key("cost_cpu_us"), "the generator's waiting is in it");
        let of_ranks = CostCounts { reach: Reach::Ranks, ..counts }.cost(&MachineLog::default()).unwrap();
        assert!(of_ranks.metrics().is_empty());
    }
}
