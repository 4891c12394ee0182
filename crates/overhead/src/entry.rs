//! What is said of its records, for lists, comparisons and pages.

use std::collections::BTreeMap;

use measure::numbers::figure_text;
use measure::view::{Bar, Bars, Column, Place, Row, Section, Table, Usual, View};
use measure::{Answer, BenchmarkEntry, Role, RunRecord};

use crate::Work;

/// Its metrics, the roles of its configuration's fields, the answer as a sentence, and the table.
pub const ENTRY: BenchmarkEntry = BenchmarkEntry {
    settings: &[("lower", Role::Place)],
    answer: |record| Answer::of(sentence(&record.metrics)),
    is_compared,
    views,
    ..BenchmarkEntry::of(crate::METRICS)
};

/// What is added to each operation, and to a build; the rest says how that came about.
fn is_compared(name: &str) -> bool {
    name.ends_with("_added_us") || name == "build_slower_percent"
}

/// Empty without a figure for creating files.
fn sentence(metrics: &BTreeMap<String, f64>) -> String {
    let of = |work: Work, what: &str| metrics.get(&format!("{}_{what}", work.name())).copied();
    let (Some(added), Some(share)) = (of(Work::Create, "added_us"), of(Work::Create, "share_percent")) else {
        return String::new();
    };
    let mut sentence = format!(
        "Creating a file takes {} more through the mount ({share:.0}% of the rate below)",
        figure_text("us", added)
    );
    for (work, name) in [
        (Work::StatCold, "a cold stat"),
        (Work::OpenReadClose, "reading a small file"),
        (Work::Unlink, "removing one"),
    ] {
        if let Some(added) = of(work, "added_us") {
            sentence.push_str(&format!(", {name} {}", figure_text("us", added)));
        }
    }
    sentence
}

/// A table of each run.
fn views(runs: &[&RunRecord]) -> Vec<Section> {
    let column = |title| Column { group: None, title };
    let sections = runs.iter().enumerate().map(|(at, record)| {
        let metric = |work: Work, what: &str| record.metrics.get(&format!("{}_{what}", work.name())).copied();
        let rows = Work::ALL.into_iter().filter(|work| metric(*work, "mount_us").is_some()).map(|work| {
            let us = |what: &str| metric(work, what).map(|us| figure_text("us", us));
            let interval = |what: &str| {
                let (low, high) =
                    (metric(work, &format!("{what}_low_us"))?, metric(work, &format!("{what}_high_us"))?);
                Some(format!("{} to {}", figure_text("us", low), figure_text("us", high)))
            };
            let share = metric(work, "share_percent").map(|share| format!("{share:.1}%"));
            let requests = metric(work, "requests").map(|requests| format!("{requests:.2}"));
            let cells =
                vec![us("lower_us"), us("mount_us"), us("added_us"), interval("added"), share, requests];
            Row { name: work.title().to_owned(), cells, published: false }
        });
        let table = Table {
            about: "time of one operation below and through the mount".to_owned(),
            of: "operation",
            columns: [
                "below",
                "through the mount",
                "added",
                "95% interval",
                "share of the rate below",
                "requests",
            ]
            .map(column)
            .to_vec(),
            rows: rows.collect(),
            key: "Medians over the rounds. Requests: those that a program waits for, each operation."
                .to_owned(),
        };
        Section {
            id: format!("overhead-{at}"),
            title: format!("What the layer adds: {}", record.label),
            read:
                "Each operation was timed below and through the mount, one right after the other, in rounds."
                    .to_owned(),
            runs: vec![at],
            place: Place::First,
            instead_of: &[Usual::Metrics],
            items: [View::Table(table)]
                .into_iter()
                .chain(beside_the_floor(record).map(View::Table))
                .chain(build(record).map(View::Table))
                .chain([View::Bars(shares(record))])
                .collect(),
            ..Section::default()
        }
    });
    sections.collect()
}

/// What is added beside the floor, a row an operation; none without a floor.
fn beside_the_floor(record: &RunRecord) -> Option<Table> {
    let rows = Work::ALL.into_iter().filter_map(|work| {
        let metric = |what: &str| record.metrics.get(&format!("{}_{what}", work.name())).copied();
        let us = |us: f64| figure_text("us", us);
        let hundredths = |value: f64| format!("{value:.2}");
        let floor = us(metric("floor_us")?);
        let interval = metric("of_floor_low").zip(metric("of_floor_high"));
        let cells = vec![
            metric("added_us").map(us),
            metric("requests").map(hundredths),
            Some(floor),
            metric("floor_requests").map(hundredths),
            metric("of_floor").map(hundredths),
            interval.map(|(low, high)| format!("{low:.2} to {high:.2}")),
        ];
        Some(Row { name: work.title().to_owned(), cells, published: false })
    });
    let rows: Vec<Row> = rows.collect();
    let titles = ["added", "requests", "floor", "requests of the floor", "times the floor", "95% interval"];
    (!rows.is_empty()).then(|| Table {
        about: "what the layer adds beside the floor".to_owned(),
        of: "operation",
        columns: titles.map(|title| Column { group: None, title }).to_vec(),
        rows,
        key: "Floor: the whole operation on a FUSE file system that answers from memory. Times: what the layer adds, as a multiple of it."
            .to_owned(),
    })
}

/// The build, if there was one.
fn build(record: &RunRecord) -> Option<Table> {
    let metric = |name: &str| record.metrics.get(name).copied();
    let slower = metric("build_slower_percent")?;
    let seconds = |name: &str| metric(name).map(|s| format!("{s:.2} s"));
    let interval = metric("build_slower_low_percent").zip(metric("build_slower_high_percent"));
    let cells = vec![
        seconds("build_lower_s"),
        seconds("build_mount_s"),
        Some(format!("{slower:.1}%")),
        interval.map(|(low, high)| format!("{low:.1}% to {high:.1}%")),
    ];
    let columns = ["below", "through the mount", "slower", "95% interval"];
    Some(Table {
        about: "a build of a C package below and through the mount".to_owned(),
        of: "work",
        columns: columns.map(|title| Column { group: None, title }).to_vec(),
        rows: vec![Row { name: "configure and make".to_owned(), cells, published: false }],
        key: "Medians over the rounds, of which each built once on either side.".to_owned(),
    })
}

/// The rate through the mount as a share of the rate below, a bar an operation.
fn shares(record: &RunRecord) -> Bars {
    let rows = Work::ALL.into_iter().filter_map(|work| {
        let share = *record.metrics.get(&format!("{}_share_percent", work.name()))?;
        let text = format!("{share:.1}%");
        Some(Bar { name: work.title().to_owned(), value: share, text, published: None, facts: vec![] })
    });
    Bars {
        title: "How fast each operation is through the mount",
        read: "A whole bar is as fast as the file system below.",
        axis: "rate through the mount, % of the rate below",
        unit: "%",
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_answers_with_what_is_added_to_the_operations_that_it_measured() {
        let metrics: BTreeMap<String, f64> =
            [("create_added_us", 82.13), ("create_share_percent", 28.6), ("unlink_added_us", 40.0)]
                .map(|(name, value)| (name.to_owned(), value))
                .into();
        assert_eq!(
            sentence(&metrics),
            "Creating a file takes 82.1 µs more through the mount (29% of the rate below), removing one 40.0 µs"
        );
        assert_eq!(sentence(&BTreeMap::new()), "");
    }
}
