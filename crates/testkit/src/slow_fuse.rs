//! A file system in memory that takes its time for each operation on names and attributes: a far or overloaded volume.
//!
//! Always holds: the kernel caches neither names nor attributes of it, so each call reaches it; data is as quick as FUSE is;
//! requests are answered one after the other; it is unmounted when the value is dropped.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use fuse::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    NewMount, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyWrite, Request, Session, TimeOrNow, Transport, WriteFlags,
};
use rustix::mount::MountFlags;
use tempfile::TempDir;

use crate::need;

/// A mounted one.
pub struct SlowFuse {
    folder: TempDir,
}

impl Drop for SlowFuse {
    fn drop(&mut self) {
        // Before the folder goes. Its threads end with it.
        drop(fuse::detach(self.folder.path(), true));
    }
}

impl SlowFuse {
    /// Mounts one that takes `delay` for each operation on names and attributes, for a test that needs it: where it cannot be
    /// mounted, the test is skipped or fails.
    pub fn needed(delay: Duration) -> Option<Self> {
        if !need::fuse() {
            return None;
        }
        need::host(need::HostFeature::Fuse, Self::mount(delay))
    }

    fn mount(delay: Duration) -> std::io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("crumb-slow").tempdir()?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        let new = NewMount {
            source: Path::new("slow"),
            subtype: "slow",
            allow_other: false,
            default_permissions: false,
            flags,
        };
        let connection = new.at(folder.path())?;
        let mounted = Self { folder };
        let config = Config { threads: 1, owner: None, transport: Transport::Device };
        Session::new(Volume::new(delay), connection, &config)?.spawn()?;
        Ok(mounted)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

struct Volume {
    delay: Duration,
    nodes: Mutex<Nodes>,
}

#[derive(Default)]
struct Nodes {
    all: HashMap<u64, Node>,
    last: u64,
}

struct Node {
    parent: u64,
    /// Of a directory.
    names: Option<BTreeMap<OsString, u64>>,
    bytes: Vec<u8>,
    permissions: u16,
    owner: (u32, u32),
}

const ROOT: u64 = 1;
/// Nothing is cached.
const NOT_KEPT: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);

impl Volume {
    fn new(delay: Duration) -> Self {
        let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let root =
            Node { parent: ROOT, names: Some(BTreeMap::new()), bytes: Vec::new(), permissions: 0o755, owner };
        Self { delay, nodes: Mutex::new(Nodes { all: HashMap::from([(ROOT, root)]), last: ROOT }) }
    }

    /// The nodes, as late as everything of this volume.
    fn late(&self) -> MutexGuard<'_, Nodes> {
        std::thread::sleep(self.delay);
        self.at_once()
    }

    fn at_once(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Nodes {
    fn names(&mut self, directory: u64) -> Result<&mut BTreeMap<OsString, u64>, Errno> {
        self.all.get_mut(&directory).and_then(|node| node.names.as_mut()).ok_or(Errno::ENOTDIR)
    }

    fn find(&mut self, directory: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let id = *self.names(directory.0)?.get(name).ok_or(Errno::ENOENT)?;
        self.attributes(id)
    }

    fn attributes(&self, id: u64) -> Result<FileAttr, Errno> {
        let node = self.all.get(&id).ok_or(Errno::ESTALE)?;
        let time = SystemTime::UNIX_EPOCH;
        Ok(FileAttr {
            ino: INodeNo(id),
            size: node.bytes.len() as u64,
            blocks: node.bytes.len().div_ceil(512) as u64,
            atime: time,
            mtime: time,
            ctime: time,
            kind: if node.names.is_some() { FileType::Directory } else { FileType::RegularFile },
            perm: node.permissions,
            nlink: 1,
            uid: node.owner.0,
            gid: node.owner.1,
            rdev: 0,
            blksize: 4096,
        })
    }

    fn make(
        &mut self,
        request: &Request,
        directory: INodeNo,
        name: &OsStr,
        mode: u32,
        is_directory: bool,
    ) -> Result<FileAttr, Errno> {
        if self.names(directory.0)?.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        self.last += 1;
        let id = self.last;
        let node = Node {
            parent: directory.0,
            names: is_directory.then(BTreeMap::new),
            bytes: Vec::new(),
            // Twelve bits.
            permissions: (mode & 0o7777) as u16,
            owner: (request.uid(), request.gid()),
        };
        self.all.insert(id, node);
        self.names(directory.0)?.insert(name.to_owned(), id);
        self.attributes(id)
    }

    fn remove(&mut self, directory: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let id = *self.names(directory.0)?.get(name).ok_or(Errno::ENOENT)?;
        if self.all.get(&id).and_then(|node| node.names.as_ref()).is_some_and(|names| !names.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        self.names(directory.0)?.remove(name);
        // Open files of tests are closed before they are removed.
        self.all.remove(&id);
        Ok(())
    }
}

fn answer_entry(found: Result<FileAttr, Errno>, reply: ReplyEntry<'_>) {
    match found {
        Ok(attributes) => reply.entry(&NOT_KEPT, &attributes, GENERATION),
        Err(errno) => reply.error(errno),
    }
}

fn answer(done: Result<(), Errno>, reply: ReplyEmpty<'_>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Volume {
    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry<'_>) {
        answer_entry(self.late().find(parent, name), reply);
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr<'_>) {
        match self.late().attributes(ino.0) {
            Ok(attributes) => reply.attr(&NOT_KEPT, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        reply: ReplyAttr<'_>,
    ) {
        let mut nodes = self.late();
        if let Some(node) = nodes.all.get_mut(&ino.0) {
            node.permissions = mode.map_or(node.permissions, |mode| (mode & 0o7777) as u16);
            if let Some(size) = size {
                node.bytes.resize(usize::try_from(size).unwrap_or(0), 0);
            }
        }
        match nodes.attributes(ino.0) {
            Ok(attributes) => reply.attr(&NOT_KEPT, &attributes),
            Err(errno) => reply.error(errno),
        }
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry<'_>,
    ) {
        answer_entry(self.late().make(request, parent, name, mode & !umask, true), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate<'_>,
    ) {
        match self.late().make(request, parent, name, mode & !umask, false) {
            Ok(attributes) => {
                reply.created(&NOT_KEPT, &attributes, GENERATION, FileHandle(0), FopenFlags::empty());
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty<'_>) {
        answer(self.late().remove(parent, name), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty<'_>) {
        answer(self.late().remove(parent, name), reply);
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData<'_>,
    ) {
        let nodes = self.at_once();
        let bytes = nodes.all.get(&ino.0).map_or(&[][..], |node| &node.bytes);
        let from = bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
        let to = bytes.len().min(from.saturating_add(size as usize));
        reply.data(&bytes[from..to]);
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite<'_>,
    ) {
        let mut nodes = self.at_once();
        let Some(node) = nodes.all.get_mut(&ino.0) else { return reply.error(Errno::ESTALE) };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let Some(end) = from.checked_add(data.len()) else { return reply.error(Errno::EFBIG) };
        if node.bytes.len() < end {
            node.bytes.resize(end, 0);
        }
        node.bytes[from..end].copy_from_slice(data);
        // A request holds less than 4 GiB.
        reply.written(data.len() as u32);
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty<'_>,
    ) {
        // The kernel stops asking.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty<'_>,
    ) {
        let _nodes = self.late();
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory<'_>,
    ) {
        let mut nodes = self.late();
        let parent = nodes.all.get(&ino.0).map_or(ROOT, |node| node.parent);
        let names = match nodes.names(ino.0) {
            Ok(names) => names.clone(),
            Err(errno) => return reply.error(errno),
        };
        let dots = [(OsString::from("."), ino.0), (OsString::from(".."), parent)];
        for (at, (name, id)) in (1..).zip(dots.into_iter().chain(names)).skip(offset as usize) {
            let kind = nodes.attributes(id).map_or(FileType::RegularFile, |attributes| attributes.kind);
            if reply.add(INodeNo(id), at, kind, &name) {
                break;
            }
        }
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_slow_volume_keeps_files_takes_its_time_and_is_gone_afterwards() {
        let delay = Duration::from_millis(2);
        let Some(volume) = SlowFuse::needed(delay) else { return };
        let path = volume.path().join("directory");
        fs::create_dir(&path).expect("a directory");
        fs::write(path.join("file"), b"bytes").expect("a file");
        assert_eq!(fs::read(path.join("file")).expect("it is there"), b"bytes");
        let begun = Instant::now();
        assert_eq!(fs::metadata(path.join("file")).expect("it is there").len(), 5);
        assert!(begun.elapsed() >= delay);
        let names = fs::read_dir(&path).expect("a listing").flatten().map(|entry| entry.file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["file"]);
        assert_eq!(
            fs::remove_dir(&path).expect_err("not empty").kind(),
            std::io::ErrorKind::DirectoryNotEmpty
        );
        fs::remove_file(path.join("file")).expect("removed");
        fs::remove_dir(&path).expect("removed");
        let place = volume.path().display().to_string();
        let mounted = || fs::read_to_string("/proc/self/mounts").expect("mounts").contains(&place);
        assert!(mounted());
        drop(volume);
        assert!(!mounted());
    }
}
