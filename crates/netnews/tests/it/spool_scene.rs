//! A folder in memory, a small feed with everything in it, and runs over it.

#![allow(dead_code, reason = "every test binary takes what it needs")]

use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use files::LocalFs;
use harness::{Benchmark as _, Figures, Surroundings};
use measure::Phase;
use netnews::Netnews;
use netnews::feed::{Feed, FeedShape, FeedWriter, Origin};
use netnews::spool::{self, Event, Keep, NetnewsConfig, Outcome, Storage, Verified};
use tempfile::TempDir;

/// The folder.
pub struct Scene {
    folder: TempDir,
}

impl Scene {
    pub fn new() -> Self {
        let builder = || {
            let mut builder = tempfile::Builder::new();
            builder.prefix("crumb-spool-test");
            builder
        };
        let folder = builder().tempdir_in("/dev/shm").or_else(|_| builder().tempdir()).unwrap();
        Self { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A directory in it as storage.
    pub fn fs(&self, name: &str) -> Arc<LocalFs> {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        Arc::new(LocalFs::open(path).unwrap())
    }

    /// A feed of made-up articles, the same for the same numbers.
    pub fn feed(&self, articles: u64, batch_articles: u64) -> Feed {
        let shape = FeedShape { batch_articles: NonZeroU64::new(batch_articles).unwrap(), packed: false };
        let mut writer = FeedWriter::create(self.path("feed"), shape).unwrap();
        for number in 0..articles {
            let (id, text) = article(number);
            writer.write(id.as_bytes(), text.as_bytes()).unwrap();
        }
        writer.finish(Origin::Import { source: "made up".to_owned(), broken: Default::default() }, 0).unwrap()
    }
}

/// Article `number`: one in 3 cross-posted, one in 17 a cancel of one before, one in 19 superseding, one in 13 a
/// duplicate, one in 23 cancelling an article that is yet to come, one in 29 broken.
pub fn article(number: u64) -> (String, String) {
    if number % 13 == 12 {
        return article(number - 5);
    }
    if number % 29 == 28 {
        return (format!("<broken-{number}@h.example>"), "Subject: nothing else\n\nx\n".to_owned());
    }
    let id = format!("<{number}@h.example>");
    let first = number * 7 % 5;
    let mut groups = format!("alt.fan.g{first}");
    if number.is_multiple_of(3) {
        groups.push_str(&format!(",comp.os.h{},alt.fan.g{first}", number % 4));
    }
    if number.is_multiple_of(6) {
        groups.push_str(",rec.misc");
    }
    let mut head = format!("Xref: elsewhere x:1\nPath: a!b!c\nNewsgroups: {groups}\nMessage-ID: {id}\n");
    if number % 17 == 16 {
        head.push_str(&format!("Control: cancel <{}@h.example>\n", number - 9));
    } else if number % 23 == 22 {
        head.push_str(&format!("Control: cancel <{}@h.example>\n", number + 3));
    } else if number % 19 == 18 {
        head.push_str(&format!("Supersedes: <{}@h.example>\n", number - 4));
    }
    head.push_str("Date: Tue, 1 Aug 1995 12:00:00 GMT\nSubject: s\n\n");
    let body = format!("line {number}\n").repeat(1 + (number % 50) as usize);
    (id, head + &body)
}

/// A run of `passes` on a spool called `s`.
pub fn config(passes: u32, retention: u32, keep: Keep) -> NetnewsConfig {
    NetnewsConfig {
        passes: NonZeroU32::new(passes).unwrap(),
        retention: NonZeroU32::new(retention).unwrap(),
        keep,
        ..NetnewsConfig::paper("s")
    }
}

/// Runs, and wants no error.
pub fn run(config: &NetnewsConfig, storage: &Storage, feed: &Feed) -> Outcome {
    let outcome = run_until(config, storage, feed, &AtomicBool::new(false), &mut |_| {});
    assert!(outcome.error.is_none(), "{:?}", outcome.error);
    outcome
}

/// What a record says of a run.
pub fn figures(config: &NetnewsConfig, outcome: &Outcome) -> Figures {
    Netnews { config: config.clone() }.figures(&outcome.part, &Surroundings::default())
}

/// The phases of a name, as a record has them.
pub fn phases(outcome: &Outcome, name: &str) -> Vec<Phase> {
    let phases = outcome.part.recorded_phases().into_iter();
    phases.filter(|phase| phase.name == name).collect()
}

/// Runs with a stop flag.
pub fn run_until(
    config: &NetnewsConfig,
    storage: &Storage,
    feed: &Feed,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Event),
) -> Outcome {
    spool::run(config, storage, feed, stop, tell)
}

/// Verifies against the feed.
pub fn verified(storage: &Storage, feed: Option<&Feed>) -> Verified {
    spool::verify(storage, "s", feed, &AtomicBool::new(false), &mut |_, _| {}).unwrap()
}

/// Nothing wrong with it.
pub fn assert_right(storage: &Storage, feed: &Feed) -> Verified {
    let with_feed = verified(storage, Some(feed));
    assert!(with_feed.is_right(), "{:#?}", with_feed.findings);
    let without = verified(storage, None);
    assert!(without.is_right(), "{:#?}", without.findings);
    with_feed
}

/// Every file below a directory with its bytes, or what its symbolic link holds; names relative to it.
pub fn files_below(directory: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    let mut todo = vec![directory.to_owned()];
    while let Some(at) = todo.pop() {
        for entry in std::fs::read_dir(&at).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                todo.push(path);
                continue;
            }
            let bytes = if kind.is_symlink() {
                std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                std::fs::read(&path).unwrap()
            };
            let name = path.strip_prefix(directory).unwrap().to_string_lossy().into_owned();
            found.insert(name, bytes);
        }
    }
    found
}
