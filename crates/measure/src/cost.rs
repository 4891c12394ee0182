//! What a stored file, article or object costs: CPU time, bytes written to the device, bytes and inodes on disk.
//!
//! ```text
//! CPU      system time of the benchmark's own process, in which a local file system works; of a server on this machine the CPU time
//!          of its processes (see `process_use`)
//! written  bytes that the device wrote, by /sys/dev/block (all programs' and the journal's), or that the server wrote, by
//!          /proc/PID/io / bytes that the benchmark stored
//! on disk  bytes and inodes that statfs misses with the files there / bytes of those files, or their number
//! ```
//!
//! Always holds: what cannot be seen is left out and never taken for zero; a figure that is left out has a sentence that says why.
//! Not counted: what kernel threads do (writeback, the journal), and what is in memory still when the work ends.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::numbers::{figure_text, grouped};
use crate::view::{Column, Row, Section, Table, View};
use crate::{MachineUse, MetricDeclaration, Phase, RunRecord};

/// What [`StorageCost::metrics`] are.
pub const COST_METRICS: [MetricDeclaration; 6] = [
    MetricDeclaration::micros("cost_cpu_us", "CPU time of the system under test, each operation"),
    MetricDeclaration::count("cost_written_per_byte", "Bytes written to the device, each byte stored"),
    MetricDeclaration::count("cost_disk_per_byte", "Bytes on disk, each byte kept"),
    MetricDeclaration::count("cost_inodes_per_mib", "Inodes, each MiB kept"),
    MetricDeclaration::new("cost_disk_per_file_bytes", "B", "Bytes on disk, each file kept"),
    MetricDeclaration::count("cost_inodes_per_file", "Inodes, each file kept"),
];

/// Headings of a page's columns, in the order of the metrics: what, and for what.
const TITLES: [(&str, &str); 6] = [
    ("CPU time", "each operation"),
    ("Written", "each byte stored"),
    ("On disk", "each byte"),
    ("Inodes", "each MiB"),
    ("On disk", "each file"),
    ("Inodes", "each file"),
];

/// The order of the columns: those of one group follow each other.
const ORDER: [usize; 6] = [0, 1, 2, 4, 3, 5];

/// A figure, or a sentence that says why it cannot be seen.
pub type Seen<T> = Result<T, String>;

/// What storing costs, as far as it can be seen.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageCost {
    /// CPU time of the system under test, and the operations that it was for.
    pub cpu: Seen<(Duration, u64)>,
    /// Bytes that the device wrote, and those that were stored.
    pub written: Seen<(u64, u64)>,
    /// What was there at one moment.
    pub kept: Seen<KeptFiles>,
}

/// Files that were there at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct KeptFiles {
    /// Their number.
    #[serde(default)]
    pub files: u64,
    /// Sum of their sizes.
    pub bytes: u64,
    /// Bytes that the file system had less free than without them.
    pub disk_bytes: u64,
    /// Inodes that it had less free.
    pub inodes: u64,
}

/// Why nothing is seen where several ranks share the storage.
pub const COST_OF_RANKS: &str = "Several ranks share the storage, and each sees what all of them cost.";
/// Why no bytes are seen that a device wrote.
pub const NO_DEVICE: &str =
    "The files are on no block device that can be seen: in memory, or over a network.";
/// Why no CPU time of a server is seen.
const SERVER_UNSEEN: &str = "No process of the server can be seen on this machine: it is on another one, in the kernel, or another user’s.";
/// Why nothing is said of the files' room.
const SPACE_UNSEEN: &str = "The storage does not report its free space, keeps the files inside its own (a packed store), or they were there before the run.";
const CPU_UNSEEN: &str = "It was less than the kernel counts: the run is too short.";
const NOT_WRITTEN: &str = "Nothing was written to the device before the end: what was stored was in memory.";
const NO_SPACE_TAKEN: &str = "The storage had no less free space with the files there.";

impl StorageCost {
    /// Of storage of which nothing is seen, for one reason.
    pub fn unseen(why: &str) -> Self {
        Self { cpu: Err(why.to_owned()), written: Err(why.to_owned()), kept: Err(why.to_owned()) }
    }

    /// What the phases' own process spent in the kernel, where a local file system works.
    pub fn cpu_of_phases<'p>(phases: impl Iterator<Item = &'p Phase>) -> Seen<(Duration, u64)> {
        let (sys_s, items) = phases.fold((0.0, 0), |sum, phase| (sum.0 + phase.sys_s, sum.1 + phase.items));
        let cpu = Duration::try_from_secs_f64(sys_s).map_err(|_| CPU_UNSEEN.to_owned())?;
        Ok((cpu, items))
    }

    /// What the server's processes on this machine used for `operations`.
    pub fn cpu_of_server(machine: &MachineUse, operations: u64) -> Seen<(Duration, u64)> {
        let used = machine.servers.ok_or(SERVER_UNSEEN)?;
        let cpu = Duration::try_from_secs_f64(used.cpu_s).map_err(|_| CPU_UNSEEN.to_owned())?;
        Ok((cpu, operations))
    }

    /// What the server's processes on this machine handed to block devices while `stored` bytes were stored.
    pub fn written_by_server(machine: &MachineUse, stored: u64) -> Seen<(u64, u64)> {
        let used = machine.servers.ok_or(SERVER_UNSEEN)?;
        let written = used.written_bytes.ok_or(SERVER_UNSEEN)?;
        Ok((written, stored))
    }

    /// What was measured of the files' room; none where it was not.
    pub fn kept_of(kept: Option<KeptFiles>) -> Seen<KeptFiles> {
        kept.ok_or_else(|| SPACE_UNSEEN.to_owned())
    }

    /// Each figure in the order of [`COST_METRICS`]. Files without bytes have none for each byte, which needs no reason.
    fn figures(&self) -> [Option<Seen<f64>>; 6] {
        let ratio = |part: f64, whole: u64, why: &str| match (whole, part > 0.0) {
            (0, _) => None,
            (_, false) => Some(Err(why.to_owned())),
            (whole, true) => Some(Ok(part / whole as f64)),
        };
        let cpu = match &self.cpu {
            Ok((cpu, operations)) => ratio(1e6 * cpu.as_secs_f64(), *operations, CPU_UNSEEN),
            Err(why) => Some(Err(why.clone())),
        };
        let written = match &self.written {
            Ok((device, stored)) => ratio(*device as f64, *stored, NOT_WRITTEN),
            Err(why) => Some(Err(why.clone())),
        };
        let kept = |part: &dyn Fn(&KeptFiles) -> (f64, u64)| match &self.kept {
            Ok(kept) => {
                let (part, whole) = part(kept);
                ratio(part, whole, NO_SPACE_TAKEN)
            }
            Err(why) => Some(Err(why.clone())),
        };
        [
            cpu,
            written,
            kept(&|kept| (kept.disk_bytes as f64, kept.bytes)),
            kept(&|kept| (kept.inodes as f64 * MIB, kept.bytes)),
            kept(&|kept| (kept.disk_bytes as f64, kept.files)),
            kept(&|kept| (kept.inodes as f64, kept.files)),
        ]
    }

    /// By name, as [`COST_METRICS`] declares them.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let named = COST_METRICS.iter().zip(self.figures());
        named.filter_map(|(metric, value)| Some((metric.name.to_owned(), value?.ok()?))).collect()
    }

    /// Why the others are missing, by name.
    pub fn not_seen(&self) -> BTreeMap<String, String> {
        let named = COST_METRICS.iter().zip(self.figures());
        named.filter_map(|(metric, value)| Some((metric.name.to_owned(), value?.err()?))).collect()
    }
}

const MIB: f64 = (1 << 20) as f64;

/// A row for each label of runs of which something is known, and below the table why the rest is not; none when nothing is known.
pub fn section(runs: &[RunRecord]) -> Option<Section> {
    let believed = |value: &f64| (0.0..1e15).contains(value);
    let row = |label: &str| {
        let of_label = || runs.iter().filter(|run| run.label == label);
        let metric = |at: usize| {
            let mut values: Vec<f64> = of_label()
                .filter_map(|run| run.metrics.get(COST_METRICS[at].name).copied().filter(believed))
                .collect();
            values.sort_by(f64::total_cmp);
            (!values.is_empty()).then(|| (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0)
        };
        let name = match of_label().count() {
            1 => label.to_owned(),
            count => format!("{label} (median of {count} runs)"),
        };
        let cells: Vec<Option<String>> = vec![
            metric(0).map(|us| figure_text("us", us)),
            metric(1).map(|ratio| grouped(ratio, 2)),
            metric(2).map(|ratio| grouped(ratio, 2)),
            metric(3).map(|inodes| grouped(inodes, 1)),
            metric(4).map(|bytes| figure_text("B", bytes)),
            metric(5).map(|inodes| grouped(inodes, 2)),
        ];
        cells.iter().any(Option::is_some).then_some(Row { name, cells, published: false })
    };
    let mut labels: Vec<&str> = Vec::new();
    for run in runs {
        if !labels.contains(&run.label.as_str()) {
            labels.push(&run.label);
        }
    }
    let mut rows: Vec<Row> = labels.into_iter().filter_map(row).collect();
    if rows.is_empty() {
        return None;
    }
    // A column of dashes says less than the sentence below.
    let shown: Vec<usize> =
        ORDER.into_iter().filter(|at| rows.iter().any(|row| row.cells[*at].is_some())).collect();
    for row in &mut rows {
        row.cells = shown.iter().map(|at| row.cells[*at].clone()).collect();
    }
    let columns =
        shown.iter().map(|at| Column { group: Some(TITLES[*at].0), title: TITLES[*at].1 }).collect();
    let table =
        Table { about: "What storing costs".to_owned(), of: "Run", columns, rows, key: key(runs, &shown) };
    Some(Section {
        id: "costs".to_owned(),
        title: "What storing costs".to_owned(),
        read: "The resources that one operation, byte or file takes.".to_owned(),
        items: vec![View::Table(table)],
        ..Section::default()
    })
}

/// What the columns are, and why figures are missing.
fn key(runs: &[RunRecord], shown: &[usize]) -> String {
    let mut key: Vec<String> = Vec::new();
    if shown.contains(&0) {
        key.push(
            "CPU time: of a local file system the system time of the benchmark’s own process, in which it works; of a server on this \
             machine that of its processes. Kernel threads are not in it."
                .to_owned(),
        );
    }
    if shown.contains(&1) {
        key.push(
            "Written: by the device’s own counters, with the journal and whatever else used the device, or by the server’s; without \
             what is in memory still at the end."
                .to_owned(),
        );
    }
    if shown.iter().any(|at| *at >= 2) {
        key.push(
            "On disk: what the file system had less free with the files there, directories and metadata included, and what other programs \
             wrote or removed there meanwhile."
                .to_owned(),
        );
    }
    key.extend(reasons(runs));
    key.join(" ")
}

/// Sentences, each with the figures and runs that it is of.
fn reasons(runs: &[RunRecord]) -> Vec<String> {
    let mut by_reason: Vec<(&str, Vec<&str>, Vec<&str>)> = Vec::new();
    for run in runs {
        for (metric, title) in COST_METRICS.iter().zip(TITLES) {
            let Some(why) = run.not_seen.get(metric.name) else { continue };
            let of = match by_reason.iter_mut().find(|(known, ..)| known == why) {
                Some(of) => of,
                None => {
                    by_reason.push((why, vec![], vec![]));
                    by_reason.last_mut().expect("one was just added")
                }
            };
            let what = title.0;
            if !of.1.contains(&what) {
                of.1.push(what);
            }
            if !of.2.contains(&run.label.as_str()) {
                of.2.push(&run.label);
            }
        }
    }
    let sentence = |(why, what, of): (&str, Vec<&str>, Vec<&str>)| {
        let of = if of.len() == runs.len() { String::new() } else { format!(" of {}", of.join(", ")) };
        format!("Not seen{of}: {}. {why}", what.join(", "))
    };
    by_reason.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProcessUse;

    #[test]
    fn a_cost_is_a_ratio_and_what_cannot_be_seen_has_a_reason_and_is_not_zero() {
        let kept = KeptFiles { files: 4, bytes: 1 << 20, disk_bytes: 3 << 20, inodes: 7 };
        let cost = StorageCost {
            cpu: Ok((Duration::from_millis(5), 100)),
            written: Err("No device.".to_owned()),
            kept: Ok(kept),
        };
        let metrics = cost.metrics();
        assert_eq!(metrics.get("cost_cpu_us"), Some(&50.0));
        assert_eq!(metrics.get("cost_disk_per_byte"), Some(&3.0));
        assert_eq!(metrics.get("cost_inodes_per_mib"), Some(&7.0));
        assert_eq!(metrics.get("cost_disk_per_file_bytes"), Some(&f64::from(3 << 18)));
        assert_eq!(metrics.get("cost_inodes_per_file"), Some(&1.75));
        assert_eq!(metrics.len(), 5);
        let why = cost.not_seen();
        assert_eq!(why, [("cost_written_per_byte".to_owned(), "No device.".to_owned())].into());
    }

    #[test]
    fn empty_files_cost_by_their_number_and_not_by_their_bytes() {
        let kept = KeptFiles { files: 4, bytes: 0, disk_bytes: 4096, inodes: 4 };
        let cost = StorageCost { kept: Ok(kept), written: Ok((0, 0)), ..StorageCost::unseen("None.") };
        let names: Vec<String> = cost.metrics().into_keys().collect();
        assert_eq!(names, ["cost_disk_per_file_bytes", "cost_inodes_per_file"]);
        assert_eq!(cost.not_seen().into_keys().collect::<Vec<_>>(), ["cost_cpu_us"]);
        let idle = StorageCost {
            cpu: Ok((Duration::ZERO, 9)),
            written: Ok((0, 9)),
            kept: Ok(KeptFiles { bytes: 9, files: 1, ..KeptFiles::default() }),
        };
        assert!(idle.metrics().is_empty());
        assert_eq!(idle.not_seen().len(), COST_METRICS.len(), "a zero has a reason");
    }

    #[test]
    fn a_server_costs_what_its_processes_use_and_one_that_is_not_here_has_no_cost() {
        let mut machine = MachineUse::default();
        assert!(StorageCost::cpu_of_server(&machine, 7).unwrap_err().contains("can be seen"));
        assert!(StorageCost::written_by_server(&machine, 7).is_err());
        machine.servers = Some(ProcessUse { cpu_s: 0.5, written_bytes: None, resident_bytes: 1 });
        assert_eq!(StorageCost::cpu_of_server(&machine, 7), Ok((Duration::from_millis(500), 7)));
        assert!(StorageCost::written_by_server(&machine, 7).is_err(), "bytes that cannot be read");
    }
}
