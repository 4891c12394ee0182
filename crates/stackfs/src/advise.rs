//! Which directories of a tree would gain from being managed, and how much in a day: costs by size, times shares.
//!
//! ```text
//! tree -> scan -> files in each directory, its share of the day's operations
//!                    costs of an operation by the size, flat and laid out, measured on this file system  -> Advice
//! ```
//!
//! gain a day = operations a day x (files here / files in all) x (cost flat - cost laid out - what a mount adds), all at
//! its size.
//!
//! The share is an estimate: it assumes that operations fall evenly on files, as in the paper's figure 6. A mount adds its
//! cost to all directories of the tree, managed or not; [`total`] subtracts it. Measured parts err independently, so the
//! interval of a gain is the root of the sum of the squares of its parts' intervals. Extrapolation errors are not
//! random, so their whole width is added. Beyond the measured sizes a cost is extrapolated, and its interval widens with
//! the distance (`costs`): the lower end is a cost that stops growing or, if three sizes show that it grows with each
//! file, one that keeps three quarters of that growth. If a gain was growing, its lower end is at least the gain at the
//! largest measured size.
//!
//! Always holds: no gain is reported whose interval includes zero.
//! Not here: measuring costs (the binary joins this with `dirscale`), converting.
//! Source: Zadok and Badulescu, "Usenetfs", CUCS-022-98, section 5, figure 6.

mod costs;
mod scan;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use self::costs::{Cost, CostCurve};
pub use self::scan::{Counted, Scan, ScanWatch, scan};

/// What to do with a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Advice {
    /// Flat, and would gain.
    Manage,
    /// Managed, and gains.
    KeepManaged,
    /// Managed, and loses by it.
    Unmanage,
    /// The measurements show neither gain nor loss.
    NotShown,
    /// Flat, and would lose.
    LeaveFlat,
}

/// A directory with what managing it is worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Worth {
    /// Which.
    pub path: PathBuf,
    /// Files and other entries in it.
    pub files: u64,
    /// Whether it is managed now.
    pub managed: bool,
    /// Operations a day that fall on it, as estimated.
    pub operations_per_day: f64,
    /// Seconds a day that managing saves, less what the mount costs here; negative when it costs more.
    pub gain_s: f64,
    /// The interval of it.
    pub gain_s_range: (f64, f64),
    /// Seconds a day that a mount adds to the operations here, whether it is managed or not; 0 where it is not known.
    pub mount_s: f64,
    /// Whether it is larger than any size measured, so that its costs are extrapolated.
    pub beyond_measured: bool,
    /// What to do.
    pub advice: Advice,
}

/// What operations cost on average, by the size of their directory.
#[derive(Clone, Debug)]
pub struct Costs {
    /// In flat directories, below any mount.
    pub flat: CostCurve,
    /// In directories of the layout, below any mount.
    pub managed: CostCurve,
    /// What a mount adds; none where it could not be measured.
    pub mount: Option<MountCost>,
}

impl Costs {
    /// What a layout saves at least in directories beyond the sizes measured, microseconds an operation: what it saved at
    /// the largest, where it saved more than at the size before. The cost of a flat directory grows at least as fast as that
    /// of one that is spread; below such a size nothing is known.
    fn least_difference(&self) -> Option<f64> {
        let largest = self.flat.largest().min(self.managed.largest());
        let before = self.flat.below(largest)?.max(self.managed.below(largest)?);
        let difference = |files| Some(self.flat.at(files)?.us - self.managed.at(files)?.us);
        let (flat, managed) = (self.flat.at(largest)?, self.managed.at(largest)?);
        (difference(largest)? > difference(before)?).then_some(flat.low - managed.high)
    }
}

/// What a mount adds to an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MountCost {
    /// Whatever the size of the directory, microseconds.
    pub each: Cost,
    /// For each file in the directory, as those who list it are shown all: microseconds.
    pub per_file: Cost,
}

impl MountCost {
    /// In a directory of this size. Less than nothing is what noise made of it.
    pub fn at(&self, files: f64) -> Cost {
        let of = |part: fn(&Cost) -> f64| (part(&self.each) + files * part(&self.per_file)).max(0.0);
        Cost { us: of(|c| c.us), low: of(|c| c.low), high: of(|c| c.high) }
    }
}

/// What managing comes to in the whole tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Total {
    /// Seconds a day that are saved in the directories that gain, less what the mount costs there.
    pub gain_s: f64,
    /// Seconds a day that the mount costs in the rest of the tree.
    pub elsewhere_s: f64,
}

/// Adds up what directories gain that are managed or should be, and what the mount costs in all others.
pub fn total(worth: &[Worth], files_total: u64, operations_per_day: f64, costs: &Costs) -> Total {
    let gains = |one: &&Worth| matches!(one.advice, Advice::Manage | Advice::KeepManaged);
    let others = worth.iter().filter(|one| !gains(one));
    // Directories too small to be listed: few files in each.
    let listed: u64 = worth.iter().map(|one| one.files).sum();
    let share = files_total.saturating_sub(listed) as f64 / files_total.max(1) as f64;
    let small_us = costs.mount.map_or(0.0, |mount| mount.at(0.0).us);
    Total {
        gain_s: worth.iter().filter(gains).map(|one| one.gain_s).sum::<f64>() + 0.0,
        elsewhere_s: others.map(|one| one.mount_s).sum::<f64>() + operations_per_day * share * small_us / 1e6,
    }
}

/// Weighs all directories that were counted, the greatest gain first.
///
/// `files_total` are those of the whole tree, also in directories that are not in `directories`.
pub fn weigh(
    directories: &[Counted],
    files_total: u64,
    operations_per_day: f64,
    costs: &Costs,
) -> Vec<Worth> {
    let largest = costs.flat.largest().min(costs.managed.largest());
    let mut worth: Vec<Worth> = directories
        .iter()
        .filter_map(|directory| {
            let files = directory.files as f64;
            let (flat, laid_out) = (costs.flat.at(files)?, costs.managed.at(files)?);
            let nothing = Cost { us: 0.0, low: 0.0, high: 0.0 };
            let mount = costs.mount.map_or(nothing, |mount| mount.at(files));
            let operations = operations_per_day * directory.files as f64 / files_total.max(1) as f64;
            let seconds = |us: f64| operations * us / 1e6;
            let beyond_measured = files > largest;
            let gain_us = flat.us - laid_out.us - mount.us;
            let (flat_beyond, laid_out_beyond) =
                (files > costs.flat.largest(), files > costs.managed.largest());
            let below_us = combined([
                (flat.us - flat.low, flat_beyond),
                (laid_out.high - laid_out.us, laid_out_beyond),
                (mount.high - mount.us, false),
            ]);
            let above_us = combined([
                (flat.high - flat.us, flat_beyond),
                (laid_out.us - laid_out.low, laid_out_beyond),
                (mount.us - mount.low, false),
            ]);
            let least_us =
                costs.least_difference().filter(|_| beyond_measured).map(|least| least - mount.high);
            let low_us = least_us.map_or(gain_us - below_us, |least| least.max(gain_us - below_us));
            let range = (seconds(low_us), seconds(gain_us + above_us));
            Some(Worth {
                path: directory.path.clone(),
                files: directory.files,
                managed: directory.managed,
                operations_per_day: operations,
                // Far beyond the sizes measured two extrapolations may differ by more than is possible.
                gain_s: seconds(gain_us).max(range.0).min(range.1),
                gain_s_range: range,
                mount_s: seconds(mount.us),
                beyond_measured,
                advice: advice(range, directory.managed),
            })
        })
        .collect();
    worth.sort_by(|a, b| b.gain_s.total_cmp(&a.gain_s).then_with(|| a.path.cmp(&b.path)));
    worth
}

/// The error of a sum from the errors of its parts, random or extrapolated.
fn combined(parts: [(f64, bool); 3]) -> f64 {
    let by_chance: f64 =
        parts.iter().filter(|(_, extrapolated)| !extrapolated).map(|(off, _)| off * off).sum();
    parts.iter().filter(|(_, extrapolated)| *extrapolated).map(|(off, _)| off).sum::<f64>() + by_chance.sqrt()
}

fn advice((low, high): (f64, f64), managed: bool) -> Advice {
    match (low > 0.0, high < 0.0, managed) {
        (true, _, false) => Advice::Manage,
        (true, _, true) => Advice::KeepManaged,
        (_, true, true) => Advice::Unmanage,
        (_, true, false) => Advice::LeaveFlat,
        _ => Advice::NotShown,
    }
}

impl Advice {
    /// For tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Manage => "manage",
            Self::KeepManaged => "keep managed",
            Self::Unmanage => "unmanage",
            Self::NotShown => "not shown",
            Self::LeaveFlat => "leave flat",
        }
    }
}
