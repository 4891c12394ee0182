//! The table of 2001, with a run as its last row.

use std::num::NonZeroU32;

use measure::RunRecord;
use postmark::published::RUNS_OF_2001;
use postmark::{Settings, SizeRange};

use crate::layout::grid;

/// The comparison of 2001, which a user tuned RAID arrays by, with this run as its last row.
pub fn beside_2001(record: &RunRecord, settings: &Settings) -> String {
    let metric = |name: &str| record.metrics.get(name).copied().unwrap_or(0.0);
    let ours = [
        metric("total_s"),
        metric("transactions_per_sec"),
        metric("created_alone_per_sec"),
        metric("deleted_alone_per_sec"),
        metric("read_bytes_per_sec") / 1024.0,
        metric("written_bytes_per_sec") / 1024.0,
    ];
    let row = |name: &str, figures: &[f64; 6]| {
        let mut cells = vec![name.to_owned()];
        cells.extend(figures.iter().map(|figure| match figure {
            small if *small < 100.0 => format!("{small:.1}"),
            large => report::count_text(large.round() as u64),
        }));
        cells
    };
    let mut rows: Vec<Vec<String>> =
        RUNS_OF_2001.iter().map(|run| row(&shorter(run.name), &run.figures())).collect();
    rows.push(row("this run", &ours));
    let heads = ["2001, PostMark 1.13", "total s", "trans/s", "creat/s", "delet/s", "read KB/s", "writ KB/s"];
    let same = settings_of_2001();
    let note = if (settings.number, settings.transactions, settings.size, settings.subdirectories)
        == (same.number, same.transactions, same.size, same.subdirectories)
    {
        ""
    } else {
        "This run had other settings than those of 2001: compare with --preset 2001.\n"
    };
    format!("{}{note}\n", grid(&heads, 1, &rows))
}

/// For a terminal of 80 columns: the line above has the rest.
fn shorter(name: &str) -> String {
    name.split_once(", without").map_or_else(|| name.to_owned(), |(_, what)| format!("  without{what}"))
}

/// `size 10240 20480, transactions 100000, subdirectories 10, number 10000`.
pub fn settings_of_2001() -> Settings {
    let count = |count| NonZeroU32::new(count).expect("none of the settings of 2001 is 0");
    Settings {
        size: SizeRange::new(count(10_240), count(20_480)),
        number: count(10_000),
        transactions: count(100_000),
        subdirectories: 10,
        ..Settings::default()
    }
}
