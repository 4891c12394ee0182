//! The journal of a kept spool: the passes done on it, so that a resumed run reports all of them.

use std::path::Path;

use files::{FileSystem, Status};
use measure::Phase;
use serde::{Deserialize, Serialize};

use crate::NetnewsError;
use crate::spool::whole::{place_of, read_whole, replace};

const FILE: &str = "journal.json";
const BYTES_MAX: usize = 64 << 20;

/// The run that a spool is of, and its phases so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Journal {
    pub(crate) feed_articles: u64,
    pub(crate) feed_bytes: u64,
    /// 0 where passes are not of one size.
    pub(crate) batches_per_pass: u64,
    /// Passes that the feed is spread over, where they are not of one size.
    #[serde(default)]
    pub(crate) spread_over_passes: Option<u32>,
    pub(crate) host: String,
    /// How history was looked up when the spool was begun.
    #[serde(default)]
    pub(crate) history_index: String,
    pub(crate) phases: Vec<Phase>,
}

impl Journal {
    pub(crate) fn write(&self, lib: &dyn FileSystem) -> Result<(), NetnewsError> {
        let json = serde_json::to_vec(self).expect("a journal holds nothing that JSON cannot");
        Ok(replace(lib, FILE, &json)?)
    }

    /// None when there is none yet.
    pub(crate) fn read(lib: &dyn FileSystem) -> Result<Option<Self>, NetnewsError> {
        let mut bytes = Vec::new();
        match read_whole(lib, Path::new(FILE), &mut bytes, BYTES_MAX) {
            Err(error) if error.status() == Some(Status::NOENT) => return Ok(None),
            other => other?,
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| NetnewsError::BadFile {
            path: place_of(lib, Path::new(FILE)),
            why: format!("no journal of a run: {error}"),
        })
    }

    /// Refuses a run whose feed, split or host differ from the journal's.
    pub(crate) fn fits(&self, asked: &Self, name: &str) -> Result<(), NetnewsError> {
        let described = |journal: &Self| {
            let split = match journal.spread_over_passes {
                Some(passes) => format!("spread over {passes} passes"),
                None => format!("{} batches a pass", journal.batches_per_pass),
            };
            format!(
                "a feed of {} articles in {} bytes, {split}, as {}",
                journal.feed_articles, journal.feed_bytes, journal.host
            )
        };
        let (was, asked) = (described(self), described(asked));
        if was == asked {
            Ok(())
        } else {
            Err(NetnewsError::OtherSpool { name: name.to_owned(), was, asked })
        }
    }
}
