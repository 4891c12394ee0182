//! From a moderate size to the one that matters most, in the time that is left.
//!
//! The cost of making a file, measured at small sizes, predicts how long a larger directory takes to fill. In a linear
//! directory that cost grows with the number of files, so that twice the size takes four times as long.
//!
//! 1. Both layouts can be filled up to the largest size in half of the time: both are measured together, in turns, at that
//!    size, its half, its quarter and so on.
//! 2. Otherwise the layout alone is measured at the largest size: it is filled quickly on any file system.
//! 3. Then the flat directory, at the largest size that can be filled in the time that is left, and at each quarter of it:
//!    three sizes show whether costs grow with each file, so that they can be extrapolated (`stackfs::advise`). When the
//!    estimate was wrong and the time is up before, what was measured last is at most a quarter short of it.
//!
//! Always holds: nothing is measured twice, and each step has a time limit.

use std::time::Duration;

use dirscale::Sizes;
use files::Layout;

use super::FILES_MIN;
use super::measured::{Measured, points_of};

/// Filled within seconds on linear directories too, and large enough to tell what listing each file costs.
const MODERATE: u64 = 4096;

/// Measures directories, and knows what was measured and how much time is left. A test has one that calculates.
pub trait Meter {
    /// Until the whole measurement has to end.
    fn left(&self) -> Duration;

    /// Measures rising sizes in a directory for each layout, for `limit` at most; sizes that were finished are kept.
    ///
    /// # Errors
    /// When nothing can be measured, or it was interrupted.
    fn measure(&mut self, sizes: &Sizes, layouts: &[Layout], limit: Duration) -> anyhow::Result<()>;

    /// What was measured so far.
    fn measured(&self) -> &Measured;
}

/// Factor by which filling a large directory takes longer than small sizes predict, because it outgrows the CPU's caches. On
/// linear ext4 it was 1.2 to 2.1 for 60,000 files, predicted from sizes up to 4,096.
const SLOWER: f64 = 1.6;
/// Of the time that is left, for filling the flat directory; the rest is for the measurements and for what goes wrong.
const FOR_FILLING: f64 = 0.75;

/// Measures up to `largest` files, or as near to it as the time allows.
///
/// # Errors
/// As [`Meter::measure`].
pub fn to_the_largest(meter: &mut dyn Meter, largest: u64, layout: Layout) -> anyhow::Result<()> {
    let known = |meter: &dyn Meter, layout| meter.measured().largest(layout);
    if largest <= known(meter, Layout::Flat).min(known(meter, layout)) {
        return Ok(());
    }
    let fill = |meter: &dyn Meter, layout| Filling::of(meter.measured(), layout);
    let both = fill(meter, Layout::Flat).takes(largest) + fill(meter, layout).takes(largest);
    let left = meter.left();
    if both <= left / 2 {
        let known = known(meter, Layout::Flat).min(known(meter, layout));
        return measure_at(meter, rising_to(largest, known), &[Layout::Flat, layout], left);
    }
    let limit = left / 3;
    let spread = fill(meter, layout).reaches(largest, limit / 2);
    if spread > known(meter, layout) {
        meter.measure(&one(spread), &[layout], limit)?;
    }
    let left = meter.left();
    let smallest = known(meter, Layout::Flat);
    let reached = fill(meter, Layout::Flat).reaches(largest, left.mul_f64(FOR_FILLING));
    let reached = reached.max((2 * smallest).min(largest));
    measure_at(meter, quarters_of(reached, smallest), &[Layout::Flat], left)
}

fn measure_at(
    meter: &mut dyn Meter,
    sizes: Option<Sizes>,
    layouts: &[Layout],
    limit: Duration,
) -> anyhow::Result<()> {
    sizes.map_or(Ok(()), |sizes| meter.measure(&sizes, layouts, limit))
}

/// What making a file costs in a directory of this many files: `first_us + files * per_file_us`.
struct Filling {
    first_us: f64,
    per_file_us: f64,
}

impl Filling {
    fn of(measured: &Measured, layout: Layout) -> Self {
        let points = points_of(&measured.add, layout);
        let Some((files, cost)) = points.last() else { return Self { first_us: 0.0, per_file_us: 0.0 } };
        let per_file_us = match points.first() {
            Some((fewer, before)) if fewer < files => ((cost.us - before.us) / (files - fewer)).max(0.0),
            // Measured at one size only: in the worst case all of it grew with the files.
            _ => cost.us / files.max(1.0),
        };
        Self { first_us: (cost.us - per_file_us * files).max(0.0), per_file_us }
    }

    fn takes(&self, files: u64) -> Duration {
        let files = files as f64;
        let us = files * self.first_us + files * files / 2.0 * self.per_file_us * SLOWER;
        Duration::try_from_secs_f64(us / 1e6).unwrap_or(Duration::MAX)
    }

    /// The most files up to `largest` that can be made in a time.
    fn reaches(&self, largest: u64, time: Duration) -> u64 {
        if self.takes(largest) <= time {
            return largest;
        }
        let (mut enough, mut too_many) = (0, largest);
        while too_many - enough > 1 {
            let between = enough + (too_many - enough) / 2;
            if self.takes(between) <= time { enough = between } else { too_many = between }
        }
        enough
    }
}

/// A list of one size.
pub fn one(size: u64) -> Sizes {
    Sizes::of([size]).expect("a directory to measure has files")
}

/// Sizes by doubling up to `largest`, all beyond `known`; none when there are none.
fn rising_to(largest: u64, known: u64) -> Option<Sizes> {
    Sizes::of(std::iter::successors(Some(largest), |size| Some(size / 2)).take_while(|size| *size > known))
}

/// `largest` and three, two quarters and one quarter of it, those beyond `known`.
fn quarters_of(largest: u64, known: u64) -> Option<Sizes> {
    Sizes::of((1..=4).map(|quarters| largest * quarters / 4).filter(|size| *size > known))
}

/// What is measured first: the smallest size that is weighed, and a moderate one if the largest directory has more files.
pub fn first(largest: u64) -> Sizes {
    Sizes::of([FILES_MIN.min(largest), MODERATE.min(largest)]).expect("a large directory has files")
}

#[cfg(test)]
mod tests;
