//! How many names are made a day, from when those of a sample were made.
//!
//! The share of the sample that was made in the last seven days, times the names that are there. A younger directory is judged
//! by its whole age. Names that were made and removed again do not count: the growth is that of what stays.
//!
//! Not here: taking the sample (see `walk`).

use std::time::Duration;

use crate::sample::Inode;

/// Names made in the last seven days make up the growth.
const WINDOW: Duration = Duration::from_secs(7 * 24 * 3600);
/// Names that were all made within this time say nothing of a day.
const AGE_MIN: Duration = Duration::from_secs(3600);
const DAY_S: f64 = 24.0 * 3600.0;
/// Of the normal distribution, for intervals of 95%.
const Z: f64 = 1.96;

/// Names a day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Names a day.
    pub per_day: f64,
    /// The lower end of its interval of 95%.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// What it rests on.
    pub basis: Basis,
}

/// What a growth rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Basis {
    /// The caller gave it.
    Given,
    /// Counted in a sample.
    Sampled {
        /// How far back: seven days, or the age of the oldest.
        window: Duration,
        /// Names looked at.
        sampled: usize,
        /// Those of them that were made within the window.
        recent: usize,
        /// Whether the file system keeps birth times; otherwise the last change of the inode is taken.
        by_birth: bool,
    },
    /// There are no names, or all were made within the last hour.
    Unknown,
}

impl Growth {
    /// What a caller says.
    pub fn given(per_day: f64) -> Self {
        Self { per_day, low: per_day, high: per_day, basis: Basis::Given }
    }

    fn unknown() -> Self {
        Self { per_day: 0.0, low: 0.0, high: 0.0, basis: Basis::Unknown }
    }

    /// Of `names`, of which these are a sample, at a time in seconds since 1970.
    pub(crate) fn sampled(names: u64, sample: &[Inode], now_s: f64) -> Self {
        let age_s = |inode: &Inode| (now_s - inode.made_s).max(0.0);
        let oldest_s = sample.iter().map(age_s).fold(0.0, f64::max);
        if sample.is_empty() || oldest_s < AGE_MIN.as_secs_f64() {
            return Self::unknown();
        }
        let window_s = WINDOW.as_secs_f64().min(oldest_s);
        let recent = sample.iter().filter(|inode| age_s(inode) <= window_s).count();
        let per_day = |share: f64| names as f64 * share / (window_s / DAY_S);
        let (low, high) = wilson(recent, sample.len());
        // All of a young directory is recent, whatever the sample.
        let (low, high) = if recent == sample.len() { (1.0, 1.0) } else { (low, high) };
        Self {
            per_day: per_day(recent as f64 / sample.len() as f64),
            low: per_day(low),
            high: per_day(high),
            basis: Basis::Sampled {
                window: Duration::from_secs_f64(window_s),
                sampled: sample.len(),
                recent,
                by_birth: sample.iter().all(|inode| inode.is_birth),
            },
        }
    }

    /// The share of it that falls to a part.
    pub(crate) fn times(self, share: f64) -> Self {
        Self { per_day: self.per_day * share, low: self.low * share, high: self.high * share, ..self }
    }
}

/// Wilson's interval of a share.
fn wilson(count: usize, of: usize) -> (f64, f64) {
    if count == 0 {
        return (0.0, Z * Z / (of as f64 + Z * Z));
    }
    let (share, of) = (count as f64 / of as f64, of as f64);
    let middle = share + Z * Z / (2.0 * of);
    let half = Z * (share * (1.0 - share) / of + Z * Z / (4.0 * of * of)).sqrt();
    let scale = 1.0 + Z * Z / of;
    (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 1e9;

    fn made_days_ago(days: f64) -> Inode {
        Inode { made_s: NOW - days * DAY_S, is_birth: true, bytes: 0 }
    }

    #[test]
    fn the_growth_is_the_recent_share_of_all_names_with_its_interval() {
        let sample: Vec<Inode> = (0..1000).map(|at| made_days_ago(f64::from(at) / 10.0)).collect();
        let growth = Growth::sampled(100_000, &sample, NOW);
        assert!((growth.per_day - 1014.0).abs() < 1.0, "{growth:?}");
        assert!(
            growth.low > 800.0 && growth.low < growth.per_day && growth.per_day < growth.high,
            "{growth:?}"
        );
        assert!(growth.high < 1300.0, "{growth:?}");
    }

    #[test]
    fn a_young_directory_is_judged_by_its_age_and_one_of_minutes_not_at_all() {
        let sample: Vec<Inode> = (1..=48).map(|hours| made_days_ago(f64::from(hours) / 24.0)).collect();
        let growth = Growth::sampled(2000, &sample, NOW);
        assert!((growth.per_day - 1000.0).abs() < 1e-6 && growth.low == growth.high, "{growth:?}");
        assert_eq!(Growth::sampled(2000, &[made_days_ago(0.01)], NOW).basis, Basis::Unknown);
        assert_eq!(Growth::sampled(0, &[], NOW).basis, Basis::Unknown);
    }

    #[test]
    fn where_nothing_is_recent_the_growth_is_none_and_its_upper_end_is_not() {
        let growth = Growth::sampled(1_000_000, &[made_days_ago(100.0); 1000], NOW);
        assert!(growth.per_day == 0.0 && growth.low == 0.0 && growth.high > 0.0, "{growth:?}");
    }
}
