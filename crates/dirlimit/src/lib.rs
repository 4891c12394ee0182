//! When a directory or its file system takes no more names, at the rate at which names are made now.
//!
//! ```text
//! tree -> walk -> names and blocks of each large directory, a sample of its names -> growth a day
//!         file_system -> blocks, inodes, features of ext4
//!                  index: ext4's hash tree grown by simulation, many times -> between N and M names
//!                                                                    -> Prediction: from which day to which
//! ```
//!
//! On ext4 without `large_dir` a directory refuses a name long before its index is full in the sense of a formula: as soon as
//! one index block that needs a split finds no room in the root. At which number of names that happens depends on the block
//! size, the lengths of the names and chance, so the index is simulated.
//!
//! Always holds: nothing is written; what could not be read is named among the assumptions.
//! Not here: how slow large directories are (`dirscale`), keeping names in many small ones (`stackfs`), printing (`crumb`).

mod error;
mod file_system;
mod growth;
pub mod index;
mod prediction;
mod sample;
mod superblock;
mod walk;

pub use error::DirlimitError;
pub use file_system::FileSystem;
pub use growth::{Basis, Growth};
pub use index::Names;
pub use prediction::{Days, DirectoryPrediction, Limit, Options, Prediction, Resource, directory, predict};
pub use superblock::Superblock;
pub use walk::Watch;
