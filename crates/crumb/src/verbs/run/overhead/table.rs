//! An overhead record as a table.

use measure::RunRecord;
use overhead::Work;

use crate::layout::{grid, wrapped};
use crate::tables::{self, us_text};

/// A row for each operation; the table shows the metrics.
pub fn table_of(record: &RunRecord) -> String {
    let metric = |work: Work, what: &str| record.metrics.get(&format!("{}_{what}", work.name())).copied();
    let rows: Vec<Vec<String>> = Work::ALL
        .into_iter()
        .filter(|work| metric(*work, "mount_us").is_some())
        .map(|work| {
            let us = |what: &str| metric(work, what).map_or_else(|| "-".to_owned(), us_text);
            let ends = match (metric(work, "added_low_us"), metric(work, "added_high_us")) {
                (Some(low), Some(high)) => format!("{} to {}", us_text(low), us_text(high)),
                _ => "-".to_owned(),
            };
            let share =
                metric(work, "share_percent").map_or_else(|| "-".to_owned(), |share| format!("{share:.0}%"));
            let requests =
                metric(work, "requests").map_or_else(|| "-".to_owned(), |requests| format!("{requests:.2}"));
            vec![
                work.title().to_owned(),
                us("lower_us"),
                us("mount_us"),
                us("added_us"),
                ends,
                share,
                requests,
            ]
        })
        .collect();
    let heads = ["us an operation", "below", "mount", "added", "95% interval", "share", "requests"];
    let mut text = match rows.is_empty() {
        true => String::new(),
        false => format!("{}\n", grid(&heads, 0, &rows)),
    };
    if !rows.is_empty() {
        text.push_str(&wrapped(
            "",
            "Medians over the rounds. share: the rate through the mount as a share of the rate below; requests: those that a program \
             waits for, each operation, counted apart from the timing.",
        ));
        text.push('\n');
    }
    text + &tables::answer(record)
        + &tables::summary(&RunRecord { metrics: Default::default(), ..record.clone() })
}
