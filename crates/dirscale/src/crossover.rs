//! From which size one curve is cheaper than another and stays so, and how sure that is.
//!
//! ```text
//! cost |          / flat
//!      |        /
//!      | ....x........ layout        x: the last crossing, by straight lines between points on log-log paper
//!      |   /
//!      +---------------- files
//! ```
//!
//! The rule is applied to the figures themselves and to each replicate of the bootstrap. What the replicates say
//! at the largest size decides whether there is anything to tell: cheaper there in 95% of them, dearer in 95%, or
//! neither. Their crossings give the interval.
//!
//! Always holds: no size is reported when the layout does not win at the largest size in 95% of the replicates.

use std::fmt;

use crate::sample::quantile;

/// A figure at each size, and replicates of all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    /// One for each size.
    pub figures: Vec<f64>,
    /// For each size, as many replicates as everywhere else.
    pub replicates: Vec<Vec<f64>>,
}

/// From which size a layout pays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Crossover {
    /// Cheaper from here on, up to the largest size measured.
    From {
        /// Files in the directory; the smallest size measured when it is cheaper there already.
        files: f64,
        /// Lower end of the 95% interval of `files`.
        low: f64,
        /// Upper end; none when it lies beyond the largest size.
        high: Option<f64>,
        /// Whether it is cheaper at the smallest size measured and everywhere.
        everywhere: bool,
        /// Share of the replicates in which it is cheaper at the largest size, 0.95 to 1.
        chance: f64,
    },
    /// Dearer, or no cheaper, at the largest size measured.
    Never {
        /// The largest size.
        largest: f64,
    },
    /// The largest size shows neither.
    NotShown {
        /// The largest size.
        largest: f64,
        /// Share of the replicates in which it is cheaper there, 0.05 to 0.95.
        chance: f64,
    },
}

/// What must be shown for a statement.
const CONFIDENCE: f64 = 0.95;

/// From which of the rising `sizes` `layout` is cheaper than `flat`; none when nothing was measured.
///
/// Each of `flat` and `layout` gives, for a size's index, its figure and replicates of it, microseconds; both give
/// equally many replicates, and at least one.
pub fn pays_from(
    sizes: &[u64],
    flat: impl Fn(usize) -> (f64, Vec<f64>),
    layout: impl Fn(usize) -> (f64, Vec<f64>),
) -> Option<Crossover> {
    let row = |of: &dyn Fn(usize) -> (f64, Vec<f64>)| {
        let (figures, replicates) = (0..sizes.len()).map(of).unzip();
        Row { figures, replicates }
    };
    crossover(sizes, &row(&flat), &row(&layout))
}

pub(crate) fn crossover(sizes: &[u64], flat: &Row, layout: &Row) -> Option<Crossover> {
    let last = sizes.len().checked_sub(1)?;
    let largest = sizes[last] as f64;
    let count = flat.replicates[last].len();
    let wins = (0..count).filter(|r| layout.replicates[last][*r] < flat.replicates[last][*r]).count();
    let chance = wins as f64 / count.max(1) as f64;
    if chance <= 1.0 - CONFIDENCE {
        return Some(Crossover::Never { largest });
    }
    let gains = |of: &dyn Fn(&Row, usize) -> f64| -> Vec<f64> {
        (0..sizes.len()).map(|size| (of(flat, size) / of(layout, size)).ln()).collect()
    };
    let crossing_at = crossing(sizes, &gains(&|row, size| row.figures[size]));
    let (Some(files), true) = (crossing_at, chance >= CONFIDENCE) else {
        return Some(Crossover::NotShown { largest, chance });
    };
    let mut crossings: Vec<f64> = (0..count)
        .map(|r| crossing(sizes, &gains(&|row, size| row.replicates[size][r])).unwrap_or(f64::INFINITY))
        .collect();
    crossings.sort_by(f64::total_cmp);
    // Replicates scatter around what was measured; an interval that left it out would only puzzle.
    let low = quantile(&crossings, 0.025).min(files);
    let high = quantile(&crossings, 0.975).max(files);
    let high = high.is_finite().then_some(high);
    let everywhere = (0..sizes.len()).all(|size| layout.figures[size] < flat.figures[size]);
    Some(Crossover::From { files, low, high, everywhere, chance })
}

/// The last crossing from dearer to cheaper; gains are logarithms of how many times cheaper, so positive is cheaper.
fn crossing(sizes: &[u64], gains: &[f64]) -> Option<f64> {
    match gains.iter().rposition(|gain| gain.is_nan() || *gain <= 0.0) {
        None => sizes.first().map(|first| *first as f64),
        Some(dearer) if dearer + 1 == sizes.len() => None,
        Some(dearer) => {
            let (from, to) = ((sizes[dearer] as f64).ln(), (sizes[dearer + 1] as f64).ln());
            let (below, above) = (gains[dearer].clamp(-1e9, 0.0), gains[dearer + 1].min(1e9));
            let way = if below.is_nan() { 1.0 } else { -below / (above - below) };
            Some((from + (to - from) * way).exp())
        }
    }
}

impl Crossover {
    /// The size, when one is shown.
    pub fn files(&self) -> Option<f64> {
        match self {
            Self::From { files, .. } => Some(*files),
            Self::Never { .. } | Self::NotShown { .. } => None,
        }
    }
}

impl fmt::Display for Crossover {
    /// To go on behind "pays ".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::From { files, everywhere: true, high: Some(high), .. } if high <= files => {
                write!(f, "at every size measured, from {} on", rounded(files))
            }
            Self::From { files, low, high, .. } => {
                write!(f, "from {} files (95%: {} to ", rounded(files), rounded(low))?;
                match high {
                    Some(high) => write!(f, "{})", rounded(high)),
                    None => f.write_str("beyond the sizes measured)"),
                }
            }
            Self::Never { largest } => {
                write!(f, "never within the sizes measured (up to {})", rounded(largest))
            }
            Self::NotShown { largest, chance } => {
                let chance = (chance * 100.0).round();
                write!(
                    f,
                    "not as far as can be shown: at {} files it is cheaper with a probability of {chance}%",
                    rounded(largest)
                )
            }
        }
    }
}

/// Three digits are more than any crossing is known to. A size that was measured is known and stays as it is: whole, but
/// for what its logarithm lost.
fn rounded(files: f64) -> String {
    if (files - files.round()).abs() < 1e-9 * files {
        return grouped(files);
    }
    let unit = 10f64.powf((files.max(1.0).log10().floor() - 2.0).max(0.0));
    grouped((files / unit).round() * unit)
}

/// With commas between thousands.
fn grouped(files: f64) -> String {
    let digits = files.round().to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    const SIZES: [u64; 8] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000];

    /// Figures with replicates that scatter by a share to either side.
    fn scattered(figures: impl Fn(f64) -> f64, share: f64, seed: u64) -> impl Fn(usize) -> (f64, Vec<f64>) {
        move |size| {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed * 1000 + size as u64);
            let figure = figures(SIZES[size] as f64);
            (figure, (0..500).map(|_| figure * (1.0 + share * rng.random_range(-1.0..1.0))).collect())
        }
    }

    fn linear(files: f64) -> f64 {
        1.0 + files / 250.0
    }

    #[test]
    fn a_linear_directory_against_a_constant_one_pays_where_the_lines_cross() {
        let answer = pays_from(&SIZES, scattered(linear, 0.01, 1), scattered(|_| 5.0, 0.01, 2)).unwrap();
        let Crossover::From { files, low, high, everywhere, chance } = answer else { panic!("{answer:?}") };
        // 1 + n/250 = 5 at n = 1000, which is a measured size that does not win.
        assert!((990.0..=1010.0).contains(&files), "{files}");
        assert!(
            low <= files && files <= high.unwrap() && low > 900.0 && high.unwrap() < 1200.0,
            "{answer:?}"
        );
        assert_eq!((everywhere, chance), (false, 1.0));
    }

    #[test]
    fn a_layout_that_always_costs_more_never_pays_and_no_size_is_told() {
        let answer = pays_from(&SIZES, scattered(|_| 5.0, 0.01, 1), scattered(|_| 8.0, 0.01, 2)).unwrap();
        assert_eq!(answer, Crossover::Never { largest: 1e7 });
        assert_eq!(answer.files(), None);
        assert_eq!(answer.to_string(), "never within the sizes measured (up to 10,000,000)");
    }

    #[test]
    fn equal_curves_in_noise_are_not_shown_to_pay() {
        let answer = pays_from(&SIZES, scattered(|_| 5.0, 0.2, 1), scattered(|_| 5.0, 0.2, 2)).unwrap();
        assert!(
            matches!(answer, Crossover::NotShown { chance, .. } if (0.3..0.7).contains(&chance)),
            "{answer:?}"
        );
        assert!(answer.to_string().contains("not as far as can be shown"), "{answer}");
    }

    #[test]
    fn a_layout_that_pays_in_the_middle_only_does_not_pay() {
        let hill = |files: f64| if files == 1000.0 { 50.0 } else { 5.0 };
        let answer = pays_from(&SIZES, scattered(hill, 0.01, 1), scattered(|_| 8.0, 0.01, 2)).unwrap();
        assert!(matches!(answer, Crossover::Never { .. }), "{answer:?}");
    }

    #[test]
    fn what_is_cheaper_everywhere_pays_from_the_smallest_size() {
        let answer = pays_from(&SIZES, scattered(|_| 9.0, 0.01, 1), scattered(|_| 3.0, 0.01, 2)).unwrap();
        assert!(matches!(answer, Crossover::From { files: 1.0, everywhere: true, .. }), "{answer:?}");
        assert_eq!(answer.to_string(), "at every size measured, from 1 on");
    }

    #[test]
    fn noise_where_the_curves_meet_widens_the_interval_but_keeps_the_claim() {
        let sharp = pays_from(&SIZES, scattered(linear, 0.01, 1), scattered(|_| 3.0, 0.01, 2)).unwrap();
        let noisy = pays_from(&SIZES, scattered(linear, 0.6, 1), scattered(|_| 3.0, 0.6, 2)).unwrap();
        let width = |answer: &Crossover| match answer {
            Crossover::From { low, high: Some(high), .. } => high / low,
            other => panic!("{other:?}"),
        };
        assert!(width(&noisy) > 2.0 * width(&sharp), "{noisy:?} {sharp:?}");
    }

    #[test]
    fn a_size_that_was_measured_is_told_as_it_is_and_a_crossing_in_three_digits() {
        let never = Crossover::Never { largest: 65_536.0 };
        assert_eq!(never.to_string(), "never within the sizes measured (up to 65,536)");
        let unclear = Crossover::NotShown { largest: 524_288.0, chance: 0.05 };
        assert_eq!(
            unclear.to_string(),
            "not as far as can be shown: at 524,288 files it is cheaper with a probability of 5%"
        );
        let (low, files) = (65_536f64.ln().exp(), 81_234.5);
        let from = Crossover::From { files, low, high: Some(131_072.0), everywhere: false, chance: 1.0 };
        assert_eq!(from.to_string(), "from 81,200 files (95%: 65,536 to 131,072)");
    }

    #[test]
    fn nothing_measured_tells_nothing() {
        assert_eq!(pays_from(&[], |_| (1.0, vec![1.0]), |_| (1.0, vec![1.0])), None);
    }

    proptest! {
        #[test]
        fn any_positive_curves_give_an_answer_with_the_size_inside_its_interval(
            flat in proptest::collection::vec(0.001f64..1e9, 8),
            layout in proptest::collection::vec(0.001f64..1e9, 8),
            share in 0.0f64..0.99,
        ) {
            let of = |row: Vec<f64>| move |files: f64| row[SIZES.iter().position(|s| *s as f64 == files).unwrap()];
            let answer = pays_from(&SIZES, scattered(of(flat), share, 3), scattered(of(layout), share, 4)).unwrap();
            if let Crossover::From { files, low, high, .. } = answer {
                prop_assert!((1.0..=1.0001e7).contains(&files), "{:?}", answer);
                prop_assert!(low <= files && high.is_none_or(|high| files <= high), "{:?}", answer);
            }
        }
    }
}
