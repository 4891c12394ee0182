//! A tree of files on a packed store: as a `FileSystem`; files, trees and tar streams in, and out again; and where the store is.
//!
//! ```text
//! VolumeList: the directories of a store, opened --> Store
//! files, trees, tar stream --> Putting --> Store --> Getting --> files below a directory, tar stream
//!                                           keys: paths without a leading `/`
//! FileSystem call --> PackFs --> Store
//! ```
//!
//! Always holds: nothing is read into the store from the store itself, and nothing is written outside the directory that was
//! named, whatever keys, links and streams hold.
//! Not here: the store (`packstore`), flags and texts (`crumb`).

mod error;
mod file_system;
mod getting;
mod keys;
mod putting;
mod volume_list;

pub use error::PackFsError;
pub use file_system::{FileMeta, FileType, PackFs};
pub use getting::{Getting, Got, Wanted, WatchGet};
pub use keys::{key_of, names_of, shown};
pub use putting::{Put, Putting, WatchPut};
pub use volume_list::{VolumeList, VolumesError, make_directory};
