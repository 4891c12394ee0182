//! The five runs of 2001 by which a user tuned RAID arrays, each with the settings that `--preset 2001` has.
//!
//! Source: Greg A. Woods to tech-perform of NetBSD, 10 May 2001, "Re: tuning hardware RAID arrays (was: Bad NFS
//! performance)"; PostMark 1.13, files of 10 to 20 KB, 10,000 files, 100,000 transactions, 10 subdirectories.

/// What one of the runs reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedRun {
    /// The storage.
    pub name: &'static str,
    /// The whole run, seconds.
    pub total_s: f64,
    /// Transactions a second.
    pub transactions_per_sec: f64,
    /// Files created a second, before the transactions.
    pub created_alone_per_sec: f64,
    /// Files deleted a second, after them.
    pub deleted_alone_per_sec: f64,
    /// KiB read a second.
    pub read_kib_per_sec: f64,
    /// KiB written a second.
    pub written_kib_per_sec: f64,
}

/// Where they are from, as a bibliography has it.
pub const SOURCE_OF_2001: &str = "Greg A. Woods, tuning hardware RAID arrays, tech-perform of NetBSD, 10 May 2001, its five reports of PostMark 1.13";

/// In the order of the mail.
pub const RUNS_OF_2001: [PublishedRun; 5] = [
    run("RAID 5, chunk 32, read-ahead", [3480.0, 29.0, 95.0, 292.0, 232.05, 280.10]),
    run("RAID 5, chunk 32, without read-ahead", [3526.0, 29.0, 80.0, 254.0, 229.02, 276.45]),
    run("RAID 5, chunk 64, read-ahead", [3609.0, 28.0, 107.0, 381.0, 223.75, 270.09]),
    run("RAID 5, chunk 64, without read-ahead", [3506.0, 29.0, 84.0, 320.0, 230.33, 278.03]),
    run("one Ultra-Wide disk", [6488.0, 17.0, 30.0, 30.0, 124.46, 150.24]),
];

const fn run(name: &'static str, figures: [f64; 6]) -> PublishedRun {
    let [
        total_s,
        transactions_per_sec,
        created_alone_per_sec,
        deleted_alone_per_sec,
        read_kib_per_sec,
        written_kib_per_sec,
    ] = figures;
    PublishedRun {
        name,
        total_s,
        transactions_per_sec,
        created_alone_per_sec,
        deleted_alone_per_sec,
        read_kib_per_sec,
        written_kib_per_sec,
    }
}

impl PublishedRun {
    /// Its figures in the order of their declaration.
    pub fn figures(&self) -> [f64; 6] {
        [
            self.total_s,
            self.transactions_per_sec,
            self.created_alone_per_sec,
            self.deleted_alone_per_sec,
            self.read_kib_per_sec,
            self.written_kib_per_sec,
        ]
    }
}
