//! Numbers that no run can have: a record from elsewhere may hold any, and one absurd figure spoils each table and plot it
//! is in.
//!
//! Always holds: what a Crumb has written passes, also figures that are below zero for a reason, such as a trend or the
//! skew between two clocks.

use super::{LatencySummary, LoadPoint, Phase, RankPart, RecordError, RunRecord};

/// Things a second: more than any machine does, bytes included.
const RATE_MAX: f64 = 1e15;
/// Thirty years.
const SECONDS_MAX: f64 = 1e9;
/// Sums and products of figures below it stay finite.
const FIGURE_MAX: f64 = 1e30;

/// A figure's name, the figure, and the largest that it can be.
type Field = (&'static str, f64, f64);

/// # Errors
/// With the first number that no run can have.
pub(super) fn check(record: &RunRecord) -> Result<(), RecordError> {
    for (index, point) in record.points.iter().enumerate() {
        refuse(record, &format!("load point {}", index + 1), &of_point(point))?;
        for part in &point.parts {
            refuse(record, &format!("load point {}, rank {}", index + 1, part.rank), &of_rank(part))?;
        }
        for (name, stats) in &point.ops {
            refuse(
                record,
                &format!("load point {}, {name}", index + 1),
                &latency("latency_us", &stats.latency_us),
            )?;
        }
    }
    for phase in &record.phases {
        refuse(record, &format!("phase {}", phase.name), &of_phase(phase))?;
    }
    for (name, &value) in &record.metrics {
        let is_rate = name.ends_with("_per_sec");
        if value.abs() > FIGURE_MAX || is_rate && !(0.0..=RATE_MAX).contains(&value) {
            return Err(number(record, format!("metric {name}"), value));
        }
    }
    Ok(())
}

fn of_point(point: &LoadPoint) -> Vec<Field> {
    let rates = [
        ("offered_per_sec", point.offered_per_sec.unwrap_or(0.0), RATE_MAX),
        ("sent_per_sec", point.sent_per_sec, RATE_MAX),
        ("achieved_per_sec", point.achieved_per_sec, RATE_MAX),
        ("warm_s", point.warm_s, SECONDS_MAX),
        ("measured_s", point.measured_s, SECONDS_MAX),
        ("generator_busy", point.generator_busy, FIGURE_MAX),
    ];
    let latencies = [latency("lateness_us", &point.lateness_us), latency("latency_us", &point.latency_us)];
    rates.into_iter().chain(latencies.concat()).collect()
}

fn of_rank(part: &RankPart) -> Vec<Field> {
    let rates = [
        ("offered_per_sec", part.offered_per_sec.unwrap_or(0.0), RATE_MAX),
        ("sent_per_sec", part.sent_per_sec, RATE_MAX),
        ("achieved_per_sec", part.achieved_per_sec, RATE_MAX),
    ];
    let latencies = [latency("lateness_us", &part.lateness_us), latency("latency_us", &part.latency_us)];
    rates.into_iter().chain(latencies.concat()).collect()
}

fn of_phase(phase: &Phase) -> Vec<Field> {
    vec![
        ("wall_s", phase.wall_s, SECONDS_MAX),
        ("user_s", phase.user_s, SECONDS_MAX),
        ("sys_s", phase.sys_s, SECONDS_MAX),
        ("items_per_sec", phase.items_per_sec, RATE_MAX),
    ]
}

fn latency(name: &'static str, of: &LatencySummary) -> Vec<Field> {
    let figures = [of.mean, of.sd, of.min, of.p50, of.p90, of.p99, of.p999, of.max];
    figures.into_iter().map(|figure| (name, figure, SECONDS_MAX * 1e6)).collect()
}

fn refuse(record: &RunRecord, place: &str, fields: &[Field]) -> Result<(), RecordError> {
    match fields.iter().find(|(_, value, max)| !(0.0..=*max).contains(value)) {
        Some((name, value, _)) => Err(number(record, format!("{place}, {name}"), *value)),
        None => Ok(()),
    }
}

fn number(record: &RunRecord, field: String, value: f64) -> RecordError {
    RecordError::Number { run: record.id.0.clone(), field, value }
}
