//! Managed directories through a mount: what is stored where, and that nothing shows it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use crate::scene::{Scene, cannot_mount, names, sorted};
use files::Layout;

#[test]
fn articles_lie_where_the_paper_puts_them_and_are_seen_where_they_were_put() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let group = scene.managed("cancel");
    for name in ["123456", "7", "123450", ".overview", "aaa", "345", "000"] {
        fs::write(group.join(name), name).unwrap();
    }
    fs::create_dir(group.join("944")).unwrap();
    fs::write(group.join("944/1"), "a numeric group's article").unwrap();
    for (name, place) in [
        ("123456", "345/123456"),
        ("7", "000/7"),
        ("123450", "345/123450"),
        (".overview", "aaa/.overview"),
        ("aaa", "aaa/aaa"),
        ("345", "034/345"),
        ("000", "000/000"),
    ] {
        assert_eq!(fs::read_to_string(scene.lower(&format!("cancel/{place}"))).unwrap(), name);
        assert_eq!(fs::read_to_string(group.join(name)).unwrap(), name);
    }
    assert!(scene.lower("cancel/094/944/1").exists());
    let mut seen = ["123456", "7", "123450", ".overview", "aaa", "345", "000", "944"];
    seen.sort_unstable();
    assert_eq!(sorted(&group), seen);
    // aaa first, then by rising subdirectory.
    let order = names(&group);
    let at = |name: &str| order.iter().position(|other| other == name).unwrap();
    assert!(at("aaa") < at("7") && at(".overview") < at("7"), "{order:?}");
    assert!(at("7") < at("345") && at("345") < at("944") && at("944") < at("123456"), "{order:?}");
    assert_eq!(fs::canonicalize(group.join("944/..")).unwrap(), group);
    let above = fs::metadata(group.join("944").join("..")).unwrap();
    assert_eq!(above.ino(), fs::metadata(&group).unwrap().ino());
    assert_eq!(fs::metadata(group.join("..")).unwrap().ino(), fs::metadata(scene.at("")).unwrap().ino());
    for hidden in ["034", "094", "aaa/aaa", "999"] {
        assert_eq!(
            fs::metadata(group.join(hidden)).unwrap_err().kind(),
            if hidden == "aaa/aaa" { ErrorKind::NotADirectory } else { ErrorKind::NotFound }
        );
    }
}

#[test]
fn a_managed_directory_looks_like_any_other() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let group = scene.managed("group");
    let before = fs::metadata(&group).unwrap();
    assert_eq!(before.mode(), 0o040_755, "the bit is not seen");
    assert_eq!(before.nlink(), 1, "find(1) takes one for uncounted");
    fs::write(group.join("1"), "").unwrap();
    fs::create_dir(group.join("sub")).unwrap();
    let after = fs::metadata(&group).unwrap();
    assert_eq!(after.nlink(), 1);
    assert!(after.modified().unwrap() > before.modified().unwrap(), "making an entry changes the directory");
    fs::set_permissions(&group, fs::Permissions::from_mode(0o2771)).unwrap();
    assert_eq!(fs::metadata(&group).unwrap().mode() & 0o7777, 0o2771);
    assert_eq!(fs::metadata(scene.lower("group")).unwrap().mode() & 0o7777, 0o6771, "it stays managed");
    assert_eq!(
        fs::metadata(scene.lower("group/000")).unwrap().mode() & 0o7777,
        0o2771,
        "the hidden level follows"
    );
    let refused = fs::set_permissions(&group, fs::Permissions::from_mode(0o4755)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    let plain = scene.at("plain");
    fs::create_dir(&plain).unwrap();
    assert!(fs::set_permissions(&plain, fs::Permissions::from_mode(0o4755)).is_err());
    let program = scene.at("program");
    fs::write(&program, "").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(fs::metadata(&program).unwrap().mode() & 0o7777, 0o4755, "programs keep the bit");
}

#[test]
fn an_empty_managed_directory_is_removed_with_its_hidden_level_and_a_full_one_is_not() {
    if cannot_mount() {
        return;
    }
    for layout in Layout::ALL.into_iter().filter(|layout| *layout != Layout::Flat) {
        let scene = Scene::with(|mut options| {
            options.layout_new = layout;
            options
        });
        let group = scene.managed("group");
        for name in ["1", "22222", "name"] {
            fs::write(group.join(name), "").unwrap();
        }
        assert_eq!(sorted(&group), ["1", "22222", "name"], "{layout}");
        assert_eq!(fs::remove_dir(&group).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
        assert_eq!(sorted(&group), ["1", "22222", "name"], "{layout}: still there after the refusal");
        for name in ["1", "22222", "name"] {
            fs::remove_file(group.join(name)).unwrap();
        }
        fs::write(group.join("3"), "").unwrap();
        fs::remove_file(group.join("3")).unwrap();
        fs::remove_dir(&group).unwrap();
        assert!(!scene.lower("group").exists(), "{layout}");
    }
}

#[test]
fn a_layout_chosen_at_the_mount_is_marked_on_new_directories_and_kept() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::with(|mut options| {
        options.layout_new = Layout::D56D34;
        options
    });
    let old = scene.managed("old");
    fs::create_dir(scene.lower("old/345")).unwrap();
    fs::write(scene.lower("old/345/123456"), "there before").unwrap();
    let new = scene.managed("new");
    fs::write(new.join("123456"), "").unwrap();
    fs::write(old.join("123457"), "").unwrap();
    assert!(scene.lower("new/56/34/123456").exists());
    assert!(scene.lower("old/345/123457").exists(), "what lies in 345 stays in 345");
    let folder = {
        let mut scene = scene;
        drop(scene.mount.take());
        scene.folder
    };
    let again = Scene::in_folder(folder, |options| options);
    assert_eq!(sorted(&again.at("new")), ["123456"], "the mark says which layout it is in");
    let mut names = [0u8; 256];
    let seen = rustix::fs::listxattr(again.at("new"), &mut names[..]).unwrap();
    assert!(!String::from_utf8_lossy(&names[..seen]).contains("crumb"), "the mark is not seen");
}

#[test]
fn links_and_renames_cross_between_managed_and_plain_directories() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let (one, two, plain) = (scene.managed("one"), scene.managed("two"), scene.at("plain"));
    fs::create_dir(&plain).unwrap();
    fs::write(one.join("123"), "article").unwrap();
    fs::hard_link(one.join("123"), two.join("98765")).unwrap();
    fs::hard_link(one.join("123"), plain.join("name")).unwrap();
    let inode = fs::metadata(one.join("123")).unwrap().ino();
    for other in [two.join("98765"), plain.join("name")] {
        let others = fs::metadata(&other).unwrap();
        assert_eq!((others.ino(), others.nlink()), (inode, 3), "{}", other.display());
    }
    assert_eq!(fs::metadata(scene.lower("two/876/98765")).unwrap().ino(), inode, "the lower inode's number");
    fs::remove_file(one.join("123")).unwrap();
    assert_eq!(fs::read_to_string(two.join("98765")).unwrap(), "article");
    for (from, to) in [
        (two.join("98765"), one.join("5")),
        (one.join("5"), one.join("text")),
        (one.join("text"), plain.join("7")),
        (plain.join("7"), two.join("7")),
        (two.join("7"), two.join("7777")),
    ] {
        fs::rename(&from, &to).unwrap();
        assert!(fs::symlink_metadata(&from).is_err(), "{}", from.display());
        assert_eq!(fs::read_to_string(&to).unwrap(), "article", "{}", to.display());
    }
    symlink("../plain/name", two.join("2600")).unwrap();
    assert_eq!(fs::read_to_string(two.join("2600")).unwrap(), "article");
    // A managed directory moves into another, and files open in it stay usable.
    fs::write(one.join("11"), "eleven").unwrap();
    let open = fs::File::open(one.join("11")).unwrap();
    fs::rename(&one, two.join("sub")).unwrap();
    assert_eq!(fs::read_to_string(two.join("sub/11")).unwrap(), "eleven");
    assert_eq!(open.metadata().unwrap().len(), 6);
    assert!(scene.lower("two/aaa/sub/001/11").exists());
    // Onto an empty managed directory, as onto any empty one.
    let three = scene.managed("three");
    fs::write(three.join("1"), "").unwrap();
    fs::remove_file(three.join("1")).unwrap();
    fs::rename(two.join("sub"), &three).unwrap();
    assert_eq!(sorted(&three), ["11"]);
}

#[test]
fn exchanging_names_exchanges_them_at_once_whatever_the_directories() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let (group, plain) = (scene.managed("group"), scene.at("plain"));
    fs::create_dir(&plain).unwrap();
    fs::write(group.join("123456"), "in the group").unwrap();
    fs::write(plain.join("x"), "outside").unwrap();
    renameat_with(CWD, group.join("123456"), CWD, plain.join("x"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(group.join("123456")).unwrap(), "outside");
    assert_eq!(fs::read_to_string(plain.join("x")).unwrap(), "in the group");
    let kept = renameat_with(CWD, group.join("123456"), CWD, plain.join("x"), RenameFlags::NOREPLACE);
    assert_eq!(kept, Err(rustix::io::Errno::EXIST));
    renameat_with(CWD, group.join("123456"), CWD, group.join("9"), RenameFlags::NOREPLACE).unwrap();
    assert_eq!(sorted(&group), ["9"]);
    let missing = renameat_with(CWD, group.join("9"), CWD, group.join("777"), RenameFlags::EXCHANGE);
    assert_eq!(missing, Err(rustix::io::Errno::NOENT));
}

#[test]
fn what_changes_below_is_seen_and_never_taken_for_something_else() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let group = scene.managed("group");
    fs::write(group.join("1"), "first").unwrap();
    let _ = fs::metadata(group.join("1")).unwrap();
    // Another file under the name, and another name for the file, behind the mount's back.
    fs::rename(scene.lower("group/000/1"), scene.lower("group/000/2")).unwrap();
    fs::write(scene.lower("group/000/1"), "second").unwrap();
    let mut text = fs::read_to_string(group.join("1"));
    if text.is_err() {
        // ESTALE at most once: the kernel has looked again by now.
        text = fs::read_to_string(group.join("1"));
    }
    assert_eq!(text.unwrap(), "second");
    assert_eq!(fs::read_to_string(group.join("2")).unwrap(), "first");
}

#[test]
fn a_stranger_in_the_hidden_level_is_not_shown_and_does_no_harm() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let group = scene.managed("group");
    fs::write(scene.lower("group/345"), "a file where a directory belongs").unwrap();
    fs::create_dir(scene.lower("group/xyz")).unwrap();
    fs::write(scene.lower("group/xyz/1"), "").unwrap();
    fs::write(group.join("7"), "").unwrap();
    assert_eq!(sorted(&group), ["7"]);
    assert!(fs::metadata(group.join("123456")).is_err());
    assert!(fs::write(group.join("123456"), "").is_err());
    assert_eq!(fs::read_to_string(scene.lower("group/345")).unwrap(), "a file where a directory belongs");
}
