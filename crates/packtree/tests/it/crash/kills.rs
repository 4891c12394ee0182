//! A real process that works like a news server until it is killed, again and again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use disk::LocalDisk;
use files::{Access, FileKind, FileSystem, Status, SyncScope};
use packtree::{PackTree, TreeOptions, check};

use crate::no_room::FullImage;
use crate::scenario::{disk, made, mixed, pattern, read, scratch, write_all};

const KILLS: u64 = 20;
const DIRECTORY: &str = "CRUMB_TREE_CHILD_DIRECTORY";
const ROUND: &str = "CRUMB_TREE_CHILD_ROUND";
/// Files in the directory that is renamed.
const MANY: u64 = 100_000;

fn said(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).expect("the parent listens");
}

/// Stores articles with several names, appends to logs, expires, syncs; prints each step once it was acknowledged. Does nothing
/// unless it is the child.
#[test]
fn the_child_stores_until_it_is_killed() {
    let (Ok(directory), Ok(round)) = (std::env::var(DIRECTORY), std::env::var(ROUND)) else { return };
    let round: u64 = round.parse().expect("a number");
    let disk = Arc::new(LocalDisk::open(Path::new(&directory)).expect("there"));
    let options = TreeOptions { flush_every: None, ..TreeOptions::default() };
    let tree = PackTree::open(disk, &options, "pack:test").expect("it opens");
    std::thread::scope(|scope| {
        for writer in 0..3_u64 {
            let tree = &tree;
            scope.spawn(move || {
                let group = tree.make_own(Path::new(&format!("round-{round}-{writer}"))).expect("made");
                for step in 0_u64.. {
                    let article = format!("{step}");
                    let bytes =
                        pattern(200 + (mixed(step ^ writer << 32) % 9000) as usize, step << 2 | writer);
                    let mut file = group.create(Path::new("incoming")).expect("made");
                    write_all(&mut *file, &bytes[..100]);
                    write_all(&mut *file, &bytes[100..]);
                    if step % 16 == 0 {
                        file.sync(SyncScope::All).expect("synced");
                    }
                    drop(file);
                    group.rename(Path::new("incoming"), Path::new(&article)).expect("renamed");
                    group.link(Path::new(&article), Path::new(&format!("x{article}"))).expect("linked");
                    if step >= 50 {
                        group.unlink(Path::new(&format!("{}", step - 50))).expect("unlinked");
                    }
                    said(&format!("\n@done {writer} {step}\n"));
                }
            });
        }
    });
}

/// Removes files, in the order of their numbers.
#[test]
fn the_child_removes_until_it_is_killed() {
    let (Ok(directory), Ok(files)) = (std::env::var(DIRECTORY), std::env::var(ROUND)) else { return };
    let disk = Arc::new(LocalDisk::open(Path::new(&directory)).expect("there"));
    let tree = PackTree::open(disk, &TreeOptions::default(), "pack:test").expect("it opens");
    assert!(tree.unwritable().is_none(), "{:?}", tree.unwritable());
    for number in 0..files.parse::<u64>().expect("a number") {
        match tree.unlink(Path::new(&number.to_string())) {
            Ok(()) => said(&format!("\n@done {number}\n")),
            Err(error) => assert_eq!(error.status(), Some(Status::NOENT), "{number}: {error:?}"),
        }
    }
}

/// Renames a directory of many files to and fro.
#[test]
fn the_child_renames_until_it_is_killed() {
    let (Ok(directory), Err(_)) = (std::env::var(DIRECTORY), std::env::var(ROUND)) else { return };
    let disk = Arc::new(LocalDisk::open(Path::new(&directory)).expect("there"));
    let tree = PackTree::open(disk, &TreeOptions::default(), "pack:test").expect("it opens");
    let (here, there) = (Path::new("here"), Path::new("far/there"));
    if tree.stat(here).is_err() {
        tree.rename(there, here).expect("renamed");
    }
    for number in 0_u64.. {
        tree.rename(here, there).expect("renamed");
        tree.rename(there, here).expect("renamed");
        if number == 0 {
            said("\n@begun\n");
        }
    }
}

fn child(test: &str, directory: &Path, round: Option<u64>) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", &format!("crash::kills::{test}"), "--nocapture", "--test-threads=1"]);
    command.env(DIRECTORY, directory).env_remove(ROUND);
    if let Some(round) = round {
        command.env(ROUND, round.to_string());
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    command.spawn().expect("a child")
}

/// Kills the child after some lines, and returns all complete lines that it printed.
fn killed_after(mut child: Child, lines: u64) -> Vec<String> {
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut said = Vec::new();
    let mut line = String::new();
    let mut done = 0;
    while out.read_line(&mut line).expect("readable") > 0 {
        done += u64::from(line.starts_with('@'));
        if done == lines {
            child.kill().expect("killed");
        }
        if line.ends_with('\n') {
            said.push(line.trim().to_owned());
        }
        line.clear();
    }
    child.wait().expect("ended");
    assert!(done >= lines, "the child ended by itself: {said:?}");
    said
}

#[test]
fn a_process_that_is_killed_under_load_keeps_all_that_it_acknowledged() {
    let scratch = scratch();
    PackTree::create(&*disk(&scratch), &TreeOptions::default()).unwrap();
    for round in 0..KILLS {
        let lines = 20 + mixed(round) % 400;
        let said =
            killed_after(child("the_child_stores_until_it_is_killed", scratch.path(), Some(round)), lines);
        let mut last = [None; 3];
        for line in said {
            let mut words = line.strip_prefix("@done ").unwrap_or_default().split(' ');
            if let (Some(Ok(writer)), Some(Ok(step))) =
                (words.next().map(str::parse::<usize>), words.next().map(str::parse::<u64>))
            {
                last[writer] = Some(step);
            }
        }
        let report = check(&*disk(&scratch), |_, _| ()).unwrap();
        assert_eq!(report.faults, [], "round {round}");
        let tree = PackTree::open(disk(&scratch), &TreeOptions::default(), "pack:test").unwrap();
        for (writer, last) in (0_u64..).zip(last) {
            let group = format!("round-{round}-{writer}");
            for step in 0..last.map_or(0, |last| last + 1) {
                let bytes = pattern(200 + (mixed(step ^ writer << 32) % 9000) as usize, step << 2 | writer);
                assert!(read(&tree, &format!("{group}/x{step}")) == bytes, "round {round}: {group}/x{step}");
                let first = tree.stat(Path::new(&format!("{group}/{step}"))).map(|stat| stat.links);
                match first {
                    Ok(links) => assert_eq!(links, 2),
                    // The next ones may have expired it, acknowledged or not.
                    Err(error) => {
                        assert_eq!(error.status(), Some(Status::NOENT));
                        assert!(step + 50 <= last.unwrap_or(0) + 1, "round {round}: {group}/{step} is gone");
                    }
                }
            }
        }
    }
}

#[test]
fn removals_on_a_full_disk_that_are_killed_again_and_again_empty_the_tree() {
    let Some(full) = FullImage::needed() else { return };
    let mut gone = 0;
    for round in 0..8_u64 {
        full.fill(round);
        let lines = 1 + mixed(round) % 1_000;
        let test = "the_child_removes_until_it_is_killed";
        let said = killed_after(child(test, &full.directory, Some(full.files)), lines);
        gone = said.iter().filter_map(|line| line.strip_prefix("@done ")?.parse::<u64>().ok()).max().unwrap()
            + 1;
        full.is_whole(&format!("round {round}"));
        let tree = PackTree::open_to_read(full.disk(), &TreeOptions::default(), "pack:test").unwrap();
        assert!((0..gone).all(|number| !full.has(&tree, number)), "round {round}: of {gone}");
    }
    let tree = full.open();
    let left = (0..full.files).filter(|number| full.has(&tree, *number)).collect::<Vec<_>>();
    assert!(gone > 500 && left.len() as u64 > full.files - gone - 100, "{gone} gone, {} left", left.len());
    left.iter().for_each(|number| tree.unlink(Path::new(&number.to_string())).unwrap());
    tree.close().unwrap();
    full.is_whole("at the end");
    assert!(full.free_bytes() > 50 << 20, "{} bytes are free", full.free_bytes());
}

#[test]
fn a_directory_of_a_hundred_thousand_files_is_whole_after_a_kill_amid_its_renames() {
    let scratch = scratch();
    PackTree::create(&*disk(&scratch), &TreeOptions::default()).unwrap();
    let tree = PackTree::open(disk(&scratch), &TreeOptions::default(), "pack:test").unwrap();
    tree.mkdir(Path::new("far")).unwrap();
    let here = tree.make_own(Path::new("here")).unwrap();
    for number in 0..MANY {
        here.create(Path::new(&format!("file-{number}"))).unwrap();
    }
    drop(here);
    tree.close().unwrap();
    for _ in 0..5 {
        killed_after(child("the_child_renames_until_it_is_killed", scratch.path(), None), 1);
        let tree = PackTree::open(disk(&scratch), &TreeOptions::default(), "pack:test").unwrap();
        assert_eq!(tree.faults(), []);
        let found: Vec<_> =
            ["here", "far/there"].into_iter().filter(|path| tree.stat(Path::new(path)).is_ok()).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(tree.stat(Path::new(found[0])).unwrap().kind, FileKind::Directory);
        let mut names = 0;
        tree.readdir(Path::new(found[0]), &mut |_| names += 1).unwrap();
        assert_eq!(names, MANY);
    }
}

#[test]
fn an_unlinked_file_that_was_open_at_a_kill_is_gone_and_its_space_is_free() {
    let scratch = scratch();
    let tree = made(disk(&scratch));
    let mut file = tree.create(Path::new("open")).unwrap();
    write_all(&mut *file, &pattern(100_000, 1));
    tree.unlink(Path::new("open")).unwrap();
    write_all(&mut *file, b"more");
    assert!(tree.open(Path::new("open"), Access::Read).is_err());
    // The kill: another directory with the same bytes.
    let copy = self::scratch();
    for entry in std::fs::read_dir(scratch.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    let report = check(&*disk(&copy), |_, _| ()).unwrap();
    assert_eq!((report.files, report.leaked_bytes, report.faults), (0, 0, Vec::new()));
}
