//! The figures of all ranks that ran the news spool as copies of each other.
//!
//! Always holds: counts and buckets are added exactly; rates of articles and files are those while all ranks worked, and
//! the names with `to_last` those until the last one ended; minutes, bytes and processor time count until the last one.
//! A phase that ended early on any rank stays among the phases, and out of all these figures where there are whole ones.
//! What each rank did by itself stands in the curve `unbatch_by_rank_per_sec`.

use std::collections::BTreeMap;

use fstress::ensemble::Copies;
use measure::{Curve, CurveLine, CurvePoint, LatencyHistogram, Phase, RankPart, Verdict};
use netnews::spool::{NetnewsConfig, Outcome};

use super::course::Course;

/// Metrics that are counts: those of the whole are their sums. All others are made anew.
const COUNTS: [&str; 15] = [
    "articles_stored",
    "duplicates_refused",
    "articles_broken",
    "articles_cancelled",
    "articles_superseded",
    "hard_links",
    "symlinks",
    "links_refused",
    "articles_expired",
    "history_lookups",
    "history_text_reads",
    "history_tag_misses",
    "history_index_reads",
    "history_index_writes",
    "read_errors",
];
/// Endings of counters that do not add up.
const NOT_ADDED: [&str; 4] = ["_us", "_percent", "_mean", "_max"];
/// Counters of a device are those of all ranks on its host.
const DEVICE: &str = "device_";

/// How many ranks ended a phase before its work was done, in its counters; such phases count in no rate.
const CUT_SHORT: &str = "ranks_cut_short";

/// What ranks give each other besides their phases: counts by name; latencies of readers; reasons with their weight;
/// whether all passes were done.
type Part = (Vec<(String, f64)>, Vec<(u64, u64)>, Vec<(String, String, bool)>, bool);

/// Makes the outcome that of the whole; each rank gets the same.
///
/// # Errors
/// When a rank is lost.
pub(super) fn sum(
    copies: &mut Copies<'_>,
    outcome: &mut Outcome,
    course: &Course<'_>,
    config: &NetnewsConfig,
) -> anyhow::Result<()> {
    let own = std::mem::take(&mut outcome.phases);
    let mine = own.iter().map(|phase| {
        let cut_short = course.was_cut_short(phase).then(|| (CUT_SHORT.to_owned(), 1.0));
        let mut added = added(phase);
        added.counters.extend(cut_short);
        (added, course.steps_of(phase))
    });
    let mine = mine.collect();
    let mut phases = copies.sum(mine)?;
    // One that some had and others not, because the run ended early, is no phase of the whole.
    phases.retain(|phase| phase.counters.contains_key("all_worked_s"));
    let rows = copies.rows(RankPart::default())?;

    let counts = outcome.metrics.iter().filter(|(name, _)| COUNTS.contains(&name.as_str()));
    let counts = counts.map(|(name, count)| (name.clone(), *count)).collect();
    let readings = outcome.readings.as_ref().map(|readings| readings.latency.buckets());
    let reasons = outcome.verdict.reasons.iter();
    let reasons = reasons.map(|reason| (reason.code.clone(), reason.text.clone(), reason.fatal)).collect();
    let part: Part = (counts, readings.unwrap_or_default(), reasons, outcome.complete);
    let (counts, reads, reasons, complete): Part =
        copies.ensemble().add_up("counts and reasons", part, |parts| sum_of_parts(parts, &rows))?;
    let whole = whole_ones(&phases);
    let is_whole =
        |phase: &&Phase| whole.iter().any(|whole| (&whole.name, whole.pass) == (&phase.name, phase.pass));
    let rates = own.iter().filter(|phase| phase.name == "unbatch").filter(is_whole);
    let rates: Vec<(u32, f64)> = rates.map(|phase| (phase.pass, phase.items_per_sec)).collect();
    let rates: Vec<Vec<(u32, f64)>> = copies.ensemble().add_up("rates of ranks", rates, |all| all)?;

    outcome.metrics = metrics(&whole, rows.len(), config);
    outcome.metrics.extend(counts);
    if !reads.is_empty() {
        let mut latency = LatencyHistogram::new();
        latency.add_buckets(&reads);
        let us = latency.summary();
        let unbatch_s: f64 =
            phases.iter().filter(|phase| phase.name == "unbatch").map(|phase| phase.wall_s).sum();
        let figures = [
            ("read_articles_per_sec", latency.count() as f64 / unbatch_s.max(1e-9)),
            ("read_latency_p50_us", us.p50),
            ("read_latency_p90_us", us.p90),
            ("read_latency_p99_us", us.p99),
            ("read_latency_p999_us", us.p999),
            ("read_latency_us_max", us.max),
        ];
        outcome.metrics.extend(figures.map(|(name, value)| (name.to_owned(), value)));
    }
    outcome.verdict = Verdict::valid();
    for (code, text, fatal) in reasons {
        if fatal { outcome.verdict.invalidate(&code, text) } else { outcome.verdict.remark(&code, text) }
    }
    outcome.curves = curves(&whole, &rates, &rows, config);
    outcome.complete = complete;
    outcome.phases = phases;
    Ok(())
}

/// The phases that were done to their ends on all ranks; all of them, where none was.
fn whole_ones(phases: &[Phase]) -> Vec<Phase> {
    let (cut_short, whole): (Vec<Phase>, _) =
        phases.iter().cloned().partition(|phase| counter(phase, CUT_SHORT) > 0.0);
    if whole.is_empty() { cut_short } else { whole }
}

/// A phase with those counters alone that add up over ranks.
fn added(phase: &Phase) -> Phase {
    let mut phase = phase.clone();
    phase
        .counters
        .retain(|name, _| !name.contains(DEVICE) && !NOT_ADDED.iter().any(|ending| name.ends_with(ending)));
    phase
}

fn sum_of_parts(parts: Vec<Part>, rows: &[RankPart]) -> Part {
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    let mut latency = LatencyHistogram::new();
    let mut reasons: Vec<(String, String, bool)> = Vec::new();
    let mut all_complete = true;
    for (rank, (of_rank, buckets, of_verdict, complete)) in parts.into_iter().enumerate() {
        for (name, count) in of_rank {
            *counts.entry(name).or_default() += count;
        }
        latency.add_buckets(&buckets);
        for (code, text, fatal) in of_verdict {
            // A remark that many have is told once, what spoils the figures by each.
            if fatal || !reasons.iter().any(|(known, ..)| *known == code) {
                let host = rows.get(rank).map_or("", |row| &row.host);
                reasons.push((code, format!("rank {rank} on {host}: {text}"), fatal));
            }
        }
        all_complete &= complete;
    }
    (counts.into_iter().collect(), latency.buckets(), reasons, all_complete)
}

fn named<'a>(phases: &'a [Phase], name: &str) -> Vec<&'a Phase> {
    phases.iter().filter(|phase| phase.name == name).collect()
}

fn counter(phase: &Phase, name: &str) -> f64 {
    phase.counters.get(name).copied().unwrap_or(0.0)
}

fn metrics(phases: &[Phase], ranks: usize, config: &NetnewsConfig) -> BTreeMap<String, f64> {
    let (unbatch, batch, expire) =
        (named(phases, "unbatch"), named(phases, "batch"), named(phases, "expire"));
    let mut metrics = BTreeMap::new();
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            metrics.insert(name.to_owned(), value);
        }
    };
    type Of<'a> = &'a dyn Fn(&Phase) -> f64;
    let total = |phases: &[&Phase], of: Of<'_>| -> f64 { phases.iter().map(|phase| of(phase)).sum() };
    let ratio = |phases: &[&Phase], above: Of<'_>, below: Of<'_>| {
        let below = total(phases, below);
        (below > 0.0).then(|| total(phases, above) / below)
    };
    let items = |phase: &Phase| phase.items as f64;
    let wall_s = |phase: &Phase| phase.wall_s;
    for (phases, rate, to_last, tail) in [
        (&unbatch, "unbatch_articles_per_sec", "unbatch_articles_to_last_per_sec", "unbatch_tail_s"),
        (&batch, "batch_articles_per_sec", "batch_articles_to_last_per_sec", "batch_tail_s"),
        (&expire, "expire_files_per_sec", "expire_files_to_last_per_sec", "expire_tail_s"),
    ] {
        put(
            rate,
            ratio(phases, &|phase| counter(phase, "all_worked_items"), &|phase| {
                counter(phase, "all_worked_s")
            }),
        );
        put(to_last, ratio(phases, &items, &wall_s));
        put(tail, (!phases.is_empty()).then(|| total(phases, &|phase| counter(phase, "tail_s"))));
    }
    let rate = |phase: &&Phase| counter(phase, "all_worked_items_per_sec");
    let (first, last) = (unbatch.first().map(rate), unbatch.last().map(rate));
    put("unbatch_first_pass_per_sec", first);
    put("unbatch_last_pass_per_sec", last);
    if let (Some(first), Some(last), 2..) = (first, last, unbatch.len()) {
        put("ageing_percent", Some(100.0 * last / first));
        put("ageing_per_pass_percent", slope(&unbatch).map(|slope| 100.0 * slope / first));
    }
    if config.readers == 0 {
        let of_ranks = |seconds: Of<'_>| ratio(&unbatch, seconds, &wall_s).map(|s| 100.0 * s / ranks as f64);
        put("unbatch_user_percent", of_ranks(&|phase| phase.user_s));
        put("unbatch_sys_percent", of_ranks(&|phase| phase.sys_s));
    }
    put("unbatch_user_us_per_article", ratio(&unbatch, &|phase| 1e6 * phase.user_s, &items));
    put("unbatch_sys_us_per_article", ratio(&unbatch, &|phase| 1e6 * phase.sys_s, &items));
    put("unbatch_bytes_per_sec", ratio(&unbatch, &|phase| phase.bytes as f64, &wall_s));
    put("batch_minutes", ratio(&batch, &|phase| phase.wall_s / 60.0, &|_| 1.0));
    put("expire_minutes", ratio(&expire, &|phase| phase.wall_s / 60.0, &|_| 1.0));
    metrics
}

/// Articles a second and pass by which the rate changes, by least squares.
fn slope(unbatch: &[&Phase]) -> Option<f64> {
    let count = unbatch.len() as f64;
    let points =
        || unbatch.iter().map(|phase| (f64::from(phase.pass), counter(phase, "all_worked_items_per_sec")));
    let (mean_x, mean_y) =
        points().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let along: f64 = points().map(|(x, _)| (x - mean_x).powi(2)).sum();
    (along > 0.0).then(|| points().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / along)
}

fn curves(
    phases: &[Phase],
    rates: &[Vec<(u32, f64)>],
    rows: &[RankPart],
    config: &NetnewsConfig,
) -> Vec<Curve> {
    let point = |pass: u32, y: f64| CurvePoint { x: f64::from(pass), y, ..CurvePoint::default() };
    let curve =
        |name: &str, lines: Vec<CurveLine>| Curve { name: name.to_owned(), over: "pass".to_owned(), lines };
    let of_whole = |name: &str, label: &str, phase: &str, y: &dyn Fn(&Phase) -> f64| {
        let points = named(phases, phase).iter().map(|phase| point(phase.pass, y(phase))).collect();
        curve(name, vec![CurveLine { label: label.to_owned(), points }])
    };
    let minutes = |phase: &Phase| phase.wall_s / 60.0;
    let by_rank = rates.iter().zip(rows).map(|(rates, row)| CurveLine {
        label: format!("rank {} on {}", row.rank, row.host),
        points: rates.iter().map(|(pass, rate)| point(*pass, *rate)).collect(),
    });
    let curves = [
        of_whole("unbatch_per_sec", "unbatch", "unbatch", &|phase| {
            counter(phase, "all_worked_items_per_sec")
        }),
        of_whole("batch_minutes", "batch", "batch", &minutes),
        of_whole("expire_minutes", config.removal.name(), "expire", &minutes),
        curve("unbatch_by_rank_per_sec", by_rank.collect()),
    ];
    curves.into_iter().filter(|curve| curve.lines.iter().any(|line| !line.points.is_empty())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, pass: u32, per_sec: f64, cut_short: f64) -> Phase {
        let counters = [("all_worked_s", 2.0), ("all_worked_items", 2.0 * per_sec), (CUT_SHORT, cut_short)];
        let counters = counters.into_iter().filter(|(_, count)| *count > 0.0);
        Phase {
            name: name.to_owned(),
            pass,
            wall_s: 4.0,
            items: 40,
            counters: counters.map(|(name, count)| (name.to_owned(), count)).collect(),
            ..Phase::default()
        }
    }

    /// Symptom: after Ctrl-C the articles a second of all passes were below those of any. Cause: the pass that was cut short
    /// on one rank counted with the time of the one that had nothing to do any more. Fix: whole phases alone count.
    #[test]
    fn a_phase_cut_short_on_any_rank_counts_in_no_rate_unless_there_is_nothing_else() {
        let config = NetnewsConfig::paper("x");
        let rate = |phases: &[Phase]| metrics(&whole_ones(phases), 2, &config)["unbatch_articles_per_sec"];
        let (first, second, cut) =
            (phase("unbatch", 1, 100.0, 0.0), phase("unbatch", 2, 80.0, 0.0), phase("unbatch", 3, 5.0, 1.0));
        assert_eq!(rate(&[first.clone(), second.clone(), cut.clone()]), 90.0);
        assert_eq!(rate(&[cut]), 5.0);
    }
}
