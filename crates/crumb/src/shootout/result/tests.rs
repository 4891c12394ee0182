use std::time::Duration;

use super::*;
use crate::shootout::row::Row;
use crate::shootout::{page, side, text};

/// A table of PostMark on `a` and `b` by these rates, VALID or not.
fn plan_and_table(cells: [&[(f64, bool)]; 2], metric: &str) -> (Plan, Table) {
    let typed: Vec<side::Named> = ["a=/mnt/a", "b=/mnt/b|<i>"].map(|target| target.parse().unwrap()).into();
    let row = Row {
        name: "postmark".to_owned(),
        words: "mail server".to_owned(),
        about: "a mail server".to_owned(),
        benchmark: "postmark".to_owned(),
        flags: vec![],
    };
    let plan = Plan::of(side::sides(&typed).unwrap(), vec![row], 6, Duration::from_secs(8), 1).unwrap();
    let measured = |side: usize| Measured {
        runs: cells[side].iter().enumerate().map(|(at, of)| record(side, at, *of, metric)).collect(),
        failed: None,
    };
    let outcome = Outcome { cells: vec![vec![measured(0), measured(1)]], error: None };
    let table = table(&plan, &outcome);
    (plan, table)
}

fn record(side: usize, at: usize, (rate, valid): (f64, bool), metric: &str) -> RunRecord {
    let environment = serde_json::to_string(&measure::Environment::default()).unwrap();
    let benchmark = if metric == RATE { "postmark" } else { "dirscale" };
    let mut record = RunRecord::from_json(&format!(
        r#"{{"schema": 1, "id": "run-{side}-{at}", "benchmark": "{benchmark}", "label": "", "target": "", "seed": 1, "complete": true,
            "started": "2026-11-21T18:00:00Z", "ended": "2026-11-21T18:00:00Z", "command": [], "config": {{}},
            "environment": {environment}, "metrics": {{"{metric}": {rate}}},
            "verdict": {{"valid": true, "reasons": [{{"code": "cpu-bound", "text": "CPU-bound: by a test", "fatal": false}}]}}}}"#
    ))
    .unwrap();
    if !valid {
        record.verdict.invalidate("generator-late", "made late by a test");
    }
    record.declare(&declarations::of(benchmark));
    record
}

const RATE: &str = "transactions_per_sec";
const SIX: [f64; 6] = [100.0, 101.0, 99.0, 100.0, 100.5, 99.5];

fn six(times: f64) -> Vec<(f64, bool)> {
    SIX.map(|rate| (rate * times, true)).into()
}

#[test]
fn a_side_that_is_twice_as_fast_is_named_with_its_ratio_and_interval() {
    let (_, table) = plan_and_table([&six(1.0), &six(2.0)], RATE);
    assert_eq!(table.sentence, "b is fastest in 1 of 1 workload.");
    let cell = &table.rows[0].cells[1];
    let ratio = cell.ratio.as_ref().unwrap();
    assert!((ratio.ratio - 2.0).abs() < 0.01 && ratio.low.unwrap() > 1.9 && ratio.high.unwrap() < 2.1);
    assert_eq!((ratio.word, cell.limit.as_ref().unwrap().word), ("faster", "CPU"));
    assert!(text::terminal(&table).contains("* 200"), "{}", text::terminal(&table));
}

#[test]
fn a_time_is_shown_as_the_rate_that_it_makes_so_that_more_is_faster() {
    let (_, table) = plan_and_table([&six(1.0), &six(2.0)], "day_cost_flat_us");
    assert_eq!(table.rows[0].fastest, Some(0));
    let cell = &table.rows[0].cells[1];
    let ratio = cell.ratio.as_ref().unwrap();
    assert!((cell.rate.unwrap() - 5000.0).abs() < 1.0, "{cell:?}");
    assert!(
        ratio.word == "slower" && (ratio.ratio - 0.5).abs() < 0.01 && ratio.low < ratio.high,
        "{ratio:?}"
    );
}

#[test]
fn two_rounds_name_the_higher_median_and_say_that_nothing_is_shown() {
    let two = |rate: f64| [(rate, true), (rate * 1.01, true)];
    let (_, table) = plan_and_table([&two(100.0), &two(300.0)], RATE);
    assert!(table.sentence.contains("by medians"), "{}", table.sentence);
    assert!(table.notes[0].contains("--rounds 6"), "{:?}", table.notes);
    assert!(table.rows[0].cells[1].ratio.as_ref().unwrap().low.is_none());
}

#[test]
fn an_invalid_cell_says_so_everywhere_and_is_never_the_fastest() {
    let invalid = [(987_654.0, false); 6];
    let (plan, table) = plan_and_table([&six(1.0), &invalid], RATE);
    let cell = &table.rows[0].cells[1];
    assert!(cell.state == State::Invalid && cell.rate.is_none() && cell.ratio.is_none());
    assert_eq!(table.rows[0].fastest, None);
    let html = page::page(&table, &plan, &["crumb".to_owned()]).render().unwrap();
    let json = serde_json::to_string(&table).unwrap();
    for shown in [text::terminal(&table), text::markdown(&table), html] {
        assert!(shown.contains("INVALID") && shown.contains("made late by a test"), "{shown}");
        assert!(!shown.contains("987,654") && !shown.contains("987654"), "{shown}");
    }
    assert!(json.contains(r#""state":"invalid""#), "{json}");
}

/// Symptom: `fastest in 2 of 2 workloads` where ten had been measured: those with INVALID cells were counted nowhere.
#[test]
fn the_sentence_counts_all_workloads_and_a_note_names_those_that_were_not_compared() {
    let (_, mut table) = plan_and_table([&six(1.0), &six(2.0)], RATE);
    let (_, invalid) = plan_and_table([&six(1.0), &[(1.0, false); 6]], RATE);
    table.rows.extend(invalid.rows);
    let (sentence, notes) = (sentence(&table), notes(&table));
    assert_eq!(sentence, "b is fastest in 1 of 1 compared workload (2 measured).");
    assert!(
        notes[0].contains("1 workload has no figures of two targets")
            && notes[0].contains("postmark (INVALID on b)"),
        "{notes:?}"
    );
}

/// Symptom: the row of a user's own programs could not be found in the table.
#[test]
fn every_form_of_the_table_says_in_plain_words_which_programs_a_row_is() {
    let (plan, table) = plan_and_table([&six(1.0), &six(2.0)], RATE);
    let html = page::page(&table, &plan, &["crumb".to_owned()]).render().unwrap();
    for shown in [text::terminal(&table), text::markdown(&table), html] {
        // The terminal's first column breaks the line behind the first word.
        assert!(shown.contains("(mail"), "{shown}");
    }
}

#[test]
fn a_single_target_is_measured_and_no_word_compares_it() {
    let (mut plan, mut table) = plan_and_table([&six(1.0), &six(2.0)], RATE);
    plan.sides.truncate(1);
    table.sides.truncate(1);
    table.rows[0].cells.truncate(1);
    table.rows[0].fastest = None;
    (table.sentence, table.notes) = (sentence(&table), notes(&table));
    let html = page::page(&table, &plan, &["crumb".to_owned()]).render().unwrap();
    for shown in [text::terminal(&table), text::markdown(&table), html] {
        assert!(shown.contains("1 of 1 workload"), "{shown}");
        for word in ["fastest", "times as fast", "every target"] {
            assert!(!shown.contains(word), "{word}: {shown}");
        }
    }
}

#[test]
fn runs_that_are_invalid_are_left_out_of_a_cell_that_has_others() {
    let mut some = six(1.0);
    some[0] = (5000.0, false);
    let (_, table) = plan_and_table([&some, &six(1.0)], RATE);
    let cell = &table.rows[0].cells[0];
    assert!(cell.state == State::Valid && cell.rate.unwrap() < 102.0 && cell.valid_runs == 5, "{cell:?}");
    assert!(cell.why.as_ref().unwrap().contains("1 of 6 runs INVALID"), "{cell:?}");
}

#[test]
fn what_was_not_measured_is_said_and_names_are_no_markup() {
    let (plan, mut table) = plan_and_table([&six(1.0), &[]], RATE);
    assert_eq!(table.rows[0].cells[1].state, State::NotMeasured);
    let html = page::page(&table, &plan, &["crumb".to_owned()]).render().unwrap();
    assert!(html.contains("not measured") && !html.contains("<i>"), "{html}");
    assert!(text::markdown(&table).contains("`/mnt/b\\|&lt;i>`"), "{}", text::markdown(&table));
    let hostile = "\u{1b}[31m\n```\n# b`";
    table.sides[1].name = hostile.to_owned();
    table.rows[0].cells[0].command = vec!["crumb".to_owned(), hostile.to_owned()];
    let markdown = text::markdown(&table);
    assert!(!markdown.contains('\u{1b}') && !markdown.contains("\n#"), "{markdown}");
    let is_outside = |line: &&str| line.contains("```") && !line.starts_with("    ");
    assert_eq!(markdown.lines().find(is_outside), None, "{markdown}");
}
