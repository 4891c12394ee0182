//! What a page shows of netnews' runs: the figures of the paper, and each pass against the first.
//!
//! ```text
//! unbatch-mean     figure 2     bars         articles/s, all articles through all the time
//! unbatch-passes   figure 3     by pass      the same of each pass
//! unbatch-ageing   figure 3     by pass      each pass as percent of pass 1
//! expire-passes    figure 4     by pass      time to delete
//! batch-passes     figure 5     by pass      time to batch
//! history-passes   figure 6     by pass      unbatch of runs that differ in history alone
//! history-cost     figure 6     by pass      time with history elsewhere as percent of that with it here
//! ```
//!
//! Invariant: a figure of which no run has a value is left out, and one by pass when there is one pass alone.
//! Not here: axes and pages (crate `report`).
//! Source: Swartz, "The Brave Little Toaster Meets Usenet", LISA X 1996.

mod answer;
mod configurations;
mod lines;
mod published;
mod traits;

use measure::numbers::{count_text, grouped, ms_text, seconds_text};
use measure::statistics::median;
use measure::view::{ByPass, Over, PassLine, PassPoint, Place, Section, Usual, View};
use measure::{BenchmarkEntry, Phase, Role, RunRecord};

use configurations::{Configuration, Trait, Weight};
use lines::{ageing, by_pass, phases};

/// What netnews says of its records.
pub const ENTRY: BenchmarkEntry = BenchmarkEntry {
    metrics: crate::spool::METRICS,
    settings: &[("spool", Role::Place), ("places", Role::Place), ("storage", Role::Reach)],
    answers: &[],
    answer: |record| measure::Answer::of(answer::sentence(&record.metrics)),
    is_compared: |_| true,
    views,
};

/// The sections of all runs of netnews that a page has; none when there is nothing to draw of them.
pub fn views(runs: &[&RunRecord]) -> Vec<Section> {
    let configurations = configurations::group(runs.iter().copied(), traits::of);
    let figures = [mean, passes, relative, expire, batch, history, history_cost];
    let items: Vec<View> =
        figures.into_iter().filter_map(|figure| figure(&configurations)).map(View::ByPass).collect();
    if items.is_empty() {
        return vec![];
    }
    vec![Section {
        id: "passes".to_owned(),
        title: "Pass after pass".to_owned(),
        read: "What a news server does all day, as the paper draws it: storing articles, feeding them on, deleting the old. A mark is the median of a configuration’s runs and the bar through it reaches from the lowest to the highest.".to_owned(),
        runs: (0..runs.len()).collect(),
        place: Place::First,
        // What is drawn pass by pass is not drawn again on logarithmic axes.
        instead_of: &[Usual::Curves],
        items,
        published: Some(published::PAPER),
    }]
}

const PER_SEC: &str = "/s";
const PERCENT: &str = "%";
const SECONDS: &str = "s";

type Found = Option<ByPass>;

/// The figure, unless it has no line.
fn with(figure: ByPass, lines: Vec<PassLine>) -> Found {
    (!lines.is_empty()).then_some(ByPass { lines, ..figure })
}

fn unbatch_rates(run: &RunRecord) -> Vec<(u32, f64)> {
    phases(run, "unbatch").filter_map(|phase| Some((phase.pass, rate(phase)?))).collect()
}

fn rate(phase: &Phase) -> Option<f64> {
    (phase.wall_s > 0.0).then(|| phase.items as f64 / phase.wall_s)
}

fn mean(configurations: &[Configuration<'_>]) -> Found {
    let of_run = |run: &RunRecord| {
        let (items, wall_s) = phases(run, "unbatch")
            .fold((0.0, 0.0), |(items, wall_s), phase| (items + phase.items as f64, wall_s + phase.wall_s));
        if wall_s > 0.0 { vec![(0, items / wall_s)] } else { vec![] }
    };
    let figure = ByPass {
        id: "unbatch-mean",
        like: "Figure 2",
        title: "Articles stored a second, over the whole run",
        read: "All articles of all passes through all the time that storing them took. Longer is better."
            .into(),
        over: Over::Runs,
        what: "articles stored",
        unit: PER_SEC,
        findings: vec![],
        lines: vec![],
    };
    with(figure, by_pass(configurations, of_run))
}

fn passes(configurations: &[Configuration<'_>]) -> Found {
    let lines = by_pass(configurations, unbatch_rates);
    several_passes(&lines)?;
    let figure = ByPass {
        id: "unbatch-passes",
        like: "Figure 3",
        title: "Articles stored a second, pass by pass",
        read: "How the rate changes as the storage fills and ages. Higher is better.".into(),
        over: Over::Passes,
        what: "articles stored",
        unit: PER_SEC,
        findings: vec![],
        lines: vec![],
    };
    with(figure, lines)
}

fn relative(configurations: &[Configuration<'_>]) -> Found {
    let of_first = |run: &RunRecord| {
        let rates = unbatch_rates(run);
        let first = rates.first().copied();
        let share = |(pass, rate)| Some((pass, 100.0 * rate / first?.1));
        rates.into_iter().filter_map(share).collect::<Vec<_>>()
    };
    let lines = by_pass(configurations, of_first);
    several_passes(&lines)?;
    let figure = ByPass {
        id: "unbatch-ageing",
        like: "Figure 3, each pass against the first",
        title: "Ageing: what is left of the first pass’s rate",
        read: "Each pass’s rate as percent of pass 1’s. Falling is ageing; a flat line does not age. The axis does not begin at zero.".into(),
        over: Over::PassesAroundWhole,
        what: "of pass 1’s rate",
        unit: PERCENT,
        findings: configurations.iter().filter_map(aged).collect(),
        lines: vec![],
    };
    with(figure, lines)
}

/// Ageing as numbers: the last pass with the trend, and what the first deletion did.
fn aged(configuration: &Configuration<'_>) -> Option<String> {
    let found: Vec<_> = configuration.runs.iter().filter_map(|run| ageing(&unbatch_rates(run))).collect();
    let of = |values: Vec<f64>| median(&values);
    let kept = of(found.iter().map(|of| of.kept_percent).collect());
    let trend = of(found.iter().map(|of| of.trend_percent_per_pass).collect());
    let last = found.iter().map(|of| of.last_pass).max().unwrap_or(0);
    let gains: Vec<(u32, f64)> = configuration.runs.iter().filter_map(|run| gain(run)).collect();
    let name = &configuration.name;
    let (Some(kept), Some(trend)) = (kept, trend) else { return None };
    let mut text = format!(
        "{name}: pass {last} stores at {}% of pass 1’s rate, trend {}% a pass",
        grouped(kept, 1),
        signed(trend, 2)
    );
    let pass = gains.first().map(|(pass, _)| *pass);
    if let Some((gain, pass)) = of(gains.iter().map(|(_, gain)| *gain).collect()).zip(pass) {
        text.push_str(&format!(
            "; pass {pass}, after the first deletion, {}% against pass {}",
            signed(gain, 1),
            pass - 1
        ));
    }
    Some(text)
}

/// The pass after the first deletion, and by how many percent it is faster than the pass before.
fn gain(run: &RunRecord) -> Option<(u32, f64)> {
    let deleted = phases(run, "expire").next()?.pass;
    let rates = unbatch_rates(run);
    let of = |pass: u32| rates.iter().find(|(found, _)| *found == pass).map(|(_, rate)| *rate);
    let after = deleted.checked_add(1)?;
    Some((after, 100.0 * (of(after)? / of(deleted)? - 1.0)))
}

fn expire(configurations: &[Configuration<'_>]) -> Found {
    times(configurations, "expire", |files| ByPass {
        id: "expire-passes",
        like: "Figure 4",
        title: "Time to delete what has expired, pass by pass",
        read: format!("Time to delete, without reading and rewriting history. Lower is better.{files}"),
        over: Over::Passes,
        what: "time to delete",
        unit: SECONDS,
        findings: vec![],
        lines: vec![],
    })
}

fn batch(configurations: &[Configuration<'_>]) -> Found {
    times(configurations, "batch", |files| ByPass {
        id: "batch-passes",
        like: "Figure 5",
        title: "Time to batch, in the passes that feed articles on",
        read: format!(
            "Reading every article of the pass before, to send it to other sites. Lower is better.{files}"
        ),
        over: Over::Passes,
        what: "time to batch",
        unit: SECONDS,
        findings: vec![],
        lines: vec![],
    })
}

/// Elapsed time of each pass's phase of this name; the number of its items goes with it, as a time says nothing
/// without.
fn times(configurations: &[Configuration<'_>], name: &str, figure: impl Fn(String) -> ByPass) -> Found {
    let of = |run: &RunRecord| phases(run, name).map(|phase| (phase.pass, phase.wall_s)).collect();
    let findings = configurations.iter().filter_map(|configuration| {
        let all: Vec<&Phase> = configuration.runs.iter().flat_map(|run| phases(run, name)).collect();
        let items: u64 = all.iter().map(|phase| phase.items).sum();
        let wall_s: f64 = all.iter().map(|phase| phase.wall_s).sum();
        let count = all.len() as u64;
        (count > 0 && wall_s > 0.0).then(|| {
            format!(
                "{}: mean {} for {} {}, which is {}/s",
                configuration.name,
                seconds_text(wall_s / count as f64),
                count_text(items / count),
                if name == "expire" { "files" } else { "articles" },
                three_digits(items as f64 / wall_s),
            )
        })
    });
    let files = " A time is of as many files as a pass has: the paper’s had about 64,000 articles (592 batches of 109).";
    let figure = ByPass { findings: findings.collect(), ..figure(files.to_owned()) };
    with(figure, by_pass(configurations, of))
}

/// Configurations that differ in history alone, by their places among all.
fn history_sets(configurations: &[Configuration<'_>]) -> Vec<Vec<usize>> {
    let rest = |configuration: &Configuration<'_>| -> Vec<Trait> {
        let aside = |of: &&Trait| of.key != "label" && !of.key.starts_with("history");
        configuration.traits.iter().filter(aside).cloned().collect()
    };
    let mut sets: Vec<(Vec<Trait>, Vec<usize>)> = Vec::new();
    for (at, configuration) in configurations.iter().enumerate() {
        let rest = rest(configuration);
        match sets.iter_mut().find(|(known, _)| *known == rest) {
            Some((_, set)) => set.push(at),
            None => sets.push((rest, vec![at])),
        }
    }
    let history = |at: &usize| {
        let of = |of: &&Trait| of.key.starts_with("history");
        configurations[*at].traits.iter().filter(of).cloned().collect::<Vec<_>>()
    };
    // Two that differ by their labels alone say nothing about history.
    let differ = |set: &Vec<usize>| set.iter().any(|at| history(at) != history(&set[0]));
    let usual = |at: &usize| history(at).iter().all(|of| of.weight == Weight::Usual);
    let mut found: Vec<Vec<usize>> = sets.into_iter().map(|(_, set)| set).filter(differ).collect();
    // The one that nobody asked anything of is what the others are held against.
    found.iter_mut().for_each(|set| set.sort_by_key(|at| !usual(at)));
    found
}

fn history(configurations: &[Configuration<'_>]) -> Found {
    let sets = history_sets(configurations);
    let mut lines = by_pass(configurations, unbatch_rates);
    lines.retain(|line| sets.iter().flatten().any(|at| *at == line.configuration));
    several_passes(&lines)?;
    let figure = ByPass {
        id: "history-passes",
        like: "Figure 6",
        title: "Place of history: articles stored a second",
        read: "Runs that differ in nothing but where and how history is kept. Higher is better.".into(),
        over: Over::Passes,
        what: "articles stored",
        unit: PER_SEC,
        findings: vec![],
        lines: vec![],
    };
    with(figure, lines)
}

fn history_cost(configurations: &[Configuration<'_>]) -> Found {
    let all = by_pass(configurations, unbatch_rates);
    let line_of = |at: usize| all.iter().find(|line| line.configuration == at);
    let mut lines = Vec::new();
    for set in history_sets(configurations) {
        let Some(here) = line_of(set[0]) else { continue };
        for line in set[1..].iter().filter_map(|at| line_of(*at)) {
            // Time is the rate turned round, as both store the same articles.
            let point = |point: &PassPoint| {
                let base = here.points.iter().find(|base| base.pass == point.pass)?;
                let cost = |rate: f64| 100.0 * base.y / rate;
                let runs = point.runs.min(base.runs);
                Some(PassPoint {
                    y: cost(point.y),
                    low: cost(point.high),
                    high: cost(point.low),
                    runs,
                    ..*point
                })
            };
            let points: Vec<PassPoint> = line.points.iter().filter_map(point).collect();
            if !points.is_empty() {
                let name = format!("{} against {}", line.name, here.name);
                lines.push(PassLine { configuration: line.configuration, name, points });
            }
        }
    }
    let findings = lines.iter().filter_map(|line| {
        let (first, last) = (line.points.first()?, line.points.last()?);
        Some(format!(
            "{}: {}% of the time in pass {}, {}% in pass {}",
            line.name,
            grouped(first.y, 0),
            first.pass,
            grouped(last.y, 0),
            last.pass
        ))
    });
    let figure = ByPass {
        id: "history-cost",
        like: "Figure 6, as a share of time",
        title: "What history elsewhere costs",
        read: "Time to store as percent of the time with history beside the articles. Above 100% it costs. The axis does not begin at zero.".into(),
        over: Over::PassesAroundWhole,
        what: "of the time",
        unit: PERCENT,
        findings: findings.collect(),
        lines: vec![],
    };
    with(figure, lines)
}

/// A figure by pass says something from two passes on.
fn several_passes(lines: &[PassLine]) -> Option<()> {
    lines.iter().any(|line| line.points.len() > 1).then_some(())
}

/// Three digits that count.
fn three_digits(value: f64) -> String {
    ms_text(1e3 * value)
}

fn signed(value: f64, decimals: usize) -> String {
    let text = grouped(value, decimals);
    if text.starts_with('-') { text.replacen('-', "−", 1) } else { format!("+{text}") }
}

#[cfg(test)]
mod tests;
