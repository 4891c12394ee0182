//! Cases about names: links, renames, removals, and what names may be made of.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use files::{Access, FileKind, FsError, Status};

use super::{Case, Ground, assert_fails, cases};

pub(super) const CASES: &[Case] = cases![
    a_second_name_is_the_same_file_and_links_are_counted,
    a_second_name_is_refused_where_one_is_or_for_a_directory,
    a_symbolic_link_holds_its_text_and_is_itself_what_stat_sees,
    links_are_followed_by_open_and_in_the_middle_of_a_path,
    a_loop_of_links_ends_in_an_error,
    readlink_of_anything_else_is_refused,
    a_rename_moves_and_replaces_files,
    a_rename_of_a_directory_takes_its_entries_along,
    a_rename_that_makes_no_sense_changes_nothing,
    unlink_removes_names_of_files_only,
    rmdir_removes_empty_directories_only,
    mkdir_takes_no_name_that_is_taken,
    names_are_bytes_without_meaning,
    a_name_of_255_bytes_is_good_and_one_more_is_not,
    a_path_through_a_file_leads_nowhere,
    a_path_is_relative_and_does_not_climb,
    the_root_has_no_name_to_change,
    an_error_names_the_path_and_what_was_tried,
];

fn a_second_name_is_the_same_file_and_links_are_counted(g: &Ground<'_>) {
    let (one, two) = (g.file("one", b"12345"), g.at("two"));
    assert_eq!(g.fs.stat(&one).expect("there").links, 1);
    g.fs.link(&one, &two).expect("linked");
    let (first, second) = (g.fs.stat(&one).expect("there"), g.fs.stat(&two).expect("there"));
    assert_eq!((first.links, second.links, first.fileid), (2, 2, second.fileid));
    let mut file = g.fs.open(&two, Access::Append).expect("opened");
    file.write(b"6").expect("written");
    file.close().expect("closed");
    assert_eq!(g.contents(&one), b"123456");
    g.fs.unlink(&one).expect("unlinked");
    assert_eq!((g.fs.stat(&two).expect("there").links, g.contents(&two)), (1, b"123456".to_vec()));
}

fn a_second_name_is_refused_where_one_is_or_for_a_directory(g: &Ground<'_>) {
    let (file, other, dir) = (g.file("file", b"1"), g.file("other", b"2"), g.dir("directory"));
    assert_fails(g.fs.link(&file, &other), &[Status::EXIST]);
    assert_eq!(g.contents(&other), b"2");
    assert_fails(g.fs.link(&g.at("missing"), &g.at("new")), &[Status::NOENT]);
    assert_fails(g.fs.link(&file, &g.at("missing/new")), &[Status::NOENT]);
    // POSIX has EPERM; RFC 1813 names no code, and servers choose.
    let refused = [Status::PERM, Status::INVAL, Status::ISDIR, Status::NOTSUPP, Status::BADTYPE];
    assert_fails(g.fs.link(&dir, &g.at("new")), &refused);
    assert!(g.is_missing(&g.at("new")));
}

fn a_symbolic_link_holds_its_text_and_is_itself_what_stat_sees(g: &Ground<'_>) {
    let long = "d/".repeat(400) + "end";
    for (number, text) in ["nowhere", "../up", "/absolute/place", "with blank\n", &long].iter().enumerate() {
        let link = g.at(format!("link-{number}"));
        g.fs.symlink(Path::new(text), &link).expect("linked");
        assert_eq!(g.fs.readlink(&link).expect("read"), Path::new(text));
        let stat = g.fs.stat(&link).expect("there");
        assert_eq!((stat.kind, stat.size), (FileKind::Symlink, text.len() as u64));
        assert_fails(g.fs.symlink(Path::new("other"), &link), &[Status::EXIST]);
    }
    assert_fails(g.fs.symlink(Path::new(""), &g.at("empty")), &[Status::NOENT, Status::INVAL]);
}

fn links_are_followed_by_open_and_in_the_middle_of_a_path(g: &Ground<'_>) {
    let dir = g.dir("directory");
    let deep = g.dir("directory/deep");
    g.file("directory/file", b"12345");
    g.fs.symlink(Path::new("directory"), &g.at("to-dir")).expect("linked");
    g.fs.symlink(Path::new("to-dir/file"), &g.at("to-file")).expect("linked");
    g.fs.symlink(Path::new("../file"), &deep.join("up")).expect("linked");
    assert_eq!(g.contents(&g.at("to-file")), b"12345");
    assert_eq!(g.contents(&g.at("to-dir/file")), b"12345");
    assert_eq!(g.contents(&deep.join("up")), b"12345");
    assert_eq!(g.listed(&g.at("to-dir")), g.listed(&dir));
    g.fs.create(&g.at("to-dir/new")).expect("made");
    assert_eq!(g.kind(&dir.join("new")), FileKind::Regular);
    g.fs.sync_dir(&g.at("to-dir")).expect("synced");
    assert_eq!(g.fs.below(&g.at("to-dir")).expect("found").stat(Path::new("file")).expect("there").size, 5);
    assert_fails(g.fs.below_itself(&g.at("to-dir")), &[Status::NOTDIR]);
    assert_fails(g.fs.own(&g.at("to-dir")), &[Status::NOTDIR]);
    // Removing or renaming a link leaves what it names.
    g.fs.rename(&g.at("to-file"), &g.at("moved")).expect("renamed");
    assert_eq!(g.kind(&g.at("moved")), FileKind::Symlink);
    g.fs.unlink(&g.at("moved")).expect("unlinked");
    assert_eq!(g.contents(&dir.join("file")), b"12345");
    g.fs.symlink(Path::new("missing"), &g.at("dangling")).expect("linked");
    assert_fails(g.fs.open(&g.at("dangling"), Access::Read), &[Status::NOENT]);
}

fn a_loop_of_links_ends_in_an_error(g: &Ground<'_>) {
    g.fs.symlink(Path::new("b"), &g.at("a")).expect("linked");
    g.fs.symlink(Path::new("a"), &g.at("b")).expect("linked");
    // NFSv3 has no word for ELOOP.
    assert_fails(g.fs.open(&g.at("a"), Access::Read), &[Status::IO]);
    assert_fails(g.fs.stat(&g.at("a/file")), &[Status::IO]);
    assert_eq!(g.kind(&g.at("a")), FileKind::Symlink);
}

fn readlink_of_anything_else_is_refused(g: &Ground<'_>) {
    let (file, dir) = (g.file("file", b"1"), g.dir("directory"));
    assert_fails(g.fs.readlink(&file), &[Status::INVAL]);
    assert_fails(g.fs.readlink(&dir), &[Status::INVAL]);
    assert_fails(g.fs.readlink(&g.at("missing")), &[Status::NOENT]);
}

fn a_rename_moves_and_replaces_files(g: &Ground<'_>) {
    let (old, dir) = (g.file("old", b"12345"), g.dir("directory"));
    let new = dir.join("new");
    let fileid = g.fs.stat(&old).expect("there").fileid;
    g.fs.rename(&old, &new).expect("renamed");
    assert!(g.is_missing(&old));
    assert_eq!((g.contents(&new), g.fs.stat(&new).expect("there").fileid), (b"12345".to_vec(), fileid));
    g.file("other", b"67");
    g.fs.rename(&g.at("other"), &new).expect("renamed");
    assert_eq!(g.contents(&new), b"67");
    g.fs.rename(&new, &new).expect("onto itself");
    assert_eq!(g.contents(&new), b"67");
    g.fs.link(&new, &g.at("twin")).expect("linked");
    g.fs.rename(&new, &g.at("twin")).expect("two names of one file");
    assert_eq!(g.contents(&g.at("twin")), b"67");
    assert_eq!(g.fs.stat(&g.at("twin")).expect("there").links, if g.is_missing(&new) { 1 } else { 2 });
}

fn a_rename_of_a_directory_takes_its_entries_along(g: &Ground<'_>) {
    let old = g.dir("old");
    g.dir("old/deep");
    g.file("old/deep/file", b"12345");
    g.fs.rename(&old, &g.at("new")).expect("renamed");
    assert_eq!(g.contents(&g.at("new/deep/file")), b"12345");
    assert_fails(g.fs.stat(&g.at("old/deep/file")), &[Status::NOENT]);
    g.dir("empty");
    g.fs.rename(&g.at("new"), &g.at("empty")).expect("onto an empty directory");
    assert_eq!(g.contents(&g.at("empty/deep/file")), b"12345");
}

fn a_rename_that_makes_no_sense_changes_nothing(g: &Ground<'_>) {
    let (file, dir, full) = (g.file("file", b"1"), g.dir("directory"), g.dir("full"));
    g.file("full/file", b"2");
    assert_fails(g.fs.rename(&g.at("missing"), &file), &[Status::NOENT]);
    assert_fails(g.fs.rename(&file, &g.at("missing/new")), &[Status::NOENT]);
    // POSIX lets a full directory be either; a server may call any wrong kind EXIST (RFC 1813, 3.3.14).
    assert_fails(g.fs.rename(&dir, &full), &[Status::NOTEMPTY, Status::EXIST]);
    assert_fails(g.fs.rename(&file, &dir), &[Status::ISDIR, Status::EXIST]);
    assert_fails(g.fs.rename(&dir, &file), &[Status::NOTDIR, Status::EXIST]);
    assert_fails(g.fs.rename(&full, &full.join("inside")), &[Status::INVAL]);
    assert_eq!((g.contents(&file), g.contents(&full.join("file"))), (b"1".to_vec(), b"2".to_vec()));
    assert_eq!(g.listed(&dir), Vec::<Vec<u8>>::new());
}

fn unlink_removes_names_of_files_only(g: &Ground<'_>) {
    let (file, dir) = (g.file("file", b"1"), g.dir("directory"));
    g.fs.unlink(&file).expect("unlinked");
    assert!(g.is_missing(&file));
    assert_fails(g.fs.unlink(&file), &[Status::NOENT]);
    assert_fails(g.fs.open(&file, Access::Read), &[Status::NOENT]);
    // PERM is POSIX's word, ISDIR is Linux's.
    assert_fails(g.fs.unlink(&dir), &[Status::ISDIR, Status::PERM]);
    assert_eq!(g.kind(&dir), FileKind::Directory);
    // The name is free again, for anything.
    g.dir("file");
    assert_eq!(g.kind(&file), FileKind::Directory);
}

fn rmdir_removes_empty_directories_only(g: &Ground<'_>) {
    let (dir, file) = (g.dir("directory"), g.file("directory/file", b"1"));
    assert_fails(g.fs.rmdir(&dir), &[Status::NOTEMPTY, Status::EXIST]);
    assert_fails(g.fs.rmdir(&file), &[Status::NOTDIR]);
    assert_eq!(g.contents(&file), b"1");
    g.fs.unlink(&file).expect("unlinked");
    g.fs.rmdir(&dir).expect("removed");
    assert!(g.is_missing(&dir));
    assert_fails(g.fs.rmdir(&dir), &[Status::NOENT]);
    // A file may take the name.
    g.file("directory", b"2");
    assert_eq!(g.contents(&dir), b"2");
}

fn mkdir_takes_no_name_that_is_taken(g: &Ground<'_>) {
    let (dir, file) = (g.dir("directory"), g.file("file", b"1"));
    assert_fails(g.fs.mkdir(&dir), &[Status::EXIST]);
    assert_fails(g.fs.mkdir(&file), &[Status::EXIST]);
    assert_fails(g.fs.mkdir(&g.at("missing/new")), &[Status::NOENT]);
    assert!(g.fs.stat(&dir).expect("there").links >= 1);
}

fn names_are_bytes_without_meaning(g: &Ground<'_>) {
    let names: [&[u8]; 9] =
        [b" ", b"a b", b"new\nline", b"\xff\xfe\x80", b"...", b"%2F", b"\\", b"*?", "\u{2603}".as_bytes()];
    for name in names {
        let path = g.file(OsStr::from_bytes(name), name);
        assert_eq!(g.contents(&path), name);
    }
    let mut wanted = names.map(<[u8]>::to_vec);
    wanted.sort();
    assert_eq!(g.listed(&g.dir), wanted);
}

fn a_name_of_255_bytes_is_good_and_one_more_is_not(g: &Ground<'_>) {
    let (good, bad) = ("n".repeat(255), "n".repeat(256));
    let path = g.file(&good, b"1");
    assert_eq!(g.contents(&path), b"1");
    let bad = g.at(&bad);
    assert_fails(g.fs.create(&bad), &[Status::NAMETOOLONG]);
    assert_fails(g.fs.mkdir(&bad), &[Status::NAMETOOLONG]);
    assert_fails(g.fs.stat(&bad), &[Status::NAMETOOLONG]);
    assert_fails(g.fs.unlink(&bad), &[Status::NAMETOOLONG]);
    assert_fails(g.fs.rename(&path, &bad), &[Status::NAMETOOLONG]);
    assert_fails(g.fs.link(&path, &bad), &[Status::NAMETOOLONG]);
    assert_eq!(g.listed(&g.dir), [good.into_bytes()]);
}

fn a_path_through_a_file_leads_nowhere(g: &Ground<'_>) {
    let through = g.file("file", b"1").join("name");
    assert_fails(g.fs.stat(&through), &[Status::NOTDIR]);
    assert_fails(g.fs.open(&through, Access::Read), &[Status::NOTDIR]);
    assert_fails(g.fs.create(&through), &[Status::NOTDIR]);
    assert_fails(g.fs.mkdir(&through), &[Status::NOTDIR]);
    assert_fails(g.fs.unlink(&through), &[Status::NOTDIR]);
    assert_fails(g.fs.stat(&through.join("further")), &[Status::NOTDIR]);
    assert_fails(g.fs.below(&g.at("file")), &[Status::NOTDIR]);
    assert_fails(g.fs.sync_dir(&g.at("file")), &[Status::NOTDIR]);
}

fn a_path_is_relative_and_does_not_climb(g: &Ground<'_>) {
    g.file("file", b"1");
    for path in ["/", "/etc", "..", "../file"].map(PathBuf::from).into_iter().chain([g.at("../x")]) {
        let path = path.as_path();
        assert_fails(g.fs.stat(path), &[Status::INVAL]);
        assert_fails(g.fs.create(path), &[Status::INVAL]);
        assert_fails(g.fs.open(path, Access::Read), &[Status::INVAL]);
        assert_fails(g.fs.unlink(path), &[Status::INVAL]);
        assert_fails(g.fs.mkdir(path), &[Status::INVAL]);
        assert_fails(g.fs.rename(&g.at("file"), path), &[Status::INVAL]);
        assert_fails(g.fs.rename(path, &g.at("new")), &[Status::INVAL]);
        assert_fails(g.fs.link(&g.at("file"), path), &[Status::INVAL]);
        assert_fails(g.fs.readdir(path, &mut |_| ()), &[Status::INVAL]);
        assert_fails(g.fs.below(path), &[Status::INVAL]);
    }
    assert_fails(g.fs.stat(&g.at(OsStr::from_bytes(b"nul\0"))), &[Status::INVAL]);
    assert_eq!(g.contents(&g.at("./file")), b"1");
}

fn the_root_has_no_name_to_change(g: &Ground<'_>) {
    let root = Path::new("");
    let file = g.file("file", b"1");
    assert_fails(g.fs.create(root), &[Status::EXIST]);
    assert_fails(g.fs.mkdir(root), &[Status::EXIST]);
    assert_fails(g.fs.symlink(Path::new("x"), root), &[Status::EXIST]);
    assert_fails(g.fs.link(&file, root), &[Status::EXIST]);
    assert_fails(g.fs.unlink(root), &[Status::ISDIR]);
    assert_fails(g.fs.rmdir(root), &[Status::INVAL]);
    assert_fails(g.fs.readlink(root), &[Status::INVAL]);
    assert_fails(g.fs.rename(root, &g.at("new")), &[Status::INVAL]);
    assert_fails(g.fs.rename(&file, root), &[Status::INVAL]);
    assert_eq!(g.fs.stat(root).expect("there").kind, FileKind::Directory);
    assert_eq!(g.fs.stat(root).ok(), g.fs.stat(Path::new(".")).ok());
}

fn an_error_names_the_path_and_what_was_tried(g: &Ground<'_>) {
    let path = g.at("no-such-name");
    let here = g.at("here");
    let expected: [(FsError, &str); 6] = [
        (g.fs.open(&path, Access::Read).map(drop).expect_err("missing"), "open"),
        (g.fs.stat(&path).expect_err("missing"), "stat"),
        (g.fs.unlink(&path).expect_err("missing"), "unlink"),
        (g.fs.rmdir(&path).expect_err("missing"), "rmdir"),
        (g.fs.readdir(&path, &mut |_| ()).expect_err("missing"), "readdir"),
        (g.fs.rename(&here, &path).expect_err("missing"), "rename"),
    ];
    for (error, op) in expected {
        let text = error.to_string();
        assert_eq!(error.op().name(), op);
        assert!(text.contains(op) && text.contains("no-such-name"), "{text}");
    }
    let dir = g.dir("directory");
    let below = g.fs.below(&dir).expect("found");
    let text = below.stat(Path::new("missing")).expect_err("missing").to_string();
    assert!(text.contains("directory/missing"), "{text}");
    assert!(below.place().contains("directory"), "{}", below.place());
    let mut file = g.fs.open(&g.file("named", b""), Access::Read).expect("opened");
    let text = file.write(b"1").expect_err("opened to read").to_string();
    assert!(text.contains("named") && text.contains("write"), "{text}");
}
