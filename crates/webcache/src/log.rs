//! The access log: one line a request, in a form that others' tools read.
//!
//! ```text
//! loop ── line ──> bounded channel ──> writer thread ── buffered ──> file, put aside by size, opened anew on SIGHUP
//! ```
//!
//! Always holds: no loop waits for the log: lines that find the channel full are counted and lost; what a client sent
//! cannot end a line or a quoted text.

mod format;
mod writer;

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

pub use writer::{LogError, LogWriter};

use crate::config::LogFormat;
use crate::server::Outcome;

/// By which way a reply was to be had, as far as one was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the origin.
    Direct,
    /// From a cache beside this one that said it has it.
    SiblingHit,
    /// From a cache above this one that said it has it.
    ParentHit,
    /// From the first of those above that answers.
    FirstParent,
    /// From the one above that the URL leads to.
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
    /// As a line, with its end.
    pub fn line(&self, format: LogFormat) -> String {
        match format {
            LogFormat::Squid => format::squid(self),
            LogFormat::Common => format::common(self, false),
            LogFormat::Combined => format::common(self, true),
            LogFormat::Json => format::json(self),
        }
    }
}
