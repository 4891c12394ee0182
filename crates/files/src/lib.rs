//! The seams to storage: what a benchmark may ask of it, whatever lies behind.
//!
//! ```text
//! fstress --Request--> Transport --+-- NFSv3 over UDP or TCP          (crate nfs)
//!         <-Completion-            +-- a directory, by worker threads (DirectoryTransport)
//!                                  +-- nothing at all                 (NullTransport)
//!                                  +-- a law of latency, in tests     (crate testkit)
//!
//! postmark, netnews, dirscale --call--> FileSystem --+-- a local directory      (LocalFs)
//!                                                    `-- NFSv3 over UDP or TCP  (crate nfs)
//! ```
//!
//! Always holds: each submitted ticket comes back in exactly one completion; times are `quanta` instants
//! of one clock; operations, statuses and attributes are those of NFSv3 (RFC 1813) for every target.
//! Not here: bytes on the wire (see `nfs`), files by offset (see `disk`), choosing operations (the benchmarks).

mod directory;
mod directory_transport;
mod file_service;
mod file_system;
mod layout;
mod local_fs;
mod null_transport;
mod op;
mod run_mark;
mod status;
mod target;
mod transport;
mod tree;

pub use directory::{
    Caller, Directory, DirectoryError, DirectoryOptions, ListingRoom, Scratch, check_name, check_new_name,
};
pub use directory_transport::{DirectoryTransport, DirectoryTransportOptions};
pub use file_service::FileService;
pub use file_system::{
    Access, FileLock, FileSystem, FsError, FsOp, ListedEntry, Locking, OpenFile, SyncScope,
};
pub use layout::{LAYOUT_FILES_MIN, Layout, LayoutError};
pub use local_fs::LocalFs;
pub use null_transport::{NullTransport, PlausibleReply};
pub use op::{
    Attributes, CreateHow, DirEntry, Entries, EntryStep, FileKind, Fsinfo, Fsstat, Handle, HandleRef,
    NodeKind, NodeTime, OpKind, Pathconf, PreAttributes, Reply, Request, SetAttributes, SetTime, Stability,
    Wcc,
};
pub use run_mark::{MarkedProcess, RUN_MARK, marked_process, read_run_mark, run_mark, write_run_mark};
pub use status::Status;
pub use target::{NfsProto, NfsTarget, Target, TargetError};
pub use transport::{Completion, Outcome, SubmitError, Ticket, Transport, TransportCounters, TransportError};
pub use tree::{TreeSize, remove_tree, tree_size};
