//! When requests are due: the schedule of an open loop, fixed before the first is sent.
//!
//! Always holds: the same process, rate and seed give the same moments; over a long interval every process
//! offers the same rate; nothing that the storage does moves a moment.
//! Source: Fstress paper, section 3.3 (uniform); the others are common models of independent clients.

use std::num::NonZeroU32;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, Exp1, Geometric};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How due moments follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly spaced, as in the paper. The default.
    #[default]
    Uniform,
    /// Independent of each other: exponential gaps, as from many clients that know nothing of each other.
    Poisson,
    /// Groups of requests due at once, geometric in size with this mean, the groups as in `Poisson`.
    Bursty {
        /// Mean requests in a group.
        mean: NonZeroU32,
    },
}

/// An endless run of due moments, as offsets from the start.
#[derive(Clone, Debug)]
pub struct Schedule {
    process: Process,
    rng: Xoshiro256PlusPlus,
    next_ns: f64,
    issued: u64,
}

#[derive(Clone, Copy, Debug)]
enum Process {
    Uniform { gap_ns: f64 },
    Poisson { gap_ns: f64 },
    Bursty { group_gap_ns: f64, more: Geometric, left: u64 },
}

impl Arrivals {
    const BURST_MEAN: NonZeroU32 = NonZeroU32::new(32).unwrap();

    /// Moments at `rate` requests a second.
    ///
    /// # Panics
    /// When `rate` is not a positive, finite number: rates are checked where they are parsed.
    pub fn schedule(self, rate: f64, seed: u64) -> Schedule {
        assert!(rate.is_finite() && rate > 0.0, "rate {rate} was not checked");
        let gap_ns = 1e9 / rate;
        let process = match self {
            Self::Uniform => Process::Uniform { gap_ns },
            Self::Poisson => Process::Poisson { gap_ns },
            Self::Bursty { mean } => {
                let mean = f64::from(mean.get());
                let more = Geometric::new(1.0 / mean).expect("a probability above 0 and at most 1");
                Process::Bursty { group_gap_ns: gap_ns * mean, more, left: 0 }
            }
        };
        Schedule { process, rng: Xoshiro256PlusPlus::seed_from_u64(seed), next_ns: 0.0, issued: 0 }
    }
}

impl Schedule {
    /// The next due moment. Moments never go back.
    #[inline]
    pub fn next_due(&mut self) -> Duration {
        let ns = match &mut self.process {
            // From the count and not by summing up gaps: no drift after a thousand million of them.
            Process::Uniform { gap_ns } => self.issued as f64 * *gap_ns,
            Process::Poisson { gap_ns } => {
                let gap: f64 = Exp1.sample(&mut self.rng);
                self.next_ns += gap * *gap_ns;
                self.next_ns
            }
            Process::Bursty { group_gap_ns, more, left } => {
                if *left == 0 {
                    let gap: f64 = Exp1.sample(&mut self.rng);
                    self.next_ns += gap * *group_gap_ns;
                    *left = 1 + more.sample(&mut self.rng);
                }
                *left -= 1;
                self.next_ns
            }
        };
        self.issued += 1;
        Duration::from_nanos(ns as u64)
    }
}

impl std::str::FromStr for Arrivals {
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, measure::ValueError> {
        match text {
            "uniform" => Ok(Self::Uniform),
            "poisson" => Ok(Self::Poisson),
            "bursty" => Ok(Self::Bursty { mean: Self::BURST_MEAN }),
            _ => text
                .strip_prefix("bursty:")
                .and_then(|mean| mean.parse().ok())
                .map(|mean| Self::Bursty { mean })
                .ok_or_else(|| {
                    format!(
                        "`{text}`: expected uniform, poisson, bursty or bursty:N (mean requests in a burst)"
                    )
                    .into()
                }),
        }
    }
}

impl std::fmt::Display for Arrivals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Poisson => f.write_str("poisson"),
            Self::Bursty { mean } => write!(f, "bursty:{mean}"),
        }
    }
}

/// A stream of random numbers of its own for each use, so that one more draw here moves nothing there.
pub(crate) fn stream(seed: u64, purpose: u64) -> Xoshiro256PlusPlus {
    let mut mixer = Xoshiro256PlusPlus::seed_from_u64(seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Xoshiro256PlusPlus::seed_from_u64(mixer.random())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(arrivals: Arrivals, rate: f64, seconds: u64) -> u64 {
        let mut schedule = arrivals.schedule(rate, 7);
        (0..).take_while(|_| schedule.next_due() < Duration::from_secs(seconds)).count() as u64
    }

    #[test]
    fn every_process_offers_the_rate_it_was_asked_for() {
        assert_eq!(offered(Arrivals::Uniform, 1234.5, 100), 123_450);
        for arrivals in [Arrivals::Poisson, Arrivals::Bursty { mean: Arrivals::BURST_MEAN }] {
            let share = offered(arrivals, 2000.0, 500) as f64 / 1e6;
            assert!((share - 1.0).abs() < 0.01, "{arrivals}: {share}");
        }
    }

    #[test]
    fn poisson_gaps_vary_as_much_as_their_mean_and_bursts_more() {
        let variation = |arrivals: Arrivals| {
            let mut schedule = arrivals.schedule(1000.0, 3);
            let mut last = Duration::ZERO;
            let gaps: Vec<f64> = (0..100_000)
                .map(|_| {
                    let due = schedule.next_due();
                    (due - std::mem::replace(&mut last, due)).as_secs_f64()
                })
                .collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
            variance.sqrt() / mean
        };
        assert!(variation(Arrivals::Uniform) < 0.02);
        assert!((variation(Arrivals::Poisson) - 1.0).abs() < 0.02);
        assert!(variation(Arrivals::Bursty { mean: Arrivals::BURST_MEAN }) > 4.0);
    }

    #[test]
    fn a_schedule_reads_back_from_what_it_prints() {
        for text in ["uniform", "poisson", "bursty:7"] {
            assert_eq!(text.parse::<Arrivals>().unwrap().to_string(), text);
        }
        assert!("bursty:0".parse::<Arrivals>().unwrap_err().to_string().contains("bursty:N"));
    }
}
