//! A comparison as text.

use report::compare::{Comparison, Figure, ratio_text};
use report::figure_text;

use crate::layout::{WIDTH, counted, folded, grid, wrapped};

/// The comparison as text for a terminal of 80 columns: sides, a table for each side against the first, warnings,
/// and the answers last.
pub fn shown(comparison: &Comparison) -> String {
    let mut text = String::new();
    for side in &comparison.sides {
        let runs = counted(side.runs.len(), "run", "runs");
        text.push_str(&wrapped(&format!("{}  ", side.name), &format!("{} ({runs})", side.label)));
    }
    for at in 1..comparison.sides.len() {
        text.push('\n');
        text.push_str(&table(comparison, at));
    }
    text.push_str(&legend(comparison));
    if !comparison.cautions.is_empty() {
        text.push_str("\nWarnings\n");
        comparison.cautions.iter().for_each(|caution| text.push_str(&wrapped("  - ", &caution.text)));
    }
    text.push('\n');
    text + &answers(comparison)
}

/// Which side is faster, with the medians behind it.
pub fn answers(comparison: &Comparison) -> String {
    let mut text = String::new();
    for at in 1..comparison.sides.len() {
        text.push_str(&wrapped("", &comparison.answer(at)));
        text.extend(comparison.behind(at).map(|behind| wrapped("  ", &behind)));
    }
    text
}

fn table(comparison: &Comparison, side: usize) -> String {
    let (a, b) = (&comparison.sides[0].name, &comparison.sides[side].name);
    let heads = [
        "figure".to_owned(),
        a.clone(),
        b.clone(),
        format!("{b}/{a}"),
        "interval".to_owned(),
        "shown".to_owned(),
    ];
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let there: Vec<&Figure> =
        comparison.figures.iter().filter(|figure| !figure.sides[side].values.is_empty()).collect();
    let rows: Vec<Vec<String>> = there.iter().map(|figure| row(figure, side)).collect();
    // The names get what the figures leave over.
    let nameless =
        rows.iter().map(|row| std::iter::once(String::new()).chain(row[1..].iter().cloned()).collect());
    let nameless = grid(&heads, 1, &nameless.collect::<Vec<_>>());
    let without =
        nameless.lines().map(|line| line.chars().count()).max().unwrap_or(0).saturating_sub("figure".len());
    grid(&heads, 1, &folded(rows, WIDTH.saturating_sub(without).max(10)))
}

fn row(figure: &Figure, side: usize) -> Vec<String> {
    let of = &figure.against[side - 1];
    let value = |at: usize| {
        figure.sides[at].median.map_or_else(dash, |median| brief(&figure_text(&figure.unit, median)))
    };
    vec![
        figure.title.clone(),
        value(0),
        value(side),
        of.ratio.map_or_else(dash, ratio_text),
        of.low
            .zip(of.high)
            .map_or_else(dash, |(low, high)| format!("{}..{}", ratio_text(low), ratio_text(high))),
        figure.word(of).to_owned(),
    ]
}

/// What a value is of needs no room in each line: "53.5 µs an article" is "53.5 µs each".
fn brief(value: &str) -> String {
    match value.find(" an ").or_else(|| value.find(" a ")) {
        Some(at) => format!("{} each", &value[..at]),
        None => value.to_owned(),
    }
}

fn legend(comparison: &Comparison) -> String {
    let mut text = "Values are medians over the runs of a side.".to_owned();
    let judged: Vec<&str> = comparison
        .figures
        .iter()
        .filter(|figure| figure.headline)
        .map(|figure| figure.title.as_str())
        .collect();
    if let [one] = judged[..] {
        text.push_str(&format!(" {one} is judged by a 95% interval of its own."));
    } else if !judged.is_empty() {
        text.push_str(&format!(" Judged by themselves, at 95%: {}.", judged.join(", ")));
    }
    if comparison.corrected_for > 0 {
        text.push_str(&format!(
            " The others are judged by wider intervals (Bonferroni, for {}), which are right all at once in 95% of cases.",
            counted(comparison.corrected_for, "ratio", "ratios")
        ));
    }
    wrapped("", &text)
}

fn dash() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_says_in_short_that_it_is_of_each() {
        assert_eq!(
            ["53.5 µs an article", "1.2 kB a file", "9 ms", "-"].map(brief),
            ["53.5 µs each", "1.2 kB each", "9 ms", "-"]
        );
    }
}
