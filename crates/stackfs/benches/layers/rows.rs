//! The rows: what is done, and for how long it took.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, statat, sync};

/// How much is done.
pub struct Sizes {
    pub files: usize,
    pub listed: usize,
    pub stream_mib: usize,
    /// A package with `configure`, built in a copy.
    pub package: Option<PathBuf>,
    /// What of it `make` shall make; all when empty.
    pub make_target: Option<String>,
    /// Which; all when empty.
    pub parts: Vec<Part>,
}

impl Sizes {
    pub fn full() -> Self {
        Self {
            files: 10_000,
            listed: 100_000,
            stream_mib: 1024,
            package: None,
            make_target: None,
            parts: Vec::new(),
        }
    }

    pub fn tiny() -> Self {
        Self { files: 50, listed: 100, stream_mib: 1, package: None, make_target: None, parts: Vec::new() }
    }
}

/// A row of the table.
pub struct Row {
    pub title: String,
    pub unit: &'static str,
    /// Its name in a run record.
    pub metric: &'static str,
    /// What is divided by the seconds; 0 where the seconds themselves are the figure.
    amount: f64,
}

impl Row {
    /// A rate, or the seconds where they are the figure.
    pub fn value(&self, seconds: f64) -> f64 {
        if self.amount > 0.0 { self.amount / seconds } else { seconds }
    }

    /// Formats a time for the table.
    pub fn figure(&self, seconds: f64) -> String {
        if self.amount > 0.0 { format!("{:.0}", self.value(seconds)) } else { format!("{seconds:.2}") }
    }
}

/// What is measured on one layer at a stretch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    SmallFiles,
    Listing,
    Stream,
    Package,
}

const BYTES: usize = 2048;
const MIB: usize = 1 << 20;
const FILES_PER_S: &str = "  files/s";

pub fn all(sizes: &Sizes) -> Vec<Row> {
    let (files, listed, mib) = (sizes.files as f64, sizes.listed as f64, sizes.stream_mib as f64);
    let row = |title: &str, metric, unit, amount| Row { title: title.to_owned(), unit, metric, amount };
    let mut rows = vec![
        row("create", "create_per_sec", FILES_PER_S, files),
        row("stat, cold", "stat_cold_per_sec", FILES_PER_S, files),
        row("stat, warm", "stat_warm_per_sec", FILES_PER_S, files),
        row("open, read, close", "open_read_close_per_sec", FILES_PER_S, files),
        row("unlink", "unlink_per_sec", FILES_PER_S, files),
        row("list, stat, cold", "list_stat_cold_per_sec", "  entries/s", listed),
        row("write, fsync", "write_mib_per_sec", "  MiB/s", mib),
        row("read, cold", "read_cold_mib_per_sec", "  MiB/s", mib),
        row("read, warm", "read_warm_mib_per_sec", "  MiB/s", mib),
    ];
    if sizes.package.is_some() {
        rows.push(row("configure, make", "build_s", "  s", 0.0));
    }
    rows
}

impl Part {
    pub fn of(sizes: &Sizes) -> impl Iterator<Item = Self> {
        let package = sizes.package.as_ref().map(|_| Self::Package);
        let all = [Self::SmallFiles, Self::Listing, Self::Stream].into_iter().chain(package);
        all.filter(|part| sizes.parts.is_empty() || sizes.parts.contains(part))
    }

    pub fn named(name: &str) -> Result<Self, String> {
        match name {
            "small" => Ok(Self::SmallFiles),
            "listing" => Ok(Self::Listing),
            "stream" => Ok(Self::Stream),
            "package" => Ok(Self::Package),
            _ => Err(format!("--parts {name}: small, listing, stream or package")),
        }
    }

    /// The rows it gives, as `all` numbers them.
    pub fn rows(self) -> std::ops::Range<usize> {
        match self {
            Self::SmallFiles => 0..5,
            Self::Listing => 5..6,
            Self::Stream => 6..9,
            Self::Package => 9..10,
        }
    }

    /// Seconds for each of its rows; none where a row needs cold caches and they cannot be dropped.
    pub fn measure(self, sizes: &Sizes, directory: &Path) -> Vec<Option<f64>> {
        let folder = directory.join("layers-bench");
        let _left = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder of our own");
        let figures = match self {
            Self::SmallFiles => small_files(sizes.files, &folder),
            Self::Listing => vec![listing(sizes.listed, &folder)],
            Self::Stream => stream(sizes.stream_mib, &folder).to_vec(),
            Self::Package => {
                sizes.package.iter().map(|package| Some(build(package, sizes, &folder))).collect()
            }
        };
        fs::remove_dir_all(&folder).expect("our own folder goes");
        assert_eq!(figures.len(), self.rows().len());
        figures
    }
}

fn timed(what: impl FnOnce()) -> f64 {
    let began = Instant::now();
    what();
    began.elapsed().as_secs_f64()
}

/// Drops the kernel's caches of clean pages, dentries and inodes; false without the right.
fn dropped() -> bool {
    sync();
    OpenOptions::new()
        .write(true)
        .open("/proc/sys/vm/drop_caches")
        .is_ok_and(|mut file| file.write_all(b"3").is_ok())
}

fn cold(what: impl FnOnce()) -> Option<f64> {
    dropped().then(|| timed(what))
}

/// Names in an order that no directory is kept in.
fn scattered(count: usize, folder: &Path) -> Vec<PathBuf> {
    let step = (count / 2..).find(|step| gcd(*step, count) == 1).unwrap_or(1);
    (0..count).map(|at| folder.join((at * step % count).to_string())).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn stat_all(paths: &[PathBuf]) {
    for path in paths {
        statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).expect("it is there");
    }
}

fn fill(paths: &[PathBuf]) {
    let body = [b'c'; BYTES];
    for path in paths {
        let mut file = File::create_new(path).expect("made");
        file.write_all(&body).expect("written");
    }
}

fn small_files(count: usize, folder: &Path) -> Vec<Option<f64>> {
    let in_order: Vec<PathBuf> = (0..count).map(|at| folder.join(at.to_string())).collect();
    let paths = scattered(count, folder);
    let create = timed(|| fill(&in_order));
    let stat_cold = cold(|| stat_all(&paths));
    stat_all(&paths);
    let stat_warm = timed(|| stat_all(&paths));
    let read_all = || {
        let mut body = [0; BYTES];
        for path in &paths {
            let mut file = File::open(path).expect("opened");
            let read = file.read(&mut body).expect("read");
            assert_eq!(read, BYTES);
        }
    };
    read_all();
    let read_warm = timed(read_all);
    let unlink = timed(|| paths.iter().for_each(|path| fs::remove_file(path).expect("removed")));
    vec![Some(create), stat_cold, Some(stat_warm), Some(read_warm), Some(unlink)]
}

fn listing(count: usize, folder: &Path) -> Option<f64> {
    let listed = folder.join("listed");
    fs::create_dir(&listed).expect("made");
    for at in 0..count {
        File::create_new(listed.join(format!("{at}.txt"))).expect("made");
    }
    let mut seen = 0;
    let took = cold(|| {
        for entry in fs::read_dir(&listed).expect("listed") {
            let entry = entry.expect("an entry");
            entry.metadata().expect("its attributes");
            seen += 1;
        }
    });
    assert!(took.is_none() || seen == count, "{seen} of {count} entries");
    took
}

fn stream(mib: usize, folder: &Path) -> [Option<f64>; 3] {
    let path = folder.join("stream");
    let block: Vec<u8> = (0..MIB).map(|at| (at % 251) as u8).collect();
    let write = timed(|| {
        let mut file = File::create_new(&path).expect("made");
        for _ in 0..mib {
            file.write_all(&block).expect("written");
        }
        file.sync_all().expect("synced");
    });
    let read = || {
        let file = File::open(&path).expect("opened");
        let mut bytes = vec![0; MIB];
        for at in 0..mib {
            file.read_exact_at(&mut bytes, (at * MIB) as u64).expect("read");
        }
        assert!(bytes == block, "other bytes than were written");
    };
    let read_cold = cold(read);
    read();
    let read_warm = timed(read);
    [Some(write), read_cold, Some(read_warm)]
}

/// configure and make, as a user would, of a fresh copy; the copying is not counted.
fn build(package: &Path, sizes: &Sizes, folder: &Path) -> f64 {
    let copy = folder.join("package");
    let run = |command: &mut Command| {
        let done = command.stdout(Stdio::null()).stderr(Stdio::null()).status().expect("it starts");
        assert!(done.success(), "{command:?}: {done}");
    };
    // With their times: make would else make again what came ready made.
    run(Command::new("cp").args(["-r", "--preserve=timestamps"]).arg(package).arg(&copy));
    timed(|| {
        run(Command::new("./configure").current_dir(&copy));
        run(Command::new("make").args(&sizes.make_target).current_dir(&copy));
    })
}
