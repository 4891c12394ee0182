//! What a run timed, and what a record says of it.
//!
//! Always holds: every figure is computed from the pairs, so that a part which was written and read back gives the same record.

use std::collections::BTreeMap;

use harness::Figures;
use measure::statistics::{median, median_interval};
use measure::{Better, MACHINE_METRICS, MachineLog, MetricDeclaration, Phase, Verdict};
use serde::{Deserialize, Serialize};

use crate::{OverheadConfig, Work};

/// What a run emits; a family for the operations that were measured.
pub const METRICS: &[MetricDeclaration] = &[
    MetricDeclaration::micros("create_added_us", "Added to create, write, close").answers(),
    MetricDeclaration::micros("stat_cold_added_us", "Added to a cold stat").tile(),
    MetricDeclaration::micros("open_read_close_added_us", "Added to open, read, close").tile(),
    MetricDeclaration::micros("unlink_added_us", "Added to unlink").tile(),
    MetricDeclaration::micros("{op}_added_us", "Added to {op}"),
    MetricDeclaration::micros("{op}_added_low_us", "Added to {op}, lower end of the interval"),
    MetricDeclaration::micros("{op}_added_high_us", "Added to {op}, upper end of the interval"),
    MetricDeclaration::micros("{op}_lower_us", "{op} below"),
    MetricDeclaration::micros("{op}_mount_us", "{op} through the mount"),
    MetricDeclaration::percent("{op}_share_percent", "{op}: rate through the mount of that below")
        .better(Better::Higher),
    MetricDeclaration::percent("{op}_share_low_percent", "{op}: share of the rate below, lower end"),
    MetricDeclaration::percent("{op}_share_high_percent", "{op}: share of the rate below, upper end"),
    MetricDeclaration::count("{op}_requests", "{op}: requests that a program waits for")
        .better(Better::Lower),
    MetricDeclaration::count("{op}_requests_all", "{op}: all requests"),
    MACHINE_METRICS[0],
    MACHINE_METRICS[1],
    MACHINE_METRICS[2],
    MACHINE_METRICS[3],
    MACHINE_METRICS[4],
];

/// Pairs of times and counts of requests, raw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Of each operation the microseconds of one, below and through the mount, a pair a round.
    pub(crate) pairs: BTreeMap<Work, Vec<(f64, f64)>>,
    /// `create lower`, `create mount`, in order; `pass` is the round.
    pub(crate) phases: Vec<Phase>,
    /// Requests of one operation: those that a program waits for, and all.
    pub(crate) requests: BTreeMap<Work, (f64, f64)>,
    /// Why requests are not counted.
    pub(crate) uncounted: Option<String>,
    /// Why cold lookups are left out.
    pub(crate) not_cold: Option<String>,
    /// In how many rounds.
    pub(crate) rounds_not_cold: u32,
    pub(crate) machine: MachineLog,
    pub(crate) complete: bool,
    pub(crate) stopped: bool,
}

/// A median with its 95% interval, where there are enough rounds for one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Estimate {
    value: f64,
    ends: Option<(f64, f64)>,
}

impl Estimate {
    fn of(samples: &[f64]) -> Option<Self> {
        let ends = median_interval(samples, 0.95).map(|interval| (interval.low, interval.high));
        Some(Self { value: median(samples)?, ends })
    }
}

impl Part {
    pub(crate) fn figures(&self, config: &OverheadConfig) -> Figures {
        Figures {
            any_measured: !self.pairs.is_empty(),
            phases: self.phases.clone(),
            metrics: self.metrics(),
            complete: self.complete,
            ..Figures::of(self.verdict(config))
        }
    }

    /// Which cold lookups are left out, and why.
    pub(crate) fn not_cold_text(&self) -> Option<String> {
        let why = self.not_cold.as_ref()?;
        let of = self.pairs.get(&Work::StatCold).map_or(0, Vec::len);
        Some(match of {
            0 => format!("cold lookups are left out: {why}"),
            of => {
                let all = of + self.rounds_not_cold as usize;
                format!("cold lookups of {} of {all} rounds are left out: {why}", self.rounds_not_cold)
            }
        })
    }

    fn metrics(&self) -> BTreeMap<String, f64> {
        let mut metrics = self.machine.metrics();
        for (work, pairs) in &self.pairs {
            let name = work.name();
            let of = |each: &dyn Fn(&(f64, f64)) -> f64| {
                Estimate::of(&pairs.iter().map(each).collect::<Vec<f64>>())
            };
            let (added, share) =
                (of(&|(lower, mount)| mount - lower), of(&|(lower, mount)| 100.0 * lower / mount));
            let (lower, mount) = (of(&|(lower, _)| *lower), of(&|(_, mount)| *mount));
            for (stem, unit, estimate) in [("added", "us", added), ("share", "percent", share)] {
                let Some(Estimate { value, ends }) = estimate else { continue };
                metrics.insert(format!("{name}_{stem}_{unit}"), value);
                if let Some((low, high)) = ends {
                    metrics.insert(format!("{name}_{stem}_low_{unit}"), low);
                    metrics.insert(format!("{name}_{stem}_high_{unit}"), high);
                }
            }
            for (side, estimate) in [("lower", lower), ("mount", mount)] {
                metrics.extend(estimate.map(|estimate| (format!("{name}_{side}_us"), estimate.value)));
            }
            if let Some((waited, all)) = self.requests.get(work) {
                metrics.insert(format!("{name}_requests"), *waited);
                metrics.insert(format!("{name}_requests_all"), *all);
            }
        }
        metrics
    }

    fn verdict(&self, config: &OverheadConfig) -> Verdict {
        let mut verdict = Verdict::valid();
        self.machine.judge(&mut verdict);
        if self.stopped {
            verdict.invalidate("interrupted", "the run was interrupted");
        }
        if let Some(text) = self.not_cold_text() {
            verdict.remark("no-cold-lookups", text);
        }
        if let Some(why) = &self.uncounted {
            verdict.remark("requests-not-counted", format!("requests are not counted: {why}"));
        }
        let rounds = config.rounds.get();
        if rounds < 6 {
            let text = format!(
                "fewer than 6 rounds give no interval, and there were {rounds}; measure with --rounds 6 or more"
            );
            verdict.remark("few-rounds", text);
        }
        if cfg!(debug_assertions) {
            verdict.remark("debug-build", "measured with a debug build: do not trust the figures");
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> OverheadConfig {
        OverheadConfig::new("t")
    }

    #[test]
    fn what_is_added_is_the_median_of_the_pairs_differences_with_its_interval() {
        let pairs: Vec<(f64, f64)> =
            (0..9).map(|at| (10.0 + f64::from(at), 50.0 + 2.0 * f64::from(at))).collect();
        let part = Part {
            pairs: [(Work::Create, pairs)].into(),
            requests: [(Work::Create, (4.0, 5.0))].into(),
            complete: true,
            ..Part::default()
        };
        let figures = part.figures(&config());
        let metric = |name: &str| figures.metrics[name];
        assert_eq!(
            (metric("create_added_us"), metric("create_lower_us"), metric("create_mount_us")),
            (44.0, 14.0, 58.0)
        );
        assert!(metric("create_added_low_us") < 44.0 && metric("create_added_high_us") > 44.0);
        assert!((metric("create_share_percent") - 100.0 * 14.0 / 58.0).abs() < 1e-9);
        assert_eq!((metric("create_requests"), metric("create_requests_all")), (4.0, 5.0));
        assert!(figures.verdict.valid && figures.complete && figures.any_measured);
    }

    #[test]
    fn few_rounds_give_no_interval_and_say_so() {
        let part = Part { pairs: [(Work::Unlink, vec![(1.0, 2.0); 3])].into(), ..Part::default() };
        let few = OverheadConfig { rounds: 3.try_into().unwrap(), ..config() };
        let figures = part.figures(&few);
        assert!(!figures.metrics.contains_key("unlink_added_low_us"));
        assert!(figures.verdict.has("few-rounds"));
    }

    #[test]
    fn every_metric_that_is_emitted_is_declared() {
        let pairs = Work::ALL.map(|work| (work, vec![(1.0, 2.0); 8]));
        let requests = Work::ALL.map(|work| (work, (1.0, 2.0)));
        let part = Part { pairs: pairs.into(), requests: requests.into(), ..Part::default() };
        for name in part.figures(&config()).metrics.keys() {
            assert!(measure::declared(METRICS, name).is_some(), "{name}");
        }
    }
}
