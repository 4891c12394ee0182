//! The figures of a run: rates, ageing, and the curves that the paper draws.
//!
//! Always holds: a mean rate is all items through all the time, not the mean of rates; ageing needs two passes.
//! Source: Swartz 1996, figures 2 to 5.

use std::collections::BTreeMap;

use measure::statistics::Trend;
use measure::{Better, Curve, CurveLine, CurvePoint, MetricDeclaration, Phase};

use super::config::NetnewsConfig;
use super::outcome::Outcome;
use super::readers::Readings;
use super::storing::StoreCounts;
use super::unbatch::UnbatchCounts;

/// Fills in metrics and curves from the phases and counts.
pub(super) fn draw(outcome: &mut Outcome, config: &NetnewsConfig) {
    let (mut metrics, curves) = figures(&outcome.phases, outcome.readings.as_ref(), config);
    let counts = outcome.counts;
    let counts = [
        ("batches_offered", counts.batches_offered),
        ("articles_offered", counts.unbatch.offered),
        ("articles_stored", counts.unbatch.stored),
        ("duplicates_refused", counts.unbatch.duplicates),
        ("articles_broken", counts.unbatch.broken),
        ("articles_cancelled", counts.unbatch.cancelled),
        ("articles_superseded", counts.unbatch.superseded),
        ("hard_links", counts.store.hard_links),
        ("symlinks", counts.store.symlinks),
        ("links_refused", counts.store.links_refused),
        ("articles_expired", counts.expire.articles),
        ("history_lookups", counts.lookups),
        ("history_text_reads", counts.lookup_text_reads),
        ("history_tag_misses", counts.lookup_tag_misses),
        ("history_index_reads", counts.index_reads),
        ("history_index_writes", counts.index_writes),
    ];
    metrics.extend(counts.map(|(name, count)| (name.to_owned(), count as f64)));
    (outcome.metrics, outcome.curves) = (metrics, curves);
}

/// What a run emits, by order of interest; the names with `to_last` and `tail` where several ranks ran. Curves too.
pub const METRICS: &[MetricDeclaration] = &[
    MetricDeclaration::rate("unbatch_articles_per_sec", "Storing articles").answers(),
    MetricDeclaration::percent("ageing_percent", "Last pass against the first"),
    MetricDeclaration::percent("ageing_per_pass_percent", "Ageing per pass"),
    MetricDeclaration::percent("ageing_per_pass_low_percent", "Ageing per pass, low"),
    MetricDeclaration::percent("ageing_per_pass_high_percent", "Ageing per pass, high"),
    MetricDeclaration::rate("expire_files_per_sec", "Expired files deleted"),
    MetricDeclaration::rate("batch_articles_per_sec", "Articles batched"),
    MetricDeclaration::percent("unbatch_user_percent", "User time to store"),
    MetricDeclaration::percent("unbatch_sys_percent", "System time to store"),
    MetricDeclaration::rate("unbatch_first_pass_per_sec", "Storing articles, first pass"),
    MetricDeclaration::rate("unbatch_last_pass_per_sec", "Storing articles, last pass"),
    MetricDeclaration::rate("unbatch_flushed_articles_per_sec", "Storing articles and flushing them"),
    MetricDeclaration::seconds("flush_s", "Flush after a pass"),
    MetricDeclaration::bytes_rate("unbatch_bytes_per_sec", "Storing, bytes"),
    MetricDeclaration::new("unbatch_user_us_per_article", "us/article", "User time to store")
        .better(Better::Lower),
    MetricDeclaration::new("unbatch_sys_us_per_article", "us/article", "System time to store")
        .better(Better::Lower),
    MetricDeclaration::minutes("batch_minutes", "Time to batch"),
    MetricDeclaration::minutes("expire_minutes", "Time to delete"),
    MetricDeclaration::rate("read_articles_per_sec", "Articles read"),
    MetricDeclaration::micros("read_latency_{figure}_us", "Read latency {figure}"),
    MetricDeclaration::count("read_errors", "Read errors"),
    MetricDeclaration::rate("unbatch_articles_to_last_per_sec", "Storing articles, to the last rank's end"),
    MetricDeclaration::rate("batch_articles_to_last_per_sec", "Articles batched, to the last rank's end"),
    MetricDeclaration::rate("expire_files_to_last_per_sec", "Expired files deleted, to the last rank's end"),
    MetricDeclaration::seconds("{phase}_tail_s", "{phase}: from the first rank's end to the last one's"),
    MetricDeclaration::count("batches_offered", "Batches offered"),
    MetricDeclaration::count("articles_offered", "Articles offered"),
    MetricDeclaration::count("articles_stored", "Articles stored"),
    MetricDeclaration::count("articles_expired", "Articles expired"),
    MetricDeclaration::count("articles_broken", "Articles broken"),
    MetricDeclaration::count("articles_cancelled", "Articles cancelled"),
    MetricDeclaration::count("articles_superseded", "Articles superseded"),
    MetricDeclaration::count("duplicates_refused", "Duplicates refused"),
    MetricDeclaration::count("cache_drops", "Cache drops"),
    MetricDeclaration::count("cache_drops_proven_cold", "Cache drops proven cold"),
    MetricDeclaration::count("hard_links", "Hard links"),
    MetricDeclaration::count("symlinks", "Symlinks"),
    MetricDeclaration::count("links_refused", "Links refused"),
    MetricDeclaration::count("history_lookups", "History lookups"),
    MetricDeclaration::count("history_text_reads", "History text reads"),
    MetricDeclaration::count("history_tag_misses", "History tag misses"),
    MetricDeclaration::count("history_index_reads", "History index reads"),
    MetricDeclaration::count("history_index_writes", "History index writes"),
    MetricDeclaration::rate("unbatch_per_sec", "Unbatch"),
];

/// What phases and readers come to: metrics by name, and the curves. A phase counts by its rate and its time.
pub fn figures(
    phases: &[Phase],
    readings: Option<&Readings>,
    config: &NetnewsConfig,
) -> (BTreeMap<String, f64>, Vec<Curve>) {
    let of =
        |name: &str| -> Vec<Phase> { phases.iter().filter(|phase| phase.name == name).cloned().collect() };
    let (unbatch, batch, expire) = (of("unbatch"), of("batch"), of("expire"));
    let mut metrics = BTreeMap::new();
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            metrics.insert(name.to_owned(), value);
        }
    };
    put("unbatch_articles_per_sec", rate(&unbatch));
    put("unbatch_first_pass_per_sec", unbatch.first().map(|phase| phase.items_per_sec));
    put("unbatch_last_pass_per_sec", unbatch.last().map(|phase| phase.items_per_sec));
    if let ([first, .., last], Some(trend)) = (&unbatch[..], trend(&unbatch)) {
        let percent = |rate: f64| Some(100.0 * rate / first.items_per_sec);
        put("ageing_percent", percent(last.items_per_sec));
        put("ageing_per_pass_percent", percent(trend.slope));
        if let Some(reach) = trend.reach {
            put("ageing_per_pass_low_percent", percent(trend.slope - reach));
            put("ageing_per_pass_high_percent", percent(trend.slope + reach));
        }
    }
    // With readers the process's time is theirs too.
    if config.readers == 0 {
        let share = |seconds: fn(&Phase) -> f64| {
            ratio(&unbatch, seconds, |phase| phase.wall_s).map(|share| 100.0 * share)
        };
        put("unbatch_user_percent", share(|phase| phase.user_s));
        put("unbatch_sys_percent", share(|phase| phase.sys_s));
    }
    let per_item_us = |seconds: fn(&Phase) -> f64| {
        let items: u64 = unbatch.iter().map(|phase| phase.items).sum();
        (items > 0).then(|| 1e6 * unbatch.iter().map(seconds).sum::<f64>() / items as f64)
    };
    put("unbatch_user_us_per_article", per_item_us(|phase| phase.user_s));
    put("unbatch_sys_us_per_article", per_item_us(|phase| phase.sys_s));
    put("unbatch_bytes_per_sec", ratio(&unbatch, |phase| phase.bytes as f64, |phase| phase.wall_s));
    let flush = of("flush");
    put("flush_s", mean(&flush, |phase| phase.wall_s));
    // Until it is on the storage: the rate of storing as if each pass's flush belonged to it.
    let with_flush: Vec<Phase> = unbatch
        .iter()
        .filter_map(|phase| {
            let flush = flush.iter().find(|flush| flush.pass == phase.pass)?;
            let wall_s = phase.wall_s + flush.wall_s;
            let items_per_sec = phase.items_per_sec * phase.wall_s / wall_s;
            Some(Phase { wall_s, items_per_sec, ..phase.clone() })
        })
        .collect();
    put("unbatch_flushed_articles_per_sec", rate(&with_flush));
    put("batch_articles_per_sec", rate(&batch));
    put("batch_minutes", mean(&batch, |phase| phase.wall_s / 60.0));
    put("expire_files_per_sec", rate(&expire));
    put("expire_minutes", mean(&expire, |phase| phase.wall_s / 60.0));
    if let Some(readings) = readings {
        let latency = readings.latency.summary();
        put("read_articles_per_sec", Some(readings.latency.count() as f64 / wall_s(&unbatch)));
        put("read_latency_p50_us", Some(latency.p50));
        put("read_latency_p90_us", Some(latency.p90));
        put("read_latency_p99_us", Some(latency.p99));
        put("read_latency_p999_us", Some(latency.p999));
        put("read_latency_max_us", Some(latency.max));
        put("read_errors", Some(readings.errors as f64));
    }
    let curves = [
        curve("unbatch_per_sec", "unbatch", &unbatch, |phase| phase.items_per_sec),
        curve("batch_minutes", "batch", &batch, |phase| phase.wall_s / 60.0),
        curve("expire_minutes", config.removal.name(), &expire, |phase| phase.wall_s / 60.0),
    ];
    (metrics, curves.into_iter().flatten().collect())
}

fn wall_s(phases: &[Phase]) -> f64 {
    phases.iter().map(|phase| phase.wall_s).sum()
}

fn ratio(phases: &[Phase], above: fn(&Phase) -> f64, below: fn(&Phase) -> f64) -> Option<f64> {
    let below: f64 = phases.iter().map(below).sum();
    (below > 0.0).then(|| phases.iter().map(above).sum::<f64>() / below)
}

fn rate(phases: &[Phase]) -> Option<f64> {
    ratio(phases, |phase| phase.items_per_sec * phase.wall_s, |phase| phase.wall_s)
}

fn mean(phases: &[Phase], of: fn(&Phase) -> f64) -> Option<f64> {
    ratio(phases, of, |_| 1.0)
}

/// How the rate changes over the passes: items a second and pass.
fn trend(phases: &[Phase]) -> Option<Trend> {
    let points: Vec<(f64, f64)> =
        phases.iter().map(|phase| (f64::from(phase.pass), phase.items_per_sec)).collect();
    Trend::of(&points)
}

fn curve(name: &str, label: &str, phases: &[Phase], y: fn(&Phase) -> f64) -> Option<Curve> {
    if phases.is_empty() {
        return None;
    }
    let points = phases
        .iter()
        .map(|phase| CurvePoint { x: f64::from(phase.pass), y: y(phase), low: None, high: None })
        .collect();
    let lines = vec![CurveLine { label: label.to_owned(), points }];
    Some(Curve { name: name.to_owned(), over: "pass".to_owned(), lines })
}

/// What a pass's unbatch did, as counters of its phase.
pub(super) fn count_unbatch(phase: &mut Phase, unbatch: &UnbatchCounts, store: &StoreCounts) {
    for (name, count) in [
        ("offered", unbatch.offered),
        ("duplicates", unbatch.duplicates),
        ("broken", unbatch.broken),
        ("cancelled", unbatch.cancelled),
        ("superseded", unbatch.superseded),
        ("hard_links", store.hard_links),
        ("symlinks", store.symlinks),
    ] {
        phase.counters.insert(name.to_owned(), count as f64);
    }
}

/// What the readers did meanwhile.
pub(super) fn count_readings(phase: &mut Phase, readings: &Readings) {
    let latency = readings.latency.summary();
    for (name, value) in [
        ("read_articles_per_sec", latency.count as f64 / phase.wall_s.max(1e-9)),
        ("read_latency_p50_us", latency.p50),
        ("read_latency_p99_us", latency.p99),
        ("read_gone", readings.gone as f64),
        ("read_errors", readings.errors as f64),
    ] {
        phase.counters.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, pass: u32, items: u64, wall_s: f64) -> Phase {
        let items_per_sec = items as f64 / wall_s;
        Phase { name: name.to_owned(), pass, items, wall_s, items_per_sec, ..Phase::default() }
    }

    #[test]
    fn ageing_is_the_last_pass_over_the_first_and_its_trend_the_slope_of_all() {
        // Rates 100, 90, 80: each pass is slower by a tenth of the first.
        let phases = [(1, 100), (2, 90), (3, 80)].map(|(pass, items)| phase("unbatch", pass, items, 1.0));
        let mut outcome = Outcome { phases: phases.into(), ..Outcome::default() };
        outcome.phases.push(phase("batch", 3, 90, 30.0));
        outcome.phases.push(phase("expire", 3, 200, 120.0));
        draw(&mut outcome, &NetnewsConfig::paper("x"));
        let metric = |name: &str| (outcome.metrics[name] * 1e6).round() / 1e6;
        assert_eq!((metric("ageing_percent"), metric("ageing_per_pass_percent")), (80.0, -10.0));
        // Three passes have a slope and show no trend.
        assert!(!outcome.metrics.contains_key("ageing_per_pass_low_percent"));
        assert_eq!((metric("unbatch_articles_per_sec"), metric("batch_articles_per_sec")), (90.0, 3.0));
        assert_eq!((metric("batch_minutes"), metric("expire_minutes")), (0.5, 2.0));
        let names: Vec<&str> = outcome.curves.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(names, ["unbatch_per_sec", "batch_minutes", "expire_minutes"]);
    }

    #[test]
    fn a_trend_has_an_interval_around_it_in_percent_of_the_first_pass() {
        let rates = [200, 190, 184, 168, 160, 152];
        let phases = rates.iter().zip(1..).map(|(rate, pass)| phase("unbatch", pass, *rate, 1.0)).collect();
        let mut outcome = Outcome { phases, ..Outcome::default() };
        draw(&mut outcome, &NetnewsConfig::paper("x"));
        let [slope, low, high] =
            ["", "_low", "_high"].map(|end| outcome.metrics[&format!("ageing_per_pass{end}_percent")]);
        assert!((slope + 4.943).abs() < 1e-3, "{slope}");
        assert!(low < slope && slope < high && high < 0.0, "{low} {slope} {high}");
        assert!((low + high - 2.0 * slope).abs() < 1e-9);
    }

    #[test]
    fn one_pass_has_no_ageing() {
        let mut outcome = Outcome { phases: vec![phase("unbatch", 1, 10, 1.0)], ..Outcome::default() };
        draw(&mut outcome, &NetnewsConfig::paper("x"));
        assert!(!outcome.metrics.contains_key("ageing_percent"));
    }
}
