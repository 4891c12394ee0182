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
    MetricDeclaration::count("{op}_of_floor", "Added to {op}, as times the floor").better(Better::Lower),
    MetricDeclaration::count("{op}_of_floor_low", "Added to {op}, as times the floor, lower end"),
    MetricDeclaration::count("{op}_of_floor_high", "Added to {op}, as times the floor, upper end"),
    MetricDeclaration::micros("{op}_floor_us", "{op} on the floor"),
    MetricDeclaration::count("{op}_floor_requests", "{op} on the floor: requests that a program waits for")
        .better(Better::Lower),
    MetricDeclaration::percent("build_slower_percent", "A build: slower by").better(Better::Lower).tile(),
    MetricDeclaration::percent("build_slower_low_percent", "A build: slower by, lower end"),
    MetricDeclaration::percent("build_slower_high_percent", "A build: slower by, upper end"),
    MetricDeclaration::seconds("build_lower_s", "A build below"),
    MetricDeclaration::seconds("build_mount_s", "A build through the mount"),
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
    /// On the floor, of the same rounds.
    pub(crate) floor: BTreeMap<Work, Vec<f64>>,
    /// Seconds of a build below and through the mount, a pair a round.
    pub(crate) builds: Vec<(f64, f64)>,
    /// `create lower`, `create mount`, in order; `pass` is the round.
    pub(crate) phases: Vec<Phase>,
    /// Requests of one operation: those that a program waits for, and all.
    pub(crate) requests: BTreeMap<Work, (f64, f64)>,
    /// Those on the floor that a program waits for.
    pub(crate) floor_requests: BTreeMap<Work, f64>,
    /// Why there is no floor.
    pub(crate) no_floor: Option<String>,
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

/// Requests for one operation from which on it is compared with the floor: opening the one file that is read or written is less.
const REQUESTS_TO_COMPARE: f64 = 0.5;
/// The same of listing, which takes a few for many.
const REQUESTS_TO_LIST: f64 = 0.001;

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
            self.beside_the_floor(*work, pairs, &mut metrics);
        }
        self.build_metrics(&mut metrics);
        metrics
    }

    /// What is added, as times what the floor takes in the same round.
    fn beside_the_floor(&self, work: Work, pairs: &[(f64, f64)], metrics: &mut BTreeMap<String, f64>) {
        let (name, Some(floor)) = (work.name(), self.floor.get(&work)) else { return };
        metrics.extend(median(floor).map(|us| (format!("{name}_floor_us"), us)));
        let requests = self.floor_requests.get(&work).copied();
        metrics.extend(requests.map(|requests| (format!("{name}_floor_requests"), requests)));
        // What neither sends a request for is a system call, and nothing to be a multiple of.
        let usual = !matches!(work, Work::StatWarm | Work::SmallWrite | Work::SmallRead);
        let least = if work == Work::List { REQUESTS_TO_LIST } else { REQUESTS_TO_COMPARE };
        let sent = |requests: Option<f64>| requests.map_or(usual, |requests| requests >= least);
        if !sent(requests) || !sent(self.requests.get(&work).map(|(waited, _)| *waited)) {
            return;
        }
        let of_floor: Vec<f64> =
            pairs.iter().zip(floor).map(|((lower, mount), floor)| (mount - lower) / floor).collect();
        let Some(Estimate { value, ends }) = Estimate::of(&of_floor) else { return };
        metrics.insert(format!("{name}_of_floor"), value);
        if let Some((low, high)) = ends {
            metrics.insert(format!("{name}_of_floor_low"), low);
            metrics.insert(format!("{name}_of_floor_high"), high);
        }
    }

    fn build_metrics(&self, metrics: &mut BTreeMap<String, f64>) {
        let of = |each: &dyn Fn(&(f64, f64)) -> f64| {
            Estimate::of(&self.builds.iter().map(each).collect::<Vec<f64>>())
        };
        let slower = of(&|(lower, mount)| 100.0 * (mount / lower - 1.0));
        if let Some(Estimate { value, ends }) = slower {
            metrics.insert("build_slower_percent".to_owned(), value);
            if let Some((low, high)) = ends {
                metrics.insert("build_slower_low_percent".to_owned(), low);
                metrics.insert("build_slower_high_percent".to_owned(), high);
            }
        }
        metrics.extend(of(&|(lower, _)| *lower).map(|of| ("build_lower_s".to_owned(), of.value)));
        metrics.extend(of(&|(_, mount)| *mount).map(|of| ("build_mount_s".to_owned(), of.value)));
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
        if let Some(why) = &self.no_floor {
            verdict.remark("no-floor", format!("there is no floor to compare with: {why}"));
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
    fn what_is_added_is_compared_with_the_floor_of_its_round_where_requests_were_sent() {
        let part = Part {
            pairs: [Work::Create, Work::StatWarm].map(|work| (work, vec![(10.0, 70.0); 7])).into(),
            floor: [Work::Create, Work::StatWarm].map(|work| (work, vec![40.0; 7])).into(),
            requests: [(Work::Create, (4.0, 5.0)), (Work::StatWarm, (0.0, 0.0))].into(),
            floor_requests: [(Work::Create, 4.0), (Work::StatWarm, 0.0)].into(),
            ..Part::default()
        };
        let metrics = part.figures(&config()).metrics;
        let of = |name: &str| metrics.get(name).copied();
        assert_eq!((of("create_of_floor"), of("create_of_floor_low")), (Some(1.5), Some(1.5)));
        assert_eq!((of("create_floor_us"), of("create_floor_requests")), (Some(40.0), Some(4.0)));
        assert_eq!((of("stat_warm_floor_us"), of("stat_warm_of_floor")), (Some(40.0), None));
    }

    #[test]
    fn a_build_is_slower_by_the_median_of_the_pairs() {
        let builds = vec![(2.0, 2.2), (4.0, 4.1), (1.0, 1.05), (2.0, 2.1), (2.0, 2.1), (2.0, 2.1)];
        let metrics = Part { builds, ..Part::default() }.figures(&config()).metrics;
        assert!((metrics["build_slower_percent"] - 5.0).abs() < 1e-9, "{metrics:?}");
        let (low, high) = (metrics["build_slower_low_percent"], metrics["build_slower_high_percent"]);
        assert!((2.5..5.0).contains(&low) && (5.0..10.0).contains(&high), "{metrics:?}");
        assert_eq!((metrics["build_lower_s"], metrics["build_mount_s"]), (2.0, 2.1));
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
        let part = Part {
            pairs: pairs.into(),
            requests: requests.into(),
            floor: Work::ALL.map(|work| (work, vec![1.0; 8])).into(),
            floor_requests: Work::ALL.map(|work| (work, 1.0)).into(),
            builds: vec![(1.0, 2.0); 8],
            ..Part::default()
        };
        for name in part.figures(&config()).metrics.keys() {
            assert!(measure::declared(METRICS, name).is_some(), "{name}");
        }
    }
}
