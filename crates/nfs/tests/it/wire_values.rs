//! Arbitrary requests and replies, owned so that proptest can shrink them.
#![allow(dead_code)] // Each test file uses its part.

use files::*;
use proptest::{collection::vec, option, prelude::*};

/// Material for one request or reply of any procedure: each takes what it needs.
#[derive(Clone, Debug)]
pub struct Material {
    pub handle: Vec<u8>,
    pub handle_2: Vec<u8>,
    pub name: Vec<u8>,
    pub name_2: Vec<u8>,
    pub bytes: Vec<u8>,
    pub numbers: [u64; 6],
    pub words: [u32; 8],
    pub flags: [bool; 4],
    pub verifier: [u8; 8],
    pub set: SetAttributes,
    pub attributes: [Option<Attributes>; 2],
    pub required: Attributes,
    pub wcc: [Wcc; 2],
    pub choice: u8,
    pub time: NodeTime,
    pub maybe_time: Option<NodeTime>,
    pub maybe_handle: bool,
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub fileid: u64,
    pub name: Vec<u8>,
    pub cookie: u64,
    pub attributes: Option<Attributes>,
    pub handle: Option<Vec<u8>>,
}

fn time() -> impl Strategy<Value = NodeTime> {
    any::<(u32, u32)>().prop_map(|(s, ns)| NodeTime { s, ns })
}

fn kind() -> impl Strategy<Value = FileKind> {
    use FileKind::*;
    prop::sample::select(vec![Regular, Directory, BlockDevice, CharDevice, Symlink, Socket, Fifo])
}

fn attributes() -> impl Strategy<Value = Attributes> {
    (kind(), any::<([u32; 6], [u64; 4])>(), [time(), time(), time()]).prop_map(|(kind, (w, n), times)| {
        Attributes {
            kind,
            mode: w[0],
            links: w[1],
            uid: w[2],
            gid: w[3],
            size: n[0],
            used: n[1],
            device: (w[4], w[5]),
            fsid: n[2],
            fileid: n[3],
            atime: times[0],
            mtime: times[1],
            ctime: times[2],
        }
    })
}

fn wcc() -> impl Strategy<Value = Wcc> {
    let before =
        (any::<u64>(), time(), time()).prop_map(|(size, mtime, ctime)| PreAttributes { size, mtime, ctime });
    (option::of(before), option::of(attributes())).prop_map(|(before, after)| Wcc { before, after })
}

fn set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![Just(SetTime::Keep), Just(SetTime::ServerTime), time().prop_map(SetTime::To)]
}

fn set() -> impl Strategy<Value = SetAttributes> {
    (any::<(Option<u32>, Option<u32>, Option<u32>, Option<u64>)>(), set_time(), set_time()).prop_map(
        |((mode, uid, gid, size), atime, mtime)| SetAttributes { mode, uid, gid, size, atime, mtime },
    )
}

fn handle() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=64)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..20)
}

fn entry() -> impl Strategy<Value = Entry> {
    (any::<(u64, u64)>(), name(), option::of(attributes()), option::of(handle())).prop_map(
        |((fileid, cookie), name, attributes, handle)| Entry { fileid, name, cookie, attributes, handle },
    )
}

pub fn material() -> impl Strategy<Value = Material> {
    (
        (handle(), handle(), name(), name(), vec(any::<u8>(), 0..40)),
        any::<([u64; 6], [u32; 8], [bool; 4], [u8; 8], u8, bool)>(),
        (set(), [option::of(attributes()), option::of(attributes())], attributes(), [wcc(), wcc()]),
        (time(), option::of(time()), vec(entry(), 0..5)),
    )
        .prop_map(|(bytes, plain, attributes, rest)| Material {
            handle: bytes.0,
            handle_2: bytes.1,
            name: bytes.2,
            name_2: bytes.3,
            bytes: bytes.4,
            numbers: plain.0,
            words: plain.1,
            flags: plain.2,
            verifier: plain.3,
            choice: plain.4,
            maybe_handle: plain.5,
            set: attributes.0,
            attributes: attributes.1,
            required: attributes.2,
            wcc: attributes.3,
            time: rest.0,
            maybe_time: rest.1,
            entries: rest.2,
        })
}

impl Material {
    pub fn stability(&self) -> Stability {
        [Stability::Unstable, Stability::DataSync, Stability::FileSync][usize::from(self.choice) % 3]
    }

    pub fn request(&self, kind: OpKind) -> Request<'_> {
        let object = HandleRef(&self.handle);
        let (dir, file, to_dir, name, new) =
            (object, object, HandleRef(&self.handle_2), &self.name[..], self.set);
        let (offset, count, verifier) = (self.numbers[0], self.words[0], self.verifier);
        let device = (self.words[0], self.words[1]);
        match kind {
            OpKind::Null => Request::Null,
            OpKind::Getattr => Request::Getattr { object },
            OpKind::Setattr => Request::Setattr { object, new, guard: self.maybe_time },
            OpKind::Lookup => Request::Lookup { dir, name },
            OpKind::Access => Request::Access { object, rights: count },
            OpKind::Readlink => Request::Readlink { link: object },
            OpKind::Read => Request::Read { file, offset, count },
            OpKind::Write => Request::Write { file, offset, bytes: &self.bytes, stability: self.stability() },
            OpKind::Create => Request::Create {
                dir,
                name,
                how: match self.choice % 3 {
                    0 => CreateHow::Unchecked(new),
                    1 => CreateHow::Guarded(new),
                    _ => CreateHow::Exclusive(verifier),
                },
            },
            OpKind::Mkdir => Request::Mkdir { dir, name, new },
            OpKind::Symlink => Request::Symlink { dir, name, target: &self.bytes, new },
            OpKind::Mknod => Request::Mknod {
                dir,
                name,
                node: match self.choice % 4 {
                    0 => NodeKind::BlockDevice { device },
                    1 => NodeKind::CharDevice { device },
                    2 => NodeKind::Socket,
                    _ => NodeKind::Fifo,
                },
                new,
            },
            OpKind::Remove => Request::Remove { dir, name },
            OpKind::Rmdir => Request::Rmdir { dir, name },
            OpKind::Rename => {
                Request::Rename { from_dir: dir, from_name: name, to_dir, to_name: &self.name_2 }
            }
            OpKind::Link => Request::Link { file, dir: to_dir, name },
            OpKind::Readdir => Request::Readdir { dir, cookie: offset, verifier, count },
            OpKind::Readdirplus => Request::Readdirplus {
                dir,
                cookie: offset,
                verifier,
                name_bytes: count,
                reply_bytes: self.words[1],
            },
            OpKind::Fsstat => Request::Fsstat { root: object },
            OpKind::Fsinfo => Request::Fsinfo { root: object },
            OpKind::Pathconf => Request::Pathconf { object },
            OpKind::Commit => Request::Commit { file, offset, count },
        }
    }

    /// The entries, to be borrowed by [`Self::reply`].
    pub fn entries(&self, kind: OpKind) -> Vec<DirEntry<'_>> {
        let plus = kind == OpKind::Readdirplus;
        self.entries
            .iter()
            .map(|entry| DirEntry {
                fileid: entry.fileid,
                name: &entry.name,
                cookie: entry.cookie,
                attributes: entry.attributes.filter(|_| plus),
                object: entry.handle.as_deref().filter(|_| plus).map(HandleRef),
            })
            .collect()
    }

    pub fn reply<'a>(&'a self, kind: OpKind, entries: &'a [DirEntry<'a>]) -> Reply<'a> {
        let [attributes, dir] = self.attributes;
        let [wcc, wcc_2] = self.wcc;
        let (n, w, f, verifier) = (self.numbers, self.words, self.flags, self.verifier);
        match kind {
            OpKind::Null => Reply::Null,
            OpKind::Getattr => Reply::Getattr { attributes: self.required },
            OpKind::Setattr => Reply::Setattr { object: wcc },
            OpKind::Lookup => Reply::Lookup { object: HandleRef(&self.handle), attributes, dir },
            OpKind::Access => Reply::Access { attributes, rights: w[0] },
            OpKind::Readlink => Reply::Readlink { attributes, target: &self.bytes },
            OpKind::Read => Reply::Read { attributes, bytes: &self.bytes, end: f[0] },
            OpKind::Write => Reply::Write { file: wcc, count: w[0], stability: self.stability(), verifier },
            OpKind::Create | OpKind::Mkdir | OpKind::Symlink | OpKind::Mknod => Reply::Created {
                object: self.maybe_handle.then_some(HandleRef(&self.handle)),
                attributes,
                dir: wcc,
            },
            OpKind::Remove | OpKind::Rmdir => Reply::Removed { dir: wcc },
            OpKind::Rename => Reply::Rename { from_dir: wcc, to_dir: wcc_2 },
            OpKind::Link => Reply::Link { attributes, dir: wcc },
            OpKind::Readdir | OpKind::Readdirplus => {
                Reply::Listing { dir, verifier, entries: Entries::Listed(entries), end: f[0] }
            }
            OpKind::Fsstat => Reply::Fsstat {
                attributes,
                stat: Fsstat {
                    bytes_total: n[0],
                    bytes_free: n[1],
                    bytes_available: n[2],
                    files_total: n[3],
                    files_free: n[4],
                    files_available: n[5],
                    stable_s: w[0],
                },
            },
            OpKind::Fsinfo => Reply::Fsinfo {
                attributes,
                limits: Fsinfo {
                    read_max: w[0],
                    read_preferred: w[1],
                    read_multiple: w[2],
                    write_max: w[3],
                    write_preferred: w[4],
                    write_multiple: w[5],
                    readdir_preferred: w[6],
                    file_size_max: n[0],
                    time_delta: self.time,
                    properties: w[7],
                },
            },
            OpKind::Pathconf => Reply::Pathconf {
                attributes,
                limits: Pathconf {
                    links_max: w[0],
                    name_bytes_max: w[1],
                    no_truncation: f[0],
                    chown_restricted: f[1],
                    case_insensitive: f[2],
                    case_preserving: f[3],
                },
            },
            OpKind::Commit => Reply::Commit { file: wcc, verifier },
        }
    }
}
