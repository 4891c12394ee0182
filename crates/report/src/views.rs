//! The tables of the page, as text ready to be shown: the template only lays them out.
//!
//! Always holds: what a user or a peer named is plain text here, and the template escapes it.

use measure::{
    BenchmarkRegistry, ChainStats, FigureMark, FigureMarks, LatencySummary, LevelState, LoadPoint, LoopKind,
    Metric, OpStats, Phase, RankPart, RunRecord, Verdict,
};
use serde::Serialize;

use crate::compare::{Comparison, FigureKind};
use crate::dots::confidence_text;
use crate::figures::{
    bytes_text, count_text, grouped, metric_text, ms_text, number_text, number_text_beside, rate_text,
};
use crate::series::point_name;

/// One run.
#[derive(Serialize)]
pub(crate) struct RunView {
    id: String,
    label: String,
    /// The first sentence of the page, without its full stop; empty when there is nothing to say.
    answer: String,
    benchmark: String,
    target: String,
    started: String,
    took: String,
    turn: Option<u32>,
    seed: u64,
    complete: bool,
    valid: bool,
    reasons: Vec<String>,
    remarks: Vec<String>,
    command: String,
    config: Vec<(String, String)>,
    environment: Vec<(&'static str, String)>,
    points: Vec<PointView>,
    phases: Vec<PhaseView>,
    any_closed: bool,
}

/// The figures of all runs: few enough to be read at a glance, and all of them.
#[derive(Serialize)]
pub(crate) struct MetricsView {
    /// Those shown large.
    tiles: Vec<MetricView>,
    /// All of them, when the tiles are not all.
    table: Vec<MetricView>,
}

/// Figures shown large; a run may have dozens.
const TILES_MAX: usize = 6;

/// A metric with its values, by run or by side.
struct Values {
    /// As the registry names it.
    name: String,
    title: String,
    unit: String,
    values: Vec<Option<f64>>,
}

impl MetricsView {
    /// Of metrics in the order of what answers the user's question; `tiles` names those shown large.
    fn of(all: &[Values], tiles: &[&str]) -> Self {
        let named = |name: &&str| all.iter().find(|of| of.name == **name);
        let large: Vec<&Values> = tiles.iter().filter_map(named).take(TILES_MAX).collect();
        // Tiles are read side by side, rows of the table each by itself.
        let tile = |of: &&Values| {
            let beside = large.iter().filter(|other| other.unit == of.unit);
            let beside: Vec<f64> = beside.flat_map(|other| other.values.iter().flatten().copied()).collect();
            let text = |value: f64| number_text_beside(&of.unit, &beside, value);
            MetricView {
                name: of.title.clone(),
                values: of.values.iter().map(|value| value.map(text)).collect(),
            }
        };
        let row = |of: &Values| MetricView {
            name: of.title.clone(),
            values: of.values.iter().map(|value| value.map(|value| number_text(&of.unit, value))).collect(),
        };
        let table = if all.len() > large.len() { all.iter().map(row).collect() } else { Vec::new() };
        Self { tiles: large.iter().map(tile).collect(), table }
    }
}

/// The metrics that a page of these runs shows large, each once.
fn tiles(runs: &[RunRecord], registry: BenchmarkRegistry) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in runs.iter().flat_map(|run| registry.tiles(run)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A figure of all runs that have it.
#[derive(Clone, Serialize)]
pub(crate) struct MetricView {
    name: String,
    /// By run: value and unit; none where a run lacks it.
    values: Vec<Option<(String, String)>>,
}

#[derive(Serialize)]
struct PointView {
    name: String,
    closed: bool,
    offered: String,
    sent: String,
    achieved: String,
    latency: LatencyView,
    lateness_p99: String,
    busy: String,
    saturated: bool,
    /// Held, with latencies over the bound of the search.
    over_bound: bool,
    /// A saturated level is INVALID only for another reason.
    valid: bool,
    reasons: Vec<String>,
    remarks: Vec<String>,
    notes: Vec<String>,
    file_set: Option<String>,
    ops: Vec<OpView>,
    chains: Vec<ChainView>,
    ranks: Vec<RankView>,
    ranks_left_out: usize,
}

/// One chain of requests as a whole.
#[derive(Serialize)]
struct ChainView {
    name: String,
    /// Complete chains a second.
    per_sec: String,
    begun: String,
    complete: String,
    failed: String,
    unanswered: String,
    not_sent: String,
    /// From the send of the first request to the last reply.
    latency: LatencyView,
}

/// How one of several generators fared.
#[derive(Serialize)]
struct RankView {
    rank: u32,
    host: String,
    offered: String,
    achieved: String,
    latency: LatencyView,
    lateness_p99: String,
    busy: String,
    errors: String,
    skew: String,
}

/// Ranks shown of a load point; of more those that fared worst.
const RANKS_SHOWN: usize = 64;

#[derive(Serialize)]
struct LatencyView {
    mean: String,
    sd: String,
    p50: String,
    p90: String,
    p99: String,
    p999: String,
    max: String,
}

#[derive(Serialize)]
struct OpView {
    name: String,
    share: String,
    share_asked: String,
    latency: LatencyView,
    time_share: String,
    attempted: String,
    ok: String,
    retransmitted: String,
    cancelled: String,
    errors: String,
    bytes: String,
}

#[derive(Serialize)]
struct PhaseView {
    name: String,
    pass: u32,
    wall: String,
    cpu: String,
    items: String,
    per_sec: String,
    bytes: String,
    counters: Vec<(String, String)>,
}

/// What a comparison says before its plot.
#[derive(Serialize)]
pub(crate) struct ComparisonView {
    /// By side but the first: the answer, the medians behind it, and its colour.
    answers: Vec<(String, Option<String>, &'static str)>,
    cautions: Vec<String>,
    sides: Vec<SideCard>,
    /// More than two, which are a table.
    many: bool,
    /// That targets say more than the labels.
    targets: bool,
    /// By run of the page: its side; none for a run that is in no side.
    side_of: Vec<Option<usize>>,
    /// How the figures below the headline are judged.
    corrected: Option<String>,
}

#[derive(Serialize)]
struct SideCard {
    name: String,
    label: String,
    target: String,
    runs: usize,
    invalid: usize,
    incomplete: usize,
}

impl ComparisonView {
    pub fn new(comparison: &Comparison, runs: &[RunRecord]) -> Self {
        use crate::compare::Verdict::{Faster, Slower};
        let answer = |side: usize| {
            let verdict = comparison.headline(side).map(|figure| figure.against[side - 1].verdict);
            let mood = match verdict {
                Some(Faster) => "good",
                Some(Slower) => "bad",
                _ => "",
            };
            (comparison.answer(side), comparison.behind(side), mood)
        };
        let card = |side: &crate::compare::SideView| {
            let count = |is: &dyn Fn(&RunRecord) -> bool| {
                runs.iter().filter(|run| side.runs.contains(&run.id.0) && is(run)).count()
            };
            SideCard {
                name: side.name.clone(),
                label: side.label.clone(),
                target: side.target.clone(),
                runs: side.runs.len(),
                invalid: count(&|run| !run.verdict.valid),
                incomplete: count(&|run| !run.complete),
            }
        };
        let of_run = |run: &RunRecord| comparison.sides.iter().position(|side| side.runs.contains(&run.id.0));
        let against = || comparison.figures.iter().flat_map(|figure| &figure.against);
        let each = against().find(|of| !of.headline).map(|of| of.confidence);
        Self {
            answers: (1..comparison.sides.len()).map(answer).collect(),
            cautions: comparison.cautions.iter().map(|caution| caution.text.clone()).collect(),
            sides: comparison.sides.iter().map(card).collect(),
            many: comparison.sides.len() > 2,
            targets: comparison.sides.iter().any(|side| !side.label.contains(&side.target)),
            side_of: runs.iter().map(of_run).collect(),
            corrected: each.filter(|_| comparison.corrected_for > 1).map(|each| {
                format!(
                    "{} ratios are judged together: each has an interval of {} so that all of them are right at once in 95% of cases (Bonferroni)",
                    comparison.corrected_for,
                    confidence_text(each)
                )
            }),
        }
    }
}

/// The metrics of a comparison of `runs`: each side's median.
pub(crate) fn medians(
    comparison: &Comparison,
    runs: &[RunRecord],
    registry: BenchmarkRegistry,
) -> MetricsView {
    let metric = |figure: &&crate::compare::Figure| figure.kind == FigureKind::Metric;
    let values = |figure: &crate::compare::Figure| Values {
        name: figure.name.clone(),
        title: figure.title.clone(),
        unit: figure.unit.clone(),
        values: figure.sides.iter().map(|side| side.median).collect(),
    };
    let all: Vec<Values> = comparison.figures.iter().filter(metric).map(values).collect();
    MetricsView::of(&all, &tiles(runs, registry))
}

impl RunView {
    /// `phases`: whether to list them.
    pub fn new(record: &RunRecord, phases: bool, registry: BenchmarkRegistry) -> Self {
        let took_s = record.ended.duration_since(record.started).as_secs().max(0);
        let (reasons, remarks) = reasons(&record.verdict);
        Self {
            id: record.id.0.clone(),
            label: record.label.clone(),
            answer: registry.answer(record).sentence,
            benchmark: record.benchmark.clone(),
            target: record.target.clone(),
            started: record.started.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
            took: match took_s {
                0..100 => format!("{took_s} s"),
                100..6000 => format!("{} min {} s", took_s / 60, took_s % 60),
                _ => format!("{} h {} min", took_s / 3600, took_s / 60 % 60),
            },
            turn: record.series.as_ref().map(|series| series.turn),
            seed: record.seed,
            complete: record.complete,
            valid: record.verdict.valid,
            reasons,
            remarks,
            command: command_line(&record.command),
            config: config_lines(&record.config),
            environment: record.environment.in_words(),
            points: record.points.iter().map(|point| PointView::new(point, registry)).collect(),
            phases: record.phases.iter().filter(|_| phases).map(PhaseView::new).collect(),
            any_closed: record.points.iter().any(|point| point.loop_kind == LoopKind::Closed),
        }
    }
}

/// The metrics of all runs by name, those that answer the user's question first.
pub(crate) fn metrics(runs: &[RunRecord], registry: BenchmarkRegistry) -> MetricsView {
    let mut names: Vec<&str> = Vec::new();
    for name in runs.iter().flat_map(RunRecord::metrics_in_order) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let values = |name: &str| {
        let first = runs.iter().find(|run| run.metrics.contains_key(name));
        let metric = first.map_or_else(|| Metric::undeclared(name), |run| run.metric(name));
        Values {
            name: name.to_owned(),
            title: metric.title,
            unit: metric.unit,
            values: runs.iter().map(|run| run.metrics.get(name).copied()).collect(),
        }
    };
    let all: Vec<Values> = names.into_iter().map(values).collect();
    MetricsView::of(&all, &tiles(runs, registry))
}

impl PointView {
    fn new(point: &LoadPoint, registry: BenchmarkRegistry) -> Self {
        let (reasons, remarks) = reasons(&point.verdict);
        let counted = |count: u64, what: &str| (count > 0).then(|| format!("{} {what}", count_text(count)));
        let set = &point.file_set;
        Self {
            name: point_name(point),
            closed: point.loop_kind == LoopKind::Closed,
            offered: point.offered_per_sec.map_or_else(|| point_name(point), rate_text),
            sent: rate_text(point.sent_per_sec),
            achieved: rate_text(point.achieved_per_sec),
            latency: LatencyView::new(&point.latency_us).marked(registry.figure_marks(point)),
            lateness_p99: if point.lateness_us.count == 0 { dash() } else { ms_text(point.lateness_us.p99) },
            busy: format!("{}%", grouped(100.0 * point.generator_busy, 0)),
            saturated: point.saturated,
            over_bound: point.state() == LevelState::OverBound,
            valid: point.state() != LevelState::Invalid,
            reasons,
            remarks,
            notes: [
                counted(point.unsent, "planned but never sent"),
                counted(point.reconnects, "reconnections"),
                counted(point.bad_replies, "replies not understood"),
                counted(point.overtaken, "overtaken (due before the reply they depend on had come)"),
                (!point.operations_digest.is_empty())
                    .then(|| format!("digest of the operations {}", point.operations_digest)),
            ]
            .into_iter()
            .flatten()
            .collect(),
            file_set: (set.files > 0).then(|| {
                format!(
                    "{} files ({} asked for), {} directories, {} symbolic links, {}",
                    count_text(set.files),
                    count_text(set.files_asked),
                    count_text(set.directories),
                    count_text(set.symlinks),
                    bytes_text(set.bytes)
                )
            }),
            ops: point.ops.iter().map(|(name, op)| OpView::new(name, op)).collect(),
            chains: point
                .chains
                .iter()
                .map(|(name, chain)| ChainView::of(name, chain, point.measured_s))
                .collect(),
            ranks: RankView::of(&point.parts),
            ranks_left_out: point.parts.len().saturating_sub(RANKS_SHOWN),
        }
    }
}

impl ChainView {
    fn of(name: &str, chain: &ChainStats, measured_s: f64) -> Self {
        let per_sec = (measured_s > 0.0).then(|| rate_text(chain.complete as f64 / measured_s));
        Self {
            name: name.to_owned(),
            per_sec: per_sec.unwrap_or_else(dash),
            begun: count_text(chain.begun),
            complete: count_text(chain.complete),
            failed: count_text(chain.failed),
            unanswered: count_text(chain.unanswered),
            not_sent: count_text(chain.requests_not_sent),
            latency: LatencyView::new(&chain.latency_us),
        }
    }
}

impl RankView {
    fn of(parts: &[RankPart]) -> Vec<Self> {
        let mut parts: Vec<&RankPart> = parts.iter().collect();
        if parts.len() > RANKS_SHOWN {
            let late = |part: &RankPart| part.lateness_us.mean;
            parts.sort_by(|a, b| a.held.total_cmp(&b.held).then(late(b).total_cmp(&late(a))));
            parts.truncate(RANKS_SHOWN);
            parts.sort_by_key(|part| part.rank);
        }
        let view = |part: &RankPart| Self {
            rank: part.rank,
            host: part.host.clone(),
            offered: part.offered_per_sec.map_or_else(dash, rate_text),
            achieved: rate_text(part.achieved_per_sec),
            latency: LatencyView::new(&part.latency_us),
            lateness_p99: if part.lateness_us.count == 0 { dash() } else { ms_text(part.lateness_us.p99) },
            busy: format!("{}%", grouped(100.0 * part.generator_busy, 0)),
            errors: count_text(part.errors),
            skew: format!("{} ± {}", ms_text(part.start_skew_us), ms_text(part.clock_uncertainty_us)),
        };
        parts.into_iter().map(view).collect()
    }
}

impl LatencyView {
    fn new(us: &LatencySummary) -> Self {
        let text = |value: f64| if us.count == 0 { dash() } else { ms_text(value) };
        Self {
            mean: text(us.mean),
            sd: text(us.sd),
            p50: text(us.p50),
            p90: text(us.p90),
            p99: text(us.p99),
            p999: text(us.p999),
            max: text(us.max),
        }
    }

    /// With a sign before each figure that is not the storage's own.
    fn marked(self, marks: FigureMarks) -> Self {
        let with = |mark: FigureMark, text: String| format!("{}{text}", mark.sign());
        Self {
            mean: with(marks.mean, self.mean),
            sd: self.sd,
            p50: with(marks.p50, self.p50),
            p90: with(marks.p90, self.p90),
            p99: with(marks.p99, self.p99),
            p999: with(marks.p999, self.p999),
            max: with(marks.max, self.max),
        }
    }
}

impl OpView {
    fn new(name: &str, op: &OpStats) -> Self {
        let errors: Vec<String> =
            op.errors.iter().map(|(error, &count)| format!("{error} {}", count_text(count))).collect();
        Self {
            name: name.to_owned(),
            share: grouped(op.share_percent, 2),
            share_asked: grouped(op.share_asked_percent, 2),
            latency: LatencyView::new(&op.latency_us),
            time_share: grouped(op.time_share_percent, 1),
            attempted: count_text(op.attempted),
            ok: count_text(op.ok),
            retransmitted: count_text(op.retransmitted),
            cancelled: count_text(op.cancelled),
            errors: if errors.is_empty() { dash() } else { errors.join(", ") },
            bytes: if op.bytes == 0 { dash() } else { bytes_text(op.bytes) },
        }
    }
}

impl PhaseView {
    fn new(phase: &Phase) -> Self {
        Self {
            name: phase.name.clone(),
            pass: phase.pass,
            wall: grouped(phase.wall_s, 2),
            cpu: format!("{} + {}", grouped(phase.user_s, 2), grouped(phase.sys_s, 2)),
            items: count_text(phase.items),
            per_sec: rate_text(phase.items_per_sec),
            bytes: if phase.bytes == 0 { dash() } else { bytes_text(phase.bytes) },
            counters: phase
                .counters
                .iter()
                .map(|(name, &value)| {
                    let (name, number, unit) = metric_text(&Metric::undeclared(name), value);
                    (name, format!("{number} {unit}").trim_end().to_owned())
                })
                .collect(),
        }
    }
}

fn reasons(verdict: &Verdict) -> (Vec<String>, Vec<String>) {
    let (fatal, other): (Vec<_>, Vec<_>) = verdict.reasons.iter().partition(|reason| reason.fatal);
    let texts = |found: Vec<&measure::Reason>| found.into_iter().map(|reason| reason.text.clone()).collect();
    (texts(fatal), texts(other))
}

/// The command line as a shell would take it back.
fn command_line(command: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    let quoted = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    command.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// The configuration as `a.b.c` and value; lists stay JSON.
pub(crate) fn config_lines(config: &serde_json::Value) -> Vec<(String, String)> {
    fn walk(path: &str, value: &serde_json::Value, lines: &mut Vec<(String, String)>) {
        match value {
            serde_json::Value::Object(fields) if !fields.is_empty() => {
                for (name, value) in fields {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    walk(&path, value, lines);
                }
            }
            serde_json::Value::Null if path.is_empty() => {}
            serde_json::Value::Null => lines.push((path.to_owned(), dash())),
            serde_json::Value::String(text) => lines.push((path.to_owned(), text.clone())),
            other => lines.push((path.to_owned(), other.to_string())),
        }
    }
    let mut lines = Vec::new();
    walk("", config, &mut lines);
    lines
}

/// What stands where there is no value.
pub(crate) const NO_VALUE: &str = "–";

fn dash() -> String {
    NO_VALUE.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_pasted_back_into_a_shell() {
        let command = ["crumb", "run", "nfs://h/e", "p99<20ms", "it's"].map(str::to_owned);
        assert_eq!(command_line(&command), r"crumb run nfs://h/e 'p99<20ms' 'it'\''s'");
    }

    #[test]
    fn a_nested_configuration_becomes_dotted_lines() {
        let config = serde_json::json!({"workload": {"name": "mail", "sizes": [1, 2]}, "keep": null});
        let lines = config_lines(&config);
        assert!(lines.contains(&("workload.name".into(), "mail".into())), "{lines:?}");
        assert!(lines.contains(&("workload.sizes".into(), "[1,2]".into())), "{lines:?}");
        assert!(lines.contains(&("keep".into(), "–".into())), "{lines:?}");
        assert!(config_lines(&serde_json::Value::Null).is_empty());
    }
}
