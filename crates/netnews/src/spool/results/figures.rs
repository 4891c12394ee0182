//! The figures of a run: rates, ageing, and the curves that the paper draws.
//!
//! Where several ranks ran, the rates that lead are those while all of them worked; the names with `to_last` are those until
//! the last one ended, and `tail` is the time between. Minutes, bytes and processor time count until the last one ended.
//!
//! Always holds: everything is computed from the whole part; a mean rate is all items through all the time, not the mean of
//! rates; ageing needs two passes.
//! Source: Swartz 1996, figures 2 to 5.

use std::collections::BTreeMap;

use measure::statistics::Trend;
use measure::{
    Better, COST_METRICS as COST, COST_OF_RANKS, Curve, CurveLine, CurvePoint, MACHINE_METRICS as MACHINE,
    MachineUse, MetricDeclaration, NO_DEVICE, Phase, StorageCost,
};

use super::part::{OfRank, Part};
use crate::spool::config::NetnewsConfig;
use crate::spool::passes::readers::Readings;
use crate::spool::unbatch::UnbatchCounts;
use crate::spool::unbatch::storing::StoreCounts;

/// What a run emits, by order of interest; the names with `to_last` and `tail` where several ranks ran. Curves too.
pub const METRICS: &[MetricDeclaration] = &[
    MetricDeclaration::rate("unbatch_articles_per_sec", "Storing articles").answers(),
    MetricDeclaration::percent("ageing_percent", "Last pass against the first").tile(),
    MetricDeclaration::percent("ageing_per_pass_percent", "Ageing per pass"),
    MetricDeclaration::percent("ageing_per_pass_low_percent", "Ageing per pass, low"),
    MetricDeclaration::percent("ageing_per_pass_high_percent", "Ageing per pass, high"),
    MetricDeclaration::rate("expire_files_per_sec", "Expired files deleted").tile(),
    MetricDeclaration::rate("batch_articles_per_sec", "Articles batched").tile(),
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
    MetricDeclaration::rate("read_articles_per_sec", "Articles read").tile(),
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
    COST[0],
    COST[1],
    COST[2],
    COST[3],
    COST[4],
    COST[5],
    MACHINE[0],
    MACHINE[1],
    MACHINE[2],
    MACHINE[3],
    MACHINE[4],
];

/// Metrics by name.
#[derive(Default)]
struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    fn put(&mut self, name: &str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.0.insert(name.to_owned(), value);
        }
    }
}

/// Phases by what they do, in the order of passes.
#[derive(Clone)]
struct ByKind {
    unbatch: Vec<Phase>,
    batch: Vec<Phase>,
    expire: Vec<Phase>,
    flush: Vec<Phase>,
}

impl ByKind {
    fn of(whole: &Part) -> Self {
        let of = |name: &str| -> Vec<Phase> {
            let of_kind = whole.counting_phases().filter(|phase| phase.phase.name == name);
            of_kind.map(|phase| phase.phase.clone()).collect()
        };
        Self { unbatch: of("unbatch"), batch: of("batch"), expire: of("expire"), flush: of("flush") }
    }

    /// The same phases with their time and rate while all ranks worked.
    fn while_all_worked(&self) -> Self {
        let while_all = |phases: &[Phase]| -> Vec<Phase> {
            let phases = phases.iter().map(|phase| Phase {
                wall_s: counter(phase, "all_worked_s"),
                items_per_sec: counter(phase, "all_worked_items_per_sec"),
                ..phase.clone()
            });
            phases.collect()
        };
        Self {
            unbatch: while_all(&self.unbatch),
            batch: while_all(&self.batch),
            expire: while_all(&self.expire),
            flush: while_all(&self.flush),
        }
    }
}

/// What a run comes to: metrics by name, and curves.
pub(crate) fn figures(whole: &Part, config: &NetnewsConfig) -> (BTreeMap<String, f64>, Vec<Curve>) {
    let to_last = ByKind::of(whole);
    let joined = !whole.ranks.is_empty();
    let lead = if joined { to_last.while_all_worked() } else { to_last.clone() };
    let mut metrics = Metrics::default();
    put_rates(&mut metrics, &lead);
    put_ageing(&mut metrics, &lead.unbatch);
    put_processor_time(&mut metrics, &to_last.unbatch, whole, config);
    put_times(&mut metrics, &to_last);
    put_reading(&mut metrics, whole);
    put_counts(&mut metrics, whole);
    metrics.0.extend(whole.machine().metrics());
    if joined {
        put_tails(&mut metrics, &to_last);
    }
    metrics.0.extend(cost(whole).metrics());
    let curves = [
        curve("unbatch_per_sec", "unbatch", &lead.unbatch, |phase| phase.items_per_sec),
        curve("batch_minutes", "batch", &to_last.batch, |phase| phase.wall_s / 60.0),
        curve("expire_minutes", config.removal.name(), &to_last.expire, |phase| phase.wall_s / 60.0),
        by_rank(&whole.ranks, &to_last.unbatch),
    ];
    (metrics.0, curves.into_iter().flatten().collect())
}

/// What an article costs: CPU time while articles are stored, and writes of whole passes, with what feeding on and expiry write.
/// Several ranks may share a device.
pub(crate) fn cost(whole: &Part) -> StorageCost {
    if !whole.ranks.is_empty() {
        return StorageCost::unseen(COST_OF_RANKS);
    }
    let costs = &whole.costs;
    let unbatch = || whole.counting_phases().filter(|phase| phase.phase.name == "unbatch" && !phase.earlier);
    let (cpu, written) = if costs.remote {
        let mut machine = MachineUse::default();
        unbatch().for_each(|phase| machine += &phase.machine);
        let (articles, bytes) =
            unbatch().fold((0, 0), |sum, phase| (sum.0 + phase.phase.items, sum.1 + phase.phase.bytes));
        (StorageCost::cpu_of_server(&machine, articles), StorageCost::written_by_server(&machine, bytes))
    } else {
        let cpu = StorageCost::cpu_of_phases(unbatch().map(|phase| &phase.phase));
        (cpu, costs.written.ok_or_else(|| NO_DEVICE.to_owned()))
    };
    StorageCost { cpu, written, kept: StorageCost::kept_of(costs.kept) }
}

fn put_rates(metrics: &mut Metrics, lead: &ByKind) {
    metrics.put("unbatch_articles_per_sec", rate(&lead.unbatch));
    metrics.put("unbatch_first_pass_per_sec", lead.unbatch.first().map(|phase| phase.items_per_sec));
    metrics.put("unbatch_last_pass_per_sec", lead.unbatch.last().map(|phase| phase.items_per_sec));
    metrics.put("batch_articles_per_sec", rate(&lead.batch));
    metrics.put("expire_files_per_sec", rate(&lead.expire));
}

fn put_ageing(metrics: &mut Metrics, unbatch: &[Phase]) {
    if let ([first, .., last], Some(trend)) = (unbatch, trend(unbatch)) {
        let percent = |rate: f64| Some(100.0 * rate / first.items_per_sec);
        metrics.put("ageing_percent", percent(last.items_per_sec));
        metrics.put("ageing_per_pass_percent", percent(trend.slope));
        if let Some(reach) = trend.reach {
            metrics.put("ageing_per_pass_low_percent", percent(trend.slope - reach));
            metrics.put("ageing_per_pass_high_percent", percent(trend.slope + reach));
        }
    }
}

fn put_processor_time(metrics: &mut Metrics, unbatch: &[Phase], whole: &Part, config: &NetnewsConfig) {
    // With readers the process's time is theirs too.
    if config.readers == 0 {
        // Shares of the time of one process.
        let processes = whole.ranks.len().max(1) as f64;
        let share = |seconds: fn(&Phase) -> f64| {
            ratio(unbatch, seconds, |phase| phase.wall_s).map(|share| 100.0 * share / processes)
        };
        metrics.put("unbatch_user_percent", share(|phase| phase.user_s));
        metrics.put("unbatch_sys_percent", share(|phase| phase.sys_s));
    }
    let per_item_us = |seconds: fn(&Phase) -> f64| {
        let items: u64 = unbatch.iter().map(|phase| phase.items).sum();
        (items > 0).then(|| 1e6 * unbatch.iter().map(seconds).sum::<f64>() / items as f64)
    };
    metrics.put("unbatch_user_us_per_article", per_item_us(|phase| phase.user_s));
    metrics.put("unbatch_sys_us_per_article", per_item_us(|phase| phase.sys_s));
}

fn put_times(metrics: &mut Metrics, phases: &ByKind) {
    let ByKind { unbatch, batch, expire, flush } = phases;
    metrics.put("unbatch_bytes_per_sec", ratio(unbatch, |phase| phase.bytes as f64, |phase| phase.wall_s));
    metrics.put("flush_s", mean(flush, |phase| phase.wall_s));
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
    metrics.put("unbatch_flushed_articles_per_sec", rate(&with_flush));
    metrics.put("batch_minutes", mean(batch, |phase| phase.wall_s / 60.0));
    metrics.put("expire_minutes", mean(expire, |phase| phase.wall_s / 60.0));
}

/// Of the passes whose readers this run timed.
fn put_reading(metrics: &mut Metrics, whole: &Part) {
    let (mut all, mut wall_s): (Option<Readings>, f64) = (None, 0.0);
    for phase in whole.counting_phases() {
        if let Some(readings) = &phase.readings {
            all.get_or_insert_default().merge(readings);
            wall_s += phase.phase.wall_s;
        }
    }
    let Some(readings) = all else { return };
    let latency = readings.latency.summary();
    metrics.put("read_articles_per_sec", Some(readings.latency.count() as f64 / wall_s));
    metrics.put("read_latency_p50_us", Some(latency.p50));
    metrics.put("read_latency_p90_us", Some(latency.p90));
    metrics.put("read_latency_p99_us", Some(latency.p99));
    metrics.put("read_latency_p999_us", Some(latency.p999));
    metrics.put("read_latency_max_us", Some(latency.max));
    metrics.put("read_errors", Some(readings.errors as f64));
}

fn put_counts(metrics: &mut Metrics, whole: &Part) {
    let counts = &whole.counts;
    for (name, count) in [
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
    ] {
        metrics.put(name, Some(count as f64));
    }
    if whole.cache_drops.dropped > 0 {
        metrics.put("cache_drops", Some(whole.cache_drops.dropped as f64));
        metrics.put("cache_drops_proven_cold", Some(whole.cache_drops.proven as f64));
    }
}

/// Until the last of several ranks ended, and what came after the first.
fn put_tails(metrics: &mut Metrics, to_last: &ByKind) {
    for (phases, to_last, tail) in [
        (&to_last.unbatch, "unbatch_articles_to_last_per_sec", "unbatch_tail_s"),
        (&to_last.batch, "batch_articles_to_last_per_sec", "batch_tail_s"),
        (&to_last.expire, "expire_files_to_last_per_sec", "expire_tail_s"),
    ] {
        if let Some(rate) = rate(phases) {
            metrics.put(to_last, Some(rate));
            metrics.put(tail, Some(phases.iter().map(|phase| counter(phase, "tail_s")).sum()));
        }
    }
}

fn counter(phase: &Phase, name: &str) -> f64 {
    phase.counters.get(name).copied().unwrap_or(0.0)
}

/// What each of several ranks did by itself, in passes that count.
fn by_rank(ranks: &[OfRank], unbatch: &[Phase]) -> Option<Curve> {
    let counts = |pass: u32| unbatch.iter().any(|phase| phase.pass == pass);
    let line = |of_rank: &OfRank| {
        let passes = of_rank.stored.iter().filter(|(pass, ..)| counts(*pass));
        let point =
            |&(pass, _, y): &(u32, u64, f64)| CurvePoint { x: f64::from(pass), y, low: None, high: None };
        CurveLine {
            label: format!("rank {} on {}", of_rank.rank, of_rank.host),
            points: passes.map(point).collect(),
        }
    };
    let lines: Vec<CurveLine> = ranks.iter().map(line).collect();
    let any = lines.iter().any(|line| !line.points.is_empty());
    any.then(|| Curve { name: "unbatch_by_rank_per_sec".to_owned(), over: "pass".to_owned(), lines })
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
pub(crate) fn count_unbatch(phase: &mut Phase, unbatch: &UnbatchCounts, store: &StoreCounts) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::results::part::MeasuredPhase;

    fn phase(name: &str, pass: u32, items: u64, wall_s: f64) -> Phase {
        let items_per_sec = items as f64 / wall_s;
        Phase { name: name.to_owned(), pass, items, wall_s, items_per_sec, ..Phase::default() }
    }

    fn whole(phases: impl IntoIterator<Item = Phase>) -> Part {
        let measured = |phase| MeasuredPhase { phase, whole: true, ..MeasuredPhase::default() };
        Part { phases: phases.into_iter().map(measured).collect(), ..Part::default() }
    }

    fn metrics(whole: &Part) -> BTreeMap<String, f64> {
        figures(whole, &NetnewsConfig::paper("x")).0
    }

    #[test]
    fn ageing_is_the_last_pass_over_the_first_and_its_trend_the_slope_of_all() {
        // Rates 100, 90, 80: each pass is slower by a tenth of the first.
        let unbatch = [(1, 100), (2, 90), (3, 80)].map(|(pass, items)| phase("unbatch", pass, items, 1.0));
        let others = [phase("batch", 3, 90, 30.0), phase("expire", 3, 200, 120.0)];
        let part = whole(unbatch.into_iter().chain(others));
        let (metrics, curves) = figures(&part, &NetnewsConfig::paper("x"));
        let metric = |name: &str| (metrics[name] * 1e6).round() / 1e6;
        assert_eq!((metric("ageing_percent"), metric("ageing_per_pass_percent")), (80.0, -10.0));
        // Three passes have a slope and show no trend.
        assert!(!metrics.contains_key("ageing_per_pass_low_percent"));
        assert_eq!((metric("unbatch_articles_per_sec"), metric("batch_articles_per_sec")), (90.0, 3.0));
        assert_eq!((metric("batch_minutes"), metric("expire_minutes")), (0.5, 2.0));
        let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(names, ["unbatch_per_sec", "batch_minutes", "expire_minutes"]);
    }

    #[test]
    fn a_trend_has_an_interval_around_it_in_percent_of_the_first_pass() {
        let rates = [200, 190, 184, 168, 160, 152];
        let metrics =
            metrics(&whole(rates.iter().zip(1..).map(|(rate, pass)| phase("unbatch", pass, *rate, 1.0))));
        let [slope, low, high] =
            ["", "_low", "_high"].map(|end| metrics[&format!("ageing_per_pass{end}_percent")]);
        assert!((slope + 4.943).abs() < 1e-3, "{slope}");
        assert!(low < slope && slope < high && high < 0.0, "{low} {slope} {high}");
        assert!((low + high - 2.0 * slope).abs() < 1e-9);
    }

    #[test]
    fn one_pass_has_no_ageing() {
        assert!(!metrics(&whole([phase("unbatch", 1, 10, 1.0)])).contains_key("ageing_percent"));
    }

    /// Symptom: after Ctrl-C the articles a second of all passes were below those of any. Cause: the pass that was cut short
    /// on one rank counted with the time of the one that had nothing to do any more. Fix: whole phases alone count.
    #[test]
    fn a_phase_cut_short_on_any_rank_counts_in_no_rate_unless_there_is_nothing_else() {
        let of_ranks = |pass, per_sec, whole| {
            let counters = [("all_worked_s", 2.0), ("all_worked_items_per_sec", per_sec), ("tail_s", 2.0)];
            let counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
            // Half of a rank's time each is a quarter of that of both.
            let phase = Phase { counters, user_s: 2.0, ..phase("unbatch", pass, 40, 4.0) };
            MeasuredPhase { phase, whole, ..MeasuredPhase::default() }
        };
        let rank = |rank| OfRank { rank, host: "h".to_owned(), stored: vec![(1, 20, 5.0), (3, 20, 5.0)] };
        let two = |phases| Part { phases, ranks: vec![rank(0), rank(1)], ..Part::default() };
        let (first, second, cut) =
            (of_ranks(1, 100.0, true), of_ranks(2, 80.0, true), of_ranks(3, 5.0, false));
        let all = two(vec![first, second, cut.clone()]);
        let (whole, curves) = figures(&all, &NetnewsConfig::paper("x"));
        // 100, then 80 a second: a fifth less.
        let names = ["unbatch_articles_per_sec", "ageing_percent", "unbatch_user_percent"];
        assert_eq!(names.map(|name| whole[name]), [90.0, 80.0, 25.0]);
        assert_eq!((whole["unbatch_articles_to_last_per_sec"], whole["unbatch_tail_s"]), (10.0, 4.0));
        let by_rank = &curves[1].lines[0];
        assert_eq!((by_rank.label.as_str(), by_rank.points.len()), ("rank 0 on h", 1));
        assert_eq!(metrics(&two(vec![cut]))["unbatch_articles_per_sec"], 5.0);
    }
}
