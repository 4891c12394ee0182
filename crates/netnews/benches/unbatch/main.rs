//! How fast articles can be stored at all on a directory: the system calls alone; beside it Crumb's unbatch of the same
//! articles, and INN's innd, in turns.
//!
//! ```text
//! cargo bench -p netnews --bench unbatch -- [--dir DIRECTORY] [--articles N] [--rounds N] [--feed FEED] [--inn] [--timed]
//! ```
//!
//! The feed: N articles (default 30,000) of about 2.5 kB in 60 groups, every tenth in three groups, as the feed that
//! peers were measured with; or a feed made by `crumb feed`, stored in one pass. The bare loop makes, writes, closes and
//! links the same files by paths made beforehand, and writes history and the batch file once a batch. `--inn` feeds INN
//! 2.7.1 (traditional spool, no overview, TAKETHIS over loopback from memory; CPU time is the server's). `--timed` adds
//! a run of unbatch whose calls of the storage are timed: what is left is the driver's own, reading the feed included.
//! Before each run what the file system holds back is written. Prints one line a run: who, articles a second,
//! microseconds an article elapsed, in user mode and in the kernel; then medians, and ratios with their 95% intervals.
//! Without `--bench`, as `cargo test` starts it, the feed is tiny and the figures mean nothing.
#![allow(clippy::print_stdout)]

mod bare;
mod inn;
mod timed;

use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use files::{FileSystem, LocalFs};
use measure::statistics::{median, ratio_interval};
use netnews::feed::{Feed, FeedShape, FeedWriter, Origin};
use netnews::spool::{Event, Keep, NetnewsConfig, Storage};

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
    let mut contenders = vec![Who::Crumb, Who::Bare];
    let flag = |name: &str| args.iter().any(|arg| arg == name);
    let prepared = flag("--inn").then(|| inn::prepare(&feed));
    if prepared.is_some() {
        contenders.push(Who::Inn);
    }
    if flag("--timed") || !measured {
        contenders.push(Who::Timed);
    }
    let mut runs: Vec<(Who, Took)> = Vec::new();
    for round in 0..rounds {
        // Forth and back, so that each is first as often as last.
        let mut turn = contenders.clone();
        if round % 2 == 1 {
            turn.reverse();
        }
        for who in turn {
            let folder = tempfile::Builder::new().prefix("crumb-unbatch").tempdir_in(&dir).expect("a folder");
            settle(folder.path());
            let took = match who {
                Who::Crumb => crumb(&feed, folder.path(), None),
                Who::Timed => crumb(&feed, folder.path(), Some(timed::Spent::default())),
                Who::Bare => bare::run(&feed, folder.path()),
                Who::Inn => inn::run(prepared.as_ref().expect("made above"), folder.path())
                    .unwrap_or_else(|why| panic!("{why}")),
            };
            println!("{:>5} {took}", who.name());
            runs.push((who, took));
        }
    }
    summary(&contenders, &runs);
}

/// Whose run it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Crumb,
    Bare,
    Inn,
    /// Crumb's with its calls timed.
    Timed,
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Self::Crumb => "crumb",
            Self::Bare => "bare",
            Self::Inn => "inn",
            Self::Timed => "timed",
        }
    }
}

/// What a run took.
struct Took {
    articles: u64,
    refused: u64,
    wall_s: f64,
    user_s: f64,
    sys_s: f64,
    /// Outside of the storage's calls.
    outside_s: Option<f64>,
}

impl Took {
    fn rate(&self) -> f64 {
        self.articles as f64 / self.wall_s
    }

    fn each_us(&self, seconds: f64) -> f64 {
        1e6 * seconds / self.articles as f64
    }
}

impl std::fmt::Display for Took {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:>8.0} articles/s {:>6.1} us an article: {:>5.1} user {:>5.1} kernel; {} stored",
            self.rate(),
            self.each_us(self.wall_s),
            self.each_us(self.user_s),
            self.each_us(self.sys_s),
            self.articles,
        )?;
        if self.refused > 0 {
            write!(f, ", {} refused", self.refused)?;
        }
        if let Some(outside_s) = self.outside_s {
            write!(f, "; {:.1}% outside of file operations", 100.0 * outside_s / self.wall_s)?;
        }
        Ok(())
    }
}

/// Writes what the file system holds back, so that no run pays for the one before.
fn settle(folder: &Path) {
    let open = std::fs::File::open(folder).expect("the folder");
    rustix::fs::syncfs(open).expect("synced");
}

fn summary(contenders: &[Who], runs: &[(Who, Took)]) {
    let of = |who: Who, figure: &dyn Fn(&Took) -> f64| -> Vec<f64> {
        runs.iter().filter(|(whose, _)| *whose == who).map(|(_, took)| figure(took)).collect()
    };
    let middle = |who: Who, figure: &dyn Fn(&Took) -> f64| median(&of(who, figure)).unwrap_or(f64::NAN);
    println!();
    for &who in contenders {
        let (user, sys) = (|took: &Took| took.each_us(took.user_s), |took: &Took| took.each_us(took.sys_s));
        println!(
            "{:>5} {:>8.0} articles/s; CPU {:>5.1} us an article: {:>5.1} user {:>5.1} kernel; user mode {:.1}% of the time",
            who.name(),
            middle(who, &Took::rate),
            middle(who, &|took| user(took) + sys(took)),
            middle(who, &user),
            middle(who, &sys),
            middle(who, &|took| 100.0 * took.user_s / took.wall_s),
        );
    }
    if contenders.contains(&Who::Timed) {
        let outside = middle(Who::Timed, &|took| 100.0 * took.outside_s.unwrap_or(f64::NAN) / took.wall_s);
        println!("unbatch's own part, outside of file operations: {outside:.1}% of the time");
    }
    for against in contenders.iter().filter(|who| matches!(who, Who::Bare | Who::Inn)) {
        for (what, figure) in [
            ("articles/s", &Took::rate as &dyn Fn(&Took) -> f64),
            ("CPU an article", &|took: &Took| took.each_us(took.user_s + took.sys_s)),
        ] {
            let Some(ratio) = ratio_interval(&of(*against, figure), &of(Who::Crumb, figure)) else {
                continue;
            };
            println!(
                "crumb / {:<4} {what}: {:.2} (95% CI {:.2} to {:.2})",
                against.name(),
                ratio.ratio,
                ratio.low,
                ratio.high
            );
        }
    }
}

/// Calls of the storage are timed when there is somewhere to count them.
fn crumb(feed: &Feed, folder: &Path, spent: Option<timed::Spent>) -> Took {
    let local: Arc<dyn FileSystem> = Arc::new(LocalFs::open(folder).expect("the folder"));
    let fs = match &spent {
        Some(spent) => timed::TimedFs::over(local, spent.clone()),
        None => local,
    };
    let one = NonZeroU32::new(1).expect("not 0");
    let config = NetnewsConfig { passes: one, keep: Keep::Keep, ..NetnewsConfig::paper("bench") };
    let mut within_s = 0.0;
    let seconds = || spent.as_ref().map_or(0.0, timed::Spent::seconds);
    let stop = AtomicBool::new(false);
    let outcome = netnews::spool::run(&config, &Storage::of(fs), feed, &stop, &mut |event| match event {
        // Creating the empty spool before it takes some twenty calls, too few to matter.
        Event::PhaseDone { phase, .. } if phase.name == "unbatch" => within_s = seconds(),
        _ => {}
    });
    assert!(outcome.part.is_complete(), "{:?}", outcome.error);
    let phase = &outcome.part.phases[0].phase;
    let outside_s = spent.is_some().then_some(phase.wall_s - within_s);
    let (wall_s, user_s, sys_s) = (phase.wall_s, phase.user_s, phase.sys_s);
    Took { articles: phase.items, refused: 0, wall_s, user_s, sys_s, outside_s }
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
