use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::AtomicBool;

use files::Layout;

use super::*;
use crate::convert::convert;
use crate::managed::set_layout_mark;

struct Spool {
    place: tempfile::TempDir,
}

impl Spool {
    /// A tree with a managed directory of 200 numbers and a name.
    fn new(layout: Layout) -> Self {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let place = tempfile::Builder::new().prefix("crumb-check").tempdir_in(parent).unwrap();
        let spool = Self { place };
        let group = spool.group();
        fs::create_dir(&group).unwrap();
        for number in 1000..1200 {
            fs::write(group.join(number.to_string()), format!("article {number}")).unwrap();
        }
        fs::write(group.join(".overview"), "").unwrap();
        spool.manage(layout);
        spool
    }

    fn group(&self) -> PathBuf {
        self.place.path().join("control")
    }

    fn manage(&self, layout: Layout) {
        let mut watch = Watch { progress: &mut |_| {}, stop: &AtomicBool::new(false) };
        convert(&self.group(), Goal::Managed(Some(layout)), &mut watch).unwrap();
    }

    fn check(&self, repair: bool) -> Checked {
        let stop = AtomicBool::new(false);
        let mut watch = CheckWatch { progress: &mut |_, _, _| {}, stop: &stop };
        check(self.place.path(), repair, &mut watch).unwrap()
    }

    /// One repair mends it all, and nothing is found afterwards.
    fn mends(&self, kinds: &[FindingKind]) {
        let found = self.check(false);
        let kinds_found: Vec<FindingKind> = found.counts.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds_found, kinds, "{:#?}", found.findings);
        assert!(!found.is_right());
        let mended = self.check(true);
        assert!(mended.is_right(), "{:#?}", mended.findings);
        assert_eq!(mended.counts, found.counts);
        let again = self.check(false);
        assert!(again.is_right() && again.findings.is_empty(), "{:#?}", again.findings);
        assert_eq!(again.entries, found.entries.max(again.entries));
    }
}

#[test]
fn a_tree_as_converted_has_nothing_wrong_in_any_layout() {
    for layout in Layout::ALL.into_iter().filter(|layout| *layout != Layout::Flat) {
        let checked = Spool::new(layout).check(false);
        assert!(checked.is_right() && checked.findings.is_empty(), "{layout}: {:#?}", checked.findings);
        assert_eq!((checked.directories, checked.managed, checked.entries), (2, 1, 201), "{layout}");
    }
}

#[test]
fn an_article_in_the_wrong_subdirectory_goes_to_its_own() {
    let spool = Spool::new(Layout::D345);
    fs::rename(spool.group().join("100/1003"), spool.group().join("105/1003")).unwrap();
    fs::write(spool.group().join("100/12x"), "not all digits").unwrap();
    spool.mends(&[FindingKind::WrongPlace]);
    assert_eq!(fs::read_to_string(spool.group().join("100/1003")).unwrap(), "article 1003");
    assert_eq!(fs::read_to_string(spool.group().join("aaa/12x")).unwrap(), "not all digits");
}

#[test]
fn what_lies_beside_the_hidden_level_goes_into_it_also_by_names_like_its_own() {
    let spool = Spool::new(Layout::D345);
    fs::write(spool.group().join("stray"), "s").unwrap();
    fs::write(spool.group().join("2000"), "s").unwrap();
    fs::write(spool.group().join("345"), "a file, no subdirectory").unwrap();
    fs::create_dir(spool.group().join("sub.group")).unwrap();
    spool.mends(&[FindingKind::Stranger]);
    assert!(spool.group().join("aaa/stray").is_file() && spool.group().join("200/2000").is_file());
    assert!(spool.group().join("034/345").is_file() && spool.group().join("aaa/sub.group").is_dir());
}

#[test]
fn subdirectories_get_the_permissions_of_the_directory_and_never_the_bit() {
    let spool = Spool::new(Layout::D345);
    fs::set_permissions(spool.group().join("100"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(spool.group().join("101"), fs::Permissions::from_mode(0o4755)).unwrap();
    spool.mends(&[FindingKind::Permissions]);
}

#[test]
fn a_mark_that_contradicts_the_places_follows_them() {
    let spool = Spool::new(Layout::D456);
    let directory = open_directory(spool.group()).unwrap();
    set_layout_mark(&directory, Layout::D34D56).unwrap();
    spool.mends(&[FindingKind::WrongMark]);
    assert_eq!(layout_mark(&directory).unwrap(), Some(Layout::D456));
    rustix::fs::fsetxattr(&directory, "user.crumb.layout", b"789", rustix::fs::XattrFlags::empty()).unwrap();
    spool.mends(&[FindingKind::WrongMark]);
    assert_eq!(layout_mark(&directory).unwrap(), Some(Layout::D456));
}

#[test]
fn a_mark_without_the_bit_is_taken_away() {
    let spool = Spool::new(Layout::D345);
    let root = open_directory(spool.place.path()).unwrap();
    set_layout_mark(&root, Layout::D456).unwrap();
    spool.mends(&[FindingKind::StrayMark]);
}

#[test]
fn a_bit_that_was_lost_is_found_and_set_again_and_no_mark_is_taken_away() {
    for (layout, without_mark) in [(Layout::D345, true), (Layout::D456, false), (Layout::D34D56, true)] {
        let spool = Spool::new(layout);
        let directory = open_directory(spool.group()).unwrap();
        fs::set_permissions(spool.group(), fs::Permissions::from_mode(0o755)).unwrap();
        // Layout 345 has none in the first place.
        if without_mark && layout != Layout::D345 {
            crate::managed::remove_layout_mark(&directory).unwrap();
        }
        // What was made since lies as in any directory, and goes to its place.
        fs::write(spool.group().join("5000"), "").unwrap();
        for goal in [Goal::Managed(None), Goal::Managed(Some(layout)), Goal::Flat] {
            let mut watch = Watch { progress: &mut |_| {}, stop: &AtomicBool::new(false) };
            let refused = convert(&spool.group(), goal, &mut watch).unwrap_err().to_string();
            assert!(refused.contains("set-user-id bit is missing"), "{layout} {goal:?}: {refused}");
        }
        let found = spool.check(false);
        assert_eq!(found.counts, [(FindingKind::LostBit, 1)], "{layout}");
        if without_mark {
            // It could be a user's own order: then files would disappear behind a mount.
            let found = spool.check(true);
            assert_eq!((found.counts, found.open), (vec![(FindingKind::LostBit, 1)], 1));
            assert!(
                matches!(&found.findings[0].mended, Mended::Not(why) if why.contains("chmod u+s")),
                "{:#?}",
                found.findings
            );
            assert!(!crate::managed::is_managed(fs::metadata(spool.group()).unwrap().permissions().mode()));
            fs::set_permissions(spool.group(), fs::Permissions::from_mode(0o4755)).unwrap();
        }
        let mended = spool.check(true);
        assert!(mended.is_right(), "{layout}: {:#?}", mended.findings);
        assert_eq!(crate::managed::layout_of(&directory).unwrap(), layout);
        let again = spool.check(false);
        assert_eq!((again.managed, again.entries, again.open), (1, 202, 0), "{layout}");
    }
}

#[test]
fn a_name_that_is_taken_is_told_and_both_are_kept() {
    let spool = Spool::new(Layout::D345);
    fs::write(spool.group().join("1003"), "the other").unwrap();
    let checked = spool.check(true);
    assert!(!checked.is_right());
    assert!(
        matches!(&checked.findings[0].mended, Mended::Not(why) if why.contains("taken")),
        "{:#?}",
        checked.findings
    );
    assert_eq!(fs::read_to_string(spool.group().join("1003")).unwrap(), "the other");
    assert_eq!(fs::read_to_string(spool.group().join("100/1003")).unwrap(), "article 1003");
}

#[test]
fn a_conversion_cut_off_is_found_and_finished_as_the_bit_says() {
    // Between entries and hidden level: flat again.
    let spool = Spool::new(Layout::D345);
    let staging = spool.group().join(".crumb-converting-345");
    let hidden: Vec<_> =
        fs::read_dir(spool.group()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    fs::create_dir(&staging).unwrap();
    fs::write(staging.join(".times"), "").unwrap();
    for name in &hidden {
        fs::rename(spool.group().join(name), staging.join(name)).unwrap();
    }
    fs::set_permissions(spool.group(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(staging.join("100/1000"), spool.group().join("1000")).unwrap();
    spool.mends(&[FindingKind::HalfWay]);
    assert_eq!(fs::read_dir(spool.group()).unwrap().count(), 201);

    // Between hidden level and managed: managed.
    spool.manage(Layout::D345);
    fs::create_dir(&staging).unwrap();
    fs::rename(spool.group().join("100"), staging.join("100")).unwrap();
    fs::write(staging.join(".times"), "").unwrap();
    spool.mends(&[FindingKind::HalfWay]);
    assert!(spool.group().join("100/1000").is_file() && !staging.exists());
}

#[test]
fn empty_subdirectories_are_counted_and_are_no_fault() {
    let spool = Spool::new(Layout::D345);
    let mode = fs::metadata(spool.group().join("100")).unwrap().permissions();
    fs::create_dir(spool.group().join("777")).unwrap();
    fs::set_permissions(spool.group().join("777"), mode).unwrap();
    let checked = spool.check(false);
    assert!(checked.is_right());
    assert_eq!(checked.empty_subdirectories, 1);
}

#[test]
fn managed_directories_within_managed_ones_are_looked_at_too() {
    let spool = Spool::new(Layout::D345);
    let nested = spool.group().join("aaa/alt.2600");
    fs::create_dir_all(nested.join("000")).unwrap();
    fs::write(nested.join("000/12345"), "").unwrap();
    fs::set_permissions(&nested, fs::Permissions::from_mode(0o4755)).unwrap();
    spool.mends(&[FindingKind::WrongPlace]);
    assert!(nested.join("234/12345").is_file());
    assert_eq!(spool.check(false).managed, 2);
}

#[test]
fn of_a_thousand_findings_all_are_counted_and_some_kept() {
    let spool = Spool::new(Layout::D345);
    for number in 0..FINDINGS_KEPT_MAX + 5 {
        fs::write(spool.group().join(format!("stray{number}")), "").unwrap();
    }
    let checked = spool.check(false);
    assert_eq!(checked.counts, [(FindingKind::Stranger, FINDINGS_KEPT_MAX as u64 + 5)]);
    assert_eq!(checked.findings.len(), FINDINGS_KEPT_MAX);
}

/// Root repairs the trees of users, who may exchange directories and links meanwhile.
#[test]
fn a_repair_follows_no_link_that_is_put_on_the_way_while_it_works() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicU64, Ordering};

    let [mine, others] = [Spool::new(Layout::D345), Spool::new(Layout::D345)];
    // In both a directory `user/control`, in the wrong place in it `000/4567`; a link beside mine leads to the others'.
    let [user, outside] = [&mine, &others].map(|spool| {
        let user = spool.place.path().join("user");
        fs::create_dir(&user).unwrap();
        fs::rename(spool.group(), user.join("control")).unwrap();
        fs::create_dir(user.join("control/000")).unwrap();
        user
    });
    let misplaced = |user: &Path| user.join("control/000/4567");
    fs::write(misplaced(&outside), "").unwrap();
    let link = mine.place.path().join("link");
    std::os::unix::fs::symlink(&outside, &link).unwrap();
    let (over, exchanges) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut repairs = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &user, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                exchanges.fetch_add(1, Ordering::Relaxed);
            }
        });
        for _ in 0..200 {
            let _ = mine.check(true);
            repairs += u32::from(!misplaced(&outside).exists());
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(exchanges.load(Ordering::Relaxed) > 100, "{exchanges:?}");
    assert_eq!(repairs, 0, "of a directory outside of the tree, in {exchanges:?} exchanges");
}

/// Names, owners, modes and contents of all below a directory.
fn snapshot(place: &Path) -> Vec<(PathBuf, u32, u32, Option<String>)> {
    use std::os::unix::fs::MetadataExt as _;

    let (mut all, mut waiting) = (Vec::new(), vec![place.to_owned()]);
    while let Some(path) = waiting.pop() {
        let of = fs::symlink_metadata(&path).unwrap();
        if of.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        all.push((path.clone(), of.uid(), of.mode(), fs::read_to_string(&path).ok()));
    }
    all.sort();
    all
}

#[test]
fn a_subdirectory_of_another_user_is_not_given_away_nor_looked_into_nor_emptied() {
    use std::os::unix::fs::chown;

    if !testkit::need::root("a directory of another user") {
        return;
    }
    for (layout, places) in [(Layout::D345, ["346", "999"]), (Layout::D34D56, ["34/56", "99"])] {
        let spool = Spool::new(layout);
        let of_users = |path: &Path| chown(path, Some(12_345), Some(12_345)).unwrap();
        for (path, ..) in snapshot(&spool.group()).iter().filter(|(path, ..)| path.is_dir()) {
            of_users(path);
        }
        // Directories of root's that the owner has renamed: one with entries that would belong elsewhere, one without.
        let [foreign, empty] = places.map(|place| spool.group().join(place));
        fs::create_dir_all(&foreign).unwrap();
        if layout == Layout::D34D56 {
            of_users(&spool.group().join("34"));
            fs::set_permissions(
                spool.group().join("34"),
                fs::metadata(spool.group().join("10")).unwrap().permissions(),
            )
            .unwrap();
        }
        fs::write(foreign.join("key"), "secret").unwrap();
        fs::create_dir(foreign.join("123456")).unwrap();
        fs::create_dir(&empty).unwrap();
        for path in [&foreign, &empty] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let before = snapshot(&spool.group());
        let mended = spool.check(true);
        assert_eq!(snapshot(&spool.group()), before, "{layout}");
        assert_eq!(mended.counts, [(FindingKind::Permissions, 2)], "{layout}: {:#?}", mended.findings);
        for path in [&foreign, &empty] {
            let finding = mended.findings.iter().find(|finding| finding.path == *path).unwrap();
            assert!(finding.text.contains("user 0"), "{finding:?}");
            assert!(matches!(&finding.mended, Mended::Not(why) if why.contains("chown")), "{finding:?}");
            of_users(path);
        }
        // Then they are part of it.
        assert!(spool.check(true).is_right());
        assert_eq!(spool.check(false).entries, 203, "{layout}");
    }
}

#[test]
fn a_directory_of_another_user_does_not_make_a_plain_directory_look_managed() {
    use std::os::unix::fs::chown;

    if !testkit::need::root("a directory of another user") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("345")).unwrap();
    fs::write(place.path().join("345/123456"), "").unwrap();
    let directory = open_directory(place.path()).unwrap();
    assert!(lost_bit(&directory).unwrap().is_some());
    chown(place.path(), Some(12_345), None).unwrap();
    assert_eq!(lost_bit(&directory).unwrap(), None);
}
