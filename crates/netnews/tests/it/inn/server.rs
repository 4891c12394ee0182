//! The feed's batches and our outgoing ones through `rnews` into a running innd, and its counts beside ours.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use netnews::feed::Watch;
use netnews::feed::import::{ImportConfig, import};
use netnews::spool::{BatchSink, Keep, NetnewsConfig, Storage};
use testkit::{Inn, InnRecord};

use crate::real;
use crate::spool_scene::{assert_right, config, run};

/// Has rnews offer every batch of a directory, in order; it says nothing but what is refused.
fn offer(inn: &Inn, batches: &Path) {
    let mut paths: Vec<_> = fs::read_dir(batches).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "rnews"));
    paths.sort();
    for path in paths {
        assert_eq!(inn.rnews(&path).unwrap(), "", "{}", path.display());
    }
}

/// Our history: the ids that have files.
fn ids_with_files(history: &Path) -> BTreeSet<String> {
    let text = fs::read(history).unwrap();
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    // A later line takes the place of an earlier one.
    let last: BTreeMap<String, bool> =
        lines.map(|fields| (fields[0].to_owned(), fields.len() == 3)).collect();
    last.into_iter().filter_map(|(id, has_files)| has_files.then_some(id)).collect()
}

fn explained(record: &InnRecord) -> String {
    format!(
        "innd: {} accepted, {} cancelled, refused {:#?}",
        record.accepted, record.cancelled, record.refused
    )
}

#[test]
fn innd_stores_as_many_articles_of_a_feed_as_we_do_and_leaves_as_many_after_cancels() {
    let scene = super::open_scene();
    let feed = super::synthetic(4_000, 7, &scene.path("feed"));
    let storage = Storage::of(scene.fs("target"));
    let outcome = run(&config(1, 9, Keep::Keep), &storage, &feed);
    let counts = outcome.part.counts.unbatch;
    assert!(counts.cancelled > 5 && counts.superseded > 1 && counts.duplicates > 20, "{counts:?}");
    let verified = assert_right(&storage, &feed);
    let groups = super::groups_of(&scene.path("target/crumb-netnews-s/lib/active"));
    let Some(inn) = testkit::need(Inn::start_in(&scene.path(""), &groups)) else { return };
    offer(&inn, feed.path());
    let record = inn.stop().unwrap();
    assert_eq!(record.accepted, counts.stored, "{}", explained(&record));
    assert_eq!(record.articles, verified.articles, "{}", explained(&record));
}

#[test]
fn innd_takes_every_article_of_our_outgoing_batches() {
    let scene = super::open_scene();
    let feed = super::synthetic(3_000, 8, &scene.path("feed"));
    let storage = Storage::of(scene.fs("target"));
    let out = scene.path("out");
    let config = NetnewsConfig {
        batch_every: std::num::NonZeroU32::new(2),
        batches_to: BatchSink::Folder(out.clone()),
        ..config(2, 9, Keep::Keep)
    };
    let outcome = run(&config, &storage, &feed);
    let batched = outcome.part.counts.batch.articles;
    assert!(batched > 1_000);
    let groups = super::groups_of(&scene.path("target/crumb-netnews-s/lib/active"));
    let Some(inn) = testkit::need(Inn::start_in(&scene.path(""), &groups)) else { return };
    offer(&inn, &out);
    let record = inn.stop().unwrap();
    assert_eq!(record.accepted, batched, "{}", explained(&record));
    assert_eq!((record.refused.len(), record.history_articles), (0, batched), "{}", explained(&record));
}

#[test]
#[ignore = "real articles are not in the repository; make test-real"]
fn of_real_articles_innd_stores_all_that_we_store_but_those_with_two_at_signs_in_their_id() {
    let scene = super::open_scene();
    let unpacked = scene.path("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let articles = real::usenet_1993(&unpacked);
    let stop = AtomicBool::new(false);
    let mut watch = Watch { progress: &mut |_| {}, stop: &stop };
    let feed = import(&ImportConfig::new(articles), &scene.path("feed"), &mut watch).unwrap().feed;
    let storage = Storage::of(scene.fs("target"));
    let outcome = run(&config(1, 9, Keep::Keep), &storage, &feed);
    let counts = outcome.part.counts.unbatch;
    assert!(counts.stored > 9_000 && counts.cancelled == 0, "{counts:?}");
    let lib = scene.path("target/crumb-netnews-s/lib");
    let Some(inn) = testkit::need(Inn::start_in(&scene.path(""), &super::groups_of(&lib.join("active"))))
    else {
        return;
    };
    offer(&inn, feed.path());
    let record = inn.stop().unwrap();
    // INN answers 435 to an id with two `@`, and logs nothing. In 1993 such ids were made, and servers passed them on.
    let kept = ids_with_files(&lib.join("history"));
    let accepted: BTreeSet<&String> = record.accepted_ids.iter().collect();
    let only_ours: Vec<&String> = kept.iter().filter(|id| !accepted.contains(id)).collect();
    assert!(only_ours.iter().all(|id| id.matches('@').count() == 2), "{only_ours:?}");
    let malformed = only_ours.len() as u64;
    assert_eq!(kept.len() as u64, counts.stored - counts.superseded);
    assert_eq!(
        record.accepted + malformed,
        counts.stored,
        "{only_ours:?}; {counts:?}; {}",
        explained(&record)
    );
    assert_eq!(record.cancelled, counts.superseded + counts.removed_ahead, "{}", explained(&record));
    assert_eq!(record.articles + malformed, kept.len() as u64, "{}", explained(&record));
    assert_eq!((record.refused.len(), record.junked), (0, 0), "{}", explained(&record));
}
