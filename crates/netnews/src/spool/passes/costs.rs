//! What storing costs on the way: bytes that the spool's device wrote, and what the file system has less free.
//!
//! Writes are counted from the begin of the run to the flush of the last pass that was done: without `--sync` hardly anything is
//! written while articles are stored, and nearly all in the flush at the pass's end. Room is counted while nothing has expired, after
//! the last pass that stored articles without removing any.
//!
//! Not here: what it comes to (see `results::figures`).

use files::{FileSystem, Fsstat};
use measure::{DiskMeter, KeptFiles};
use serde::{Deserialize, Serialize};

use crate::spool::config::Keep;
use crate::spool::results::outcome::RunCounts;

/// What was counted, raw. Of one rank alone: several share a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoringCosts {
    /// A server stores the articles, out of sight.
    pub remote: bool,
    /// Bytes that the device wrote, and those of articles that were stored meanwhile; none without a device.
    pub written: Option<(u64, u64)>,
    /// What articles took before any expired.
    pub kept: Option<KeptFiles>,
}

/// The device and the free space when the run began.
pub(super) struct CostMeter {
    disk: Option<DiskMeter>,
    /// None in a spool that was there before.
    free_before: Option<Fsstat>,
    pub costs: StoringCosts,
}

impl CostMeter {
    pub fn start(spool: &dyn FileSystem, keep: Keep) -> Self {
        let is_unknown = keep == Keep::Resume || spool.has_room_of_its_own();
        let free_before = if is_unknown { None } else { spool.statfs().ok() };
        let local = spool.local_root();
        let costs = StoringCosts { remote: local.is_none(), ..StoringCosts::default() };
        Self { disk: local.and_then(DiskMeter::start), free_before, costs }
    }

    /// A pass has stored its articles; `counts` are of the run so far, and nothing has expired yet.
    pub fn stored_without_expiry(&mut self, spool: &dyn FileSystem, counts: &RunCounts) {
        let Some((before, now)) = self.free_before.zip(spool.statfs().ok()) else { return };
        // Articles that were cancelled or superseded have gone again; how long they were is not known any more.
        let stored = counts.unbatch.stored;
        let files = stored.saturating_sub(counts.unbatch.cancelled + counts.unbatch.superseded);
        let share = if stored > 0 { files as f64 / stored as f64 } else { 0.0 };
        self.costs.kept = Some(KeptFiles {
            files,
            bytes: (counts.store.bytes as f64 * share) as u64,
            disk_bytes: before.bytes_free.saturating_sub(now.bytes_free),
            inodes: before.files_free.saturating_sub(now.files_free),
        });
    }

    /// A pass is flushed.
    pub fn flushed(&mut self, counts: &RunCounts) {
        self.costs.written = self.disk.as_ref().map(|disk| (disk.used().written_bytes, counts.store.bytes));
    }
}
