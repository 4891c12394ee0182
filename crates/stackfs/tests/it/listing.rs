//! Reading managed directories: whole, while they change, and from where one was.

use std::collections::BTreeMap;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::scene::{Scene, cannot_mount, names};
use files::{Directory, DirectoryOptions, Layout, Reply, Request, Scratch};
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
use stackfs::StackOptions;

fn opened(path: &std::path::Path) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

/// Names with the position behind each, from where the descriptor stands.
fn rest(directory: &OwnedFd) -> Vec<(String, u64)> {
    let mut buffer = [MaybeUninit::uninit(); 1000];
    let mut raw = RawDir::new(directory, &mut buffer);
    let mut all = Vec::new();
    while let Some(entry) = raw.next() {
        let entry = entry.unwrap();
        all.push((entry.file_name().to_str().unwrap().to_owned(), entry.next_entry_cookie()));
    }
    all
}

#[test]
fn what_stays_is_told_exactly_once_while_all_around_it_comes_and_goes() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let group = scene.managed("group");
    let stays = |number: u32| number.is_multiple_of(7);
    for number in (0..7000).filter(|number| stays(*number)) {
        fs::write(group.join(number.to_string()), "").unwrap();
    }
    for name in ["overview", "x", "y"] {
        fs::write(group.join(name), "").unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (group, over) = (&group, &over);
            scope.spawn(move || {
                let mut number = worker;
                while !over.load(Ordering::Relaxed) {
                    number = (number + 1_234_567) % 20_000;
                    if !stays(number) || number >= 7000 {
                        let path = group.join(format!("{number}"));
                        if fs::write(&path, "").is_ok() && number % 3 > 0 {
                            let _ = fs::remove_file(&path);
                        }
                    }
                }
            });
        }
        for round in 0..30 {
            let mut seen = BTreeMap::<String, u32>::new();
            for name in names(&group) {
                *seen.entry(name).or_default() += 1;
            }
            let doubled: Vec<_> = seen.iter().filter(|(_, times)| **times > 1).collect();
            let missing: Vec<_> = (0..7000)
                .filter(|number| stays(*number) && !seen.contains_key(&number.to_string()))
                .collect();
            if !(doubled.is_empty() && missing.is_empty()) {
                over.store(true, Ordering::Relaxed);
                panic!("round {round}: doubled {doubled:?}, missing {missing:?}");
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn reading_starts_again_at_any_position_given_out_before() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let group = scene.managed("group");
    for number in 0..3000 {
        fs::write(group.join((number * 3).to_string()), "").unwrap();
    }
    fs::write(group.join("overview"), "").unwrap();
    let directory = opened(&group);
    let all = rest(&directory);
    assert_eq!(all.len(), 3003);
    assert_eq!([&all[0].0[..], &all[1].0[..], &all[2].0[..]], [".", "..", "overview"]);
    for at in [0, 1, 2, 3, 17, 1500, 2999, 3001, 3002, 40, 1501] {
        rustix::fs::seek(&directory, SeekFrom::Start(all[at].1)).unwrap();
        let names = |list: &[(String, u64)]| list.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&rest(&directory)), names(&all[at + 1..]), "from behind {:?}", all[at]);
    }
    // Back to the beginning, what was made meanwhile is there.
    fs::write(group.join("one-more"), "").unwrap();
    rustix::fs::seek(&directory, SeekFrom::Start(0)).unwrap();
    assert_eq!(rest(&directory).len(), 3004);
}

#[test]
fn a_tree_is_removed_while_it_is_being_read() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let group = scene.managed("group");
    for number in 0..2000 {
        fs::write(group.join(number.to_string()), "").unwrap();
    }
    fs::create_dir(group.join("2600")).unwrap();
    fs::write(group.join("2600/1"), "").unwrap();
    fs::remove_dir_all(&group).unwrap();
    assert!(!scene.lower("group").exists());
}

#[test]
fn inode_numbers_in_listings_are_those_of_the_files() {
    use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let group = scene.managed("group");
    fs::create_dir(scene.at("plain")).unwrap();
    for number in 0..50 {
        fs::write(group.join(number.to_string()), "").unwrap();
        fs::write(scene.at("plain").join(number.to_string()), "").unwrap();
    }
    for directory in [group, scene.at("plain"), scene.at("")] {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.ino(), entry.metadata().unwrap().ino(), "{:?}", entry.path());
        }
    }
}

/// NFS servers open a directory again for each part of a listing. It ended after the first part, without an error.
#[test]
fn a_position_means_the_same_after_reopening_and_after_a_remount() {
    if cannot_mount() {
        return;
    }
    for layout in Layout::ALL.into_iter().filter(|layout| *layout != Layout::Flat) {
        let mut scene = Scene::with(|options| StackOptions { layout_new: layout, ..options });
        let group = scene.managed("group");
        for number in 0..500 {
            fs::write(group.join((number * 7).to_string()), "").unwrap();
            fs::write(group.join(format!("name-{number}")), "").unwrap();
        }
        let all = rest(&opened(&group));
        assert_eq!(all.len(), 1002, "{layout}");
        let from = |at: usize| {
            let directory = opened(&group);
            rustix::fs::seek(&directory, SeekFrom::Start(all[at].1)).unwrap();
            rest(&directory)
        };
        let places = [0, 1, 2, 3, 333, 500, 501, 502, 999, 1000, 1001];
        for at in places {
            assert_eq!(from(at), all[at + 1..], "{layout}, from behind {:?}", all[at]);
        }
        // What comes and goes around a position does not move it.
        let gone = all[333].0.clone();
        fs::remove_file(group.join(&gone)).unwrap();
        assert_eq!(from(333), all[334..], "{layout}, from behind {gone}, which is gone");
        fs::write(group.join(gone), "").unwrap();
        let folder = scene.unmounted();
        scene = Scene::in_folder(folder, |options| options);
        for at in places {
            assert_eq!(from(at), all[at + 1..], "{layout}, remounted, from behind {:?}", all[at]);
        }
        drop(scene);
    }
}

/// `crumb serve dir` over a mount showed 52 of 2,002 names.
#[test]
fn an_nfs_server_over_a_mount_lists_every_name_once() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let group = scene.managed("group");
    for number in 0..1001 {
        fs::write(group.join(number.to_string()), "").unwrap();
        fs::write(group.join(format!("name-{number}")), "").unwrap();
    }
    let served = Directory::open(&group, DirectoryOptions::default()).unwrap();
    let mut scratch = Scratch::default();
    let (mut cookie, mut seen) = (0, BTreeMap::<Vec<u8>, u32>::new());
    loop {
        let root = served.root();
        let request = Request::Readdir { dir: root.by_ref(), cookie, verifier: [0; 8], count: 4096 };
        let Reply::Listing { entries, end, .. } = served.execute(&request, &mut scratch).unwrap() else {
            panic!("no listing");
        };
        for entry in entries {
            cookie = entry.cookie;
            *seen.entry(entry.name.to_vec()).or_default() += 1;
        }
        if end {
            break;
        }
    }
    assert_eq!(seen.len(), 2004, "2,002 names and the two dots");
    assert!(seen.values().all(|times| *times == 1));
}
