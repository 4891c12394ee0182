//! Names and inodes on disk: sorted runs that are never changed, the newest first, and a manifest that says which count.
//!
//! ```text
//! lookup --> newest run: filter says "not here" | sparse index --> block (cache or disk) --> value, removal, or nothing
//!        `-> next run ... oldest
//! checkpoint --> a new run of what changed;     merge --> neighbouring runs become one
//! ```
//!
//! Keys: a name is (directory, name), an inode is its number. All names of a directory are neighbours, in the order of their bytes.
//!
//! Always holds: a run is synced before a manifest names it; a block whose checksum does not fit is rebuilt from its
//! parity group, or else is an error of the keys that it may hold, never an absence; no lock of the engine is held while a block is read from the disk, but for a last resort.
//! Not here: changes that no checkpoint has (`table`), when runs are written and merged (`engine`).
//! Source: O'Neil et al., "The Log-Structured Merge-Tree", Acta Informatica 33, 1996.

mod block;
mod cache;
mod cursor;
mod filter;
mod key;
mod manifest;
mod parity;
mod run;

pub(crate) use block::Block;
pub(crate) use cache::{BlockCache, Direct, Loader, MissingBlock};
pub(crate) use cursor::{Faults, Merged, Source};
pub(crate) use key::Key;
pub(crate) use manifest::{FreeMap, MANIFEST, Manifest, ManifestRead, is_of_names, remove, remove_others};
pub(crate) use run::{RunFault, RunWriter, SortedRun, find};
