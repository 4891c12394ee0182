//! Importing: what goes in comes out, what is no article is set aside, and what is stopped leaves nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::real::usenet_1993;
use crate::scratch::scratch;
use netnews::NetnewsError;
use netnews::article::Broken;
use netnews::batch::{BatchReader, BatchWriter};
use netnews::feed::import::{ImportConfig, Imported, Order, import};
use netnews::feed::{self, Feed, FeedProgress, Watch};

fn imported(config: &ImportConfig, out: &Path) -> Result<Imported, NetnewsError> {
    let stop = AtomicBool::new(false);
    import(config, out, &mut Watch { progress: &mut |_| {}, stop: &stop })
}

fn stat(feed: &Feed) -> feed::Stat {
    let stop = AtomicBool::new(false);
    feed::stat(feed, &mut Watch { progress: &mut |_| {}, stop: &stop }).expect("a feed to read")
}

fn articles(feed: &Feed) -> Vec<Vec<u8>> {
    let mut all = vec![];
    for batch in feed.batches() {
        let mut reader = batch.open().expect("a batch");
        while let Some(article) = reader.next().expect("an undamaged batch") {
            all.push(article.to_vec());
        }
    }
    all
}

fn article(id: &str) -> String {
    format!(
        "Path: a!b\nNewsgroups: x.y\nMessage-ID: <{id}@h>\nDate: 6 Apr 93 12:00:{id:0>2} GMT\n\nbody {id}\n"
    )
}

fn files_below(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(path).expect("a directory").flatten() {
        if entry.path().is_dir() { files_below(&entry.path(), found) } else { found.push(entry.path()) }
    }
}

#[test]
#[ignore = "real articles are not in the repository; make test-real"]
fn ten_thousand_real_articles_come_in_whole_and_go_out_as_they_came() {
    let dir = scratch();
    let source = usenet_1993(dir.path());
    let imported = imported(&ImportConfig::new(&source), &dir.path().join("feed")).expect("an import");
    let feed = &imported.feed;
    assert_eq!(imported.broken, BTreeMap::new(), "all real articles are articles");
    assert_eq!((imported.files, feed.articles(), feed.batch_count()), (10_000, 10_000, 92));
    let stat = stat(feed);
    // Of this half of the set; by other tools: 59 ids come twice, 3,131 articles name several of 574 groups, one of
    // them `talk.politics/space`, which nobody should store under that name.
    assert_eq!((stat.articles, stat.duplicates, stat.cross_posted), (10_000, 59, 3_131));
    assert_eq!((stat.groups, stat.groups_malformed), (573, 1));
    assert_eq!(feed.manifest().duplicates, 59);
    assert_eq!((stat.article_bytes.min, stat.articles_by_group_count.keys().max()), (345, Some(&18)));
    assert!((stat.article_bytes.mean - 2_219.1).abs() < 0.1, "{:?}", stat.article_bytes);
    assert!((1_575..=1_580).contains(&stat.article_bytes.p50), "{:?}", stat.article_bytes);
    assert_eq!((stat.cancels, stat.other_controls, stat.broken.len()), (0, 0, 0));
    let (first, last) = stat.dated.expect("dates");
    // Two posters' clocks were in June 1992.
    assert_eq!(first, 709_542_294);
    assert!((733_000_000..740_000_000).contains(&last), "{last}: 1993");

    // The same bytes as the files have, in whatever order.
    let mut files = vec![];
    files_below(&source, &mut files);
    let mut ours = articles(feed);
    let mut theirs: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).expect("a file")).collect();
    // One file has CRLF line ends.
    assert_eq!(theirs.iter_mut().map(|bytes| u64::from(without_cr(bytes))).sum::<u64>(), imported.crlf);
    ours.sort();
    theirs.sort();
    assert!(ours == theirs, "not the same articles");

    // And once more from the batches, in the same order.
    let again = dir.path().join("again");
    let config = ImportConfig { order: Order::Path, ..ImportConfig::new(batches_only(feed, dir.path())) };
    let copy = self::imported(&config, &again).expect("an import of batches");
    for (one, other) in feed.batches().zip(copy.feed.batches()) {
        assert!(fs::read(one.path).expect("a batch") == fs::read(other.path).expect("a batch"));
    }
}

fn without_cr(bytes: &mut Vec<u8>) -> bool {
    let first_line = bytes.iter().position(|byte| *byte == b'\n').expect("a line");
    let is_crlf = bytes[first_line - 1] == b'\r';
    if is_crlf {
        *bytes = String::from_utf8_lossy(bytes).replace("\r\n", "\n").into_bytes();
    }
    is_crlf
}

fn batches_only(feed: &Feed, dir: &Path) -> PathBuf {
    let batches = dir.join("batches");
    fs::create_dir(&batches).expect("a directory");
    for batch in feed.batches() {
        fs::hard_link(&batch.path, batches.join(batch.path.file_name().expect("a name"))).expect("a link");
    }
    batches
}

#[test]
fn trees_mailboxes_batches_and_gzip_are_told_apart_by_what_is_in_them() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir_all(source.join("x/y")).expect("a directory");
    fs::write(source.join("x/y/1"), article("1")).expect("a file");
    fs::hard_link(source.join("x/y/1"), source.join("x/2")).expect("a link");
    std::os::unix::fs::symlink("y/1", source.join("x/3")).expect("a link");
    fs::write(source.join(".overview"), "not an article").expect("a file");
    fs::write(source.join("x/4"), article("4").replace('\n', "\r\n")).expect("a file");
    fs::write(
        source.join("box"),
        format!("From me\n{}\nFrom you\n{}>From here\n", article("5"), article("6")),
    )
    .expect("a file");
    let mut packed = BatchWriter::gzip(vec![]);
    packed.write(article("7").as_bytes()).expect("memory");
    packed.write(article("1").as_bytes()).expect("memory");
    fs::write(source.join("some.gz"), packed.finish().expect("memory")).expect("a file");

    let imported = imported(&ImportConfig::new(&source), &dir.path().join("feed")).expect("an import");
    let bodies: Vec<String> = articles(&imported.feed)
        .iter()
        .map(|article| String::from_utf8_lossy(article).rsplit("\n\n").next().expect("a body").to_owned())
        .collect();
    assert_eq!(bodies, ["body 1\n", "body 4\n", "body 5\n", "body 6\nFrom here\n", "body 7\n", "body 1\n"]);
    assert_eq!((imported.files, imported.hard_links, imported.skipped, imported.crlf), (4, 1, 2, 1));
    assert_eq!((imported.feed.manifest().duplicates, imported.broken.len()), (1, 0));
}

#[test]
fn what_is_no_article_is_counted_by_reason_and_set_aside_byte_for_byte() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir(&source).expect("a directory");
    fs::write(source.join("1"), article("1")).expect("a file");
    fs::write(source.join("2"), "Newsgroups: a\n\nno id\n").expect("a file");
    fs::write(source.join("3"), "").expect("a file");
    fs::write(
        source.join("4"),
        format!("#! rnews 3\nabcd\n#! rnews {}\n{}", article("4").len(), article("4")),
    )
    .expect("a file");
    fs::write(source.join("5"), format!("{}{}", article("5"), "x".repeat(5_000))).expect("a file");
    let mut cut = BatchWriter::gzip(vec![]);
    cut.write(article("6").as_bytes()).expect("memory");
    let cut = cut.finish().expect("memory");
    fs::write(source.join("6"), &cut[..cut.len() - 20]).expect("a file");
    let config = ImportConfig { order: Order::Path, article_bytes_max: 4_000, ..ImportConfig::new(&source) };
    let imported = imported(&config, &dir.path().join("feed")).expect("an import");
    let reasons = [Broken::Empty, Broken::TooLarge, Broken::NoMessageId, Broken::BadCount, Broken::Truncated];
    assert_eq!(imported.broken, reasons.into_iter().map(|reason| (reason, 1)).collect());
    assert_eq!(imported.feed.articles(), 2);
    let broken = imported.feed.path().join("broken");
    assert_eq!(fs::read(broken.join("000001")).expect("set aside"), b"Newsgroups: a\n\nno id\n");
    assert_eq!(fs::read(broken.join("000003")).expect("set aside"), b"#! rnews 3\nabcd\n");
    let list = fs::read_to_string(broken.join("reasons.tsv")).expect("the list");
    assert!(list.starts_with("000001\tno-message-id\t0\t") && list.lines().count() == 5, "{list}");
}

#[test]
fn a_stopped_import_leaves_nothing_and_a_killed_one_says_what_to_do() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::create_dir(&source).expect("a directory");
    (0..3_000)
        .for_each(|at| fs::write(source.join(at.to_string()), article(&at.to_string())).expect("a file"));
    let out = dir.path().join("feed");
    let stop = AtomicBool::new(false);
    let mut progress = |now: FeedProgress| stop.store(now.articles >= 2_048, Ordering::Relaxed);
    let stopped =
        import(&ImportConfig::new(&source), &out, &mut Watch { progress: &mut progress, stop: &stop });
    assert!(matches!(stopped, Err(NetnewsError::Stopped)));
    assert!(!out.exists(), "nothing is left");

    // As a killed maker leaves it: batches, the mark, no description.
    fs::create_dir(&out).expect("a directory");
    fs::write(out.join("000001.rnews"), "#! rnews 0\n").expect("a file");
    fs::write(out.join("feed.unfinished"), "").expect("a file");
    for error in [
        Feed::open(&out).expect_err("not whole"),
        imported(&ImportConfig::new(&source), &out).expect_err("in the way"),
    ] {
        assert!(error.to_string().contains("rm -r"), "{error}");
    }
    assert!(out.join("000001.rnews").exists(), "what another maker may still write is not removed");
    fs::remove_dir_all(&out).expect("removed as advised");
    imported(&ImportConfig::new(&source), &out).expect("made again");
    assert!(matches!(imported(&ImportConfig::new(&source), &out), Err(NetnewsError::FeedExists { .. })));
    assert!(matches!(
        imported(&ImportConfig::new(&out), &dir.path().join("b")),
        Err(NetnewsError::SourceIsFeed { .. })
    ));
    let within = imported(&ImportConfig::new(&source), &source.join("feed"));
    assert!(matches!(within, Err(NetnewsError::WithinSource { .. })));
    fs::write(out.join("000002.rnews"), "#! rnews 0\n").expect("a file");
    assert!(matches!(Feed::open(&out), Err(NetnewsError::FeedChanged { .. })));
}

#[test]
fn a_source_without_articles_makes_no_feed() {
    let dir = scratch();
    let source = dir.path().join("source");
    fs::write(&source, "what is this").expect("a file");
    let error = imported(&ImportConfig::new(&source), &dir.path().join("feed")).expect_err("no article");
    assert!(matches!(error, NetnewsError::NoArticles { .. }), "{error}");
    assert!(!dir.path().join("feed").exists());
    assert!(imported(&ImportConfig::new(dir.path().join("none")), &dir.path().join("feed")).is_err());
    let mut reader = BatchReader::new(&b"what is this"[..]);
    assert_eq!(reader.next().expect("one article to be"), Some(&b"what is this"[..]));
}
