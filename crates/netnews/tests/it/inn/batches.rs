//! Our batcher beside INN's, on the same spool and outgoing file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicBool;

use netnews::spool::{BatchSink, Event, Keep, NetnewsConfig, Storage};
use testkit::{InnTools, trad_token};

use crate::spool_scene::{config, run_until};

const LIMIT_BYTES: usize = 60_000;

#[test]
fn our_batches_hold_what_inns_hold_byte_for_byte() {
    let Some(tools) = testkit::need(InnTools::find()) else { return };
    let scene = super::open_scene();
    let feed = super::synthetic(2_000, 6, &scene.path("feed"));
    let storage = Storage::of(scene.fs("target"));
    let spool = scene.path("target/crumb-netnews-s");
    let ours = scene.path("ours");
    let config = NetnewsConfig {
        batch_every: std::num::NonZeroU32::new(2),
        batches_to: BatchSink::Folder(ours.clone()),
        batch_bytes: LIMIT_BYTES as u64,
        ..config(2, 9, Keep::Keep)
    };
    let mut outgoing = String::new();
    let outcome = run_until(&config, &storage, &feed, &AtomicBool::new(false), &mut |event| {
        if matches!(&event, Event::PhaseDone { phase, .. } if phase.name == "unbatch" && phase.pass == 1) {
            outgoing = fs::read_to_string(spool.join("lib/outgoing.1")).unwrap();
        }
    });
    let counts = outcome.part.counts.batch;
    assert!(
        outcome.part.is_complete() && counts.articles > 900 && counts.batches > 10 && counts.missing > 0,
        "{counts:?}"
    );

    // INN 2 names articles by tokens: group number, article number.
    let groups = super::groups_of(&spool.join("lib/active"));
    let token = |line: &str| {
        let (directory, number) = line.rsplit_once('/').unwrap();
        let group = groups.iter().position(|group| group.replace('.', "/") == directory).unwrap();
        trad_token(group as u32 + 1, number.parse().unwrap())
    };
    let tokens: Vec<String> = outgoing.lines().map(token).collect();
    let conf = tools.settings_over(&scene.path("inn"), &spool.join("articles"), &groups).unwrap();
    let (names, theirs) = (scene.path("inn/spool/outgoing/peer"), scene.path("theirs"));
    fs::write(&names, tokens.join("\n") + "\n").unwrap();
    fs::create_dir(&theirs).unwrap();
    for dir in [&theirs, &scene.path("inn/spool/outgoing")] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    }
    // Files in the order in which they were made.
    let each = format!("cat > {0}/$((1000000 + $(ls {0} | wc -l)))", theirs.display());
    let output = tools
        .command("batcher", &conf)
        .args(["-r", "-b", &LIMIT_BYTES.to_string(), "-p", &each, "peer"])
        .arg(&names)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "batcher: {}: {said}", output.status);
    let contents = |dir: &std::path::Path| -> Vec<Vec<u8>> {
        let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| fs::read(path).unwrap()).collect()
    };
    let (ours, theirs) = (contents(&ours), contents(&theirs));
    assert!(
        ours.concat() == theirs.concat(),
        "the articles differ: {} and {} bytes",
        ours.concat().len(),
        theirs.concat().len()
    );
    let sizes: Vec<usize> = theirs.iter().map(Vec::len).collect();
    assert_eq!(ends_before_the_limit(&ours.concat()), sizes, "INN's batches end elsewhere");
}

/// Sizes of the batches when one ends before an article that would take it, count line and all, over the limit. That is
/// what INN 2.7.1 does, whatever its manual page says.
fn ends_before_the_limit(articles: &[u8]) -> Vec<usize> {
    let (mut sizes, mut at) = (vec![0], 0);
    while at < articles.len() {
        let line_end = at + articles[at..].iter().position(|byte| *byte == b'\n').unwrap();
        let line = std::str::from_utf8(&articles[at..line_end]).unwrap();
        let count: usize = line.strip_prefix("#! rnews ").unwrap().parse().unwrap();
        let with_line = line_end + 1 - at + count;
        let last = sizes.last_mut().unwrap();
        if *last > 0 && *last + with_line > LIMIT_BYTES {
            sizes.push(with_line);
        } else {
            *last += with_line;
        }
        at += with_line;
    }
    sizes
}
