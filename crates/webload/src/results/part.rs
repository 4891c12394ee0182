//! Raw counts of all generators, and what a record says of them.
//!
//! Always holds: every figure is computed from the counts, so that a part which was written and read back gives the same
//! record.

use std::collections::BTreeMap;

use harness::Figures;
use harness::open_loop::{WaitChoice, chosen_waiting};
use harness::series::MEASURED_AGAIN;
use measure::{CpuTimes, MachineLog, MachineUse, StorageCost};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::curves::Moments;
use super::judge;
use super::tally::Tally;
use crate::generator::client::Fault;
use crate::run::{Outcome, WebloadConfig};

/// What was counted in a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// By phase.
    pub(crate) tallies: Vec<Tally>,
    /// By time.
    pub(crate) moments: Moments,
    /// Of this process, which the run's own origin belongs to.
    pub(crate) cpu: CpuTimes,
    /// What else the machine did, from the first request to the last reply.
    pub(crate) machine: MachineLog,
    /// How the first generator waited between requests.
    pub(crate) waited: Option<WaitChoice>,
    /// False when the user ended it.
    pub(crate) complete: bool,
    /// Why the level was measured again; none when it was not.
    #[serde(default)]
    pub(crate) measured_again: Option<String>,
}

const NO_FILES: &str = "What a proxy keeps is in its own store, of which it alone knows the objects.";

impl Part {
    /// What a request and a stored byte cost the proxy, over all phases: what it had to fetch is what it may have stored.
    fn cost(&self) -> StorageCost {
        let mut sum = Tally::default();
        self.tallies.iter().for_each(|tally| sum.merge(tally));
        let (answered, fetched) = (sum.ok(), sum.bytes.saturating_sub(sum.hit_bytes));
        let machine = match sum.proxy {
            // By the number that the user gave, which may be of a proxy that holds its port in another way.
            Some(proxy) if self.tallies.iter().all(|tally| tally.wall.is_zero() || tally.proxy.is_some()) => {
                MachineUse { servers: Some(proxy), ..MachineUse::default() }
            }
            _ => self.machine.whole.clone(),
        };
        StorageCost {
            cpu: StorageCost::cpu_of_server(&machine, answered),
            written: StorageCost::written_by_server(&machine, fetched),
            kept: Err(NO_FILES.to_owned()),
        }
    }

    pub(crate) fn figures(&self, config: &WebloadConfig) -> Figures {
        let outcome = judge::outcome(config, &self.tallies, &self.moments, self.cpu, self.complete);
        let Outcome { mut points, phases, curves, mut metrics, mut verdict, complete } = outcome;
        if let Some(why) = &self.measured_again {
            let text = format!("measured again, as it was late: {why}");
            points.iter_mut().for_each(|point| point.verdict.remark(MEASURED_AGAIN, text.clone()));
            verdict.remark(MEASURED_AGAIN, text);
        }
        metrics.extend(self.machine.metrics());
        let cost = self.cost();
        metrics.extend(cost.metrics());
        self.machine.judge(&mut verdict);
        Figures {
            any_measured: !phases.is_empty(),
            points,
            phases,
            curves,
            metrics,
            not_seen: cost.not_seen(),
            chosen: chosen_waiting(self.waited),
            headline: vec![headline(config).to_owned()],
            complete,
            ..Figures::of(verdict)
        }
    }
}

/// The figure that a comparison judges first: where the schedule sets the rate, the rate says nothing of the proxy.
fn headline(config: &WebloadConfig) -> &'static str {
    let open = config.phases.iter().any(|phase| phase.measured && phase.is_open());
    if open { "response_mean_us" } else { "requests_per_sec" }
}

/// Counts of faults as a list: in JSON a map has texts for keys.
pub(crate) mod fault_counts {
    use super::*;

    pub fn serialize<S: Serializer>(counts: &BTreeMap<Fault, u64>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(counts)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<Fault, u64>, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_faults_are_read_back_as_they_were_written() {
        let mut tally = Tally::default();
        tally.classes[1].faults = BTreeMap::from([(Fault::Status(503), 7), (Fault::CutBody, 1)]);
        let part = Part { tallies: vec![tally], ..Part::default() };
        let again: Part = serde_json::from_str(&serde_json::to_string(&part).unwrap()).unwrap();
        assert_eq!(again.tallies[0].faults(), part.tallies[0].faults());
    }
}
