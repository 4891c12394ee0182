//! One generator: the loop that sends requests when they are due and takes replies in between.
//!
//! ```text
//! phases + planner -> due now? -> idle connection of its robot, or a new one, or (shared pool) the queue -> socket
//! epoll -> reply, checked -> tally of the phase it was due in, moment it was due at
//! ```
//!
//! Always holds: latency counts from the planned moment, so that a stall of the proxy, of the origin or of this loop
//! stays in the figures; what was due and never sent is counted as such; a request lost with a connection that had
//! been idle goes out once more, as any client does it, and its latency goes on.
//! Not here: what is asked (see `plan`), one connection (see `client`), what the figures mean (see `judge`).

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::body::BodyCheck;
use crate::client::{Client, Fault, Flight, Progress, Reply};
use crate::curves::Moments;
use crate::error::WebloadError;
use crate::http_date;
use crate::object::mix;
use crate::phases::{End, Pace, Phase};
use crate::plan::{Class, Planned, Planner, Share};
use crate::poller::{Batch, Poller, Ready};
use crate::run::{Live, Pool, WebloadConfig};
use crate::slots::{Slots, Token};
use crate::tally::{Good, Source, Tally};
use crate::watch::Watch;
use crate::wire::REQUEST_FIELD;

/// What a generator brings home.
pub(crate) struct Counted {
    pub tallies: Vec<Tally>,
    pub moments: Moments,
    /// Ended by the user.
    pub stopped: bool,
}

/// Requests sent between two looks at the replies.
const BATCH_MAX: usize = 64;
const TELL_EVERY: Duration = Duration::from_millis(500);
/// How often connections are looked through for what takes too long.
const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// Requests that wait for a connection; more are given up, as memory is not without end.
const WAITING_MAX: usize = 200_000;
/// HTTP's dates are whole seconds, and the clocks of robot, proxy and origin may differ.
const STALE_SLACK_S: f64 = 2.0;
const READ_BYTES: usize = 256 * 1024;

pub(crate) struct Generator<'a> {
    config: &'a WebloadConfig,
    phases: Vec<Phase>,
    planner: Planner,
    share: Share,
    poller: Poller,
    clients: Slots<Client>,
    /// Connections at rest, by robot; one list when all are shared.
    idle: Vec<Vec<Token>>,
    connections_max: usize,
    requests_zipf: Option<Zipf<f64>>,
    idle_timeout: Duration,
    waiting: VecDeque<Flight>,
    in_flight: usize,
    /// Of the arrivals alone: what else drew from it would make them hang on the replies.
    random: Xoshiro256PlusPlus,
    /// Of connections, which come and go as replies do.
    random_of_connections: Xoshiro256PlusPlus,
    begin: Instant,
    begin_unix_s: f64,
    cursor: Cursor,
    upcoming: Option<Upcoming>,
    requests: u64,
    tallies: Vec<Tally>,
    moments: Moments,
    scratch: Vec<u8>,
    text: String,
    path: String,
    told: (Instant, u64, u64, u64, u64),
    latency_sum: Duration,
    watch: Option<Watch>,
}

/// Where in the phases.
struct Cursor {
    phase: usize,
    begin: Instant,
    /// Of the last request that was planned.
    at: Instant,
    requests: u64,
    new_bytes: u64,
}

enum Upcoming {
    At(Instant, Planned),
    /// In a closed loop.
    WhenFree,
    /// There is no more.
    Over,
}

impl<'a> Generator<'a> {
    pub fn new(config: &'a WebloadConfig, share: Share, begin: Instant) -> Result<Self, WebloadError> {
        let (lists, connections_max, zipf, idle_timeout) = match config.pool {
            Pool::Robots { robots, requests_zipf, idle_timeout } => {
                ((u64::from(robots) / share.of).max(1) as usize, usize::MAX, requests_zipf, idle_timeout)
            }
            Pool::Shared { connections } => {
                let mine = u64::from(connections) / share.of
                    + u64::from(share.number < u64::from(connections) % share.of);
                (1, mine.max(1) as usize, None, Duration::MAX)
            }
        };
        let phases: Vec<Phase> = config.phases.iter().map(|phase| phase.part(share.of)).collect();
        Ok(Self {
            planner: config.plan.planner(share),
            poller: Poller::new(true).map_err(WebloadError::setup("the generator's event loop"))?,
            clients: Slots::new(),
            idle: vec![Vec::new(); lists],
            connections_max,
            requests_zipf: zipf.and_then(|most| Zipf::new(f64::from(most.max(1)), 1.0).ok()),
            idle_timeout,
            waiting: VecDeque::new(),
            in_flight: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(mix(share.seed ^ 0x6761_7073) ^ share.number),
            random_of_connections: Xoshiro256PlusPlus::seed_from_u64(
                mix(share.seed ^ 0x636f_6e6e) ^ share.number,
            ),
            begin,
            begin_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            cursor: Cursor { phase: 0, begin, at: begin, requests: 0, new_bytes: 0 },
            upcoming: None,
            requests: 0,
            tallies: vec![Tally::default(); phases.len()],
            moments: Moments::default(),
            scratch: vec![0; READ_BYTES],
            text: String::with_capacity(4096),
            path: String::with_capacity(4096),
            told: (begin, 0, 0, 0, 0),
            latency_sum: Duration::ZERO,
            // One of several looks for all.
            watch: config.watch.filter(|_| share.number == 0).map(Watch::start),
            phases,
            share,
            config,
        })
    }

    /// Runs all phases, or until stopped.
    pub fn run(mut self, stop: &AtomicBool, tell: &mut dyn FnMut(Live)) -> Result<Counted, WebloadError> {
        let mut batch = Batch::new();
        let mut next_tell = self.begin + TELL_EVERY;
        let mut next_sweep = self.begin + SWEEP_EVERY;
        let mut drain_until: Option<Instant> = None;
        let mut stopped = false;
        loop {
            let now = Instant::now();
            if stop.load(Ordering::Relaxed) {
                stopped = true;
                break;
            }
            if now >= next_tell {
                next_tell = now + TELL_EVERY;
                tell(self.live(now));
            }
            if now >= next_sweep {
                next_sweep = now + SWEEP_EVERY;
                self.sweep(now);
            }
            let next_due = self.send_due(now);
            let over = matches!(self.upcoming, Some(Upcoming::Over));
            if over {
                let until = *drain_until.get_or_insert(now + self.config.drain);
                if (self.in_flight == 0 && self.waiting.is_empty()) || now >= until {
                    break;
                }
            }
            let mut until = next_tell.min(next_sweep);
            if let Some(due) = next_due {
                until = until.min(due);
            }
            let idle = self.poller.wait(until, &mut batch);
            let idle = idle.map_err(WebloadError::setup("the generator's wait for replies"))?;
            if let Some(tally) = self.tallies.get_mut(self.cursor.phase) {
                tally.idle += idle;
            }
            for event in &batch.ready {
                self.on_ready(*event);
            }
        }
        self.end_phase(Instant::now());
        self.give_up();
        Ok(Counted { tallies: self.tallies, moments: self.moments, stopped })
    }

    /// Sends what is due, up to a batch; when the next one is due, where that is known.
    fn send_due(&mut self, now: Instant) -> Option<Instant> {
        for _ in 0..BATCH_MAX {
            if self.upcoming.is_none() || matches!(self.upcoming, Some(Upcoming::WhenFree)) {
                self.upcoming = Some(self.plan_next(now));
            }
            match &self.upcoming {
                Some(Upcoming::At(due, _)) if *due > now => return Some(*due),
                Some(Upcoming::At(..)) => {
                    if let Some(Upcoming::At(due, planned)) = self.upcoming.take() {
                        self.dispatch(planned, due, true);
                    }
                }
                Some(Upcoming::WhenFree) if self.in_flight >= self.connections_max => return None,
                Some(Upcoming::WhenFree) => match self.plan_one(now) {
                    Some(planned) => self.dispatch(planned, Instant::now(), false),
                    None => self.next_phase(now),
                },
                Some(Upcoming::Over) | None => return None,
            }
        }
        Some(now)
    }

    /// What comes next by the phases.
    fn plan_next(&mut self, now: Instant) -> Upcoming {
        while let Some(phase) = self.phases.get(self.cursor.phase).copied() {
            let cursor = &self.cursor;
            let used_up = match phase.end {
                End::Requests(requests) => cursor.requests >= requests,
                End::NewBytes(bytes) => cursor.new_bytes >= bytes,
                End::Time(_) | End::OfPlan => false,
            };
            let ends_at = match phase.end {
                End::Time(span) => Some(cursor.begin + span),
                _ => None,
            };
            let at = match phase.pace {
                _ if used_up => None,
                Pace::Closed if ends_at.is_some_and(|end| now >= end) => None,
                Pace::Closed => return Upcoming::WhenFree,
                Pace::Open { .. } => {
                    let since = cursor.at.saturating_duration_since(cursor.begin);
                    let gap = gap(&phase, since, -(1.0 - self.random.random::<f64>()).ln());
                    gap.map(|gap| cursor.at + gap).filter(|at| ends_at.is_none_or(|end| *at < end))
                }
                Pace::OfPlan => match self.plan_one(now) {
                    Some(planned) => {
                        let at = self.cursor.begin + planned.due;
                        self.cursor.at = at;
                        return Upcoming::At(at, planned);
                    }
                    None => None,
                },
            };
            let Some(at) = at else {
                // An open phase is over when its time is, not when its last request was due.
                self.next_phase(match phase.pace {
                    Pace::Open { .. } => ends_at.unwrap_or(self.cursor.at),
                    Pace::Closed => now,
                    Pace::OfPlan => self.cursor.at.max(now),
                });
                continue;
            };
            match self.plan_one(at) {
                Some(planned) => {
                    self.cursor.at = at;
                    return Upcoming::At(at, planned);
                }
                None => self.next_phase(at),
            }
        }
        Upcoming::Over
    }

    /// The next request of the phase under way.
    fn plan_one(&mut self, at: Instant) -> Option<Planned> {
        let phase = self.phases.get(self.cursor.phase)?;
        let since = at.saturating_duration_since(self.cursor.begin);
        let planned = self.planner.next(self.cursor.phase, phase.recurrence_at(since), phase.special)?;
        self.cursor.requests += 1;
        if planned.is_new && planned.object.cacheable {
            self.cursor.new_bytes += planned.object.size_bytes;
        }
        Some(planned)
    }

    fn next_phase(&mut self, at: Instant) {
        self.end_phase(at);
        self.cursor = Cursor { phase: self.cursor.phase + 1, begin: at, at, requests: 0, new_bytes: 0 };
    }

    fn end_phase(&mut self, at: Instant) {
        if let Some(tally) = self.tallies.get_mut(self.cursor.phase) {
            tally.begin = Some(self.cursor.begin.saturating_duration_since(self.begin));
            tally.wall = at.saturating_duration_since(self.cursor.begin);
            tally.proxy = self.watch.as_mut().map(Watch::lap);
        }
    }

    fn unix_s(&self, at: Instant) -> f64 {
        self.begin_unix_s + at.saturating_duration_since(self.begin).as_secs_f64()
    }

    /// Sends a request that is due, or has it wait for a connection.
    fn dispatch(&mut self, planned: Planned, due: Instant, open: bool) {
        // A phase may have been left while its last request was planned: it counts where the cursor is.
        let phase = self.cursor.phase.min(self.tallies.len() - 1);
        let tally = &mut self.tallies[phase];
        tally.planned += 1;
        tally.digest = mix(tally.digest ^ planned.object.key() ^ planned.class as u64);
        self.moments.at(due.saturating_duration_since(self.begin)).due += 1;
        self.requests += 1;
        let now_s = self.unix_s(due);
        let object = planned.object;
        let oldest = object.version_at(now_s - STALE_SLACK_S);
        let newest = object.version_at(now_s + self.config.timeout.as_secs_f64() + STALE_SLACK_S);
        let check = BodyCheck::new(object, oldest, newest);
        let checked = self.requests.is_multiple_of(u64::from(self.config.check_one_in.get()));
        let flight = Flight {
            planned,
            request: (self.share.number + 1) << 48 | self.requests,
            due,
            phase: phase as u32,
            check: if checked { check } else { check.length_alone() },
            retried: false,
        };
        match self.connection_for(planned.robot) {
            Ok(Some(token)) => {
                if open {
                    let late = Instant::now().saturating_duration_since(due);
                    self.tallies[phase].lateness.record(late);
                }
                self.send(token, flight);
            }
            Ok(None) if self.waiting.len() < WAITING_MAX => self.waiting.push_back(flight),
            Ok(None) => {}
            Err(fault) => {
                self.tallies[phase].sent(&planned);
                self.failed(&flight, fault);
            }
        }
    }

    fn list_of(&self, robot: u32) -> usize {
        robot as usize % self.idle.len()
    }

    /// A connection at rest, or a new one; none when there may be no more.
    fn connection_for(&mut self, robot: u32) -> Result<Option<Token>, Fault> {
        let list = self.list_of(robot);
        while let Some(token) = self.idle[list].pop() {
            if self.clients.of(token).is_some_and(|client| client.flight.is_none()) {
                return Ok(Some(token));
            }
        }
        if self.clients.len() >= self.connections_max {
            return Ok(None);
        }
        self.connect(robot).map(Some)
    }

    fn connect(&mut self, robot: u32) -> Result<Token, Fault> {
        let requests =
            self.requests_zipf.as_ref().map(|zipf| zipf.sample(&mut self.random_of_connections) as u32);
        let client = Client::connect(self.config.route.peer, robot, requests).map_err(|error| {
            tracing::debug!("cannot connect: {error}");
            Fault::ConnectFailed
        })?;
        let token = self.clients.insert(client);
        let Some(client) = self.clients.of(token) else { return Err(Fault::ConnectFailed) };
        if self.poller.add(client.stream(), token.0, client.interest()).is_err() {
            self.clients.remove(token);
            return Err(Fault::ConnectFailed);
        }
        if let Some(tally) = self.tallies.get_mut(self.cursor.phase) {
            tally.connections += 1;
        }
        Ok(token)
    }

    fn send(&mut self, token: Token, flight: Flight) {
        let last = self.clients.of(token).is_some_and(|client| client.requests_left == Some(1));
        self.write_request(&flight, last);
        let Some(client) = self.clients.of(token) else { return };
        if !flight.retried {
            self.tallies[flight.phase as usize].sent(&flight.planned);
        }
        let interest = client.interest();
        self.in_flight += 1;
        if let Err(fault) = client.send(flight, self.text.as_bytes()) {
            let unanswered = true;
            return self.broken(token, fault, unanswered);
        }
        let wanted = client.interest();
        if wanted != interest && self.poller.change(client.stream(), token.0, wanted).is_err() {
            self.broken(token, Fault::ConnectionLost, true);
        }
    }

    fn write_request(&mut self, flight: &Flight, last: bool) {
        let Self { text, path, planner, config, .. } = self;
        let planned = &flight.planned;
        text.clear();
        path.clear();
        planned.object.write_path(path);
        text.push_str("GET ");
        text.push_str(&config.route.prefix());
        text.push_str(path);
        let tail = planner.tail(planned.tail);
        if !tail.is_empty() {
            text.push_str("/-/");
            text.push_str(tail);
        }
        text.push_str(" HTTP/1.1\r\nHost: ");
        text.push_str(&config.route.authority);
        // Writing to a String cannot fail.
        let _ = write!(text, "\r\n{REQUEST_FIELD}: {:x}\r\n", flight.request);
        match planned.class {
            Class::Plain => {}
            Class::Reload => text.push_str("Cache-Control: no-cache\r\nPragma: no-cache\r\n"),
            class @ (Class::ImsChanged | Class::ImsUnchanged) => {
                let now_s =
                    self.begin_unix_s + flight.due.saturating_duration_since(self.begin).as_secs_f64();
                let modified = planned.object.modified_s(planned.object.version_at(now_s));
                let since = if class == Class::ImsChanged { modified.saturating_sub(1) } else { modified };
                let _ = write!(text, "If-Modified-Since: {}\r\n", http_date::written(since));
            }
        }
        text.push_str(if last { "Connection: close\r\n\r\n" } else { "\r\n" });
    }

    fn on_ready(&mut self, ready: Ready) {
        let token = Token(ready.token);
        let Some(client) = self.clients.of(token) else { return };
        let before = client.interest();
        let progress = client.on_ready(ready, &mut self.scratch);
        let wanted = client.interest();
        let changed = wanted == before || self.poller.change(client.stream(), token.0, wanted).is_ok();
        match progress {
            Progress::Broken { fault, unanswered } => self.broken(token, fault, unanswered),
            _ if !changed => self.broken(token, Fault::ConnectionLost, false),
            Progress::Whole(reply) => self.replied(token, &reply),
            Progress::Going => {}
        }
    }

    fn replied(&mut self, token: Token, reply: &Reply) {
        let now = Instant::now();
        let Some(client) = self.clients.of(token) else { return };
        let Some(flight) = client.flight.take() else { return };
        let stays = client.stays(reply);
        client.idle_since = now;
        let robot = client.robot;
        self.in_flight -= 1;
        match reply.fault {
            Some(fault) => self.failed(&flight, fault),
            None => self.succeeded(&flight, reply, now),
        }
        if !stays {
            self.clients.remove(token);
            self.serve_waiting(None);
        } else if self.waiting.is_empty() {
            let list = self.list_of(robot);
            self.idle[list].push(token);
        } else {
            self.serve_waiting(Some(token));
        }
    }

    fn succeeded(&mut self, flight: &Flight, reply: &Reply, now: Instant) {
        let made_for_it = reply.origin.filter(|note| note.request == flight.request);
        let source = match made_for_it {
            Some(note) if note.validated && !reply.not_modified => Source::Validated,
            Some(_) => Source::Origin,
            None => Source::Cache,
        };
        let latency = now.saturating_duration_since(flight.due);
        let think =
            made_for_it.map_or(Duration::ZERO, |note| Duration::from_micros(u64::from(note.think_us)));
        let good = Good { source, latency, think, body_bytes: reply.body_bytes };
        if let Some(tally) = self.tallies.get_mut(self.cursor.phase) {
            tally.ok_within += 1;
        }
        self.tallies[flight.phase as usize].good(&flight.planned, &good);
        self.moments.at(flight.due.saturating_duration_since(self.begin)).good(&flight.planned, &good);
        self.moments.at(now.saturating_duration_since(self.begin)).answered += 1;
        self.latency_sum += latency;
    }

    fn failed(&mut self, flight: &Flight, fault: Fault) {
        if fault.is_false_content() {
            tracing::warn!("{}: {:?}", fault.name(), flight.planned.object);
        }
        self.tallies[flight.phase as usize].fault(&flight.planned, fault);
        self.moments.at(flight.due.saturating_duration_since(self.begin)).failed += 1;
    }

    /// The connection is gone. A request that a peer may have closed its idle connection upon goes out once more.
    fn broken(&mut self, token: Token, fault: Fault, unanswered: bool) {
        let Some(mut client) = self.clients.remove(token) else { return };
        let Some(mut flight) = client.flight.take() else {
            let list = self.list_of(client.robot);
            return self.idle[list].retain(|idle| *idle != token);
        };
        self.in_flight -= 1;
        if unanswered && client.replies > 0 && !flight.retried {
            flight.retried = true;
            self.tallies[flight.phase as usize].reconnects += 1;
            match self.connect(client.robot) {
                Ok(token) => return self.send(token, flight),
                Err(fault) => self.failed(&flight, fault),
            }
        } else {
            self.failed(&flight, fault);
        }
        self.serve_waiting(None);
    }

    /// Gives those that wait what has become free.
    fn serve_waiting(&mut self, free: Option<Token>) {
        let Some(flight) = self.waiting.pop_front() else {
            if let Some(token) = free {
                self.idle[0].push(token);
            }
            return;
        };
        match free.map_or_else(|| self.connection_for(flight.planned.robot), |token| Ok(Some(token))) {
            Ok(Some(token)) => self.send(token, flight),
            Ok(None) => self.waiting.push_front(flight),
            Err(fault) => {
                self.tallies[flight.phase as usize].sent(&flight.planned);
                self.failed(&flight, fault);
            }
        }
    }

    /// Ends what takes too long, and connections that have been idle too long.
    fn sweep(&mut self, now: Instant) {
        for token in self.clients.tokens() {
            let Some(client) = self.clients.of(token) else { continue };
            match &client.flight {
                Some(flight) if now.saturating_duration_since(flight.due) > self.config.timeout => {
                    self.broken(token, Fault::TimedOut, false);
                }
                None if now.saturating_duration_since(client.idle_since) > self.idle_timeout => {
                    let list = client.robot as usize % self.idle.len();
                    self.idle[list].retain(|idle| *idle != token);
                    self.clients.remove(token);
                }
                _ => {}
            }
        }
        while let Some(flight) = self.waiting.front()
            && now.saturating_duration_since(flight.due) > self.config.timeout
        {
            // Never sent: planned, and that is what tells.
            self.waiting.pop_front();
        }
    }

    /// Counts what is still unanswered.
    fn give_up(&mut self) {
        for token in self.clients.tokens() {
            if let Some(flight) = self.clients.of(token).and_then(|client| client.flight.take()) {
                self.tallies[flight.phase as usize].cancelled(&flight.planned);
                self.moments.at(flight.due.saturating_duration_since(self.begin)).failed += 1;
            }
        }
    }

    fn live(&mut self, now: Instant) -> Live {
        let sum = |count: &dyn Fn(&Tally) -> u64| self.tallies.iter().map(count).sum::<u64>();
        let (planned, ok) = (sum(&|tally| tally.planned), sum(&Tally::ok));
        let (hits, failed) = (sum(&|tally| tally.hits), sum(&Tally::failed));
        let (at, planned_before, ok_before, hits_before, _) = self.told;
        let seconds = now.saturating_duration_since(at).as_secs_f64().max(1e-9);
        let answered = ok - ok_before;
        let phase = self.phases.get(self.cursor.phase);
        let since = now.saturating_duration_since(self.cursor.begin);
        let done = phase.map_or(1.0, |phase| match phase.end {
            End::Time(_) => phase.share_at(since),
            End::NewBytes(bytes) => self.cursor.new_bytes as f64 / bytes.max(1) as f64,
            End::Requests(requests) => self.cursor.requests as f64 / requests.max(1) as f64,
            End::OfPlan => 0.0,
        });
        let live = Live {
            phase: phase.map_or("drain", |phase| phase.name),
            phase_done: done,
            elapsed: now.saturating_duration_since(self.begin),
            offered_per_sec: (planned - planned_before) as f64 / seconds * self.share.of as f64,
            achieved_per_sec: answered as f64 / seconds * self.share.of as f64,
            response_mean: self
                .latency_sum
                .checked_div(answered.min(u64::from(u32::MAX)) as u32)
                .unwrap_or_default(),
            hit_share: (hits - hits_before) as f64 / answered.max(1) as f64,
            failed,
        };
        self.told = (now, planned, ok, hits, failed);
        self.latency_sum = Duration::ZERO;
        live
    }
}

/// How long until the next arrival of a process whose rate goes straight from one value to another, given an
/// exponential draw of mean 1; none when its rate falls to nothing before.
fn gap(phase: &Phase, since: Duration, draw: f64) -> Option<Duration> {
    let Pace::Open { from_per_sec, to_per_sec } = phase.pace else { return None };
    let rate = phase.rate_at(since)?;
    let slope = match phase.end {
        End::Time(span) if !span.is_zero() => (to_per_sec - from_per_sec) / span.as_secs_f64() / 2.0,
        _ => 0.0,
    };
    let gap_s = if slope.abs() < 1e-12 * rate.max(1e-9) {
        draw / rate.max(1e-9)
    } else {
        // The area under the rate from here on reaches the draw: a quadratic equation.
        let inside = rate * rate + 4.0 * slope * draw;
        if inside < 0.0 {
            return None;
        }
        2.0 * draw / (rate + inside.sqrt()).max(1e-9)
    };
    Duration::try_from_secs_f64(gap_s).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_brings_as_many_requests_as_the_area_under_it() {
        let ramp = |from_per_sec, to_per_sec| {
            Phase::new("ramp", Pace::Open { from_per_sec, to_per_sec }, End::Time(Duration::from_secs(100)))
        };
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for (from, to) in [(0.1, 400.0), (400.0, 0.1), (200.0, 200.0)] {
            let phase = ramp(from, to);
            let (mut at, mut count, mut first_half) = (Duration::ZERO, 0, 0);
            while let Some(gap) = gap(&phase, at, -(1.0 - random.random::<f64>()).ln()) {
                at += gap;
                if at >= Duration::from_secs(100) {
                    break;
                }
                count += 1;
                first_half += u32::from(at < Duration::from_secs(50));
            }
            assert!((19_300..20_700).contains(&count), "{from} to {to}: {count}");
            let share = f64::from(first_half) / f64::from(count);
            let wanted = (3.0 * from + to) / (4.0 * (from + to));
            assert!((share - wanted).abs() < 0.02, "{from} to {to}: {share}, not {wanted}");
        }
    }
}
