//! An open-loop load generator for file services: a workload in, latency against offered load out.
//!
//! ```text
//! Workload --OpDeck--> which operation --ObjectSets--> on which file --> request --> files::Transport
//! ```
//!
//! Always holds: equal seeds give equal operations; the mix of any stretch of requests is the mix asked for.
//! Not here: protocols (see `nfs`), storage (see `files`).
//! Source: Anderson, "Fstress: A Flexible Network File Service Benchmark".

mod arrivals;
mod benchmark;
mod builder;
mod crew;
pub mod derive;
mod distribution;
mod entry;
mod error;
mod judge;
mod load;
mod metronome;
mod mix;
mod objects;
mod payload;
mod planner;
mod progress;
mod ranks;
mod raw;
mod run;
mod tally;
mod weights;
mod workload;

pub use arrivals::{Arrivals, Schedule};
pub use benchmark::{Fstress, Part, Reached};
pub use distribution::{Dimension, Distribution};
pub use entry::ENTRY;
pub use error::{FstressError, Place, ValueProblem};
pub use load::{LatencyBound, Load};
pub use mix::{Mix, OpDeck};
pub use objects::{
    DirectoryId, FileFlags, FileId, HANDLE_BYTES_LIMIT, HandleTable, ObjectMemory, ObjectName, ObjectSets,
    SymlinkId,
};
pub use run::{FileCount, FstressConfig, Keep, METRICS, RunOutcome, run, run_together};
pub use weights::{WEIGHT_ONE, WeightTree};
pub use workload::{
    Access, FilesPerOp, Popularity, ReadAccess, Scale, SetattrUse, Sizes, Tree, Workload, WriteAccess,
    WriteStability,
};
