//! Cases about directories and the file system as a whole: listings, `below`, room, durable names.

use std::collections::HashSet;
use std::path::Path;

use files::{FileKind, Status};

use super::{Case, Ground, assert_fails, cases};

pub(super) const CASES: &[Case] = cases![
    a_listing_of_nothing_and_of_one_is_exact,
    a_large_listing_tells_each_name_once,
    a_listing_of_no_directory_is_refused,
    a_listing_may_call_the_file_system_itself,
    numbers_in_listings_are_those_of_stat,
    the_empty_path_is_the_root,
    a_directory_held_as_root_stays_through_its_rename,
    room_is_told_plausibly,
    names_are_made_durable_where_there_is_a_directory,
    several_threads_share_one_file_system,
];

fn a_listing_of_nothing_and_of_one_is_exact(g: &Ground<'_>) {
    let dir = g.dir("directory");
    assert_eq!(g.listed(&dir), Vec::<Vec<u8>>::new());
    g.file("directory/only", b"1");
    assert_eq!(g.listed(&dir), [b"only".to_vec()]);
    g.fs.unlink(&g.at("directory/only")).expect("unlinked");
    assert_eq!(g.listed(&dir), Vec::<Vec<u8>>::new());
}

fn a_large_listing_tells_each_name_once(g: &Ground<'_>) {
    let dir = g.fs.below(&g.dir).expect("found");
    let name = |number| format!("entry-{number:05}-{}", "x".repeat(number % 40));
    let mut wanted: Vec<Vec<u8>> =
        (0..g.quirks.listing_entries).map(|number| name(number).into_bytes()).collect();
    for number in 0..g.quirks.listing_entries {
        dir.create(Path::new(&name(number))).expect("made").close().expect("closed");
    }
    wanted.sort();
    let listed = g.listed(&g.dir);
    assert!(listed == wanted, "{} names of {}", listed.len(), wanted.len());
    // Once more with a hole at every second name.
    for number in (0..g.quirks.listing_entries).step_by(2) {
        dir.unlink(Path::new(&name(number))).expect("unlinked");
    }
    assert_eq!(g.listed(&g.dir).len(), g.quirks.listing_entries / 2);
}

fn a_listing_of_no_directory_is_refused(g: &Ground<'_>) {
    let file = g.file("file", b"1");
    assert_fails(g.fs.readdir(&file, &mut |_| ()), &[Status::NOTDIR]);
    assert_fails(g.fs.readdir(&g.at("missing"), &mut |_| ()), &[Status::NOENT]);
    assert_fails(g.fs.below(&g.at("missing")), &[Status::NOENT]);
}

fn a_listing_may_call_the_file_system_itself(g: &Ground<'_>) {
    for number in 0..10 {
        g.file(format!("file-{number}"), &[b'x'; 10]);
    }
    let mut bytes = 0;
    let mut each = |entry: files::ListedEntry<'_>| {
        let name = std::str::from_utf8(entry.name).expect("plain");
        bytes += g.fs.stat(&g.at(name)).expect("there").size;
    };
    g.fs.readdir(&g.dir, &mut each).expect("listed");
    assert_eq!(bytes, 100);
}

fn numbers_in_listings_are_those_of_stat(g: &Ground<'_>) {
    g.file("file", b"1");
    g.dir("directory");
    g.fs.symlink(Path::new("file"), &g.at("link")).expect("linked");
    let mut listed = Vec::new();
    g.fs.readdir(&g.dir, &mut |entry| listed.push((entry.name.to_vec(), entry.fileid))).expect("listed");
    assert_eq!(listed.len(), 3);
    for (name, fileid) in &listed {
        let path = g.at(std::str::from_utf8(name).expect("plain"));
        assert_eq!(g.fs.stat(&path).expect("there").fileid, *fileid);
    }
    assert_eq!(listed.iter().map(|(_, fileid)| fileid).collect::<HashSet<_>>().len(), 3);
}

fn the_empty_path_is_the_root(g: &Ground<'_>) {
    let root = Path::new("");
    assert_eq!(g.fs.stat(root).expect("there").kind, FileKind::Directory);
    let own = g.dir.as_os_str().as_encoded_bytes().to_vec();
    assert!(g.listed(root).contains(&own));
    let same = g.fs.below(root).expect("found");
    assert_eq!(same.stat(&g.dir).expect("there").kind, FileKind::Directory);
    g.fs.sync_dir(root).expect("synced");
}

fn a_directory_held_as_root_stays_through_its_rename(g: &Ground<'_>) {
    let old = g.dir("old");
    let held = g.fs.below(&old).expect("found");
    held.create(Path::new("before")).expect("made");
    g.fs.rename(&old, &g.at("new")).expect("renamed");
    held.create(Path::new("after")).expect("made");
    assert_eq!(g.listed(&g.at("new")), [b"after".to_vec(), b"before".to_vec()]);
    held.unlink(Path::new("before")).expect("unlinked");
    assert!(g.is_missing(&g.at("new/before")));
    held.mkdir(Path::new("deep")).expect("made");
    let deeper = held.below(Path::new("deep")).expect("found");
    deeper.create(Path::new("file")).expect("made");
    assert_eq!(g.kind(&g.at("new/deep/file")), FileKind::Regular);
}

fn room_is_told_plausibly(g: &Ground<'_>) {
    let room = g.fs.statfs().expect("reported");
    assert!(room.bytes_total >= 1 << 20, "{room:?}");
    assert!(room.bytes_available > 0 && room.bytes_available <= room.bytes_free, "{room:?}");
    assert!(room.bytes_free <= room.bytes_total && room.files_free <= room.files_total, "{room:?}");
}

fn names_are_made_durable_where_there_is_a_directory(g: &Ground<'_>) {
    let dir = g.dir("directory");
    g.file("directory/file", b"1");
    g.fs.sync_dir(&dir).expect("synced");
    g.fs.sync_dir(&g.dir).expect("synced");
    assert_fails(g.fs.sync_dir(&g.at("missing")), &[Status::NOENT]);
}

fn several_threads_share_one_file_system(g: &Ground<'_>) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let dir = g.dir(format!("thread-{thread}"));
                for number in 0..25 {
                    let wanted = super::pattern(3000 + number, thread);
                    let path =
                        g.file(dir.strip_prefix(&g.dir).expect("below").join(number.to_string()), &wanted);
                    assert!(g.contents(&path) == wanted);
                    if number % 2 == 0 {
                        g.fs.unlink(&path).expect("unlinked");
                    }
                }
                assert_eq!(g.listed(&dir).len(), 12);
            });
        }
    });
}
