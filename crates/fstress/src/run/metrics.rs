//! What a record's flat list says of a run.

use std::collections::BTreeMap;

use measure::{COST_METRICS, LoadPoint, MACHINE_METRICS, MachineLog, MetricDeclaration};

use crate::load::Load;
use crate::results::judge;

/// What [`metrics`] emits, by order of interest.
pub const METRICS: &[MetricDeclaration] = &[
    MetricDeclaration::rate("within_bound_per_sec", "Highest within bound").tile(),
    MetricDeclaration::rate("saturation_per_sec", "Saturation point").answers(),
    MetricDeclaration::rate("held_per_sec", "Highest rate held").answers(),
    MetricDeclaration::rate("peak_per_sec", "Peak rate").answers().tile(),
    MetricDeclaration::micros("overall_response_us", "Overall response time").tile(),
    COST_METRICS[0],
    COST_METRICS[2],
    COST_METRICS[3],
    COST_METRICS[4],
    COST_METRICS[5],
    MACHINE_METRICS[0],
    MACHINE_METRICS[1],
    MACHINE_METRICS[2],
    MACHINE_METRICS[3],
    MACHINE_METRICS[4],
];

pub(crate) fn metrics(points: &[LoadPoint], machine: &MachineLog, load: &Load) -> BTreeMap<String, f64> {
    let mut metrics = machine.metrics();
    let mut put = |name: &str, value: Option<f64>| {
        if let Some(value) = value {
            metrics.insert(name.to_owned(), value);
        }
    };
    let most = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
    let any_failed = points.iter().any(judge::was_failed_by_storage);
    let held = most(
        &mut points.iter().filter(|point| judge::is_answer(point)).filter_map(|point| point.offered_per_sec),
    );
    // Without a level that failed the saturation point is unknown, and this is only the highest rate held.
    put("saturation_per_sec", held.filter(|_| any_failed));
    // A search under a bound stops before saturation and says its own answer.
    put("held_per_sec", held.filter(|_| !matches!(load, Load::FindMax { .. })));
    if let Load::FindMax { bound, .. } = load {
        let within = |point: &&LoadPoint| judge::is_answer(point) && judge::is_within(point, bound);
        put(
            "within_bound_per_sec",
            most(&mut points.iter().filter(within).filter_map(|point| point.offered_per_sec)),
        );
    }
    // A level that failed the bound of the search is no peak: it is what the search went beyond.
    let meets = |point: &LoadPoint| match load {
        Load::FindMax { bound, .. } => judge::is_within(point, bound),
        Load::Sweep(_) | Load::Auto { .. } | Load::Max { .. } => true,
    };
    let whole = |point: &&LoadPoint| {
        !judge::was_spoilt_by_others(point) && !judge::was_interrupted(point) && meets(point)
    };
    put("peak_per_sec", most(&mut points.iter().filter(whole).map(|point| point.achieved_per_sec)));
    put("overall_response_us", judge::overall_response_time_us(points));
    metrics
}
