//! Why nothing can be predicted.

use std::io;
use std::path::PathBuf;

/// Why there is no prediction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirlimitError {
    /// A directory that cannot be opened or read.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The caller stopped the count.
    #[error("{}: interrupted while counting; nothing was changed, run it again", path.display())]
    Stopped {
        /// The tree.
        path: PathBuf,
    },
}

impl DirlimitError {
    pub(crate) fn read(path: &std::path::Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path: path.clone(), source }
    }
}
