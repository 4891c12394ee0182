//! Calls by inode number: every attribute, across reopenings, checkpoints and kills.

use std::sync::Arc;

use files::{FileKind, FileSystem, Status};
use packtree::{
    NewKind, NewNode, NodeAttributes, NodeError, PackTree, RenameHow, SetAttributes, TreeNodes, XattrHow,
    check,
};
use testkit::SimulatedDisk;

use crate::scenario::{SMALL, opened, pattern, write};

const ROOT: u64 = TreeNodes::ROOT;

fn machine() -> (SimulatedDisk, PackTree) {
    let machine = SimulatedDisk::new("machine");
    PackTree::create(&machine, &SMALL).unwrap();
    let tree = opened(Arc::new(machine.clone()));
    (machine, tree)
}

fn new(kind: NewKind<'_>, mode: u16) -> NewNode<'_> {
    NewNode { kind, mode, uid: 1000, gid: 2000 }
}

fn status<T: std::fmt::Debug>(done: Result<T, NodeError>) -> Status {
    match done {
        Err(NodeError::Status(status)) => status,
        other => panic!("{other:?}"),
    }
}

/// Many changes, so that checkpoints are written and runs merged.
fn churn(tree: &PackTree) {
    tree.mkdir("churn".as_ref()).unwrap();
    for number in 0..1500 {
        write(tree, &format!("churn/{number}"), b"1");
    }
}

/// A path, attributes, extended attributes, and text or contents.
type Inode = (Vec<u8>, NodeAttributes, Vec<(Vec<u8>, Vec<u8>)>, Vec<u8>);

/// Every inode with all its attributes, its extended attributes, and its text or contents.
fn everything(nodes: &TreeNodes) -> Vec<Inode> {
    let mut found = Vec::new();
    let mut directories = vec![(Vec::new(), ROOT)];
    while let Some((path, directory)) = directories.pop() {
        let mut after: Box<[u8]> = [].into();
        loop {
            let (entries, is_end) = nodes.list(directory, &after, 7).unwrap();
            for entry in &entries {
                let path = [&path[..], b"/", &entry.name].concat();
                let attributes = nodes.lookup(directory, &entry.name).unwrap();
                assert_eq!((attributes.inode, attributes.kind), (entry.inode, entry.kind));
                let xattrs = nodes.xattrs(entry.inode).unwrap();
                let xattrs =
                    xattrs.iter().map(|name| (name.to_vec(), nodes.xattr(entry.inode, name).unwrap().into()));
                let xattrs = xattrs.collect();
                let bytes = match entry.kind {
                    FileKind::Symlink => nodes.readlink(entry.inode).unwrap().into(),
                    FileKind::Regular => contents(nodes, entry.inode),
                    _ => Vec::new(),
                };
                if entry.kind == FileKind::Directory {
                    directories.push((path.clone(), entry.inode));
                }
                found.push((path, attributes, xattrs, bytes));
            }
            if is_end {
                break;
            }
            after = entries.last().expect("some, or it is the end").name.clone();
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

fn contents(nodes: &TreeNodes, inode: u64) -> Vec<u8> {
    let size = nodes.attributes(inode).unwrap().size;
    let mut bytes = vec![1; size as usize + 10];
    let read = nodes.open(inode).unwrap().read(0, &mut bytes).unwrap();
    bytes.truncate(read);
    assert_eq!(read as u64, size);
    bytes
}

#[test]
fn every_kind_of_inode_keeps_its_attributes_across_reopenings_and_checkpoints() {
    let (machine, tree) = machine();
    let nodes = tree.nodes();
    let kinds = [
        (&b"file"[..], NewKind::File, FileKind::Regular, (0, 0)),
        (b"directory", NewKind::Directory, FileKind::Directory, (0, 0)),
        (b"link", NewKind::Symlink(b"../to"), FileKind::Symlink, (0, 0)),
        (b"tty", NewKind::CharDevice { major: 5, minor: 1 }, FileKind::CharDevice, (5, 1)),
        (b"disk", NewKind::BlockDevice { major: 259, minor: 1 << 19 }, FileKind::BlockDevice, (259, 1 << 19)),
        (b"pipe", NewKind::Fifo, FileKind::Fifo, (0, 0)),
        (b"socket", NewKind::Socket, FileKind::Socket, (0, 0)),
    ];
    for (name, kind, is, device) in kinds {
        let made = nodes.make(ROOT, name, &new(kind, 0o6751)).unwrap();
        assert_eq!((made.kind, made.mode, made.uid, made.gid), (is, 0o6751, 1000, 2000));
        assert_eq!((made.device, made.links), (device, if is == FileKind::Directory { 2 } else { 1 }));
        assert!(made.atime_ns > 0 && made.atime_ns == made.mtime_ns && made.mtime_ns == made.ctime_ns);
        let set = SetAttributes {
            mode: Some(0o1600),
            uid: Some(u32::MAX - 1),
            gid: Some(7),
            size: None,
            atime_ns: Some(-1),
            mtime_ns: Some(i64::MAX),
        };
        let set = nodes.set(made.inode, &set).unwrap();
        assert_eq!((set.mode, set.uid, set.gid), (0o1600, u32::MAX - 1, 7));
        assert_eq!((set.atime_ns, set.mtime_ns), (-1, i64::MAX));
        assert!(set.ctime_ns >= made.ctime_ns && set.ctime_ns < i64::MAX);
        // What is not set stays.
        let only =
            nodes.set(made.inode, &SetAttributes { gid: Some(8), ..SetAttributes::default() }).unwrap();
        assert_eq!((only.mode, only.uid, only.gid, only.atime_ns), (0o1600, u32::MAX - 1, 8, -1));
        nodes.set_xattr(made.inode, b"user.kind", name, XattrHow::Create).unwrap();
        nodes.set_xattr(made.inode, b"user.empty", b"", XattrHow::Set).unwrap();
    }
    let before = everything(&nodes);
    assert_eq!(before.len(), 7);
    drop(nodes);
    drop(tree);
    // From the journal, and then from runs.
    let tree = opened(Arc::new(machine.clone()));
    assert_eq!(everything(&tree.nodes()), before);
    churn(&tree);
    let is_kept = |found: &Inode| !found.0.starts_with(b"/churn");
    let after: Vec<_> = everything(&tree.nodes()).into_iter().filter(is_kept).collect();
    assert_eq!(after, before);
    tree.close().unwrap();
    let tree = opened(Arc::new(machine.clone()));
    let after: Vec<_> = everything(&tree.nodes()).into_iter().filter(is_kept).collect();
    assert_eq!(after, before);
    drop(tree);
    let report = check(&machine, |_, _| ()).unwrap();
    assert_eq!((report.faults, report.leaked_bytes, report.names), (vec![], 0, 6 + 1500));
}

#[test]
fn truncation_and_holes_give_the_bytes_of_a_plain_file_and_their_space_back() {
    let (machine, tree) = machine();
    let nodes = tree.nodes();
    let file = nodes.create(ROOT, b"file", &new(NewKind::File, 0o600)).unwrap();
    let inode = file.inode();
    let mut wanted: Vec<u8> = Vec::new();
    let size = |bytes: u64| SetAttributes { size: Some(bytes), ..SetAttributes::default() };
    for step in 0..400_u64 {
        let drawn = crate::scenario::mixed(step);
        let (at, length) = (drawn as usize % 300_000, (drawn >> 20) as usize % 70_000);
        match drawn >> 60 {
            0..7 => {
                let bytes = pattern(length, drawn);
                assert_eq!(file.write(Some(at as u64), &bytes).unwrap(), at as u64);
                wanted.resize(wanted.len().max(if length > 0 { at + length } else { 0 }), 0);
                if length > 0 {
                    wanted[at..at + length].copy_from_slice(&bytes);
                }
            }
            7..9 => {
                let bytes = pattern(length, drawn);
                assert_eq!(file.write(None, &bytes).unwrap(), wanted.len() as u64);
                wanted.extend_from_slice(&bytes);
            }
            9..12 => {
                assert_eq!(nodes.set(inode, &size(at as u64)).unwrap().size, at as u64);
                wanted.resize(at, 0);
            }
            _ => {
                nodes.punch_hole(inode, at as u64, length as u64).unwrap();
                let end = wanted.len().min(at + length);
                wanted[at.min(end)..end].fill(0);
            }
        }
        assert!(contents(&nodes, inode) == wanted, "step {step}");
    }
    nodes.punch_hole(inode, 0, u64::MAX / 2).unwrap();
    let empty = nodes.attributes(inode).unwrap();
    assert_eq!((empty.size, empty.used_bytes), (wanted.len() as u64, 0));
    assert!(contents(&nodes, inode).iter().all(|byte| *byte == 0));
    // The end of a file is not the end of its last piece.
    nodes.set(inode, &size(50_000_000)).unwrap();
    file.write(None, b"behind").unwrap();
    assert_eq!(nodes.attributes(inode).unwrap().size, 50_000_006);
    nodes.set(inode, &size(50_000_001)).unwrap();
    nodes.set(inode, &size(50_000_003)).unwrap();
    let mut end = [9; 5];
    assert_eq!(file.read(49_999_999, &mut end).unwrap(), 4);
    assert_eq!(&end[..4], b"\0b\0\0");
    drop((file, nodes));
    tree.close().unwrap();
    let report = check(&machine, |_, _| ()).unwrap();
    assert_eq!((report.faults, report.leaked_bytes, report.bytes), (vec![], 0, 1));
    let tree = opened(Arc::new(machine));
    assert_eq!(tree.nodes().attributes(inode).unwrap().size, 50_000_003);
    let space = tree.statfs().unwrap().bytes_free;
    tree.unlink("file".as_ref()).unwrap();
    assert_eq!(tree.nodes().lookup(ROOT, b"file").map_err(|error| error.to_string()).ok(), None);
    assert!(tree.statfs().unwrap().bytes_free >= space);
}

#[test]
fn a_file_is_longer_than_16_gib_and_its_ends_read_back_after_a_reopening() {
    let (machine, tree) = machine();
    let nodes = tree.nodes();
    let file = nodes.create(ROOT, b"long", &new(NewKind::File, 0o600)).unwrap();
    let far: u64 = (1 << 44) - 7;
    file.write(Some(0), b"begin").unwrap();
    file.write(Some(17 << 30), b"middle").unwrap();
    file.write(Some(far), b"the end").unwrap();
    assert_eq!(status(file.write(None, b"more")), Status::FBIG);
    let size = SetAttributes { size: Some((1 << 44) + 1), ..SetAttributes::default() };
    assert_eq!(status(nodes.set(file.inode(), &size)), Status::FBIG);
    let inode = file.inode();
    drop((file, nodes));
    churn(&tree);
    drop(tree);
    let tree = opened(Arc::new(machine));
    let nodes = tree.nodes();
    let found = nodes.attributes(inode).unwrap();
    assert_eq!((found.size, found.used_bytes), (1 << 44, 3 * 64));
    let file = nodes.open(inode).unwrap();
    for (offset, wanted) in
        [(0, &b"begin"[..]), (17 << 30, b"middle"), (far, b"the end"), (1 << 33, &[0; 99])]
    {
        let mut bytes = vec![7; wanted.len()];
        assert_eq!(file.read(offset, &mut bytes).unwrap(), wanted.len());
        assert_eq!(bytes, wanted);
    }
}

#[test]
fn extended_attributes_are_set_replaced_listed_and_removed_and_bounds_are_kept() {
    let (_, tree) = machine();
    let nodes = tree.nodes();
    let inode = nodes.make(ROOT, b"file", &new(NewKind::File, 0o600)).unwrap().inode;
    let set = |name: &[u8], value: &[u8], how| nodes.set_xattr(inode, name, value, how);
    assert!(matches!(nodes.xattr(inode, b"user.a"), Err(NodeError::NoXattr)));
    assert!(matches!(set(b"user.a", b"1", XattrHow::Replace), Err(NodeError::NoXattr)));
    set(b"user.b", b"2", XattrHow::Set).unwrap();
    set(b"user.a", b"1", XattrHow::Create).unwrap();
    assert_eq!(status(set(b"user.a", b"1", XattrHow::Create)), Status::EXIST);
    set(b"user.a", &[7; 4096], XattrHow::Replace).unwrap();
    assert!(matches!(set(b"user.c", &[7; 4097], XattrHow::Set), Err(NodeError::XattrTooLong)));
    assert_eq!(status(set(b"", b"1", XattrHow::Set)), Status::INVAL);
    assert_eq!(nodes.xattrs(inode).unwrap(), [b"user.a"[..].into(), b"user.b"[..].into()]);
    assert_eq!(*nodes.xattr(inode, b"user.a").unwrap(), [7; 4096]);
    let full = (0..)
        .find(|number: &u32| set(format!("user.{number:03}").as_bytes(), &[1; 4000], XattrHow::Set).is_err());
    assert_eq!(full, Some(15), "64 KiB in all");
    nodes.remove_xattr(inode, b"user.a").unwrap();
    assert!(matches!(nodes.remove_xattr(inode, b"user.a"), Err(NodeError::NoXattr)));
    assert!(!nodes.xattrs(inode).unwrap().contains(&b"user.a"[..].into()));
}

#[test]
fn what_is_open_stays_without_a_name_and_is_gone_with_its_space_after_a_kill() {
    let (machine, tree) = machine();
    let nodes = tree.nodes();
    let file = nodes.create(ROOT, b"file", &new(NewKind::File, 0o600)).unwrap();
    let directory = nodes.make(ROOT, b"directory", &new(NewKind::Directory, 0o700)).unwrap().inode;
    let held = nodes.open(directory).unwrap();
    file.write(None, &pattern(60_000, 1)).unwrap();
    nodes.unlink(ROOT, b"file").unwrap();
    nodes.rmdir(ROOT, b"directory").unwrap();
    // Both can still be used, and what is done with them is in no journal and no run.
    churn(&tree);
    let inode = file.inode();
    file.write(None, &pattern(60_000, 2)).unwrap();
    nodes
        .set(inode, &SetAttributes { size: Some(119_000), mode: Some(0o640), ..SetAttributes::default() })
        .unwrap();
    nodes.punch_hole(inode, 1000, 1000).unwrap();
    nodes.set_xattr(inode, b"user.a", b"1", XattrHow::Set).unwrap();
    let found = nodes.attributes(inode).unwrap();
    assert_eq!((found.links, found.size, found.mode), (0, 119_000, 0o640));
    let mut wanted = [pattern(60_000, 1), pattern(60_000, 2)].concat();
    wanted.truncate(119_000);
    wanted[1000..2000].fill(0);
    assert!(contents(&nodes, inode) == wanted);
    assert_eq!(status(nodes.link(inode, ROOT, b"again")), Status::NOENT);
    assert_eq!(status(nodes.make(directory, b"in", &new(NewKind::File, 0o600))), Status::NOENT);
    assert_eq!(nodes.list(directory, b"", 10).unwrap(), (vec![], true));
    for after in [machine.process_end(), machine.power_cut(1)] {
        let report = check(&after, |_, _| ()).unwrap();
        assert_eq!((report.faults, report.leaked_bytes), (vec![], 0));
        let tree = opened(Arc::new(after));
        assert_eq!(status(tree.nodes().attributes(inode)), Status::STALE);
        assert_eq!(status(tree.nodes().open(directory).map(drop)), Status::STALE);
    }
    drop((file, held, nodes));
    tree.close().unwrap();
    let report = check(&machine, |_, _| ()).unwrap();
    assert_eq!((report.faults, report.leaked_bytes, report.files), (vec![], 0, 1500));
}

#[test]
fn inode_numbers_are_handles_that_survive_a_restart_and_are_never_used_again() {
    let (machine, tree) = machine();
    let nodes = tree.nodes();
    let made =
        |nodes: &TreeNodes, name: &[u8]| nodes.make(ROOT, name, &new(NewKind::File, 0o600)).unwrap().inode;
    let (kept, gone) = (made(&nodes, b"kept"), made(&nodes, b"gone"));
    nodes.unlink(ROOT, b"gone").unwrap();
    drop(nodes);
    churn(&tree);
    tree.close().unwrap();
    let tree = opened(Arc::new(machine));
    let nodes = tree.nodes();
    nodes.rename((ROOT, b"kept"), (ROOT, b"moved"), RenameHow::Replace).unwrap();
    assert_eq!(nodes.lookup(ROOT, b"moved").unwrap(), nodes.attributes(kept).unwrap());
    assert_eq!(status(nodes.attributes(gone)), Status::STALE);
    for number in 0..50_u32 {
        assert!(made(&nodes, format!("new-{number}").as_bytes()) > gone);
    }
    assert_eq!(status(nodes.attributes(gone)), Status::STALE);
}

#[test]
fn names_are_renamed_replaced_and_exchanged_as_renameat2_does() {
    let (machine, tree) = machine();
    let nodes = tree.nodes();
    let made = |directory, name: &[u8], kind| nodes.make(directory, name, &new(kind, 0o700)).unwrap().inode;
    let (a, b) = (made(ROOT, b"a", NewKind::Directory), made(ROOT, b"b", NewKind::Directory));
    let (file, other) = (made(a, b"file", NewKind::File), made(b, b"other", NewKind::File));
    let below = made(a, b"below", NewKind::Directory);
    let rename = |from: (u64, &[u8]), to: (u64, &[u8]), how| nodes.rename(from, to, how);
    assert_eq!(status(rename((a, b"file"), (b, b"other"), RenameHow::NoReplace)), Status::EXIST);
    assert_eq!(status(rename((a, b"file"), (b, b"none"), RenameHow::Exchange)), Status::NOENT);
    assert_eq!(status(rename((ROOT, b"a"), (below, b"x"), RenameHow::Replace)), Status::INVAL);
    assert_eq!(status(rename((ROOT, b"a"), (a, b"below"), RenameHow::Exchange)), Status::INVAL);
    assert_eq!(status(rename((a, b"below"), (ROOT, b"a"), RenameHow::Exchange)), Status::INVAL);
    assert_eq!(status(rename((a, b"below"), (b, b"other"), RenameHow::Replace)), Status::NOTDIR);
    assert_eq!(status(rename((b, b"other"), (ROOT, b"a"), RenameHow::Replace)), Status::ISDIR);
    assert_eq!(status(rename((ROOT, b"b"), (ROOT, b"a"), RenameHow::Replace)), Status::NOTEMPTY);
    for wrong in [&b""[..], b".", b"..", b"a/b", b"nul\0"] {
        assert_eq!(status(rename((a, b"file"), (b, wrong), RenameHow::Replace)), Status::INVAL, "{wrong:?}");
    }
    assert_eq!(status(nodes.make(a, &[b'n'; 256], &new(NewKind::File, 0))), Status::NAMETOOLONG);
    assert_eq!(status(nodes.make(file, b"in", &new(NewKind::File, 0))), Status::NOTDIR);
    // A directory and a file change places; links of both directories follow.
    rename((a, b"below"), (b, b"other"), RenameHow::Exchange).unwrap();
    let at = |directory, name: &[u8]| nodes.lookup(directory, name).map(|found| found.inode).ok();
    assert_eq!((at(a, b"below"), at(b, b"other"), at(a, b"file")), (Some(other), Some(below), Some(file)));
    let links = |inode| nodes.attributes(inode).unwrap().links;
    assert_eq!((links(ROOT), links(a), links(b)), (4, 2, 3));
    rename((a, b"file"), (a, b"below"), RenameHow::Replace).unwrap();
    assert_eq!((at(a, b"below"), at(a, b"file")), (Some(file), None));
    assert_eq!(status(nodes.attributes(other)), Status::STALE);
    rename((a, b"below"), (ROOT, b"top"), RenameHow::NoReplace).unwrap();
    nodes.link(file, b, b"second").unwrap();
    assert_eq!((links(file), at(b, b"second")), (2, Some(file)));
    assert_eq!(status(nodes.link(b, ROOT, b"c")), Status::PERM);
    assert_eq!(status(nodes.unlink(ROOT, b"b")), Status::ISDIR);
    assert_eq!(status(nodes.rmdir(ROOT, b"top")), Status::NOTDIR);
    assert_eq!(status(nodes.rmdir(ROOT, b"b")), Status::NOTEMPTY);
    nodes.rmdir(ROOT, b"a").unwrap();
    nodes.sync().unwrap();
    let before = everything(&nodes);
    let after = machine.power_cut(3);
    assert_eq!(check(&after.process_end(), |_, _| ()).unwrap().faults, []);
    assert_eq!(everything(&opened(Arc::new(after)).nodes()), before);
}
