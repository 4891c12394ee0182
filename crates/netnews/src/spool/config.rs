//! The configuration of a run.

use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

use super::batcher::BatchSink;
use super::expire::Removal;
use super::history::index::HistoryIndex;
use crate::spool::unbatch::storing::LinkKind;

/// Whether the run creates the spool, and what happens to it at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Created by the run, and removed at its end, however it ends.
    #[default]
    Remove,
    /// Created by the run, and kept.
    Keep,
    /// Continued from an earlier run with `Keep`, and kept.
    Resume,
}

/// When stored articles must be durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncWhen {
    /// Whenever the storage writes them back, as in INN and C News. The end of a pass flushes the rest, and times it.
    #[default]
    None,
    /// Each article's file before it is closed, and everything else at the end of its batch.
    Article,
    /// Everything in a batch at its end.
    Batch,
}

impl SyncWhen {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Article => "article",
            Self::Batch => "batch",
        }
    }
}

impl FromStr for SyncWhen {
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, measure::ValueError> {
        match text {
            "none" => Ok(Self::None),
            "article" => Ok(Self::Article),
            "batch" => Ok(Self::Batch),
            _ => Err("expected none, article or batch".into()),
        }
    }
}

/// A run of passes. Its field types leave nothing to check but that the feed has a batch for each pass. As JSON the fields of a
/// record's configuration.
#[derive(Clone, Debug, Serialize)]
#[serde(into = "Fields")]
pub struct NetnewsConfig {
    /// The spool's name: it lies in `crumb-netnews-NAME`.
    pub name: String,
    /// Passes. Default 14, as in the paper: a week, two expiries a day.
    pub passes: NonZeroU32,
    /// Passes that articles are kept. Default 6, as in the paper: three days. The first expiry is at the end of the
    /// pass after.
    pub retention: NonZeroU32,
    /// Batch in every such pass; none: never. Default 3, as in the paper.
    pub batch_every: Option<NonZeroU32>,
    /// Batches of the feed a pass, of which the last may have fewer; none: all of the feed, spread evenly.
    pub batches_per_pass: Option<NonZeroU64>,
    /// Passes that ids are remembered after their articles arrived. Default 28: two weeks, as INN's `/remember/:14`.
    pub remember: NonZeroU32,
    /// How expired files are deleted. Default fastrm, what INN has; the paper's figures are by dumbrm.
    pub removal: Removal,
    /// How cross-posts get their other names.
    pub link: LinkKind,
    /// Where ids are looked up. Default memory; in the paper it was the file, as its figure 6 shows.
    pub history_index: HistoryIndex,
    /// When stored articles must be durable. Default: whenever the storage writes them back.
    pub sync: SyncWhen,
    /// Drop the kernel's caches before each batching and each expiry, and prove that they are empty.
    pub cold: bool,
    /// Threads that read at random during unbatch. Default none, as in the paper.
    pub readers: u32,
    /// Seed of what the readers pick.
    pub seed: u64,
    /// The host name put in front of `Path:` and into `Xref:`.
    pub host: String,
    /// Bytes after which an outgoing batch ends; 0: one batch. Default 60,000, as batcher(8).
    pub batch_bytes: u64,
    /// Where outgoing batches go.
    pub batches_to: BatchSink,
    /// End the run early after this time; none: never.
    pub time_limit: Option<Duration>,
    /// Whether the spool is created, and kept.
    pub keep: Keep,
}

/// By the names in records.
#[derive(Serialize)]
struct Fields {
    passes: NonZeroU32,
    retention_passes: NonZeroU32,
    batch_every_passes: Option<NonZeroU32>,
    batches_per_pass: Option<NonZeroU64>,
    rm: &'static str,
    link: &'static str,
    readers: u32,
    sync: &'static str,
    cold: bool,
    history_index: &'static str,
}

impl From<NetnewsConfig> for Fields {
    fn from(config: NetnewsConfig) -> Self {
        Self {
            passes: config.passes,
            retention_passes: config.retention,
            batch_every_passes: config.batch_every,
            batches_per_pass: config.batches_per_pass,
            rm: config.removal.name(),
            link: config.link.name(),
            readers: config.readers,
            sync: config.sync.name(),
            cold: config.cold,
            history_index: config.history_index.name(),
        }
    }
}

impl NetnewsConfig {
    /// The paper's run on a spool of this name.
    pub fn paper(name: impl Into<String>) -> Self {
        let number = |number| NonZeroU32::new(number).expect("not 0");
        Self {
            name: name.into(),
            passes: number(14),
            retention: number(6),
            batch_every: Some(number(3)),
            batches_per_pass: None,
            remember: number(28),
            removal: Removal::default(),
            link: LinkKind::default(),
            history_index: HistoryIndex::default(),
            sync: SyncWhen::default(),
            cold: false,
            readers: 0,
            seed: 1,
            host: "news.crumb.example".to_owned(),
            batch_bytes: 60_000,
            batches_to: BatchSink::default(),
            time_limit: None,
            keep: Keep::default(),
        }
    }

    /// Bytes of articles that are there at once, at least, of a feed of `feed_bytes`: the passes that are kept together with
    /// the one under way. One in ten articles is a duplicate, a cancel or is cancelled.
    pub fn bytes_at_once(&self, feed_bytes: u64) -> u64 {
        let passes = u64::from(self.passes.get());
        let at_once = (u64::from(self.retention.get()) + 1).min(passes);
        let bytes = u128::from(feed_bytes) * u128::from(at_once * 9) / u128::from(passes * 10);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Whether any pass deletes what an earlier one stored.
    pub fn expires(&self) -> bool {
        self.passes > self.retention
    }

    /// What rank `rank` of several does: on a spool of its own name, with outgoing batches in a folder of its own.
    pub(crate) fn of_rank(&self, own_name: String, rank: u32) -> Self {
        let mut own = Self { name: own_name, ..self.clone() };
        if let BatchSink::Folder(folder) = &mut own.batches_to {
            folder.push(format!("rank-{rank}"));
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_has_half_of_its_articles_there_at_once_and_a_run_of_fewer_passes_than_are_kept_all() {
        let week = NetnewsConfig::paper("x");
        // 7 of 14 passes, less a tenth.
        assert_eq!(week.bytes_at_once(1000), 450);
        let short = NetnewsConfig { passes: NonZeroU32::new(2).unwrap(), ..week.clone() };
        assert_eq!((short.bytes_at_once(1000), short.bytes_at_once(u64::MAX) > 1 << 60), (900, true));
        assert!(week.expires() && !short.expires());
    }

    #[test]
    fn ranks_write_their_batches_into_folders_of_their_own() {
        let batches_to = BatchSink::Folder("out".into());
        let own = NetnewsConfig { batches_to, ..NetnewsConfig::paper("x") }.of_rank("x-r1".to_owned(), 1);
        assert_eq!(own.name, "x-r1");
        assert!(matches!(own.batches_to, BatchSink::Folder(path) if path.ends_with("out/rank-1")));
    }

    #[test]
    fn a_record_has_the_settings_by_the_names_that_it_always_had() {
        let json = serde_json::to_value(NetnewsConfig::paper("x")).unwrap();
        assert_eq!(json["retention_passes"], 6);
        assert_eq!((&json["rm"], &json["history_index"]), (&"fastrm".into(), &"memory".into()));
    }
}
