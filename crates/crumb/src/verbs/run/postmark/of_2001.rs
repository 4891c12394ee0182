//! The table of 2001, with a run as its last row.

use std::num::NonZeroU32;

use measure::RunRecord;
use postmark::{Settings, SizeRange};

use crate::layout::grid;

/// The comparison of 2001, which a user tuned RAID arrays by, with this run as its last row.
pub fn beside_2001(record: &RunRecord, settings: &Settings) -> String {
    // total s, transactions/s, creation alone files/s, deletion alone files/s, read KB/s, written KB/s; published.
    const PUBLISHED: [(&str, [f64; 6]); 5] = [
        ("RAID 5, chunk 32, read-ahead", [3480.0, 29.0, 95.0, 292.0, 232.05, 280.10]),
        ("  without read-ahead", [3526.0, 29.0, 80.0, 254.0, 229.02, 276.45]),
        ("RAID 5, chunk 64, read-ahead", [3609.0, 28.0, 107.0, 381.0, 223.75, 270.09]),
        ("  without read-ahead", [3506.0, 29.0, 84.0, 320.0, 230.33, 278.03]),
        ("one Ultra-Wide disk", [6488.0, 17.0, 30.0, 30.0, 124.46, 150.24]),
    ];
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
    let mut rows: Vec<Vec<String>> = PUBLISHED.iter().map(|(name, figures)| row(name, figures)).collect();
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
