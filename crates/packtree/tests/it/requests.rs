//! Requests on handles: the same as a directory answers, and what becomes of handles, cuts and stability.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use files::{
    Attributes, CreateHow, Directory, DirectoryOptions, DirectoryTransport, DirectoryTransportOptions,
    FileKind, FileService, FileSystem as _, Handle, HandleRef, NodeKind, NodeTime, Outcome, Reply, Request,
    Scratch, SetAttributes, SetTime, Stability, Status, Ticket, Transport as _,
};
use packtree::{PackTree, check};
use testkit::SimulatedDisk;

use crate::scenario::{SMALL, all, disk, made, mixed, opened, pattern, read, scratch, write};

const SIZE: fn(u64) -> SetAttributes =
    |size| SetAttributes { size: Some(size), mtime: SetTime::ServerTime, ..NOTHING };
const NOTHING: SetAttributes = SetAttributes {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: SetTime::Keep,
    mtime: SetTime::Keep,
};

/// What is compared of a reply.
#[derive(Debug, PartialEq)]
enum Answer {
    Status(Status),
    Object(Option<Seen>),
    Bytes(Vec<u8>, bool),
    Names(BTreeMap<Vec<u8>, Option<FileKind>>),
    Done,
}

#[derive(Debug, PartialEq)]
struct Seen {
    kind: FileKind,
    mode: u32,
    links: u32,
    /// Of a directory each storage has its own.
    size: Option<u64>,
}

fn seen(attributes: Option<Attributes>) -> Option<Seen> {
    let Attributes { kind, mode, links, size, .. } = attributes?;
    Some(Seen { kind, mode, links, size: (kind != FileKind::Directory).then_some(size) })
}

/// The answer, and the handle that came with it.
fn ask(service: &dyn FileService, request: &Request<'_>) -> (Answer, Option<Handle>) {
    let mut scratch = Scratch::new();
    let reply = match service.execute(request, &mut scratch) {
        Err(status) => return (Answer::Status(status), None),
        Ok(reply) => reply,
    };
    match reply {
        Reply::Getattr { attributes } => (Answer::Object(seen(Some(attributes))), None),
        Reply::Lookup { object, attributes, .. } => (Answer::Object(seen(attributes)), Handle::new(object.0)),
        Reply::Created { object: Some(object), attributes, .. } => {
            (Answer::Object(seen(attributes)), Handle::new(object.0))
        }
        Reply::Read { bytes, end, .. } => (Answer::Bytes(bytes.to_vec(), end), None),
        Reply::Readlink { target, .. } => (Answer::Bytes(target.to_vec(), true), None),
        Reply::Setattr { object } => (Answer::Object(seen(object.after)), None),
        Reply::Write { file, .. } => (Answer::Object(seen(file.after)), None),
        Reply::Link { attributes, .. } => (Answer::Object(seen(attributes)), None),
        _ => (Answer::Done, None),
    }
}

/// All names, by as many requests as it takes.
fn list(service: &dyn FileService, dir: &Handle, plus: bool, count: u32) -> Answer {
    let (mut names, mut cookie) = (BTreeMap::new(), 0);
    loop {
        let (dir, verifier) = (dir.by_ref(), [0; 8]);
        let request = match plus {
            false => Request::Readdir { dir, cookie, verifier, count },
            true => Request::Readdirplus { dir, cookie, verifier, name_bytes: count, reply_bytes: 4 * count },
        };
        let mut scratch = Scratch::new();
        match service.execute(&request, &mut scratch) {
            Err(status) => return Answer::Status(status),
            Ok(Reply::Listing { entries, end, .. }) => {
                let before = names.len();
                for entry in entries {
                    cookie = entry.cookie;
                    let kind = entry.attributes.map(|found| found.kind).filter(|_| entry.name != b"..");
                    assert!(names.insert(entry.name.to_vec(), kind).is_none(), "{:?} twice", entry.name);
                }
                if end {
                    return Answer::Names(names);
                }
                assert!(names.len() > before, "a reply without entries that is not the last");
            }
            Ok(other) => panic!("{other:?}"),
        }
    }
}

/// Handles of the same objects on both sides; the first is the root.
struct Both<'a> {
    directory: &'a dyn FileService,
    tree: &'a dyn FileService,
    handles: Vec<(Handle, Handle)>,
}

impl Both<'_> {
    fn compare(
        &mut self,
        what: &str,
        of: [usize; 2],
        request: impl Fn(HandleRef<'_>, HandleRef<'_>, &dyn Fn(&Request<'_>)),
    ) {
        let (one, two) = (self.handles[of[0]], self.handles[of[1]]);
        let answers =
            [(self.directory, one.0, two.0), (self.tree, one.1, two.1)].map(|(service, one, two)| {
                let answer = std::cell::Cell::new(None);
                request(one.by_ref(), two.by_ref(), &|request| answer.set(Some(ask(service, request))));
                answer.take().expect("asked once")
            });
        let [(wanted, left), (got, right)] = answers;
        assert_eq!(got, wanted, "{what}");
        if let (Some(left), Some(right)) = (left, right)
            && !self.handles.iter().any(|(known, _)| *known == left)
        {
            self.handles.push((left, right));
        }
    }

    fn step(&mut self, draw: u64) {
        let pick = |shift: u32, below: usize| (mixed(draw ^ u64::from(shift) << 57) % below as u64) as usize;
        // The root often: most other objects are gone after a while.
        let object = |shift| if pick(shift + 6, 3) == 0 { 0 } else { pick(shift, self.handles.len()) };
        let of = [object(1), object(2)];
        let (name, other) = (format!("n{}", pick(3, 12)), format!("n{}", pick(4, 12)));
        let (name, other) = (name.as_bytes(), other.as_bytes());
        let (offset, bytes) = (pick(5, 300_000) as u64, pattern(pick(6, 40_000), draw));
        let what =
            format!("draw {draw}: {} of {of:?}, {name:?}, {other:?}, {offset}, {}", draw % 16, bytes.len());
        match draw % 16 {
            0 | 1 => self.compare(&what, of, |dir, _, ask| {
                ask(&Request::Create { dir, name, how: CreateHow::Guarded(NOTHING) });
            }),
            2 => self.compare(&what, of, |dir, _, ask| {
                let how = CreateHow::Unchecked(SetAttributes { size: Some(offset % 5 * 1000), ..NOTHING });
                ask(&Request::Create { dir, name, how });
            }),
            3 => self.compare(&what, of, |dir, _, ask| ask(&Request::Mkdir { dir, name, new: NOTHING })),
            4 => self.compare(&what, of, |dir, _, ask| {
                ask(&Request::Symlink { dir, name, target: b"some/where", new: NOTHING });
            }),
            5 | 6 => self.compare(&what, of, |file, _, ask| {
                let stability = if offset % 2 == 0 { Stability::Unstable } else { Stability::FileSync };
                ask(&Request::Write { file, offset, bytes: &bytes, stability });
            }),
            7 => self.compare(&what, of, |file, _, ask| ask(&Request::Read { file, offset, count: 100_000 })),
            8 => self.compare(&what, of, |object, _, ask| {
                ask(&Request::Setattr { object, new: SIZE(offset * 3 / 2), guard: None });
            }),
            9 => self.compare(&what, of, |from_dir, to_dir, ask| {
                ask(&Request::Rename { from_dir, from_name: name, to_dir, to_name: other });
            }),
            10 => self.compare(&what, of, |file, dir, ask| ask(&Request::Link { file, dir, name })),
            11 => self.compare(&what, of, |dir, _, ask| ask(&Request::Remove { dir, name })),
            12 => self.compare(&what, of, |dir, _, ask| ask(&Request::Rmdir { dir, name })),
            13 => self.compare(&what, of, |dir, _, ask| ask(&Request::Lookup { dir, name })),
            14 => self.compare(&what, of, |link, _, ask| ask(&Request::Readlink { link })),
            _ => {
                let (left, right) = &self.handles[of[0]];
                let plus = offset % 2 == 0;
                let count = 300 + (offset % 1000) as u32;
                let wanted = list(self.directory, left, plus, count);
                assert_eq!(list(self.tree, right, plus, count), wanted, "{what}");
            }
        }
        self.compare(&what, of, |object, _, ask| ask(&Request::Getattr { object }));
    }
}

#[test]
fn every_request_has_the_answer_that_a_directory_gives() {
    let mut objects = 0;
    for seed in 1..=12_u64 {
        let (beside, scratch) = (scratch(), scratch());
        let directory = Directory::open(beside.path(), DirectoryOptions::default()).unwrap();
        let tree = made(disk(&scratch));
        let handles = vec![(directory.root(), tree.root())];
        let mut both = Both { directory: &directory, tree: &tree, handles };
        for step in 0..700 {
            both.step(mixed(seed << 32 | step));
        }
        objects += both.handles.len();
        let before = all(&tree);
        tree.close().unwrap();
        assert_eq!(check(&*disk(&scratch), |_, _| ()).unwrap().faults, [], "seed {seed}");
        assert_eq!(all(&opened(disk(&scratch))), before, "seed {seed}");
    }
    assert!(objects > 400, "{objects} objects were made in all");
}

#[test]
fn a_handle_outlives_a_restart_and_is_stale_once_its_object_or_its_tree_is_another() {
    let scratch = scratch();
    let tree = made(disk(&scratch));
    let how = CreateHow::Guarded(NOTHING);
    let (_, file) = ask(&tree, &Request::Create { dir: tree.root().by_ref(), name: b"file", how });
    let file = file.unwrap();
    let stability = Stability::FileSync;
    ask(&tree, &Request::Write { file: file.by_ref(), offset: 0, bytes: b"text", stability });
    tree.close().unwrap();
    let tree = opened(disk(&scratch));
    tree.rename(Path::new("file"), Path::new("renamed")).unwrap();
    let look = Request::Read { file: file.by_ref(), offset: 0, count: 10 };
    assert_eq!(ask(&tree, &look).0, Answer::Bytes(b"text".to_vec(), true));
    tree.unlink(Path::new("renamed")).unwrap();
    write(&tree, "file", b"another");
    assert_eq!(ask(&tree, &look).0, Answer::Status(Status::STALE));
    let beside = self::scratch();
    assert_eq!(ask(&made(disk(&beside)), &look).0, Answer::Status(Status::STALE));
    for bytes in [&[][..], &[1; 15], &[1; 17], &[1; 64]] {
        let look = Request::Getattr { object: HandleRef(bytes) };
        assert_eq!(ask(&tree, &look).0, Answer::Status(Status::BADHANDLE));
    }
}

#[test]
fn owners_modes_times_and_pipes_outlive_a_restart_and_a_repeated_exclusive_create_finds_its_file() {
    let scratch = scratch();
    let tree = made(disk(&scratch));
    let root = tree.root();
    let dir = root.by_ref();
    let fifo = Request::Mknod { dir, name: b"fifo", node: NodeKind::Fifo, new: NOTHING };
    let made = ask(&tree, &fifo).0;
    assert!(matches!(made, Answer::Object(Some(Seen { kind: FileKind::Fifo, mode: 0o644, .. }))), "{made:?}");
    let create = |how| ask(&tree, &Request::Create { dir, name: b"file", how });
    let (first, file) = create(CreateHow::Exclusive([7; 8]));
    let (again, same) = create(CreateHow::Exclusive([7; 8]));
    assert!(matches!(first, Answer::Object(Some(_))) && first == again && file == same);
    assert_eq!(create(CreateHow::Exclusive([8; 8])).0, Answer::Status(Status::EXIST));
    let file = file.unwrap();
    let set = |new| ask(&tree, &Request::Setattr { object: file.by_ref(), new, guard: None }).0;
    let stranger = SetAttributes { uid: Some(54_321), ..NOTHING };
    assert!(matches!(set(stranger), Answer::Object(_)));
    let changed = set(SetAttributes { mode: Some(0o640), ..NOTHING });
    assert!(matches!(changed, Answer::Object(Some(Seen { mode: 0o640, .. }))), "{changed:?}");
    let mtime = NodeTime { s: 1_000_000_000, ns: 5 };
    assert!(matches!(set(SetAttributes { mtime: SetTime::To(mtime), ..NOTHING }), Answer::Object(_)));
    assert_eq!(tree.stat(Path::new("file")).unwrap().mtime, mtime);
    let guard = Some(NodeTime { s: 1, ns: 1 });
    let guarded = Request::Setattr { object: file.by_ref(), new: SIZE(5), guard };
    assert_eq!(ask(&tree, &guarded).0, Answer::Status(Status::NOT_SYNC));
    tree.close().unwrap();
    let tree = opened(disk(&scratch));
    let found = tree.stat(Path::new("file")).unwrap();
    assert_eq!((found.uid, found.mode, found.mtime), (54_321, 0o640, mtime));
    assert_eq!(tree.stat(Path::new("fifo")).unwrap().kind, FileKind::Fifo);
}

/// A cut that was synced is there after a power cut, with what was written over it later.
#[test]
fn cuts_and_appends_that_were_synced_survive_power_loss_at_any_operation() {
    let played = |machine: &SimulatedDisk| -> Option<usize> {
        PackTree::create(machine, &SMALL).ok()?;
        let tree = PackTree::open(Arc::new(machine.clone()), &SMALL, "pack:test").ok()?;
        let how = CreateHow::Guarded(NOTHING);
        let file = ask(&tree, &Request::Create { dir: tree.root().by_ref(), name: b"file", how }).1?;
        let mut synced = 0;
        for (at, size) in SIZES.iter().enumerate() {
            let bytes = pattern(3000, at as u64);
            let write = Request::Write {
                file: file.by_ref(),
                offset: *size,
                bytes: &bytes,
                stability: Stability::Unstable,
            };
            let cut = Request::Setattr { object: file.by_ref(), new: SIZE(*size), guard: None };
            let commit = Request::Commit { file: file.by_ref(), offset: 0, count: 0 };
            for request in [&cut, &write, &commit] {
                if matches!(ask(&tree, request).0, Answer::Status(_)) {
                    return Some(synced);
                }
            }
            synced = at + 1;
        }
        Some(synced)
    };
    let wanted = |steps: usize| {
        let mut bytes: Vec<u8> = Vec::new();
        for (at, size) in SIZES.iter().enumerate().take(steps) {
            bytes.resize(*size as usize, 0);
            bytes.extend(pattern(3000, at as u64));
        }
        bytes
    };
    let whole = SimulatedDisk::new("machine");
    assert_eq!(played(&whole), Some(SIZES.len()));
    let mut compared = 0;
    for operation in 0..whole.operations() {
        let machine = SimulatedDisk::new("machine");
        machine.stop_at(operation);
        let Some(synced) = played(&machine).filter(|synced| *synced > 0) else { continue };
        for cut in 0..3 {
            let after = machine.power_cut(operation << 8 | cut);
            assert_eq!(check(&after.process_end(), |_, _| ()).unwrap().faults, [], "at {operation}");
            let found = read(&opened(Arc::new(after)), "file");
            let mut cut_only = wanted(synced);
            if let Some(size) = SIZES.get(synced) {
                cut_only.resize(*size as usize, 0);
            }
            let allowed = [wanted(synced), cut_only, wanted((synced + 1).min(SIZES.len()))];
            assert!(allowed.contains(&found), "at {operation}, cut {cut}: {} bytes", found.len());
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

/// Within a piece, at its end, to nothing, behind the end, into a hole.
const SIZES: [u64; 9] = [0, 1000, 3999, 0, 200_000, 100_000, 100_001, 63, 64];

#[test]
fn many_requests_at_once_by_worker_threads_are_all_answered_and_the_tree_is_closed_with_them() {
    let scratch = scratch();
    let tree = made(disk(&scratch));
    let root = tree.root();
    let clock = quanta::Clock::new();
    let options = DirectoryTransportOptions { threads: 8, threads_max: 8, ..Default::default() };
    let mut transport =
        DirectoryTransport::over(Arc::new(tree), Path::new("pack:test"), &options, clock.clone()).unwrap();
    let finish = |transport: &mut DirectoryTransport, requests: &[Request<'_>]| -> Vec<Option<Handle>> {
        let mut handles = vec![None; requests.len()];
        for (number, request) in requests.iter().enumerate() {
            transport.submit(Ticket(number as u32), request).unwrap();
        }
        let until = clock.now() + Duration::from_secs(60);
        while transport.in_flight() > 0 {
            assert!(clock.now() < until);
            let mut took = |done: files::Completion<'_>| match done.outcome {
                Outcome::Ok(Reply::Created { object: Some(object), .. }) => {
                    handles[done.ticket.0 as usize] = Handle::new(object.0);
                }
                Outcome::Ok(_) => {}
                other => panic!("{:?}: {other:?}", requests[done.ticket.0 as usize]),
            };
            transport.poll(Some(until), &mut took).unwrap();
        }
        handles
    };
    let names: Vec<String> = (0..400).map(|number| format!("file-{number}")).collect();
    let how = CreateHow::Unchecked(NOTHING);
    let dir = root.by_ref();
    let creates: Vec<_> =
        names.iter().map(|name| Request::Create { dir, name: name.as_bytes(), how }).collect();
    let handles = finish(&mut transport, &creates);
    let bytes: Vec<_> = (0..400).map(|number| pattern(500 + number * 7, number as u64)).collect();
    let mut writes = Vec::new();
    for (number, file) in handles.iter().enumerate() {
        let file = file.as_ref().expect("made").by_ref();
        let stability = if number % 8 == 0 { Stability::FileSync } else { Stability::Unstable };
        writes.push(Request::Write { file, offset: 0, bytes: &bytes[number], stability });
        if number % 40 == 0 {
            writes.push(Request::Commit { file, offset: 0, count: 0 });
        }
    }
    finish(&mut transport, &writes);
    drop(transport);
    assert!(scratch.path().join("clean").exists(), "the tree was closed with its transport");
    let tree = opened(disk(&scratch));
    for (name, bytes) in names.iter().zip(&bytes) {
        assert!(read(&tree, name) == *bytes, "{name}");
    }
}
