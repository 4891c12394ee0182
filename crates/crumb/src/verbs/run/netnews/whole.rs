//! The figures of all ranks that ran the news spool as replicas of each other.
//!
//! Always holds: counts and buckets are added exactly; rates of articles and files are those while all ranks worked, and
//! the names with `to_last` those until the last one ended; minutes, bytes and processor time count until the last one.
//! A phase that ended early on any rank stays among the phases, and out of all these figures where there are whole ones.
//! What each rank did by itself stands in the curve `unbatch_by_rank_per_sec`.

use std::collections::BTreeMap;

use harness::ranks::Replicas;
use measure::{Curve, CurveLine, CurvePoint, LatencyHistogram, Phase, RankPart, Verdict};
use netnews::spool::{NetnewsConfig, Outcome, Readings, figures};

use super::course::Course;

/// Metrics that are counts: those of the whole are their sums. All others are made anew.
const COUNTS: [&str; 17] = [
    "batches_offered",
    "articles_offered",
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
    replicas: &mut Replicas<'_>,
    outcome: &mut Outcome,
    course: &Course,
    config: &NetnewsConfig,
) -> anyhow::Result<()> {
    let own = once_each(std::mem::take(&mut outcome.phases));
    let mine = own.iter().map(|phase| {
        let cut_short = course.was_cut_short(phase).then(|| (CUT_SHORT.to_owned(), 1.0));
        let mut added = added(phase);
        added.counters.extend(cut_short);
        (added, course.steps_of(phase))
    });
    let mine = mine.collect();
    let mut phases = replicas.sum(mine)?;
    // One that some had and others not, because the run ended early, is no phase of the whole.
    phases.retain(|phase| phase.counters.contains_key("all_worked_s"));
    let rows = replicas.rows(RankPart::default())?;

    let counts = outcome.metrics.iter().filter(|(name, _)| COUNTS.contains(&name.as_str()));
    let counts = counts.map(|(name, count)| (name.clone(), *count)).collect();
    let readings = outcome.readings.as_ref().map(|readings| readings.latency.buckets());
    let reasons = outcome.verdict.reasons.iter();
    let reasons = reasons.map(|reason| (reason.code.clone(), reason.text.clone(), reason.fatal)).collect();
    let part: Part = (counts, readings.unwrap_or_default(), reasons, outcome.complete);
    let (counts, reads, reasons, complete): Part =
        replicas.group().add_up("counts and reasons", part, |parts| sum_of_parts(parts, &rows))?;
    let whole = whole_ones(&phases);
    let is_whole =
        |phase: &&Phase| whole.iter().any(|whole| (&whole.name, whole.pass) == (&phase.name, phase.pass));
    let rates = own.iter().filter(|phase| phase.name == "unbatch").filter(is_whole);
    let rates: Vec<(u32, f64)> = rates.map(|phase| (phase.pass, phase.items_per_sec)).collect();
    let rates: Vec<Vec<(u32, f64)>> = replicas.group().add_up("rates of ranks", rates, |all| all)?;

    let mut latency = LatencyHistogram::new();
    latency.add_buckets(&reads);
    let readings = (!reads.is_empty()).then(|| Readings { latency, ..Readings::default() });
    (outcome.metrics, outcome.curves) = figures_of_ranks(&whole, readings.as_ref(), rows.len(), config);
    outcome.metrics.extend(counts);
    outcome.curves.extend(by_rank(&rates, &rows));
    outcome.verdict = Verdict::valid();
    for (code, text, fatal) in reasons {
        if fatal { outcome.verdict.invalidate(&code, text) } else { outcome.verdict.remark(&code, text) }
    }
    outcome.complete = complete;
    outcome.phases = phases;
    Ok(())
}

/// Each phase as it was done last: one that a run was killed in, and that is gone on with, may have been begun before.
fn once_each(phases: Vec<Phase>) -> Vec<Phase> {
    let mut last: Vec<Phase> = Vec::with_capacity(phases.len());
    for phase in phases {
        last.retain(|before| (&before.name, before.pass) != (&phase.name, phase.pass));
        last.push(phase);
    }
    last
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

fn counter(phase: &Phase, name: &str) -> f64 {
    phase.counters.get(name).copied().unwrap_or(0.0)
}

/// Phase, its rate while all worked, the same until the last ended, and what came after the first.
const RATES: [(&str, &str, &str, &str); 3] = [
    ("unbatch", "unbatch_articles_per_sec", "unbatch_articles_to_last_per_sec", "unbatch_tail_s"),
    ("batch", "batch_articles_per_sec", "batch_articles_to_last_per_sec", "batch_tail_s"),
    ("expire", "expire_files_per_sec", "expire_files_to_last_per_sec", "expire_tail_s"),
];
/// Beside those three what else counts while all worked.
const WHILE_ALL_WORKED: [&str; 6] = [
    "unbatch_first_pass_per_sec",
    "unbatch_last_pass_per_sec",
    "ageing_percent",
    "ageing_per_pass_percent",
    "ageing_per_pass_low_percent",
    "ageing_per_pass_high_percent",
];
/// Shares of the time of one process.
const OF_EACH_RANK: [&str; 2] = ["unbatch_user_percent", "unbatch_sys_percent"];

/// The figures that one process would have of these phases, once while all worked and once until the last ended.
fn figures_of_ranks(
    phases: &[Phase],
    readings: Option<&Readings>,
    ranks: usize,
    config: &NetnewsConfig,
) -> (BTreeMap<String, f64>, Vec<Curve>) {
    let worked: Vec<Phase> = phases
        .iter()
        .map(|phase| Phase {
            wall_s: counter(phase, "all_worked_s"),
            items_per_sec: counter(phase, "all_worked_items_per_sec"),
            ..phase.clone()
        })
        .collect();
    let (while_all, curves_while_all) = figures(&worked, None, config);
    let (mut metrics, mut curves) = figures(phases, readings, config);
    for (phase, rate, to_last, tail) in RATES {
        let of_phase = || phases.iter().filter(|one| one.name == phase);
        if let (Some(rate_to_last), Some(rate_while_all)) = (metrics.get(rate), while_all.get(rate)) {
            let tail_s = of_phase().map(|phase| counter(phase, "tail_s")).sum();
            metrics.insert(to_last.to_owned(), *rate_to_last);
            metrics.insert(rate.to_owned(), *rate_while_all);
            metrics.insert(tail.to_owned(), tail_s);
        }
    }
    for name in WHILE_ALL_WORKED {
        metrics.remove(name);
        metrics.extend(while_all.get_key_value(name).map(|(name, value)| (name.clone(), *value)));
    }
    for name in OF_EACH_RANK {
        metrics.entry(name.to_owned()).and_modify(|percent| *percent /= ranks as f64);
    }
    for curve in &mut curves {
        let while_all = curves_while_all.iter().find(|other| other.name == curve.name);
        if let (true, Some(while_all)) = (curve.name == "unbatch_per_sec", while_all) {
            curve.clone_from(while_all);
        }
    }
    (metrics, curves)
}

/// What each rank did by itself.
fn by_rank(rates: &[Vec<(u32, f64)>], rows: &[RankPart]) -> Option<Curve> {
    let point = |&(pass, y): &(u32, f64)| CurvePoint { x: f64::from(pass), y, ..CurvePoint::default() };
    let lines: Vec<CurveLine> = rates
        .iter()
        .zip(rows)
        .map(|(rates, row)| CurveLine {
            label: format!("rank {} on {}", row.rank, row.host),
            points: rates.iter().map(point).collect(),
        })
        .collect();
    let any = lines.iter().any(|line| !line.points.is_empty());
    any.then(|| Curve { name: "unbatch_by_rank_per_sec".to_owned(), over: "pass".to_owned(), lines })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, pass: u32, per_sec: f64, cut_short: f64) -> Phase {
        let counters = [("all_worked_s", 2.0), ("all_worked_items_per_sec", per_sec), (CUT_SHORT, cut_short)];
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
        let metrics = |phases: &[Phase]| figures_of_ranks(&whole_ones(phases), None, 2, &config).0;
        let rate = |phases: &[Phase]| metrics(phases)["unbatch_articles_per_sec"];
        let (first, second, cut) =
            (phase("unbatch", 1, 100.0, 0.0), phase("unbatch", 2, 80.0, 0.0), phase("unbatch", 3, 5.0, 1.0));
        assert_eq!(rate(&[first.clone(), second.clone(), cut.clone()]), 90.0);
        assert_eq!(rate(&[cut]), 5.0);
        // 100, then 80 a second: a fifth less. Half of a rank's time each is a quarter of that of both.
        let user = |phase: Phase| Phase { user_s: 2.0, items_per_sec: 10.0, ..phase };
        let both = metrics(&[user(first), user(second)]);
        let figures = ["ageing_percent", "unbatch_user_percent", "unbatch_articles_to_last_per_sec"];
        assert_eq!(figures.map(|name| both[name]), [80.0, 25.0, 10.0]);
    }

    #[test]
    fn of_a_phase_that_was_begun_before_a_kill_only_the_last_counts() {
        let phases = ["unbatch", "expire-scan", "expire-scan", "expire"].map(|name| phase(name, 3, 1.0, 0.0));
        let mut phases: Vec<Phase> = phases.into();
        phases[2].items = 7;
        let once: Vec<(String, u64)> =
            once_each(phases).into_iter().map(|phase| (phase.name, phase.items)).collect();
        assert_eq!(once.len(), 3);
        assert_eq!(once[1], ("expire-scan".to_owned(), 7));
    }
}
