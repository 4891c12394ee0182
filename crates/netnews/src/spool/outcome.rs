//! What a run tells while it runs, what it comes to, and whether to believe it.

use std::collections::BTreeMap;

use measure::{Curve, MountPoint, Phase, Verdict};

use super::batcher::BatchCounts;
use super::bound;
use super::counts::counts;
use super::expire::ExpireCounts;
use super::layout::Storage;
use super::readers::Readings;
use super::recovery::Recovered;
use super::storing::StoreCounts;
use super::unbatch::UnbatchCounts;
use crate::NetnewsError;

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Storing articles.
    Unbatch,
    /// Writing outgoing batches.
    Batch,
    /// Reading history and making it anew.
    ExpireScan,
    /// Deleting expired files.
    Expire,
    /// Removing the spool.
    Remove,
}

/// What a run tells while it runs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// How far something has come.
    Step {
        /// What.
        work: Work,
        /// In which pass, from 1.
        pass: u32,
        /// Of how many.
        passes: u32,
        /// Articles, lines or files done.
        done: u64,
        /// How many there are, 0 when that is not known.
        of: u64,
    },
    /// A phase is over.
    PhaseDone {
        /// What it did.
        phase: Box<Phase>,
        /// False when it ended before its work was done.
        whole: bool,
    },
    /// Something the user should know.
    Note(String),
}

/// What a run came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// `unbatch`, `batch`, `expire-scan` and `expire` of each pass; on a resumed spool those of before too.
    pub phases: Vec<Phase>,
    /// The flat figures.
    pub metrics: BTreeMap<String, f64>,
    /// The paper's figures 3, 4 and 5.
    pub curves: Vec<Curve>,
    /// What the readers did, when there were any.
    pub readings: Option<Readings>,
    /// Whether to believe it.
    pub verdict: Verdict,
    /// All passes were done.
    pub complete: bool,
    /// What ended it early.
    pub error: Option<NetnewsError>,
    /// Sums over the passes of this run.
    pub counts: RunCounts,
    /// What opening a resumed spool took.
    pub recovered: Option<Recovered>,
    /// How many of the first `phases` an earlier run of a resumed spool measured.
    pub phases_before: usize,
}

impl Outcome {
    /// Whether a resumed spool was complete already, so that this run measured nothing.
    pub fn had_nothing_left(&self) -> bool {
        self.complete && self.phases_before > 0 && self.phases.len() == self.phases_before
    }
}

counts! {
    /// Sums over the passes of one run.
    pub struct RunCounts {
        /// Batches of the feed that were stored whole.
        pub batches_offered: u64,
        /// Articles offered, stored, refused, removed.
        pub unbatch: UnbatchCounts,
        /// Files and links.
        pub store: StoreCounts,
        /// Outgoing batches.
        pub batch: BatchCounts,
        /// Expiries.
        pub expire: ExpireCounts,
        /// Stretches of the feed that were no articles.
        pub damaged: u64,
        /// Ids looked up in history.
        pub lookups: u64,
        /// Lines of history read for it.
        pub lookup_text_reads: u64,
        /// Of these, of another id.
        pub lookup_tag_misses: u64,
        /// Reads of the index in its file; none with the index in memory.
        pub index_reads: u64,
        /// Writes of one slot of it.
        pub index_writes: u64,
    }
}

/// Adds what the reader should know of it, and what makes it not to be trusted.
pub(super) fn judge(outcome: &mut Outcome, storage: &Storage) {
    let (verdict, counts) = (&mut outcome.verdict, &outcome.counts);
    for fs in storage.targets() {
        let Some(mount) = fs.local_root().and_then(MountPoint::of) else { continue };
        if mount.options.split(',').any(|option| option == "discard" || option.starts_with("discard=")) {
            let text = format!(
                "{} is mounted with discard: each deletion may wait for the device; measure expire on one \
                 mounted with nodiscard",
                mount.path
            );
            verdict.remark("discard", text);
        }
    }
    if let Some(recovered) = outcome.recovered.filter(|recovered| recovered.names_missing > 0) {
        let missing = recovered.names_missing;
        let text = format!("{missing} files that history has were missing when the spool was resumed");
        verdict.invalidate("articles-lost", text);
    }
    if let Some(last) = outcome.phases_before.checked_sub(1).and_then(|last| outcome.phases.get(last)) {
        let text = format!(
            "resumed: the {} phases up to {} of pass {} were measured by an earlier run, whose record has them too; counts of \
             articles are those of this run, and a phase that was under way counts what was left of it",
            outcome.phases_before, last.name, last.pass
        );
        verdict.remark("resumed", text);
    }
    if counts.expire.names_missing > 0 {
        let missing = counts.expire.names_missing;
        verdict.invalidate("expired-missing", format!("{missing} files to be expired were not there"));
    }
    let mut unbatch = outcome.phases.iter().filter(|phase| phase.name == "unbatch").peekable();
    if unbatch.peek().is_some() && unbatch.all(|phase| phase.items == 0) {
        let UnbatchCounts { offered, duplicates, broken, .. } = counts.unbatch;
        let text = format!(
            "no article was stored: {offered} were offered, of which {duplicates} had come before and {broken} are no \
             articles, and {} stretches of the feed could not be read",
            counts.damaged
        );
        verdict.invalidate("nothing-stored", text);
    }
    if let Some(text) = bound::held_by_memory(&outcome.phases, storage) {
        verdict.remark("cache-bound", text);
    }
    let shortest = outcome.phases.iter().filter(|phase| phase.name == "unbatch");
    if let Some(wall_s) = shortest.map(|phase| phase.wall_s).min_by(f64::total_cmp)
        && wall_s < 1.0
    {
        let text =
            format!("a pass stored its articles in {wall_s:.2} s: chance weighs much in so short a time");
        verdict.remark("short-passes", text);
    }
    if counts.damaged + counts.unbatch.broken > 0 {
        let (damaged, broken) = (counts.damaged, counts.unbatch.broken);
        let text =
            format!("{broken} articles of the feed were refused as broken, {damaged} stretches damaged");
        verdict.remark("broken-articles", text);
    }
}
