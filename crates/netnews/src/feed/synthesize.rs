//! Feeds made up from a model of real ones, of any size, without a download.
//!
//! ```text
//! seed, number i -> Draw -> role: plain, duplicate of j, cancel of j, supersedes j
//!                             `-> size, groups, hosts, words -> article i, alone from (seed, i)
//! ```
//!
//! Always holds: the same model, seed and number of articles give the same bytes. Article i depends on no earlier
//! article, so memory does not grow, and a duplicate of j is j generated again. Names, addresses, hosts and text consist of
//! syllables; all hosts are below `.example`.
//! Not here: the figures fitted to and their sources (see `model`).

mod arrivals;
mod compare;
mod draw;
mod model;
mod names;
mod text;
mod write;

use std::num::NonZeroU64;
use std::path::Path;

pub use compare::{Comparison, Figure};
pub use model::MODEL_NAME;

use super::make::{FeedShape, FeedWriter};
use super::stat::{Counter, Stat};
use super::{Feed, FeedProgress, Origin, Watch};
use crate::NetnewsError;
use write::Author;

/// Fewest groups a feed can be spread over: enough for the article that names most.
pub const GROUPS_MIN: u32 = 100;
/// Most groups: as many as the largest servers ever carried.
pub const GROUPS_MAX: u32 = 200_000;

/// What to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynthesisConfig {
    /// Articles, duplicates, cancels and all.
    pub articles: NonZeroU64,
    /// Same seed, same bytes.
    pub seed: u64,
    /// Groups that articles can name, from [`GROUPS_MIN`] to [`GROUPS_MAX`]; others are taken as the nearest of
    /// these. Default 2,000: our choice, the sources name 857 in 20,000 articles and 331 of one hierarchy.
    pub groups: u32,
    /// How the feed is cut.
    pub shape: FeedShape,
}

impl SynthesisConfig {
    /// As usual but for articles and seed.
    pub fn new(articles: NonZeroU64, seed: u64) -> Self {
        Self { articles, seed, groups: 2000, shape: FeedShape::default() }
    }
}

/// What was made.
#[derive(Clone, Debug)]
pub struct Synthesized {
    /// The feed.
    pub feed: Feed,
    /// What it is like.
    pub stat: Stat,
    /// That beside the model.
    pub comparison: Comparison,
}

/// Makes a feed at `out`.
///
/// # Errors
/// When it cannot be written, or the caller stops it; then nothing is left.
pub fn synthesize(
    config: &SynthesisConfig,
    out: &Path,
    watch: &mut Watch<'_>,
) -> Result<Synthesized, NetnewsError> {
    let mut writer = FeedWriter::create(out, config.shape)?;
    let groups = config.groups.clamp(GROUPS_MIN, GROUPS_MAX);
    let author = Author::new(config.seed, groups, config.articles.get());
    let mut counter = Counter::new();
    let mut article = Vec::new();
    for number in 0..config.articles.get() {
        let id = author.write(number, &mut article);
        let again = writer.write(&article[id], &article)?;
        counter.take(&article, |_| again);
        watch.tick(FeedProgress {
            articles: writer.articles(),
            bytes: writer.bytes(),
            articles_total: Some(config.articles.get()),
            files_sorted: 0,
        })?;
    }
    let origin = Origin::Synthesize { model: MODEL_NAME.to_owned(), seed: config.seed };
    let feed = writer.finish(origin, 0)?;
    let stat = counter.finish();
    let comparison = Comparison::new(&stat, author.groups());
    Ok(Synthesized { feed, stat, comparison })
}
