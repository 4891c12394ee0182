//! Ten thousand real articles of 1993 stored, expired, batched and verified byte by byte.

use std::sync::atomic::AtomicBool;

use crate::spool_scene::{Scene, assert_right, config, run};
use netnews::feed::Watch;
use netnews::feed::import::{ImportConfig, import};
use netnews::spool::{Keep, NetnewsConfig, Storage};

#[test]
#[ignore = "real articles are not in the repository; make test-real"]
fn real_articles_are_stored_with_their_bytes_and_every_duplicate_is_refused() {
    let scene = Scene::new();
    let unpacked = scene.path("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    let articles = crate::real::usenet_1993(&unpacked);
    let stop = AtomicBool::new(false);
    let mut watch = Watch { progress: &mut |_| {}, stop: &stop };
    let feed = import(&ImportConfig::new(articles), &scene.path("feed"), &mut watch).unwrap().feed;
    let storage = Storage {
        places: vec![("talk.*".parse().unwrap(), scene.fs("talk"))],
        ..Storage::of(scene.fs("target"))
    };
    let per_pass = std::num::NonZeroU64::new(feed.batch_count() / 3);
    let config = NetnewsConfig { batches_per_pass: per_pass, ..config(3, 2, Keep::Keep) };
    let outcome = run(&config, &storage, &feed);
    let counts = outcome.part.counts;
    assert!(counts.unbatch.stored > 9_000, "{counts:?}");
    assert_eq!(
        counts.unbatch.offered,
        counts.unbatch.stored + counts.unbatch.duplicates + counts.unbatch.broken
    );
    // A cross-post that was seen in two groups is in the set twice.
    assert!(counts.unbatch.duplicates > 50, "{counts:?}");
    assert!(counts.store.hard_links > 3_000 && counts.store.symlinks > 500, "{counts:?}");
    assert!(counts.expire.articles > 3_000 && counts.batch.articles > 3_000, "{counts:?}");
    let verified = assert_right(&storage, &feed);
    assert_eq!(verified.compared, verified.articles);
    assert_eq!(
        verified.articles + counts.expire.articles + counts.unbatch.cancelled + counts.unbatch.superseded,
        counts.unbatch.stored
    );
}
