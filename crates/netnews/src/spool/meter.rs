//! Times a phase: elapsed, CPU, and what the devices under the storage did.

use std::collections::BTreeMap;
use std::time::Instant;

use measure::{CpuMeter, DiskMeter, Phase};

use super::layout::Storage;

/// A phase under way.
pub(crate) struct PhaseMeter {
    name: &'static str,
    pass: u32,
    disks: Vec<(String, DiskMeter)>,
    cpu: CpuMeter,
    begun: Instant,
}

impl PhaseMeter {
    /// Begins; the meters of devices first, as reading them takes time.
    pub(crate) fn start(name: &'static str, pass: u32, storage: &Storage) -> Self {
        let mut disks: Vec<(String, DiskMeter)> = Vec::new();
        let named = [(String::new(), &storage.spool)]
            .into_iter()
            .chain(storage.history.iter().map(|fs| ("history_".to_owned(), fs)))
            .chain(storage.places.iter().enumerate().map(|(at, (_, fs))| (format!("place{}_", at + 1), fs)));
        for (prefix, fs) in named {
            if let Some(meter) = fs.local_root().and_then(DiskMeter::start) {
                disks.push((prefix, meter));
            }
        }
        Self { name, pass, disks, cpu: CpuMeter::start(), begun: Instant::now() }
    }

    /// Ends it with what was done.
    pub(crate) fn stop(self, items: u64, bytes: u64) -> Phase {
        let wall_s = self.begun.elapsed().as_secs_f64();
        let cpu = self.cpu.used();
        let mut counters = BTreeMap::new();
        for (prefix, disk) in &self.disks {
            let used = disk.used().counters();
            counters.extend(used.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value)));
        }
        Phase {
            name: self.name.to_owned(),
            pass: self.pass,
            wall_s,
            user_s: cpu.user.as_secs_f64(),
            sys_s: cpu.sys.as_secs_f64(),
            items,
            bytes,
            items_per_sec: items as f64 / wall_s.max(1e-9),
            counters,
        }
    }
}
