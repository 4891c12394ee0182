//! The access log: one line per request, in formats that common tools read.
//!
//! ```text
//! loop ── line ──> bounded channel ──> writer thread ── buffered ──> file, rotated by size, reopened on SIGHUP
//! ```
//!
//! Always holds: no loop waits for the log: a line that finds the channel full is counted and dropped. Client input cannot end a line
//! or a quoted field.

mod format;
mod throttle;
mod writer;

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

pub use throttle::Throttle;
pub use writer::LogWriter;

use crate::config::LogFormat;
use crate::server::Outcome;

/// Why this upstream was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The origin itself.
    Direct,
    /// A sibling that answered an ICP query with a hit.
    SiblingHit,
    /// A parent that answered an ICP query with a hit.
    ParentHit,
    /// The first parent that answers.
    FirstParent,
    /// The parent that the URL hashes to.
    HashedParent,
}

impl Way {
    /// Squid's hierarchy code.
    pub fn squid(self) -> &'static str {
        match self {
            Self::Direct => "HIER_DIRECT",
            Self::SiblingHit => "SIBLING_HIT",
            Self::ParentHit => "PARENT_HIT",
            Self::FirstParent => "FIRSTUP_PARENT",
            Self::HashedParent => "CARP",
        }
    }
}

/// A request and how it was answered.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "their names say it")]
pub struct Entry {
    pub at: SystemTime,
    pub took: Duration,
    pub client: IpAddr,
    pub method: String,
    pub url: String,
    pub version: &'static str,
    pub status: u16,
    pub sent_bytes: u64,
    pub outcome: Outcome,
    pub aborted: bool,
    pub origin: Option<(Way, String)>,
    pub content_type: String,
    pub referer: String,
    pub agent: String,
    pub request_id: u64,
}

impl Entry {
    /// The line, with its line break.
    pub fn line(&self, format: LogFormat) -> String {
        match format {
            LogFormat::Squid => format::squid(self),
            LogFormat::Common => format::common(self, false),
            LogFormat::Combined => format::common(self, true),
            LogFormat::Json => format::json(self),
        }
    }
}
