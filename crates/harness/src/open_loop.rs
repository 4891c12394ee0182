//! An open loop: requests are due at planned moments, whether or not earlier ones were answered.
//!
//! Latency counts from the planned moment, so a request that is sent late makes the storage look slow. The generator
//! therefore records how late it sent ([`Lateness`] judges that), waits as its machine allows ([`Pacer`]) and wakes as
//! exactly as the kernel allows ([`Precise`]).
//!
//! Not here: when requests are due and which ones they are. Each benchmark has a schedule of its own, so that a seed
//! gives the same operations whatever this module becomes.

mod awake_cpus;
mod fine_timers;
mod free_cpus;
mod pacer;
mod precise;
mod wait;

use measure::{LatencySummary, Verdict};

pub use self::fine_timers::FineTimers;
pub use self::pacer::{Moment, Pacer, Waiter};
pub use self::precise::Precise;
pub use self::wait::{NotAWait, Wait, WaitChoice, chosen_waiting};

/// When an open-loop generator, and not the storage, made a load point what it is. The defaults are those that the guide
/// documents, and they are the same for every open-loop benchmark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeneratorLimits {
    /// Mean send lateness below this is not a finding, whatever its share: clock and scheduler are not better. Default 20.
    pub lateness_us_min: f64,
    /// Mean send lateness may be this share of the mean latency, which it is a part of; 0 to 1. Default 0.1.
    pub lateness_share_max: f64,
    /// Share of a core, 0 to 1, above which the generating thread may be the limit. Default 0.95.
    pub busy_max: f64,
    /// Share of the requests due, 0 to 1, that must be answered in time; with less the level is saturated. Default 0.995.
    pub held_min: f64,
}

impl Default for GeneratorLimits {
    fn default() -> Self {
        Self { lateness_us_min: 20.0, lateness_share_max: 0.1, busy_max: 0.95, held_min: 0.995 }
    }
}

/// How late a generator sent, beside the latency that this lateness is a part of.
#[derive(Clone, Copy, Debug)]
pub struct Lateness {
    /// Actual minus planned send time.
    pub sending: LatencySummary,
    /// From the planned send time to the reply.
    pub latency: LatencySummary,
}

/// Code of the verdict on a load point whose requests were sent late.
pub const GENERATOR_LATE: &str = "generator-late";
/// Code of the verdict on a load point whose generator had no time left.
pub const GENERATOR_BUSY: &str = "generator-busy";
/// Code of the verdict on a load point at which too few requests were answered.
pub const RATE_OFF: &str = "rate-off";

impl Lateness {
    /// Whether requests were sent later than can be left in a figure of this mean.
    pub fn is_too_much(&self, limits: &GeneratorLimits) -> bool {
        let late_us = self.sending.mean;
        late_us > limits.lateness_us_min && late_us > limits.lateness_share_max * self.latency.mean
    }

    /// "sent 31 us late on average (p99 120 us), 12% of `what`", for the reason of a verdict.
    pub fn text(&self, what: &str) -> String {
        format!(
            "sent {:.0} us late on average (p99 {:.0} us), {:.0}% of {what}",
            self.sending.mean,
            self.sending.p99,
            100.0 * self.sending.mean / self.latency.mean.max(1e-9)
        )
    }

    /// Makes the verdict INVALID when sending was late by too much; `what` names the figure that this spoils, such as "the
    /// mean latency".
    pub fn judge(&self, limits: &GeneratorLimits, what: &str, verdict: &mut Verdict) {
        if self.is_too_much(limits) {
            let advice = "give it a core of its own (--pin) or lower the rate";
            verdict.invalidate(GENERATOR_LATE, format!("the generator {}; {advice}", self.text(what)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(mean: f64) -> LatencySummary {
        LatencySummary { mean, p99: 2.0 * mean, ..LatencySummary::default() }
    }

    fn lateness(sending_us: f64, latency_us: f64) -> Lateness {
        Lateness { sending: summary(sending_us), latency: summary(latency_us) }
    }

    #[test]
    fn lateness_is_too_much_only_above_both_limits() {
        let limits = GeneratorLimits::default();
        for (sending_us, latency_us, too_much) in [
            (19.0, 20.0, false),
            (21.0, 100.0, true),
            (21.0, 211.0, false),
            (1000.0, 9_999.0, true),
            (1000.0, 10_001.0, false),
        ] {
            let found = lateness(sending_us, latency_us).is_too_much(&limits);
            assert_eq!(found, too_much, "{sending_us} us of {latency_us} us");
        }
    }

    #[test]
    fn a_late_generator_makes_the_verdict_invalid_and_a_punctual_one_leaves_it_alone() {
        let limits = GeneratorLimits::default();
        let mut verdict = Verdict::valid();
        lateness(5.0, 100.0).judge(&limits, "the mean latency", &mut verdict);
        assert!(verdict.valid && verdict.reasons.is_empty());
        lateness(31.0, 250.0).judge(&limits, "the mean latency", &mut verdict);
        assert!(!verdict.valid && verdict.has(GENERATOR_LATE));
        let said = "the generator sent 31 us late on average (p99 62 us), 12% of the mean latency; give it a core of its \
                    own (--pin) or lower the rate";
        assert_eq!(verdict.reasons[0].text, said);
    }
}
