//! The robots' connections: which are at rest, when one more may be opened, and what epoll watches each for.
//!
//! Always holds: a connection at rest carries no request and stands in the list of its robot, or in the only list when
//! all are shared; epoll watches for what [`Client::interest`] says.
//! Not here: what travels on one (see `client`), requests that wait for one (see `generator`).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand_distr::{Distribution as _, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::client::{Client, Fault, Flight, Progress};
use crate::plan::Share;
use crate::plan::object::mix;
use crate::run::Pool;
use crate::sockets::poller::{Batch, Poller, Ready};
use crate::sockets::slots::{Slots, Token};

/// One generator's part of the pool.
pub(super) struct Connections {
    peer: SocketAddr,
    poller: Poller,
    clients: Slots<Client>,
    /// At rest, by robot; one list when all are shared.
    idle: Vec<Vec<Token>>,
    count_max: usize,
    requests_zipf: Option<Zipf<f64>>,
    idle_timeout: Duration,
    /// Not that of the arrivals: connections come and go as replies do.
    random: Xoshiro256PlusPlus,
    scratch: Vec<u8>,
    /// Replies say when they arrived: in a closed loop nobody asks, and it costs time.
    wants_stamps: bool,
}

const READ_BYTES: usize = 256 * 1024;

impl Connections {
    pub fn new(peer: SocketAddr, pool: Pool, share: Share, wants_stamps: bool) -> std::io::Result<Self> {
        let (lists, count_max, zipf, idle_timeout) = match pool {
            Pool::Robots { robots, requests_zipf, idle_timeout } => {
                ((u64::from(robots) / share.of).max(1) as usize, usize::MAX, requests_zipf, idle_timeout)
            }
            Pool::Shared { connections } => {
                let mine = u64::from(connections) / share.of
                    + u64::from(share.number < u64::from(connections) % share.of);
                (1, mine.max(1) as usize, None, Duration::MAX)
            }
        };
        Ok(Self {
            peer,
            poller: Poller::new()?,
            clients: Slots::new(),
            idle: vec![Vec::new(); lists],
            count_max,
            requests_zipf: zipf.and_then(|most| Zipf::new(f64::from(most.max(1)), 1.0).ok()),
            idle_timeout,
            random: Xoshiro256PlusPlus::seed_from_u64(mix(share.seed ^ 0x636f_6e6e) ^ share.number),
            scratch: vec![0; READ_BYTES],
            wants_stamps,
        })
    }

    /// How many there may be.
    pub fn count_max(&self) -> usize {
        self.count_max
    }

    /// Whether there may be no more.
    pub fn is_full(&self) -> bool {
        self.clients.len() >= self.count_max
    }

    #[inline]
    pub fn of(&mut self, token: Token) -> Option<&mut Client> {
        self.clients.of(token)
    }

    /// All there are.
    pub fn tokens(&self) -> Vec<Token> {
        self.clients.tokens()
    }

    fn idle_of(&mut self, robot: u32) -> &mut Vec<Token> {
        let list = robot as usize % self.idle.len();
        &mut self.idle[list]
    }

    /// Takes one of the robot's that is at rest.
    pub fn take_idle(&mut self, robot: u32) -> Option<Token> {
        while let Some(token) = self.idle_of(robot).pop() {
            if self.clients.of(token).is_some_and(|client| client.flight.is_none()) {
                return Some(token);
            }
        }
        None
    }

    /// Puts one to rest.
    pub fn rest(&mut self, token: Token) {
        if let Some(client) = self.clients.of(token) {
            let robot = client.robot;
            self.idle_of(robot).push(token);
        }
    }

    /// Opens one more.
    pub fn connect(&mut self, robot: u32) -> Result<Token, Fault> {
        let requests = self.requests_zipf.as_ref().map(|zipf| zipf.sample(&mut self.random) as u32);
        let client = Client::connect(self.peer, robot, requests, self.wants_stamps).map_err(|error| {
            tracing::debug!("cannot connect: {error}");
            Fault::ConnectFailed
        })?;
        let token = self.clients.insert(client);
        let Some(client) = self.clients.of(token) else { return Err(Fault::ConnectFailed) };
        if self.poller.add(client.stream(), token.0, client.interest()).is_err() {
            self.clients.remove(token);
            return Err(Fault::ConnectFailed);
        }
        Ok(token)
    }

    /// Closes one that is not at rest.
    pub fn close(&mut self, token: Token) {
        self.clients.remove(token);
    }

    /// Closes one that is at rest.
    pub fn close_idle(&mut self, token: Token) {
        if let Some(client) = self.clients.remove(token) {
            self.idle_of(client.robot).retain(|idle| *idle != token);
        }
    }

    /// Closes one that is at rest if it has been so too long.
    pub fn close_stale(&mut self, token: Token, now: Instant) {
        let Some(client) = self.clients.of(token) else { return };
        if now.saturating_duration_since(client.idle_since) > self.idle_timeout {
            self.close_idle(token);
        }
    }

    /// Sends a request on one that carries none, or as much of it as the socket takes now.
    pub fn send(&mut self, token: Token, flight: Flight, request: &[u8]) -> Result<(), Fault> {
        let Some(client) = self.clients.of(token) else { return Ok(()) };
        let interest = client.interest();
        client.send(flight, request)?;
        let wanted = client.interest();
        if wanted != interest && self.poller.change(client.stream(), token.0, wanted).is_err() {
            return Err(Fault::ConnectionLost);
        }
        Ok(())
    }

    /// Looks which can go on; until the moment, if there is one, it sleeps for the first. How many.
    pub fn look(&self, until: Option<Instant>, batch: &mut Batch) -> std::io::Result<usize> {
        match until {
            Some(until) => self.poller.wait(until, batch),
            None => self.poller.look(batch),
        }
    }

    /// Continues with a ready connection; `None` if it is gone.
    pub fn on_ready(&mut self, ready: Ready) -> Option<Progress> {
        let client = self.clients.of(Token(ready.token))?;
        let before = client.interest();
        let progress = client.on_ready(ready, &mut self.scratch);
        let wanted = client.interest();
        let changed = wanted == before || self.poller.change(client.stream(), ready.token, wanted).is_ok();
        Some(match progress {
            Progress::Going | Progress::Whole(_) if !changed => {
                Progress::Broken { fault: Fault::ConnectionLost, unanswered: false }
            }
            progress => progress,
        })
    }
}
