//! What the proxy itself uses meanwhile, when its process is on this machine: CPU, bytes written, memory.
//!
//! Counted are the process and all that descend from it, so that a master with workers is one proxy. CPU of those that
//! have ended and were waited for is in their parent's times.
//!
//! Always holds: a process that has ended has no use, rather than one of nothing; what cannot be read of one that is there
//! counts as nothing; a descendant that ends in the middle cannot make a use negative.

use std::collections::HashMap;

use measure::proc::{ProcessStat, process_ids, resident_bytes, written_bytes};
use serde::{Deserialize, Serialize};

/// What a proxy has used so far, or in a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Used {
    pub cpu_s: f64,
    /// Handed to block devices.
    pub written_bytes: u64,
    /// Resident now: not a difference.
    pub resident_bytes: u64,
}

/// A process with its descendants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    process: u32,
    /// None once the process has ended: another one may be given its number.
    before: Option<Used>,
}

/// Whether there is such a process.
pub(crate) fn is_there(process: u32) -> bool {
    used(process).is_some()
}

impl Watch {
    /// Begins to watch.
    pub fn start(process: u32) -> Self {
        Self { process, before: used(process) }
    }

    /// What was used since the last lap; none when the process ended meanwhile or before.
    pub fn lap(&mut self) -> Option<Used> {
        let before = self.before?;
        self.before = used(self.process);
        let now = self.before?;
        Some(Used {
            cpu_s: (now.cpu_s - before.cpu_s).max(0.0),
            written_bytes: now.written_bytes.saturating_sub(before.written_bytes),
            resident_bytes: now.resident_bytes,
        })
    }
}

/// None when there is no such process.
fn used(process: u32) -> Option<Used> {
    let mut parents: HashMap<u32, u32> = HashMap::new();
    let mut cpu_s: HashMap<u32, f64> = HashMap::new();
    for id in process_ids() {
        if let Some(stat) = ProcessStat::of(id) {
            parents.insert(id, stat.parent);
            cpu_s.insert(id, (stat.user + stat.sys + stat.ended_children).as_secs_f64());
        }
    }
    parents.get(&process)?;
    let mut sum = Used::default();
    for &id in parents.keys().filter(|&&id| descends(id, process, &parents)) {
        sum.cpu_s += cpu_s.get(&id).copied().unwrap_or(0.0);
        sum.written_bytes += written_bytes(id).unwrap_or(0);
        sum.resident_bytes += resident_bytes(id).unwrap_or(0);
    }
    Some(sum)
}

fn descends(id: u32, from: u32, parents: &HashMap<u32, u32>) -> bool {
    let mut at = id;
    // A process that ended while others were read can leave a parent that is its own grandchild.
    for _ in 0..64 {
        if at == from {
            return true;
        }
        match parents.get(&at) {
            Some(&parent) => at = parent,
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_charged_for_its_work_and_its_memory_and_one_that_is_not_there_has_no_use() {
        let mut watch = Watch::start(std::process::id());
        let mut sum = 0u64;
        let mut used = Used::default();
        while used.cpu_s < 0.02 {
            (0..2_000_000u64).for_each(|n| sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(n)));
            used.cpu_s += watch.lap().unwrap().cpu_s;
        }
        assert!(watch.lap().unwrap().resident_bytes > 100_000);
        assert_eq!(Watch::start(u32::MAX).lap(), None);
        assert!(is_there(std::process::id()) && !is_there(0) && !is_there(u32::MAX));
    }

    /// Symptom: a proxy that died during a run had figures of zero. Cause: a process that is gone was read as one that
    /// used nothing.
    #[test]
    fn a_process_that_has_ended_has_no_use_though_it_had_one_before() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut watch = Watch::start(child.id());
        assert!(watch.lap().is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((watch.lap(), watch.lap()), (None, None));
    }

    #[test]
    fn workers_belong_to_their_master() {
        let parents = HashMap::from([(10, 1), (11, 10), (12, 11), (20, 1)]);
        assert!(descends(12, 10, &parents) && descends(10, 10, &parents));
        assert!(!descends(20, 10, &parents) && !descends(1, 10, &parents));
    }
}
