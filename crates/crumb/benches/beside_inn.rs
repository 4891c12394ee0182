//! The same articles stored by netnews in a directory and in a file tree, and by INN 2.7.1 in each of its storage methods, in turns.
//!
//! ```text
//! cargo bench -p crumb --bench beside_inn -- [--dir DIRECTORY] [--feed FEED | --articles N] [--rounds N] [--only SIDE,SIDE]
//!     [--cyclic-bytes N]
//! ```
//!
//! 1. Each side begins with an empty spool below `--dir`; what the file system held back was written before.
//! 2. It stores every article of the feed. netnews reads the feed from disk; INN is sent it from memory by TAKETHIS over loopback. Both
//!    write history and a batch file for one peer; neither makes an overview.
//! 3. Equal durability: nothing is synced for an article; at the end all is synced (syncfs), and that counts.
//!
//! CPU time is the process's that stores: of netnews with its reading of the feed, of INN without the sender. What the kernel does for
//! either in threads of its own is in neither. Prints a line a run, then a table of medians. Without INN its sides are left out, and that
//! is said. Without `--bench`, as `cargo test` starts it, the feed is tiny and the figures mean nothing.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::num::{NonZeroU32, NonZeroU64};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use disk::LocalDisk;
use files::{FileSystem, LocalFs};
use measure::statistics::median;
use netnews::article::Article;
use netnews::feed::{Feed, FeedShape, FeedWriter, Origin};
use netnews::spool::{Keep, NetnewsConfig, Storage};
use packtree::{PackTree, TreeOptions};
use testkit::{Inn, InnStorage, InnTools, Wire};

/// Room for the default feed and no wrap.
const CYCLIC_BYTES: u64 = 1 << 30;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Directory,
    Tree,
    Inn(&'static str, InnStorage),
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Tree => "pack",
            Self::Inn(name, _) => name,
        }
    }
}

/// What a run took.
struct Took {
    articles: u64,
    refused: u64,
    wall_s: f64,
    sync_s: f64,
    user_s: f64,
    sys_s: f64,
}

impl Took {
    fn rate(&self) -> f64 {
        self.articles as f64 / (self.wall_s + self.sync_s)
    }

    fn cpu_us(&self) -> f64 {
        1e6 * (self.user_s + self.sys_s) / self.articles as f64
    }
}

struct Prepared {
    feed: Feed,
    wire: Wire,
    groups: Vec<String>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str| {
        let at = args.iter().position(|arg| arg == flag)?;
        Some(args.get(at + 1).unwrap_or_else(|| panic!("{flag} wants a value")).as_str())
    };
    let number = |flag, default: u64| value(flag).map_or(default, |text| text.parse().expect(flag));
    let measured = args.iter().any(|arg| arg == "--bench");
    let fallback = if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
    let dir = value("--dir").map_or(fallback, PathBuf::from);
    let scratch = tempfile::Builder::new().prefix("crumb-inn-feed").tempdir_in(&dir).expect("a folder");
    let feed = match value("--feed") {
        Some(feed) => Feed::open(feed).expect("a feed"),
        None => {
            made_up(&scratch.path().join("feed"), number("--articles", if measured { 30_000 } else { 200 }))
        }
    };
    let cyclic_bytes = number("--cyclic-bytes", if measured { CYCLIC_BYTES } else { 16 << 20 });
    let sides = sides(value("--only"), cyclic_bytes);
    let prepared = prepare(feed);
    println!("{} articles, {} bytes, on {}", prepared.feed.articles(), prepared.feed.bytes(), dir.display());
    let mut runs: Vec<(Side, Took)> = Vec::new();
    for round in 0..number("--rounds", if measured { 5 } else { 1 }) {
        // Forth and back, so that each is first as often as last.
        let mut turn = sides.clone();
        if round % 2 == 1 {
            turn.reverse();
        }
        for side in turn {
            let folder = tempfile::Builder::new().prefix("crumb-inn").tempdir_in(&dir).expect("a folder");
            settle(folder.path());
            let took = run(side, &prepared, folder.path());
            println!(
                "{:>9} {:>8.0} articles/s {:>6.1} us CPU an article; {} stored, {} refused; {:.2} s and {:.2} s to sync",
                side.name(),
                took.rate(),
                took.cpu_us(),
                took.articles,
                took.refused,
                took.wall_s,
                took.sync_s
            );
            runs.push((side, took));
        }
    }
    table(&sides, &runs);
}

fn sides(only: Option<&str>, cyclic_bytes: u64) -> Vec<Side> {
    let mut sides = vec![Side::Directory, Side::Tree];
    match InnTools::find() {
        Ok(_) if rustix::process::geteuid().is_root() => sides.extend([
            Side::Inn("tradspool", InnStorage::Traditional),
            Side::Inn("cnfs", InnStorage::Cnfs { bytes: cyclic_bytes }),
            Side::Inn("timecaf", InnStorage::Timecaf),
        ]),
        Ok(_) => {
            eprintln!("INN's sides are left out: innd runs as the user news, and only root can start it so")
        }
        Err(why) => eprintln!("INN's sides are left out: {why}"),
    }
    if let Some(only) = only {
        sides.retain(|side| only.split(',').any(|name| name == side.name()));
    }
    assert!(!sides.is_empty(), "--only leaves no side: directory, pack, tradspool, cnfs, timecaf");
    sides
}

fn prepare(feed: Feed) -> Prepared {
    let (mut wire, mut groups) = (Wire::default(), BTreeSet::new());
    for batch in feed.batches() {
        let mut reader = batch.open().expect("a batch");
        while let Some(bytes) = reader.next().expect("an article") {
            let Ok(article) = Article::parse(bytes) else { continue };
            wire.push(article.message_id(), bytes);
            groups.extend(article.newsgroups().map(str::to_owned));
        }
    }
    Prepared { feed, wire, groups: groups.into_iter().collect() }
}

/// Writes what the file system holds back. Returns how long that took.
fn settle(folder: &Path) -> f64 {
    let began = Instant::now();
    rustix::fs::syncfs(File::open(folder).expect("the folder")).expect("synced");
    began.elapsed().as_secs_f64()
}

fn run(side: Side, prepared: &Prepared, folder: &Path) -> Took {
    let mut took = match side {
        Side::Directory => crumb(&prepared.feed, Arc::new(LocalFs::open(folder).expect("the folder"))),
        Side::Tree => {
            let disk = Arc::new(LocalDisk::open(folder).expect("the folder"));
            let options = TreeOptions::default();
            PackTree::create(&*disk, &options).expect("a tree");
            let tree = Arc::new(PackTree::open(disk, &options, "pack:bench").expect("it opens"));
            let mut took = crumb(&prepared.feed, tree.clone());
            let began = Instant::now();
            Arc::into_inner(tree).expect("the only one").close().expect("closed");
            took.sync_s = began.elapsed().as_secs_f64();
            took
        }
        Side::Inn(_, storage) => {
            // innd becomes the user news.
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("ours");
            let inn =
                Inn::start_with(storage, folder, &prepared.groups).unwrap_or_else(|why| panic!("{why}"));
            let before = inn.cpu();
            let taken = inn.take(&prepared.wire).expect("articles taken");
            let after = inn.cpu();
            let sync_s = settle(folder);
            drop(inn);
            return Took {
                articles: taken.stored,
                refused: taken.refused,
                wall_s: taken.wall.as_secs_f64(),
                sync_s,
                user_s: after.user_s - before.user_s,
                sys_s: after.sys_s - before.sys_s,
            };
        }
    };
    took.sync_s += settle(folder);
    took
}

fn crumb(feed: &Feed, fs: Arc<dyn FileSystem>) -> Took {
    let one = NonZeroU32::new(1).expect("not 0");
    let config = NetnewsConfig { passes: one, keep: Keep::Keep, ..NetnewsConfig::paper("bench") };
    let stop = AtomicBool::new(false);
    let outcome = netnews::spool::run(&config, &Storage::of(fs), feed, &stop, &mut |_| {});
    assert!(outcome.part.is_complete(), "{:?}", outcome.error);
    let phase = &outcome.part.phases[0].phase;
    let (wall_s, user_s, sys_s) = (phase.wall_s, phase.user_s, phase.sys_s);
    Took { articles: phase.items, refused: 0, wall_s, sync_s: 0.0, user_s, sys_s }
}

fn table(sides: &[Side], runs: &[(Side, Took)]) {
    let middle = |side: Side, figure: &dyn Fn(&Took) -> f64| {
        let figures: Vec<f64> =
            runs.iter().filter(|(of, _)| *of == side).map(|(_, took)| figure(took)).collect();
        median(&figures).unwrap_or(f64::NAN)
    };
    println!(
        "\n| side | articles/s | CPU time an article, us | of it in the kernel | us to sync, an article |"
    );
    println!("|---|---|---|---|---|");
    for &side in sides {
        println!(
            "| {} | {:.0} | {:.1} | {:.1} | {:.1} |",
            side.name(),
            middle(side, &Took::rate),
            middle(side, &Took::cpu_us),
            middle(side, &|took| 1e6 * took.sys_s / took.articles as f64),
            middle(side, &|took| 1e6 * took.sync_s / took.articles as f64),
        );
    }
}

/// Articles of about 2 kB in 60 groups, every tenth in three.
fn made_up(path: &Path, articles: u64) -> Feed {
    let shape = FeedShape { batch_articles: NonZeroU64::new(109).expect("not 0"), packed: false };
    let mut writer = FeedWriter::create(path, shape).expect("a feed");
    let line = "A line of text as long as most lines of articles are, of words that mean nothing.\n";
    for number in 0..articles {
        let group = |step: u64| format!("test.g{}", (number * 7 + step * 13) % 60);
        let groups = match number % 10 {
            0 => format!("{},{},{}", group(0), group(1), group(2)),
            _ => group(0),
        };
        let id = format!("<{number}.made@host{}.example>", number % 1000);
        let head = format!(
            "Path: peer.example!not-for-mail\nFrom: poster{number}@host.example\nNewsgroups: {groups}\nSubject: article {number}\n\
             Date: Tue, 1 Aug 1995 12:00:00 GMT\nMessage-ID: {id}\n\n"
        );
        let body = line.repeat(10 + (number * 31 % 33) as usize);
        writer.write(id.as_bytes(), (head + &body).as_bytes()).expect("a batch");
    }
    let origin = Origin::Import { source: "bench".to_owned(), broken: Default::default() };
    writer.finish(origin, 0).expect("a feed")
}
