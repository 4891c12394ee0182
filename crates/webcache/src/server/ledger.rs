//! One request's entry in counters and log, made when its reply has ended, however it ended.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::connection::Since;
use super::counters::Outcome;
use super::exchange::Client;
use super::sentry::Watched;
use super::worker::Worker;
use crate::config::Choice;
use crate::log::{Entry, Way};

/// Written down when it is dropped.
pub struct Ledger {
    worker: Rc<Worker>,
    watched: Arc<Watched>,
    stream: Option<Since>,
    began: Instant,
    outcome: Outcome,
    sent_bytes: u64,
    ended: bool,
    /// Whether the client waits for us, and not we for it to take what there is.
    waiting: bool,
    entry: Option<Box<Entry>>,
    /// The parent that said it has what is asked for.
    has_it: Option<String>,
}

impl Ledger {
    /// Of a request whose head came at `began`.
    pub fn new(worker: Rc<Worker>, client: &Client, began: Instant, entry: Option<Box<Entry>>) -> Self {
        let (watched, stream) = (Arc::clone(&client.watched), client.stream.clone());
        watched.waiting.fetch_add(1, Ordering::Relaxed);
        watched.progress.fetch_add(1, Ordering::Relaxed);
        let (outcome, sent_bytes) = (Outcome::Failed, 0);
        Self {
            worker,
            watched,
            stream,
            began,
            outcome,
            sent_bytes,
            ended: false,
            waiting: true,
            entry,
            has_it: None,
        }
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
        self.outcome = outcome;
        if let Some(entry) = &mut self.entry {
            entry.status = status;
            entry.content_type =
                content_type.and_then(|value| value.to_str().ok()).map_or_else(String::new, str::to_owned);
        }
    }

    /// Who was asked: a parent, or the origin itself.
    pub fn asked(&mut self, host: &str, is_parent: bool) {
        if self.entry.is_some() {
            let way = match self.worker.config().parent_choice {
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
        if let Some(entry) = &mut self.entry {
            entry.origin = Some((way, host.to_owned()));
        }
    }

    /// A parent that said it has what is asked for.
    pub fn has_it(&mut self, host: &str) {
        self.has_it = Some(host.to_owned());
    }

    /// Body bytes given to the connection.
    pub fn sent(&mut self, bytes: u64) {
        self.sent_bytes += bytes;
    }

    /// The body is whole.
    pub fn finished(&mut self) {
        self.ended = true;
    }

    /// The body broke off.
    pub fn broke_off(&mut self) {
        self.ended = false;
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.client_waits(false);
        self.watched.busy.fetch_sub(1, Ordering::Relaxed);
        let took = self.began.elapsed();
        let counters = &self.worker.counters;
        counters.reply(self.outcome, self.sent_bytes, took);
        if !self.ended {
            counters.aborted_replies.add(1);
        }
        if let Some(mut entry) = self.entry.take() {
            entry.sent_bytes = self.sent_bytes;
            entry.took = took;
            entry.outcome = self.outcome;
            entry.aborted = !self.ended;
            self.worker.log(&entry);
        }
    }
}
