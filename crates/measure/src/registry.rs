//! What benchmarks say of themselves, by name: what lists, compares and draws records asks here and knows none of them.
//!
//! ```text
//! benchmark's crate: METRICS, SETTINGS, views --- Benchmark ---> BenchmarkRegistry (made by the program) -> report
//! ```
//!
//! A record of a benchmark that the registry does not know is shown by what the record itself says.

use crate::metric::declaration;
use crate::view::Section;
use crate::{Answer, DEVICE_METRICS, FigureMarks, LoadPoint, MACHINE_METRICS, MetricDeclaration, RunRecord};

/// What one benchmark says of its records.
#[derive(Clone, Copy, Debug)]
pub struct BenchmarkEntry {
    /// Its metrics, by order of interest.
    pub metrics: &'static [MetricDeclaration],
    /// Fields of its configuration that are more than a setting, each with its role. A name stands for the field of
    /// that path and for all below it; `*.name` for every field of that last name.
    pub settings: &'static [(&'static str, Role)],
    /// Codes of remarks that answer the benchmark's question, and speak against nothing.
    pub answers: &'static [&'static str],
    /// What one of its runs answers, whatever its verdict: the first sentence of a page, which says the verdict itself.
    pub answer: fn(&RunRecord) -> Answer,
    /// Which figures of its runs a comparison judges, by name, where no other is asked for: the fewer are judged together, the more of
    /// them can be shown.
    pub is_compared: fn(&str) -> bool,
    /// What a page shows of its runs, which are all of this benchmark and in the page's order.
    pub views: fn(&[&RunRecord]) -> Vec<Section>,
}

/// What a field of a configuration is to a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Says what was done: runs that differ in it did different things, and are not compared.
    Identity,
    /// Says where: sides are meant to differ in it.
    Place,
    /// Says how the target was reached: a side whose target is of another kind has none.
    Reach,
    /// The run chose it for itself: no side keeps to it on purpose.
    Chosen,
    /// Anything else: a comparison reports a difference.
    #[default]
    Setting,
}

impl BenchmarkEntry {
    /// One that declares its metrics and nothing more.
    pub const fn of(metrics: &'static [MetricDeclaration]) -> Self {
        Self {
            metrics,
            settings: &[],
            answers: &[],
            answer: no_answer,
            is_compared: |_| true,
            views: no_views,
        }
    }

    /// What the field `path`, such as `parameters.connections`, is to a comparison.
    pub fn role(&self, path: &str) -> Role {
        let last = path.rsplit('.').next().unwrap_or(path);
        let is = |name: &str| match name.strip_prefix("*.") {
            Some(of_all) => of_all == last,
            None => path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')),
        };
        self.settings.iter().find(|(name, _)| is(name)).map_or(Role::Setting, |(_, role)| *role)
    }
}

fn no_answer(_: &RunRecord) -> Answer {
    Answer::default()
}

fn no_views(_: &[&RunRecord]) -> Vec<Section> {
    Vec::new()
}

/// The benchmarks that a program knows, by name.
#[derive(Clone, Copy, Debug)]
pub struct BenchmarkRegistry {
    entry: fn(&str) -> Option<BenchmarkEntry>,
    is_moved: fn(f64, f64) -> bool,
}

impl BenchmarkRegistry {
    /// Knows no benchmark.
    pub const NONE: Self = Self::new(|_| None);

    /// Looks benchmarks up by `entry`.
    pub const fn new(entry: fn(&str) -> Option<BenchmarkEntry>) -> Self {
        Self { entry, is_moved: |_, _| false }
    }

    /// The same, with the rule by which a latency is marked as moved by the generator (see [`LoadPoint::figure_marks`]).
    #[must_use]
    pub const fn marking_moved(self, is_moved: fn(f64, f64) -> bool) -> Self {
        Self { is_moved, ..self }
    }

    /// The marks of a load point's latencies.
    pub fn figure_marks(&self, point: &LoadPoint) -> FigureMarks {
        point.figure_marks(self.is_moved)
    }

    /// What a run answers. Without words of its benchmark it is the headline figure; an INVALID run answers nothing, and its
    /// sentence says why.
    pub fn answer(&self, record: &RunRecord) -> Answer {
        (self.of(&record.benchmark).answer)(record).judged(record)
    }

    /// The metrics of a run that a page shows large: the first that answers, then those that its benchmark declares so. Of a
    /// benchmark that declares none all of them but the machine's.
    pub fn tiles<'r>(&self, record: &'r RunRecord) -> Vec<&'r str> {
        let known = self.of(&record.benchmark).metrics;
        let is_machine =
            |name: &str| MACHINE_METRICS.iter().chain(&DEVICE_METRICS).any(|one| one.name == name);
        let any_declared = known.iter().any(|one| one.tile);
        let is_tile = |name: &&str| match any_declared {
            true => declaration(known, name).is_some_and(|one| one.tile),
            false => !is_machine(name),
        };
        let answer = record.headlines().find(|name| record.metrics.contains_key(*name));
        let others = record.metrics_in_order().filter(is_tile).filter(|name| Some(*name) != answer);
        answer.into_iter().chain(others).collect()
    }

    /// What is known of a benchmark; of one that is not known, that it has no metrics, roles or views.
    pub fn of(&self, benchmark: &str) -> BenchmarkEntry {
        (self.entry)(benchmark).unwrap_or(BenchmarkEntry::of(&[]))
    }
}

impl Default for BenchmarkRegistry {
    fn default() -> Self {
        Self::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_its_field_and_those_below_it_and_a_star_for_every_last_name() {
        const ENTRY: BenchmarkEntry = BenchmarkEntry {
            settings: &[("nfs", Role::Reach), ("*.url", Role::Place), ("workload", Role::Identity)],
            ..BenchmarkEntry::of(&[])
        };
        let roles = ["nfs", "nfs.proto", "nfsx", "a.b.url", "url", "workload", "workload_toml"];
        use Role::{Identity, Place, Reach, Setting};
        assert_eq!(
            roles.map(|path| ENTRY.role(path)),
            [Reach, Reach, Setting, Place, Place, Identity, Setting]
        );
        assert_eq!(BenchmarkRegistry::NONE.of("anything").role("workload"), Setting);
    }

    #[test]
    fn a_page_shows_large_what_answers_and_what_is_declared_so_and_never_the_machine() {
        const DECLARED: [MetricDeclaration; 4] = [
            MetricDeclaration::rate("held_per_sec", "Held").answers(),
            MetricDeclaration::rate("peak_per_sec", "Peak").answers(),
            MetricDeclaration::micros("cost_{layout}_us", "Cost, {layout}").tile(),
            MACHINE_METRICS[0],
        ];
        let record = |metrics: &[&str]| -> RunRecord {
            let metrics: std::collections::BTreeMap<&str, f64> =
                metrics.iter().map(|name| (*name, 1.0)).collect();
            let json = serde_json::json!({
                "schema": 1, "id": "x", "benchmark": "plates", "label": "", "target": "",
                "started": "2026-11-21T18:00:00Z", "ended": "2026-11-21T18:00:00Z", "command": [], "config": null,
                "environment": crate::Environment::default(), "seed": 1, "complete": true, "metrics": metrics,
                "verdict": {"valid": true, "reasons": []}
            });
            RunRecord::from_json(&json.to_string()).unwrap()
        };
        const KNOWN: BenchmarkRegistry = BenchmarkRegistry::new(|_| Some(BenchmarkEntry::of(&DECLARED)));
        let machine = MACHINE_METRICS[0].name;
        let all =
            record(&["peak_per_sec", "held_per_sec", "cost_flat_us", "other", machine]).declared_by(KNOWN);
        assert_eq!(KNOWN.tiles(&all), ["held_per_sec", "cost_flat_us"]);
        let spoilt = record(&[machine]).declared_by(KNOWN);
        assert_eq!(KNOWN.tiles(&spoilt), [""; 0]);
        assert_eq!(BenchmarkRegistry::NONE.tiles(&record(&[machine, "other"])), ["other"]);
    }
}
