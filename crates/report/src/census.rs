//! What a mount was asked (`crumb mount`): operations by type with their shares and latencies, beside the paper's day.
//!
//! ```text
//! phase `mounted`: lookup_count, lookup_failed, lookup_mean_us, lookup_p50_us, ... -> rows, bars, ranges
//! ```
//!
//! Always holds: every number is finite and none is negative, whatever an imported record says.
//! Not here: counting (crate `stackfs`), writing the record (the verb).
//! Source of the published day: Zadok and Badulescu, "Usenetfs", CUCS-022-98, table 1.

use measure::{Phase, RunRecord};
use serde::Serialize;

use crate::axis::Axis;
use crate::figures::{count_text, grouped, ms_text, rate_text};

/// One run's.
#[derive(Debug, Serialize)]
pub(crate) struct Census {
    pub run: usize,
    pub label: String,
    total: String,
    per_sec: String,
    /// Operations that use a name, in the order of table 1.
    pub by_name: Vec<Share>,
    /// All types, the most frequent first.
    pub operations: Vec<OperationRow>,
    /// Of the ranges' logarithmic axis.
    ticks: Vec<Tick>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Share {
    pub name: &'static str,
    count: String,
    /// Percent; the bar's length.
    pub percent: f64,
    text: String,
    /// In the paper's day, percent.
    published: f64,
    published_text: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct OperationRow {
    pub name: String,
    count: String,
    share: String,
    failed: String,
    per_sec: String,
    /// Of all the time that the daemon worked; none in a record without mean latencies.
    pub time_share: Option<String>,
    /// Mean, median, p90, p99, p99.9 and highest, microseconds.
    pub latency_us: [Option<String>; 6],
    /// Where median, p99 and the highest lie on the axis, percent.
    pub places: Option<(f64, f64, f64)>,
}

#[derive(Debug, Serialize)]
struct Tick {
    at: f64,
    text: String,
}

/// Rows of table 1: the name, the operations in it, and its share of the paper's day.
const TABLE_1: [(&str, f64); 5] =
    [("lookup", 88.41), ("unlink", 5.41), ("create", 4.32), ("readdir", 0.48), ("all other", 1.38)];
/// Operations without a name, which table 1 does not count.
const WITHOUT_NAME: [&str; 13] = [
    "read",
    "write",
    "release",
    "releasedir",
    "fsync",
    "fsyncdir",
    "forget",
    "fallocate",
    "lseek",
    "copy_file_range",
    "ioctl",
    "open",
    "opendir",
];
const LATENCIES: [&str; 6] = ["mean", "p50", "p90", "p99", "p999", "max"];
/// Counts and times beyond are not believed: an imported record is wrong.
const LIMIT: f64 = 1e15;

struct Counted<'a> {
    name: &'a str,
    count: f64,
    failed: f64,
    latency_us: [Option<f64>; 6],
}

/// Of all runs that have one.
pub(crate) fn of_all(runs: &[RunRecord]) -> Vec<Census> {
    runs.iter().enumerate().filter_map(|(at, record)| Census::of(at, record)).collect()
}

/// The runs whose figures are to be listed: none when all are drawn here, with every figure in a table.
pub(crate) fn besides(runs: &[RunRecord]) -> &[RunRecord] {
    if of_all(runs).len() == runs.len() { &[] } else { runs }
}

fn phase_of(record: &RunRecord) -> Option<&Phase> {
    (record.benchmark == "mount").then_some(())?;
    record.phases.iter().find(|phase| phase.name == "mounted")
}

/// The types that were counted, the most frequent first.
fn counted(phase: &Phase) -> Vec<Counted<'_>> {
    let number = |name: &str, of: &str| {
        let value = phase.counters.get(&format!("{name}_{of}")).copied();
        value.filter(|value| (0.0..LIMIT).contains(value))
    };
    let mut all: Vec<Counted<'_>> = phase
        .counters
        .keys()
        .filter_map(|key| key.strip_suffix("_count"))
        .filter_map(|name| {
            let count = number(name, "count").filter(|count| *count > 0.0)?;
            let latency_us = LATENCIES.map(|of| number(name, &format!("{of}_us")));
            Some(Counted { name, count, failed: number(name, "failed").unwrap_or(0.0), latency_us })
        })
        .collect();
    all.sort_by(|a, b| b.count.total_cmp(&a.count).then_with(|| a.name.cmp(b.name)));
    all
}

impl Census {
    fn of(run: usize, record: &RunRecord) -> Option<Self> {
        let phase = phase_of(record)?;
        let all = counted(phase);
        if all.is_empty() {
            return None;
        }
        let total: f64 = all.iter().map(|of| of.count).sum();
        let wall_s = if phase.wall_s.is_finite() { phase.wall_s.max(1e-9) } else { 1e-9 };
        let axis = axis(&all);
        let busy_us: f64 = all.iter().filter_map(|of| Some(of.count * of.latency_us[0]?)).sum();
        let row = |of: &Counted<'_>| {
            let time =
                of.latency_us[0].filter(|_| busy_us > 0.0).map(|mean| 100.0 * of.count * mean / busy_us);
            let place = |at: usize| of.latency_us[at].map(|us| axis.place(us));
            OperationRow {
                name: of.name.to_owned(),
                count: count_text(of.count as u64),
                share: grouped(100.0 * of.count / total, 2),
                failed: count_text(of.failed as u64),
                per_sec: rate_text(of.count / wall_s),
                time_share: time.map(|percent| grouped(percent, 1)),
                latency_us: of.latency_us.map(|us| us.map(us_text)),
                places: place(1).zip(place(3)).map(|(p50, p99)| (p50, p99, place(5).unwrap_or(p99))),
            }
        };
        Some(Self {
            run,
            label: record.label.clone(),
            total: count_text(total as u64),
            per_sec: rate_text(total / wall_s),
            by_name: by_name(&all),
            operations: all.iter().map(row).collect(),
            ticks: axis.ticks.iter().map(|us| Tick { at: axis.place(*us), text: tick_text(*us) }).collect(),
        })
    }
}

fn by_name(all: &[Counted<'_>]) -> Vec<Share> {
    let named = || all.iter().filter(|of| !WITHOUT_NAME.contains(&of.name));
    let total: f64 = named().map(|of| of.count).sum();
    let own = |row: &str| named().filter(|of| of.name == row).map(|of| of.count).sum::<f64>();
    let told: f64 = TABLE_1.iter().map(|(row, _)| own(row)).sum();
    TABLE_1
        .map(|(name, published)| {
            let count = if name == "all other" { total - told } else { own(name) };
            let percent = 100.0 * count / total.max(1.0);
            Share {
                name,
                count: count_text(count as u64),
                percent,
                text: format!("{}%", grouped(percent, 2)),
                published,
                published_text: format!("{}%", grouped(published, 2)),
            }
        })
        .into()
}

fn axis(all: &[Counted<'_>]) -> Axis {
    let shown = || all.iter().flat_map(|of| [of.latency_us[1], of.latency_us[5].or(of.latency_us[3])]);
    let positive = || shown().flatten().filter(|us| *us > 0.0);
    Axis::log(positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max)).decades()
}

/// Three digits that count, of microseconds.
fn us_text(us: f64) -> String {
    ms_text(us * 1e3)
}

fn tick_text(us: f64) -> String {
    match us {
        us if us >= 1e6 => format!("{} s", grouped(us / 1e6, 0)),
        us if us >= 1e3 => format!("{} ms", grouped(us / 1e3, 0)),
        us if us >= 1.0 => format!("{} µs", grouped(us, 0)),
        us => format!("{us} µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(counters: &[(&str, f64)]) -> Phase {
        Phase {
            name: "mounted".to_owned(),
            wall_s: 10.0,
            counters: counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ..Phase::default()
        }
    }

    #[test]
    fn shares_are_of_operations_with_a_name_and_add_up_to_a_hundred() {
        let phase = phase(&[
            ("lookup_count", 80.0),
            ("create_count", 10.0),
            ("rename_count", 10.0),
            ("read_count", 1e6),
            ("unlink_count", f64::NAN),
        ]);
        let rows = by_name(&counted(&phase));
        let told: Vec<_> = rows.iter().map(|row| (row.name, row.percent)).collect();
        let expected =
            [("lookup", 80.0), ("unlink", 0.0), ("create", 10.0), ("readdir", 0.0), ("all other", 10.0)];
        assert_eq!(told, expected);
        let published: f64 = rows.iter().map(|row| row.published).sum();
        assert!((published - 100.0).abs() < 1e-9, "{published}");
    }

    #[test]
    fn rows_come_by_frequency_and_lie_in_order_on_their_axis() {
        let mut counters = vec![("a_count", 1.0), ("b_count", 5.0), ("b_failed", 2.0)];
        counters.extend([("b_mean_us", 4.0), ("b_p50_us", 3.0), ("b_p99_us", 30.0), ("b_max_us", 3000.0)]);
        let phase = phase(&counters);
        let all = counted(&phase);
        assert_eq!(all.iter().map(|of| of.name).collect::<Vec<_>>(), ["b", "a"]);
        let axis = axis(&all);
        let [p50, p99, max] = [3.0, 30.0, 3000.0].map(|us| axis.place(us));
        assert!(0.0 < p50 && p50 < p99 && p99 < max && max < 100.0, "{p50} {p99} {max}");
        assert!(all[1].latency_us.iter().all(Option::is_none));
    }
}
