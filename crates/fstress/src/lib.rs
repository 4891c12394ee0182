//! An open-loop load generator for file services: a workload in, latency against offered load out.
//!
//! ```text
//! Workload --OpDeck--> which operation --ObjectSets--> on which file --> request --> files::Transport
//! ```
//!
//! Always holds: equal seeds give equal operations; the mix of any stretch of requests is the mix asked for.
//! Not here: protocols (see `nfs`), storage (see `files`).
//! Source: Anderson, "Fstress: A Flexible Network File Service Benchmark".

mod answer;
mod benchmark;
mod entry;
mod error;
mod file_set;
mod load;
mod objects;
mod open_loop;
mod ranks;
mod results;
mod run;
mod workload;

pub use benchmark::{Fstress, Part, Reached};
pub use entry::ENTRY;
pub use error::{FstressError, Place, ValueProblem};
pub use load::{LatencyBound, Load};
pub use objects::weights::{WEIGHT_ONE, WeightTree};
pub use objects::{
    DirectoryId, FileFlags, FileId, HANDLE_BYTES_LIMIT, HandleTable, ObjectMemory, ObjectName, ObjectSets,
    SymlinkId,
};
pub use open_loop::arrivals::{Arrivals, Schedule};
pub use run::{FileCount, FstressConfig, Keep, METRICS, RunOutcome, run, run_together};
pub use workload::chains::{Chain, Step};
pub use workload::derive;
pub use workload::distribution::{Dimension, Distribution};
pub use workload::knobs;
pub use workload::mix::{Mix, OpDeck};
pub use workload::{
    Access, FilesPerOp, Popularity, ReadAccess, Scale, SetattrUse, Sizes, Tree, Workload, WriteAccess,
    WriteStability,
};
