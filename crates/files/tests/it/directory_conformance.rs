//! A local directory answers every NFSv3 operation as RFC 1813 says, errors included, and lets nothing out.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use files::{
    CreateHow, Directory, DirectoryOptions, FileKind, Handle, HandleRef, NodeKind, NodeTime, Reply, Request,
    Scratch, SetAttributes, SetTime, Stability, Status,
};
use testkit::{Tmpfs, is_ordinary_user};

/// A directory to export and one beside it that must stay out of reach.
struct Export {
    folder: tempfile::TempDir,
    directory: Directory,
}

impl Export {
    fn new() -> Self {
        Self::with(DirectoryOptions::default())
    }

    fn with(options: DirectoryOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("export")).unwrap();
        std::fs::write(folder.path().join("secret"), "not for clients").unwrap();
        let directory = Directory::open(folder.path().join("export"), options).unwrap();
        Self { folder, directory }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("export").join(name)
    }

    fn root(&self) -> Handle {
        self.directory.root()
    }

    fn ask<T>(&self, request: Request<'_>, look: impl FnOnce(Reply<'_>) -> Option<T>) -> Result<T, Status> {
        let mut scratch = Scratch::new();
        let reply = self.directory.execute(&request, &mut scratch)?;
        let shown = format!("{reply:?}");
        Ok(look(reply).unwrap_or_else(|| panic!("{request:?} was answered by {shown}")))
    }

    fn status(&self, request: Request<'_>) -> Option<Status> {
        self.ask(request, |_| Some(())).err()
    }

    fn lookup(&self, dir: &Handle, name: &str) -> Result<Handle, Status> {
        self.ask(Request::Lookup { dir: dir.by_ref(), name: name.as_bytes() }, |reply| match reply {
            Reply::Lookup { object, .. } => Handle::new(object.0),
            _ => None,
        })
    }

    fn created(&self, request: Request<'_>) -> Result<Handle, Status> {
        self.ask(request, |reply| match reply {
            Reply::Created { object: Some(object), attributes: Some(_), .. } => Handle::new(object.0),
            _ => None,
        })
    }

    fn create(&self, dir: &Handle, name: &str) -> Result<Handle, Status> {
        let how = CreateHow::Guarded(mode(0o644));
        self.created(Request::Create { dir: dir.by_ref(), name: name.as_bytes(), how })
    }

    fn mkdir(&self, dir: &Handle, name: &str) -> Result<Handle, Status> {
        self.created(Request::Mkdir { dir: dir.by_ref(), name: name.as_bytes(), new: mode(0o755) })
    }

    fn attributes(&self, object: &Handle) -> Result<files::Attributes, Status> {
        self.ask(Request::Getattr { object: object.by_ref() }, |reply| match reply {
            Reply::Getattr { attributes } => Some(attributes),
            _ => None,
        })
    }

    fn read(&self, file: &Handle, offset: u64, count: u32) -> Result<(Vec<u8>, bool), Status> {
        self.ask(Request::Read { file: file.by_ref(), offset, count }, |reply| match reply {
            Reply::Read { bytes, end, .. } => Some((bytes.to_vec(), end)),
            _ => None,
        })
    }

    fn write(&self, file: &Handle, offset: u64, bytes: &[u8]) -> Result<u32, Status> {
        let stability = Stability::Unstable;
        self.ask(Request::Write { file: file.by_ref(), offset, bytes, stability }, |reply| match reply {
            Reply::Write { count, .. } => Some(count),
            _ => None,
        })
    }

    fn rename(&self, from: (&Handle, &str), to: (&Handle, &str)) -> Option<Status> {
        self.status(Request::Rename {
            from_dir: from.0.by_ref(),
            from_name: from.1.as_bytes(),
            to_dir: to.0.by_ref(),
            to_name: to.1.as_bytes(),
        })
    }

    fn remove(&self, dir: &Handle, name: &str) -> Option<Status> {
        self.status(Request::Remove { dir: dir.by_ref(), name: name.as_bytes() })
    }

    fn rmdir(&self, dir: &Handle, name: &str) -> Option<Status> {
        self.status(Request::Rmdir { dir: dir.by_ref(), name: name.as_bytes() })
    }

    /// Names with their cookies, and whether that was all.
    fn list(&self, dir: &Handle, cookie: u64, count: u32) -> Result<(Vec<(String, u64)>, bool), Status> {
        let request = Request::Readdir { dir: dir.by_ref(), cookie, verifier: [0; 8], count };
        self.ask(request, |reply| match reply {
            Reply::Listing { entries, end, .. } => {
                let names = entries.map(|entry| {
                    (String::from_utf8(entry.name.to_vec()).expect("names here are ASCII"), entry.cookie)
                });
                Some((names.collect(), end))
            }
            _ => None,
        })
    }
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

fn root_user() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

#[test]
fn what_is_written_is_read_back_with_its_end() {
    let export = Export::new();
    let file = export.create(&export.root(), "a").unwrap();
    assert_eq!(export.write(&file, 0, b"hello world"), Ok(11));
    assert_eq!(export.read(&file, 0, 5), Ok((b"hello".to_vec(), false)));
    assert_eq!(export.read(&file, 6, 5), Ok((b"world".to_vec(), true)), "the end itself is the end");
    assert_eq!(export.read(&file, 100, 5), Ok((vec![], true)));
    assert_eq!(export.read(&file, u64::MAX, 5), Ok((vec![], true)));
    assert_eq!(export.read(&file, 0, u32::MAX).map(|(bytes, _)| bytes.len()), Ok(11));
    assert_eq!(export.write(&file, u64::MAX - 2, b"hello"), Err(Status::FBIG));
    assert_eq!(export.attributes(&file).map(|a| (a.size, a.kind)), Ok((11, FileKind::Regular)));
}

#[test]
fn each_stability_is_kept_and_commit_has_the_same_verifier() {
    let export = Export::new();
    let file = export.create(&export.root(), "a").unwrap();
    let mut verifiers = Vec::new();
    for stability in [Stability::Unstable, Stability::DataSync, Stability::FileSync] {
        let request = Request::Write { file: file.by_ref(), offset: 0, bytes: b"x", stability };
        verifiers.push(export.ask(request, |reply| match reply {
            Reply::Write { stability: kept, verifier, count: 1, .. } if kept == stability => Some(verifier),
            _ => None,
        }));
    }
    verifiers.push(export.ask(Request::Commit { file: file.by_ref(), offset: 0, count: 0 }, |reply| {
        match reply {
            Reply::Commit { verifier, .. } => Some(verifier),
            _ => None,
        }
    }));
    assert!(verifiers.iter().all(|verifier| verifier.is_ok() && *verifier == verifiers[0]), "{verifiers:?}");
    assert_eq!(
        export.status(Request::Commit { file: export.root().by_ref(), offset: 0, count: 0 }),
        Some(Status::ISDIR)
    );
}

#[test]
fn create_tells_guarded_unchecked_and_exclusive_apart() {
    let export = Export::new();
    let root = export.root();
    let create =
        |name: &str, how| export.created(Request::Create { dir: root.by_ref(), name: name.as_bytes(), how });
    let file = create("a", CreateHow::Guarded(mode(0o666))).unwrap();
    assert_eq!(export.attributes(&file).map(|a| a.mode), Ok(0o666), "the server's umask is not the client's");
    assert_eq!(export.write(&file, 0, b"text"), Ok(4));
    assert_eq!(create("a", CreateHow::Guarded(mode(0o600))), Err(Status::EXIST));
    assert_eq!(create("a", CreateHow::Unchecked(mode(0o600))), Ok(file));
    assert_eq!(export.attributes(&file).map(|a| a.size), Ok(4));
    let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
    assert_eq!(create("a", CreateHow::Unchecked(empty)), Ok(file));
    assert_eq!(export.attributes(&file).map(|a| a.size), Ok(0));
    export.mkdir(&root, "d").unwrap();
    assert_eq!(create("d", CreateHow::Unchecked(mode(0o600))), Err(Status::EXIST));

    let exclusive = create("x", CreateHow::Exclusive(*b"\xff234567\x80")).unwrap();
    assert_eq!(create("x", CreateHow::Exclusive(*b"\xff234567\x80")), Ok(exclusive), "a replay succeeds");
    assert_eq!(create("x", CreateHow::Exclusive(*b"\xff2345678")), Err(Status::EXIST));
    assert_eq!(create("a", CreateHow::Exclusive(*b"12345678")), Err(Status::EXIST));
}

#[test]
fn setattr_changes_what_it_names_and_honours_its_guard() {
    let export = Export::new();
    let file = export.create(&export.root(), "a").unwrap();
    let before = export.attributes(&file).unwrap();
    let time = NodeTime { s: 1_000_000_000, ns: 5 };
    let new = SetAttributes {
        mode: Some(0o4751),
        size: Some(10_000),
        mtime: SetTime::To(time),
        atime: SetTime::ServerTime,
        ..SetAttributes::default()
    };
    let guard = Some(NodeTime { ns: before.ctime.ns ^ 1, ..before.ctime });
    assert_eq!(export.status(Request::Setattr { object: file.by_ref(), new, guard }), Some(Status::NOT_SYNC));
    assert_eq!(export.attributes(&file), Ok(before));
    let guard = Some(before.ctime);
    assert_eq!(export.status(Request::Setattr { object: file.by_ref(), new, guard }), None);
    let after = export.attributes(&file).unwrap();
    assert_eq!((after.mode, after.size, after.mtime), (0o4751, 10_000, time));
    assert!(after.atime >= before.atime);
    let dir = export.mkdir(&export.root(), "d").unwrap();
    let new = mode(0o1777);
    assert_eq!(export.status(Request::Setattr { object: dir.by_ref(), new, guard: None }), None);
    assert_eq!(export.attributes(&dir).map(|a| a.mode), Ok(0o1777));
    let new = SetAttributes { size: Some(0), ..SetAttributes::default() };
    let object = dir.by_ref();
    assert_eq!(export.status(Request::Setattr { object, new, guard: None }), Some(Status::ISDIR));
}

#[test]
fn a_handle_survives_renames_of_the_file_and_of_every_ancestor() {
    // Two descriptors a cache: hardly anything is found by a kept one.
    let export = Export::with(DirectoryOptions { descriptors_max: Some(2), ..DirectoryOptions::default() });
    let root = export.root();
    let a = export.mkdir(&root, "a").unwrap();
    let b = export.mkdir(&a, "b").unwrap();
    let other = export.mkdir(&root, "other").unwrap();
    let file = export.create(&b, "file").unwrap();
    assert_eq!(export.write(&file, 0, b"kept"), Ok(4));
    for (from, to) in
        [((&b, "file"), (&b, "f2")), ((&a, "b"), (&other, "c")), ((&root, "other"), (&root, "moved"))]
    {
        assert_eq!(export.rename(from, to), None);
        // Push the descriptors out of the cache.
        for number in 0..64 {
            let name = format!("filler{number}");
            let filler = export.create(&root, &name).or_else(|_| export.lookup(&root, &name)).unwrap();
            export.write(&filler, 0, b"x").unwrap();
        }
        assert_eq!(export.read(&file, 0, 10), Ok((b"kept".to_vec(), true)), "after {from:?} to {to:?}");
    }
    assert_eq!(std::fs::read(export.path("moved/c/f2")).unwrap(), b"kept");
    assert_eq!(export.lookup(&b, "f2"), Ok(file));
    assert_eq!(export.lookup(&b, ".."), Ok(other));
    assert_eq!(export.lookup(&other, ".."), Ok(root));
}

#[test]
fn a_removed_objects_handle_is_stale_even_when_its_name_lives_again() {
    let export = Export::new();
    let root = export.root();
    for round in 0..50 {
        let file = export.create(&root, "a").unwrap();
        assert_eq!(export.remove(&root, "a"), None);
        assert_eq!(export.attributes(&file), Err(Status::STALE), "round {round}");
        let again = export.create(&root, "a").unwrap();
        assert_ne!(file, again);
        assert_eq!(export.read(&file, 0, 1), Err(Status::STALE), "round {round}");
        assert_eq!(export.write(&file, 0, b"x"), Err(Status::STALE));
        assert_eq!(export.remove(&root, "a"), None);
    }
    let dir = export.mkdir(&root, "d").unwrap();
    assert_eq!(export.rmdir(&root, "d"), None);
    assert_eq!(export.create(&dir, "x"), Err(Status::STALE));
    assert_eq!(export.lookup(&dir, "x"), Err(Status::STALE));
    assert_eq!(export.directory.objects_known(), 1, "only the root is left");
}

#[test]
fn removal_from_outside_makes_a_handle_stale_kept_open_or_not() {
    let export = Export::new();
    let root = export.root();
    std::fs::create_dir(export.path("d")).unwrap();
    for name in ["kept", "not", "d/in"] {
        std::fs::write(export.path(name), "x").unwrap();
    }
    let kept = export.lookup(&root, "kept").unwrap();
    export.read(&kept, 0, 1).unwrap();
    let not = export.lookup(&root, "not").unwrap();
    let dir = export.lookup(&root, "d").unwrap();
    let inside = export.lookup(&dir, "in").unwrap();
    std::fs::remove_file(export.path("kept")).unwrap();
    std::fs::remove_file(export.path("not")).unwrap();
    std::fs::write(export.path("not"), "another").unwrap();
    std::fs::remove_dir_all(export.path("d")).unwrap();
    assert_eq!(export.read(&kept, 0, 1), Err(Status::STALE));
    assert_eq!(export.read(&not, 0, 1), Err(Status::STALE), "another file has the name now");
    assert_eq!(export.create(&dir, "x"), Err(Status::STALE));
    assert_eq!(export.attributes(&inside), Err(Status::STALE));
}

#[test]
fn one_handle_serves_all_names_of_a_file_and_outlives_all_but_the_last() {
    let export = Export::new();
    let root = export.root();
    let dir = export.mkdir(&root, "d").unwrap();
    let file = export.create(&root, "a").unwrap();
    for (dir, name) in [(&root, "b"), (&dir, "c")] {
        let request = Request::Link { file: file.by_ref(), dir: dir.by_ref(), name: name.as_bytes() };
        assert_eq!(export.status(request), None);
        assert_eq!(export.status(request), Some(Status::EXIST));
        assert_eq!(export.lookup(dir, name), Ok(file));
    }
    assert_eq!(export.attributes(&file).map(|a| a.links), Ok(3));
    assert_eq!(export.remove(&root, "a"), None);
    assert_eq!(export.attributes(&file).map(|a| a.links), Ok(2));
    std::fs::remove_file(export.path("b")).unwrap();
    assert_eq!(export.attributes(&file).map(|a| a.links), Ok(1), "found by its third name");
    let request = Request::Link { file: dir.by_ref(), dir: root.by_ref(), name: b"no" };
    assert_eq!(export.status(request), Some(Status::INVAL));
    assert_eq!(export.remove(&dir, "c"), None);
    assert_eq!(export.attributes(&file), Err(Status::STALE));
}

#[test]
fn rename_replaces_and_refuses_as_it_should() {
    let export = Export::new();
    let root = export.root();
    let (a, b) = (export.create(&root, "a").unwrap(), export.create(&root, "b").unwrap());
    assert_eq!(export.rename((&root, "a"), (&root, "b")), None);
    assert_eq!(export.attributes(&b), Err(Status::STALE), "the file that was replaced is gone");
    assert_eq!(export.lookup(&root, "b"), Ok(a));
    assert_eq!(export.rename((&root, "b"), (&root, "b")), None);
    assert_eq!(export.lookup(&root, "b"), Ok(a));
    assert_eq!(export.rename((&root, "none"), (&root, "x")), Some(Status::NOENT));
    let dir = export.mkdir(&root, "d").unwrap();
    let inner = export.mkdir(&dir, "e").unwrap();
    assert_eq!(export.rename((&root, "d"), (&inner, "loop")), Some(Status::INVAL));
    assert_eq!(export.rename((&root, "b"), (&root, "d")), Some(Status::ISDIR));
    export.mkdir(&root, "d2").unwrap();
    assert_eq!(export.rename((&root, "d2"), (&root, "d")), Some(Status::NOTEMPTY));
    assert_eq!(export.rename((&root, "."), (&root, "x")), Some(Status::INVAL));
    assert_eq!(export.rename((&root, "b"), (&root, "..")), Some(Status::INVAL));
    // Two names of one file stay both.
    let link = Request::Link { file: a.by_ref(), dir: root.by_ref(), name: b"b2" };
    assert_eq!(export.status(link), None);
    assert_eq!(export.rename((&root, "b"), (&root, "b2")), None);
    assert_eq!((export.lookup(&root, "b"), export.lookup(&root, "b2")), (Ok(a), Ok(a)));
}

#[test]
fn removing_checks_what_it_removes() {
    let export = Export::new();
    let root = export.root();
    let dir = export.mkdir(&root, "d").unwrap();
    let file = export.create(&dir, "f").unwrap();
    assert_eq!(export.remove(&root, "d"), Some(Status::ISDIR));
    assert_eq!(export.rmdir(&root, "d"), Some(Status::NOTEMPTY));
    assert_eq!(export.rmdir(&dir, "f"), Some(Status::NOTDIR));
    assert_eq!(export.remove(&file, "x"), Some(Status::NOTDIR));
    assert_eq!(export.remove(&root, "none"), Some(Status::NOENT));
    assert_eq!(export.rmdir(&root, "."), Some(Status::INVAL));
    assert_eq!(export.rmdir(&dir, ".."), Some(Status::EXIST));
    assert_eq!(export.remove(&dir, "f"), None);
    assert_eq!(export.rmdir(&root, "d"), None);
}

#[test]
fn links_and_special_files_are_made_and_described() {
    let export = Export::new();
    let root = export.root();
    let link = export
        .created(Request::Symlink {
            dir: root.by_ref(),
            name: b"l",
            target: b"/etc/passwd",
            new: mode(0o777),
        })
        .unwrap();
    let target = export.ask(Request::Readlink { link: link.by_ref() }, |reply| match reply {
        Reply::Readlink { target, .. } => Some(target.to_vec()),
        _ => None,
    });
    assert_eq!(target, Ok(b"/etc/passwd".to_vec()));
    assert_eq!(export.attributes(&link).map(|a| a.kind), Ok(FileKind::Symlink));
    let fifo = Request::Mknod { dir: root.by_ref(), name: b"p", node: NodeKind::Fifo, new: mode(0o602) };
    let fifo = export.created(fifo).unwrap();
    assert_eq!(export.attributes(&fifo).map(|a| (a.kind, a.mode)), Ok((FileKind::Fifo, 0o602)));
    assert_eq!(export.read(&fifo, 0, 1), Err(Status::INVAL), "a pipe is never opened");
    let socket = Request::Mknod { dir: root.by_ref(), name: b"s", node: NodeKind::Socket, new: mode(0o600) };
    let socket = export.created(socket).unwrap();
    assert_eq!(export.attributes(&socket).map(|a| a.kind), Ok(FileKind::Socket));
    let file = export.create(&root, "f").unwrap();
    assert_eq!(export.status(Request::Readlink { link: file.by_ref() }), Some(Status::INVAL));
    assert_eq!(export.read(&root, 0, 1), Err(Status::ISDIR));
    assert_eq!(export.lookup(&file, "x"), Err(Status::NOTDIR));
    // Symptom: a server that ran as root made device nodes for whoever asked.
    let node = NodeKind::CharDevice { device: (1, 3) };
    let null = Request::Mknod { dir: root.by_ref(), name: b"null", node, new: mode(0o600) };
    assert_eq!(export.created(null), Err(Status::PERM), "not unless it is told to");
    if root_user() {
        let export = Export::with(DirectoryOptions { devices: true, ..DirectoryOptions::default() });
        let root = export.root();
        let node = NodeKind::CharDevice { device: (1, 3) };
        let null = Request::Mknod { dir: root.by_ref(), name: b"null", node, new: mode(0o600) };
        match export.created(null) {
            Ok(null) => {
                assert_eq!(export.attributes(&null).map(|a| a.device), Ok((1, 3)));
                assert_eq!(export.write(&null, 0, b"x"), Err(Status::INVAL), "no device is ever opened");
            }
            Err(status) => assert_eq!(status, Status::PERM, "containers may forbid devices"),
        }
    }
}

#[test]
fn no_name_leads_out() {
    let export = Export::new();
    let root = export.root();
    assert_eq!(export.lookup(&root, ".."), Ok(root), "above the root is the root");
    assert_eq!(export.lookup(&root, "."), Ok(root));
    for (name, status) in [
        ("", Status::INVAL),
        ("a\0b", Status::INVAL),
        ("../secret", Status::ACCES),
        ("/etc/passwd", Status::ACCES),
        (&"n".repeat(256), Status::NAMETOOLONG),
        ("none", Status::NOENT),
    ] {
        assert_eq!(export.lookup(&root, name), Err(status), "{name:?}");
        if name != "none" {
            assert_eq!(export.create(&root, name), Err(status), "{name:?}");
            assert_eq!(export.remove(&root, name), Some(status), "{name:?}");
            assert_eq!(export.rename((&root, name), (&root, "y")), Some(status), "{name:?}");
        }
    }
    for name in [".", ".."] {
        assert_eq!(export.create(&root, name), Err(Status::EXIST));
        assert_eq!(export.mkdir(&root, name), Err(Status::EXIST));
    }
    assert!(export.folder.path().join("secret").exists());
}

#[test]
fn a_symlink_put_where_something_was_is_not_followed() {
    let export = Export::with(DirectoryOptions { descriptors_max: Some(2), ..DirectoryOptions::default() });
    let root = export.root();
    symlink(export.folder.path().join("secret"), export.path("out")).unwrap();
    symlink(export.folder.path(), export.path("outdir")).unwrap();
    let out = export.lookup(&root, "out").unwrap();
    assert_eq!(export.read(&out, 0, 100), Err(Status::INVAL));
    assert_eq!(export.write(&out, 0, b"x"), Err(Status::INVAL));
    let out_dir = export.lookup(&root, "outdir").unwrap();
    assert_eq!(export.lookup(&out_dir, "secret"), Err(Status::NOTDIR));
    let create = |how| export.created(Request::Create { dir: root.by_ref(), name: b"out", how });
    assert_eq!(create(CreateHow::Unchecked(mode(0o600))), Err(Status::EXIST));

    // After the handles were given out, the objects are swapped for symlinks that lead out.
    let dir = export.mkdir(&root, "d").unwrap();
    let file = export.create(&dir, "secret").unwrap();
    let plain = export.create(&root, "plain").unwrap();
    for number in 0..40 {
        let filler = export.create(&root, &format!("f{number}")).unwrap();
        export.write(&filler, 0, b"x").unwrap();
        let filler = export.mkdir(&root, &format!("d{number}")).unwrap();
        export.create(&filler, "x").unwrap();
    }
    std::fs::rename(export.path("d"), export.folder.path().join("taken")).unwrap();
    symlink(export.folder.path(), export.path("d")).unwrap();
    std::fs::remove_file(export.path("plain")).unwrap();
    symlink(export.folder.path().join("secret"), export.path("plain")).unwrap();
    for handle in [&file, &plain] {
        match export.read(handle, 0, 100) {
            Ok((bytes, _)) => assert!(bytes.is_empty(), "read {bytes:?}"),
            Err(status) => assert_eq!(status, Status::STALE),
        }
        let _ = export.write(handle, 0, b"overwritten");
        let new = SetAttributes { mode: Some(0o777), size: Some(0), ..SetAttributes::default() };
        export.status(Request::Setattr { object: handle.by_ref(), new, guard: None });
    }
    let secret = export.folder.path().join("secret");
    assert_eq!(std::fs::read(&secret).unwrap(), b"not for clients");
    assert_ne!(std::fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o777);
    assert!(!matches!(export.lookup(&dir, ".."), Ok(parent) if parent != root));
}

#[test]
fn handles_that_are_not_ours_are_told_apart() {
    let export = Export::new();
    for bytes in [&b""[..], &[0; 24], &[0xff; 64]] {
        let object = HandleRef(bytes);
        assert_eq!(export.status(Request::Getattr { object }), Some(Status::BADHANDLE));
    }
    let again = Directory::open(export.path(""), DirectoryOptions::default()).unwrap();
    let old = export.create(&export.root(), "a").unwrap();
    let mut scratch = Scratch::new();
    let reply = again.execute(&Request::Getattr { object: old.by_ref() }, &mut scratch);
    assert_eq!(reply.err(), Some(Status::STALE), "a restarted server knows no handle of the former");
}

#[test]
fn a_listing_goes_on_while_names_come_and_go_and_shows_each_lasting_name_once() {
    let export = Export::new();
    let root = export.root();
    for number in 0..600 {
        std::fs::write(export.path(&format!("name{number:04}")), "").unwrap();
    }
    let mut seen = BTreeMap::new();
    let (mut cookie, mut round) = (0, 0);
    loop {
        let (names, end) = export.list(&root, cookie, 1500).unwrap();
        assert!(end || !names.is_empty());
        for (name, next) in names {
            cookie = next;
            *seen.entry(name).or_insert(0) += 1;
        }
        if end {
            break;
        }
        // Of every ten, one goes; others come.
        let _ = std::fs::remove_file(export.path(&format!("name{:04}", round * 10)));
        std::fs::write(export.path(&format!("new{round:04}")), "").unwrap();
        round += 1;
    }
    assert!(round > 10, "only {round} rounds");
    for number in (0..600).filter(|number| number % 10 != 0) {
        assert_eq!(seen.get(&format!("name{number:04}")), Some(&1), "{number}");
    }
    assert_eq!((seen.get("."), seen.get("..")), (Some(&1), Some(&1)));
    assert!(seen.values().all(|times| *times == 1));
}

#[test]
fn a_listing_respects_its_bounds_and_refuses_foreign_cookies() {
    let export = Export::new();
    let root = export.root();
    assert_eq!(export.list(&root, 0, 100), Err(Status::TOOSMALL));
    let request = Request::Readdir { dir: root.by_ref(), cookie: 5, verifier: [1; 8], count: 4096 };
    assert_eq!(export.status(request), Some(Status::BAD_COOKIE));
    assert_eq!(export.list(&root, u64::MAX, 4096), Err(Status::BAD_COOKIE));
    let file = export.create(&root, "f").unwrap();
    assert_eq!(export.list(&file, 0, 4096), Err(Status::NOTDIR));
    assert_eq!(export.list(&root, 0, u32::MAX).map(|(names, end)| (names.len(), end)), Ok((3, true)));

    let plus = |name_bytes, reply_bytes| {
        let request =
            Request::Readdirplus { dir: root.by_ref(), cookie: 0, verifier: [0; 8], name_bytes, reply_bytes };
        export.ask(request, |reply| match reply {
            Reply::Listing { entries, .. } => Some(
                entries
                    .map(|e| (e.name.to_vec(), e.object.and_then(|o| Handle::new(o.0))))
                    .collect::<Vec<_>>(),
            ),
            _ => None,
        })
    };
    let all = plus(4096, 4096).unwrap();
    assert!(all.contains(&(b"f".to_vec(), Some(file))), "{all:?}");
    assert!(all.contains(&(b".".to_vec(), Some(root))), "{all:?}");
    assert_eq!(plus(4096, 200), Err(Status::TOOSMALL));
    assert_eq!(plus(64, 4096).map(|some| some.len()), Ok(2));
}

#[test]
fn the_root_hides_what_lies_above_it() {
    let export = Export::new();
    let root = export.root();
    let request = Request::Readdir { dir: root.by_ref(), cookie: 0, verifier: [0; 8], count: 4096 };
    let above = export.ask(request, |reply| match reply {
        Reply::Listing { mut entries, .. } => entries.find(|e| e.name == b"..").map(|e| e.fileid),
        _ => None,
    });
    assert_eq!(above, export.attributes(&export.root()).map(|a| a.fileid));
}

#[test]
fn limits_and_space_are_told() {
    let export = Export::new();
    let root = export.root();
    let space = export.ask(Request::Fsstat { root: root.by_ref() }, |reply| match reply {
        Reply::Fsstat { stat, attributes: Some(_) } => Some(stat),
        _ => None,
    });
    assert!(space.is_ok_and(|s| s.bytes_total > 0 && s.bytes_free <= s.bytes_total));
    let limits = export.ask(Request::Fsinfo { root: root.by_ref() }, |reply| match reply {
        Reply::Fsinfo { limits, .. } => Some(limits),
        _ => None,
    });
    assert_eq!(limits.map(|l| (l.read_max, l.write_max)), Ok((1 << 20, 1 << 20)));
    let names = export.ask(Request::Pathconf { object: root.by_ref() }, |reply| match reply {
        Reply::Pathconf { limits, .. } => Some(limits),
        _ => None,
    });
    assert!(names.is_ok_and(|n| n.name_bytes_max == 255 && n.no_truncation));
    assert_eq!(export.status(Request::Null), None);
}

#[test]
fn a_read_only_export_changes_nothing_and_says_so() {
    let export = Export::with(DirectoryOptions { read_only: true, ..DirectoryOptions::default() });
    std::fs::write(export.path("a"), "text").unwrap();
    let root = export.root();
    let file = export.lookup(&root, "a").unwrap();
    assert_eq!(export.read(&file, 0, 10), Ok((b"text".to_vec(), true)));
    assert_eq!(export.write(&file, 0, b"x"), Err(Status::ROFS));
    assert_eq!(export.create(&root, "b"), Err(Status::ROFS));
    assert_eq!(export.remove(&root, "a"), Some(Status::ROFS));
    assert_eq!(export.rename((&root, "a"), (&root, "b")), Some(Status::ROFS));
    let rights = export.ask(Request::Access { object: file.by_ref(), rights: 0x3f }, |reply| match reply {
        Reply::Access { rights, .. } => Some(rights),
        _ => None,
    });
    assert_eq!(rights, Ok(0x01));
    assert_eq!(std::fs::read(export.path("a")).unwrap(), b"text");
}

#[test]
fn what_permissions_forbid_is_refused() {
    if !is_ordinary_user("what_permissions_forbid_is_refused") {
        return;
    }
    let export = Export::new();
    let root = export.root();
    std::fs::write(export.path("a"), "text").unwrap();
    let file = export.lookup(&root, "a").unwrap();
    std::fs::set_permissions(export.path("a"), PermissionsExt::from_mode(0o000)).unwrap();
    assert_eq!(export.read(&file, 0, 10), Err(Status::ACCES));
    let rights = export.ask(Request::Access { object: file.by_ref(), rights: 0x3f }, |reply| match reply {
        Reply::Access { rights, .. } => Some(rights),
        _ => None,
    });
    assert_eq!(rights, Ok(0));
}

#[test]
fn a_missing_directory_is_named_with_what_to_do() {
    let Err(error) = Directory::open("no/such/directory", DirectoryOptions::default()) else {
        panic!("opened")
    };
    assert!(error.to_string().contains("no/such/directory"), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn renames_back_and_forth_never_make_a_living_file_stale() {
    let export = Export::with(DirectoryOptions { descriptors_max: Some(2), ..DirectoryOptions::default() });
    let root = export.root();
    let dirs = [export.mkdir(&root, "a").unwrap(), export.mkdir(&root, "b").unwrap()];
    let file = export.create(&dirs[0], "f").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..3000 {
                let (from, to) = (&dirs[round % 2], &dirs[(round + 1) % 2]);
                assert_eq!(export.rename((from, "f"), (to, "f")), None, "round {round}");
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                assert_eq!(export.attributes(&file).map(|a| a.kind), Ok(FileKind::Regular));
                for dir in &dirs {
                    match export.lookup(dir, "f") {
                        Ok(found) => assert_eq!(found, file),
                        Err(status) => assert_eq!(status, Status::NOENT),
                    }
                }
            }
        });
    });
}

#[test]
fn threads_that_change_the_same_directories_neither_hang_nor_disagree() {
    let export = Export::with(DirectoryOptions { descriptors_max: Some(4), ..DirectoryOptions::default() });
    let root = export.root();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (export, root) = (&export, &root);
            scope.spawn(move || {
                for round in 0..300 {
                    // Directories come and go under the others' hands; files belong to one worker.
                    let shared = format!("dir{}", round % 3);
                    let own = format!("own{worker}");
                    let _ = export.mkdir(root, &shared);
                    let dir = export.lookup(root, &shared).unwrap_or(*root);
                    match export.create(&dir, &own) {
                        Ok(file) => {
                            let _ = export.rename((&dir, &own), (root, &own));
                            if export.write(&file, 0, b"mine").is_ok() {
                                assert_eq!(export.read(&file, 0, 9), Ok((b"mine".to_vec(), true)));
                            }
                            assert_eq!(export.remove(root, &own), None);
                            assert_eq!(export.attributes(&file), Err(Status::STALE));
                        }
                        Err(status) => assert!(
                            [Status::STALE, Status::NOENT].contains(&status),
                            "worker {worker}, round {round}: {status}"
                        ),
                    }
                    let _ = export.rmdir(root, &shared);
                }
            });
        }
    });
}

#[test]
fn a_full_file_system_is_reported_as_such() {
    let Some(small) = Tmpfs::needed("size=1m") else { return };
    let directory = Directory::open(small.path(), DirectoryOptions::default()).unwrap();
    let mut scratch = Scratch::new();
    let root = directory.root();
    let how = CreateHow::Guarded(mode(0o644));
    let create = Request::Create { dir: root.by_ref(), name: b"a", how };
    let Ok(Reply::Created { object: Some(object), .. }) = directory.execute(&create, &mut scratch) else {
        panic!("not created")
    };
    let file = Handle::new(object.0).unwrap();
    let bytes = vec![7; 1 << 20];
    let mut statuses = (0..4).map(|round| {
        let write = Request::Write {
            file: file.by_ref(),
            offset: round << 20,
            bytes: &bytes,
            stability: Stability::Unstable,
        };
        directory.execute(&write, &mut scratch).err()
    });
    assert!(statuses.any(|status| status == Some(Status::NOSPC)));
}
