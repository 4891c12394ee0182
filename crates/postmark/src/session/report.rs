//! The original's two reports, byte for byte: `verbose` in words, `terse` as 13 numbers.
//!
//! Rates are by whole seconds, of which there is at least one; verbose rounds counts down, and both take bytes in
//! single precision. Terse, in order: seconds in all, seconds of transactions, then per second: transactions,
//! created, created alone, created mixed, read, appended, deleted, deleted alone, deleted mixed, bytes read, bytes
//! written.

use std::fmt;
use std::time::Duration;

use crate::ReportForm;
use crate::engine::{Counts, Outcome, Phase};

/// What both reports tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Files and bytes.
    pub counts: Counts,
    /// Transactions asked for.
    pub transactions: u64,
    /// From the first file made to the last removed, seconds, at least 1.
    pub total_s: u64,
    /// Of making the files, seconds, at least 1.
    pub create_s: u64,
    /// Of the transactions, seconds, at least 1.
    pub transactions_s: u64,
    /// Of removing what was left, seconds, at least 1.
    pub delete_s: u64,
}

impl Figures {
    /// The figures of a run.
    pub fn of(outcome: &Outcome) -> Self {
        Self {
            counts: outcome.counts,
            transactions: outcome.transactions_done,
            total_s: whole_seconds(outcome.wall_of_files()),
            create_s: whole_seconds(outcome.wall(Phase::Create)),
            transactions_s: whole_seconds(outcome.wall(Phase::Transactions)),
            delete_s: whole_seconds(outcome.wall(Phase::Delete)),
        }
    }

    /// The report in the form asked for.
    pub fn report(&self, form: ReportForm) -> String {
        match form {
            ReportForm::Verbose => self.verbose(),
            ReportForm::Terse => self.terse(),
        }
    }

    fn verbose(&self) -> String {
        let Self { counts, transactions, total_s, create_s, transactions_s, delete_s } = *self;
        let alone = |files, seconds| format!("{files} files ({} per second)", files / seconds);
        let all = |files, seconds: u64| format!("({} per second)", files / seconds);
        let bytes = |bytes: f32| format!("({} per second)", ByteText(bytes / total_s as f32));
        format!(
            "Time:\n\
             \t{total_s} seconds total\n\
             \t{transactions_s} seconds of transactions {}\n\
             \n\
             Files:\n\
             \t{} created {}\n\
             \t\tCreation alone: {}\n\
             \t\tMixed with transactions: {}\n\
             \t{} read {}\n\
             \t{} appended {}\n\
             \t{} deleted {}\n\
             \t\tDeletion alone: {}\n\
             \t\tMixed with transactions: {}\n\
             \n\
             Data:\n\
             \t{} read {}\n\
             \t{} written {}\n",
            all(transactions, transactions_s),
            counts.created(),
            all(counts.created(), total_s),
            alone(counts.created_alone, create_s),
            alone(counts.created_mixed, transactions_s),
            counts.read,
            all(counts.read, transactions_s),
            counts.appended,
            all(counts.appended, transactions_s),
            counts.deleted(),
            all(counts.deleted(), total_s),
            alone(counts.deleted_alone, delete_s),
            alone(counts.deleted_mixed, transactions_s),
            ByteText(counts.bytes_read_single),
            bytes(counts.bytes_read_single),
            ByteText(counts.bytes_written_single),
            bytes(counts.bytes_written_single),
        )
    }

    fn terse(&self) -> String {
        let Self { counts, transactions, total_s, create_s, transactions_s, delete_s } = *self;
        let rates = [
            (transactions, transactions_s),
            (counts.created(), total_s),
            (counts.created_alone, create_s),
            (counts.created_mixed, transactions_s),
            (counts.read, transactions_s),
            (counts.appended, transactions_s),
            (counts.deleted(), total_s),
            (counts.deleted_alone, delete_s),
            (counts.deleted_mixed, transactions_s),
        ];
        let rates = rates.map(|(files, seconds)| files as f32 / seconds as f32);
        let bytes =
            [counts.bytes_read_single, counts.bytes_written_single].map(|bytes| bytes / total_s as f32);
        let mut line = format!("{total_s} {transactions_s}");
        for rate in rates.iter().chain(&bytes) {
            line.push_str(&format!(" {rate:.2}"));
        }
        line.push('\n');
        line
    }
}

/// The original takes differences of a clock that knows seconds alone; the nearest whole second is what they come to
/// on average.
fn whole_seconds(wall: Duration) -> u64 {
    (wall.as_secs() + u64::from(wall.subsec_millis() >= 500)).max(1)
}

/// Bytes as both reports write them: from the first byte on in kilobytes.
struct ByteText(f32);

impl fmt::Display for ByteText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MB: f32 = 1_048_576.0;
        match self.0 {
            bytes if bytes / MB > 1.0 => write!(f, "{:.2} megabytes", bytes / MB),
            bytes if bytes > 0.0 => write!(f, "{:.2} kilobytes", bytes / 1024.0),
            bytes => write!(f, "{bytes:.6} bytes"),
        }
    }
}

/// Bytes as `show` writes sizes.
pub(crate) struct SizeText(pub(crate) u32);

impl fmt::Display for SizeText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ 0..1024 => write!(f, "{bytes} bytes"),
            bytes @ 1024..1_048_576 => write!(f, "{:.2} kilobytes", f64::from(bytes) / 1024.0),
            bytes => write!(f, "{:.2} megabytes", f64::from(bytes) / 1_048_576.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // As the original prints totals of these many bytes.
    #[test]
    fn byte_totals_change_their_unit_where_the_original_does() {
        let sizes = [0.0, 1.0, 21.0, 1024.0, 1_048_575.0, 1_048_576.0, 1_048_577.0, 1_107_296_256.0];
        assert_eq!(
            sizes.map(|bytes| ByteText(bytes).to_string()),
            [
                "0.000000 bytes",
                "0.00 kilobytes",
                "0.02 kilobytes",
                "1.00 kilobytes",
                "1024.00 kilobytes",
                "1024.00 kilobytes",
                "1.00 megabytes",
                "1056.00 megabytes"
            ]
        );
    }

    #[test]
    fn sizes_change_their_unit_where_the_original_does() {
        let sizes = [1, 1023, 1024, 1_048_575, 1_048_576, i32::MAX as u32];
        assert_eq!(
            sizes.map(|bytes| SizeText(bytes).to_string()),
            [
                "1 bytes",
                "1023 bytes",
                "1.00 kilobytes",
                "1024.00 kilobytes",
                "1.00 megabytes",
                "2048.00 megabytes"
            ]
        );
    }

    #[test]
    fn rates_are_in_single_precision_as_in_the_original() {
        let figures = Figures {
            counts: Counts {
                bytes_read_single: 1_430_770.0,
                bytes_written_single: 4_662_068.0,
                ..Counts::default()
            },
            transactions: 20_000_001,
            total_s: 21,
            create_s: 7,
            transactions_s: 7,
            delete_s: 7,
        };
        let line = figures.terse();
        assert!(line.starts_with("21 7 2857142.75 0.00 "), "{line}");
        assert!(line.ends_with(" 68131.91 222003.23\n"), "{line}");
    }

    #[test]
    fn no_time_at_all_counts_as_a_second() {
        assert_eq!(whole_seconds(Duration::ZERO), 1);
        assert_eq!(whole_seconds(Duration::from_millis(2499)), 2);
        assert_eq!(whole_seconds(Duration::from_millis(2500)), 3);
    }
}
