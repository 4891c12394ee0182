//! Files that are opened again soon after they were read: the daemon keeps them, and nobody notices.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::scene::{Scene, cannot_mount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use stackfs::Timeouts;

/// Tells when the last descriptor of a file without a name is closed: its blocks are free then.
struct Freed(OwnedFd);

impl Freed {
    fn watch(file: &Path) -> Self {
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC).expect("inotify");
        inotify::add_watch(&watch, file, inotify::WatchFlags::DELETE_SELF).expect("watched");
        Self(watch)
    }

    fn within(&self, seconds: i64) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut polled, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })).expect("polled") == 1
    }
}

#[test]
fn a_file_replaced_below_is_read_anew() {
    if cannot_mount() {
        return;
    }
    let believe_nothing =
        Timeouts { entry: Duration::ZERO, attributes: Duration::ZERO, missing: Duration::ZERO };
    let scene = Scene::with(|mut options| {
        options.timeouts = believe_nothing;
        options
    });
    for round in 0..20 {
        let text = format!("round {round}");
        fs::write(scene.lower("new"), &text).unwrap();
        fs::rename(scene.lower("new"), scene.lower("read")).unwrap();
        for _ in 0..2 {
            assert_eq!(fs::read_to_string(scene.at("read")).unwrap(), text);
        }
    }
}

#[test]
fn what_is_written_after_a_reading_is_read_by_the_next() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let path = scene.at("appended");
    fs::write(&path, "").unwrap();
    let mut expected = String::new();
    for round in 0..20 {
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        let more = format!("line {round}\n");
        File::options().append(true).open(&path).unwrap().write_all(more.as_bytes()).unwrap();
        expected += &more;
    }
    // Both kinds of open at once, the reader first.
    let mut reader = File::open(&path).unwrap();
    File::options().write(true).open(&path).unwrap().write_all_at(b"LINE", 0).unwrap();
    let mut seen = String::new();
    reader.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, expected.replacen("line", "LINE", 1));
}

#[test]
fn a_file_removed_after_it_was_read_gives_its_blocks_back() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let path = scene.at("removed-after-reading");
    fs::write(&path, "some bytes").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"some bytes");
    let freed = Freed::watch(&scene.lower("removed-after-reading"));
    fs::remove_file(&path).unwrap();
    // Sooner than what is idle expires: the kernel forgets the inode at once.
    assert!(freed.within(4), "still open, so its blocks are taken");
}

#[test]
fn a_program_just_read_can_be_written_and_one_being_run_cannot() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let program = scene.at("program");
    fs::copy("/bin/sleep", &program).unwrap();
    assert!(!fs::read(&program).unwrap().is_empty());
    let mut running =
        std::process::Command::new(&program).arg("60").spawn().expect("a program just read runs");
    let busy = File::options().write(true).open(&program);
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(busy.unwrap_err().kind(), std::io::ErrorKind::ExecutableFileBusy);
    assert!(File::options().write(true).open(&program).is_ok());
}

#[test]
fn a_file_removed_below_is_let_go_of_after_a_while() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    fs::write(scene.lower("gone-below"), "some bytes").unwrap();
    assert_eq!(fs::read(scene.at("gone-below")).unwrap(), b"some bytes");
    let freed = Freed::watch(&scene.lower("gone-below"));
    fs::remove_file(scene.lower("gone-below")).unwrap();
    assert!(!freed.within(0), "nobody kept it open, so nothing is shown");
    assert!(freed.within(30), "its blocks stay taken");
}
