//! A file system that answers from memory.
//!
//! It negotiates and replies as `stackfs` does by default: names and attributes are believed for one second, FLUSH is switched off,
//! directories are read with attributes. Data does not pass by: a write is a request, as an access control list is in `stackfs`, so
//! that a file that is created, written and closed takes as many. What was written stays in the kernel's cache of pages, so that
//! reading it is no request.
//!
//! One thread waits for requests, or with a ring one of each CPU. Not here: `stackfs`'s reader policies, and keeping CPUs awake.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::mount::MountFlags;

use crate::nodes::{Change, Nodes};
use crate::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, NewMount, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, Session, TimeOrNow, Transport, WriteFlags, detach,
};

/// The type that its mounts have.
pub const FLOOR_TYPE: &str = "fuse.crumb-floor";
const SUBTYPE: &str = "crumb-floor";
const SOURCE: &str = "memory";

/// As `stackfs` has them by default.
const BELIEVED: Duration = Duration::from_secs(1);
const DATA_BYTES_MAX: u32 = 1 << 20;
const GENERATION: Generation = Generation(0);

/// A mounted one. Dropped, it is unmounted, also when it is in use.
#[derive(Debug)]
pub struct Floor {
    place: PathBuf,
    /// Its threads end with the connection, which may outlive this value: programs may still use it.
    _session: BackgroundSession,
    transport: Transport,
}

impl Floor {
    /// Mounts one at `place`, an empty directory, served over the device; it answers when this returns. Its users: the one who mounts.
    ///
    /// # Errors
    /// Where FUSE cannot be mounted: no device, not root and no fusermount3, no capability.
    pub fn mount(place: &Path) -> io::Result<Self> {
        Self::mount_over(place, Transport::Device)
    }

    /// The same by a transport of choice.
    ///
    /// # Errors
    /// As [`Self::mount`], and where a ring is wanted and cannot be used.
    pub fn mount_over(place: &Path, transport: Transport) -> io::Result<Self> {
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        let new = NewMount {
            source: Path::new(SOURCE),
            subtype: SUBTYPE,
            allow_other: false,
            default_permissions: true,
            flags,
        };
        let connection = new.at(place)?;
        let owner = Some(rustix::process::geteuid().as_raw());
        let config = Config { threads: 1, owner, transport };
        let served = || -> io::Result<BackgroundSession> {
            let session = Session::new(Volume::new(), connection, &config)?;
            match session.refusal() {
                Some(reason) => Err(io::Error::other(reason.to_owned())),
                None => session.spawn(),
            }
        };
        let session = served().inspect_err(|_| {
            // Not served, it would only be in the way.
            drop(detach(place, true));
        })?;
        Ok(Self { place: place.to_owned(), _session: session, transport })
    }

    /// By what its requests come.
    pub fn transport(&self) -> Transport {
        self.transport
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // It fails where somebody else has unmounted it already.
        drop(detach(&self.place, true));
    }
}

struct Volume {
    nodes: Mutex<Nodes>,
    listings: Mutex<Listings>,
}

/// What open directories list, as they were when they were opened.
#[derive(Default)]
struct Listings {
    open: HashMap<u64, Vec<(u64, OsString, FileType)>>,
    last: u64,
}

impl Volume {
    fn new() -> Self {
        let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Self { nodes: Mutex::new(Nodes::new(owner)), listings: Mutex::default() }
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listings(&self) -> MutexGuard<'_, Listings> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        is_directory: bool,
    ) -> Result<FileAttr, Errno> {
        let owner = (request.uid(), request.gid());
        // Twelve bits.
        self.nodes().make(parent.0, name, (mode & 0o7777) as u16, owner, is_directory)
    }
}

fn answer_entry(found: Result<FileAttr, Errno>, reply: ReplyEntry<'_>) {
    match found {
        Ok(attributes) => reply.entry(&BELIEVED, &attributes, GENERATION),
        Err(errno) => reply.error(errno),
    }
}

fn answer_attributes(found: Result<FileAttr, Errno>, reply: ReplyAttr<'_>) {
    match found {
        Ok(attributes) => reply.attr(&BELIEVED, &attributes),
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
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2;
        config.add_capabilities(wanted);
        config.set_max_write(DATA_BYTES_MAX);
        config.set_max_readahead(DATA_BYTES_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry<'_>) {
        answer_entry(self.nodes().look_up(parent.0, name), reply);
    }

    fn forget(&self, _request: &Request, ino: INodeNo, nlookup: u64) {
        self.nodes().forget(ino.0, nlookup);
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr<'_>) {
        answer_attributes(self.nodes().attributes(ino.0), reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        reply: ReplyAttr<'_>,
    ) {
        let modified = mtime.map(|time| match time {
            TimeOrNow::SpecificTime(time) => time,
            TimeOrNow::Now => SystemTime::now(),
        });
        let permissions = mode.map(|mode| (mode & 0o7777) as u16);
        let change = Change { permissions, owner: (uid, gid), size, modified };
        answer_attributes(self.nodes().change(ino.0, change), reply);
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
        answer_entry(self.make(request, parent, name, mode & !umask, true), reply);
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
        match self.make(request, parent, name, mode & !umask, false) {
            Ok(attributes) => {
                let kept = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&BELIEVED, &attributes, GENERATION, FileHandle(0), kept);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty<'_>) {
        answer(self.nodes().remove(parent.0, name, false), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty<'_>) {
        answer(self.nodes().remove(parent.0, name, true), reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty<'_>,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        answer(self.nodes().rename((parent.0, name), (newparent.0, newname)), reply);
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen<'_>) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
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
        match self.nodes().read(ino.0, offset, size) {
            Ok(bytes) => reply.data(bytes),
            Err(errno) => reply.error(errno),
        }
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
        match self.nodes().write(ino.0, offset, data) {
            // A request holds less than 4 GiB.
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    /// The kernel stops asking.
    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty<'_>,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty<'_>,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty<'_>,
    ) {
        reply.ok();
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen<'_>) {
        match self.nodes().list(ino.0) {
            Ok(listed) => {
                let mut listings = self.listings();
                listings.last += 1;
                let handle = listings.last;
                listings.open.insert(handle, listed);
                reply.opened(FileHandle(handle), FopenFlags::empty());
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory<'_>,
    ) {
        let listings = self.listings();
        let Some(listed) = listings.open.get(&fh.0) else { return reply.error(Errno::EBADF) };
        for (at, (id, name, kind)) in (offset..).zip(listed.iter().skip(offset as usize)) {
            if reply.add(INodeNo(*id), at + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus<'_>,
    ) {
        let listings = self.listings();
        let Some(listed) = listings.open.get(&fh.0) else { return reply.error(Errno::EBADF) };
        let mut nodes = self.nodes();
        for (at, (id, name, _)) in (offset..).zip(listed.iter().skip(offset as usize)) {
            // Removed since the directory was opened.
            let Ok(attributes) = nodes.attributes(*id) else { continue };
            if reply.add(INodeNo(*id), at + 1, name, &BELIEVED, &attributes, GENERATION) {
                break;
            }
            // The kernel takes no reference to the two dots, which come first.
            if at >= 2 {
                let _ = nodes.refer(*id);
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty<'_>,
    ) {
        self.listings().open.remove(&fh.0);
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs<'_>) {
        let free = 1 << 20;
        reply.statfs(2 * free, free, free, 2 * free, free, 4096, 255, 4096);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Everything that the floor can do.
    fn use_it(at: &Path, floor: Floor) {
        fs::create_dir(at.join("d")).unwrap();
        for number in 0..500 {
            fs::write(at.join(format!("d/f{number}")), format!("{number}")).unwrap();
        }
        assert_eq!(fs::read_dir(at.join("d")).unwrap().count(), 500);
        assert_eq!(fs::read(at.join("d/f499")).unwrap(), b"499");
        fs::rename(at.join("d/f499"), at.join("d/f0")).unwrap();
        assert_eq!(fs::read(at.join("d/f0")).unwrap(), b"499");
        assert!(fs::metadata(at.join("d/f499")).is_err());
        let file = fs::File::options().write(true).open(at.join("d/f1")).unwrap();
        file.set_len(3).unwrap();
        assert_eq!(fs::read(at.join("d/f1")).unwrap(), b"1\0\0");
        assert!(fs::remove_dir(at.join("d")).is_err(), "it is not empty");
        for number in 0..499 {
            fs::remove_file(at.join(format!("d/f{number}"))).unwrap();
        }
        fs::remove_dir(at.join("d")).unwrap();
        // In use, it is unmounted all the same.
        drop(floor);
        assert_eq!(fs::read_dir(at).unwrap().count(), 0);
        drop(file);
    }

    #[test]
    fn files_live_in_memory_until_it_is_dropped() {
        if !testkit::need::fuse() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        use_it(place.path(), Floor::mount(place.path()).unwrap());
    }

    #[test]
    fn over_io_uring_it_is_the_same() {
        let place = tempfile::tempdir().unwrap();
        let begin = || Floor::mount_over(place.path(), Transport::Ring).unwrap();
        let Some(floor) = testkit::with_fuse_ring(begin) else { return };
        assert_eq!(floor.transport(), Transport::Ring);
        use_it(place.path(), floor);
    }

    #[test]
    fn over_io_uring_files_are_longer_than_buffers_and_callers_on_all_cpus_are_served() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path();
        let begin = || Floor::mount_over(at, Transport::Ring).unwrap();
        let Some(floor) = testkit::with_fuse_ring(begin) else { return };
        std::thread::scope(|scope| {
            for thread in 0..8u8 {
                scope.spawn(move || {
                    let bytes: Vec<u8> = (0..1_000_003u32).map(|at| (at / 7) as u8 ^ thread).collect();
                    for round in 0..20 {
                        let path = at.join(format!("{thread}-{round}"));
                        fs::write(&path, &bytes).unwrap();
                        // What is read comes from the daemon and not from the kernel's pages.
                        let file = fs::File::open(&path).unwrap();
                        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                        assert!(fs::read(&path).unwrap() == bytes, "{}", path.display());
                        fs::remove_file(&path).unwrap();
                    }
                });
            }
        });
        drop(floor);
    }

    #[test]
    fn a_ring_that_is_switched_off_is_said_and_nothing_stays_mounted() {
        let place = tempfile::tempdir().unwrap();
        let begin = || Floor::mount_over(place.path(), Transport::Ring).map(drop);
        let Some(refused) = testkit::without_fuse_ring(begin) else { return };
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("enable_uring"), "{error}");
        let mounted = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounted.contains(&place.path().display().to_string()));
    }
}
