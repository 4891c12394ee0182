//! The list of all runs, as a table and as JSON.

use report::{RunSummary, figure_text};

use crate::context::Context;
use crate::declarations;
use crate::layout::{WIDTH, grid, shortened_within};
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
    let heads = ["run (UTC)", "what", "points", "headline", "verdict"];
    let rows =
        |label_width| -> Vec<Vec<String>> { runs.iter().map(|run| list_row(run, label_width)).collect() };
    // The label is what may be long: it gets what the other columns leave over, and at least a few letters.
    let without =
        grid(&heads, 2, &rows(heads[1].len())).lines().next().map_or(0, |line| line.chars().count());
    print(&grid(&heads, 2, &rows((heads[1].len() + WIDTH).saturating_sub(without).max(8))))
}

fn list_row(run: &RunSummary, label_width: usize) -> Vec<String> {
    let headline = declarations::of(&run.benchmark)
        .iter()
        .filter(|metric| metric.headline)
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
    })
}
