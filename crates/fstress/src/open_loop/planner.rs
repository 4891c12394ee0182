//! Decides what each tick asks: the operation by the mix, its target by popularity, its range by size.
//!
//! Decisions depend on the seed and on planned times only, so that a run repeated with the same seed asks the
//! same operations, whatever the storage answers and when. To that end the effects of an operation on the file
//! set (a file grows, a name is gone) are applied when it is asked, and what needs a reply first (writing to a
//! file just created, the next chunk of a series, the reuse of a slot) is done a fixed time later by the
//! schedule. Where the reply has not come even then, another operation of the same kind is asked instead and
//! counted in `overtaken`.
//!
//! A request for more bytes than the storage takes at once becomes a series of the largest that it takes.
//!
//! Always holds: each plan asks one operation; a file is not removed while one of its operations is younger than
//! [`QUIET`], if another can be found, and never while a request that names it is unanswered (`removals`).
//! Not here: what takes several requests (`series`, `chains`), what waits for a reply (`pending`), which file goes (`removals`),
//! what goes out (`request`).
//! Source: Fstress paper, section 4 (target selection, side effects, sequential series).

mod chains;
mod digest;
mod pending;
mod removals;
mod request;
mod series;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use files::{OpKind, Outcome, Reply, Stability};
use quanta::Instant;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

pub(crate) use self::chains::Follow;
use self::chains::{NO_CHAIN, Running, blank};
pub(crate) use self::digest::DIGEST_FACTOR;
use self::digest::Digest;
use self::pending::CreateState;
pub(crate) use self::request::{DIR_ATTRIBUTES, FILE_ATTRIBUTES, LINK_TARGET, NameBuffers};
use self::series::Series;
use super::arrivals::stream;
use crate::file_set::payload::Payload;
use crate::objects::{DirectoryId, FileFlags, FileId, ObjectName, ObjectSets, SymlinkId};
use crate::workload::mix::{Dealt, Mix, OpDeck};
use crate::workload::{ReadAccess, SetattrUse, Workload, WriteAccess, WriteStability};

/// An operation with its target, small enough to keep for each request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub kind: OpKind,
    target: Target,
    /// The directory a new name goes to.
    dir: DirectoryId,
    /// Slot of the series it belongs to, or the number of a new name.
    extra: u32,
    /// Slot of the chain it belongs to.
    chain: u32,
    count: u32,
    offset: u64,
}

#[derive(Clone, Copy, Debug)]
enum Target {
    None,
    File(FileId),
    Dir(DirectoryId),
    Link(SymlinkId),
}

const NO_SERIES: u32 = u32::MAX;
const HELD: u32 = u32::MAX - 1;

/// The planner of one run.
pub(crate) struct Planner {
    pub set: ObjectSets,
    workload: Workload,
    deck: OpDeck,
    payload: Payload,
    io_bytes_max: u32,
    stability: Stability,
    targets: Xoshiro256PlusPlus,
    sizes: Xoshiro256PlusPlus,
    weights: Xoshiro256PlusPlus,
    closed: bool,
    series: Vec<Series>,
    series_free: Vec<u32>,
    reads: VecDeque<u32>,
    writes: VecDeque<u32>,
    /// Asked for by CREATE and no targets yet, in the order of the plan.
    pending_creates: VecDeque<(Instant, FileId)>,
    create_states: HashMap<FileId, CreateState>,
    /// Bytes that a file not yet filled is to have.
    sizes_to_be: HashMap<FileId, u64>,
    /// Removed; their slots are kept a while, so that they come free in the order of the plan.
    deferred_removals: VecDeque<(Instant, FileId)>,
    /// Chosen to be removed while requests on them were unanswered, with their weights: they get no more requests, and a later
    /// REMOVE takes them.
    leaving: VecDeque<(FileId, u32)>,
    /// Written and not committed, with the time of the write.
    uncommitted: VecDeque<(Instant, FileId)>,
    /// Where a file was and what it was called before a RENAME that is not answered yet.
    renaming: HashMap<FileId, (DirectoryId, ObjectName)>,
    running: Vec<Running>,
    running_free: Vec<u32>,
    /// The shares of all requests, those of chains among them.
    requests: Mix,
    /// Made by MKDIR; no targets but for RMDIR.
    spare_dirs: VecDeque<DirectoryId>,
    /// When each file was last asked for, in milliseconds of planned time.
    last_used_ms: Vec<u32>,
    /// Begin of the load point, and the planned time of all before it: what passes between them on the clock depends
    /// on the storage and must not move a decision.
    point_begin: Instant,
    point_begin_ms: u32,
    /// The latest due moment planned for.
    now_planned: Instant,
    names_made: u32,
    overtaken: u64,
    digest: Digest,
}

/// How long after its predecessor a dependent request is asked at the earliest, in planned time.
const GAP: Duration = Duration::from_millis(50);
/// How long a file must have been left alone before it is removed, in planned time.
const QUIET: Duration = Duration::from_secs(1);
const UNCOMMITTED_MAX: usize = 65_536;

impl Planner {
    /// A planner over `set`.
    pub fn new(workload: Workload, set: ObjectSets, io_bytes_max: u32, seed: u64, now: Instant) -> Self {
        Self {
            set,
            deck: OpDeck::with_chains(&workload.mix, &workload.chains, seed),
            requests: workload.requests(),
            stability: match workload.access.write_stability {
                WriteStability::Unstable => Stability::Unstable,
                WriteStability::DataSync => Stability::DataSync,
                WriteStability::FileSync => Stability::FileSync,
            },
            workload,
            payload: Payload::new(seed),
            io_bytes_max,
            targets: stream(seed, 1),
            sizes: stream(seed, 2),
            weights: stream(seed, 3),
            closed: false,
            series: Vec::new(),
            series_free: Vec::new(),
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            pending_creates: VecDeque::new(),
            create_states: HashMap::new(),
            sizes_to_be: HashMap::new(),
            deferred_removals: VecDeque::new(),
            leaving: VecDeque::new(),
            uncommitted: VecDeque::new(),
            renaming: HashMap::new(),
            running: Vec::new(),
            running_free: Vec::new(),
            spare_dirs: VecDeque::new(),
            last_used_ms: Vec::new(),
            point_begin: now,
            point_begin_ms: 1,
            now_planned: now,
            names_made: 0,
            overtaken: 0,
            digest: Digest::default(),
        }
    }

    /// The shares of the requests that are sent.
    pub fn mix(&self) -> &Mix {
        &self.requests
    }

    /// Begins a load point at `begin`: `closed` when replies set the pace.
    pub fn begin_point(&mut self, begin: Instant, closed: bool) {
        self.settle_all();
        self.closed = closed;
        self.point_begin_ms = self.ms(self.now_planned) + 2 * QUIET.as_millis() as u32;
        self.point_begin = begin;
        self.now_planned = begin;
        self.overtaken = 0;
        self.digest = Digest::default();
    }

    /// Brings to an end what is half done, so that the file set may be changed from outside. Nothing may be in
    /// flight that the transport still answers.
    pub fn settle_all(&mut self) {
        for queue in [std::mem::take(&mut self.reads), std::mem::take(&mut self.writes)] {
            for slot in queue {
                self.end_series(slot);
            }
        }
        while let Some((_, file)) = self.pending_creates.pop_front() {
            self.settle_pending(file, self.now_planned);
        }
        for slot in std::mem::take(&mut self.writes) {
            self.end_series(slot);
        }
        for (_, file) in self.deferred_removals.drain(..) {
            self.set.end_file_op(file);
        }
        self.keep_leaving();
        for (_, file) in self.uncommitted.drain(..) {
            self.set.mark_file(file, FileFlags::UNCOMMITTED, false);
            self.set.end_file_op(file);
        }
    }

    /// How often another operation had to be asked than the schedule alone would have.
    pub fn overtaken(&self) -> u64 {
        self.overtaken
    }

    /// Digest of all operations planned since the load point began.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// What to ask at `due`.
    #[inline]
    pub fn plan(&mut self, due: Instant) -> Planned {
        self.pass_time(due);
        let kind = match self.deck.deal() {
            Dealt::Op(kind) => kind,
            Dealt::Chain(which) => return self.plan_chain(which, due),
        };
        let mut planned = blank(kind);
        match kind {
            OpKind::Null | OpKind::Fsstat | OpKind::Fsinfo | OpKind::Pathconf => {}
            OpKind::Getattr | OpKind::Access => self.plan_on_file(&mut planned, due),
            OpKind::Lookup => self.plan_lookup(&mut planned, due),
            OpKind::Setattr => {
                self.plan_on_file(&mut planned, due);
                if let (Target::File(file), SetattrUse::Truncate) =
                    (planned.target, self.workload.access.setattr)
                {
                    self.set.set_file_size_bytes(file, 0);
                }
            }
            OpKind::Read => self.plan_read(&mut planned, due),
            OpKind::Write => self.plan_write(&mut planned, due),
            OpKind::Commit => self.plan_commit(&mut planned, due),
            OpKind::Readlink => match self.set.select_symlink(&mut self.targets) {
                Some(link) => planned.target = Target::Link(link),
                None => self.instead(&mut planned),
            },
            OpKind::Readdir | OpKind::Readdirplus => planned.target = Target::Dir(self.pick_dir()),
            OpKind::Create => self.plan_create(&mut planned, due),
            OpKind::Remove => self.plan_remove(&mut planned, due),
            OpKind::Mkdir => self.plan_mkdir(&mut planned),
            OpKind::Rmdir => self.plan_rmdir(&mut planned),
            OpKind::Symlink => {
                planned.dir = self.pick_dir();
                planned.target = Target::Link(self.set.insert_symlink(planned.dir, 0));
            }
            OpKind::Mknod => {
                planned.dir = self.pick_dir();
                planned.extra = self.new_name();
            }
            OpKind::Rename => self.plan_rename(&mut planned, due),
            OpKind::Link => {
                self.plan_on_file(&mut planned, due);
                planned.dir = self.pick_dir();
                planned.extra = self.new_name();
            }
        }
        if let Target::File(file) = planned.target {
            // A removal holds its file already, and so does a commit that comes from the queue.
            if planned.kind != OpKind::Remove && planned.extra != HELD {
                self.set.begin_file_op(file);
            }
            self.set.begin_file_request(file);
        }
        self.digest.add(&planned);
        planned
    }

    /// Takes in how an operation ended.
    #[inline]
    pub fn settle(&mut self, planned: &Planned, outcome: &Outcome<'_>) {
        let made = match outcome {
            Outcome::Ok(Reply::Created { object, .. }) => *object,
            _ => None,
        };
        let ok = matches!(outcome, Outcome::Ok(_));
        match (planned.kind, planned.target) {
            (OpKind::Lookup, Target::File(file)) if planned.chain != NO_CHAIN => {
                if let Outcome::Ok(Reply::Lookup { object, .. }) = outcome {
                    // One that no server may send leaves the handle that was known.
                    let _kept = self.set.set_file_handle(file, object.0);
                }
            }
            (OpKind::Read | OpKind::Write, _) if planned.extra != NO_SERIES => {
                self.settle_series(planned, ok)
            }
            (OpKind::Create, Target::File(file)) => self.settle_create(file, made),
            (OpKind::Mkdir, Target::Dir(dir)) => match made {
                Some(handle) if self.set.set_directory_handle(dir, handle.0) => {
                    self.spare_dirs.push_back(dir)
                }
                _ => self.forget_dir(dir),
            },
            (OpKind::Rmdir, Target::Dir(dir)) => self.forget_dir(dir),
            (OpKind::Symlink, Target::Link(link))
                if !made.is_some_and(|handle| self.set.set_symlink_handle(link, handle.0)) =>
            {
                self.set.remove_symlink(link);
            }
            (OpKind::Rename, Target::File(file)) => {
                self.renaming.remove(&file);
            }
            _ => {}
        }
        if let Target::File(file) = planned.target {
            self.set.end_file_request(file);
            self.set.end_file_op(file);
        }
    }

    fn plan_on_file(&mut self, planned: &mut Planned, due: Instant) {
        match self.target(due) {
            Some(file) => planned.target = Target::File(file),
            None => self.instead(planned),
        }
    }

    fn plan_read(&mut self, planned: &mut Planned, due: Instant) {
        let sequential = self.workload.access.read == ReadAccess::Sequential;
        // Reads at random are one request each, unless one is for more than the storage takes at once.
        if let Some(slot) = self.next_of_series(OpKind::Read, due) {
            return self.plan_chunk(planned, slot, due);
        }
        let Some(file) = self.target(due) else { return self.instead(planned) };
        let size = self.set.file_size_bytes(file);
        if sequential {
            let slot = self.begin_series(file, size, due);
            return self.plan_chunk(planned, slot, due);
        }
        let count = self.wanted_bytes(OpKind::Read).min(size.try_into().unwrap_or(u32::MAX)).max(1);
        let offset = self.aligned_offset(size, count);
        if count > self.io_bytes_max {
            let slot = self.begin_split(file, offset, count, due);
            return self.plan_chunk(planned, slot, due);
        }
        planned.target = Target::File(file);
        (planned.offset, planned.count) = (offset, count);
    }

    fn plan_write(&mut self, planned: &mut Planned, due: Instant) {
        // Files just created come first, in every pattern: a workload that creates also fills.
        if let Some(slot) = self.next_of_series(OpKind::Write, due) {
            return self.plan_chunk(planned, slot, due);
        }
        let Some(file) = self.target(due) else { return self.instead(planned) };
        let size = self.set.file_size_bytes(file);
        if self.workload.access.write == WriteAccess::Sequential {
            let slot = self.begin_series(file, size.max(1), due);
            return self.plan_chunk(planned, slot, due);
        }
        let mut count = self.wanted_bytes(OpKind::Write);
        let offset;
        if self.workload.access.write == WriteAccess::Append {
            let end = size + u64::from(count);
            let fits = self.workload.access.append_bytes_max.is_none_or(|max| end <= max);
            offset = if fits { size } else { 0 };
        } else {
            count = count.min(size.try_into().unwrap_or(u32::MAX)).max(1);
            offset = self.aligned_offset(size, count);
        }
        // At once, so that what is appended next goes behind it.
        self.set.set_file_size_bytes(file, size.max(offset + u64::from(count)));
        if count > self.io_bytes_max {
            let slot = self.begin_split(file, offset, count, due);
            return self.plan_chunk(planned, slot, due);
        }
        planned.target = Target::File(file);
        (planned.offset, planned.count) = (offset, count);
        self.written(file, due);
    }

    fn plan_commit(&mut self, planned: &mut Planned, due: Instant) {
        match self.uncommitted.front() {
            Some(&(written, file)) if self.closed || due >= written + GAP => {
                self.uncommitted.pop_front();
                self.set.mark_file(file, FileFlags::UNCOMMITTED, false);
                if self.is_going(file) {
                    self.set.end_file_op(file);
                    return self.plan_on_file(planned, due);
                }
                self.touch(file, due);
                planned.target = Target::File(file);
                // The queue's hold on the file passes to the operation.
                planned.extra = HELD;
            }
            _ => self.plan_on_file(planned, due),
        }
    }

    fn plan_create(&mut self, planned: &mut Planned, due: Instant) {
        planned.dir = self.pick_dir();
        let bytes = self.workload.sizes.file.sample_u64(&mut self.sizes);
        let file = self.set.insert_file(planned.dir, 0, 0);
        self.create_states.insert(file, CreateState::Asked);
        self.pending_creates.push_back((due, file));
        self.sizes_to_be.insert(file, bytes);
        self.set.begin_file_op(file);
        self.touch(file, due);
        planned.target = Target::File(file);
    }

    fn plan_mkdir(&mut self, planned: &mut Planned) {
        let parent = self.pick_dir();
        planned.target = Target::Dir(self.set.insert_directory(parent, 0));
    }

    fn plan_rmdir(&mut self, planned: &mut Planned) {
        match self.spare_dirs.pop_front() {
            Some(dir) => planned.target = Target::Dir(dir),
            None => self.instead(planned),
        }
    }

    /// There is nothing that the dealt operation could be done to: asks something harmless, and says so in the
    /// count. The mix of the report shows it, too.
    fn instead(&mut self, planned: &mut Planned) {
        self.overtaken += 1;
        planned.kind = OpKind::Fsstat;
        planned.target = Target::None;
    }

    /// A file by popularity.
    #[inline]
    fn target(&mut self, due: Instant) -> Option<FileId> {
        let file = self.set.select_file(&mut self.targets)?;
        self.touch(file, due);
        Some(file)
    }

    fn pick_dir(&mut self) -> DirectoryId {
        self.set.select_directory(&mut self.targets).unwrap_or(DirectoryId::ROOT)
    }

    fn new_name(&mut self) -> u32 {
        self.names_made = self.names_made.wrapping_add(1);
        self.names_made
    }

    #[inline]
    fn touch(&mut self, file: FileId, due: Instant) {
        let now_ms = self.ms(due);
        let slot = file.slot() as usize;
        if slot >= self.last_used_ms.len() {
            self.last_used_ms.resize(slot + 1, 0);
        }
        self.last_used_ms[slot] = now_ms;
    }

    #[inline]
    fn ms(&self, due: Instant) -> u32 {
        self.point_begin_ms + due.saturating_duration_since(self.point_begin).as_millis() as u32
    }

    /// Bytes of one request, of those that the workload wants at a time.
    #[inline]
    fn chunk_bytes(&mut self, kind: OpKind) -> u32 {
        self.wanted_bytes(kind).min(self.io_bytes_max)
    }

    #[inline]
    fn wanted_bytes(&mut self, kind: OpKind) -> u32 {
        let sizes = if kind == OpKind::Read { &self.workload.sizes.read } else { &self.workload.sizes.write };
        sizes.sample_u64(&mut self.sizes).clamp(1, u64::from(u32::MAX)) as u32
    }

    /// A multiple of `count` within `size` bytes.
    fn aligned_offset(&mut self, size: u64, count: u32) -> u64 {
        let places = (size / u64::from(count)).max(1);
        self.targets.random_range(0..places) * u64::from(count)
    }

    fn forget_dir(&mut self, dir: DirectoryId) {
        // With something in it, it stays: so it does on the server.
        let _removed = self.set.remove_directory(dir);
    }
}

#[cfg(test)]
mod tests;
