//! A webload record as tables.

use measure::{Phase, RunRecord};
use report::{count_text, ms_text, rate_text};

use crate::layout::{grid, wrapped};

/// KOTETU 1.5b under PolyMix-3, from the talk of 2000.
const TALK: &str = "For comparison, KOTETU 1.5b under PolyMix-3 in 2000: 300 requests/s, mean 1,792 ms with the \
                    origin at 2,500, 42.91% hits, 0.10% errors.";

/// A line a phase: rate, response, hits against what could have hit, errors.
pub fn phases(record: &RunRecord) -> String {
    let counter = |phase: &Phase, name: &str| phase.counters.get(name).copied();
    let rows: Vec<Vec<String>> = record
        .phases
        .iter()
        .map(|phase| {
            let ms = |name| counter(phase, name).map_or_else(|| "-".to_owned(), ms_text);
            let percent =
                |name| counter(phase, name).map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
            vec![
                phase.name.clone(),
                format!("{:.1}", phase.wall_s),
                counter(phase, "offered_per_sec").map_or_else(|| "max".to_owned(), rate_text),
                rate_text(phase.items_per_sec),
                ms("response_mean_us"),
                ms("response_without_think_us"),
                percent("document_hit_percent"),
                percent("document_hit_offered_percent"),
                percent("byte_hit_percent"),
                percent("byte_hit_offered_percent"),
                count_text(counter(phase, "errors").unwrap_or(0.0) as u64),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let heads = ["phase", "s", "offered", "good/s", "ms", "-think", "hit%", "of", "byte%", "of", "errors"];
    let legend = "Phases: mean response in ms, and without the origin’s think time; documents and bytes that came from \
                the cache, of those that could have";
    format!("{}{}\n", wrapped("", legend), grid(&heads, 1, &rows))
}

/// What PolyMix-3 was run with before.
pub fn curves_hint(record: &RunRecord) -> String {
    let is_polymix = record.config.get("workload").is_some_and(|name| name == "polymix-3");
    if is_polymix { wrapped("", TALK) + "\n" } else { String::new() }
}
