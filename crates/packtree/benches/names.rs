//! What many names cost: memory, files and bytes on disk, the time from a kill to the first operation, and a rename of a directory with
//! many files.
//!
//! `cargo bench -p packtree --bench names -- DIR FILES BYTES` fills a tree in DIR with FILES files of BYTES bytes, 1,000 in each
//! directory, is killed, and opens it again. DIR is made and removed. Run as a test it takes a few files.
//!
//! 1. A child makes the files, without a sync of its own, and is killed at once after the last.
//! 2. Another child opens what is there, stats a name, then every tenth name in a random order, and renames a directory of up
//!    to 100,000 files 200 times.
//!
//! Memory is the highest resident set of each child (`VmHWM`). Beside times of the clock are those on a processor (of the thread,
//! from `/proc/thread-self/schedstat`), which mean something on a busy machine too.

#![expect(clippy::print_stdout, reason = "a table is what it is for")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use disk::{Disk as _, LocalDisk};
use files::FileSystem as _;
use packtree::{PackTree, TreeOptions, check};

/// Files of a directory.
const TOGETHER: u64 = 1000;
/// Of the directory that is renamed.
const MANY: u64 = 100_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let number = |at: usize, default| words.get(at).map_or(default, |word| word.parse().expect("a number"));
    match words.first().map(String::as_str) {
        Some("fill") => fill(Path::new(&words[1]), number(2, 0), number(3, 0)),
        Some("open") => open(Path::new(&words[1]), number(2, 0)),
        Some(directory) => run(directory.into(), number(1, 1_000_000), number(2, 2048)),
        None => {
            let scratch = tempfile::tempdir().expect("a directory");
            run(scratch.path().join("tree"), 3000, 500);
        }
    }
}

fn run(directory: PathBuf, files: u64, bytes: u64) {
    std::fs::create_dir(&directory).expect("a new directory");
    let begun = Instant::now();
    let mut filling = child("fill", &directory, files, bytes);
    let said = line(&mut filling);
    filling.kill().and_then(|()| filling.wait()).expect("killed");
    println!("{files} files of {bytes} bytes, made in {:.1} s: {said}", begun.elapsed().as_secs_f64());
    on_disk(&directory, files, bytes);
    let mut opening = child("open", &directory, files, bytes);
    println!("after a kill: {}", line(&mut opening));
    assert!(opening.wait().expect("ended").success());
    if files <= 10_000 {
        let report = check(&LocalDisk::open(&directory).expect("there"), |_, _| ()).expect("a tree");
        assert!(report.faults.is_empty() && report.files == files + files.min(MANY), "{report:?}");
    }
    std::fs::remove_dir_all(&directory).expect("removed");
}

fn child(verb: &str, directory: &Path, files: u64, bytes: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.arg(verb).arg(directory).args([files, bytes].map(|number| number.to_string()));
    command.stdout(Stdio::piped()).spawn().expect("a child")
}

fn line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("a line");
    assert!(!line.is_empty(), "the child failed");
    line.trim().to_owned()
}

fn opened(directory: &Path) -> PackTree {
    let disk = Arc::new(LocalDisk::open(directory).expect("there"));
    PackTree::open(disk, &TreeOptions::default(), directory).expect("a tree")
}

fn name(number: u64) -> String {
    format!("{}/article-{number}", number / TOGETHER)
}

fn fill(directory: &Path, files: u64, bytes: u64) {
    PackTree::create(&LocalDisk::open(directory).expect("there"), &TreeOptions::default()).expect("made");
    let tree = opened(directory);
    let content = vec![b'x'; bytes as usize];
    let make = |path: &str| {
        let mut file = tree.create(path.as_ref()).expect("made");
        if !content.is_empty() {
            assert_eq!(file.write(&content).expect("written"), content.len());
        }
    };
    let (begun, cpu) = (Instant::now(), cpu_us());
    for number in 0..files {
        if number % TOGETHER == 0 {
            tree.mkdir((number / TOGETHER).to_string().as_ref()).expect("made");
        }
        make(&name(number));
    }
    let rate = files as f64 / begun.elapsed().as_secs_f64();
    let made_cpu_us = (cpu_us() - cpu) / files as f64;
    let memory = memory_mb();
    tree.mkdir("many".as_ref()).expect("made");
    for number in 0..files.min(MANY) {
        tree.create(format!("many/{number}").as_ref()).expect("made");
    }
    println!("{rate:.0}/s (processor {made_cpu_us:.1} us a file), memory {memory} MB");
    loop {
        std::thread::park();
    }
}

fn on_disk(directory: &Path, files: u64, bytes: u64) {
    let disk = LocalDisk::open(directory).expect("there");
    let names = disk.names().expect("listed");
    let lengths =
        names.iter().map(|name| (name, std::fs::metadata(directory.join(name)).expect("there").len()));
    let (space, others): (Vec<_>, Vec<_>) = lengths.partition(|(name, _)| *name == "space");
    let (space, others): (u64, u64) =
        (space.iter().map(|(_, bytes)| bytes).sum(), others.iter().map(|(_, bytes)| bytes).sum());
    println!(
        "{} files on disk; space {} MB, names and lists {} MB ({:.0} bytes a name); the files' own bytes: {} MB",
        names.len(),
        space >> 20,
        others >> 20,
        others as f64 / (files + files.min(MANY)) as f64,
        (files * bytes) >> 20
    );
}

fn open(directory: &Path, files: u64) {
    let (begun, cpu) = (Instant::now(), cpu_us());
    let tree = opened(directory);
    tree.stat(name(files / 2).as_ref()).expect("there");
    let (first_ms, first_cpu_ms) = (begun.elapsed().as_secs_f64() * 1e3, (cpu_us() - cpu) / 1e3);
    let room = LocalDisk::open(directory).expect("there").room().expect("known").free_bytes;
    let free = tree.statfs().expect("known").bytes_free.saturating_sub(room);
    let (begun, cpu) = (Instant::now(), cpu_us());
    let looked = (files / 10).max(1);
    let mut drawn: u64 = 1;
    for _ in 0..looked {
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        tree.stat(name((drawn >> 20) % files).as_ref()).expect("there");
    }
    let stat_us = begun.elapsed().as_secs_f64() * 1e6 / looked as f64;
    let stat_cpu_us = (cpu_us() - cpu) / looked as f64;
    let mut renames_us: Vec<f64> = (0..200)
        .map(|number| {
            let (from, to) = if number % 2 == 0 { ("many", "0/moved") } else { ("0/moved", "many") };
            let begun = Instant::now();
            tree.rename(from.as_ref(), to.as_ref()).expect("renamed");
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    renames_us.sort_by(f64::total_cmp);
    println!(
        "first operation {first_ms:.0} ms (processor {first_cpu_ms:.0} ms), {} MB of space free; a stat of a random name {stat_us:.1} us \
         (processor {stat_cpu_us:.1} us); memory {} MB; rename of a directory with {} files {:.0} us, at most {:.0} us",
        free >> 20,
        memory_mb(),
        files.min(MANY),
        renames_us[100],
        renames_us[199],
    );
}

/// Since a thread began, on a processor.
fn cpu_us() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("readable");
    text.split(' ').next().expect("a number").parse::<f64>().expect("a number") / 1e3
}

fn memory_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("there");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") >> 10
}
