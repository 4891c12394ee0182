//! The spool: articles as numbered files, `active`, history, and the passes over them.
//!
//! ```text
//! feed --batch--> unbatch --> storing     rec/sport/hockey/117, links for cross-posts     (places: on which storage)
//!                    |------> history     the ids seen, and an index                      (history::index)
//!                    |------> active      the groups' numbers
//!                    `------> outgoing    the next pass's batch file --> batcher --> sink
//! history --> expire --> dumbrm | fastrm          recovery: whole again after a kill          verify: is it correct?
//! ```
//!
//! All storage access goes through `files::FileSystem`, so the same feed runs on a directory or an NFS server.
//!
//! Always holds: history alone says what is accepted; the header of `unbatch` has the order of writes this relies on.
//! Not here: feeds (see `crate::feed`), which storage there is, drawing.
//! Source: Swartz, "The Brave Little Toaster Meets Usenet", LISA X 1996; formats as INN 1.7.2 has them.

mod batcher;
mod config;
mod decimal;
mod expire;
mod groups;
mod history;
mod layout;
mod passes;
mod recovery;
mod results;
mod resume;
#[cfg(test)]
mod scratch;
mod unbatch;
mod verify;
mod whole;

pub use batcher::{BatchCounts, BatchSink};
pub use config::{Keep, NetnewsConfig, SyncWhen};
pub use expire::{ExpireCounts, Removal};
pub use history::index::HistoryIndex;
pub use layout::places::{Hierarchy, PlaceId, PlaceRule};
pub use layout::{SpoolPath, Storage, Whereabouts, directory_of};
pub use passes::readers::Readings;
pub use passes::{run, run_as_rank};
pub use recovery::Recovered;
pub use results::figures::METRICS;
pub(crate) use results::figures::{cost, figures};
pub use results::outcome::{Event, Outcome, RunCounts, Work};
pub(crate) use results::part::merged;
pub use results::part::{CacheDrops, Ending, LocalFinding, MeasuredPhase, OfRank, Part};
pub(crate) use results::verdict::verdict;
pub use resume::Resumption;
pub(crate) use resume::alignment::ResumeAlignment;
pub use unbatch::UnbatchCounts;
pub use unbatch::storing::{LinkKind, StoreCounts};
pub use verify::{Finding, FindingKind, Verified, verify};
