//! What PostMark says of its records, for lists, comparisons and pages.

use std::collections::BTreeMap;

use measure::numbers::round_rate_text;
use measure::{Answer, BenchmarkEntry, Role};

/// Its metrics, the roles of its configuration's fields, its answer, and what a page shows of a run.
pub const ENTRY: BenchmarkEntry = BenchmarkEntry {
    settings: &[("nfs", Role::Reach)],
    answer: |record| Answer::of(sentence(&record.metrics)),
    views: crate::views::views,
    ..BenchmarkEntry::of(crate::figures::METRICS)
};

/// Empty for a run that did no transactions.
fn sentence(metrics: &BTreeMap<String, f64>) -> String {
    let rate = |name: &str| metrics.get(name).copied().map(round_rate_text);
    let Some(transactions) = rate("transactions_per_sec") else { return String::new() };
    match (rate("created_alone_per_sec"), rate("deleted_alone_per_sec")) {
        (Some(created), Some(deleted)) => format!(
            "Does {transactions} transactions/s; without transactions it creates {created} and deletes {deleted} files/s"
        ),
        _ => format!("Does {transactions} transactions/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_answers_with_its_transactions_and_with_the_phases_beside_them_where_they_ran() {
        let mut metrics = BTreeMap::from([("transactions_per_sec".to_owned(), 1_210.4)]);
        assert_eq!(sentence(&metrics), "Does 1,210.4 transactions/s");
        metrics.insert("created_alone_per_sec".to_owned(), 4_100.0);
        metrics.insert("deleted_alone_per_sec".to_owned(), 98_000.0);
        assert_eq!(
            sentence(&metrics),
            "Does 1,210.4 transactions/s; without transactions it creates 4,100 and deletes 98,000 files/s"
        );
        metrics.remove("transactions_per_sec");
        assert_eq!(sentence(&metrics), "", "a run that ended early");
    }
}
