//! Articles beyond the usual bound, from the import to a verified spool.

use std::num::NonZeroU32;
use std::sync::atomic::AtomicBool;

use crate::spool_scene::{Scene, assert_right, config, phases, run};
use netnews::feed::import::{ImportConfig, import};
use netnews::feed::{Watch, clone, stat};
use netnews::spool::{Keep, NetnewsConfig, Storage};

/// Symptom: an article above 16 MiB that was let in with a larger bound was damage to clone, to stat and to a run. Cause: they
/// read with the usual bound. Fix: a feed says how large its largest article is.
#[test]
fn an_article_that_was_let_in_is_read_by_all_that_take_the_feed() {
    let scene = Scene::new();
    let source = scene.path("large");
    let line = "x".repeat(99) + "\n";
    let body = line.repeat((17 << 20) / line.len());
    std::fs::write(&source, format!("Newsgroups: alt.large\nMessage-ID: <1@h.example>\n\n{body}")).unwrap();
    let limits = ImportConfig { article_bytes_max: 64 << 20, ..ImportConfig::new(&source) };
    let stop = AtomicBool::new(false);
    let mut quiet = |_| {};
    let mut watch = Watch { progress: &mut quiet, stop: &stop };
    let feed = import(&limits, &scene.path("feed"), &mut watch).unwrap().feed;
    let cloned = clone(&feed, 1, &scene.path("cloned"), false, &mut watch).unwrap().feed;
    assert_eq!(cloned.articles(), 2);
    let read = stat(&cloned, &mut watch).unwrap();
    assert_eq!((read.articles, read.broken.len()), (2, 0));
    assert!(read.article_bytes.max >= feed.bytes(), "{read:?}");
    let storage = Storage::of(scene.fs("target"));
    let config = NetnewsConfig { batch_every: NonZeroU32::new(2), ..config(2, 2, Keep::Keep) };
    let outcome = run(&config, &storage, &cloned);
    assert_eq!((outcome.part.counts.unbatch.stored, outcome.part.counts.damaged), (2, 0));
    let batched = &phases(&outcome, "batch")[0];
    assert!(batched.bytes > feed.bytes(), "{batched:?}");
    assert_right(&storage, &cloned);
}
