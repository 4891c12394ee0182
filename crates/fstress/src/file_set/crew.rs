//! Many requests in flight at once for building and removing a file set: as fast as replies come.
//!
//! Always holds: each job is asked until it is done or has failed for good; a server that asks to retry later
//! (`NFS3ERR_JUKEBOX`) is asked again, and a request without an answer too, which is reported; only an answer ends a
//! silence, and none is waited for much longer once the user asked to stop; a reply to a request of the metronome that
//! comes this late is handed over in `Site::late`.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use files::{
    CreateHow, Handle, HandleRef, Outcome, Reply, Request, SetAttributes, Stability, Status, Ticket,
    Transport,
};
use quanta::{Clock, Instant};

use super::payload::Payload;
use crate::error::FstressError;
use crate::objects::{DirectoryId, FileId, ObjectName, ObjectSets, SymlinkId};
use crate::open_loop::planner::{DIR_ATTRIBUTES, FILE_ATTRIBUTES, LINK_TARGET};
use harness::Event;

use super::progress::SetWork;

/// Where the work is done.
pub(crate) struct Site<'a> {
    pub transport: &'a mut dyn Transport,
    pub clock: &'a Clock,
    pub stop: &'a AtomicBool,
    /// Cleaning up continues after `stop`, but waits less long for storage that does not answer.
    pub is_cleanup: bool,
    pub tell: &'a mut dyn FnMut(Event),
    /// Tickets that were not the crew's.
    pub late: &'a mut Vec<Ticket>,
    /// The next crew ticket of the run. It outlives a crew, and an interrupted one too, so that a late reply to one
    /// is not taken for a reply to the next.
    pub next_ticket: &'a mut u32,
}

impl Site<'_> {
    fn new_ticket(&mut self) -> Ticket {
        let ticket = *self.next_ticket;
        *self.next_ticket = ticket.checked_add(1).unwrap_or(TICKETS_FROM);
        Ticket(ticket)
    }

    /// # Errors
    /// `Interrupted`, when the user asked to stop and this is not what is done after that.
    fn go_on(&self) -> Result<(), FstressError> {
        if !self.is_cleanup && self.stop.load(Ordering::Relaxed) {
            return Err(FstressError::Interrupted);
        }
        Ok(())
    }

    /// How long to wait for storage that answers nothing, or only that it wants to be asked later.
    fn patience(&self) -> Duration {
        if self.stop.load(Ordering::Relaxed) { PATIENCE_STOPPED } else { PATIENCE }
    }
}

/// One object on its way. With `look` it may be there already.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Job {
    File { file: FileId, bytes: u64, weight: u32, look: bool },
    Fill { file: FileId, offset: u64, end: u64 },
    Dir { dir: DirectoryId, weight: u32, look: bool },
    Link { link: SymlinkId, weight: u32, look: bool },
    Remove { file: FileId },
    Unlink { link: SymlinkId },
    Rmdir { dir: DirectoryId },
}

/// The jobs under way.
pub(crate) struct Crew {
    in_flight: HashMap<u32, Job>,
    waiting: VecDeque<Job>,
    in_flight_max: usize,
    /// The server asked to retry later: nothing is sent before.
    rest_until: Option<Instant>,
    /// Since when it has been asking for that and has done nothing.
    put_off_since: Option<Instant>,
    told_of_retries: bool,
    told_of_silence: bool,
    work: SetWork,
    asked: u64,
    done: u64,
    bytes: u64,
    next_tell: Option<Instant>,
    /// The last answer, or when the first request after an idle time was waited for.
    last_reply: Option<Instant>,
    /// Directories that could not be removed as something was left in them.
    pub not_empty: Vec<DirectoryId>,
    /// What could not be removed does not keep the rest from being removed: the first reason is kept here.
    removes_on: bool,
    pub first_refused: Option<FstressError>,
}

/// Tickets from here on are a crew's or a call's, below a metronome's.
const TICKETS_FROM: u32 = 1 << 31;
const FILL_BYTES_MAX: u32 = 256 << 10;
const RETRY_LATER: Duration = Duration::from_millis(100);
const TELL_EVERY: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(50);
/// Longer than a server takes for one call. A transport with a limit of its own ends sooner.
const PATIENCE: Duration = Duration::from_secs(120);
/// The same once the user asked to stop.
const PATIENCE_STOPPED: Duration = Duration::from_secs(5);
/// A silence is reported once it has lasted so long.
const SILENCE_TOLD: Duration = Duration::from_secs(5);

/// Why one request came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    Refused(Status),
    RefusedCall(&'static str),
    Unanswered,
    BadReply,
    NoHandle,
}

impl Problem {
    /// The error a user sees: what was tried on which name.
    pub fn about(self, tried: &'static str, name: impl Into<String>) -> FstressError {
        let name = name.into();
        let (why, advice) = match self {
            Self::Refused(status) => (status.name().into_owned(), status.advice()),
            Self::RefusedCall(why) => (why.to_owned(), "the server refuses calls of this user or kind"),
            Self::Unanswered => ("no answer".to_owned(), "is the server still running?"),
            Self::BadReply => ("a reply that makes no sense".to_owned(), "the server breaks the protocol"),
            Self::NoHandle => (
                "no handle in the reply".to_owned(),
                "the server leaves out an optional field that Crumb needs",
            ),
        };
        FstressError::Refused { tried, name, why, advice }
    }
}

impl Crew {
    pub fn new(in_flight_max: usize, work: SetWork, asked: u64) -> Self {
        Self {
            in_flight: HashMap::new(),
            waiting: VecDeque::new(),
            in_flight_max,
            rest_until: None,
            put_off_since: None,
            told_of_retries: false,
            told_of_silence: false,
            work,
            asked,
            done: 0,
            bytes: 0,
            next_tell: None,
            last_reply: None,
            not_empty: Vec::new(),
            removes_on: false,
            first_refused: None,
        }
    }

    /// A crew that removes what it can, whatever is refused.
    pub fn that_removes_on(in_flight_max: usize, asked: u64) -> Self {
        Self { removes_on: true, ..Self::new(in_flight_max, SetWork::Remove, asked) }
    }

    /// Things done.
    pub fn done(&self) -> u64 {
        self.done
    }

    pub fn has_room(&self) -> bool {
        self.in_flight.len() + self.waiting.len() < self.in_flight_max
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty()
    }

    pub fn push(&mut self, job: Job) {
        if self.is_idle() {
            // What was done meanwhile may have taken its time.
            self.last_reply = None;
        }
        self.waiting.push_back(job);
    }

    /// Sends what waits and takes what comes, for a while.
    pub fn turn(
        &mut self,
        payload: &Payload,
        set: &mut ObjectSets,
        site: &mut Site<'_>,
    ) -> Result<(), FstressError> {
        site.go_on()?;
        let now = site.clock.now();
        self.tell(now, site);
        if self.rest_until.is_none_or(|until| now >= until) {
            self.rest_until = None;
            self.send(payload, set, site)?;
        }
        let poll_until =
            now + self.rest_until.map_or(POLL, |until| until.saturating_duration_since(now).min(POLL));
        let mut problem = None;
        let mut replied = false;
        let Site { transport, late, .. } = site;
        transport.poll(Some(poll_until), &mut |completion| {
            replied |= is_reply(&completion.outcome);
            let Some(job) = self.in_flight.remove(&completion.ticket.0) else {
                late.push(completion.ticket);
                return;
            };
            match self.settle(job, &completion.outcome, set) {
                Ok(Some(next)) => self.waiting.push_front(next),
                Ok(None) => {}
                Err(Problem::Refused(Status::JUKEBOX)) => {
                    self.put_off_since.get_or_insert(completion.done);
                    self.rest_until = Some(completion.done + RETRY_LATER);
                    self.waiting.push_front(job);
                }
                // Whether it took effect is unknown. Asking again is harmless: `settle` knows what is there already.
                Err(Problem::Unanswered) => self.waiting.push_front(job),
                Err(other) => {
                    let error = other.about(job.tried(), job.name(set));
                    if self.removes_on {
                        self.first_refused.get_or_insert(error);
                        Self::release(job, set);
                    } else {
                        problem.get_or_insert(error);
                    }
                }
            }
        })?;
        let now = site.clock.now();
        if replied {
            self.last_reply = Some(now);
        }
        if self.rest_until.is_some() && !self.told_of_retries {
            self.told_of_retries = true;
            (site.tell)(Event::Note(
                "the server asks to retry later (NFS3ERR_JUKEBOX); waiting and retrying".into(),
            ));
        }
        let patience = site.patience();
        if self.put_off_since.is_some_and(|since| now.saturating_duration_since(since) > patience) {
            problem.get_or_insert(
                Problem::Refused(Status::JUKEBOX).about("work on the file set", set.root_name()),
            );
        }
        let silence = now.saturating_duration_since(*self.last_reply.get_or_insert(now));
        if silence > SILENCE_TOLD && !self.told_of_silence {
            self.told_of_silence = true;
            (site.tell)(Event::Note(format!(
                "the storage has answered nothing for {SILENCE_TOLD:?}; waiting"
            )));
        }
        if silence > patience {
            problem.get_or_insert(Problem::Unanswered.about("work on the file set", set.root_name()));
        }
        problem.map_or(Ok(()), Err)
    }

    fn send(&mut self, payload: &Payload, set: &ObjectSets, site: &mut Site<'_>) -> Result<(), FstressError> {
        let io_bytes_max = site.transport.io_bytes_max().min(FILL_BYTES_MAX);
        while let Some(&job) = self.waiting.front() {
            let mut name = None;
            let ticket = site.new_ticket();
            if site.transport.submit(ticket, &job.request(set, payload, io_bytes_max, &mut name)).is_err() {
                break;
            }
            self.waiting.pop_front();
            self.in_flight.insert(ticket.0, job);
        }
        Ok(site.transport.flush()?)
    }

    /// Takes in a reply; returns what is next to do for the same object.
    fn settle(
        &mut self,
        job: Job,
        outcome: &Outcome<'_>,
        set: &mut ObjectSets,
    ) -> Result<Option<Job>, Problem> {
        let reply = match (outcome, job) {
            (Outcome::Ok(reply), _) => reply,
            (Outcome::Failed(Status::NOENT), Job::File { file, bytes, weight, look: true }) => {
                return Ok(Some(Job::File { file, bytes, weight, look: false }));
            }
            (Outcome::Failed(Status::NOENT), Job::Dir { dir, weight, look: true }) => {
                return Ok(Some(Job::Dir { dir, weight, look: false }));
            }
            (Outcome::Failed(Status::NOENT), Job::Link { link, weight, look: true }) => {
                return Ok(Some(Job::Link { link, weight, look: false }));
            }
            // A retransmitted MKDIR or SYMLINK finds what its first copy made.
            (Outcome::Failed(Status::EXIST), Job::Dir { dir, weight, look: false }) => {
                return Ok(Some(Job::Dir { dir, weight, look: true }));
            }
            (Outcome::Failed(Status::EXIST), Job::Link { link, weight, look: false }) => {
                return Ok(Some(Job::Link { link, weight, look: true }));
            }
            // And what is to go may be gone already.
            (
                Outcome::Failed(Status::NOENT | Status::STALE),
                Job::Remove { .. } | Job::Unlink { .. } | Job::Rmdir { .. },
            ) => {
                self.finish(job, set);
                return Ok(None);
            }
            (Outcome::Failed(Status::NOTEMPTY | Status::EXIST), Job::Rmdir { dir }) => {
                self.not_empty.push(dir);
                return Ok(None);
            }
            (Outcome::Failed(status), _) => return Err(Problem::Refused(*status)),
            (Outcome::Rejected(why), _) => return Err(Problem::RefusedCall(why)),
            (Outcome::Cancelled | Outcome::Lost, _) => return Err(Problem::Unanswered),
            (Outcome::BadReply, _) => return Err(Problem::BadReply),
        };
        self.put_off_since = None;
        let (handle, size) = match reply {
            Reply::Created { object, .. } => (Some(object.ok_or(Problem::NoHandle)?.0), 0),
            Reply::Lookup { object, attributes, .. } => (Some(object.0), attributes.map_or(0, |a| a.size)),
            _ => (None, 0),
        };
        match (job, handle) {
            (Job::File { file, bytes, weight, look }, Some(handle)) => {
                if !set.set_file_handle(file, handle) {
                    return Err(Problem::BadReply);
                }
                set.set_file_weight(file, weight);
                if look {
                    set.set_file_size_bytes(file, size);
                }
                if size < bytes {
                    return Ok(Some(Job::Fill { file, offset: size, end: bytes }));
                }
            }
            (Job::Fill { file, offset, end }, _) => {
                let Reply::Write { count, .. } = reply else { return Err(Problem::BadReply) };
                let reached = offset + u64::from(*count);
                if *count == 0 || reached > end {
                    return Err(Problem::BadReply);
                }
                self.bytes += u64::from(*count);
                set.set_file_size_bytes(file, reached);
                if reached < end {
                    return Ok(Some(Job::Fill { file, offset: reached, end }));
                }
            }
            (Job::Dir { dir, weight, .. }, Some(handle)) => {
                if !set.set_directory_handle(dir, handle) {
                    return Err(Problem::BadReply);
                }
                set.set_directory_weight(dir, weight);
            }
            (Job::Link { link, weight, .. }, Some(handle)) => {
                if !set.set_symlink_handle(link, handle) {
                    return Err(Problem::BadReply);
                }
                set.set_symlink_weight(link, weight);
            }
            (Job::Remove { .. } | Job::Unlink { .. } | Job::Rmdir { .. }, _) => {}
            _ => return Err(Problem::BadReply),
        }
        self.finish(job, set);
        Ok(None)
    }

    fn release(job: Job, set: &mut ObjectSets) {
        match job {
            Job::File { file, .. } | Job::Fill { file, .. } | Job::Remove { file } => set.end_file_op(file),
            Job::Dir { .. } | Job::Link { .. } | Job::Unlink { .. } | Job::Rmdir { .. } => {}
        }
    }

    fn finish(&mut self, job: Job, set: &mut ObjectSets) {
        Self::release(job, set);
        self.done += u64::from(!matches!(job, Job::Dir { .. } | Job::Link { .. }));
    }

    fn tell(&mut self, now: Instant, site: &mut Site<'_>) {
        if self.next_tell.is_none_or(|at| now >= at) {
            self.next_tell = Some(now + TELL_EVERY);
            self.tell_now(site);
        }
    }

    /// Reports progress.
    pub fn tell_now(&self, site: &mut Site<'_>) {
        (site.tell)(self.work.step(self.done, self.asked, self.bytes));
    }
}

impl Job {
    /// The request that does it.
    fn request<'a>(
        self,
        set: &'a ObjectSets,
        payload: &'a Payload,
        io_bytes_max: u32,
        name: &'a mut Option<ObjectName>,
    ) -> Request<'a> {
        let (dir, own_name) = match self {
            Self::Fill { file, offset, end } => {
                let count = (end - offset).min(u64::from(io_bytes_max)) as u32;
                return Request::Write {
                    file: HandleRef(set.file_handle(file).unwrap_or_default()),
                    offset,
                    bytes: payload.at(offset, count),
                    stability: Stability::Unstable,
                };
            }
            Self::File { file, .. } | Self::Remove { file } => (set.file_parent(file), set.file_name(file)),
            Self::Dir { dir, .. } | Self::Rmdir { dir } => {
                (set.directory_parent(dir), set.directory_name(dir))
            }
            Self::Link { link, .. } | Self::Unlink { link } => {
                (set.symlink_parent(link), set.symlink_name(link))
            }
        };
        let dir = HandleRef(set.directory_handle(dir).unwrap_or_default());
        let name = name.insert(own_name).as_bytes();
        match self {
            Self::File { look: true, .. } | Self::Dir { look: true, .. } | Self::Link { look: true, .. } => {
                Request::Lookup { dir, name }
            }
            Self::File { .. } => Request::Create { dir, name, how: CreateHow::Unchecked(FILE_ATTRIBUTES) },
            Self::Dir { .. } => Request::Mkdir { dir, name, new: DIR_ATTRIBUTES },
            Self::Link { .. } => {
                Request::Symlink { dir, name, target: LINK_TARGET, new: SetAttributes::default() }
            }
            Self::Remove { .. } | Self::Unlink { .. } => Request::Remove { dir, name },
            Self::Rmdir { .. } => Request::Rmdir { dir, name },
            Self::Fill { .. } => unreachable!("returned above"),
        }
    }

    fn tried(self) -> &'static str {
        match self {
            Self::File { .. } => "create",
            Self::Fill { .. } => "write to",
            Self::Dir { .. } => "make directory",
            Self::Link { .. } => "make symbolic link",
            Self::Remove { .. } | Self::Unlink { .. } => "remove",
            Self::Rmdir { .. } => "remove directory",
        }
    }

    fn name(self, set: &ObjectSets) -> String {
        let name = match self {
            Self::File { file, .. } | Self::Fill { file, .. } | Self::Remove { file } => set.file_name(file),
            Self::Dir { dir, .. } | Self::Rmdir { dir } => set.directory_name(dir),
            Self::Link { link, .. } | Self::Unlink { link } => set.symlink_name(link),
        };
        format!("{}/…/{}", set.root_name(), name.as_str())
    }
}

/// Whether the storage said something. A request that was given up is no sign of life.
fn is_reply(outcome: &Outcome<'_>) -> bool {
    match outcome {
        Outcome::Ok(_) | Outcome::Failed(_) | Outcome::Rejected(_) | Outcome::BadReply => true,
        Outcome::Cancelled | Outcome::Lost => false,
    }
}

/// One request by itself, with its reply looked at by `read`. Asked again when the server asks for that.
pub(crate) fn call<T>(
    site: &mut Site<'_>,
    request: &Request<'_>,
    mut read: impl FnMut(&Reply<'_>) -> T,
) -> Result<Result<T, Problem>, FstressError> {
    let begun = site.clock.now();
    let patience_is_over =
        |site: &Site<'_>| site.clock.now().saturating_duration_since(begun) > site.patience();
    loop {
        site.go_on()?;
        let mut result = None;
        let ticket = site.new_ticket();
        while site.transport.submit(ticket, request).is_err() {
            site.go_on()?;
            if patience_is_over(site) {
                return Ok(Err(Problem::Unanswered));
            }
            let Site { transport, late, clock, .. } = site;
            transport.poll(Some(clock.now() + POLL), &mut |completion| late.push(completion.ticket))?;
        }
        site.transport.flush()?;
        // Its answer is waited for after a stop too, for a few seconds: what it makes has to be removed, which a removal that
        // overtakes it would not do.
        while result.is_none() {
            let Site { transport, late, clock, .. } = site;
            transport.poll(Some(clock.now() + POLL), &mut |completion| {
                if completion.ticket != ticket {
                    return late.push(completion.ticket);
                }
                result = Some(match completion.outcome {
                    Outcome::Ok(reply) => Ok(read(&reply)),
                    Outcome::Failed(status) => Err(Problem::Refused(status)),
                    Outcome::Rejected(why) => Err(Problem::RefusedCall(why)),
                    Outcome::Cancelled | Outcome::Lost => Err(Problem::Unanswered),
                    Outcome::BadReply => Err(Problem::BadReply),
                });
            })?;
            if result.is_none() && patience_is_over(site) {
                site.go_on()?;
                return Ok(Err(Problem::Unanswered));
            }
        }
        match result.expect("the loop above ends with one") {
            Err(Problem::Refused(Status::JUKEBOX)) if !patience_is_over(site) => {
                let rested = site.clock.now() + RETRY_LATER;
                while site.clock.now() < rested {
                    site.go_on()?;
                    let Site { transport, late, .. } = site;
                    transport.poll(Some(rested), &mut |completion| late.push(completion.ticket))?;
                }
            }
            other => return Ok(other),
        }
    }
}

/// Looks `name` up in `dir`: its handle, when it is there.
pub(crate) fn find(
    site: &mut Site<'_>,
    dir: HandleRef<'_>,
    name: &[u8],
) -> Result<Result<Handle, Problem>, FstressError> {
    let found = call(site, &Request::Lookup { dir, name }, |reply| match reply {
        Reply::Lookup { object, .. } => Handle::new(object.0),
        _ => None,
    })?;
    Ok(found.and_then(|handle| handle.ok_or(Problem::BadReply)))
}

/// Makes directory `name` in `dir`, or takes the one that is there when `take` allows; returns its handle.
pub(crate) fn make_dir(
    site: &mut Site<'_>,
    dir: HandleRef<'_>,
    name: &str,
    take: bool,
) -> Result<Handle, FstressError> {
    const TRIED: &str = "make directory";
    let bytes = name.as_bytes();
    // A set that is there needs no leave to make anything: it may be on a read-only export or a snapshot.
    if take {
        match find(site, dir, bytes)? {
            Ok(handle) => return Ok(handle),
            Err(Problem::Refused(Status::NOENT)) => {}
            Err(problem) => return Err(problem.about("look up", name)),
        }
    }
    let made = call(site, &Request::Mkdir { dir, name: bytes, new: DIR_ATTRIBUTES }, |reply| match reply {
        Reply::Created { object, .. } => object.and_then(|handle| Handle::new(handle.0)),
        _ => None,
    })?;
    match made {
        Ok(Some(handle)) => return Ok(handle),
        // A server need not tell the handle (RFC 1813, section 3.3.9): look it up.
        Ok(None) => {}
        Err(Problem::Refused(Status::EXIST)) if take => {}
        Err(problem) => return Err(problem.about(TRIED, name)),
    }
    find(site, dir, bytes)?.map_err(|problem| problem.about("look up", name))
}

/// The first tickets of a run's first crew.
pub(crate) const FIRST_TICKET: u32 = TICKETS_FROM;
