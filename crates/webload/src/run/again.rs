//! Measuring the level of a set again when the generator was late in it: it says nothing of the proxy then.
//!
//! ```text
//! fill, warm, level (late) -> warm, level -> the counts of fill from the first, all others from the second
//! ```
//!
//! Always holds: a level is measured again once, for the generator's lateness and never for what the proxy did.
//! Not here: PolyMix and traces, whose phases build on each other.

use harness::open_loop::GENERATOR_LATE;

use super::WebloadConfig;
use crate::plan::Plan;
use crate::plan::object_set::SetUse;
use crate::results::part::Part;

/// Turns the seed of a set of new objects into one of other objects.
const OTHER_OBJECTS: u64 = 0x0061_6761_696e;

impl WebloadConfig {
    /// The run that measures the level again: without the filling, and for objects that were never requested where the first run
    /// asked for such. None where phases build on each other, and in a closed loop, which has no plan to be late against.
    pub(crate) fn again(&self) -> Option<Self> {
        let Plan::Objects(set) = &self.plan else { return None };
        let phases = self.phases.get(set.fill_phases..)?;
        let is_open = phases.iter().all(|phase| phase.is_open());
        let is_one = phases.iter().filter(|phase| phase.measured).count() == 1;
        if !is_open || !is_one {
            return None;
        }
        let mut again = Self { phases: phases.to_vec(), ..self.clone() };
        if let Plan::Objects(set) = &mut again.plan {
            set.fill_phases = 0;
            if set.used == SetUse::New {
                again.seed ^= OTHER_OBJECTS;
            }
        }
        Some(again)
    }
}

impl Part {
    /// What the generator did too late, where the figures rest on that.
    pub(crate) fn lateness(&self, config: &WebloadConfig) -> Option<String> {
        let points = self.figures(config).points;
        let mut reasons = points.into_iter().flat_map(|point| point.verdict.reasons);
        reasons.find(|reason| reason.fatal && reason.code == GENERATOR_LATE).map(|reason| reason.text)
    }

    /// The part of both runs: counts of the phases that were measured again are those of the second.
    pub(crate) fn measured_again(self, mut second: Self, why: String) -> Self {
        let mut tallies = self.tallies;
        tallies.truncate(tallies.len().saturating_sub(second.tallies.len()));
        tallies.append(&mut second.tallies);
        Self { tallies, cpu: self.cpu + second.cpu, measured_again: Some(why), ..second }
    }
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use harness::series::MEASURED_AGAIN;

    use super::*;
    use crate::{End, ObjectSet, Origin, OriginOptions, Pace, Phase, Pool, Route, run};

    fn config(origin: &Origin, used: SetUse, pace: Pace) -> WebloadConfig {
        let peer = origin.address();
        let fill_phases = usize::from(used != SetUse::New);
        let fill = Phase::new("fill", Pace::Closed, End::Requests(50));
        let level = [
            Phase::new("warm", pace, End::Requests(20)),
            Phase::new("level", pace, End::Requests(200)).measured(),
        ];
        WebloadConfig {
            plan: Plan::Objects(ObjectSet {
                count: NonZeroU64::new(50).unwrap(),
                mean_bytes: 1000,
                used,
                fill_phases,
            }),
            phases: [fill].into_iter().take(fill_phases).chain(level).collect(),
            route: Route { peer, forward: false, authority: peer.to_string() },
            pool: Pool::Shared { connections: 8 },
            threads: NonZeroUsize::MIN,
            timeout: Duration::from_secs(20),
            drain: Duration::from_secs(20),
            wait: Default::default(),
            check_one_in: NonZeroU32::MIN,
            seed: 1,
            watch: None,
        }
    }

    #[test]
    fn a_level_measured_again_has_the_counts_of_the_second_time_and_says_why() {
        let origin = Origin::start(&OriginOptions::default()).unwrap();
        let pace = Pace::Open { from_per_sec: 2000.0, to_per_sec: 2000.0 };
        for used in [SetUse::Again { zipf: 0.8 }, SetUse::New] {
            let config = config(&origin, used, pace);
            let again = config.again().unwrap();
            assert_eq!(again.phases.len(), 2);
            let stop = AtomicBool::new(false);
            let first = run(&config, &stop, &mut |_| {}).unwrap();
            let second = run(&again, &stop, &mut |_| {}).unwrap();
            let digest = |part: &Part| part.tallies.last().unwrap().digest;
            assert_eq!(digest(&first) == digest(&second), used != SetUse::New, "new objects are others");
            let planned: Vec<u64> = first.tallies.iter().map(|tally| tally.planned).collect();
            let whole = first.measured_again(second, "as a test wants".to_owned());
            assert_eq!(whole.tallies.iter().map(|tally| tally.planned).collect::<Vec<_>>(), planned);
            let figures = whole.figures(&config);
            let remark =
                figures.points[0].verdict.reasons.iter().find(|reason| reason.code == MEASURED_AGAIN);
            assert_eq!(remark.unwrap().text, "measured again, as it was late: as a test wants");
        }
    }

    #[test]
    fn a_closed_loop_has_nothing_to_be_late_against() {
        let origin = Origin::start(&OriginOptions::default()).unwrap();
        assert!(config(&origin, SetUse::Again { zipf: 0.8 }, Pace::Closed).again().is_none());
    }
}
