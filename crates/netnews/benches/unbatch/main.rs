//! How fast articles can be stored at all on a directory: the system calls alone; beside it Crumb's unbatch of the same
//! articles, in turns.
//!
//! ```text
//! cargo bench -p netnews --bench unbatch -- [--dir DIRECTORY] [--articles N] [--rounds N] [--feed FEED]
//! ```
//!
//! The feed: N articles (default 30,000) of about 2.5 kB in 60 groups, every tenth in three groups, as the feed that
//! peers were measured with; or a feed made by `crumb feed`, stored in one pass. The bare loop makes, writes, closes and
//! links the same files by paths made beforehand, and writes history and the batch file once a batch. Prints one line a
//! run: who, articles a second, microseconds an article elapsed, in user mode and in the kernel. Without `--bench`, as
//! `cargo test` starts it, the feed is tiny and the figures mean nothing.
#![allow(clippy::print_stdout)]

mod bare;

use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use files::LocalFs;
use netnews::feed::{Feed, FeedShape, FeedWriter, Origin};
use netnews::spool::{Keep, NetnewsConfig, Storage};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str| {
        args.iter()
            .position(|arg| arg == flag)
            .map(|at| args.get(at + 1).unwrap_or_else(|| panic!("{flag} wants a value")).as_str())
    };
    let measured = args.iter().any(|arg| arg == "--bench");
    let number = |flag, default: u64| value(flag).map_or(default, |text| text.parse().expect(flag));
    let articles = number("--articles", if measured { 30_000 } else { 300 });
    let rounds = number("--rounds", if measured { 5 } else { 1 });
    let in_memory = Path::new("/dev/shm");
    let fallback = if in_memory.is_dir() { in_memory.to_owned() } else { std::env::temp_dir() };
    let dir = value("--dir").map_or(fallback.clone(), PathBuf::from);
    let scratch =
        tempfile::Builder::new().prefix("crumb-unbatch-feed").tempdir_in(fallback).expect("a folder");
    let feed = match value("--feed") {
        Some(feed) => Feed::open(feed).expect("a feed"),
        None => made_up(&scratch.path().join("feed"), articles),
    };
    println!("{} articles, {} bytes, on {}", feed.articles(), feed.bytes(), dir.display());
    for round in 0..rounds {
        // Each is first as often as the other.
        for ours in [round % 2 == 0, round % 2 == 1] {
            let folder = tempfile::Builder::new().prefix("crumb-unbatch").tempdir_in(&dir).expect("a folder");
            let (who, run) = if ours {
                ("crumb", crumb(&feed, folder.path()))
            } else {
                ("bare", bare::run(&feed, folder.path()))
            };
            let each = |seconds: f64| 1e6 * seconds / run.articles as f64;
            println!(
                "{who:>5} {:>8.0} articles/s {:>6.1} us an article: {:>5.1} user {:>5.1} kernel; {} stored",
                run.articles as f64 / run.wall_s,
                each(run.wall_s),
                each(run.user_s),
                each(run.sys_s),
                run.articles,
            );
        }
    }
}

/// What a run took.
struct Took {
    articles: u64,
    wall_s: f64,
    user_s: f64,
    sys_s: f64,
}

fn crumb(feed: &Feed, folder: &Path) -> Took {
    let storage = Storage::of(Arc::new(LocalFs::open(folder).expect("the folder")));
    let one = NonZeroU32::new(1).expect("not 0");
    let config = NetnewsConfig { passes: one, keep: Keep::Keep, ..NetnewsConfig::paper("bench") };
    let outcome = netnews::spool::run(&config, &storage, feed, &AtomicBool::new(false), &mut |_| {});
    assert!(outcome.complete, "{:?}", outcome.error);
    let phase = &outcome.phases[0];
    Took { articles: phase.items, wall_s: phase.wall_s, user_s: phase.user_s, sys_s: phase.sys_s }
}

fn made_up(path: &Path, articles: u64) -> Feed {
    let shape = FeedShape { batch_articles: NonZeroU64::new(109).expect("not 0"), packed: false };
    let mut writer = FeedWriter::create(path, shape).expect("a feed");
    let line = "The quick brown fox jumps over the lazy dog while nobody reads this line of text.\n";
    for number in 0..articles {
        let group = |step: u64| {
            let at = (number * 7 + step * 13) % 60;
            format!("{}.sub{}.g{at}", ["alt", "comp", "rec", "soc", "news"][(at % 5) as usize], at % 7)
        };
        let mut groups = group(0);
        if number % 10 == 0 {
            groups = format!("{groups},{},{}", group(1), group(2));
        }
        let id =
            format!("<{number}.{:x}@host{}.example>", number * 2_654_435_761 % 0xffff_ffff, number % 1000);
        let head = format!(
            "Path: peer.example!feed.example!upstream{}.example!not-for-mail\nFrom: poster{number}@host.example\n\
             Newsgroups: {groups}\nSubject: Re: article number {number}\nDate: Tue, 1 Aug 1995 12:00:00 GMT\n\
             Organization: none\nLines: 25\nMessage-ID: {id}\nReferences: <{}@host.example>\n\n",
            number % 50,
            number / 2,
        );
        let body = line.repeat(10 + (number * 31 % 33) as usize);
        writer.write(id.as_bytes(), (head + &body).as_bytes()).expect("a batch");
    }
    writer
        .finish(Origin::Import { source: "bench".to_owned(), broken: Default::default() }, 0)
        .expect("a feed")
}
