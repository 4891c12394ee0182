//! A tree of files in few files: names in a journal and in sorted runs, contents as checksummed pieces; behind the seam
//! `FileSystem`, and by inode number.
//!
//! ```text
//! FileSystem call --> PackTree --> Engine: table (changes in memory over sorted runs `names-N`)
//!                                          + journal (rooms in `space`) + contents (blocks of `space`)
//! manifest, runs, free blocks + rooms of the journal --replay--> table, free blocks
//! ```
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! use files::FileSystem as _;
//! let disk = std::sync::Arc::new(disk::LocalDisk::open(directory.path())?);
//! packtree::PackTree::create(&*disk, &packtree::TreeOptions::default())?;
//! let tree = packtree::PackTree::open(disk, &packtree::TreeOptions::default(), "pack:/srv/spool")?;
//! let mut file = tree.create("article".as_ref())?;
//! file.write(b"text")?;
//! file.sync(files::SyncScope::All)?; // The bytes and the name are durable.
//! # drop(file);
//! # tree.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Always holds: after `kill -9` nothing that was acknowledged is missing; after a power cut the tree is as it was at one
//! moment that is not before the last sync. `docs/design/packtree.md` has the promise, the layout and what is left for later.
//! Not here: keys and a size limit (`packstore`), flags and texts (`crumb`).

mod check;
mod checkpoint;
mod clean_stop;
mod copying;
mod creation;
mod engine;
mod error;
mod file_system;
mod format;
mod journal;
mod locking;
mod names;
mod nodes;
mod opening;
mod options;
mod presence;
mod repair;
mod replay;
mod requests;
mod salvage;
mod space;
mod spare;
mod table;
mod time;
mod version1;

pub use check::{TreeReport, check};
pub use copying::{begin_copy, end_copy};
pub use error::TreeError;
pub use file_system::PackTree;
pub use nodes::{
    NewKind, NewNode, NodeAttributes, NodeEntry, NodeError, OpenNode, RenameHow, SetAttributes, TreeNodes,
    XattrHow,
};
pub use options::TreeOptions;
pub use presence::{Presence, is_tree, presence};
pub use repair::{TreeRepair, repair};
pub use replay::TreeFault;
pub use salvage::{SalvageError, Salvaged, salvage};
