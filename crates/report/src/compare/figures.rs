//! Every figure that runs have in common, with one value a run.
//!
//! Always holds: a figure stands on at least two sides, one of them the baseline; what is not finite is left
//! out; closed-loop load points are no figures, since their load is not the same; nor is what the machine did beside a run,
//! which would share its uncertainty with all that is judged.

use std::collections::BTreeMap;

use measure::{LoopKind, MACHINE_METRICS, Metric, Phase, RunRecord};

use super::{Figure, FigureKind, Samples, Side};
use crate::figures::round_rate_text;

/// Figures by the order in which a reader looks at them.
pub(super) fn of(sides: &[Side]) -> Vec<Figure> {
    let mut found = Vec::new();
    let metrics = |run: &RunRecord| {
        run.metrics
            .iter()
            .filter(|(name, _)| MACHINE_METRICS.iter().all(|machine| machine.name != name.as_str()))
            .map(|(name, &value)| (Key(0, name.clone(), metric(sides, name).title), value))
            .collect()
    };
    gather(&mut found, sides, FigureKind::Metric, &metrics);
    gather(&mut found, sides, FigureKind::Phase, &phases);
    gather(&mut found, sides, FigureKind::LoadPoint, &load_points);
    let common = common_points(sides);
    gather(&mut found, sides, FigureKind::Curve, &|run| curves(run, &common));
    found
}

/// Name and title; the number orders what the name does not.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u64, String, String);

/// What the first run that declares `name` says it is.
fn metric(sides: &[Side], name: &str) -> Metric {
    let mut declared = sides.iter().flat_map(|side| &side.runs).flat_map(|run| &run.declarations);
    declared.find(|metric| metric.name == name).cloned().unwrap_or_else(|| Metric::undeclared(name))
}

type Values = Vec<(Key, f64)>;

fn gather(found: &mut Vec<Figure>, sides: &[Side], kind: FigureKind, values: &dyn Fn(&RunRecord) -> Values) {
    let mut by_key: BTreeMap<Key, Vec<Vec<f64>>> = BTreeMap::new();
    for (at, side) in sides.iter().enumerate() {
        for run in &side.runs {
            for (key, value) in values(run).into_iter().filter(|(_, value)| value.is_finite()) {
                by_key.entry(key).or_insert_with(|| vec![vec![]; sides.len()])[at].push(value);
            }
        }
    }
    let shared = by_key
        .into_iter()
        .filter(|(_, sides)| !sides[0].is_empty() && sides[1..].iter().any(|side| !side.is_empty()));
    found.extend(shared.map(|(Key(_, name, title), values)| {
        let Metric { unit, better, .. } = metric(sides, &name);
        Figure {
            kind,
            better,
            unit,
            name,
            title,
            headline: false,
            sides: values
                .into_iter()
                .map(|values| Samples { median: measure::statistics::median(&values), values })
                .collect(),
            against: vec![],
        }
    }));
}

/// A phase that comes again, pass after pass, is one figure: its median. Each pass for itself would be dozens of ratios to
/// be judged together, none of which could then be shown.
fn phases(run: &RunRecord) -> Values {
    let mut values = Vec::new();
    for (at, first) in run.phases.iter().enumerate() {
        if run.phases[..at].iter().any(|phase| phase.name == first.name) {
            continue;
        }
        let all: Vec<&Phase> = run.phases.iter().filter(|phase| phase.name == first.name).collect();
        let mut figure = |what: &str, words: &str, value: &dyn Fn(&Phase) -> f64| {
            let of_each: Vec<f64> = all.iter().map(|phase| value(phase)).collect();
            let name = &first.name;
            let passes = if all.len() > 1 { ", median of its passes" } else { "" };
            if let Some(value) = measure::statistics::median(&of_each) {
                let title = format!("Phase {name}: {words}{passes}");
                values.push((Key(at as u64, format!("phase {name}: {what}"), title), value));
            }
        };
        if all.iter().any(|phase| phase.items > 0) {
            figure("items_per_sec", "items", &|phase| phase.items_per_sec);
        } else {
            figure("wall_s", "wall time", &|phase| phase.wall_s);
        }
        figure("cpu_s", "CPU time", &|phase| phase.user_s + phase.sys_s);
    }
    values
}

fn load_points(run: &RunRecord) -> Values {
    // By key, so that of a level measured again the last counts.
    let mut values = BTreeMap::new();
    for point in run.points.iter().filter(|point| point.loop_kind == LoopKind::Open) {
        let Some(offered) = point.offered_per_sec.filter(|rate| rate.is_finite() && *rate > 0.0) else {
            continue;
        };
        let at = format!("{}/s", round_rate_text(offered));
        let key = |what: &str, words: &str| {
            Key((offered * 10.0) as u64, format!("at {at}: {what}"), format!("At {at}: {words}"))
        };
        values.insert(key("achieved_per_sec", "achieved"), point.achieved_per_sec);
        if point.latency_us.count > 0 {
            values.insert(key("p50_us", "p50 latency"), point.latency_us.p50);
            values.insert(key("p99_us", "p99 latency"), point.latency_us.p99);
        }
    }
    values.into_iter().collect()
}

/// Of every line of every curve, the x at which all runs that have the line have a point.
type Common = BTreeMap<(String, String), Vec<f64>>;

fn common_points(sides: &[Side]) -> Common {
    let mut common = Common::new();
    for run in sides.iter().flat_map(|side| &side.runs) {
        for curve in &run.curves {
            for line in &curve.lines {
                let here: Vec<f64> = line.points.iter().filter(|p| p.y > 0.0).map(|p| p.x).collect();
                common
                    .entry((curve.name.clone(), line.label.clone()))
                    .and_modify(|xs| xs.retain(|x| here.contains(x)))
                    .or_insert(here);
            }
        }
    }
    common
}

fn curves(run: &RunRecord, common: &Common) -> Values {
    let mut values = Vec::new();
    for curve in &run.curves {
        for line in &curve.lines {
            let xs = &common[&(curve.name.clone(), line.label.clone())];
            let logs: Vec<f64> =
                line.points.iter().filter(|point| xs.contains(&point.x)).map(|point| point.y.ln()).collect();
            if !logs.is_empty() {
                let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
                let name = format!("curve {}: {}", line.label, curve.name);
                let title = format!("{}, {}", run.metric(&curve.name).title, line.label);
                values.push((Key(0, name, title), mean));
            }
        }
    }
    values
}
