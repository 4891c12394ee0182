//! What dirscale says of its records, for lists, comparisons and pages.

use std::collections::BTreeMap;

use measure::numbers::{count_text, figure_text};
use measure::{Answer, BenchmarkEntry, Role};

/// Its metrics, the roles of its configuration's fields, the remark that is its answer, and the answer as a sentence.
pub const ENTRY: BenchmarkEntry = BenchmarkEntry {
    settings: &[("set", Role::Place), ("storage", Role::Reach)],
    answers: &["pays-from"],
    answer: |record| Answer::of(sentence(&record.metrics)),
    views: crate::views::views,
    ..BenchmarkEntry::of(crate::METRICS)
};

/// Empty without the cost of a flat directory.
fn sentence(metrics: &BTreeMap<String, f64>) -> String {
    let metric = |name: &str| metrics.get(name).copied();
    let files = |slug: &str| metric(&format!("largest_{slug}_files")).map(|files| count_text(files as u64));
    let (Some(flat_us), Some(flat_files)) = (metric("day_cost_flat_us"), files("flat")) else {
        return String::new();
    };
    let flat = figure_text("us", flat_us);
    let mut sentence =
        format!("The mean operation of a day takes {flat} in one flat directory of {flat_files} files");
    let Some((slug, us)) = cheapest(metrics) else { return sentence };
    sentence.push_str(&format!(" and {} in layout {}", figure_text("us", us), slug.replace('_', "/")));
    if let Some(other) = files(slug).filter(|other| *other != flat_files) {
        sentence.push_str(&format!(" of {other} files"));
    }
    if let Some(from) = metric(&format!("pays_from_files_{slug}")) {
        sentence.push_str(&format!(", which pays from {} files", count_text(from as u64)));
    }
    sentence
}

/// The layout of subdirectories in which the day costs least, with its mean operation's microseconds.
fn cheapest(metrics: &BTreeMap<String, f64>) -> Option<(&str, f64)> {
    let layouts = metrics.iter().filter_map(|(name, us)| {
        let slug = name.strip_prefix("day_cost_")?.strip_suffix("_us").filter(|slug| *slug != "flat")?;
        Some((slug, *us))
    });
    layouts.min_by(|a, b| a.1.total_cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(figures: &[(&str, f64)]) -> BTreeMap<String, f64> {
        figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn a_run_answers_with_the_flat_directory_the_cheapest_layout_and_from_where_it_pays() {
        let mut all = metrics(&[
            ("day_cost_flat_us", 1_400.0),
            ("day_cost_345_us", 91.0),
            ("day_cost_34_56_us", 12.0),
            ("day_cost_34_56_s", 9.0),
            ("largest_flat_files", 65_536.0),
            ("largest_34_56_files", 65_536.0),
            ("pays_from_files_34_56", 2_048.4),
        ]);
        assert_eq!(
            sentence(&all),
            "The mean operation of a day takes 1.40 ms in one flat directory of 65,536 files and 12.0 µs in layout 34/56, \
             which pays from 2,048 files"
        );
        all.insert("largest_34_56_files".to_owned(), 9_000.0);
        all.remove("pays_from_files_34_56");
        assert!(sentence(&all).ends_with("12.0 µs in layout 34/56 of 9,000 files"), "{}", sentence(&all));
    }

    #[test]
    fn a_flat_directory_alone_is_a_sentence_and_a_run_without_one_has_none() {
        let flat = metrics(&[("day_cost_flat_us", 14.0), ("largest_flat_files", 512.0)]);
        assert!(sentence(&flat).ends_with("one flat directory of 512 files"));
        assert_eq!(sentence(&metrics(&[("day_cost_345_us", 14.0)])), "");
    }
}
