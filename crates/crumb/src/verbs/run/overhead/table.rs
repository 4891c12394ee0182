//! An overhead record as tables.

use measure::RunRecord;
use overhead::Work;

use crate::layout::{grid, wrapped};
use crate::tables::{self, us_text};

/// A row for each operation, another beside the floor, and the build; the tables show the metrics.
pub fn table_of(record: &RunRecord) -> String {
    let mut text = operations(record) + &beside_the_floor(record) + &build(record);
    if !text.is_empty() {
        text.push('\n');
    }
    text + &tables::answer(record)
        + &tables::summary(&RunRecord { metrics: Default::default(), ..record.clone() })
}

fn metric(record: &RunRecord, work: Work, what: &str) -> Option<f64> {
    record.metrics.get(&format!("{}_{what}", work.name())).copied()
}

fn dash() -> String {
    "-".to_owned()
}

fn ends(ends: (Option<f64>, Option<f64>), text: impl Fn(f64) -> String) -> String {
    match ends {
        (Some(low), Some(high)) => format!("{} to {}", text(low), text(high)),
        _ => dash(),
    }
}

fn hundredths(value: f64) -> String {
    format!("{value:.2}")
}

fn operations(record: &RunRecord) -> String {
    let rows = Work::ALL.into_iter().filter(|work| metric(record, *work, "mount_us").is_some()).map(|work| {
        let of = |what: &str| metric(record, work, what);
        let us = |what: &str| of(what).map_or_else(dash, us_text);
        vec![
            work.title().to_owned(),
            us("lower_us"),
            us("mount_us"),
            us("added_us"),
            ends((of("added_low_us"), of("added_high_us")), us_text),
            of("share_percent").map_or_else(dash, |share| format!("{share:.0}%")),
            of("requests").map_or_else(dash, hundredths),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["us an operation", "below", "mount", "added", "95% interval", "share", "requests"];
    let key = "Medians over the rounds. share: the rate through the mount as a share of the rate below; requests: those that a program \
               waits for, each operation, counted apart from the timing.";
    format!("{}\n{}", grid(&heads, 0, &rows), wrapped("", key))
}

fn beside_the_floor(record: &RunRecord) -> String {
    let rows = Work::ALL.into_iter().filter(|work| metric(record, *work, "floor_us").is_some()).map(|work| {
        let of = |what: &str| metric(record, work, what);
        vec![
            work.title().to_owned(),
            of("added_us").map_or_else(dash, us_text),
            of("requests").map_or_else(dash, hundredths),
            of("floor_us").map_or_else(dash, us_text),
            of("floor_requests").map_or_else(dash, hundredths),
            of("of_floor").map_or_else(dash, hundredths),
            ends((of("of_floor_low"), of("of_floor_high")), hundredths),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["us an operation", "added", "requests", "floor", "requests", "times", "95% interval"];
    let key = "floor: the whole operation on a FUSE file system that answers from memory; times: what the layer adds, as a multiple of it.";
    format!("\n{}\n{}", grid(&heads, 0, &rows), wrapped("", key))
}

fn build(record: &RunRecord) -> String {
    let of = |name: &str| record.metrics.get(name).copied();
    let Some(slower) = of("build_slower_percent") else { return String::new() };
    let (seconds, percent) = (|s: f64| format!("{s:.2}"), |percent: f64| format!("{percent:.1}"));
    let row = vec![
        "build".to_owned(),
        of("build_lower_s").map_or_else(dash, seconds),
        of("build_mount_s").map_or_else(dash, seconds),
        format!("{slower:.1}%"),
        ends((of("build_slower_low_percent"), of("build_slower_high_percent")), percent),
    ];
    format!("\n{}", grid(&["seconds", "below", "mount", "slower", "95% interval"], 0, &[row]))
}
