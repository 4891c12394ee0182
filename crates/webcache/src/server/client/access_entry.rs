//! The access-log entry of one request, with its counters. It is recorded when the reply has ended, in whatever way.
//!
//! ```text
//! AccessEntry, dropped when hyper has the whole reply ─┬─ HTTP/1: Unflushed, until the socket was flushed ─> counters, log
//!                                                      └─ aborted, HTTP/2, tunnels ───────────────────────> counters, log
//! ```
//!
//! Always holds: a reply by HTTP/1 counts as sent when it has left for the client, not when hyper has taken it. What has not left
//! when the connection ends counts as aborted. With HTTP/2 only hyper knows when a stream's last frame leaves, and it does not
//! report that.
//! Not here: how the request keeps its connection from being ended (`request_count`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::config::Choice;
use crate::log::{Entry, Way};
use crate::server::answer::handler::Client;
use crate::server::client::request_count::RequestCount;
use crate::server::client::request_guard::ConnectionState;
use crate::server::counters::Outcome;
use crate::server::worker::Worker;

/// Recorded when it is dropped, or for HTTP/1 when its reply has left.
pub struct AccessEntry {
    count: RequestCount,
    /// `None` where no flush shows when the reply has left.
    unflushed: Option<Rc<Unflushed>>,
    /// The parent that answered an ICP query with a hit.
    icp_hit: Option<String>,
    /// Taken on drop.
    record: Option<Record>,
}

/// What is recorded about a reply.
struct Record {
    worker: Rc<Worker>,
    began: Instant,
    outcome: Outcome,
    sent_bytes: u64,
    ended: bool,
    entry: Option<Box<Entry>>,
}

impl Record {
    /// Updates the counters and writes the log line.
    fn record(self) {
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

/// Replies of one connection that hyper has taken completely and that have not left yet.
#[derive(Default)]
pub struct Unflushed(RefCell<VecDeque<(u64, Record)>>);

impl Unflushed {
    /// Records the replies that have left.
    pub fn record(&self, conn_state: &ConnectionState) {
        let flushed = conn_state.flushed.load(Ordering::Relaxed);
        loop {
            let left = self.0.borrow_mut().pop_front_if(|(number, _)| *number <= flushed);
            let Some((_, reply)) = left else { return };
            reply.record();
        }
    }

    /// At the end of the connection: records the others as aborted, as they can no longer leave.
    pub fn record_rest(&self, conn_state: &ConnectionState) {
        self.record(conn_state);
        for (_, reply) in self.0.take() {
            Record { ended: false, ..reply }.record();
        }
    }
}

impl AccessEntry {
    /// For a request whose head arrived at `began`.
    pub fn new(worker: Rc<Worker>, client: &Client, began: Instant, entry: Option<Box<Entry>>) -> Self {
        let count = RequestCount::new(Arc::clone(&client.conn_state), client.stream.clone());
        let unflushed = client.stream.is_none().then(|| Rc::clone(&client.unflushed));
        let record = Record { worker, began, outcome: Outcome::Failed, sent_bytes: 0, ended: false, entry };
        Self { count, unflushed, icp_hit: None, record: Some(record) }
    }

    fn record_mut(&mut self) -> &mut Record {
        self.record.as_mut().expect("it is taken by drop alone")
    }

    /// For a tunnel, which outlives hyper's connection: record it on drop, without waiting for a flush.
    pub fn record_when_dropped(&mut self) {
        self.unflushed = None;
    }

    /// The request as its connection counts it.
    pub fn count_mut(&mut self) -> &mut RequestCount {
        &mut self.count
    }

    /// Sets how the request was answered.
    pub fn set_reply(&mut self, outcome: Outcome, status: u16, content_type: Option<&http::HeaderValue>) {
        let record = self.record_mut();
        record.outcome = outcome;
        if let Some(entry) = &mut record.entry {
            entry.status = status;
            entry.content_type =
                content_type.and_then(|value| value.to_str().ok()).map_or_else(String::new, str::to_owned);
        }
    }

    /// Sets the upstream: a parent, or the origin itself.
    pub fn set_upstream(&mut self, host: &str, is_parent: bool) {
        if self.record_mut().entry.is_some() {
            let way = match self.record_mut().worker.config().parent_use.choose {
                _ if !is_parent => Way::Direct,
                _ if self.icp_hit.as_deref() == Some(host) => Way::ParentHit,
                Choice::Failover => Way::FirstParent,
                Choice::Hash => Way::HashedParent,
            };
            self.set_upstream_via(host, way);
        }
    }

    /// Sets the upstream, and why it was chosen.
    pub fn set_upstream_via(&mut self, host: &str, way: Way) {
        if let Some(entry) = &mut self.record_mut().entry {
            entry.origin = Some((way, host.to_owned()));
        }
    }

    /// Notes the parent that answered an ICP query with a hit.
    pub fn set_icp_hit(&mut self, host: &str) {
        self.icp_hit = Some(host.to_owned());
    }

    /// Adds body bytes that the connection has taken.
    pub fn add_sent_bytes(&mut self, bytes: u64) {
        self.record_mut().sent_bytes += bytes;
    }

    /// The body is complete.
    pub fn set_complete(&mut self) {
        self.record_mut().ended = true;
    }

    /// The body broke off.
    pub fn set_aborted(&mut self) {
        self.record_mut().ended = false;
    }
}

impl Drop for AccessEntry {
    fn drop(&mut self) {
        let number = self.count.end();
        let Some(record) = self.record.take() else { return };
        match &self.unflushed {
            Some(unflushed) if record.ended => unflushed.0.borrow_mut().push_back((number, record)),
            _ => record.record(),
        }
    }
}
