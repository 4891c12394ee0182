//! Prefetches the objects that a page embeds as soon as the page is stored.
//!
//! ```text
//! page stored ─ page::embedded, on a blocking thread ─> bounded queue ─> bounded slots ─ not stored? ─> fetch ─> store
//! first hit of a prefetched object ─> counted as used
//! ```
//!
//! Always holds: off by default. A prefetch obeys the access rules of the page's client, but carries none of the client's cookies
//! and credentials. Prefetched pages are not scanned in turn. A request waits for a prefetch only if it wants the same object. At
//! most `prefetch.in_flight_max` run at a time, and a few times as many wait.
//! Locks: `Prefetches::unused`, a leaf.
//! Compare: Wcol, by Chinen and Yamaguchi, "An interactive prefetching proxy server for improvement of WWW latency", INET 1997.

pub(crate) mod page;

use std::collections::HashSet;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    USER_AGENT,
};
use http::{Method, Request, StatusCode, Uri};
use http_cache_rules::key::CacheKey;
use http_cache_rules::lists::all_members;
use http_cache_rules::reuse::ForwardReason;
use tokio::sync::Semaphore;
use xxhash_rust::xxh3::xxh3_64;

use crate::config::Config;
use crate::server::answer::driver::{LookUpAt, Lookup};
use crate::server::answer::handler::RequestHandler;
use crate::server::client::parsed_request::{ParsedRequest, Side};
use crate::server::fetch::collapsing::JoinResult;
use crate::server::worker::{Stage, Worker};

/// Marks the request as a prefetch for origins (the Fetch standard).
const SEC_PURPOSE: HeaderName = HeaderName::from_static("sec-purpose");
/// URIs that may wait, per slot.
const WAITING_PER_SLOT: usize = 16;
/// Prefetched objects remembered as unused. When the set is full it is cleared, so that fewer are counted as used.
const UNUSED_MAX: usize = 1 << 16;

/// The prefetches of all loops.
pub struct Prefetches {
    slots: Semaphore,
    waiting: AtomicUsize,
    waiting_max: usize,
    /// Hashes of the keys of objects that no client has requested yet.
    unused: Mutex<HashSet<u64>>,
    unused_count: AtomicUsize,
}

impl Prefetches {
    /// With this many slots.
    pub fn new(in_flight_max: usize) -> Self {
        Self {
            slots: Semaphore::new(in_flight_max.min(Semaphore::MAX_PERMITS)),
            waiting: AtomicUsize::new(0),
            waiting_max: in_flight_max.saturating_mul(WAITING_PER_SLOT),
            unused: Mutex::default(),
            unused_count: AtomicUsize::new(0),
        }
    }

    fn change<T>(&self, key: &CacheKey, change: impl FnOnce(&mut HashSet<u64>, u64) -> T) -> T {
        let mut unused = self.unused.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut unused, xxh3_64(key.as_str().as_bytes()));
        self.unused_count.store(unused.len(), Ordering::Relaxed);
        changed
    }

    fn note(&self, key: &CacheKey) {
        self.change(key, |unused, hash| {
            if unused.len() >= UNUSED_MAX {
                unused.clear();
            }
            unused.insert(hash);
        });
    }

    /// Whether a requested object was prefetched and is used for the first time.
    pub fn is_first_use(&self, key: &CacheKey) -> bool {
        self.unused_count.load(Ordering::Relaxed) > 0 && self.change(key, |unused, hash| unused.remove(&hash))
    }
}

/// A page that is being stored, with what its embedded objects are requested with.
pub struct Page {
    worker: Rc<Worker>,
    config: Arc<Config>,
    target: Uri,
    side: Side,
    client: IpAddr,
    fields: HeaderMap,
    gzip: bool,
}

impl RequestHandler {
    /// The page that a reply to this request is, if its embedded objects are to be prefetched.
    pub(super) fn page(&self, status: StatusCode, reply: &HeaderMap) -> Option<Page> {
        let is_html = || {
            let kind = reply.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
            let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
            kind.eq_ignore_ascii_case(b"text/html")
        };
        let wanted = self.config().prefetch.enabled
            && !self.is_prefetch()
            && self.parsed().method == Method::GET
            && status == StatusCode::OK
            && is_html();
        let mut codings = all_members(reply, &CONTENT_ENCODING);
        let gzip = match (codings.next(), codings.next()) {
            (None, _) => false,
            (Some(one), None) if one.eq_ignore_ascii_case(b"gzip") || one.eq_ignore_ascii_case(b"x-gzip") => {
                true
            }
            _ => return None,
        };
        wanted.then(|| {
            // As the client's own requests will be, so that they match the same variant.
            let mut fields = HeaderMap::new();
            for name in [ACCEPT_ENCODING, ACCEPT_LANGUAGE, USER_AGENT] {
                for value in self.parsed().headers.get_all(&name) {
                    fields.append(name.clone(), value.clone());
                }
            }
            fields.insert(SEC_PURPOSE, HeaderValue::from_static("prefetch"));
            Page {
                worker: Rc::clone(self.worker()),
                config: Arc::clone(self.config()),
                target: self.parsed().target.clone(),
                side: self.side(),
                client: self.client(),
                fields,
                gzip,
            }
        })
    }

    /// Fetches the object into the store, unless it is there or being fetched.
    async fn prefetch(self) {
        let worker = Rc::clone(self.worker());
        if matches!(self.look_up(LookUpAt::BeforePrefetch).await, Lookup::Reply(_)) {
            return;
        }
        let JoinResult::Lead(guard) = worker.shared.collapse_table.join(&self.parsed().key) else { return };
        if matches!(self.look_up(LookUpAt::AfterWinning).await, Lookup::Reply(_)) {
            return guard.in_store();
        }
        let key = self.parsed().key.clone();
        let prefetches = &worker.shared.prefetches;
        // Note it first: a client may join the fetch.
        prefetches.note(&key);
        let bytes_max = self.config().prefetch.object_bytes_max;
        match self.refetch(guard, ForwardReason::UriMiss, bytes_max).await {
            Some(bytes) => {
                worker.counters.prefetched.add(1);
                worker.counters.prefetched_bytes.add(bytes);
            }
            None => {
                worker.counters.prefetch_failed.add(1);
                prefetches.change(&key, |unused, hash| unused.remove(&hash));
            }
        }
    }
}

impl Page {
    /// The longest page that is scanned, in bytes.
    pub fn bytes_max(&self) -> u64 {
        self.config.prefetch.page_bytes_max
    }

    /// Prefetches the embedded objects in the background.
    pub fn fetch_embedded(self, body: Vec<Bytes>) {
        tokio::task::spawn_local(async move {
            let (target, hosts, objects_max) =
                (self.target.clone(), self.config.prefetch.hosts, self.config.prefetch.page_objects_max);
            let gzip = self.gzip;
            let look = move || {
                let body = body.concat();
                let html = if gzip { page::inflated(&body) } else { body };
                page::embedded(&html, &target, hosts, objects_max)
            };
            // Takes milliseconds, which would delay everything else on the loop.
            let Ok(found) = tokio::task::spawn_blocking(look).await else { return };
            let page = Rc::new(self);
            for uri in found {
                let prefetches = &page.worker.shared.prefetches;
                if prefetches.waiting.fetch_add(1, Ordering::Relaxed) >= prefetches.waiting_max {
                    prefetches.waiting.fetch_sub(1, Ordering::Relaxed);
                    page.worker.counters.prefetch_dropped.add(1);
                    continue;
                }
                tokio::task::spawn_local(Rc::clone(&page).fetch(uri));
            }
        });
    }

    async fn fetch(self: Rc<Self>, uri: Uri) {
        let shared = &self.worker.shared;
        let slot = shared.prefetches.slots.acquire().await;
        shared.prefetches.waiting.fetch_sub(1, Ordering::Relaxed);
        let mut request = Request::new(());
        *request.uri_mut() = uri;
        *request.headers_mut() = self.fields.clone();
        if *shared.stage.borrow() >= Stage::Draining {
            return;
        }
        // The access rules apply to prefetches too.
        let Ok(parsed) = ParsedRequest::read(request.into_parts().0, self.side, &self.config) else { return };
        let handler = RequestHandler::for_prefetch(
            Rc::clone(&self.worker),
            Arc::clone(&self.config),
            parsed,
            self.client,
            self.side,
        );
        handler.prefetch().await;
        drop(slot);
    }
}
