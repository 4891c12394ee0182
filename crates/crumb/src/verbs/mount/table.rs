//! What a mount was asked, as a table.

use std::time::Duration;

use report::count_text;
use stackfs::Census;

use crate::layout::grid;

/// The counts as a table, the paper's five rows first.
pub fn table(census: &Census) -> String {
    let mut text = String::new();
    let rows: Vec<Vec<String>> = census
        .table_1()
        .iter()
        .map(|(name, count, share)| vec![(*name).to_owned(), count_text(*count), format!("{share:.2}")])
        .collect();
    text.push_str(&grid(&["by name", "count", "% of these"], 1, &rows));
    text.push('\n');
    let rows: Vec<Vec<String>> = census
        .operations
        .iter()
        .map(|(operation, counted)| {
            let of = counted.latency.summary();
            let us = |value: f64| format!("{value:.1}");
            vec![
                operation.name().to_owned(),
                count_text(of.count),
                count_text(counted.failed),
                us(of.mean),
                us(of.p50),
                us(of.p99),
                us(of.max),
            ]
        })
        .collect();
    text.push_str(&grid(
        &["operation", "count", "failed", "mean us", "p50 us", "p99 us", "max us"],
        1,
        &rows,
    ));
    text.push_str(&format!(
        "{} inodes known, {} files and {} directories open, {} passed through; mounted for {}\n",
        count_text(census.nodes as u64),
        count_text(census.files_open as u64),
        count_text(census.directories_open as u64),
        count_text(census.passed_through as u64),
        humantime::format_duration(Duration::from_secs(census.elapsed.as_secs())),
    ));
    let waiting = census.waiting.to_string();
    // Two lines where one would be too long for a terminal.
    let is_long = waiting.chars().count() > 80;
    text.push_str(&if is_long { waiting.replacen(": ", ":\n", 1) } else { waiting });
    text.push('\n');
    text
}
