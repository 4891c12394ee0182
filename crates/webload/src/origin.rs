//! The origin server: any object of any path, after a think time, from nothing but its URL and the clock.
//!
//! ```text
//! thread 0: listener (SO_REUSEPORT) + epoll --> connections --> think (timer) --> head, body as the socket takes it
//! thread n: the same, on the same port
//! ```
//!
//! Always holds: at most a head and 64 KiB wait in memory for a slow reader, and a connection answers one request at
//! a time, the others waiting in the kernel; a reply names the request it was made for, so that a robot can tell it
//! from a cache's.
//! Not here: what an object is (see `object`), its bytes (see `body`).

mod connection;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand_distr::{Distribution as _, Normal, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use self::connection::{Connection, Next};
use crate::error::WebloadError;
use crate::run::limits::check_threads;
use crate::sockets::poller::{Batch, Interest, Poller};
use crate::sockets::slots::{LISTENER, Slots, Token};

/// How the origin answers.
#[derive(Clone, Debug)]
pub struct OriginOptions {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Event loops, one a core.
    pub threads: NonZeroUsize,
    /// How long it thinks before each reply.
    pub think: ThinkTime,
    /// Bodies of HTTP/1.1 replies come in chunks instead of with their length.
    pub chunked: bool,
    /// Requests a connection serves before it is closed follow Zipf's law up to this; without end when none.
    pub requests_zipf: Option<u32>,
    /// A connection without requests is closed after this.
    pub idle_timeout: Duration,
    /// Same seed, same think times in the same order.
    pub seed: u64,
}

/// A normal distribution, cut off at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThinkTime {
    /// Its mean.
    pub mean: Duration,
    /// Its standard deviation.
    pub sd: Duration,
}

impl ThinkTime {
    /// PolyMix-3's.
    pub const POLYMIX: Self = Self { mean: Duration::from_millis(2500), sd: Duration::from_millis(1000) };
}

impl Default for OriginOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            threads: NonZeroUsize::MIN,
            think: ThinkTime::default(),
            chunked: false,
            requests_zipf: None,
            idle_timeout: Duration::from_secs(15),
            seed: 1,
        }
    }
}

/// What an origin has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginCounters {
    /// Requests read whole.
    pub requests: u64,
    /// Of those, answered with 304.
    pub not_modified: u64,
    /// Of those, refused: no path or method of ours.
    pub refused: u64,
    /// Body bytes sent.
    pub body_bytes: u64,
    /// Connections taken.
    pub accepted: u64,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    requests: AtomicU64,
    not_modified: AtomicU64,
    refused: AtomicU64,
    body_bytes: AtomicU64,
    accepted: AtomicU64,
}

/// A running origin; dropped, it ends.
pub struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// How long a loop waits without looking whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Connections a thread takes at once before it serves again.
const ACCEPTS_MAX: usize = 64;
const BACKLOG: i32 = 4096;

impl Origin {
    /// Starts it; it listens when this returns.
    ///
    /// # Errors
    /// When the address is taken or not ours, or a thread cannot be started.
    pub fn start(options: &OriginOptions) -> Result<Self, WebloadError> {
        check_threads("origin threads", options.threads)?;
        let refused = |address| move |source| WebloadError::Listen { address, source };
        let first = listener(options.listen).map_err(refused(options.listen))?;
        let address = first.local_addr().map_err(refused(options.listen))?;
        let mut listeners = vec![first];
        for _ in 1..options.threads.get() {
            listeners.push(listener(address).map_err(refused(address))?);
        }
        let mut origin = Self { address, shared: Arc::default(), threads: Vec::new() };
        for (number, listener) in listeners.into_iter().enumerate() {
            let mut server = Server::new(listener, options, number as u64, Arc::clone(&origin.shared))
                .map_err(WebloadError::setup("the origin's event loop"))?;
            let thread = std::thread::Builder::new().name(format!("origin-{number}"));
            let thread = thread.spawn(move || server.run());
            origin.threads.push(thread.map_err(WebloadError::setup("the origin's thread"))?);
        }
        Ok(origin)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has done so far.
    pub fn counters(&self) -> OriginCounters {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        OriginCounters {
            requests: of(&self.shared.requests),
            not_modified: of(&self.shared.not_modified),
            refused: of(&self.shared.refused),
            body_bytes: of(&self.shared.body_bytes),
            accepted: of(&self.shared.accepted),
        }
    }

    /// Ends it and waits for its threads.
    pub fn stop(self) -> OriginCounters {
        self.counters()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The panic hook has already printed a panic of the thread.
            let _ = thread.join();
        }
    }
}

fn listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

/// One event loop.
struct Server {
    listener: TcpListener,
    poller: Poller,
    connections: Slots<Connection>,
    thoughts: std::collections::BinaryHeap<std::cmp::Reverse<(Instant, Token)>>,
    /// When to look at connections that were idle from then on.
    idle: std::collections::VecDeque<(Instant, Token)>,
    scratch: Scratch,
    chance: Chance,
    options: OriginOptions,
    shared: Arc<Shared>,
}

/// Memory that all connections of a thread use in turn.
struct Scratch {
    input: Vec<u8>,
    output: Vec<u8>,
}

struct Chance {
    random: Xoshiro256PlusPlus,
    think: Option<Normal<f64>>,
    requests: Option<Zipf<f64>>,
}

impl Server {
    fn new(
        listener: TcpListener,
        options: &OriginOptions,
        number: u64,
        shared: Arc<Shared>,
    ) -> std::io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&listener, LISTENER.0, Interest::Read)?;
        let ThinkTime { mean, sd } = options.think;
        let chance = Chance {
            random: Xoshiro256PlusPlus::seed_from_u64(options.seed ^ number << 32),
            think: Normal::new(mean.as_secs_f64(), sd.as_secs_f64()).ok().filter(|_| !mean.is_zero()),
            requests: options.requests_zipf.and_then(|most| Zipf::new(f64::from(most.max(1)), 1.0).ok()),
        };
        let scratch = Scratch { input: vec![0; 64 * 1024], output: Vec::with_capacity(80 * 1024) };
        Ok(Self {
            listener,
            poller,
            connections: Slots::new(),
            thoughts: Default::default(),
            idle: Default::default(),
            scratch,
            chance,
            options: options.clone(),
            shared,
        })
    }

    fn run(&mut self) {
        let mut batch = Batch::new();
        while !self.shared.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            let thought = self.thoughts.peek().map_or(now + LOOK_EVERY, |next| next.0.0);
            if let Err(error) = self.poller.wait(thought.min(now + LOOK_EVERY), &mut batch) {
                tracing::error!("the origin's event loop ends: {error}");
                return;
            }
            for event in &batch.ready {
                if event.token == LISTENER.0 {
                    self.accept();
                } else {
                    self.serve(Token(event.token), |connection, server| connection.on_ready(*event, server));
                }
            }
            let now = Instant::now();
            while self.thoughts.peek().is_some_and(|next| next.0.0 <= now) {
                let Some(std::cmp::Reverse((_, token))) = self.thoughts.pop() else { break };
                self.serve(token, Connection::on_thought);
            }
            self.close_idle(now);
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            // Would block, or the client has given up, or too many files are open: the next event will tell.
            let Ok((stream, _)) = self.listener.accept() else { return };
            self.shared.accepted.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = self.welcome(stream) {
                tracing::debug!("a connection was lost as it came: {error}");
            }
        }
    }

    fn welcome(&mut self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let random = &mut self.chance.random;
        let requests = self.chance.requests.as_ref().map(|zipf| zipf.sample(random) as u32);
        let token = self.connections.insert(Connection::new(stream, requests));
        self.idle.push_back((Instant::now(), token));
        let Some(connection) = self.connections.of(token) else { return Ok(()) };
        if let Err(error) = self.poller.add(connection.stream(), token.0, Interest::Read) {
            self.connections.remove(token);
            return Err(error);
        }
        Ok(())
    }

    /// Lets a connection do something and does what it asks for then.
    fn serve(&mut self, token: Token, act: impl FnOnce(&mut Connection, &mut Turn<'_>) -> Next) {
        let Some(connection) = self.connections.of(token) else { return };
        let mut turn = Turn {
            scratch: &mut self.scratch,
            chance: &mut self.chance,
            options: &self.options,
            shared: &self.shared,
        };
        let next = act(connection, &mut turn);
        let changed = match next {
            Next::Think(until) => {
                self.thoughts.push(std::cmp::Reverse((until, token)));
                Ok(())
            }
            Next::Listen { newly_idle: true } => {
                self.idle.push_back((Instant::now(), token));
                Ok(())
            }
            Next::Listen { newly_idle: false } => Ok(()),
            Next::Close => Err(std::io::ErrorKind::NotConnected.into()),
        };
        let interest = connection.interest_changed();
        let changed = changed.and_then(|()| match interest {
            Some(interest) => self.poller.change(connection.stream(), token.0, interest),
            None => Ok(()),
        });
        if changed.is_err() {
            self.connections.remove(token);
        }
    }

    fn close_idle(&mut self, now: Instant) {
        while let Some(&(since, token)) = self.idle.front()
            && now.saturating_duration_since(since) >= self.options.idle_timeout
        {
            self.idle.pop_front();
            if self.connections.of(token).is_some_and(|connection| connection.is_idle_since(since)) {
                self.connections.remove(token);
            }
        }
    }
}

/// What a connection may use while it acts.
struct Turn<'a> {
    scratch: &'a mut Scratch,
    chance: &'a mut Chance,
    options: &'a OriginOptions,
    shared: &'a Shared,
}

impl Chance {
    fn think(&mut self) -> Duration {
        let Some(law) = &self.think else { return Duration::ZERO };
        Duration::try_from_secs_f64(law.sample(&mut self.random).max(0.0)).unwrap_or_default()
    }
}
