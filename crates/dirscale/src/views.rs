//! What a page shows of dirscale's runs beside their curves: from how many files subdirectories pay, as the paper says and as
//! measured.
//!
//! The text that is left of the paper has its figures without their points, so the values are those of its prose.
//! Source: Zadok and Badulescu, "Usenetfs: A Stackable File System for Large Article Directories", CUCS-022-98, figures 3 to 6.

use measure::RunRecord;
use measure::numbers::count_text;
use measure::view::{Column, Published, PublishedValue, Row, Section, Table, View};

/// A question of the paper: its figure and heading, what its metric's name ends in, the paper's answer.
const QUESTIONS: [(Column, &str, &str); 5] = [
    (of("Lookups, figure 3", "random"), "_lookup_random", "1,000 to 2,000"),
    (of("Lookups, figure 3", "sequential"), "_lookup_sequential", "500 to 1,000"),
    (of("Files, figure 4", "add and remove"), "_add_and_remove", "about 1,000"),
    (of("Directory, figure 5", "read it whole"), "_readdir", "about 100,000"),
    (of("News server, figure 6", "a day"), "", "10,000"),
];

const fn of(figure: &'static str, title: &'static str) -> Column {
    Column { group: Some(figure), title }
}

const PREFIX: &str = "pays_from_files_";

/// The paper and what its prose says of its figures.
const PAPER: Published = Published {
    source: "Erez Zadok and Ion Badulescu, Usenetfs: A Stackable File System for Large Article Directories, CUCS-022-98, Columbia \
             University, 1998",
    short: "Zadok and Badulescu, 1998",
    year: "1998",
    read: "Files of 2 KiB on ext2 without an index of directories, flat and in 1,000 subdirectories by Usenetfs, on a Pentium II \
           of 333 MHz: hold the sizes from which subdirectories pay against ours, not the times.",
    values: VALUES,
};

const fn value(
    name: &'static str,
    value: f64,
    text: &'static str,
    of: &'static str,
    source: &'static str,
) -> PublishedValue {
    PublishedValue { name, value, text, of, pass: None, source, drawn: &[] }
}

const PAYS: &str = "files in a directory from which Usenetfs is faster";
const VALUES: &[PublishedValue] = &[
    value("random lookups", 2_000.0, "1,000 to 2,000 files", PAYS, "text to figure 3"),
    value(
        "random lookups",
        10.0,
        "over 10 times",
        "flat against Usenetfs from 10,000 files on",
        "text to figure 3",
    ),
    value("sequential lookups", 1_000.0, "500 to 1,000 files", PAYS, "text to figure 3"),
    value(
        "sequential lookups",
        2.0,
        "2 times",
        "flat against Usenetfs from 1,000 files on",
        "text to figure 3",
    ),
    value("adding and removing", 1_000.0, "about 1,000 files", PAYS, "text to figures 4 and 5"),
    value("reading the directory", 100_000.0, "about 100,000 files", PAYS, "text to figure 5"),
    value(
        "reading the directory",
        0.5,
        "0.5 s",
        "what reading 1,000 subdirectories costs at any size",
        "text to figure 5",
    ),
    value("a day of a news server", 10_000.0, "10,000 files", PAYS, "text to figure 6"),
];

/// None when no run has found a size.
pub(crate) fn views(runs: &[&RunRecord]) -> Vec<Section> {
    let ours: Vec<Row> = runs.iter().flat_map(|run| rows(run, runs.len() > 1)).collect();
    if ours.is_empty() {
        return vec![];
    }
    let paper = Row {
        name: "Usenetfs, 1998".to_owned(),
        cells: QUESTIONS.iter().map(|(_, _, answer)| Some((*answer).to_owned())).collect(),
        published: true,
    };
    let table = Table {
        about: "From how many files subdirectories pay, published and measured".to_owned(),
        of: "Layout",
        columns: QUESTIONS.iter().map(|(column, ..)| *column).collect(),
        rows: std::iter::once(paper).chain(ours).collect(),
        key: "Files in a directory from which the layout is faster than one flat directory, up to the largest size measured. A \
              dash: it is not shown to be faster."
            .to_owned(),
    };
    vec![Section {
        id: "pays-from".to_owned(),
        title: "From how many files subdirectories pay".to_owned(),
        read:
            "The questions of the paper’s figures, answered by its authors in 1998 (grey) and by these runs."
                .to_owned(),
        runs: (0..runs.len()).collect(),
        items: vec![View::Table(table)],
        published: Some(PAPER),
        ..Section::default()
    }]
}

/// A row for each layout of which something is known.
fn rows(run: &RunRecord, is_named: bool) -> Vec<Row> {
    let ending = |slug: &str| {
        QUESTIONS.iter().map(|(_, ending, _)| *ending).find(|of| !of.is_empty() && slug.ends_with(of))
    };
    let mut layouts: Vec<&str> = Vec::new();
    for name in run.metrics.keys() {
        let Some(slug) = name.strip_prefix(PREFIX) else { continue };
        let slug = ending(slug).map_or(slug, |ending| &slug[..slug.len() - ending.len()]);
        let is_other = ["_add", "_remove"].iter().any(|of| slug.ends_with(of));
        if !is_other && !layouts.contains(&slug) {
            layouts.push(slug);
        }
    }
    let row = |slug: &str| {
        let cell = |(_, ending, _): &(Column, &str, &str)| {
            let files = run.metrics.get(&format!("{PREFIX}{slug}{ending}")).copied();
            files.filter(|files| (0.0..1e15).contains(files)).map(|files| count_text(files.round() as u64))
        };
        let layout = slug.replace('_', "/");
        Row {
            name: if is_named {
                format!("{}: layout {layout}", run.label)
            } else {
                format!("layout {layout}")
            },
            cells: QUESTIONS.iter().map(cell).collect(),
            published: false,
        }
    };
    layouts.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use measure::Environment;

    use super::*;

    fn run(metrics: &[(&str, f64)]) -> RunRecord {
        let json = serde_json::json!({
            "schema": 1, "id": "x", "benchmark": "dirscale", "label": "ext4", "target": "", "started": "2026-11-21T18:00:00Z",
            "ended": "2026-11-21T18:00:00Z", "command": [], "config": null, "environment": Environment::default(),
            "seed": 1, "complete": true, "verdict": {"valid": true, "reasons": []}
        });
        let mut record = RunRecord::from_json(&json.to_string()).unwrap();
        record.metrics = metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        record
    }

    #[test]
    fn each_layout_has_a_row_below_the_papers_and_a_run_that_found_no_size_has_no_section() {
        let run = run(&[
            ("pays_from_files_34_56", 2_048.4),
            ("pays_from_files_34_56_readdir", 90_000.0),
            ("pays_from_files_345_add_and_remove", f64::NAN),
            ("day_cost_flat_us", 14.0),
        ]);
        let sections = views(&[&run]);
        let [View::Table(table)] = &sections[0].items[..] else { panic!("{:?}", sections[0].items) };
        let names: Vec<(&str, bool)> =
            table.rows.iter().map(|row| (row.name.as_str(), row.published)).collect();
        assert_eq!(names, [("Usenetfs, 1998", true), ("layout 345", false), ("layout 34/56", false)]);
        let cells: Vec<&str> =
            table.rows[2].cells.iter().map(|cell| cell.as_deref().unwrap_or("-")).collect();
        assert_eq!(cells, ["-", "-", "-", "90,000", "2,048"]);
        assert!(table.rows[1].cells.iter().all(Option::is_none), "a size that is not a number is left out");
        assert!(views(&[&self::run(&[("day_cost_flat_us", 14.0)])]).is_empty());
    }
}
