//! Synthetic feeds: like their model, the same for the same seed, made in flat memory.

#[path = "it/scratch.rs"]
mod scratch;

use std::fs;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};

use netnews::feed::synthesize::{SynthesisConfig, Synthesized, synthesize};
use netnews::feed::{FeedProgress, FeedShape, Watch, stat};
use scratch::scratch;

fn config(articles: u64, seed: u64) -> SynthesisConfig {
    SynthesisConfig::new(NonZeroU64::new(articles).expect("not 0"), seed)
}

fn made(config: &SynthesisConfig, out: &std::path::Path) -> Synthesized {
    let stop = AtomicBool::new(false);
    synthesize(config, out, &mut Watch { progress: &mut |_| {}, stop: &stop }).expect("a feed")
}

#[test]
fn feeds_of_several_seeds_and_sizes_are_like_the_model() {
    let dir = scratch();
    for (seed, articles) in [(1, 20_000), (2, 20_000), (3, 2_000), (4, 100)] {
        let out = dir.path().join(seed.to_string());
        let made = made(&config(articles, seed), &out);
        let off: Vec<_> = made.comparison.off().collect();
        assert!(off.is_empty(), "seed {seed}, {articles} articles: {off:#?}");
        assert_eq!((made.feed.articles(), made.stat.articles), (articles, articles));
        // What was counted while writing is what is there to read.
        let stop = AtomicBool::new(false);
        let read = stat(&made.feed, &mut Watch { progress: &mut |_| {}, stop: &stop }).expect("a feed");
        assert_eq!(read, made.stat);
        assert!(read.broken.is_empty());
        fs::remove_dir_all(&out).expect("removed");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let dir = scratch();
    let bytes = |name: &str, config: SynthesisConfig| {
        let made = made(&config, &dir.path().join(name));
        made.feed.batches().flat_map(|batch| fs::read(batch.path).expect("a batch")).collect::<Vec<u8>>()
    };
    let one = bytes("one", config(1_000, 9));
    assert!(one == bytes("same", config(1_000, 9)));
    assert!(one != bytes("other", config(1_000, 10)));
    // These bytes are named by model and seed in people's results: a change asks for another MODEL_NAME.
    let sum = one
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    assert_eq!(
        (one.len(), sum),
        (3_577_836, 10_281_860_352_190_288_932),
        "the model gives other bytes than it did"
    );
}

#[test]
fn packed_feeds_have_the_same_articles() {
    let dir = scratch();
    let plain = made(&config(500, 3), &dir.path().join("plain"));
    let shape = FeedShape { packed: true, ..FeedShape::default() };
    let packed = made(&SynthesisConfig { shape, ..config(500, 3) }, &dir.path().join("packed"));
    assert_eq!(plain.stat, packed.stat);
    assert!(packed.feed.manifest().file_bytes < plain.feed.manifest().file_bytes);
    assert!(packed.feed.batch_path(1).to_string_lossy().ends_with("000001.rnews.gz"));
}

#[test]
fn a_stopped_synthesis_leaves_nothing() {
    let dir = scratch();
    let out = dir.path().join("feed");
    let stop = AtomicBool::new(false);
    let mut progress = |now: FeedProgress| stop.store(now.articles >= 1_024, Ordering::Relaxed);
    let stopped = synthesize(&config(50_000, 1), &out, &mut Watch { progress: &mut progress, stop: &stop });
    assert!(stopped.is_err() && !out.exists());
}

/// Of a larger feed no more is remembered than 64 bits an article; alone in its process but for the small feeds above.
#[test]
fn memory_does_not_grow_with_the_feed() {
    let dir = scratch();
    let out = dir.path().join("feed");
    let articles = 60_000;
    let before = resident_kib("VmRSS:");
    let made = made(&config(articles, 1), &out);
    let stop = AtomicBool::new(false);
    stat(&made.feed, &mut Watch { progress: &mut |_| {}, stop: &stop }).expect("a feed");
    let grown = resident_kib("VmHWM:").saturating_sub(before) * 1024;
    assert!(made.feed.bytes() > 150_000_000, "{}", made.feed.bytes());
    // Pools, buffers and histograms of this and of the tests beside it take some 40 MB, whatever the feed's size.
    assert!(grown < 80 << 20, "{grown} bytes for a feed of {}", made.feed.bytes());
}

fn resident_kib(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(name)).expect("the line");
    line.split_whitespace().nth(1).and_then(|figure| figure.parse().ok()).expect("a figure")
}
