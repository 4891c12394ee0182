//! Which load levels to offer, and the search for the one where the storage saturates.
//!
//! ```text
//! sweep   500, 1000, 1500, ... as given
//! search  rise by half as much again until a level fails, then halve the gap until it is small:
//!         1000 ok  1500 ok  2250 ok  3375 FAILS  2812 ok  3094 FAILS  2953 ok   -> 2953
//! ```
//!
//! Always holds: a search ends; what it reports was measured, never interpolated.

use std::fmt;
use std::time::Duration;

use harness::LevelsAfter;
use measure::quantity::{QuantityError, number_in, refuse_grouped, time};
use measure::{LatencyHistogram, ValueError};

/// Load to offer.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// These rates, in this order, requests a second.
    Sweep(Vec<f64>),
    /// Find the highest rate that the storage holds.
    Auto {
        /// Where to begin, requests a second.
        first: f64,
    },
    /// Find the highest rate that the storage holds within a latency bound.
    FindMax {
        /// Where to begin, requests a second.
        first: f64,
        /// The bound.
        bound: LatencyBound,
    },
    /// As fast as replies arrive, with a fixed number of requests outstanding: a closed loop.
    Max {
        /// Requests kept outstanding.
        outstanding: u32,
    },
}

/// Such as `p99<20ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyBound {
    /// 0 to 1.
    pub quantile: f64,
    /// What that quantile must stay below.
    pub below: Duration,
}

/// Rates between which a search may move, requests a second.
const RATE_MIN: f64 = 1.0;
const RATE_MAX: f64 = 10_000_000.0;
const POINTS_MAX: usize = 10_000;

/// How the words for a search begin, in records too.
pub(crate) const SEARCHES_FROM: &str = "load rising from ";
/// What is before the bound in those of a search under one.
pub(crate) const WHILE: &str = " while ";

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sweep(rates) if rates.len() == 1 => write!(f, "{} requests/s", rates[0]),
            Self::Sweep(rates) => {
                let (first, last) = (rates[0], rates[rates.len() - 1]);
                write!(f, "{} load points from {first} to {last} requests/s", rates.len())
            }
            Self::Auto { first } => write!(f, "{SEARCHES_FROM}{first} requests/s to saturation"),
            Self::FindMax { first, bound } => write!(f, "{SEARCHES_FROM}{first} requests/s{WHILE}{bound}"),
            Self::Max { outstanding } => write!(f, "a closed loop with {outstanding} outstanding"),
        }
    }
}

impl Load {
    /// Default first rate of a search, requests per second.
    pub const FIRST_DEFAULT: f64 = 500.0;

    /// Reads `1000`, `20k`, `500,1000,4000`, `500..8000/500`, `auto` or `auto:FIRST`. (`max` is the caller's, as it
    /// needs the number outstanding.) What could also be one number with its thousands parted is refused.
    ///
    /// # Errors
    /// Names what was expected.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        if text == "auto" {
            return Ok(Self::Auto { first: Self::FIRST_DEFAULT });
        }
        if let Some(first) = text.strip_prefix("auto:") {
            return Ok(Self::Auto { first: rate(first)? });
        }
        if let Some((from, rest)) = text.split_once("..") {
            let (to, step) = rest
                .split_once('/')
                .ok_or_else(|| format!("`{text}`: no step; write FROM..TO/STEP, such as 500..8000/500"))?;
            let (from, to, step) = (rate(from)?, rate(to)?, rate(step)?);
            if to < from {
                return Err(
                    format!("`{text}`: {to} is below {from}; write FROM..TO/STEP with FROM first").into()
                );
            }
            let points = ((to - from) / step + 1e-9).floor() as usize + 1;
            if points > POINTS_MAX {
                return Err(format!(
                    "`{text}`: {points} load points; choose a step that makes at most {POINTS_MAX}"
                )
                .into());
            }
            return Ok(Self::Sweep((0..points).map(|n| from + n as f64 * step).collect()));
        }
        if measure::grouped_number(text).is_some_and(|one| one as f64 <= RATE_MAX)
            && let Err(wrong) = refuse_grouped(text)
        {
            let several = text.replace(',', ", ");
            return Err(format!("`{text}`: {wrong}, or '{several}' with spaces for several rates").into());
        }
        text.split(',').map(rate).collect::<Result<Vec<_>, _>>().map(Self::Sweep)
    }

    /// How many load points to expect, at least and at most: a search that begins within a factor of 60 of the storage's limit
    /// has 8 to 16.
    pub fn levels_expected(&self) -> (u32, u32) {
        self.points().map_or((8, 16), |points| (points, points))
    }

    /// How many load points there will be, when that is known beforehand.
    pub fn points(&self) -> Option<u32> {
        match self {
            Self::Sweep(rates) => Some(rates.len() as u32),
            Self::Max { .. } => Some(1),
            Self::Auto { .. } | Self::FindMax { .. } => None,
        }
    }
}

fn rate(text: &str) -> Result<f64, ValueError> {
    number_in(text, &(RATE_MIN..=RATE_MAX)).map_err(|wrong| match wrong {
        QuantityError::Grouped { .. } | QuantityError::DecimalComma { .. } => {
            format!("`{text}`: {wrong}").into()
        }
        _ => format!(
            "`{text}`: expected requests a second from {RATE_MIN} to {RATE_MAX}, such as 1000, 20k, 500..8000/500 or \
             auto"
        )
        .into(),
    })
}

impl LatencyBound {
    /// Whether these latencies are within the bound. The `failed` operations, which are not among them, count as longer than
    /// any bound.
    pub fn is_met_by(&self, histogram: &LatencyHistogram, failed: u64) -> bool {
        let (succeeded, all) = (histogram.count() as f64, (histogram.count() + failed) as f64);
        let quantile = self.quantile * all / succeeded.max(1.0);
        succeeded > 0.0 && quantile <= 1.0 && histogram.quantile(quantile) < self.below
    }

    /// Such as `p99.9`.
    pub fn percentile_text(&self) -> String {
        format!("p{}", (self.quantile * 1e4).round() / 1e2)
    }
}

impl std::str::FromStr for LatencyBound {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let expected =
            || format!("`{text}`: expected a percentile and a time, such as p99<20ms or p99.9<100ms");
        let (percentile, below) = text.split_once('<').ok_or_else(expected)?;
        let percentile: f64 =
            percentile.trim().strip_prefix('p').and_then(|p| p.parse().ok()).ok_or_else(expected)?;
        let below = time(below).map_err(|wrong| match wrong {
            QuantityError::NoUnit { .. } | QuantityError::Grouped { .. } => format!("`{text}`: {wrong}"),
            _ => expected(),
        })?;
        if !(0.01..=99.99).contains(&percentile) || below.is_zero() {
            return Err(expected().into());
        }
        // Rounded to a hundredth of a percent, so that p99.9 is 0.999 and not a bit beside it.
        Ok(Self { quantile: (percentile * 100.0).round() / 1e4, below })
    }
}

impl std::fmt::Display for LatencyBound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} < {:?}", self.percentile_text(), self.below)
    }
}

/// Rising steps, then bisection around the knee.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    next: f64,
    held_max: Option<f64>,
    failed_min: Option<f64>,
    steps_left: u32,
}

/// The search's description of itself for the user.
pub(crate) const SEARCH_RULE: &str =
    "up by half until a level fails, then halving the gap until it is below 5%";

const RISE: f64 = 1.5;
const GAP_MAX: f64 = 0.05;
const STEPS_MAX: u32 = 60;

impl Search {
    pub fn from(first: f64) -> Self {
        Self { next: first, held_max: None, failed_min: None, steps_left: STEPS_MAX }
    }

    /// The next rate to try; none when the search is over.
    pub fn next_rate(&mut self) -> Option<f64> {
        self.steps_left = self.steps_left.checked_sub(1)?;
        let over = match (self.held_max, self.failed_min) {
            (Some(held), Some(failed)) => failed / held - 1.0 < GAP_MAX,
            (None, Some(failed)) => failed <= RATE_MIN,
            (Some(held), None) => held >= RATE_MAX,
            (None, None) => false,
        };
        (!over).then_some(self.next)
    }

    /// How many levels follow the one of [`Self::next_rate`].
    pub fn levels_after(&self) -> LevelsAfter {
        match (self.held_max, self.failed_min) {
            (Some(held), Some(failed)) => LevelsAfter::About(halvings(failed / held - 1.0).saturating_sub(1)),
            // As if this one failed, or held; the last halving may not be needed.
            (Some(_), None) => LevelsAfter::AtLeast(halvings(RISE - 1.0) - 1),
            (None, Some(_)) => LevelsAfter::AtLeast(halvings(1.0) - 1),
            (None, None) => LevelsAfter::AtLeast(halvings(RISE - 1.0)),
        }
    }

    /// Takes in how the last rate went.
    pub fn learn(&mut self, rate: f64, held: bool) {
        // A level that held above one that failed is noise at the knee: keep to the lower side.
        if held && self.failed_min.is_none_or(|failed| rate < failed) {
            self.held_max = Some(self.held_max.map_or(rate, |max| max.max(rate)));
        } else {
            self.failed_min = Some(self.failed_min.map_or(rate, |min| min.min(rate)));
        }
        self.next = match (self.held_max, self.failed_min) {
            (Some(held), Some(failed)) => whole((held + failed) / 2.0),
            (None, Some(failed)) => whole(failed / 2.0).max(RATE_MIN),
            (Some(held), None) => whole(held * RISE).min(RATE_MAX),
            (None, None) => self.next,
        };
    }
}

/// How often a gap is halved until a search ends.
fn halvings(gap: f64) -> u32 {
    ((gap / GAP_MAX).log2().floor() + 1.0).max(0.0) as u32
}

/// Rates that people can read: three digits.
fn whole(rate: f64) -> f64 {
    let unit = 10f64.powf(rate.log10().floor() - 2.0);
    (rate / unit).round() * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sweep_has_both_its_ends() {
        assert_eq!(Load::parse("500..2000/500"), Ok(Load::Sweep(vec![500.0, 1000.0, 1500.0, 2000.0])));
        assert_eq!(Load::parse("100..250/100"), Ok(Load::Sweep(vec![100.0, 200.0])));
        assert_eq!(Load::parse("7"), Ok(Load::Sweep(vec![7.0])));
        assert_eq!(Load::parse("20k"), Ok(Load::Sweep(vec![20_000.0])));
        assert_eq!(Load::parse("1k..2k/500"), Ok(Load::Sweep(vec![1000.0, 1500.0, 2000.0])));
        assert_eq!(Load::parse("auto:2000"), Ok(Load::Auto { first: 2000.0 }));
    }

    #[test]
    fn a_wrong_rate_says_what_was_expected() {
        for (text, names) in [
            ("fast", "requests a second"),
            ("0", "requests a second"),
            ("-5", "requests a second"),
            ("500..100/10", "is below"),
            ("500..1000", "no step"),
            ("1..1000000/1", "load points"),
            ("1,,2", "requests a second"),
            ("nan", "requests a second"),
        ] {
            let error = Load::parse(text).expect_err(text).to_string();
            assert!(error.contains(names), "{text}: {error}");
        }
    }

    /// Symptom: `--rate 20,300`, copied from our own table, measured 20/s and 300/s without a word. Cause: a comma parts
    /// rates here and thousands there. Fix: what can be read both ways is asked back.
    #[test]
    fn a_rate_copied_from_our_own_table_is_not_taken_for_two() {
        for (text, one) in [("20,300", "20300"), ("300,600", "300600"), ("1,250,000", "1250000")] {
            let error = Load::parse(text).expect_err(text).to_string();
            assert!(error.contains(one) && error.contains(&text.replace(',', ", ")), "{text}: {error}");
        }
        assert_eq!(Load::parse("20, 300"), Ok(Load::Sweep(vec![20.0, 300.0])));
        assert_eq!(Load::parse("500,1000,4000"), Ok(Load::Sweep(vec![500.0, 1000.0, 4000.0])));
        // Two hundred million requests a second are no rate.
        assert_eq!(Load::parse("200,200,200"), Ok(Load::Sweep(vec![200.0; 3])));
    }

    #[test]
    fn a_bound_is_a_percentile_and_a_time() {
        let bound: LatencyBound = "p99.9<1.5ms".parse().unwrap();
        assert_eq!((bound.quantile, bound.below), (0.999, Duration::from_micros(1500)));
        assert_eq!(bound.to_string(), "p99.9 < 1.5ms");
        for wrong in ["p99", "99<20ms", "p0<1ms", "p100<1ms", "p99<0ms", "p99<20", "p99<-1s", "p99<1e300s"] {
            assert!(wrong.parse::<LatencyBound>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_search_between_a_rate_that_held_and_one_that_failed_knows_about_how_many_levels_follow() {
        for capacity in [700.0, 1_050.0, 1_400.0, 3_300.0] {
            let mut search = Search::from(1000.0);
            let mut foreseen = Vec::new();
            while let Some(rate) = search.next_rate() {
                foreseen.push(search.levels_after());
                search.learn(rate, rate <= capacity);
            }
            for (index, after) in foreseen.iter().enumerate() {
                let followed = (foreseen.len() - index - 1) as u32;
                match *after {
                    LevelsAfter::About(levels) => {
                        assert!(levels.abs_diff(followed) <= 1, "{capacity}: {foreseen:?}")
                    }
                    LevelsAfter::AtLeast(levels) => {
                        assert!(levels <= followed, "{capacity}: {foreseen:?}")
                    }
                    LevelsAfter::Unknown => panic!("{capacity}: {foreseen:?}"),
                }
            }
            assert!(matches!(foreseen.last(), Some(LevelsAfter::About(0 | 1))), "{foreseen:?}");
        }
    }

    proptest! {
        #[test]
        fn a_search_ends_within_five_percent_below_the_capacity(first in 1.0f64..100_000.0, capacity in 1.5f64..5_000_000.0) {
            let mut search = Search::from(first);
            let mut held_max: f64 = 0.0;
            while let Some(rate) = search.next_rate() {
                let held = rate <= capacity;
                if held { held_max = held_max.max(rate); }
                search.learn(rate, held);
            }
            prop_assert!(held_max <= capacity && held_max >= capacity * 0.94 - 1.0, "{held_max} of {capacity}");
        }
    }
}
