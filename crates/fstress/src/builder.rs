//! Makes the file set on the storage, grows and shrinks it between load points, and removes it.
//!
//! ```text
//! crumb-fstress-7f3a/          the root of the set, made in the target's directory
//!   crumb-set                  what it was made for: workload and seed, in plain text
//!   f0000000000 ...            files, symbolic links and directories in numbers drawn for each new directory
//!   d0000000001/               filled in the order the directories were made, down to the depth allowed
//! ```
//!
//! Always holds: the same workload and seed make the same tree with the same sizes and weights, whatever the
//! order of replies; growing continues where it stopped; removing leaves nothing, also of what operations made
//! beside the set.
//! Source: Fstress paper, sections 3.1 and 4 (recursive creation, self-scaling).

use std::collections::VecDeque;

use files::{CreateHow, Handle, HandleRef, Reply, Request, Stability};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::arrivals::stream;
use crate::crew::{Crew, Job, Problem, Site, call, make_dir};
use crate::error::FstressError;
use crate::objects::{DirectoryId, FileFlags, FileId, ObjectSets};
use crate::payload::Payload;
use crate::planner::FILE_ATTRIBUTES;
use crate::progress::SetWork;
use crate::workload::Workload;

/// Makes one file set, and removes it.
pub(crate) struct Builder {
    workload: Workload,
    payload: Payload,
    rng: Xoshiro256PlusPlus,
    /// Directories whose children are still to be made.
    frontier: VecDeque<Unfilled>,
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
            options,
        }
    }

    /// Makes the root directory of the set, or finds it when it may be adopted, and returns the set.
    pub fn begin(&mut self, site: &mut Site<'_>) -> Result<ObjectSets, FstressError> {
        let name = self.options.root_name.clone();
        let top = Handle::new(site.transport.root().0).expect("a root handle is a handle");
        let root = make_dir(site, top.by_ref(), &name, self.options.adopt)?;
        let weight = self.weight_of_dir(1);
        let mut set = ObjectSets::new(&name, weight);
        if !set.set_directory_handle(DirectoryId::ROOT, root.as_bytes()) {
            return Err(Problem::BadReply.about("make directory", name));
        }
        self.label(root.by_ref(), site)?;
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
    pub fn remove(&mut self, set: &mut ObjectSets, site: &mut Site<'_>) -> Result<(), FstressError> {
        let asked = set.file_count() + set.symlink_count() + set.directory_count() - 1;
        let mut crew = Crew::new(self.options.in_flight_max, SetWork::Remove, asked);
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
                empty(site, handle.by_ref())?;
                let (parent, name) = (handle_of(set, set.directory_parent(dir)), set.directory_name(dir));
                call(site, &Request::Rmdir { dir: parent.by_ref(), name: name.as_bytes() }, |_| ())?
                    .map_err(|problem| problem.about("remove directory", name.as_str()))?;
            }
        }
        crew.tell_now(site);
        empty(site, handle_of(set, DirectoryId::ROOT).by_ref())?;
        let top = Handle::new(site.transport.root().0).expect("a root handle is a handle");
        let name = self.options.root_name.as_bytes();
        call(site, &Request::Rmdir { dir: top.by_ref(), name }, |_| ())?
            .map_err(|problem| problem.about("remove directory", &self.options.root_name))
    }

    /// Writes what the set is for into it, or checks that a set to adopt is for the same.
    fn label(&self, root: HandleRef<'_>, site: &mut Site<'_>) -> Result<(), FstressError> {
        let text = format!(
            "crumb fstress file set 1\nworkload {}\nseed {}\n",
            self.workload.name, self.options.seed
        );
        if self.options.adopt {
            let found = call(site, &Request::Lookup { dir: root, name: LABEL }, |reply| match reply {
                Reply::Lookup { object, .. } => Handle::new(object.0),
                _ => None,
            })?;
            if let Ok(Some(label)) = found {
                let read = Request::Read { file: label.by_ref(), offset: 0, count: LABEL_BYTES_MAX };
                let was = call(site, &read, |reply| match reply {
                    Reply::Read { bytes, .. } => String::from_utf8_lossy(bytes).into_owned(),
                    _ => String::new(),
                })?;
                let was = was.map_err(|problem| problem.about("read", "crumb-set"))?;
                // Empty: it was interrupted while it was being made.
                if was != text && !was.is_empty() {
                    return Err(FstressError::OtherSet {
                        name: self.options.root_name.clone(),
                        was,
                        is: text,
                    });
                }
            }
        }
        let create = Request::Create { dir: root, name: LABEL, how: CreateHow::Unchecked(FILE_ATTRIBUTES) };
        let made = call(site, &create, |reply| match reply {
            Reply::Created { object, .. } => object.and_then(|handle| Handle::new(handle.0)),
            _ => None,
        })?;
        let Some(label) = made.map_err(|problem| problem.about("create", "crumb-set"))? else {
            return Ok(());
        };
        let write = Request::Write {
            file: label.by_ref(),
            offset: 0,
            bytes: text.as_bytes(),
            stability: Stability::FileSync,
        };
        call(site, &write, |_| ())?.map_err(|problem| problem.about("write to", "crumb-set"))
    }

    fn check_space(&self, set: &ObjectSets, files: u64, site: &mut Site<'_>) -> Result<(), FstressError> {
        let root = Handle::new(site.transport.root().0).expect("a root handle is a handle");
        let stat = call(site, &Request::Fsstat { root: root.by_ref() }, |reply| match reply {
            Reply::Fsstat { stat, .. } => Some(*stat),
            _ => None,
        })?;
        // A server that will not tell is taken at its later word: it refuses when it is full.
        let Ok(Some(stat)) = stat else { return Ok(()) };
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

/// Takes a file out of the set; its name and handle last until the job is done.
fn take_away(set: &mut ObjectSets, file: FileId) -> Job {
    set.begin_file_op(file);
    set.mark_file(file, FileFlags::REMOVING, true);
    set.remove_file(file);
    Job::Remove { file }
}

fn handle_of(set: &ObjectSets, dir: DirectoryId) -> Handle {
    set.directory_handle(dir)
        .and_then(Handle::new)
        .unwrap_or(Handle::new(&[]).expect("no bytes are few enough"))
}

/// Removes everything in a directory: what operations made beside the set, and what was in an adopted one.
fn empty(site: &mut Site<'_>, dir: HandleRef<'_>) -> Result<(), FstressError> {
    // Names and not cookies, as removing changes what a cookie means on some servers.
    loop {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let list = Request::Readdir { dir, cookie: 0, verifier: [0; 8], count: 32_768 };
        call(site, &list, |reply| {
            if let Reply::Listing { entries, .. } = reply {
                names =
                    entries.map(|e| e.name.to_vec()).filter(|name| name != b"." && name != b"..").collect();
            }
        })?
        .map_err(|problem| problem.about("list", "a directory of the file set"))?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            let shown = || String::from_utf8_lossy(&name).into_owned();
            if call(site, &Request::Remove { dir, name: &name }, |_| ())?.is_ok() {
                continue;
            }
            let found = call(site, &Request::Lookup { dir, name: &name }, |reply| match reply {
                Reply::Lookup { object, .. } => Handle::new(object.0),
                _ => None,
            })?;
            if let Ok(Some(child)) = found {
                empty(site, child.by_ref())?;
                call(site, &Request::Rmdir { dir, name: &name }, |_| ())?
                    .map_err(|problem| problem.about("remove", shown()))?;
            }
        }
    }
}
