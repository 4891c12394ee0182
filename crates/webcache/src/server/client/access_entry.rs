//! One request's entry in counters and log, made when its reply has ended, however it ended.
//!
//! ```text
//! Ledger, dropped when hyper has all of the reply ─┬─ HTTP/1: Unflushed, until the socket was flushed ─> counters, log
//!                                                  └─ broken off, HTTP/2, tunnels ────────────────────> counters, log
//! ```
//!
//! Always holds: a reply by HTTP/1 counts as sent when it has left for the client, not when hyper has taken it; what is left
//! when the connection ends counts as aborted. Of HTTP/2 it is hyper that knows when a stream's last frame leaves, and it
//! says so to no caller.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::config::Choice;
use crate::log::{Entry, Way};
use crate::server::answer::handler::Client;
use crate::server::client::connection::Since;
use crate::server::client::request_guard::Watched;
use crate::server::counters::Outcome;
use crate::server::worker::Worker;

/// Written down when it is dropped, or for HTTP/1 when its reply has left.
pub struct Ledger {
    watched: Arc<Watched>,
    stream: Option<Since>,
    /// Nothing where nobody says when a reply has left.
    unflushed: Option<Rc<Unflushed>>,
    /// Whether the client waits for us, and not we for it to take what there is.
    waiting: bool,
    /// The parent that said it has what is asked for.
    has_it: Option<String>,
    /// Taken when it is dropped.
    reply: Option<Reply>,
}

/// What is written down of a reply.
struct Reply {
    worker: Rc<Worker>,
    began: Instant,
    outcome: Outcome,
    sent_bytes: u64,
    ended: bool,
    entry: Option<Box<Entry>>,
}

impl Reply {
    /// Counts it and writes its line.
    fn write_down(self) {
        let took = self.began.elapsed();
        let counters = &self.worker.counters;
        counters.reply(self.outcome, self.sent_bytes, took);
        if !self.ended {
            counters.aborted_replies.add(1);
        }
        if let Some(mut entry) = self.entry {
            entry.sent_bytes = self.sent_bytes;
            entry.took = took;
            entry.outcome = self.outcome;
            entry.aborted = !self.ended;
            self.worker.log(&entry);
        }
    }
}

/// Replies of one connection that hyper has whole, until they have left for the client.
#[derive(Default)]
pub struct Unflushed(RefCell<VecDeque<(u64, Reply)>>);

impl Unflushed {
    /// Writes down those that have left.
    pub fn write_down(&self, watched: &Watched) {
        let flushed = watched.flushed.load(Ordering::Relaxed);
        loop {
            let left = self.0.borrow_mut().pop_front_if(|(number, _)| *number <= flushed);
            let Some((_, reply)) = left else { return };
            reply.write_down();
        }
    }

    /// The same at the connection's end: what has not left by now never will.
    pub fn end(&self, watched: &Watched) {
        self.write_down(watched);
        for (_, reply) in self.0.take() {
            Reply { ended: false, ..reply }.write_down();
        }
    }
}

impl Ledger {
    /// Of a request whose head came at `began`.
    pub fn new(worker: Rc<Worker>, client: &Client, began: Instant, entry: Option<Box<Entry>>) -> Self {
        let (watched, stream) = (Arc::clone(&client.watched), client.stream.clone());
        watched.waiting.fetch_add(1, Ordering::Relaxed);
        watched.progress.fetch_add(1, Ordering::Relaxed);
        let unflushed = stream.is_none().then(|| Rc::clone(&client.unflushed));
        let reply = Reply { worker, began, outcome: Outcome::Failed, sent_bytes: 0, ended: false, entry };
        Self { watched, stream, unflushed, waiting: true, has_it: None, reply: Some(reply) }
    }

    fn reply(&mut self) -> &mut Reply {
        self.reply.as_mut().expect("it is taken by drop alone")
    }

    /// Its end is a tunnel's, which outlives the connection that hyper knows: written down when it is dropped.
    pub fn tunnelled(&mut self) {
        self.unflushed = None;
    }

    /// Says who waits for whom: the client for us, or we for it.
    pub fn client_waits(&mut self, waits: bool) {
        if !waits {
            self.watched.progress.fetch_add(1, Ordering::Relaxed);
        }
        if waits && !self.waiting {
            self.watched.waiting.fetch_add(1, Ordering::Relaxed);
        } else if !waits && self.waiting {
            self.watched.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        self.waiting = waits;
        if let Some(since) = &self.stream {
            since.set((!waits).then(Instant::now));
        }
    }

    /// How it is answered.
    pub fn answered(&mut self, outcome: Outcome, status: u16, content_type: Option<&http::HeaderValue>) {
        let reply = self.reply();
        reply.outcome = outcome;
        if let Some(entry) = &mut reply.entry {
            entry.status = status;
            entry.content_type =
                content_type.and_then(|value| value.to_str().ok()).map_or_else(String::new, str::to_owned);
        }
    }

    /// Who was asked: a parent, or the origin itself.
    pub fn asked(&mut self, host: &str, is_parent: bool) {
        if self.reply().entry.is_some() {
            let way = match self.reply().worker.config().parent_use.choose {
                _ if !is_parent => Way::Direct,
                _ if self.has_it.as_deref() == Some(host) => Way::ParentHit,
                Choice::Failover => Way::FirstParent,
                Choice::Hash => Way::HashedParent,
            };
            self.asked_by(host, way);
        }
    }

    /// Who was asked, and why just that one.
    pub fn asked_by(&mut self, host: &str, way: Way) {
        if let Some(entry) = &mut self.reply().entry {
            entry.origin = Some((way, host.to_owned()));
        }
    }

    /// A parent that said it has what is asked for.
    pub fn has_it(&mut self, host: &str) {
        self.has_it = Some(host.to_owned());
    }

    /// Body bytes given to the connection.
    pub fn sent(&mut self, bytes: u64) {
        self.reply().sent_bytes += bytes;
    }

    /// The body is whole.
    pub fn finished(&mut self) {
        self.reply().ended = true;
    }

    /// The body broke off.
    pub fn broke_off(&mut self) {
        self.reply().ended = false;
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.client_waits(false);
        let number = self.watched.reply_ended();
        let Some(reply) = self.reply.take() else { return };
        match &self.unflushed {
            Some(unflushed) if reply.ended => unflushed.0.borrow_mut().push_back((number, reply)),
            _ => reply.write_down(),
        }
    }
}
