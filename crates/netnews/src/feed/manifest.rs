//! `feed.json`: what a feed is and how it came to be.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{MANIFEST_NAME, UNFINISHED_NAME};
use crate::NetnewsError;
use crate::batch::ARTICLE_BYTES_MAX;

/// Form of `feed.json` that is written and read.
pub const MANIFEST_SCHEMA: u32 = 1;

/// What `feed.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`MANIFEST_SCHEMA`].
    pub schema: u32,
    /// Articles in all batches.
    pub articles: u64,
    /// Their bytes, without count lines and not packed.
    pub bytes: u64,
    /// Files of batches, numbered from 1.
    pub batches: u64,
    /// Bytes of these files.
    pub file_bytes: u64,
    /// Articles a batch, but for the last of a source.
    pub batch_articles: u64,
    /// Whether the batches are packed by gzip.
    pub packed: bool,
    /// Bytes of the largest article, where it is larger than what is read of any feed ([`ARTICLE_BYTES_MAX`]), else that.
    #[serde(default = "article_bytes_max")]
    pub article_bytes_max: u64,
    /// Articles whose message id came before.
    pub duplicates: u64,
    /// The highest clone number in its message ids; 0 when nothing was cloned.
    pub clone_number_max: u64,
    /// Where it comes from.
    pub origin: Origin,
}

/// Of feeds that do not say: none of them had a larger one that could be read.
fn article_bytes_max() -> u64 {
    ARTICLE_BYTES_MAX as u64
}

/// Where a feed comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Origin {
    /// Articles of elsewhere.
    Import {
        /// As it was named.
        source: String,
        /// Set aside, by reason.
        broken: BTreeMap<String, u64>,
    },
    /// Made up.
    Synthesize {
        /// The model's name.
        model: String,
        /// Same model, seed and articles: same bytes.
        seed: u64,
    },
    /// Copies of another feed with other message ids.
    Clone {
        /// As it was named.
        source: String,
        /// Copies besides the original.
        clones: u64,
        /// Where that came from.
        of: Box<Origin>,
    },
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Import { source, .. } => write!(f, "import of {source}"),
            Self::Synthesize { model, seed } => write!(f, "model {model}, seed {seed}"),
            Self::Clone { source, clones, of } => {
                write!(f, "{source} and {clones} of its clones; that from {of}")
            }
        }
    }
}

impl Manifest {
    /// Reads that of the feed at `feed`.
    pub(super) fn read(feed: &Path) -> Result<Self, NetnewsError> {
        let path = feed.join(MANIFEST_NAME);
        let text = match measure::read_text(&path, measure::RECORDS_BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && feed.join(UNFINISHED_NAME).exists() => {
                return Err(NetnewsError::FeedUnfinished { path: feed.to_owned() });
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(NetnewsError::NoFeed { path: feed.to_owned() });
            }
            Err(source) => return Err(NetnewsError::io("read the feed's description", &path, source)),
        };
        let wrong = |what: String| NetnewsError::BadManifest { path: path.clone(), what };
        let value: serde_json::Value =
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let schema = value.get("schema").and_then(serde_json::Value::as_u64);
        if schema != Some(u64::from(MANIFEST_SCHEMA)) {
            return Err(wrong(format!(
                "its schema is not {MANIFEST_SCHEMA}; it was made by another version"
            )));
        }
        let manifest: Self = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
        if manifest.batches > manifest.articles {
            return Err(wrong("it has more batches than articles".to_owned()));
        }
        Ok(manifest)
    }

    /// Writes it so that it is there whole or not at all.
    pub(super) fn write(&self, feed: &Path) -> Result<(), NetnewsError> {
        let (path, part) = (feed.join(MANIFEST_NAME), feed.join(format!(".{MANIFEST_NAME}.part")));
        let failed = |source| NetnewsError::io("write the feed's description", &path, source);
        let mut text = serde_json::to_string_pretty(self).map_err(|error| failed(error.into()))?;
        text.push('\n');
        let mut file = fs::File::create(&part).map_err(failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
        fs::rename(&part, &path).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_of_a_clone_leads_back_to_where_the_first_feed_came_from() {
        let of = Box::new(Origin::Synthesize { model: "m".to_owned(), seed: 3 });
        let clone = Origin::Clone { source: "feed".to_owned(), clones: 2, of };
        assert_eq!(clone.to_string(), "feed and 2 of its clones; that from model m, seed 3");
    }
}
