//! The events and the outcome of a run, and what only the machine that it ran on can observe.

use measure::{MountPoint, Phase};

use super::bound;
use super::counts::counts;
use super::part::{LocalFinding, Part};
use crate::NetnewsError;
use crate::spool::batcher::BatchCounts;
use crate::spool::expire::ExpireCounts;
use crate::spool::layout::Storage;
use crate::spool::unbatch::UnbatchCounts;
use crate::spool::unbatch::storing::StoreCounts;

/// The work under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Storing articles.
    Unbatch,
    /// Writing outgoing batches.
    Batch,
    /// Reading and rewriting history.
    ExpireScan,
    /// Deleting expired files.
    Expire,
    /// Removing the spool.
    Remove,
}

/// What a run reports while it runs.
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
    },
    /// Something the user should know.
    Note(String),
    /// Measuring is over; the removal of the spool follows.
    Measured(Box<Part>),
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was measured.
    pub part: Part,
    /// What ended it early.
    pub error: Option<NetnewsError>,
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

/// What only the machine of a run shows of it: how its file systems are mounted, and whether its memory did the work.
pub(crate) fn local_findings(phases: &[Phase], storage: &Storage) -> Vec<LocalFinding> {
    let mut found = Vec::new();
    for fs in storage.targets() {
        let Some(mount) = fs.local_root().and_then(MountPoint::of) else { continue };
        if mount.options.split(',').any(|option| option == "discard" || option.starts_with("discard=")) {
            let text = format!(
                "{} is mounted with discard: each deletion may wait for the device; measure expire on one \
                 mounted with nodiscard",
                mount.path
            );
            found.push(LocalFinding::new("discard", text));
        }
    }
    found.extend(bound::held_by_memory(phases, storage).map(|text| LocalFinding::new("cache-bound", text)));
    found
}
