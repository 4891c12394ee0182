//! Makes the file set on the storage, grows and shrinks it between load points, and removes it.
//!
//! ```text
//! crumb-fstress-7f3a/          the root of the set, made in the target's directory
//!   crumb-set                  what it was made for: workload and seed, in plain text
//!   crumb-run                  the mark of the run, in a set that is removed at its end (see `files::RUN_MARK`)
//!   crumb-lock                 host and process that have it, while a run has a set that is kept
//!   f0000000000 ...            files, symbolic links and directories in numbers drawn for each new directory
//!   d0000000001/               filled in the order the directories were made, down to the depth allowed
//! ```
//!
//! Always holds: the same workload and seed make the same tree with the same sizes and weights, whatever the
//! order of replies; growing continues where it stopped; removing leaves nothing, also of what operations made
//! beside the set, or says what it could not remove; a set to reuse that is whole is only read.
//! Source: Fstress paper, sections 3.1 and 4 (recursive creation, self-scaling).

use std::collections::{HashSet, VecDeque};

use files::{
    CreateHow, FileKind, Fsstat, Handle, HandleRef, RUN_MARK, Reply, Request, Stability, Status, run_mark,
};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::crew::{Crew, Job, Problem, Site, call, find, make_dir};
use super::payload::Payload;
use super::progress::SetWork;
use crate::error::FstressError;
use crate::objects::{DirectoryId, FileFlags, FileId, ObjectName, ObjectSets};
use crate::open_loop::arrivals::stream;
use crate::open_loop::planner::FILE_ATTRIBUTES;
use crate::workload::Workload;

/// Makes one file set, and removes it.
pub(crate) struct Builder {
    workload: Workload,
    payload: Payload,
    rng: Xoshiro256PlusPlus,
    /// Directories whose children are still to be made.
    frontier: VecDeque<Unfilled>,
    /// The root directory may have been made.
    root_asked: bool,
    options: BuilderOptions,
}

/// How a set is made.
#[derive(Clone, Debug)]
pub(crate) struct BuilderOptions {
    /// Name of the set's root directory.
    pub root_name: String,
    /// Requests in flight at once.
    pub in_flight_max: usize,
    /// Take what is there already; otherwise a root directory that exists is an error.
    pub adopt: bool,
    /// The set outlives the run, so that another may want it meanwhile.
    pub kept: bool,
    pub seed: u64,
}

/// A directory and how many children it is still to have.
#[derive(Clone, Copy, Debug)]
struct Unfilled {
    dir: DirectoryId,
    files: u64,
    dirs: u64,
    links: u64,
}

const LABEL: &[u8] = b"crumb-set";
/// Who has the set.
const LOCK: &[u8] = b"crumb-lock";
const LABEL_BYTES_MAX: u32 = 4096;
/// Subdirectories in the root before it takes files itself, for workloads whose directories draw none.
const BARREN_MAX: u64 = 1000;

impl Builder {
    pub fn new(workload: Workload, options: BuilderOptions) -> Self {
        Self {
            workload,
            payload: Payload::new(options.seed),
            rng: stream(options.seed, 10),
            frontier: VecDeque::new(),
            root_asked: false,
            options,
        }
    }

    /// Makes the root directory of the set, or finds it when it may be adopted, and returns the set.
    pub fn begin(&mut self, site: &mut Site<'_>) -> Result<ObjectSets, FstressError> {
        let name = self.options.root_name.clone();
        let top = Handle::new(site.transport.root().0).expect("a root handle is a handle");
        self.root_asked = true;
        let root = make_dir(site, top.by_ref(), &name, self.options.adopt);
        // Of another, or not there at all.
        self.root_asked = !matches!(root, Err(FstressError::Refused { .. }));
        let root = root?;
        let weight = self.weight_of_dir(1);
        let mut set = ObjectSets::new(&name, weight);
        if !set.set_directory_handle(DirectoryId::ROOT, root.as_bytes()) {
            return Err(Problem::BadReply.about("make directory", name));
        }
        self.label(root.by_ref(), site)?;
        if self.options.kept {
            self.lock(root.by_ref(), site)?;
        } else {
            put_file(root.by_ref(), RUN_MARK, &run_mark(), site)?;
        }
        self.unfold(DirectoryId::ROOT, 0);
        Ok(set)
    }

    /// Brings the set to `files` files.
    pub fn resize(
        &mut self,
        set: &mut ObjectSets,
        files: u64,
        site: &mut Site<'_>,
    ) -> Result<(), FstressError> {
        if files > set.file_count() {
            self.check_space(set, files, site)?;
            self.grow(set, files, site)
        } else {
            self.shrink(set, files, site)
        }
    }

    /// Removes the set from the storage, its root included.
    ///
    /// # Errors
    /// `LeftBehind` with the number of names that could not be removed; all others are.
    pub fn remove(&mut self, set: &mut ObjectSets, site: &mut Site<'_>) -> Result<(), FstressError> {
        let asked = set.file_count() + set.symlink_count() + set.directory_count() - 1;
        let mut crew = Crew::that_removes_on(self.options.in_flight_max, asked);
        let mut left = Left::default();
        let removed = self.remove_with(&mut crew, set, site, &mut left);
        if let Err(error) = removed {
            // The storage is gone or silent: what it did not say it removed may be there.
            left.names = asked + 1 - crew.done().min(asked);
            left.first = Some(error);
        }
        self.left_behind(&self.options.root_name, left)
    }

    /// Removes the root of a set that could not be begun, if there is one.
    ///
    /// # Errors
    /// As for [`Self::remove`].
    pub fn remove_root(&mut self, site: &mut Site<'_>) -> Result<(), FstressError> {
        if !self.root_asked {
            return Ok(());
        }
        let mut left = Left::default();
        if let Err(error) = self.remove_top(&self.options.root_name, site, &mut left) {
            (left.names, left.first) = (1, Some(error));
        }
        self.left_behind(&self.options.root_name, left)
    }

    /// Removes the whole set of another rank, which cannot do so any more.
    ///
    /// # Errors
    /// As for [`Self::remove`].
    pub fn remove_of_another(&self, name: &str, site: &mut Site<'_>) -> Result<(), FstressError> {
        let mut left = Left::default();
        if let Err(error) = self.remove_top(name, site, &mut left) {
            left.add(error);
        }
        self.left_behind(name, left)
    }

    fn left_behind(&self, name: &str, left: Left) -> Result<(), FstressError> {
        let Some(first) = left.first else { return Ok(()) };
        Err(FstressError::LeftBehind { name: name.to_owned(), names: left.names, source: Box::new(first) })
    }

    fn remove_with(
        &mut self,
        crew: &mut Crew,
        set: &mut ObjectSets,
        site: &mut Site<'_>,
        left: &mut Left,
    ) -> Result<(), FstressError> {
        let links: Vec<_> = set.symlinks().collect();
        let mut jobs = links.into_iter().map(|link| Job::Unlink { link });
        loop {
            while crew.has_room() {
                if let Some(job) = jobs.next() {
                    crew.push(job);
                } else if let Some(file) = set.select_file_uniformly(&mut self.rng) {
                    crew.push(take_away(set, file));
                } else {
                    break;
                }
            }
            if crew.is_idle() {
                break;
            }
            crew.turn(&self.payload, set, site)?;
        }
        // Level by level from below, so that many are under way at once.
        let mut dirs = set.directories_deepest_first();
        while let Some(depth) = dirs.first().map(|&dir| set.directory_depth(dir)) {
            let below = dirs.iter().position(|&dir| set.directory_depth(dir) != depth).unwrap_or(dirs.len());
            for dir in dirs.drain(..below) {
                while !crew.has_room() {
                    crew.turn(&self.payload, set, site)?;
                }
                crew.push(Job::Rmdir { dir });
            }
            while !crew.is_idle() {
                crew.turn(&self.payload, set, site)?;
            }
            for dir in std::mem::take(&mut crew.not_empty) {
                let handle = handle_of(set, dir);
                let (parent, name) = (handle_of(set, set.directory_parent(dir)), set.directory_name(dir));
                let emptied = empty(site, handle.by_ref(), left)?;
                remove_dir(site, parent.by_ref(), name.as_bytes(), emptied, left)?;
            }
        }
        crew.tell_now(site);
        left.first = crew.first_refused.take().or(left.first.take());
        // All that is still there is met again, and counted, on the way down from the top.
        left.names = 0;
        self.remove_top(&self.options.root_name, site, left)
    }

    fn remove_top(&self, name: &str, site: &mut Site<'_>, left: &mut Left) -> Result<(), FstressError> {
        let top = Handle::new(site.transport.root().0).expect("a root handle is a handle");
        let name = name.as_bytes();
        let emptied = match find(site, top.by_ref(), name)? {
            Ok(root) => empty(site, root.by_ref(), left)?,
            Err(Problem::Refused(Status::NOENT | Status::STALE)) => return Ok(()),
            // Removing it says what is wrong.
            Err(_) => true,
        };
        remove_dir(site, top.by_ref(), name, emptied, left)?;
        // A name that was refused first and is gone by now is none that is left.
        if left.names == 0 {
            left.first = None;
        }
        Ok(())
    }

    /// Takes a set that is kept for this run alone.
    fn lock(&self, root: HandleRef<'_>, site: &mut Site<'_>) -> Result<(), FstressError> {
        let how = CreateHow::Guarded(FILE_ATTRIBUTES);
        let made = call(site, &Request::Create { dir: root, name: LOCK, how }, |_| ())?;
        match made {
            // Where nothing can be made, nothing is changed either.
            Ok(()) | Err(Problem::Refused(Status::ROFS | Status::ACCES | Status::PERM)) => {}
            Err(Problem::Refused(Status::EXIST)) => {}
            Err(problem) => return Err(problem.about("create", "crumb-lock")),
        }
        let in_use = |by: String| FstressError::SetInUse { name: self.options.root_name.clone(), by };
        let lock = match find(site, root, LOCK)? {
            Ok(lock) => lock,
            Err(Problem::Refused(Status::NOENT)) if made.is_err() => return Ok(()),
            Err(problem) => return Err(problem.about("look up", "crumb-lock")),
        };
        if made.is_err() {
            let read = Request::Read { file: lock.by_ref(), offset: 0, count: LABEL_BYTES_MAX };
            let by = call(site, &read, |reply| match reply {
                Reply::Read { bytes, .. } => String::from_utf8_lossy(bytes).trim().to_owned(),
                _ => String::new(),
            })?;
            let by = by.map_err(|problem| problem.about("read", "crumb-lock"))?;
            if !is_dead(&by) {
                return Err(in_use(by));
            }
            tracing::debug!(by, "the run that had this file set is gone");
        }
        let text = own_mark();
        let write = Request::Write {
            file: lock.by_ref(),
            offset: 0,
            bytes: text.as_bytes(),
            stability: Stability::FileSync,
        };
        match call(site, &write, |_| ())? {
            Ok(()) | Err(Problem::Refused(Status::ROFS | Status::ACCES | Status::PERM)) => Ok(()),
            Err(problem) => Err(problem.about("write to", "crumb-lock")),
        }
    }

    /// Leaves a set that is kept: what operations made beside it goes, and others may have it.
    ///
    /// # Errors
    /// `LeftBehind` with the number of names that should have gone.
    pub fn leave(
        &mut self,
        set: &mut ObjectSets,
        makes_names: bool,
        site: &mut Site<'_>,
    ) -> Result<(), FstressError> {
        let mut left = Left::default();
        if let Err(error) = self.leave_with(set, makes_names, site, &mut left) {
            left.add(error);
        }
        let Some(first) = left.first else { return Ok(()) };
        let name = self.options.root_name.clone();
        Err(FstressError::NotTidied { name, names: left.names, source: Box::new(first) })
    }

    fn leave_with(
        &mut self,
        set: &mut ObjectSets,
        makes_names: bool,
        site: &mut Site<'_>,
        left: &mut Left,
    ) -> Result<(), FstressError> {
        if makes_names {
            // Most of it is known; the rest are second names and what runs left that were killed.
            let made: Vec<_> = set
                .files()
                .filter(|&file| ObjectName::is_of_operations(set.file_name(file).as_bytes()))
                .collect();
            let mut crew = Crew::that_removes_on(self.options.in_flight_max, made.len() as u64);
            let mut made = made.into_iter();
            loop {
                while crew.has_room()
                    && let Some(file) = made.next()
                {
                    crew.push(take_away(set, file));
                }
                if crew.is_idle() {
                    break;
                }
                crew.turn(&self.payload, set, site)?;
            }
            for dir in set.directories_deepest_first() {
                let handle = handle_of(set, dir);
                let is_theirs = |name: &[u8]| ObjectName::is_of_operations(name);
                empty_of(site, handle.by_ref(), &is_theirs, left)?;
            }
            let root = handle_of(set, DirectoryId::ROOT);
            empty_of(site, root.by_ref(), &|name| ObjectName::is_of_operations(name), left)?;
        }
        let root = handle_of(set, DirectoryId::ROOT);
        match call(site, &Request::Remove { dir: root.by_ref(), name: LOCK }, |_| ())? {
            Ok(()) => Ok(()),
            Err(Problem::Refused(Status::NOENT | Status::ROFS | Status::ACCES | Status::PERM)) => Ok(()),
            Err(problem) => Err(problem.about("remove", "crumb-lock")),
        }
    }

    /// Writes what the set is for into it, or checks that a set to adopt is for the same.
    fn label(&self, root: HandleRef<'_>, site: &mut Site<'_>) -> Result<(), FstressError> {
        let text = format!(
            "crumb fstress file set 1\nworkload {}\nseed {}\n",
            self.workload.name, self.options.seed
        );
        if self.options.adopt
            && let Ok(label) = find(site, root, LABEL)?
        {
            let read = Request::Read { file: label.by_ref(), offset: 0, count: LABEL_BYTES_MAX };
            let was = call(site, &read, |reply| match reply {
                Reply::Read { bytes, .. } => String::from_utf8_lossy(bytes).into_owned(),
                _ => String::new(),
            })?;
            let was = was.map_err(|problem| problem.about("read", "crumb-set"))?;
            if was == text {
                return Ok(());
            }
            // Empty: it was interrupted while it was being made.
            if !was.is_empty() {
                let name = self.options.root_name.clone();
                return Err(FstressError::OtherSet { name, was, is: text });
            }
        }
        put_file(root, "crumb-set", &text, site)
    }

    fn check_space(&self, set: &ObjectSets, files: u64, site: &mut Site<'_>) -> Result<(), FstressError> {
        // A server that will not tell is taken at its later word: it refuses when it is full.
        let Some(stat) = free_space(site)? else { return Ok(()) };
        let more = files - set.file_count();
        let bytes = self.workload.bytes_expected(more) as u64;
        let full = bytes > stat.bytes_available || (stat.files_total > 0 && more > stat.files_available);
        // One that does not know says zero of everything.
        if full && stat.bytes_total > 0 && !self.options.adopt {
            let (bytes_available, files_available) = (stat.bytes_available, stat.files_available);
            return Err(FstressError::NoRoom { files: more, bytes, bytes_available, files_available });
        }
        Ok(())
    }

    fn grow(&mut self, set: &mut ObjectSets, files: u64, site: &mut Site<'_>) -> Result<(), FstressError> {
        let asked = files - set.file_count();
        let work = if self.options.adopt { SetWork::Adopt } else { SetWork::Grow };
        let mut crew = Crew::new(self.options.in_flight_max, work, asked);
        loop {
            while crew.has_room() && set.file_count() < files {
                match self.next_job(set) {
                    Some(job) => crew.push(job),
                    None if self.frontier.is_empty() => self.augment(set),
                    // The directory whose turn it is was asked for, and its handle is still to come.
                    None => break,
                }
            }
            if crew.is_idle() {
                break;
            }
            crew.turn(&self.payload, set, site)?;
        }
        crew.tell_now(site);
        Ok(())
    }

    fn shrink(&mut self, set: &mut ObjectSets, files: u64, site: &mut Site<'_>) -> Result<(), FstressError> {
        let asked = set.file_count() - files;
        let mut crew = Crew::new(self.options.in_flight_max, SetWork::Shrink, asked);
        loop {
            while crew.has_room() && set.file_count() > files {
                let Some(file) = set.select_file_uniformly(&mut self.rng) else { break };
                crew.push(take_away(set, file));
            }
            if crew.is_idle() {
                break;
            }
            crew.turn(&self.payload, set, site)?;
        }
        Ok(())
    }

    /// The next object to make. None when no directory waits for one, or the one whose turn it is has no handle
    /// yet: turns are not swapped, so that the tree depends on the seed alone.
    fn next_job(&mut self, set: &mut ObjectSets) -> Option<Job> {
        let look = self.options.adopt;
        while let Some(unfilled) = self.frontier.front_mut() {
            let dir = unfilled.dir;
            set.directory_handle(dir)?;
            if unfilled.links > 0 {
                unfilled.links -= 1;
                let link = set.insert_symlink(dir, 0);
                let weight =
                    self.workload.popularity.symlink.sample_weight(set.symlink_count(), &mut self.rng);
                return Some(Job::Link { link, weight, look });
            }
            // Directories before files, so that their handles are there when their own turn comes.
            if unfilled.dirs > 0 {
                unfilled.dirs -= 1;
                let made = set.insert_directory(dir, 0);
                let weight = self.weight_of_dir(set.directory_count());
                self.unfold(made, set.directory_depth(made));
                return Some(Job::Dir { dir: made, weight, look });
            }
            if unfilled.files > 0 {
                unfilled.files -= 1;
                let file = set.insert_file(dir, 0, 0);
                set.begin_file_op(file);
                let bytes = self.workload.sizes.file.sample_u64(&mut self.rng);
                let weight = self.workload.popularity.file.sample_weight(set.file_count(), &mut self.rng);
                return Some(Job::File { file, bytes, weight, look });
            }
            self.frontier.pop_front();
        }
        None
    }

    /// Draws what a new directory is to hold.
    fn unfold(&mut self, dir: DirectoryId, depth: u16) {
        let tree = &self.workload.tree;
        let files = tree.files_per_directory.sample_u64(&mut self.rng);
        let links = tree.symlinks_per_directory.sample_u64(&mut self.rng);
        let dirs = tree.directories_per_directory.sample_u64(&mut self.rng);
        let dirs = if depth < tree.depth_max { dirs } else { 0 };
        self.frontier.push_back(Unfilled { dir, files, dirs, links });
    }

    /// All directories are full: another tree begins below the root; or the root takes more files itself, where
    /// the depth allows no directories or they draw no files.
    fn augment(&mut self, set: &ObjectSets) {
        let files = self.workload.tree.files_per_directory.sample_u64(&mut self.rng).max(1);
        let barren = set.directory_count() > BARREN_MAX + 2 * set.file_count();
        let (files, dirs) = if self.workload.tree.depth_max == 0 || barren { (files, 0) } else { (0, 1) };
        self.frontier.push_back(Unfilled { dir: DirectoryId::ROOT, files, dirs, links: 0 });
    }

    fn weight_of_dir(&mut self, population: u64) -> u32 {
        self.workload.popularity.directory.sample_weight(population, &mut self.rng)
    }
}

/// Makes a small file of the set's own beside its objects.
fn put_file(dir: HandleRef<'_>, name: &str, text: &str, site: &mut Site<'_>) -> Result<(), FstressError> {
    let how = CreateHow::Unchecked(FILE_ATTRIBUTES);
    let made = call(site, &Request::Create { dir, name: name.as_bytes(), how }, |reply| match reply {
        Reply::Created { object, .. } => object.and_then(|handle| Handle::new(handle.0)),
        _ => None,
    })?;
    let Some(file) = made.map_err(|problem| problem.about("create", name))? else {
        return Ok(());
    };
    let (bytes, stability) = (text.as_bytes(), Stability::FileSync);
    let write = Request::Write { file: file.by_ref(), offset: 0, bytes, stability };
    call(site, &write, |_| ())?.map_err(|problem| problem.about("write to", name))
}

/// Takes a file out of the set; its name and handle last until the job is done.
fn take_away(set: &mut ObjectSets, file: FileId) -> Job {
    set.begin_file_op(file);
    set.mark_file(file, FileFlags::REMOVING, true);
    set.remove_file(file);
    Job::Remove { file }
}

/// This process, for others to know it by.
fn own_mark() -> String {
    format!("{} pid {}", host(), std::process::id())
}

/// Where the number of a process means one process: a host, and on it a container has its own.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {}", name.trim(), space.display())
}

/// Whether a mark is of a process of this host that is no more.
fn is_dead(mark: &str) -> bool {
    match mark.split_once(" pid ").map(|(at, pid)| (at, pid.parse::<u32>())) {
        Some((at, Ok(pid))) => at == host() && !std::path::Path::new(&format!("/proc/{pid}")).exists(),
        _ => false,
    }
}

fn handle_of(set: &ObjectSets, dir: DirectoryId) -> Handle {
    set.directory_handle(dir)
        .and_then(Handle::new)
        .unwrap_or(Handle::new(&[]).expect("no bytes are few enough"))
}

/// What could not be removed.
#[derive(Default)]
struct Left {
    names: u64,
    /// Why not, of the first.
    first: Option<FstressError>,
}

impl Left {
    fn add(&mut self, error: FstressError) {
        self.names += 1;
        self.first.get_or_insert(error);
    }
}

/// One look at a directory.
#[derive(Default)]
struct Page {
    names: Vec<Vec<u8>>,
    next: (u64, [u8; 8]),
    is_last: bool,
}

/// Removes everything in a directory: files that operations created beside the set, and the contents of an adopted one.
/// Returns whether the directory is empty.
fn empty(site: &mut Site<'_>, dir: HandleRef<'_>, left: &mut Left) -> Result<bool, FstressError> {
    empty_of(site, dir, &|_| true, left)
}

/// The same for names that are `wanted` gone.
fn empty_of(
    site: &mut Site<'_>,
    dir: HandleRef<'_>,
    wanted: &dyn Fn(&[u8]) -> bool,
    left: &mut Left,
) -> Result<bool, FstressError> {
    let mut refused: HashSet<Vec<u8>> = HashSet::new();
    let mut from = (0, [0; 8]);
    loop {
        let mut page = Page { is_last: true, ..Page::default() };
        let list = Request::Readdir { dir, cookie: from.0, verifier: from.1, count: 32_768 };
        let listed = call(site, &list, |reply| {
            if let Reply::Listing { entries, verifier, end, .. } = reply {
                page.is_last = *end;
                for entry in *entries {
                    page.next = (entry.cookie, *verifier);
                    if entry.name != b"." && entry.name != b".." && wanted(entry.name) {
                        page.names.push(entry.name.to_vec());
                    }
                }
            }
        })?;
        if let Err(problem) = listed {
            left.add(problem.about("list", "a directory of the file set"));
            return Ok(false);
        }
        page.names.retain(|name| !refused.contains(name));
        if page.names.is_empty() {
            if page.is_last {
                return Ok(refused.is_empty());
            }
            // All that is seen here stays: on to what is behind it.
            from = page.next;
            continue;
        }
        for name in page.names {
            if !remove_any(site, dir, &name, left)? {
                refused.insert(name);
            }
        }
        // From the begin, as removing changes what a cookie means on some servers.
        from = (0, [0; 8]);
    }
}

/// Removes a name of any kind; returns whether it is gone.
fn remove_any(
    site: &mut Site<'_>,
    dir: HandleRef<'_>,
    name: &[u8],
    left: &mut Left,
) -> Result<bool, FstressError> {
    let problem = match call(site, &Request::Remove { dir, name }, |_| ())? {
        Ok(()) | Err(Problem::Refused(Status::NOENT)) => return Ok(true),
        Err(problem) => problem,
    };
    let found = call(site, &Request::Lookup { dir, name }, |reply| match reply {
        Reply::Lookup { object, attributes, .. } => {
            Handle::new(object.0).map(|handle| (handle, attributes.map(|attributes| attributes.kind)))
        }
        _ => None,
    })?;
    match found {
        Err(Problem::Refused(Status::NOENT)) => Ok(true),
        Ok(Some((child, kind))) if kind.is_none_or(|kind| kind == FileKind::Directory) => {
            let emptied = empty(site, child.by_ref(), left)?;
            remove_dir(site, dir, name, emptied, left)
        }
        _ => {
            left.add(problem.about("remove", String::from_utf8_lossy(name)));
            Ok(false)
        }
    }
}

/// Removes a directory unless something is left in it; returns whether it is gone.
fn remove_dir(
    site: &mut Site<'_>,
    dir: HandleRef<'_>,
    name: &[u8],
    emptied: bool,
    left: &mut Left,
) -> Result<bool, FstressError> {
    if !emptied {
        left.names += 1;
        return Ok(false);
    }
    match call(site, &Request::Rmdir { dir, name }, |_| ())? {
        Ok(()) | Err(Problem::Refused(Status::NOENT)) => Ok(true),
        Err(problem) => {
            left.add(problem.about("remove directory", String::from_utf8_lossy(name)));
            Ok(false)
        }
    }
}

/// What the storage says of its space, with FSSTAT; none where it does not.
pub(crate) fn free_space(site: &mut Site<'_>) -> Result<Option<Fsstat>, FstressError> {
    let root = Handle::new(site.transport.root().0).expect("a root handle is a handle");
    let stat = call(site, &Request::Fsstat { root: root.by_ref() }, |reply| match reply {
        Reply::Fsstat { stat, .. } => Some(*stat),
        _ => None,
    })?;
    Ok(stat.ok().flatten())
}
