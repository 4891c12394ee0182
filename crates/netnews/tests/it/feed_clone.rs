//! Cloning: as many articles again, every id another one, nothing else changed.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::sync::atomic::AtomicBool;

use crate::real::usenet_1993;
use crate::scratch::scratch;
use netnews::article::Article;
use netnews::feed::import::{ImportConfig, import};
use netnews::feed::synthesize::{SynthesisConfig, synthesize};
use netnews::feed::{Feed, Watch, clone, stat};

fn with_watch<T>(work: impl FnOnce(&mut Watch<'_>) -> T) -> T {
    let stop = AtomicBool::new(false);
    work(&mut Watch { progress: &mut |_| {}, stop: &stop })
}

fn each(feed: &Feed, mut take: impl FnMut(&Article<'_>)) {
    for batch in feed.batches() {
        let mut reader = batch.open().expect("a batch");
        while let Some(bytes) = reader.next().expect("counts that lead to the next article") {
            take(&Article::parse(bytes).expect("an article"));
        }
    }
}

#[test]
fn two_clones_make_three_times_the_articles_and_no_id_comes_oftener_than_before() {
    let dir = scratch();
    let config = SynthesisConfig::new(NonZeroU64::new(3_000).expect("not 0"), 5);
    let feed = with_watch(|watch| synthesize(&config, &dir.path().join("feed"), watch)).expect("a feed").feed;
    let cloned = with_watch(|watch| clone(&feed, 2, &dir.path().join("x3"), true, watch)).expect("a clone");
    assert_eq!((cloned.feed.articles(), cloned.feed.batch_count()), (9_000, 3 * feed.batch_count()));
    assert_eq!((cloned.numbers, cloned.feed.manifest().clone_number_max), ((1, 2), 2));
    let (one, three) =
        with_watch(|watch| (stat(&feed, watch).expect("1"), stat(&cloned.feed, watch).expect("3")));
    assert_eq!(three.duplicates, 3 * one.duplicates);
    assert_eq!((three.cancels, three.supersedes), (3 * one.cancels, 3 * one.supersedes));
    assert_eq!(three.cross_posted, 3 * one.cross_posted);
    // Every cancel of a copy names an id of that copy.
    let mut ids = HashSet::new();
    each(&cloned.feed, |article| {
        ids.insert(article.message_id().to_vec());
        if let Some(target) = article.control_cancel().or(article.supersedes()) {
            assert!(ids.contains(target), "{}", String::from_utf8_lossy(target));
        }
    });
    assert_eq!(ids.len() as u64, 9_000 - three.duplicates);
    // And cloning that goes on with other numbers.
    let more =
        with_watch(|watch| clone(&cloned.feed, 1, &dir.path().join("x6"), false, watch)).expect("a clone");
    assert_eq!((more.numbers, more.feed.manifest().duplicates), ((3, 3), 6 * one.duplicates));
}

#[test]
#[ignore = "real articles are not in the repository; make test-real"]
fn real_articles_change_in_their_ids_alone() {
    let dir = scratch();
    let source = usenet_1993(dir.path());
    let imported = with_watch(|watch| import(&ImportConfig::new(&source), &dir.path().join("feed"), watch));
    let feed = imported.expect("an import").feed;
    let cloned = with_watch(|watch| clone(&feed, 1, &dir.path().join("x2"), false, watch)).expect("a clone");
    assert_eq!(cloned.feed.articles(), 20_000);
    let mut originals = vec![];
    each(&feed, |article| originals.push(article.bytes().to_vec()));
    let mut at = 0;
    each(&cloned.feed, |article| {
        let original = &originals[at % originals.len()];
        if at < originals.len() {
            assert!(article.bytes() == original, "the original comes first and as it was");
        } else {
            let id = Article::parse(original).expect("an article").message_id().to_vec();
            assert_ne!(article.message_id(), id);
            assert_eq!(article.message_id(), [&id[..id.len() - 1], b"=1>"].concat());
            let ids = 1 + usize::from(article.supersedes().is_some());
            assert_eq!(article.bytes().len(), original.len() + 2 * ids);
            assert!(article.body() == Article::parse(original).expect("an article").body());
        }
        at += 1;
    });
    assert!(cloned.feed.bytes() >= 2 * feed.bytes() + 20_000);
}
