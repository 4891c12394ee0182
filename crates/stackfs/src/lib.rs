//! The stackable file system (Usenetfs): a tree as it is, with the entries of chosen huge directories kept in many
//! small ones.
//!
//! ```text
//! program -> kernel (FUSE) -> adapter -> tree (numbers, names, managed directories) -> lower file system
//!                └── file data past all of this, where the kernel passes it through
//! ```
//!
//! Not here: the layouts' name functions (`files::Layout`), flags and output (`crumb`).

pub mod advise;
pub mod check;
pub mod convert;
pub mod managed;
pub mod online;
pub mod views;

mod adapter;
mod counters;
mod error;
mod mount;
mod tree;

pub use adapter::{Followed, ReaderPolicy, Waited, Waiting};
pub use counters::{Census, Counted, Operation};
pub use error::StackError;
pub use fuse::Transport;
pub use mount::options::{KernelFlags, StackOptions, Timeouts};
pub use mount::{Ending, Mount, Watch, mounts};
