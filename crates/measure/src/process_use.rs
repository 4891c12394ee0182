//! What the processes of a server on this machine use meanwhile: CPU, bytes written, memory.
//!
//! Counted are the processes named and all that descend from them, so that a master with workers is one server. CPU of those that
//! have ended and were waited for is in their parent's times.
//!
//! Always holds: a server that has ended has no use, rather than one of nothing; bytes written that cannot be read are unknown and
//! not zero; a descendant that ends in the middle cannot make a use negative.

use std::collections::HashMap;

use crate::proc::{ProcessStat, process_ids, resident_bytes, written_bytes};
use serde::{Deserialize, Serialize};

/// What a server has used so far, or in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessUse {
    /// CPU time, user mode and kernel, seconds.
    pub cpu_s: f64,
    /// Handed to block devices; none where the kernel does not say, as of another user's processes.
    pub written_bytes: Option<u64>,
    /// Resident now: not a difference.
    pub resident_bytes: u64,
}

impl ProcessUse {
    /// Adds what was used in another stretch of time, or by another server.
    pub fn add(&mut self, more: &Self) {
        self.cpu_s += more.cpu_s;
        self.written_bytes = self.written_bytes.zip(more.written_bytes).map(|(mine, more)| mine + more);
        self.resident_bytes = self.resident_bytes.max(more.resident_bytes);
    }
}

/// Processes with their descendants.
#[derive(Clone, Debug)]
pub struct ProcessWatch {
    processes: Vec<u32>,
    /// None once one of the processes has ended: another one may be given its number.
    before: Option<ProcessUse>,
}

impl ProcessWatch {
    /// Begins to watch.
    pub fn start(processes: &[u32]) -> Self {
        Self { processes: processes.to_vec(), before: used(processes) }
    }

    /// Whether all the processes were there when it was last looked.
    pub fn is_there(&self) -> bool {
        self.before.is_some()
    }

    /// What was used since the last lap; none when a process ended meanwhile or before.
    pub fn lap(&mut self) -> Option<ProcessUse> {
        let before = self.before?;
        self.before = used(&self.processes);
        let now = self.before?;
        let written = now.written_bytes.zip(before.written_bytes);
        Some(ProcessUse {
            cpu_s: (now.cpu_s - before.cpu_s).max(0.0),
            written_bytes: written.map(|(now, before)| now.saturating_sub(before)),
            resident_bytes: now.resident_bytes,
        })
    }
}

/// None when there are no such processes.
fn used(processes: &[u32]) -> Option<ProcessUse> {
    let mut parents: HashMap<u32, u32> = HashMap::new();
    let mut cpu_s: HashMap<u32, f64> = HashMap::new();
    for id in process_ids() {
        if let Some(stat) = ProcessStat::of(id) {
            parents.insert(id, stat.parent);
            cpu_s.insert(id, (stat.user + stat.sys + stat.ended_children).as_secs_f64());
        }
    }
    if processes.is_empty() || !processes.iter().all(|process| parents.contains_key(process)) {
        return None;
    }
    let mut sum = ProcessUse { written_bytes: Some(0), ..ProcessUse::default() };
    let counted = |id: u32| processes.iter().any(|&process| descends(id, process, &parents));
    for &id in parents.keys().filter(|&&id| counted(id)) {
        let one = ProcessUse {
            cpu_s: cpu_s.get(&id).copied().unwrap_or(0.0),
            written_bytes: written_bytes(id),
            resident_bytes: 0,
        };
        sum.add(&one);
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
        let mut watch = ProcessWatch::start(&[std::process::id()]);
        let mut sum = 0u64;
        let mut used = ProcessUse::default();
        while used.cpu_s < 0.02 {
            (0..2_000_000u64).for_each(|n| sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(n)));
            used.cpu_s += watch.lap().unwrap().cpu_s;
        }
        assert!(watch.lap().unwrap().resident_bytes > 100_000);
        assert_eq!(ProcessWatch::start(&[u32::MAX]).lap(), None);
        let is_there = |process| ProcessWatch::start(&[process]).is_there();
        assert!(is_there(std::process::id()) && !is_there(0) && !is_there(u32::MAX));
        assert!(!ProcessWatch::start(&[]).is_there());
    }

    /// Symptom: a proxy that died during a run had figures of zero. Cause: a process that is gone was read as one that
    /// used nothing.
    #[test]
    fn a_process_that_has_ended_has_no_use_though_it_had_one_before() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut watch = ProcessWatch::start(&[child.id()]);
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
