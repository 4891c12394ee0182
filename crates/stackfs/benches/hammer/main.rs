//! Threads that hammer one directory tree, to see whether anything fails or leaks in the long run.
//!
//! ```text
//! cargo bench -p stackfs --bench hammer -- DIRECTORY... [--seconds N] [--threads N]
//! ```
//!
//! Each thread has names of its own in all the directories, knows which of them are there and what is in them, and
//! does random operations: make, read and compare, append, cut, rename within and across the directories, link, stat,
//! list, remove. Names that all threads share are made, opened and removed as well; there alone may something be
//! there or missing. Anything else is an error, printed and counted; at the end the bench compares and removes what remains.
//! Prints operations and errors; exit status 1 when there were errors. Around it `scripts/measure-stackfs.sh soak`
//! looks at the daemon's memory and descriptors. Without `--bench`, as `cargo test` starts it, it takes a moment.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Result, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Names a thread has in a directory: numbers, as articles have, spread over all hidden directories.
const NAMES_MAX: u64 = 400;
const BYTES_MAX: u64 = 16_384;
/// Names that all threads fight about.
const SHARED_NAMES: u64 = 20;
/// Errors printed before they are only counted.
const PRINTED_MAX: u64 = 20;

fn main() -> ExitCode {
    let (mut seconds, mut threads, mut directories) = (0.2, 8, Vec::<PathBuf>::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value =
            || args.next().and_then(|text| text.parse::<f64>().ok()).expect("a number after the flag");
        match arg.as_str() {
            "--bench" => seconds = 10.0,
            "--seconds" => seconds = value(),
            "--threads" => threads = value() as u64,
            directory => directories.push(directory.into()),
        }
    }
    let scratch = tempfile::tempdir().expect("a directory");
    if directories.is_empty() {
        directories = vec![scratch.path().join("a"), scratch.path().join("b")];
        directories.iter().for_each(|directory| fs::create_dir(directory).expect("made"));
    }
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let directories = &directories;
    let (operations, errors) = std::thread::scope(|scope| {
        let hammers: Vec<_> =
            (0..threads).map(|at| scope.spawn(move || Hammer::new(at, directories).run(until))).collect();
        hammers.into_iter().fold((0, 0), |sum, hammer| {
            let done = hammer.join().expect("a hammer does not panic");
            (sum.0 + done.0, sum.1 + done.1)
        })
    });
    println!("{operations} operations by {threads} threads in {seconds} s, {errors} errors");
    if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One thread, and what it knows to be there: directory and number, with the bytes in it.
struct Hammer<'a> {
    thread: u64,
    directories: &'a [PathBuf],
    there: BTreeMap<(usize, u64), Vec<u8>>,
    random: u64,
    operations: u64,
    errors: u64,
}

impl<'a> Hammer<'a> {
    fn new(thread: u64, directories: &'a [PathBuf]) -> Self {
        let random = 0x9e37_79b9_7f4a_7c15 ^ (thread + 1) << 20;
        Self { thread, directories, there: BTreeMap::new(), random, operations: 0, errors: 0 }
    }

    fn run(mut self, until: Instant) -> (u64, u64) {
        while Instant::now() < until {
            let done = self.step();
            self.note("in the middle", done);
        }
        for (place, bytes) in std::mem::take(&mut self.there) {
            let path = self.path(place);
            let done = compare(&path, &bytes).and_then(|()| fs::remove_file(&path));
            self.note("at the end", done);
        }
        for at in 0..SHARED_NAMES {
            drop(fs::remove_file(self.shared(at)));
        }
        (self.operations, self.errors)
    }

    fn note(&mut self, when: &str, done: Result<()>) {
        self.operations += 1;
        if let Err(error) = done {
            self.errors += 1;
            if self.errors <= PRINTED_MAX {
                eprintln!("thread {}, {when}: {error}", self.thread);
            }
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    /// Numbers of all lengths; a thread's own by their first digits.
    fn path(&self, (directory, number): (usize, u64)) -> PathBuf {
        self.directories[directory].join(format!("{}{number:05}", self.thread + 1))
    }

    fn shared(&self, at: u64) -> PathBuf {
        self.directories[at as usize % self.directories.len()].join(format!("shared.{at}"))
    }

    fn any_place(&mut self) -> (usize, u64) {
        (self.below(self.directories.len() as u64) as usize, self.below(NAMES_MAX))
    }

    fn step(&mut self) -> Result<()> {
        let place = self.any_place();
        let path = self.path(place);
        if self.below(10) == 0 {
            return self.fight();
        }
        let Some(bytes) = self.there.get(&place).cloned() else {
            if fs::symlink_metadata(&path).is_ok() {
                return Err(std::io::Error::other(format!("{} is there and should not be", path.display())));
            }
            return self.make(place, &path);
        };
        match self.below(9) {
            0 | 1 => compare(&path, &bytes),
            2 => {
                let more = self.bytes();
                OpenOptions::new().append(true).open(&path)?.write_all(&more)?;
                self.there.insert(place, [bytes, more].concat());
                Ok(())
            }
            3 => {
                let len = self.below(bytes.len() as u64 + 1);
                OpenOptions::new().write(true).open(&path)?.set_len(len)?;
                self.there.insert(place, bytes[..len as usize].to_vec());
                Ok(())
            }
            4 => {
                let to = self.any_place();
                fs::rename(&path, self.path(to))?;
                self.there.remove(&place);
                self.there.insert(to, bytes);
                Ok(())
            }
            5 => {
                let other = path.with_file_name(format!("link.{}", self.thread));
                fs::hard_link(&path, &other)?;
                let compared = compare(&other, &bytes);
                fs::remove_file(&other).and(compared)
            }
            6 => {
                let len = fs::metadata(&path)?.len();
                if len == bytes.len() as u64 { Ok(()) } else { Err(differs(&path, "length")) }
            }
            7 if self.below(20) == 0 => self.list(place.0),
            _ => {
                fs::remove_file(&path)?;
                self.there.remove(&place);
                Ok(())
            }
        }
    }

    fn make(&mut self, place: (usize, u64), path: &Path) -> Result<()> {
        let bytes = self.bytes();
        File::create_new(path)?.write_all(&bytes)?;
        self.there.insert(place, bytes);
        Ok(())
    }

    fn bytes(&mut self) -> Vec<u8> {
        let (first, len) = (self.below(251), self.below(BYTES_MAX));
        (0..len).map(|at| ((first + at) % 251) as u8).collect()
    }

    /// All of this thread's names and no other of its own, each once.
    fn list(&mut self, directory: usize) -> Result<()> {
        let begin = (self.thread + 1).to_string();
        let mut seen = Vec::new();
        for entry in fs::read_dir(&self.directories[directory])? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            if name.len() == begin.len() + 5 && name.starts_with(&begin) {
                seen.push(name[begin.len()..].parse().unwrap_or(u64::MAX));
            }
        }
        seen.sort_unstable();
        let known: Vec<u64> =
            self.there.keys().filter(|place| place.0 == directory).map(|place| place.1).collect();
        if seen == known {
            return Ok(());
        }
        let lacking: Vec<&u64> = known.iter().filter(|number| !seen.contains(number)).collect();
        let strange: Vec<&u64> = seen.iter().filter(|number| !known.contains(number)).collect();
        let doubled: Vec<&u64> = seen.windows(2).filter(|two| two[0] == two[1]).map(|two| &two[0]).collect();
        Err(std::io::Error::other(format!(
            "{}: a listing of {} names lacks {lacking:?}, has {strange:?} besides and {doubled:?} twice",
            self.directories[directory].display(),
            known.len()
        )))
    }

    /// Something with a name that others use as well.
    fn fight(&mut self) -> Result<()> {
        let at = self.below(SHARED_NAMES);
        let path = self.shared(at);
        let done = match self.below(4) {
            0 => File::create_new(&path).and_then(|mut file| file.write_all(b"fought for")),
            1 => File::open(&path).and_then(|mut file| file.read_to_end(&mut Vec::new()).map(drop)),
            2 => {
                let to = self.below(SHARED_NAMES);
                fs::rename(&path, self.shared(to))
            }
            _ => fs::remove_file(&path),
        };
        done.or_else(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        })
    }
}

fn compare(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path)? == bytes { Ok(()) } else { Err(differs(path, "content")) }
}

fn differs(path: &Path, what: &str) -> std::io::Error {
    std::io::Error::other(format!("{}: another {what} than was left there", path.display()))
}
