//! A netnews run as tables for the terminal: a line a pass, where the time went, ageing, then the flat figures.

use measure::statistics::POINTS_MIN;
use measure::{CurveLine, Phase, RunRecord};
use report::{count_text, rate_text};

use crate::layout::{grid, shortened, wrapped};
use crate::tables;

const RANK_WIDTH_MAX: usize = 32;

/// All of it.
pub(super) fn shown(record: &RunRecord) -> String {
    [passes(record), ranks(record), time(record), ageing(record), tables::summary(record)].concat()
}

fn passes(record: &RunRecord) -> String {
    let mut passes: Vec<u32> = record.phases.iter().map(|phase| phase.pass).collect();
    passes.dedup();
    let row = |pass: &u32| {
        let phase = |name: &str| record.phases.iter().find(|phase| phase.pass == *pass && phase.name == name);
        let cell =
            |phase: Option<&Phase>, text: fn(&Phase) -> String| phase.map_or_else(|| "-".to_owned(), text);
        let rate = |phase: &Phase| rate_text(phase.items_per_sec);
        let seconds = |phase: &Phase| format!("{:.2}", phase.wall_s);
        let items = |phase: &Phase| count_text(phase.items);
        let (unbatch, batch, expire) = (phase("unbatch"), phase("batch"), phase("expire"));
        vec![
            pass.to_string(),
            cell(unbatch, items),
            cell(unbatch, seconds),
            cell(unbatch, rate),
            cell(batch, seconds),
            cell(batch, rate),
            cell(expire, items),
            cell(expire, seconds),
            cell(expire, rate),
        ]
    };
    let rows: Vec<Vec<String>> = passes.iter().map(row).collect();
    let heads = ["pass", "stored", "s", "/s", "batch s", "/s", "deleted", "s", "/s"];
    format!("Articles stored, batched, files deleted\n{}\n", grid(&heads, 0, &rows))
}

/// How each of several ranks fared by itself.
fn ranks(record: &RunRecord) -> String {
    let Some(curve) = record.curves.iter().find(|curve| curve.name == "unbatch_by_rank_per_sec") else {
        return String::new();
    };
    let row = |line: &CurveLine| {
        let (first, last) = (line.points.first()?, line.points.last()?);
        let slowest = line.points.iter().map(|point| point.y).fold(f64::INFINITY, f64::min);
        let mut cells = vec![shortened(&line.label, RANK_WIDTH_MAX)];
        cells.extend([first.y, last.y, slowest].map(rate_text));
        Some(cells)
    };
    let rows: Vec<Vec<String>> = curve.lines.iter().filter_map(row).collect();
    let heads = ["stored /s by", "first pass", "last pass", "slowest"];
    format!("Ranks, each by itself\n{}\n", grid(&heads, 1, &rows))
}

/// Shares of the elapsed time: this program's own, the kernel's, and what is left, waiting.
fn time(record: &RunRecord) -> String {
    let ranks = record.config.get("ranks").and_then(serde_json::Value::as_f64).unwrap_or(1.0);
    let row = |name: &&str| {
        let of = |field: fn(&Phase) -> f64| -> f64 {
            record.phases.iter().filter(|phase| phase.name == **name).map(field).sum()
        };
        let (wall, user, sys) = (of(|phase| phase.wall_s), of(|phase| phase.user_s), of(|phase| phase.sys_s));
        let percent = |seconds: f64| format!("{:.1}%", 100.0 * seconds / (ranks * wall));
        (wall > 0.0).then(|| {
            let waiting = (ranks * wall - user - sys).max(0.0);
            vec![(*name).to_owned(), format!("{wall:.2}"), percent(user), percent(sys), percent(waiting)]
        })
    };
    let rows: Vec<Vec<String>> =
        ["unbatch", "batch", "expire-scan", "expire", "flush"].iter().filter_map(row).collect();
    // Threads that read count here too, so that shares may add up to more than the whole.
    let readers = record.config.get("readers").and_then(serde_json::Value::as_u64).unwrap_or(0);
    let title = if readers > 0 { "Where the time went, readers included" } else { "Where the time went" };
    let heads = ["phase", "s", "Crumb itself", "kernel", "waiting"];
    if rows.is_empty() { String::new() } else { format!("{title}\n{}\n", grid(&heads, 1, &rows)) }
}

fn ageing(record: &RunRecord) -> String {
    let metric = |name: &str| record.metrics.get(name).copied();
    let last = record.phases.iter().filter(|phase| phase.name == "unbatch").map(|phase| phase.pass).max();
    let (Some(last), Some(left), Some(slope)) =
        (last, metric("ageing_percent"), metric("ageing_per_pass_percent"))
    else {
        return String::new();
    };
    let interval = metric("ageing_per_pass_low_percent").zip(metric("ageing_per_pass_high_percent"));
    let interval = match interval {
        Some((low, high)) => {
            let shown = if low <= 0.0 && high >= 0.0 { "; trend not shown" } else { "" };
            format!(" (95%: {low:+.2}% to {high:+.2}%{shown})")
        }
        None => format!(" (trend not shown: fewer than {POINTS_MIN} passes)"),
    };
    let text = format!("{left:.1}% of pass 1's rate is left in pass {last}; {slope:+.2}% a pass{interval}");
    wrapped("Ageing: ", &text) + "\n"
}
