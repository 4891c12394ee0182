//! What is wrong or worth knowing, by the facts alone, the heaviest first.
//!
//! Weights order findings; they are no measure of anything else:
//!
//! | weight | what it says |
//! |---|---|
//! | 90 to 100 | writes fail, or what is written is lost |
//! | 70 to 89 | most operations take ten times as long as they could, or more |
//! | 40 to 69 | some programs suffer, or the figures of this page do |
//! | below 40 | worth knowing when figures are compared |
//!
//! Always holds: a finding states the figure it rests on; equal facts give equal findings.

mod machine;
mod storage;

use serde::Serialize;

use crate::Facts;

/// One thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which.
    pub code: FindingCode,
    /// For the order: 0 to 100.
    pub weight: u32,
    /// What was found, with its figure.
    pub text: String,
    /// What follows from it, and what helps.
    pub advice: String,
}

/// Kinds of findings, by which programs tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // Each is explained by its sentence.
pub enum FindingCode {
    BytesNearlyGone,
    InodesNearlyGone,
    ReadOnly,
    Unwritable,
    Volatile,
    LoopsFailed,
    CpuQuota,
    MemoryLimit,
    SynchronousMount,
    SlowMetadata,
    LinearDirectories,
    LargeDirectory,
    DirectoryNearlyFull,
    ShrunkDirectory,
    StolenTime,
    BusyMachine,
    NoBarriers,
    SlowFsync,
    NetworkFileSystem,
    Fuse,
    Overlay,
    SlowWakeUps,
    SlowClock,
    SlowGovernor,
    StrictAccessTimes,
    AccessTimes,
    DataJournal,
    DiscardAtDelete,
    CaseFolding,
    Quotas,
}

/// All findings, the heaviest first.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    storage::add(facts, &mut found);
    machine::add(facts, &mut found);
    // A stable order: of equal weights the storage's first.
    found.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    found
}

impl Finding {
    fn new(code: FindingCode, weight: u32, text: String, advice: impl Into<String>) -> Self {
        Self { code, weight, text, advice: advice.into() }
    }
}

/// A time of one operation: `4.20 ms`.
pub(crate) fn us_text(us: f64) -> String {
    measure::numbers::figure_text("us", us)
}

/// Never `100%` while something is left, and never `0%` of something.
pub(crate) fn percent_text(share: f64) -> String {
    let percent = 100.0 * share;
    if percent > 99.0 && percent < 100.0 || percent < 10.0 {
        format!("{:.1}%", percent.min(99.9))
    } else {
        format!("{percent:.0}%")
    }
}

#[cfg(test)]
mod tests;
