//! The proxy: event loops, each with its own sockets, upstream connections and counters, on one store.
//!
//! ```text
//! client: listener ─> connection (request_guard ─ hyper) ─> parsed_request
//!                        │
//!         answer: handler ─ driver ─┬─> stored   from the object cache
//!                                   ├─> fetch    from upstream: streaming_reply ─ body_relay ─> readers, store writers
//!                                   │     └─ peers: ICP queries to other caches, and answers to theirs
//!                                   └─> tunnel   CONNECT, upgrades
//! ```
//!
//! Always holds: an event loop never waits for another loop or for a disk write and, where the kernel has io_uring, never for the
//! read of a look-up.
//! Not here: flags and signals (`crumb`), the rules of HTTP (`http-cache-rules`).

mod admission_filter;
mod answer;
mod bans;
pub(crate) mod client;
mod counters;
mod fetch;
mod peers;
pub(crate) mod prefetch;
mod tls;
mod upstream;
mod worker;

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use http_cache_rules::WallSeconds;
use packstore::Store;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;

pub(crate) use answer::handler::purge;
pub use bans::Banned;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use bans::Bans;
pub(crate) use bans::StoredAt;
pub use client::parsed_request::Side;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use client::reply_body::ReplyBody;
pub use counters::{Counters, LATENCY_STEPS, Latencies, Outcome, Shown, latency_bound};
pub(crate) use fetch::body_relay::WHOLE_BODY_BYTES_MAX;
pub use worker::{Reloadable, Shared};
pub(crate) use worker::{Stage, now};

use self::client::listener::Listener;
use self::upstream::Pool;
use self::worker::Worker;
use crate::config::Config;
use crate::error::WebcacheError;
use crate::log::LogWriter;
use crate::object_cache::ObjectCache;

/// A running proxy.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    addresses: Vec<(SocketAddr, Side)>,
    admin: Option<SocketAddr>,
    icp: Option<SocketAddr>,
    /// The configuration at the start: what needs a restart is still as it says.
    started: Arc<Config>,
    /// Its name in Via if the operator configured none.
    own_name: String,
    /// Logs from before a reload that a loop may still use. They are closed here, so that no loop waits for their last lines.
    old_logs: Mutex<Vec<Arc<LogWriter>>>,
}

/// Event loops per CPU where a loop blocks while an object is read that is not in the page cache. Otherwise one per CPU suffices, and
/// gets more work done per wake-up.
const WAITING_LOOPS_PER_CPU: usize = 4;

impl Server {
    /// Starts on an open store.
    ///
    /// # Errors
    /// When an address cannot be bound, or a file cannot be used.
    pub fn start(mut config: Config, store: Arc<Store>) -> Result<Self, WebcacheError> {
        let own_name = own_name(&config.proxy.name);
        name_in_via(&mut config, &own_name);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let reads_in_time = sys::Reads::are_possible();
        if !reads_in_time {
            tracing::info!(
                "no io_uring for this process: while an object is read from a disk, its loop waits"
            );
        }
        let loops = match config.proxy.loops {
            0 if reads_in_time => cpus,
            0 => cpus * WAITING_LOOPS_PER_CPU,
            said => said,
        };
        let tls = start_tls(&config)?;
        let tls_client = tls::client();
        let mut listeners = Vec::new();
        let sides = [
            (&config.forward.listen, Side::Forward),
            (&config.reverse.listen, Side::Reverse { tls: false }),
            (&config.reverse.listen_tls, Side::Reverse { tls: true }),
        ];
        let all: Vec<SocketAddr> =
            sides.iter().flat_map(|(addresses, _)| *addresses).copied().chain(config.admin.listen).collect();
        for (addresses, side) in sides {
            for &address in addresses {
                let listener = Listener::open(address, side, loops, &all);
                listeners.push(listener.map_err(|source| WebcacheError::Listen { address, source })?);
            }
        }
        let admin = match config.admin.listen {
            None => None,
            Some(address) => {
                let listener = Listener::open(address, Side::Forward, 1, &all);
                Some(listener.map_err(|source| WebcacheError::Listen { address, source })?)
            }
        };
        let icp = match config.icp.listen {
            None => None,
            Some(address) => Some(
                peers::answering::open(address)
                    .map_err(|source| WebcacheError::Listen { address, source })?,
            ),
        };
        let log = start_log(&config)?;
        let file = config.cache.directories.first().map(|directory| directory.join("bans"));
        let named = file.as_ref().map_or_else(String::new, |file| file.display().to_string());
        // Clients wait in the sockets' accept queues meanwhile, so that stored replies are not fetched again.
        if !store.wait_until_ready(config.cache.rebuild_wait) {
            tracing::info!("what the store holds is not all known yet; until then it is fetched again");
        }
        let usage = store.usage();
        let before = usage.ready.then(|| store.next_sequence());
        let bans = bans::Bans::read(file, !usage.ready || usage.objects > 0, now(), before)
            .map_err(|source| WebcacheError::Bans { file: named, source })?;
        let object_cache = ObjectCache::new(store, config.cache.writers, config.writers_behind_bytes())?;
        let own: Arc<[SocketAddr]> =
            listeners.iter().chain(&admin).map(|listener| listener.address).collect();
        let started = Arc::new(config);
        let reloadable = Reloadable { config: Arc::clone(&started), log: log.map(Arc::new), tls };
        let shared = Arc::new(Shared::new(Arc::new(object_cache), bans, loops, reloadable));
        let addresses = listeners.iter().map(|listener| (listener.address, listener.side)).collect();
        let mut threads = Vec::new();
        for number in 0..loops {
            let sockets: Vec<_> = listeners
                .iter_mut()
                .filter_map(|listener| listener.sockets.pop().map(|socket| (socket, listener.side)))
                .collect();
            let (shared, tls_client, own) = (Arc::clone(&shared), Arc::clone(&tls_client), Arc::clone(&own));
            threads.push(event_loop(format!("loop-{number}"), move || async move {
                let pool = Pool::new(tls_client, Arc::clone(&shared.counters[number]), own);
                let worker = Worker::new(shared, number, pool);
                for (socket, side) in sockets {
                    tokio::task::spawn_local(client::listener::accept(
                        std::rc::Rc::clone(&worker),
                        socket,
                        side,
                    ));
                }
                tokio::task::spawn_local(upstream::health::probe_origins(std::rc::Rc::clone(&worker)));
                until_done(&worker).await;
            })?);
        }
        let admin = match admin {
            None => None,
            Some(mut listener) => {
                let address = listener.address;
                let socket = listener.sockets.pop();
                let shared = Arc::clone(&shared);
                threads.push(event_loop("admin".to_owned(), move || crate::admin::serve(shared, socket))?);
                Some(address)
            }
        };
        let icp = match icp {
            None => None,
            Some((socket, address)) => {
                let (shared, counters) = (Arc::clone(&shared), Arc::clone(&shared.counters[loops + 1]));
                let answer = move || peers::answering::answer(shared, counters, socket);
                threads.push(event_loop("icp".to_owned(), answer)?);
                Some(address)
            }
        };
        let old_logs = Mutex::default();
        Ok(Self { shared, threads, addresses, admin, icp, started, own_name, old_logs })
    }

    /// The listening addresses.
    pub fn addresses(&self) -> &[(SocketAddr, Side)] {
        &self.addresses
    }

    /// The address of the administration.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The UDP address for ICP queries.
    pub fn icp_address(&self) -> Option<SocketAddr> {
        self.icp
    }

    /// What all loops share: figures, bans, configuration.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Applies a new configuration and reads certificate and key again; connections continue. Returns the keys whose change needs a
    /// restart.
    ///
    /// # Errors
    /// When the new log cannot be opened, or the TLS files cannot be used: then nothing changes.
    pub fn reload(&self, mut config: Config) -> Result<Vec<&'static str>, WebcacheError> {
        let Reloadable { config: old, log, tls } = self.shared.reloadable().as_ref().clone();
        // TLS listeners stay open until the next start, and need an acceptor.
        let tls = start_tls(&config)?.or(tls);
        let kept = config.needing_restart(&self.started);
        config.listen_as(&old);
        name_in_via(&mut config, &self.own_name);
        let log = match (log, old.log.file == config.log.file) {
            (Some(log), true) => {
                log.reopen(config.log.rotate_bytes, config.log.keep);
                Some(log)
            }
            (log, _) => {
                let new = start_log(&config)?.map(Arc::new);
                let mut old_logs = self.old_logs.lock().unwrap_or_else(PoisonError::into_inner);
                old_logs.retain(|log| Arc::strong_count(log) > 1);
                old_logs.extend(log);
                new
            }
        };
        self.shared.reload(Reloadable { config: Arc::new(config), log, tls });
        Ok(kept)
    }

    /// Stops accepting connections, lets those in progress end within `proxy.drain_s`, writes the rest of the log, and returns the store.
    pub fn stop(self) -> Option<Arc<Store>> {
        let drain = self.shared.config().proxy.drain;
        let began = Instant::now();
        self.shared.stage.send_replace(Stage::Draining);
        while began.elapsed() < drain && !self.threads.iter().all(JoinHandle::is_finished) {
            // Loops do not signal their end, and this happens once in the proxy's life.
            std::thread::park_timeout(Duration::from_millis(10));
        }
        self.shared.stage.send_replace(Stage::Cut);
        for thread in self.threads {
            let _ = thread.join();
        }
        self.shared.reload(Reloadable { log: None, ..self.shared.reloadable().as_ref().clone() });
        let shared = Arc::try_unwrap(self.shared).ok()?;
        Arc::try_unwrap(shared.object_cache).ok().map(ObjectCache::close)
    }
}

/// Bans matching replies stored until now.
///
/// # Errors
/// When the ban cannot be written to its file.
pub fn ban(shared: &Shared, banned: Banned, at: WallSeconds) -> io::Result<()> {
    let store = shared.object_cache.store();
    // While the store does not know yet what it holds it has no number, and takes nothing: the time decides.
    let before = if store.usage().ready { store.next_sequence() } else { 0 };
    shared.bans.add(banned, at, before)
}

/// A name that no other proxy has, so that another proxy with the same default name does not look like a loop.
fn own_name(name: &str) -> String {
    // Each `RandomState` is seeded from the kernel's random numbers.
    let number = RandomState::new().hash_one(name);
    format!("{name}-{:08x}", number as u32)
}

fn name_in_via(config: &mut Config, own_name: &str) {
    if config.via.is_empty() {
        own_name.clone_into(&mut config.via);
    }
}

fn start_tls(config: &Config) -> Result<Option<TlsAcceptor>, WebcacheError> {
    (!config.reverse.listen_tls.is_empty()).then(|| tls::acceptor(config)).transpose()
}

fn start_log(config: &Config) -> Result<Option<LogWriter>, WebcacheError> {
    let start = |file: &PathBuf| LogWriter::start(file, config.log.rotate_bytes, config.log.keep);
    config.log.file.as_ref().map(start).transpose()
}

/// Starts a thread with an event loop of its own.
fn event_loop<F: Future<Output = ()>>(
    name: String,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<JoinHandle<()>, WebcacheError> {
    let failed = |source| WebcacheError::Thread { name: name.clone(), source };
    // Built here, so that a failure is an error of the start.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let run = move || {
        LocalSet::new().block_on(&runtime, work());
        // Do not wait for a store read in progress.
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name(name.clone()).spawn(run).map_err(failed)
}

/// Waits until the proxy drains and this loop has nothing left to do, or until the cut.
async fn until_done(worker: &Worker) {
    let mut stage = worker.shared.stage.subscribe();
    let mut sweep = tokio::time::interval(Duration::from_secs(5));
    loop {
        tokio::select! {
            _ = sweep.tick() => worker.pool.sweep(&worker.config()),
            draining = stage.wait_for(|stage| *stage >= Stage::Draining) => {
                if draining.is_err() {
                    return;
                }
                break;
            }
        }
    }
    let mut look = tokio::time::interval(Duration::from_millis(5));
    while worker.busy.get() > 0 && *stage.borrow() < Stage::Cut {
        look.tick().await;
    }
}
