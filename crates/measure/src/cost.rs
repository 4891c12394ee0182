//! What a stored file, article or object costs: CPU time, bytes written to the device, bytes and inodes on disk.
//!
//! ```text
//! CPU      system time of the benchmark's own process: a local file system works in it
//! written  bytes that the device wrote, by /sys/dev/block (all programs' and the journal's) / bytes that the benchmark wrote
//! on disk  bytes and inodes that statfs misses with the files there / bytes of those files
//! ```
//!
//! Always holds: what cannot be seen is left out and never taken for zero.
//! Not counted: what kernel threads do (writeback, the journal), and what is in memory still when the work ends.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::numbers::{figure_text, grouped};
use crate::view::{Column, Row, Section, Table, View};
use crate::{MetricDeclaration, Phase, RunRecord};

/// What [`StorageCost::metrics`] are.
pub const COST_METRICS: [MetricDeclaration; 4] = [
    MetricDeclaration::micros("cost_cpu_us", "CPU time of the system under test, each operation"),
    MetricDeclaration::count("cost_written_per_byte", "Bytes written to the device, each byte stored"),
    MetricDeclaration::count("cost_disk_per_byte", "Bytes on disk, each byte kept"),
    MetricDeclaration::count("cost_inodes_per_mib", "Inodes, each MiB kept"),
];

/// What storing costs, as far as it can be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StorageCost {
    /// CPU time of the system under test, and the operations that it was for.
    pub cpu: Option<(Duration, u64)>,
    /// Bytes that the device wrote, and those that were stored.
    pub written: Option<(u64, u64)>,
    /// What was there at one moment.
    pub kept: Option<KeptFiles>,
}

/// Files that were there at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct KeptFiles {
    /// Sum of their sizes.
    pub bytes: u64,
    /// Bytes that the file system had less free than without them.
    pub disk_bytes: u64,
    /// Inodes that it had less free.
    pub inodes: u64,
}

impl StorageCost {
    /// Of phases of a local storage whose device was watched: others say nothing.
    pub fn of_phases<'p>(phases: impl Iterator<Item = &'p Phase>) -> Self {
        let (mut sys_s, mut items, mut written, mut stored) = (0.0, 0, 0.0, 0);
        for phase in phases {
            let Some(per_sec) = phase.counters.get("device_written_bytes_per_sec") else { continue };
            sys_s += phase.sys_s;
            items += phase.items;
            written += per_sec * phase.wall_s;
            stored += phase.bytes;
        }
        let cpu = Duration::try_from_secs_f64(sys_s).ok().map(|cpu| (cpu, items));
        Self { cpu, written: Some((written as u64, stored)), kept: None }
    }

    /// By name, as [`COST_METRICS`] declares them.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let ratio = |(part, whole): (f64, u64)| (whole > 0 && part > 0.0).then(|| part / whole as f64);
        let cpu = self.cpu.and_then(|(cpu, operations)| ratio((1e6 * cpu.as_secs_f64(), operations)));
        let written = self.written.and_then(|(device, stored)| ratio((device as f64, stored)));
        let disk = self.kept.and_then(|kept| ratio((kept.disk_bytes as f64, kept.bytes)));
        let inodes = self.kept.and_then(|kept| ratio((kept.inodes as f64 * MIB, kept.bytes)));
        let named = COST_METRICS.iter().zip([cpu, written, disk, inodes]);
        named.filter_map(|(metric, value)| Some((metric.name.to_owned(), value?))).collect()
    }
}

const MIB: f64 = (1 << 20) as f64;

/// A row for each run of which something is known; none when nothing is.
pub fn section(runs: &[RunRecord]) -> Option<Section> {
    let believed = |value: &f64| (0.0..1e15).contains(value);
    let row = |run: &RunRecord| {
        let metric = |at: usize| run.metrics.get(COST_METRICS[at].name).copied().filter(believed);
        let cells: Vec<Option<String>> = vec![
            metric(0).map(|us| figure_text("us", us)),
            metric(1).map(|ratio| grouped(ratio, 2)),
            metric(2).map(|ratio| grouped(ratio, 2)),
            metric(3).map(|inodes| grouped(inodes, 1)),
        ];
        cells.iter().any(Option::is_some).then(|| Row { name: run.label.clone(), cells, published: false })
    };
    let rows: Vec<Row> = runs.iter().filter_map(row).collect();
    if rows.is_empty() {
        return None;
    }
    let titles = [
        "CPU time, each operation",
        "Written to the device, each byte stored",
        "On disk, each byte kept",
        "Inodes, each MiB kept",
    ];
    let table = Table {
        about: "What storing costs".to_owned(),
        of: "Run",
        columns: titles.map(|title| Column { group: None, title }).into(),
        rows,
        key: "CPU time: system time of the benchmark’s own process, in which a local file system works; kernel threads and \
              servers are not in it. Written: by the device’s own counters, with the journal and whatever else used the \
              device, and without what is in memory still at the end. On disk: what the file system had less free with the \
              files there, directories and metadata included. A dash: it cannot be seen."
            .to_owned(),
    };
    Some(Section {
        id: "costs".to_owned(),
        title: "What storing costs".to_owned(),
        read: "The resources that one operation, or one byte, takes.".to_owned(),
        items: vec![View::Table(table)],
        ..Section::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_a_ratio_and_what_cannot_be_seen_has_none() {
        let kept = KeptFiles { bytes: 1 << 20, disk_bytes: 3 << 20, inodes: 7 };
        let cost =
            StorageCost { cpu: Some((Duration::from_millis(5), 100)), written: None, kept: Some(kept) };
        let metrics = cost.metrics();
        assert_eq!(metrics.get("cost_cpu_us"), Some(&50.0));
        assert_eq!(metrics.get("cost_disk_per_byte"), Some(&3.0));
        assert_eq!(metrics.get("cost_inodes_per_mib"), Some(&7.0));
        assert_eq!(metrics.len(), 3);
        assert!(
            StorageCost { cpu: Some((Duration::ZERO, 0)), ..StorageCost::default() }.metrics().is_empty()
        );
    }

    #[test]
    fn phases_add_up_and_those_without_a_device_of_ours_do_not_count() {
        let phase = |per_sec: Option<f64>| Phase {
            wall_s: 2.0,
            sys_s: 0.5,
            items: 1_000,
            bytes: 4_000,
            counters: per_sec
                .map(|rate| ("device_written_bytes_per_sec".to_owned(), rate))
                .into_iter()
                .collect(),
            ..Phase::default()
        };
        let phases = [phase(Some(3_000.0)), phase(Some(1_000.0)), phase(None)];
        let metrics = StorageCost::of_phases(phases.iter()).metrics();
        assert_eq!(metrics.get("cost_cpu_us"), Some(&500.0));
        assert_eq!(metrics.get("cost_written_per_byte"), Some(&1.0));
        assert!(StorageCost::of_phases([phase(None)].iter()).metrics().is_empty());
    }
}
