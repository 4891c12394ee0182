//! The first sentence of a page: the rate of storing, how it ages, and what else the passes did.

use std::collections::BTreeMap;

use measure::numbers::{grouped, round_rate_text};

/// Empty for a run that stored nothing.
pub(super) fn sentence(metrics: &BTreeMap<String, f64>) -> String {
    let metric = |name: &str| metrics.get(name).copied();
    let Some(stored) = metric("unbatch_articles_per_sec") else { return String::new() };
    let mut sentence = format!("Stores {} articles/s", round_rate_text(stored));
    if let Some(last) = metric("ageing_percent") {
        sentence.push_str(&format!(", the last pass at {}% of the first one's rate", grouped(last, 0)));
    }
    let also = [
        ("feeds on", metric("batch_articles_per_sec"), "articles/s"),
        ("deletes", metric("expire_files_per_sec"), "files/s"),
        ("serves", metric("read_articles_per_sec"), "articles/s to readers"),
    ];
    for (verb, rate, what) in also {
        if let Some(rate) = rate {
            sentence.push_str(&format!("; {verb} {} {what}", round_rate_text(rate)));
        }
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_answers_with_storing_first_and_names_only_what_it_did() {
        let mut metrics = BTreeMap::from([("unbatch_articles_per_sec".to_owned(), 20_400.0)]);
        assert_eq!(sentence(&metrics), "Stores 20,400 articles/s");
        metrics.insert("ageing_percent".to_owned(), 82.6);
        metrics.insert("expire_files_per_sec".to_owned(), 61_000.0);
        assert_eq!(
            sentence(&metrics),
            "Stores 20,400 articles/s, the last pass at 83% of the first one's rate; deletes 61,000 files/s"
        );
        metrics.remove("unbatch_articles_per_sec");
        assert_eq!(sentence(&metrics), "");
    }
}
