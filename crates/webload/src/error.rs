//! What can keep a run or an origin from beginning or going on.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebloadError {
    /// The origin's address.
    #[error("cannot listen on {address}; choose another address or port 0 for a free one")]
    Listen {
        /// What was asked for.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// A setting that no run can have.
    #[error("{what}: {why}")]
    Asked {
        /// Which.
        what: &'static str,
        /// What is wrong and what to ask for.
        why: String,
    },
    /// No epoll, no thread.
    #[error("cannot set up {what}")]
    Setup {
        /// What for.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// Nobody there.
    #[error("nothing listens at {address}: start the proxy or server first, or correct its URL")]
    Unreachable {
        /// Where it should be.
        address: SocketAddr,
        /// What came instead.
        source: std::io::Error,
    },
    /// A trace that cannot be read.
    #[error("{}: cannot read the trace", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A line of a trace that is no request.
    #[error("{}:{line}: {problem}", path.display())]
    TraceLine {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// What is wrong and what was expected.
        problem: String,
    },
    /// Nothing to replay.
    #[error("{}: no request in it that can be replayed; {expected}", path.display())]
    EmptyTrace {
        /// The file.
        path: PathBuf,
        /// What would be.
        expected: &'static str,
    },
}

impl WebloadError {
    pub(crate) fn setup(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Setup { what, source }
    }
}
