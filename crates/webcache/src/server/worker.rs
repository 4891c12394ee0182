//! What all event loops share, and what each has for itself.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwap, Cache};
use http_cache_rules::WallSeconds;
use sys::Reads;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::config::Config;
use crate::log::{Entry, LogWriter, Throttle};
use crate::object_cache::ObjectCache;
use crate::server::admission_filter::AdmissionFilter;
use crate::server::bans::Bans;
use crate::server::counters::Counters;
use crate::server::fetch::collapsing::CollapseTable;
use crate::server::peers::neighbours::{IcpClient, Neighbours};
use crate::server::prefetch::Prefetches;
use crate::server::upstream::Pool;

/// The stages of the proxy's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Accepts connections.
    Serving,
    /// Accepts none; existing ones end after their next reply.
    Draining,
    /// Drops everything that is left.
    Cut,
}

/// What all loops share.
pub struct Shared {
    /// The object cache.
    pub object_cache: Arc<ObjectCache>,
    /// Fetches in progress.
    pub collapse_table: Arc<CollapseTable>,
    /// Bans by prefix or tag.
    pub bans: Bans,
    /// Recently requested URIs, for admission.
    pub admission_filter: AdmissionFilter,
    /// One per loop, then one each for the administration and ICP.
    pub counters: Vec<Arc<Counters>>,
    /// The current stage.
    pub stage: watch::Sender<Stage>,
    /// When the proxy started.
    pub began: Instant,
    /// Counts clients' connections.
    pub clients: Clients,
    /// Caches that are queried by ICP.
    pub neighbours: Arc<Neighbours>,
    /// Prefetches in progress.
    pub prefetches: Prefetches,
    /// Messages about origins of sites that gave no reply.
    pub upstream_failures: Throttle,
    reloadable: Arc<ArcSwap<Reloadable>>,
}

/// Threads beside the loops that have counters.
const BESIDE_LOOPS: usize = 2;

/// What a reload replaces, all at once.
#[derive(Clone)]
pub struct Reloadable {
    /// The configuration.
    pub config: Arc<Config>,
    /// The access log.
    pub log: Option<Arc<LogWriter>>,
    /// Certificate and key for clients.
    pub tls: Option<TlsAcceptor>,
}

impl Shared {
    pub(super) fn new(
        object_cache: Arc<ObjectCache>,
        bans: Bans,
        loops: usize,
        reloadable: Reloadable,
    ) -> Self {
        let prefetches = Prefetches::new(reloadable.config.prefetch.in_flight_max);
        Self {
            object_cache,
            collapse_table: CollapseTable::new(),
            bans,
            admission_filter: AdmissionFilter::default(),
            counters: (0..loops + BESIDE_LOOPS).map(|_| Arc::default()).collect(),
            stage: watch::Sender::new(Stage::Serving),
            began: Instant::now(),
            clients: Clients::default(),
            neighbours: Arc::default(),
            prefetches,
            upstream_failures: Throttle::default(),
            reloadable: Arc::new(ArcSwap::from_pointee(reloadable)),
        }
    }

    /// What is in use now.
    pub fn reloadable(&self) -> Arc<Reloadable> {
        self.reloadable.load_full()
    }

    /// The current configuration.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.reloadable.load().config)
    }

    /// Replaces it for all later requests and connections.
    pub fn reload(&self, reloadable: Reloadable) {
        self.reloadable.store(Arc::new(reloadable));
    }
}

/// Counts connections, in total and per address.
#[derive(Default)]
pub struct Clients {
    all: AtomicUsize,
    each: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection that is counted until it is dropped.
pub struct Admitted {
    shared: Arc<Shared>,
    address: Option<IpAddr>,
}

impl Clients {
    /// How many connections there are.
    pub fn count(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }
}

impl Admitted {
    /// Counts a connection, unless a limit is reached.
    pub fn new(shared: &Arc<Shared>, address: IpAddr, config: &Config) -> Option<Self> {
        let mut admitted = Self { shared: Arc::clone(shared), address: None };
        let before = shared.clients.all.fetch_add(1, Ordering::Relaxed);
        if before >= config.limits.connections_max {
            return None;
        }
        if config.limits.connections_per_client_max < usize::MAX {
            let mut each = shared.clients.each.lock().unwrap_or_else(PoisonError::into_inner);
            let count = each.entry(address).or_default();
            if *count >= config.limits.connections_per_client_max {
                return None;
            }
            *count += 1;
            admitted.address = Some(address);
        }
        Some(admitted)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let clients = &self.shared.clients;
        clients.all.fetch_sub(1, Ordering::Relaxed);
        if let Some(address) = self.address {
            let mut each = clients.each.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = each.get_mut(&address) {
                *count -= 1;
                if *count == 0 {
                    each.remove(&address);
                }
            }
        }
    }
}

/// One event loop.
pub struct Worker {
    /// Shared with the other loops.
    pub shared: Arc<Shared>,
    /// The loop's counters.
    pub counters: Arc<Counters>,
    /// The loop's upstream connections.
    pub pool: Rc<Pool>,
    /// Asynchronous reads, where the kernel has io_uring.
    pub reads: Option<Rc<Reads>>,
    /// The loop's ICP queries.
    pub icp_client: Rc<IcpClient>,
    /// Connections, fetches and health checks that must end before the loop does.
    pub busy: Cell<usize>,
    /// Costs a look-up one relaxed load while nothing was reloaded.
    reloadable: RefCell<Cache<Arc<ArcSwap<Reloadable>>, Arc<Reloadable>>>,
    next_id: Cell<u64>,
    next_origin: Cell<usize>,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, number: usize, pool: Rc<Pool>) -> Rc<Self> {
        let counters = Arc::clone(&shared.counters[number]);
        let reloadable = RefCell::new(Cache::new(Arc::clone(&shared.reloadable)));
        // Request ids of different loops and starts differ in their high bits.
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let first = xxhash_rust::xxh3::xxh3_64(&[seed.to_le_bytes(), (number as u64).to_le_bytes()].concat());
        let icp_client = IcpClient::new(Arc::clone(&shared.neighbours), Arc::clone(&counters));
        Rc::new(Self {
            shared,
            counters,
            pool,
            reads: Reads::start(),
            icp_client,
            busy: Cell::new(0),
            reloadable,
            next_id: Cell::new(first),
            next_origin: Cell::new(0),
        })
    }

    /// The current configuration.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.reloadable.borrow_mut().load().config)
    }

    /// The current certificate and key.
    pub fn tls(&self) -> Option<TlsAcceptor> {
        self.reloadable.borrow_mut().load().tls.clone()
    }

    /// Whether requests are logged.
    pub fn logs(&self) -> bool {
        self.reloadable.borrow_mut().load().log.is_some()
    }

    /// Writes a line to the access log.
    pub fn log(&self, entry: &Entry) {
        let mut reloadable = self.reloadable.borrow_mut();
        let Reloadable { config, log, .. } = &**reloadable.load();
        if let Some(log) = log
            && !log.write(entry.line(config.log.format))
        {
            self.counters.log_lines_lost.add(1);
        }
    }

    /// The id of a new request.
    pub fn request_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id.wrapping_add(1));
        id
    }

    /// A number that grows with each call, to rotate through the origins of a site.
    pub fn next_origin_index(&self) -> usize {
        let next_origin_index = self.next_origin.get();
        self.next_origin.set(next_origin_index.wrapping_add(1));
        next_origin_index
    }
}

/// Keeps a loop from ending.
pub struct Busy(Rc<Worker>);

impl Busy {
    /// Until it is dropped.
    pub fn new(worker: &Rc<Worker>) -> Self {
        worker.busy.set(worker.busy.get() + 1);
        Self(Rc::clone(worker))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.set(self.0.busy.get() - 1);
    }
}

/// The wall clock.
pub fn now() -> WallSeconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    WallSeconds(since.map_or(0, |since| since.as_secs() as i64))
}
