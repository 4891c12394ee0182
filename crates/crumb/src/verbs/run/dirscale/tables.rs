//! A dirscale record as tables.

use measure::RunRecord;

use crate::layout::{grid, wrapped};
use crate::tables::{self, us_text};

/// A table for each layout; what the layouts pay for stands in the verdict.
pub fn tables_of(record: &RunRecord) -> String {
    let columns = [
        ("lookup_random_us", "random"),
        ("lookup_sequential_us", "sequential"),
        ("add_us", "add"),
        ("remove_us", "remove"),
        ("readdir_us", "read whole"),
        ("day_us", "day's mean"),
    ];
    let mut labels: Vec<&str> = Vec::new();
    for label in record.curves.iter().flat_map(|curve| &curve.lines).map(|line| line.label.as_str()) {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    let mut text = String::new();
    for label in labels {
        let points = |name: &str| {
            let curve = record.curves.iter().find(|curve| curve.name == name);
            let line = curve.and_then(|curve| curve.lines.iter().find(|line| line.label == label));
            line.map_or(&[][..], |line| &line.points)
        };
        let rows: Vec<Vec<String>> = points("day_us")
            .iter()
            .map(|at| {
                let cell = |name: &str| {
                    let point = points(name).iter().find(|point| point.x == at.x);
                    point.map_or_else(|| "-".to_owned(), |point| us_text(point.y))
                };
                let files = report::count_text(at.x as u64);
                std::iter::once(files).chain(columns.iter().map(|(name, _)| cell(name))).collect()
            })
            .collect();
        let heads: Vec<&str> =
            std::iter::once("files").chain(columns.iter().map(|(_, head)| *head)).collect();
        text.push_str(&format!("{label}: microseconds an operation\n{}\n", grid(&heads, 0, &rows)));
    }
    if record.curves.iter().any(|curve| curve.name == "day_us") {
        text.push_str(&wrapped(
            "",
            "read whole: one reading of the whole directory; day's mean: an operation of the day on average, each kind as \
             often as --frequencies says",
        ));
        text.push('\n');
    }
    // The tables have shown the metrics.
    text + &tables::answer(record)
        + &tables::summary(&RunRecord { metrics: Default::default(), ..record.clone() })
}
