//! What a page shows of a mount: its operations by type with their shares and latencies, beside the paper's day.
//!
//! ```text
//! phase `mounted`: lookup_count, lookup_failed, lookup_mean_us, lookup_p50_us, ... -> bars, ranges, table
//! ```
//!
//! Not here: counting (see `counters`), writing the record (the program).
//! Source of the published day: Zadok and Badulescu, "Usenetfs", CUCS-022-98, table 1.

use measure::numbers::{count_text, figure_text, grouped, ms_text, rate_text, seconds_text};
use measure::view::{Bar, Bars, Column, Range, Ranges, Row, Section, Table, Usual, View};
use measure::{Answer, Phase, RunRecord};

use crate::Operation;

/// Name of the phase that holds a mount's counts.
pub const PHASE: &str = "mounted";

/// Rows of table 1: the name, and its share of the paper's day.
const TABLE_1: [(&str, f64); 5] =
    [("lookup", 88.41), ("unlink", 5.41), ("create", 4.32), ("readdir", 0.48), (OTHERS, 1.38)];
const OTHERS: &str = "all other";
const LATENCIES: [&str; 6] = ["mean", "p50", "p90", "p99", "p999", "max"];
/// Larger counts and times are rejected: the imported record must be wrong.
const LIMIT: f64 = 1e15;
const ASKED: Option<&str> = Some("Asked");
const TIME: Option<&str> = Some("Time in the mount's program, µs");
const COLUMNS: [(Option<&str>, &str); 11] = [
    (ASKED, "count"),
    (ASKED, "%"),
    (ASKED, "/s"),
    (ASKED, "failed"),
    (TIME, "mean"),
    (TIME, "p50"),
    (TIME, "p90"),
    (TIME, "p99"),
    (TIME, "p99.9"),
    (TIME, "max"),
    (None, "Of all time, %"),
];

/// One type of operation, as a record has it.
struct Counted<'a> {
    name: &'a str,
    count: f64,
    failed: f64,
    latency_us: [Option<f64>; 6],
}

/// How many operations a mount served, and what the most frequent one took.
pub fn answer(run: &RunRecord) -> Answer {
    let phase = run.phases.iter().find(|phase| phase.name == PHASE);
    phase.map_or_else(Answer::default, |phase| Answer::of(sentence(phase)))
}

/// Empty for a mount that served nothing.
fn sentence(phase: &Phase) -> String {
    let all = counted(phase);
    let Some(first) = all.first() else { return String::new() };
    let total: f64 = all.iter().map(|of| of.count).sum();
    let (total_text, took) = (count_text(total as u64), seconds_text(phase.wall_s));
    let share = grouped(100.0 * first.count / total, 0);
    let mut sentence = format!("Served {total_text} operations in {took}; {share}% were {}", first.name);
    if let Some(median_us) = first.latency_us[1] {
        sentence.push_str(&format!(", at a median of {}", figure_text("us", median_us)));
    }
    sentence
}

/// One section per mount that served requests.
pub fn views(runs: &[&RunRecord]) -> Vec<Section> {
    let counted: Vec<(usize, &Phase, Vec<Counted<'_>>)> = runs
        .iter()
        .enumerate()
        .filter_map(|(at, run)| {
            let phase = run.phases.iter().find(|phase| phase.name == PHASE)?;
            Some((at, phase, counted(phase))).filter(|(_, _, all)| !all.is_empty())
        })
        .collect();
    let several = counted.len() > 1;
    counted.iter().map(|(at, phase, all)| section(*at, phase, all, (&runs[*at].label, several))).collect()
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

fn section(at: usize, phase: &Phase, all: &[Counted<'_>], (label, several): (&str, bool)) -> Section {
    let total: f64 = all.iter().map(|of| of.count).sum();
    let wall_s = if phase.wall_s.is_finite() { phase.wall_s.max(1e-9) } else { 1e-9 };
    let of = if several { format!(": {label}") } else { String::new() };
    let ranges: Vec<Range> = all.iter().filter_map(range).collect();
    let mut items = vec![View::Bars(Bars {
        title: "Operations that use a name",
        read: "Bars: this mount. Dashed lines: a day on a news spool in 1998 (Zadok and Badulescu, table 1).",
        axis: "share of operations that use a name, %",
        unit: "%",
        rows: by_name(all),
    })];
    if !ranges.is_empty() {
        items.push(View::Ranges(Ranges {
            title: "Time in the mount's program",
            read: "From the median (dot) to 99% (thick), and to the slowest (thin); logarithmic. The most frequent operations first.",
            rows: ranges,
        }));
    }
    items.push(View::Table(table(label, all, total, wall_s)));
    Section {
        id: format!("census-{at}"),
        title: format!("What the mount was asked{of}"),
        read: format!(
            "{} operations, {}/s. What the kernel answers from its caches, and file data that it passes through, never reaches the mount and is not counted.",
            count_text(total as u64),
            rate_text(total / wall_s)
        ),
        runs: vec![at],
        // The table says more than hundreds of counters.
        instead_of: &[Usual::Metrics, Usual::Phases],
        items,
        ..Section::default()
    }
}

fn by_name(all: &[Counted<'_>]) -> Vec<Bar> {
    // What a newer version counts is taken for an operation with a name, as most are.
    let has_name = |of: &&Counted<'_>| {
        Operation::ALL.iter().find(|known| known.name() == of.name).is_none_or(|known| known.by_name())
    };
    let named = || all.iter().filter(has_name);
    let total: f64 = named().map(|of| of.count).sum();
    let own = |row: &str| named().filter(|of| of.name == row).map(|of| of.count).sum::<f64>();
    let in_rows: f64 = TABLE_1.iter().map(|(row, _)| own(row)).sum();
    let bar = |(name, published): (&str, f64)| {
        let count = if name == OTHERS { total - in_rows } else { own(name) };
        let value = 100.0 * count / total.max(1.0);
        let text = format!("{}%", grouped(value, 2));
        Bar {
            name: name.to_owned(),
            value,
            published: Some(published),
            facts: vec![
                ("operations", count_text(count as u64)),
                ("share", text.clone()),
                ("news spool, 1998", format!("{}%", grouped(published, 2))),
            ],
            text,
        }
    };
    TABLE_1.map(bar).into()
}

fn range(of: &Counted<'_>) -> Option<Range> {
    let [_, p50, _, p99, _, max_us] = of.latency_us;
    let (p50_us, p99_us) = p50.zip(p99)?;
    let text = |us: f64| format!("{} µs", us_text(us));
    let mut facts =
        vec![("operations", count_text(of.count as u64)), ("median", text(p50_us)), ("99%", text(p99_us))];
    facts.extend(max_us.map(|us| ("slowest", text(us))));
    Some(Range { name: of.name.to_owned(), p50_us, p99_us, max_us, text: text(p50_us), facts })
}

fn table(label: &str, all: &[Counted<'_>], total: f64, wall_s: f64) -> Table {
    let busy_us: f64 = all.iter().filter_map(|of| Some(of.count * of.latency_us[0]?)).sum();
    let row = |of: &Counted<'_>| {
        let time = of.latency_us[0].filter(|_| busy_us > 0.0).map(|mean| 100.0 * of.count * mean / busy_us);
        let mut cells = vec![
            Some(count_text(of.count as u64)),
            Some(grouped(100.0 * of.count / total, 2)),
            Some(rate_text(of.count / wall_s)),
            Some(count_text(of.failed as u64)),
        ];
        cells.extend(of.latency_us.map(|us| us.map(us_text)));
        cells.push(time.map(|percent| grouped(percent, 1)));
        Row { name: of.name.to_owned(), cells, published: false }
    };
    Table {
        about: format!("Operations of {label} by type"),
        of: "Operation",
        columns: COLUMNS.iter().map(|(group, title)| Column { group: *group, title }).collect(),
        rows: all.iter().map(row).collect(),
        key: "A look-up of a name that is not there counts as failed.".to_owned(),
    }
}

/// Microseconds with three significant digits.
fn us_text(us: f64) -> String {
    ms_text(us * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(counters: &[(&str, f64)]) -> Phase {
        Phase {
            name: PHASE.to_owned(),
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
        let shares: Vec<(&str, f64)> = rows.iter().map(|row| (row.name.as_str(), row.value)).collect();
        let expected =
            [("lookup", 80.0), ("unlink", 0.0), ("create", 10.0), ("readdir", 0.0), ("all other", 10.0)];
        assert_eq!(shares, expected);
        let published: f64 = rows.iter().filter_map(|row| row.published).sum();
        assert!((published - 100.0).abs() < 1e-9, "{published}");
    }

    #[test]
    fn a_mount_answers_with_its_operations_and_the_most_frequent_of_them() {
        let counters = [("lookup_count", 3_000.0), ("lookup_p50_us", 4.3), ("create_count", 1_000.0)];
        assert_eq!(
            sentence(&phase(&counters)),
            "Served 4,000 operations in 10.0 s; 75% were lookup, at a median of 4.30 µs"
        );
        assert_eq!(sentence(&phase(&counters[2..])), "Served 1,000 operations in 10.0 s; 100% were create");
        assert_eq!(sentence(&phase(&[])), "");
    }

    #[test]
    fn rows_come_by_frequency_and_one_without_latencies_has_no_range() {
        let mut counters = vec![("a_count", 1.0), ("b_count", 5.0), ("b_failed", 2.0)];
        counters.extend([("b_mean_us", 4.0), ("b_p50_us", 3.0), ("b_p99_us", 30.0), ("b_max_us", -1.0)]);
        let phase = phase(&counters);
        let all = counted(&phase);
        let section = section(0, &phase, &all, ("news", false));
        let [View::Bars(_), View::Ranges(ranges), View::Table(table)] = &section.items[..] else {
            panic!("{:?}", section.items)
        };
        assert_eq!(table.rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
        let cells: Vec<&str> =
            table.rows[0].cells.iter().map(|cell| cell.as_deref().unwrap_or("-")).collect();
        assert_eq!(cells, ["5", "83.33", "0.5", "2", "4.00", "3.00", "-", "30.0", "-", "-", "100.0"]);
        assert_eq!(table.columns.len(), cells.len());
        assert_eq!((ranges.rows.len(), ranges.rows[0].max_us), (1, None), "a time is not negative");
        assert_eq!(section.title, "What the mount was asked");
    }
}
