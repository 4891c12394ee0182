//! The list of all runs, as a table and as JSON.

use measure::SeriesPlace;
use report::{RunSummary, figure_text};

use crate::context::Context;
use crate::declarations;
use crate::layout::{WIDTH, grid, shortened_within, wrapped};
use crate::output::{Destination, note, print};

pub(super) fn list(context: &Context, json: Option<&Destination>) -> anyhow::Result<()> {
    let runs = context.existing_store()?.map_or_else(|| Ok(vec![]), |store| store.list())?;
    if let Some(to) = json {
        let runs: Vec<serde_json::Value> = runs.iter().map(summary_json).collect();
        return to.write(context, "the list", &format!("{}\n", serde_json::to_string_pretty(&runs)?));
    }
    if runs.is_empty() {
        note(
            context,
            &format!(
                "{}: no runs yet, as this file is not there; make one with `crumb run fstress`, or name another store with --store FILE",
                context.store.display()
            ),
        );
        return Ok(());
    }
    print(&table(&runs))
}

/// A line for each run. Runs that one command made have a column that names their series and their side; where labels would be cut for
/// it, the number of points is left out.
fn table(runs: &[RunSummary]) -> String {
    let series = runs.iter().find_map(|run| run.series.as_ref());
    let longest = runs.iter().map(|run| run.label.chars().count()).max().unwrap_or(0);
    let (room, mut table) = laid_out(runs, series.is_some(), true);
    if series.is_some() && longest > room {
        table = laid_out(runs, true, false).1;
    }
    match series {
        Some(series) => table + &wrapped("", &series_note(series)),
        None => table,
    }
}

/// The table, and how many letters a label has in it.
fn laid_out(runs: &[RunSummary], with_series: bool, with_points: bool) -> (usize, String) {
    let mut heads = vec!["run (UTC)", "what", "points", "headline", "verdict"];
    if !with_points {
        heads.remove(POINTS);
    }
    if with_series {
        heads.insert(1, "series");
    }
    let row = |run: &RunSummary, label_width: usize| {
        let mut row = list_row(run, label_width);
        if !with_points {
            row.remove(POINTS);
        }
        if with_series {
            row.insert(1, run.series.as_ref().map_or_else(String::new, series_text));
        }
        row
    };
    let rows = |label_width| -> Vec<Vec<String>> { runs.iter().map(|run| row(run, label_width)).collect() };
    let left = if with_series { 3 } else { 2 };
    let label = "what".len();
    // The label is what may be long: it gets what the other columns leave over, and at least a few letters.
    let without = grid(&heads, left, &rows(label)).lines().next().map_or(0, |line| line.chars().count());
    let room = (label + WIDTH).saturating_sub(without).max(8);
    (room, grid(&heads, left, &rows(room)))
}

/// Which column of a row it is.
const POINTS: usize = 2;

/// The series and the side, as `crumb compare` takes them: `3f9a:B`.
fn series_text(series: &SeriesPlace) -> String {
    format!("{}:{}", short(series), series.side)
}

fn series_note(series: &SeriesPlace) -> String {
    let short = short(series);
    format!(
        "series: runs that one command made, and the side of each; `crumb compare {short}` compares the sides of the newest, `crumb \
         report {short}` draws them"
    )
}

/// The end of a series' name, by which it is found.
fn short(series: &SeriesPlace) -> &str {
    series.of.0.rsplit('-').next().unwrap_or_default()
}

fn list_row(run: &RunSummary, label_width: usize) -> Vec<String> {
    // No figure of an INVALID run counts.
    let headline = declarations::of(&run.benchmark)
        .iter()
        .filter(|metric| run.valid && metric.headline)
        .find_map(|metric| run.metrics.get(metric.name).map(|value| figure_text(metric.unit, *value)));
    let verdict = match (run.valid, run.complete) {
        (true, true) => "VALID",
        (true, false) => "cut short",
        (false, _) => "INVALID",
    };
    vec![
        run.id.0.clone(),
        shortened_within(&run.label, label_width),
        run.points.to_string(),
        headline.unwrap_or_else(|| "-".to_owned()),
        verdict.to_owned(),
    ]
}

fn summary_json(run: &RunSummary) -> serde_json::Value {
    serde_json::json!({
        "id": run.id.0,
        "benchmark": run.benchmark,
        "label": run.label,
        "target": run.target,
        "started": run.started.to_string(),
        "complete": run.complete,
        "valid": run.valid,
        "points": run.points,
        "metrics": run.metrics,
        "series": run.series,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_figure_of_an_invalid_run_is_a_headline() {
        for (benchmark, name) in [("postmark", "transactions_per_sec"), ("dirscale", "day_cost_flat_us")] {
            let run = |valid| RunSummary {
                id: measure::RunId("20261121-180000-x-3f9a".to_owned()),
                benchmark: benchmark.to_owned(),
                label: "disk".to_owned(),
                target: "/mnt".to_owned(),
                started: "2026-11-21T18:00:00Z".parse().unwrap(),
                complete: true,
                valid,
                points: 1,
                metrics: [(name.to_owned(), 123.0)].into(),
                series: None,
            };
            let headline = |valid| list_row(&run(valid), 20).swap_remove(3);
            assert!(headline(true).contains("123"), "{benchmark}: {}", headline(true));
            assert_eq!(headline(false), "-", "{benchmark}");
        }
    }
}
