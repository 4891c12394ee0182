//! Whole runs: what is stored, expired, batched, kept, resumed and removed.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::spool_scene::{
    Scene, assert_right, config, figures, files_below, phases, run, run_until, verified,
};
use netnews::NetnewsError;
use netnews::article::Article;
use netnews::batch::BatchReader;
use netnews::feed::{FeedShape, FeedWriter, Origin};
use netnews::spool::{
    self, BatchSink, Event, FindingKind, HistoryIndex, Keep, LinkKind, NetnewsConfig, Removal, Storage, Work,
};

#[test]
fn a_kept_spool_is_right_line_by_line_and_byte_by_byte() {
    let scene = Scene::new();
    let feed = scene.feed(600, 10);
    let storage = Storage::of(scene.fs("target"));
    let outcome = run(&config(5, 2, Keep::Keep), &storage, &feed);
    assert!(outcome.part.is_complete());
    let counts = outcome.part.counts.unbatch;
    assert_eq!(counts.offered, 600);
    assert_eq!(counts.offered, counts.stored + counts.duplicates + counts.broken);
    assert!(counts.duplicates >= 40 && counts.cancelled > 10 && counts.superseded > 10, "{counts:?}");
    assert!(counts.removed_ahead > 5 && counts.broken > 10, "{counts:?}");
    assert!(outcome.part.counts.store.hard_links > 100 && outcome.part.counts.store.symlinks == 0);
    let verified = assert_right(&storage, &feed);
    // Expiry is first at the end of pass 3; passes 4 and 5 are left.
    assert_eq!(
        outcome.part.counts.expire.articles + verified.articles + counts.cancelled + counts.superseded,
        counts.stored
    );
    assert_eq!(verified.compared, verified.articles);
    let recorded = outcome.part.recorded_phases();
    let names: Vec<(&str, u32)> = recorded
        .iter()
        .map(|phase| (phase.name.as_str(), phase.pass))
        .filter(|(name, _)| !matches!(*name, "expire-scan" | "flush"))
        .collect();
    let expected = [
        ("unbatch", 1),
        ("unbatch", 2),
        ("unbatch", 3),
        ("batch", 3),
        ("expire", 3),
        ("unbatch", 4),
        ("expire", 4),
        ("unbatch", 5),
        ("expire", 5),
    ];
    assert_eq!(names, expected);
    let figures = figures(&config(5, 2, Keep::Keep), &outcome);
    assert!(figures.metrics.contains_key("ageing_percent") && figures.curves.len() == 3);
}

#[test]
fn a_run_without_keep_leaves_nothing_also_when_it_is_stopped_in_the_middle() {
    let scene = Scene::new();
    let feed = scene.feed(300, 10);
    let storage = Storage {
        history: Some(scene.fs("history")),
        places: vec![("comp.*".parse().unwrap(), scene.fs("disk2"))],
        ..Storage::of(scene.fs("target"))
    };
    run(&config(3, 1, Keep::Remove), &storage, &feed);
    let stop = AtomicBool::new(false);
    let mut steps = 0;
    let outcome = run_until(&config(3, 1, Keep::Remove), &storage, &feed, &stop, &mut |event| {
        steps += u32::from(matches!(event, Event::Step { .. }));
        stop.store(steps > 7, Ordering::Relaxed);
    });
    assert!(!outcome.part.is_complete() && outcome.error.is_none());
    assert!(phases(&outcome, "unbatch").iter().any(|phase| phase.items > 0));
    let verdict = figures(&config(3, 1, Keep::Remove), &outcome).verdict;
    assert!(!verdict.valid && verdict.has("interrupted"), "{verdict:?}");
    for part in ["target", "history", "disk2"] {
        assert_eq!(std::fs::read_dir(scene.path(part)).unwrap().count(), 0, "{part}");
    }
}

#[test]
fn places_hold_their_hierarchies_cross_posts_lead_there_and_all_expires() {
    let scene = Scene::new();
    let feed = scene.feed(400, 10);
    let storage = Storage {
        history: Some(scene.fs("history")),
        places: vec![
            ("comp.*".parse().unwrap(), scene.fs("disk2")),
            ("rec.misc".parse().unwrap(), scene.fs("disk3")),
        ],
        ..Storage::of(scene.fs("target"))
    };
    for removal in [Removal::Dumbrm, Removal::Fastrm] {
        let config = NetnewsConfig { removal, ..config(4, 1, Keep::Keep) };
        let outcome = run(&config, &storage, &feed);
        assert!(outcome.part.counts.store.symlinks > 50, "{:?}", outcome.part.counts.store);
        assert_eq!(outcome.part.counts.store.links_refused, 0);
        assert_right(&storage, &feed);
        assert!(scene.path("disk2/crumb-netnews-s/articles/comp/os/h0").is_dir());
        assert!(!scene.path("target/crumb-netnews-s/articles/comp").exists());
        assert!(scene.path("history/crumb-netnews-s/lib/history.pag").is_file());
        assert!(!scene.path("target/crumb-netnews-s/lib").exists());
        for part in ["target", "history", "disk2", "disk3"] {
            std::fs::remove_dir_all(scene.path(part).join("crumb-netnews-s")).unwrap();
        }
    }
}

#[test]
fn a_run_stopped_anywhere_and_resumed_ends_in_the_same_spool_as_one_that_was_not() {
    let scene = Scene::new();
    let feed = scene.feed(300, 10);
    let whole = Storage::of(scene.fs("whole"));
    run(&config(5, 2, Keep::Keep), &whole, &feed);
    let articles = |name: &str| files_below(&scene.path(name).join("crumb-netnews-s/articles"));
    let history = |name: &str| std::fs::read(scene.path(name).join("crumb-netnews-s/lib/history")).unwrap();
    for stop_after in [1, 4, 9, 16, 20, 23, 27, 31] {
        let part = Storage::of(scene.fs("part"));
        let stop = AtomicBool::new(false);
        let mut steps = 0;
        let first = run_until(&config(5, 2, Keep::Keep), &part, &feed, &stop, &mut |event| {
            steps += u32::from(matches!(event, Event::Step { .. }));
            stop.store(steps >= stop_after, Ordering::Relaxed);
        });
        assert!(first.error.is_none() && !first.part.is_complete(), "{stop_after}");
        let second = run(&config(5, 2, Keep::Resume), &part, &feed);
        assert!(second.part.is_complete());
        assert_right(&part, &feed);
        assert_eq!(articles("part"), articles("whole"), "stopped after {stop_after} steps");
        assert_eq!(history("part"), history("whole"), "stopped after {stop_after} steps");
        let passes = |outcome: &netnews::spool::Outcome| -> Vec<u32> {
            phases(outcome, "unbatch").iter().map(|phase| phase.pass).collect()
        };
        let is_resumed = |outcome| figures(&config(5, 2, Keep::Resume), outcome).verdict.has("resumed");
        assert_eq!(passes(&second), [1, 2, 3, 4, 5], "stopped after {stop_after} steps");
        assert_eq!(
            is_resumed(&second),
            second.part.phases.iter().any(|phase| phase.earlier),
            "stopped after {stop_after} steps"
        );
        assert!(!second.part.had_nothing_left());
        let third = run(&config(5, 2, Keep::Resume), &part, &feed);
        assert!(third.part.had_nothing_left() && is_resumed(&third));
        std::fs::remove_dir_all(scene.path("part")).unwrap();
    }
}

#[test]
fn resuming_with_another_feed_or_other_places_is_refused_before_anything_is_touched() {
    let scene = Scene::new();
    let feed = scene.feed(100, 10);
    let storage = Storage::of(scene.fs("target"));
    run(&config(2, 2, Keep::Keep), &storage, &feed);
    let before = files_below(&scene.path("target"));
    let refused = |storage: &Storage, config: &NetnewsConfig, feed: &netnews::feed::Feed| {
        let outcome = run_until(config, storage, feed, &AtomicBool::new(false), &mut |_| {});
        outcome.error.expect("refused").to_string()
    };
    let other = Scene::new();
    let text = refused(&storage, &config(2, 2, Keep::Resume), &other.feed(110, 10));
    assert!(text.contains("100 articles") && text.contains("110 articles"), "{text}");
    let elsewhere = Storage { history: Some(scene.fs("history")), ..storage.clone() };
    assert!(refused(&elsewhere, &config(2, 2, Keep::Resume), &feed).contains("history on"));
    assert!(refused(&storage, &config(2, 2, Keep::Keep), &feed).contains("there is a spool named s"));
    assert!(
        refused(&storage, &config(11, 2, Keep::Keep), &feed).contains("10 batches, too few for 11 passes")
    );
    let missing = NetnewsConfig { name: "t".to_owned(), ..config(2, 2, Keep::Resume) };
    assert!(refused(&storage, &missing, &feed).contains("no spool named t"));
    let after = files_below(&scene.path("target"));
    assert!(before == after, "{:?} became {:?}", before.keys(), after.keys());
}

#[test]
fn batches_written_are_the_articles_of_the_pass_before_as_they_are_stored() {
    let scene = Scene::new();
    let feed = scene.feed(300, 10);
    let storage = Storage::of(scene.fs("target"));
    let config = NetnewsConfig {
        batches_to: BatchSink::Folder(scene.path("batches")),
        batch_bytes: 5000,
        batch_every: NonZeroU32::new(2),
        ..config(4, 4, Keep::Keep)
    };
    let outcome = run(&config, &storage, &feed);
    let mut articles = 0;
    let names = files_below(&scene.path("batches"));
    for (name, bytes) in &names {
        assert!(name.starts_with("001-") || name.starts_with("003-"), "{name}");
        let mut reader = BatchReader::new(&bytes[..]);
        while let Some(article) = reader.next().unwrap() {
            let article = Article::parse(article).unwrap();
            assert!(article.path().unwrap().value.starts_with(b"news.crumb.example!"));
            assert!(article.xref().unwrap().value.starts_with(b"news.crumb.example "));
            articles += 1;
        }
    }
    assert_eq!(articles, outcome.part.counts.batch.articles);
    assert_eq!(names.len() as u64, outcome.part.counts.batch.batches);
    assert!(names.len() > 5 && outcome.part.counts.batch.missing > 0, "{:?}", outcome.part.counts.batch);
}

#[test]
fn readers_read_whole_articles_while_others_come_in_and_find_nothing_wrong() {
    let scene = Scene::new();
    let feed = scene.feed(1200, 20);
    let storage = Storage::of(scene.fs("target"));
    let with_readers = NetnewsConfig { readers: 2, ..config(3, 1, Keep::Keep) };
    let outcome = run(&with_readers, &storage, &feed);
    let metrics = figures(&with_readers, &outcome).metrics;
    assert!(metrics["read_articles_per_sec"] > 0.0 && metrics["read_errors"] == 0.0, "{metrics:?}");
    assert!(metrics["read_latency_p99_us"] > 0.0);
    assert_right(&storage, &feed);
}

#[test]
fn symbolic_links_on_request_are_verified_as_such() {
    let scene = Scene::new();
    let feed = scene.feed(200, 10);
    let storage = Storage::of(scene.fs("target"));
    let outcome =
        run(&NetnewsConfig { link: LinkKind::Symlink, ..config(3, 1, Keep::Keep) }, &storage, &feed);
    assert!(outcome.part.counts.store.hard_links == 0 && outcome.part.counts.store.symlinks > 50);
    assert_right(&storage, &feed);
}

#[test]
fn going_on_with_the_index_elsewhere_is_told_and_the_spool_stays_right() {
    let scene = Scene::new();
    let feed = scene.feed(200, 10);
    let storage = Storage::of(scene.fs("target"));
    let part = NetnewsConfig { batches_per_pass: NonZeroU64::new(5), ..config(2, 2, Keep::Keep) };
    run(&part, &storage, &feed);
    let mut notes = Vec::new();
    for index in [HistoryIndex::Memory, HistoryIndex::File] {
        let on = NetnewsConfig {
            passes: NonZeroU32::new(4).unwrap(),
            keep: Keep::Resume,
            history_index: index,
            ..part.clone()
        };
        notes.clear();
        let outcome = run_until(&on, &storage, &feed, &AtomicBool::new(false), &mut |event| {
            if let Event::Note(text) = event {
                notes.push(text);
            }
        });
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        assert_eq!(notes.iter().any(|note| note.contains("in memory, those from here on in file")), {
            index == HistoryIndex::File
        });
    }
    assert!(verified(&storage, Some(&feed)).is_right());
}

#[test]
fn verify_finds_what_was_tampered_with_and_says_where() {
    let scene = Scene::new();
    let feed = scene.feed(200, 10);
    let storage = Storage::of(scene.fs("target"));
    run(&config(2, 2, Keep::Keep), &storage, &feed);
    let articles = scene.path("target/crumb-netnews-s/articles");
    let all = files_below(&articles);
    let linked = |name: &str| {
        std::os::unix::fs::MetadataExt::nlink(&std::fs::metadata(articles.join(name)).unwrap()) > 1
    };
    let alone: Vec<&String> = all.keys().filter(|name| !linked(name)).collect();
    let cross = all.keys().find(|name| name.starts_with("comp/") && linked(name)).unwrap();
    std::fs::remove_file(articles.join(alone[0])).unwrap();
    std::fs::write(articles.join(alone[1]), "Path: x\n\nother").unwrap();
    std::fs::write(articles.join("alt/fan/g1/9999"), "stray").unwrap();
    let bytes = std::fs::read(articles.join(cross)).unwrap();
    std::fs::remove_file(articles.join(cross)).unwrap();
    std::fs::write(articles.join(cross), bytes).unwrap();
    let active = scene.path("target/crumb-netnews-s/lib/active");
    let text = std::fs::read_to_string(&active).unwrap();
    let (head, line) = text.split_once("rec.misc ").unwrap();
    std::fs::write(&active, format!("{head}rec.misc 0000000001{}", &line[10..])).unwrap();
    let index = scene.path("target/crumb-netnews-s/lib/history.pag");
    let mut slots = std::fs::read(&index).unwrap();
    let used = (40..slots.len()).step_by(8).find(|at| slots[*at..at + 8] != [0; 8]).unwrap();
    slots[used] ^= 1;
    std::fs::write(&index, slots).unwrap();
    for feed in [Some(&feed), None] {
        let found = verified(&storage, feed);
        let count = |kind| found.counts.get(&kind).copied().unwrap_or(0);
        assert_eq!(count(FindingKind::Missing), 1, "{:#?}", found.findings);
        assert_eq!(
            (count(FindingKind::WrongContent), count(FindingKind::Stray)),
            (1, 1),
            "{:#?}",
            found.findings
        );
        assert!(
            count(FindingKind::NotLinked) == 1 && count(FindingKind::WrongLinks) == 1,
            "{:#?}",
            found.findings
        );
        assert!(count(FindingKind::OutOfBounds) > 1, "{:#?}", found.findings);
        assert_eq!(count(FindingKind::BadIndex), 1, "{:#?}", found.findings);
        assert!(found.findings.iter().any(|finding| finding.text.contains(alone[0].as_str())));
    }
}

/// Symptom: a run that went on with a spool removed what another run stored in it meanwhile, and that one ended VALID.
/// Cause: nothing said that the spool was in use. Fix: the spool is locked as long as a process works on it.
#[test]
fn a_spool_that_is_being_worked_on_is_neither_gone_on_with_nor_begun_nor_verified() {
    let scene = Scene::new();
    let feed = scene.feed(300, 10);
    let storage = Storage::of(scene.fs("target"));
    let mut tried = 0;
    let stop = AtomicBool::new(false);
    let first = run_until(&config(3, 1, Keep::Keep), &storage, &feed, &stop, &mut |event| {
        if !matches!(event, Event::Step { work: Work::Unbatch, pass: 2, done: 3, .. }) {
            return;
        }
        for keep in [Keep::Resume, Keep::Keep, Keep::Remove] {
            let second = run_until(&config(3, 1, keep), &storage, &feed, &stop, &mut |_| {});
            let message = second.error.expect("refused").to_string();
            assert!(message.contains("another process works on spool s"), "{keep:?}: {message}");
            tried += 1;
        }
        let verified = spool::verify(&storage, "s", None, &stop, &mut |_, _| {});
        assert!(matches!(verified, Err(NetnewsError::SpoolBusy { .. })), "{verified:?}");
    });
    assert_eq!(tried, 3);
    assert!(first.part.is_complete() && first.error.is_none(), "{:?}", first.error);
    assert_right(&storage, &feed);
    // Free again, and still not to be written over.
    run(&config(3, 1, Keep::Resume), &storage, &feed);
    let again = run_until(&config(3, 1, Keep::Keep), &storage, &feed, &stop, &mut |_| {});
    assert!(matches!(again.error, Some(NetnewsError::SpoolExists { .. })), "{:?}", again.error);
}

#[test]
fn history_of_another_spool_is_not_written_over_and_one_killed_while_it_was_made_is_begun_again() {
    let scene = Scene::new();
    let feed = scene.feed(100, 10);
    let with = |target: &str| Storage { history: Some(scene.fs("history")), ..Storage::of(scene.fs(target)) };
    run(&config(2, 1, Keep::Keep), &with("one"), &feed);
    let stop = AtomicBool::new(false);
    let second = run_until(&config(2, 1, Keep::Keep), &with("two"), &feed, &stop, &mut |_| {});
    let message = second.error.expect("refused").to_string();
    assert!(message.contains("history: there is a spool named s"), "{message}");
    assert_right(&with("one"), &feed);

    let killed = Storage::of(scene.fs("killed"));
    std::fs::create_dir_all(scene.path("killed/crumb-netnews-s/articles")).unwrap();
    let resumed = run_until(&config(2, 1, Keep::Resume), &killed, &feed, &stop, &mut |_| {});
    assert!(matches!(resumed.error, Some(NetnewsError::NoSpool { .. })), "{:?}", resumed.error);
    run(&config(2, 1, Keep::Keep), &killed, &feed);
    assert_right(&killed, &feed);

    // What a user put there is no spool, and stays.
    std::fs::create_dir_all(scene.path("users/crumb-netnews-s")).unwrap();
    std::fs::write(scene.path("users/crumb-netnews-s/notes"), "mine").unwrap();
    let users =
        run_until(&config(2, 1, Keep::Remove), &Storage::of(scene.fs("users")), &feed, &stop, &mut |_| {});
    assert!(matches!(users.error, Some(NetnewsError::SpoolExists { .. })), "{:?}", users.error);
    assert_eq!(files_below(&scene.path("users")).len(), 1);
}

/// Symptom: a right spool with two hierarchies on one disk was called WRONG, had symbolic links where hard ones do, and lost
/// its articles to a recovery. Cause: each rule was a place of its own, and each took the files of the other for strays.
#[test]
fn two_hierarchies_in_one_directory_are_one_place_also_to_verify_and_to_recover() {
    let scene = Scene::new();
    let feed = scene.feed(400, 10);
    let storage = || Storage {
        places: vec![
            ("alt.*".parse().unwrap(), scene.fs("disk2")),
            ("rec.*".parse().unwrap(), scene.fs("disk2/../disk2")),
            ("comp.*".parse().unwrap(), scene.fs("target")),
        ],
        ..Storage::of(scene.fs("target"))
    };
    let outcome = run(&config(4, 2, Keep::Keep), &storage(), &feed);
    // alt and rec on one disk, comp on the other: only links to comp are symbolic.
    assert!(
        outcome.part.counts.store.hard_links > 40 && outcome.part.counts.store.symlinks > 40,
        "{:?}",
        outcome.part.counts
    );
    assert_right(&storage(), &feed);
    let lib = scene.path("target/crumb-netnews-s/lib");
    // As after a kill.
    let state = std::fs::read_to_string(lib.join("state")).unwrap();
    assert!(state.contains("settled=1"), "{state}");
    std::fs::remove_file(lib.join("history.pag")).unwrap();
    std::fs::write(lib.join("state"), unsettled(&state)).unwrap();
    let again = run(&config(4, 2, Keep::Resume), &storage(), &feed);
    let recovered = again.part.recovered.expect("recovered");
    assert!(recovered.was_cut_short, "{recovered:?}");
    assert_eq!((recovered.names_removed, recovered.names_missing), (0, 0));
    assert_right(&storage(), &feed);
}

/// A state without the record that says that all was closed in order.
fn unsettled(state: &str) -> String {
    let records: Vec<&str> = state.split_inclusive('\n').collect();
    let blank = |record: &str| format!("{}\n", " ".repeat(record.len() - 1));
    records.iter().map(|&r| if r.contains("settled=1") { blank(r) } else { r.to_owned() }).collect()
}

/// Symptom: a feed whose batches did not divide evenly was refused with --batches-per-pass, and without it up to one batch less
/// than there are passes was never offered, which nothing said.
#[test]
fn all_of_a_feed_is_offered_the_last_pass_may_be_short_and_what_is_left_out_is_told() {
    let scene = Scene::new();
    // 30 batches of 10, one of 7.
    let feed = scene.feed(307, 10);
    let storage = Storage::of(scene.fs("target"));
    let stored = |outcome: &netnews::spool::Outcome| -> Vec<f64> {
        phases(outcome, "unbatch").iter().map(|phase| phase.counters["offered"]).collect()
    };
    let even = run(&config(4, 2, Keep::Remove), &storage, &feed);
    assert_eq!(stored(&even), [70.0, 80.0, 80.0, 77.0]);
    let metrics = figures(&config(4, 2, Keep::Remove), &even).metrics;
    assert_eq!((metrics["batches_offered"], metrics["articles_offered"]), (31.0, 307.0));
    let per_pass =
        |batches| NetnewsConfig { batches_per_pass: NonZeroU64::new(batches), ..config(4, 2, Keep::Remove) };
    let short = run(&per_pass(9), &storage, &feed);
    assert_eq!(stored(&short), [90.0, 90.0, 90.0, 37.0]);
    let verdict = figures(&per_pass(9), &short).verdict;
    assert!(!verdict.has("feed-not-all-offered"), "{verdict:?}");
    let part = run(&per_pass(2), &storage, &feed);
    let part = figures(&per_pass(2), &part);
    assert_eq!(part.metrics["batches_offered"], 8.0);
    let reason = part.verdict.reasons.iter().find(|reason| reason.code == "feed-not-all-offered").unwrap();
    assert!(reason.text.contains("8 of the feed's 31 batches"), "{}", reason.text);
    let refused = run_until(&per_pass(11), &storage, &feed, &AtomicBool::new(false), &mut |_| {});
    assert!(matches!(refused.error, Some(NetnewsError::FeedTooSmall { .. })), "{:?}", refused.error);
}

#[test]
fn a_run_that_stored_nothing_is_not_valid() {
    let scene = Scene::new();
    let shape = FeedShape { batch_articles: NonZeroU64::new(5).unwrap(), packed: false };
    let mut writer = FeedWriter::create(scene.path("feed"), shape).unwrap();
    for number in 0..20 {
        writer.write(&[], format!("Subject: {number}\n\nno article\n").as_bytes()).unwrap();
    }
    let feed =
        writer.finish(Origin::Import { source: "none".to_owned(), broken: Default::default() }, 0).unwrap();
    let outcome = run(&config(2, 1, Keep::Remove), &Storage::of(scene.fs("target")), &feed);
    let verdict = figures(&config(2, 1, Keep::Remove), &outcome).verdict;
    assert!(!verdict.valid && verdict.has("nothing-stored"), "{verdict:?}");
    assert!(verdict.to_string().contains("20 were offered"), "{verdict}");
}
