//! The spool: articles as numbered files, `active`, history, and the passes over them.
//!
//! ```text
//! feed --batch--> unbatch --> storing     rec/sport/hockey/117, links for cross-posts     (places: on which storage)
//!                    |------> history     the ids seen, and an index                      (history::index)
//!                    |------> active      the groups' numbers
//!                    `------> outgoing    the next pass's batch file --> batcher --> sink
//! history --> expire --> dumbrm | fastrm          recovery: whole again after a kill          verify: is it right?
//! ```
//!
//! All of it lies on `files::FileSystem`, so that the same feed runs on a directory, an NFS server or whatever comes.
//!
//! Always holds: history alone says what is accepted; the order of writes that this rests on stands in `unbatch`.
//! Not here: feeds (see `crate::feed`), which storage there is, drawing.
//! Source: Swartz, "The Brave Little Toaster Meets Usenet", LISA X 1996; formats as INN 1.7.2 has them.

mod active;
mod batcher;
mod bound;
mod clock;
mod cold;
mod config;
mod counts;
mod decimal;
mod expire;
mod figures;
mod groups;
mod history;
mod journal;
mod layout;
mod lock;
mod meter;
mod outcome;
mod outgoing;
mod part;
mod passes;
mod places;
mod readers;
mod recovery;
mod resume;
#[cfg(test)]
mod scratch;
mod split;
mod state;
mod storing;
mod sweep;
mod unbatch;
mod verdict;
mod verify;
mod walk;
mod whole;

pub use batcher::{BatchCounts, BatchSink};
pub use config::{Keep, NetnewsConfig, SyncWhen};
pub use expire::{ExpireCounts, Removal};
pub use figures::METRICS;
pub(crate) use figures::figures;
pub use history::index::HistoryIndex;
pub use layout::{SpoolPath, Storage, Whereabouts, directory_of};
pub use outcome::{Event, Outcome, RunCounts, Work};
pub(crate) use part::merged;
pub use part::{CacheDrops, Ending, LocalFinding, MeasuredPhase, OfRank, Part};
pub use passes::{run, run_as_rank};
pub use places::{Hierarchy, PlaceId, PlaceRule};
pub use readers::Readings;
pub use recovery::Recovered;
pub use resume::Resumption;
pub(crate) use resume::alignment::ResumeAlignment;
pub use storing::{LinkKind, StoreCounts};
pub use unbatch::UnbatchCounts;
pub(crate) use verdict::verdict;
pub use verify::{Finding, FindingKind, Verified, verify};
