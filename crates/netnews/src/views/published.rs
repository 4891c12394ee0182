//! What the paper measured in 1996.
//!
//! The text that is left of the paper has its figures drawn in characters. What the prose gives is taken from the
//! prose; what only a drawing gives is called "about", with the steps of the drawing where it is coarse.
//! Source: Swartz, "The Brave Little Toaster Meets Usenet", LISA X 1996.

use measure::view::{Published, PublishedValue};

/// The paper and its values.
pub(super) const PAPER: Published = Published {
    source: "Karl L. Swartz, The Brave Little Toaster Meets Usenet, Proceedings of LISA X, USENIX, 1996",
    short: "Swartz, LISA X, 1996",
    year: "1996",
    read: "What a figure shows in grey, and what the paper says besides. Its passes had about 64,000 articles, its machine was of 1996: hold the shapes against ours, and how the configurations stand to each other, not the rates.",
    values: ALL,
};

const F540: &str = "NetApp F540";
const N1400: &str = "NetApp 1400";
const SYMLINK: &str = "symlinked disks";
const STORED: &str = "articles stored a second, mean of the run";
const KEPT: &str = "pass 14’s rate as part of pass 1’s";
const EIGHT: &str = "pass 8, the first after a deletion, against pass 7";
const DELETE: &str = "time to delete, mean of the passes";
const BATCH: &str = "time to batch";
const HISTORY: &str = "time to store with history on the filer, of that with history on local disk";
const OPTIONS: &str = "section “Light or Dark Toast?”";
const RESULTS: &str = "section “Toaster or Local Disk?”";
const MINUTE_S: f64 = 60.0;

/// Each value once.
const ALL: &[PublishedValue] = &[
    stored(F540, 40.0, "about 40/s", "figure 2", &["unbatch-mean", "unbatch-passes"]),
    stored(N1400, 30.0, "about 30/s", "figure 2", &["unbatch-mean", "unbatch-passes"]),
    stored(SYMLINK, 8.0, "about 8/s", "figure 2", &["unbatch-mean", "unbatch-passes"]),
    stored("striped disks", 6.0, "6/s", "figure 2, a third above the mirrored", &["unbatch-mean"]),
    stored("mirrored disks", 4.5, "4.5/s", "figure 2, barely 50% above the need", &["unbatch-mean"]),
    PublishedValue {
        of: "articles a second that come in by the end of 1997",
        ..stored(
            "needed in 1997",
            3.0,
            "3/s",
            "section “Critical Server Resources”",
            &["unbatch-mean", "unbatch-passes"],
        )
    },
    kept("F540, symlinked disks", 86.5, "86.5%"),
    kept(N1400, 85.0, "85%"),
    eight(F540, 114.8, "+14.8%"),
    eight(N1400, 112.6, "+12.6%"),
    eight(SYMLINK, 107.1, "+7.1%"),
    time(SYMLINK, 100.0, None, "about 100 min", DELETE, "figure 4", &["expire-passes"]),
    time(N1400, 100.0 / 8.5, None, "about 12 min", DELETE, "figure 4: 8.5 times as fast", &["expire-passes"]),
    time(F540, 10.0, None, "below 10 min", DELETE, "figure 4: over 10 times as fast", &["expire-passes"]),
    time(SYMLINK, 50.0, Some(3), "about 50 min", BATCH, "figure 5, in steps of 10", &["batch-passes"]),
    time(SYMLINK, 60.0, Some(12), "about 60 min", BATCH, "figure 5, in steps of 10", &["batch-passes"]),
    time(N1400, 20.0, None, "about 20 min", BATCH, "figure 5, in steps of 10", &["batch-passes"]),
    time(F540, 10.0, None, "about 10 min", BATCH, "figure 5, in steps of 10", &["batch-passes"]),
    share("F540, at first", 122.0, Some(1), "122%", HISTORY, "text to figure 6", &["history-cost"]),
    share(
        "F540, aged",
        250.0,
        Some(10),
        "up to 250%",
        HISTORY,
        "text to figure 6, its last pass",
        &["history-cost"],
    ),
    share("F540, FDDI", 90.8, None, "90.8%", "time to store, of that with Ethernet", OPTIONS, &[]),
    share("F540, FDDI", 88.0, None, "88%", "time to batch, of that with Ethernet", OPTIONS, &[]),
    share("F540, no access times", 95.0, None, "about 95%", "time to batch, of that with them", OPTIONS, &[]),
];

const fn share(
    name: &'static str,
    value: f64,
    pass: Option<u32>,
    text: &'static str,
    of: &'static str,
    source: &'static str,
    drawn: &'static [&'static str],
) -> PublishedValue {
    PublishedValue { name, value, text, of, pass, source, drawn }
}

const fn stored(
    name: &'static str,
    per_sec: f64,
    text: &'static str,
    source: &'static str,
    drawn: &'static [&'static str],
) -> PublishedValue {
    share(name, per_sec, None, text, STORED, source, drawn)
}

const fn kept(name: &'static str, percent: f64, text: &'static str) -> PublishedValue {
    share(name, percent, Some(14), text, KEPT, "text to figure 3", &["unbatch-ageing"])
}

const fn eight(name: &'static str, percent: f64, text: &'static str) -> PublishedValue {
    share(name, percent, Some(8), text, EIGHT, RESULTS, &[])
}

const fn time(
    name: &'static str,
    minutes: f64,
    pass: Option<u32>,
    text: &'static str,
    of: &'static str,
    source: &'static str,
    drawn: &'static [&'static str],
) -> PublishedValue {
    share(name, minutes * MINUTE_S, pass, text, of, source, drawn)
}
