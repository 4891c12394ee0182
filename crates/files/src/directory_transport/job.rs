//! A request on its way to a worker and back, owning everything it needs.

use quanta::Instant;

use crate::{Completion, FileService, Handle, HandleRef, Outcome, Reply, Request, Scratch, Status, Ticket};

/// Used again and again: its buffers stay as large as they have become.
pub(super) struct Job {
    pub ticket: Ticket,
    /// The request with empty handles and bytes, which follow.
    hollow: Request<'static>,
    first: Handle,
    second: Handle,
    /// Data, name or names, one after the other.
    bytes: Vec<u8>,
    /// Where the second name begins.
    split: usize,
    scratch: Scratch,
    /// False: a handle is over 64 bytes, such as nobody gives out.
    valid: bool,
    result: Result<Reply<'static>, Status>,
    began: Option<Instant>,
    done: Option<Instant>,
}

const NO_HANDLE: HandleRef<'static> = HandleRef(&[]);

impl Job {
    pub(super) fn new() -> Self {
        let empty = Handle::new(&[]).expect("an empty handle is short enough");
        Self {
            ticket: Ticket(0),
            hollow: Request::Null,
            first: empty,
            second: empty,
            bytes: Vec::new(),
            split: 0,
            scratch: Scratch::new(),
            valid: true,
            result: Ok(Reply::Null),
            began: None,
            done: None,
        }
    }

    /// Copies the request in.
    pub(super) fn load(&mut self, ticket: Ticket, request: &Request<'_>) {
        use Request as R;
        const E: HandleRef<'static> = NO_HANDLE;
        self.ticket = ticket;
        self.valid = true;
        self.done = None;
        self.bytes.clear();
        self.split = 0;
        self.hollow = match *request {
            R::Null => R::Null,
            R::Getattr { object } => {
                self.first(object);
                R::Getattr { object: E }
            }
            R::Setattr { object, new, guard } => {
                self.first(object);
                R::Setattr { object: E, new, guard }
            }
            R::Lookup { dir, name } => {
                self.first(dir).put(name);
                R::Lookup { dir: E, name: b"" }
            }
            R::Access { object, rights } => {
                self.first(object);
                R::Access { object: E, rights }
            }
            R::Readlink { link } => {
                self.first(link);
                R::Readlink { link: E }
            }
            R::Read { file, offset, count } => {
                self.first(file);
                R::Read { file: E, offset, count }
            }
            R::Write { file, offset, bytes, stability } => {
                self.first(file).put(bytes);
                R::Write { file: E, offset, bytes: b"", stability }
            }
            R::Create { dir, name, how } => {
                self.first(dir).put(name);
                R::Create { dir: E, name: b"", how }
            }
            R::Mkdir { dir, name, new } => {
                self.first(dir).put(name);
                R::Mkdir { dir: E, name: b"", new }
            }
            R::Symlink { dir, name, target, new } => {
                self.first(dir).put(name).put_second(target);
                R::Symlink { dir: E, name: b"", target: b"", new }
            }
            R::Mknod { dir, name, node, new } => {
                self.first(dir).put(name);
                R::Mknod { dir: E, name: b"", node, new }
            }
            R::Remove { dir, name } => {
                self.first(dir).put(name);
                R::Remove { dir: E, name: b"" }
            }
            R::Rmdir { dir, name } => {
                self.first(dir).put(name);
                R::Rmdir { dir: E, name: b"" }
            }
            R::Rename { from_dir, from_name, to_dir, to_name } => {
                self.first(from_dir).put(from_name).put_second(to_name);
                self.second(to_dir);
                R::Rename { from_dir: E, from_name: b"", to_dir: E, to_name: b"" }
            }
            R::Link { file, dir, name } => {
                self.first(file).put(name);
                self.second(dir);
                R::Link { file: E, dir: E, name: b"" }
            }
            R::Readdir { dir, cookie, verifier, count } => {
                self.first(dir);
                R::Readdir { dir: E, cookie, verifier, count }
            }
            R::Readdirplus { dir, cookie, verifier, name_bytes, reply_bytes } => {
                self.first(dir);
                R::Readdirplus { dir: E, cookie, verifier, name_bytes, reply_bytes }
            }
            R::Fsstat { root } => {
                self.first(root);
                R::Fsstat { root: E }
            }
            R::Fsinfo { root } => {
                self.first(root);
                R::Fsinfo { root: E }
            }
            R::Pathconf { object } => {
                self.first(object);
                R::Pathconf { object: E }
            }
            R::Commit { file, offset, count } => {
                self.first(file);
                R::Commit { file: E, offset, count }
            }
        };
    }

    fn first(&mut self, handle: HandleRef<'_>) -> &mut Self {
        match Handle::new(handle.0) {
            Some(handle) => self.first = handle,
            None => self.valid = false,
        }
        self
    }

    fn second(&mut self, handle: HandleRef<'_>) {
        match Handle::new(handle.0) {
            Some(handle) => self.second = handle,
            None => self.valid = false,
        }
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self.split = self.bytes.len();
        self
    }

    fn put_second(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Does what was asked, on a worker, and notes when it was done.
    pub(super) fn run(&mut self, service: &dyn FileService, clock: &quanta::Clock) {
        use Request as R;
        self.began = Some(clock.now());
        let (one, two) = (self.first.by_ref(), self.second.by_ref());
        let (name, second) = self.bytes.split_at(self.split);
        let request = match self.hollow {
            R::Null => R::Null,
            R::Getattr { .. } => R::Getattr { object: one },
            R::Setattr { new, guard, .. } => R::Setattr { object: one, new, guard },
            R::Lookup { .. } => R::Lookup { dir: one, name },
            R::Access { rights, .. } => R::Access { object: one, rights },
            R::Readlink { .. } => R::Readlink { link: one },
            R::Read { offset, count, .. } => R::Read { file: one, offset, count },
            R::Write { offset, stability, .. } => R::Write { file: one, offset, bytes: name, stability },
            R::Create { how, .. } => R::Create { dir: one, name, how },
            R::Mkdir { new, .. } => R::Mkdir { dir: one, name, new },
            R::Symlink { new, .. } => R::Symlink { dir: one, name, target: second, new },
            R::Mknod { node, new, .. } => R::Mknod { dir: one, name, node, new },
            R::Remove { .. } => R::Remove { dir: one, name },
            R::Rmdir { .. } => R::Rmdir { dir: one, name },
            R::Rename { .. } => R::Rename { from_dir: one, from_name: name, to_dir: two, to_name: second },
            R::Link { .. } => R::Link { file: one, dir: two, name },
            R::Readdir { cookie, verifier, count, .. } => R::Readdir { dir: one, cookie, verifier, count },
            R::Readdirplus { cookie, verifier, name_bytes, reply_bytes, .. } => {
                R::Readdirplus { dir: one, cookie, verifier, name_bytes, reply_bytes }
            }
            R::Fsstat { .. } => R::Fsstat { root: one },
            R::Fsinfo { .. } => R::Fsinfo { root: one },
            R::Pathconf { .. } => R::Pathconf { object: one },
            R::Commit { offset, count, .. } => R::Commit { file: one, offset, count },
        };
        self.result =
            if self.valid { service.perform(&request, &mut self.scratch) } else { Err(Status::BADHANDLE) };
        self.done = Some(clock.now());
    }

    /// What came of it. Only after [`Self::run`].
    pub(super) fn completion(&self) -> Completion<'_> {
        let done = self.done.expect("a job is delivered after it ran");
        Completion {
            ticket: self.ticket,
            outcome: match self.result {
                Ok(hollow) => Outcome::Ok(self.scratch.fill(hollow)),
                Err(status) => Outcome::Failed(status),
            },
            retransmits: 0,
            done,
            arrived: Some(done),
            began: self.began,
        }
    }
}
