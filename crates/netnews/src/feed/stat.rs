//! Statistics of a feed: counts, sizes, groups, cross-posts, duplicates, cancels.
//!
//! Always holds: memory does not grow with the feed but for 9 to 18 bytes an article (see `seen`) and the group
//! names, of which at most a million are kept apart.
//! Not here: tables for people (the binary).

use std::collections::{BTreeMap, HashMap};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::seen::Seen;
use super::{Feed, FeedProgress, Watch};
use crate::NetnewsError;
use crate::article::Article;
use crate::batch::{ARTICLE_BYTES_MAX, BatchError};

/// Groups counted separately; a real feed names fewer.
const GROUPS_KEPT_MAX: usize = 1 << 20;

/// Sizes in bytes; percentiles to 3 digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sizes {
    /// Smallest.
    pub min: u64,
    /// A tenth is smaller.
    pub p10: u64,
    /// Half is smaller.
    pub p50: u64,
    /// Mean.
    pub mean: f64,
    /// A tenth is larger.
    pub p90: u64,
    /// A hundredth is larger.
    pub p99: u64,
    /// Largest.
    pub max: u64,
}

/// One group's part of a feed, a cross-post in each of its groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupStat {
    /// Its name.
    pub name: String,
    /// Articles that name it.
    pub articles: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a feed is like.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stat {
    /// All of them, broken and repeated ones too.
    pub articles: u64,
    /// Their bytes, not packed.
    pub bytes: u64,
    /// Whole articles' sizes.
    pub article_bytes: Sizes,
    /// Their headers' sizes.
    pub head_bytes: Sizes,
    /// Groups named.
    pub groups: u64,
    /// Names in `Newsgroups:` that no group can have, such as one with a slash.
    pub groups_malformed: u64,
    /// All of them, the largest first.
    pub by_group: Vec<GroupStat>,
    /// Files and links that a spool would have, without duplicates refused.
    pub group_entries: u64,
    /// How many articles name how many groups.
    pub articles_by_group_count: BTreeMap<u64, u64>,
    /// Articles that name more than one.
    pub cross_posted: u64,
    /// Articles whose message id came before.
    pub duplicates: u64,
    /// Articles that want another one removed.
    pub cancels: u64,
    /// Other control messages.
    pub other_controls: u64,
    /// Articles that replace another one.
    pub supersedes: u64,
    /// Mean number of hosts in `Path:`, of the articles that have one.
    pub path_hosts_mean: f64,
    /// First and last readable date, Unix time in seconds.
    pub dated: Option<(i64, i64)>,
    /// What is no article, by reason.
    pub broken: BTreeMap<&'static str, u64>,
}

/// Reads all of a feed.
///
/// # Errors
/// When a batch cannot be read, or the caller stops it. Damage is counted.
pub fn stat(feed: &Feed, watch: &mut Watch<'_>) -> Result<Stat, NetnewsError> {
    let mut counter = Counter::new();
    let mut seen = Seen::default();
    let mut before = None;
    for batch in feed.batches() {
        let mut reader = match before.take() {
            Some(reader) => batch.open_with(reader)?,
            None => batch.open()?,
        };
        loop {
            match reader.next() {
                Ok(Some(bytes)) => counter.take(bytes, |id| seen.again(id)),
                Ok(None) => break,
                Err(BatchError::Damaged { why, .. }) => *counter.broken.entry(why.name()).or_default() += 1,
                Err(error) => return Err(batch.error(error)),
            }
            let (articles, bytes) = (counter.articles, counter.bytes);
            watch.tick(FeedProgress {
                articles,
                bytes,
                articles_total: Some(feed.articles()),
                files_sorted: 0,
            })?;
        }
        before = Some(reader);
    }
    Ok(counter.finish())
}

/// Takes articles in one at a time.
pub(super) struct Counter {
    articles: u64,
    bytes: u64,
    article_bytes: Histogram<u64>,
    article_bytes_sum: u64,
    head_bytes: Histogram<u64>,
    groups: HashMap<String, (u64, u64)>,
    groups_malformed: u64,
    group_entries: u64,
    by_group_count: BTreeMap<u64, u64>,
    duplicates: u64,
    cancels: u64,
    other_controls: u64,
    supersedes: u64,
    paths: u64,
    path_hosts: u64,
    dated: Option<(i64, i64)>,
    broken: BTreeMap<&'static str, u64>,
}

impl Counter {
    pub(super) fn new() -> Self {
        let sizes =
            || Histogram::new_with_bounds(1, 2 * ARTICLE_BYTES_MAX as u64, 3).expect("bounds in order");
        Self {
            articles: 0,
            bytes: 0,
            article_bytes: sizes(),
            article_bytes_sum: 0,
            head_bytes: sizes(),
            groups: HashMap::new(),
            groups_malformed: 0,
            group_entries: 0,
            by_group_count: BTreeMap::new(),
            duplicates: 0,
            cancels: 0,
            other_controls: 0,
            supersedes: 0,
            paths: 0,
            path_hosts: 0,
            dated: None,
            broken: BTreeMap::new(),
        }
    }

    /// Counts one; `again` says whether a message id came before.
    pub(super) fn take(&mut self, bytes: &[u8], again: impl FnOnce(&[u8]) -> bool) {
        self.articles += 1;
        self.bytes += bytes.len() as u64;
        let article = match Article::parse(bytes) {
            Ok(article) => article,
            Err(why) => {
                *self.broken.entry(why.name()).or_default() += 1;
                return;
            }
        };
        self.article_bytes.saturating_record(bytes.len() as u64);
        self.article_bytes_sum += bytes.len() as u64;
        self.head_bytes.saturating_record(article.head_end() as u64);
        let again = again(article.message_id());
        self.duplicates += u64::from(again);
        let mut count = 0;
        for group in article.newsgroups() {
            count += 1;
            if let Some((articles, held)) = self.groups.get_mut(group) {
                (*articles, *held) = (*articles + 1, *held + bytes.len() as u64);
            } else if self.groups.len() < GROUPS_KEPT_MAX {
                self.groups.insert(group.to_owned(), (1, bytes.len() as u64));
            }
        }
        self.groups_malformed += article.newsgroups_malformed() as u64;
        if !again {
            self.group_entries += count;
        }
        *self.by_group_count.entry(count).or_default() += 1;
        if article.control_cancel().is_some() {
            self.cancels += 1;
        } else if article.is_control() {
            self.other_controls += 1;
        }
        self.supersedes += u64::from(article.supersedes().is_some());
        if let Some(path) = article.path() {
            self.paths += 1;
            self.path_hosts += path.value.iter().filter(|byte| **byte == b'!').count() as u64;
        }
        if let Some(date) = article.date() {
            let (first, last) = self.dated.unwrap_or((date, date));
            self.dated = Some((first.min(date), last.max(date)));
        }
    }

    pub(super) fn finish(self) -> Stat {
        let mut by_group: Vec<GroupStat> = self
            .groups
            .into_iter()
            .map(|(name, (articles, bytes))| GroupStat { name, articles, bytes })
            .collect();
        by_group.sort_by(|a, b| b.articles.cmp(&a.articles).then_with(|| a.name.cmp(&b.name)));
        let mut article_bytes = sizes(&self.article_bytes);
        if !self.article_bytes.is_empty() {
            article_bytes.mean = self.article_bytes_sum as f64 / self.article_bytes.len() as f64;
        }
        Stat {
            articles: self.articles,
            bytes: self.bytes,
            article_bytes,
            head_bytes: sizes(&self.head_bytes),
            groups: by_group.len() as u64,
            groups_malformed: self.groups_malformed,
            by_group,
            group_entries: self.group_entries,
            cross_posted: self.by_group_count.range(2..).map(|(_, articles)| articles).sum(),
            articles_by_group_count: self.by_group_count,
            duplicates: self.duplicates,
            cancels: self.cancels,
            other_controls: self.other_controls,
            supersedes: self.supersedes,
            path_hosts_mean: if self.paths == 0 { 0.0 } else { self.path_hosts as f64 / self.paths as f64 },
            dated: self.dated,
            broken: self.broken,
        }
    }
}

fn sizes(of: &Histogram<u64>) -> Sizes {
    if of.is_empty() {
        return Sizes::default();
    }
    Sizes {
        min: of.min(),
        p10: of.value_at_quantile(0.10),
        p50: of.value_at_quantile(0.50),
        mean: of.mean(),
        p90: of.value_at_quantile(0.90),
        p99: of.value_at_quantile(0.99),
        max: of.max(),
    }
}
