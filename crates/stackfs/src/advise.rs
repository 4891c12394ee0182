//! Which directories of a tree would gain from being managed, and how much in a day: costs by size, times shares.
//!
//! ```text
//! tree -> scan -> files in each directory, its share of the day's operations
//!                    costs of an operation by the size, flat and laid out, measured on this file system  -> Advice
//! ```
//!
//! gain a day = operations a day x (files here / files in all) x (cost flat - cost laid out), both at its size.
//!
//! The share is an estimate: operations are taken to fall on files evenly, as in the paper's figure 6. Costs are those
//! of the lower file system alone, as measured; what the mount itself adds to every operation, in managed and other
//! directories alike, is not in them. The interval of a gain takes the low end of one cost with the high end of the
//! other, which is wider than need be and never flatters.
//!
//! Always holds: nothing is told to gain whose interval reaches zero.
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
    /// Seconds a day that managing saves; negative when it costs.
    pub gain_s: f64,
    /// The interval of it.
    pub gain_s_range: (f64, f64),
    /// Whether it is larger than any size measured, so that its costs are those of the largest.
    pub beyond_measured: bool,
    /// What to do.
    pub advice: Advice,
}

/// Weighs all directories that were counted, the greatest gain first.
///
/// `files_total` are those of the whole tree, also in directories that are not in `directories`.
pub fn weigh(
    directories: &[Counted],
    files_total: u64,
    operations_per_day: f64,
    flat: &CostCurve,
    managed: &CostCurve,
) -> Vec<Worth> {
    let largest = flat.largest().min(managed.largest());
    let mut worth: Vec<Worth> = directories
        .iter()
        .filter_map(|directory| {
            let files = (directory.files as f64).min(largest);
            let (flat, laid_out) = (flat.at(files)?, managed.at(files)?);
            let operations = operations_per_day * directory.files as f64 / files_total.max(1) as f64;
            let seconds = |us: f64| operations * us / 1e6;
            let range = (seconds(flat.low - laid_out.high), seconds(flat.high - laid_out.low));
            Some(Worth {
                path: directory.path.clone(),
                files: directory.files,
                managed: directory.managed,
                operations_per_day: operations,
                gain_s: seconds(flat.us - laid_out.us),
                gain_s_range: range,
                beyond_measured: directory.files as f64 > largest,
                advice: advice(range, directory.managed),
            })
        })
        .collect();
    worth.sort_by(|a, b| b.gain_s.total_cmp(&a.gain_s).then_with(|| a.path.cmp(&b.path)));
    worth
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
