//! The proxy: event loops, each with its own sockets, connections to origins and counters; one store.
//!
//! ```text
//! listener ─> connection (sentry ─ hyper) ─> exchange ─┬─> hit      from the store
//!                                                      ├─> fetch    from the origin: fill ─ pump ─> readers, clerks
//!                                                      └─> tunnel   CONNECT
//! ```
//!
//! Always holds: a loop waits for no other loop and for no disk that writes; reading the store is a pread in the loop,
//! which is why there are several loops a processor.
//! Not here: flags and signals (`crumb`), rules of HTTP (`rules`).

mod asked;
mod bans;
mod body;
mod chunks;
mod connection;
mod counters;
mod exchange;
mod fetch;
mod fill;
mod flights;
mod hashing;
mod health;
mod hit;
mod ledger;
mod listener;
mod pump;
mod reply;
mod seen;
mod sentry;
mod tls;
mod tunnel;
mod upstream;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use packstore::Store;
use tokio::task::LocalSet;

pub use asked::Side;
pub use bans::Banned;
pub use counters::{Counters, LATENCY_STEPS, Latencies, Outcome, latency_bound};
pub(crate) use exchange::purge;
pub use worker::Shared;
pub(crate) use worker::{Stage, now};

use self::listener::Door;
use self::upstream::Pool;
use self::worker::Worker;
use crate::config::Config;
use crate::log::{LogError, LogWriter};
use crate::rules::WallSeconds;
use crate::shelf::Shelf;

/// The proxy cannot start, or cannot take a new configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// An address cannot be listened at.
    #[error("{address}: cannot be listened at; is another program there?")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// No thread.
    #[error("a thread cannot be started")]
    Thread(#[source] io::Error),
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Certificate or key.
    #[error("{file}: {what}")]
    Tls {
        /// Which file.
        file: String,
        /// What is wrong with it.
        what: String,
    },
}

/// A proxy at work.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    addresses: Vec<(SocketAddr, Side)>,
    admin: Option<SocketAddr>,
}

/// Event loops a processor, when none is said: one may wait for a disk while the others go on.
const LOOPS_PER_CPU: usize = 4;

impl Server {
    /// Starts on an open store.
    ///
    /// # Errors
    /// When an address is taken, or a file cannot be used.
    pub fn start(config: Config, store: Arc<Store>) -> Result<Self, ServerError> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let loops = if config.loops == 0 { cpus * LOOPS_PER_CPU } else { config.loops };
        let tls_server = match config.reverse_listen_tls.is_empty() {
            true => None,
            false => Some(tls::acceptor(&config)?),
        };
        let tls_client = tls::client();
        let mut doors = Vec::new();
        let sides = [
            (&config.forward_listen, Side::Forward),
            (&config.reverse_listen, Side::Reverse { tls: false }),
            (&config.reverse_listen_tls, Side::Reverse { tls: true }),
        ];
        for (addresses, side) in sides {
            for &address in addresses {
                let door = Door::open(address, side, loops);
                doors.push(door.map_err(|source| ServerError::Listen { address, source })?);
            }
        }
        let admin = match config.admin_listen {
            None => None,
            Some(address) => {
                let door = Door::open(address, Side::Forward, 1);
                Some(door.map_err(|source| ServerError::Listen { address, source })?)
            }
        };
        let log = start_log(&config)?;
        let bans = bans::Bans::read(config.directories.first().map(|directory| directory.join("bans")));
        let shelf = Shelf::new(store, config.clerks, config.behind_max_bytes).map_err(ServerError::Thread)?;
        let shared = Arc::new(Shared::new(Arc::new(shelf), bans, loops, Arc::new(config), log));
        let addresses = doors.iter().map(|door| (door.address, door.side)).collect();
        let mut threads = Vec::new();
        for number in 0..loops {
            let sockets: Vec<_> = doors
                .iter_mut()
                .filter_map(|door| door.sockets.pop().map(|socket| (socket, door.side)))
                .collect();
            let (shared, tls_server, tls_client) =
                (Arc::clone(&shared), tls_server.clone(), Arc::clone(&tls_client));
            threads.push(event_loop(format!("loop-{number}"), move || async move {
                let pool = Pool::new(tls_client, Arc::clone(&shared.counters[number]));
                let worker = Worker::new(shared, number, pool);
                for (socket, side) in sockets {
                    let tls = tls_server.clone().filter(|_| side == Side::Reverse { tls: true });
                    tokio::task::spawn_local(listener::accept(
                        std::rc::Rc::clone(&worker),
                        socket,
                        side,
                        tls,
                    ));
                }
                tokio::task::spawn_local(health::watch(std::rc::Rc::clone(&worker)));
                until_done(&worker).await;
            })?);
        }
        let admin = match admin {
            None => None,
            Some(mut door) => {
                let address = door.address;
                let socket = door.sockets.pop();
                let shared = Arc::clone(&shared);
                threads.push(event_loop("admin".to_owned(), move || crate::admin::serve(shared, socket))?);
                Some(address)
            }
        };
        Ok(Self { shared, threads, addresses, admin })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[(SocketAddr, Side)] {
        &self.addresses
    }

    /// Where its administration listens.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Figures and bans.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Takes a new configuration; connections go on. Gives the keys whose change needs a new start.
    ///
    /// # Errors
    /// When the new log cannot be opened: then all stays as it was.
    pub fn reload(&self, config: Config) -> Result<Vec<&'static str>, ServerError> {
        let old = self.shared.config();
        let mut kept = Vec::new();
        let mut same = |name, same: bool| {
            if !same {
                kept.push(name);
            }
        };
        same("forward.listen", old.forward_listen == config.forward_listen);
        same("reverse.listen", old.reverse_listen == config.reverse_listen);
        same("reverse.listen_tls", old.reverse_listen_tls == config.reverse_listen_tls);
        same("reverse.certificate", old.certificate == config.certificate && old.key == config.key);
        same("proxy.loops", old.loops == config.loops);
        same("cache.directories", old.directories == config.directories);
        same("cache.clerks", old.clerks == config.clerks);
        same("cache.behind_max_kib", old.behind_max_bytes == config.behind_max_bytes);
        same("admin.listen", old.admin_listen == config.admin_listen);
        let log = match (self.shared.log(), old.log_file == config.log_file) {
            (Some(log), true) => {
                log.reopen();
                Some(log)
            }
            _ => start_log(&config)?.map(Arc::new),
        };
        self.shared.set_config(Arc::new(config), log);
        Ok(kept)
    }

    /// Takes no more connections, lets those there end within `proxy.drain_s`, writes what waits, and gives the store
    /// back.
    pub fn stop(self) -> Option<Arc<Store>> {
        let drain = self.shared.config().drain;
        let began = Instant::now();
        self.shared.stage.send_replace(Stage::Draining);
        while began.elapsed() < drain && !self.threads.iter().all(JoinHandle::is_finished) {
            // Loops tell nobody of their end, and this is done once in a proxy's life.
            std::thread::park_timeout(Duration::from_millis(10));
        }
        self.shared.stage.send_replace(Stage::Cut);
        for thread in self.threads {
            let _ = thread.join();
        }
        self.shared.set_config(self.shared.config(), None);
        let shared = Arc::try_unwrap(self.shared).ok()?;
        Arc::try_unwrap(shared.shelf).ok().map(Shelf::close)
    }
}

/// Bans replies stored until now.
///
/// # Errors
/// When the ban cannot be written down.
pub fn ban(shared: &Shared, banned: Banned, at: WallSeconds) -> io::Result<()> {
    shared.bans.add(banned, at)
}

fn start_log(config: &Config) -> Result<Option<LogWriter>, LogError> {
    let start = |file: &PathBuf| LogWriter::start(file, config.log_rotate_bytes, config.log_keep);
    config.log_file.as_ref().map(start).transpose()
}

fn event_loop<F: Future<Output = ()>>(
    name: String,
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<JoinHandle<()>, ServerError> {
    let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            LocalSet::new().block_on(&runtime, work());
            // A read of the store under way is not waited for.
            runtime.shutdown_background();
        }
        Err(error) => tracing::error!(%error, "an event loop cannot start"),
    };
    std::thread::Builder::new().name(name).spawn(run).map_err(ServerError::Thread)
}

/// Until the proxy drains and nothing of this loop is left, or it is cut.
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
