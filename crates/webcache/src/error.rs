//! What keeps the proxy from starting, or from applying a new configuration.

use std::io;
use std::net::SocketAddr;

/// Why the proxy cannot start, or cannot apply a new configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebcacheError {
    /// An address cannot be bound.
    #[error("cannot listen on {address}; is another program using it?")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The list of bans cannot be read: banned replies would be served again.
    #[error(
        "cannot use the list of bans in {file}; restore it, or remove it: then no object that was stored until now is served"
    )]
    Bans {
        /// The file.
        file: String,
        /// The cause.
        source: io::Error,
    },
    /// A thread, or its event loop, cannot be started.
    #[error("cannot start the thread {name}; raise the limit on processes or open files (ulimit -u, -n)")]
    Thread {
        /// The thread's name.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// The file of the access log cannot be opened.
    #[error("cannot open the access log {file}; name another file in log.file")]
    Log {
        /// The file.
        file: String,
        /// The cause.
        source: io::Error,
    },
    /// The file of the certificate or of the key cannot be used.
    #[error("{file}: {problem}")]
    Tls {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: &'static str,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
