//! Rates of the store beside one file an object and a database's BLOBs, in the same directory and by the same calls: put, durable
//! put, get, miss; what an object costs; cold gets; gets beside compaction; restart; a steady load on a nearly full store.
//!
//! ```text
//! cargo bench -p packstore --bench rates -- [DIR] [--objects N] [--rounds N]     the table (50000, 3), all laws
//!                                           --law cdn|web|small                  one of them
//!                                           --cold GETS                          single gets after caches are dropped (root)
//!                                           --compact                            gets beside compaction
//!                                           --restart OBJECTS                    first hits after a stop and a kill
//!                                           --steady SECONDS                     half gets, nine tenths full
//!                                           --ttl PUTS                           objects with a time to live, nine tenths full
//!                                           --puts ROUNDS                        puts alone, for a profiler
//! ```
//!
//! Rounds are interleaved, each peer first in turn. Run as a test it is tiny.

#![expect(clippy::print_stdout, reason = "a bench says what it found")]

mod cold;
mod compacting;
mod lifetimes;
mod load;
mod peers;
mod restart;
mod steady;
mod table;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::load::Load;

struct Settings {
    dir: PathBuf,
    objects: usize,
    rounds: usize,
    law: Option<String>,
    cold: usize,
    compact: bool,
    restart: usize,
    steady: usize,
    ttl: usize,
    puts: usize,
}

impl Settings {
    /// As asked for, or, run as a test, all there is on a small scale.
    fn told() -> Self {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let none = Self {
            dir,
            objects: 50_000,
            rounds: 3,
            law: None,
            cold: 0,
            compact: false,
            restart: 0,
            steady: 0,
            ttl: 0,
            puts: 0,
        };
        if std::env::args().all(|arg| arg != "--bench") {
            let law = Some("web".to_owned());
            return Self {
                objects: 300,
                rounds: 1,
                law,
                compact: true,
                restart: 2_000,
                steady: 1,
                ttl: 3_000,
                ..none
            };
        }
        let mut told = none;
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut next = || args.next().unwrap_or_else(|| panic!("{arg} wants a value"));
            match arg.as_str() {
                "--law" => told.law = Some(next()),
                "--compact" => told.compact = true,
                "--bench" => {}
                path if !path.starts_with('-') => told.dir = PathBuf::from(path),
                option => {
                    let number = next().parse().unwrap_or_else(|_| panic!("{option} wants a number"));
                    match option {
                        "--objects" => told.objects = number,
                        "--rounds" => told.rounds = number,
                        "--cold" => told.cold = number,
                        "--restart" => told.restart = number,
                        "--steady" => told.steady = number,
                        "--ttl" => told.ttl = number,
                        "--puts" => told.puts = number,
                        _ => panic!("{option}: not known; the head of the bench tells the options"),
                    }
                }
            }
        }
        told
    }

    /// Object lengths that are to be tried.
    fn loads(&self) -> Vec<Load> {
        let wanted = |law: &str| self.law.as_deref().is_none_or(|only| only == law);
        let mut loads = Vec::new();
        loads.extend(wanted("web").then(|| Load::lognormal(self.objects, 10_600.0)));
        loads.extend(wanted("small").then(|| Load::lognormal(self.objects, 1_000.0)));
        loads.extend(wanted("cdn").then(|| Load::cdn(self.objects)));
        loads
    }
}

fn main() {
    let settings = Settings::told();
    let scratch = tempfile::tempdir_in(&settings.dir).expect("a directory");
    let scratch = scratch.path();
    println!("{} objects in {}", settings.objects, settings.dir.display());
    if settings.puts > 0 {
        return only_puts(scratch, &settings);
    }
    let one_part = settings.cold > 0 || settings.compact || settings.restart > 0 || settings.steady > 0;
    let one_part = one_part || settings.ttl > 0;
    let tested = std::env::args().all(|arg| arg != "--bench");
    let loads = settings.loads();
    if !one_part || tested {
        loads.iter().for_each(|load| table::print(scratch, load, settings.rounds));
    }
    if settings.cold > 0 {
        loads.iter().for_each(|load| cold::print(scratch, load, settings.cold));
    }
    if settings.compact {
        loads.iter().for_each(|load| compacting::print(scratch, load));
    }
    if settings.restart > 0 {
        restart::print(scratch, settings.restart);
    }
    if settings.steady > 0 {
        loads.iter().for_each(|load| steady::print(scratch, load, settings.steady));
    }
    if settings.ttl > 0 {
        for load in &loads {
            [1, 4].into_iter().for_each(|lifetimes| lifetimes::print(scratch, load, settings.ttl, lifetimes));
        }
    }
}

fn only_puts(dir: &Path, settings: &Settings) {
    let load = Load::lognormal(settings.objects, 10_600.0);
    let packed = peers::Packed::make(dir, &load, false);
    for round in 0..settings.puts {
        let begun = Instant::now();
        (0..load.count()).for_each(|at| peers::Peer::put(&packed, at, load.body(at)));
        println!("round {round}: {:.0} puts/s", rate(load.count(), begun));
    }
}

/// A second's.
fn rate(count: usize, begun: Instant) -> f64 {
    count as f64 / begun.elapsed().as_secs_f64()
}

/// An empty directory of this name.
fn empty(dir: &Path, name: &str) -> PathBuf {
    let dir = dir.join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("made");
    dir
}

/// The value below which this part of them lies.
fn percentile(sorted: &[u64], part: f64) -> u64 {
    sorted.get(((sorted.len().max(1) - 1) as f64 * part) as usize).copied().unwrap_or(0)
}
