//! One generator: the loop that sends requests when they are due and handles replies in between.
//!
//! ```text
//! schedule -> due now? -> idle connection of its robot, or a new one, or (shared pool) the queue -> socket
//! epoll -> reply, checked -> statistics: tally of the phase it was due in, moment it was due at
//! ```
//!
//! Always holds: latency counts from the planned moment, so that a stall of the proxy, of the origin or of this loop
//! stays in the figures. Requests that were due and never sent are counted as such. A request lost with a connection that
//! had been idle is sent once more, as any client does, and its latency keeps counting.
//! Not here: what is requested (see `plan`), when (see `schedule`), one connection (see `client`), all of them (see
//! `connections`), what the figures mean (see `judge`).

pub(super) mod client;
mod connections;
mod request;
mod schedule;
mod statistics;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use harness::open_loop::{Pacer, WaitChoice, Waiter};
use measure::ProcessWatch;

use self::client::{Fault, Flight, Progress, Reply};
use self::connections::Connections;
use self::request::RequestText;
use self::schedule::{Next, Schedule};
use self::statistics::Statistics;
use crate::error::WebloadError;
use crate::plan::body::BodyCheck;
use crate::plan::{Planned, Share};
use crate::results::curves::Moments;
use crate::results::tally::Tally;
use crate::run::{Event, WebloadConfig};
use crate::sockets::poller::{Batch, Ready};
use crate::sockets::slots::Token;

/// What a generator brings home.
pub(crate) struct Counted {
    pub tallies: Vec<Tally>,
    pub moments: Moments,
    pub waited: Option<WaitChoice>,
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

pub(crate) struct Generator<'a> {
    config: &'a WebloadConfig,
    share: Share,
    begin: Instant,
    begin_unix_s: f64,
    schedule: Schedule,
    connections: Connections,
    pacer: Pacer,
    /// Due, and without a connection.
    waiting: VecDeque<Flight>,
    /// Since when requests wait for a connection.
    full_since: Option<Instant>,
    in_flight: usize,
    requests: u64,
    request: RequestText,
    statistics: Statistics,
}

/// The sockets of one wait, for the pacer.
struct Replies<'r> {
    connections: &'r Connections,
    batch: &'r mut Batch,
    statistics: &'r mut Statistics,
    looks: u32,
    /// Of a last look that was a sleep: whether it lasted to its end.
    slept_to_the_end: Option<bool>,
}

impl Waiter for Replies<'_> {
    type Moment = Instant;
    type Error = std::io::Error;

    fn now(&mut self) -> Instant {
        Instant::now()
    }

    fn look(&mut self, until: Option<Instant>) -> std::io::Result<usize> {
        self.looks += 1;
        self.statistics.looks(until.is_some());
        let ready = self.connections.look(until, self.batch);
        self.slept_to_the_end = until.map(|until| Instant::now() >= until);
        ready
    }
}

impl<'a> Generator<'a> {
    pub fn new(config: &'a WebloadConfig, share: Share, begin: Instant) -> Result<Self, WebloadError> {
        // One of several looks for all.
        let watch = config.watch.filter(|_| share.number == 0).map(|process| ProcessWatch::start(&[process]));
        let wants_stamps = config.phases.iter().any(|phase| phase.pace != crate::Pace::Closed);
        Ok(Self {
            schedule: Schedule::new(&config.plan, &config.phases, share, begin),
            connections: Connections::new(config.route.peer, config.pool, share, wants_stamps)
                .map_err(WebloadError::setup("the generator's event loop"))?,
            pacer: Pacer::new(config.wait, config.threads.get()),
            waiting: VecDeque::new(),
            full_since: None,
            in_flight: 0,
            begin,
            begin_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            requests: 0,
            request: RequestText::new(),
            statistics: Statistics::new(&config.phases, begin, watch),
            share,
            config,
        })
    }

    /// Runs all phases, or until stopped.
    pub fn run(mut self, stop: &AtomicBool, tell: &mut dyn FnMut(Event)) -> Result<Counted, WebloadError> {
        let _precise = self.pacer.begin();
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
                let progress = self.schedule.progress(now);
                tell(Event::Live(self.statistics.live(now, progress, self.in_flight, self.share.of)));
            }
            if now >= next_sweep {
                next_sweep = now + SWEEP_EVERY;
                self.sweep(now);
            }
            if self.pacer.choice().is_none() && self.schedule.is_warm(now) {
                tell(Event::Waits(self.pacer.settle()));
            }
            let next_due = self.send_due(now);
            if self.schedule.is_over() {
                let until = *drain_until.get_or_insert(now + self.config.drain);
                if (self.in_flight == 0 && self.waiting.is_empty()) || now >= until {
                    break;
                }
            }
            let mut until = next_tell.min(next_sweep);
            if let Some(due) = next_due {
                until = until.min(due);
            }
            let waits_from = Instant::now();
            let (connections, statistics) = (&self.connections, &mut self.statistics);
            let mut replies =
                Replies { connections, batch: &mut batch, statistics, looks: 0, slept_to_the_end: None };
            let ready = self.pacer.wait(Some(until), &mut replies);
            let Replies { looks, slept_to_the_end, .. } = replies;
            let ready = ready.map_err(WebloadError::setup("the generator's wait for replies"))?;
            // What the first look finds was there already.
            if (ready == 0 || looks > 1)
                && let Some(tally) = self.statistics.of(self.schedule.phase())
            {
                tally.idle += waits_from.elapsed();
            }
            for event in &batch.ready {
                self.on_ready(*event);
            }
            self.statistics.looked(slept_to_the_end);
        }
        self.end_phase(Instant::now());
        self.give_up(stopped);
        Ok(self.statistics.close(self.pacer.choice(), stopped))
    }

    /// Sends what is due, up to a batch; when the next one is due, where that is known.
    fn send_due(&mut self, now: Instant) -> Option<Instant> {
        for _ in 0..BATCH_MAX {
            match self.schedule.next(now) {
                Next::Send(due, planned) => self.dispatch(planned, due, true),
                Next::Wait(due) => return Some(due),
                Next::WhenFree if self.in_flight >= self.connections.count_max() => return None,
                Next::WhenFree => match self.schedule.plan_one(now) {
                    Some(planned) => self.dispatch(planned, Instant::now(), false),
                    None => self.next_phase(now),
                },
                Next::EndPhase(at) => self.next_phase(at),
                Next::Over => return None,
            }
        }
        Some(now)
    }

    fn next_phase(&mut self, at: Instant) {
        self.end_phase(at);
        self.schedule.next_phase(at);
    }

    fn end_phase(&mut self, at: Instant) {
        self.note_room(at);
        self.full_since = (!self.waiting.is_empty()).then_some(at);
        self.statistics.end_phase(self.schedule.phase(), self.schedule.phase_begin(), at);
    }

    fn unix_s(&self, at: Instant) -> f64 {
        self.begin_unix_s + at.saturating_duration_since(self.begin).as_secs_f64()
    }

    /// Sends a request that is due, or has it wait for a connection.
    fn dispatch(&mut self, planned: Planned, due: Instant, open: bool) {
        let phase = self.statistics.phase_of(self.schedule.phase());
        self.statistics.planned(phase, due, &planned);
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
            sent: due,
            waited: false,
            phase: phase as u32,
            check: if checked { check } else { check.length_alone() },
            retried: false,
        };
        match self.connection_for(planned.robot) {
            Ok(Some(token)) => {
                if open {
                    self.statistics.late(&flight, Instant::now());
                }
                self.send(token, flight);
            }
            Ok(None) => {
                self.full_since.get_or_insert_with(Instant::now);
                if self.waiting.len() < WAITING_MAX {
                    self.waiting.push_back(Flight { waited: true, ..flight });
                }
            }
            Err(fault) => {
                self.statistics.sent(&flight);
                self.statistics.failed(&flight, fault);
            }
        }
    }

    /// A connection at rest, or a new one; none when there may be no more.
    fn connection_for(&mut self, robot: u32) -> Result<Option<Token>, Fault> {
        match self.connections.take_idle(robot) {
            Some(token) => Ok(Some(token)),
            None if self.connections.is_full() => Ok(None),
            None => self.connect(robot).map(Some),
        }
    }

    fn connect(&mut self, robot: u32) -> Result<Token, Fault> {
        let token = self.connections.connect(robot)?;
        if let Some(tally) = self.statistics.of(self.schedule.phase()) {
            tally.connections += 1;
        }
        Ok(token)
    }

    fn send(&mut self, token: Token, mut flight: Flight) {
        let due_unix_s = self.unix_s(flight.due);
        let Some(client) = self.connections.of(token) else { return };
        let last = client.requests_left == Some(1);
        let tail = self.schedule.tail(&flight.planned);
        let request = self.request.write(&flight, &self.config.route, tail, due_unix_s, last);
        if !flight.retried {
            flight.sent = Instant::now();
            self.statistics.sent(&flight);
        }
        self.in_flight += 1;
        if let Err(fault) = self.connections.send(token, flight, request) {
            let unanswered = true;
            self.broken(token, fault, unanswered);
        }
    }

    fn on_ready(&mut self, ready: Ready) {
        let token = Token(ready.token);
        match self.connections.on_ready(ready) {
            Some(Progress::Broken { fault, unanswered }) => self.broken(token, fault, unanswered),
            Some(Progress::Whole(reply)) => self.replied(token, &reply),
            Some(Progress::Going) | None => {}
        }
    }

    fn replied(&mut self, token: Token, reply: &Reply) {
        let now = Instant::now();
        let Some(client) = self.connections.of(token) else { return };
        let Some(flight) = client.flight.take() else { return };
        let stays = client.stays(reply);
        client.idle_since = now;
        self.in_flight -= 1;
        match reply.fault {
            Some(fault) => self.statistics.failed(&flight, fault),
            None => self.statistics.succeeded(&flight, reply, self.schedule.phase(), now),
        }
        if stays {
            self.serve_waiting(Some(token));
        } else {
            self.connections.close(token);
            self.serve_waiting(None);
        }
    }

    /// The connection is gone. A request that a peer may have closed its idle connection upon goes out once more.
    fn broken(&mut self, token: Token, fault: Fault, unanswered: bool) {
        let Some(client) = self.connections.of(token) else { return };
        let Some(mut flight) = client.flight.take() else { return self.connections.close_idle(token) };
        let (robot, was_idle) = (client.robot, client.replies > 0);
        self.connections.close(token);
        self.in_flight -= 1;
        if unanswered && was_idle && !flight.retried {
            flight.retried = true;
            self.statistics.reconnects(&flight);
            match self.connect(robot) {
                Ok(token) => return self.send(token, flight),
                Err(fault) => self.statistics.failed(&flight, fault),
            }
        } else {
            self.statistics.failed(&flight, fault);
        }
        self.serve_waiting(None);
    }

    /// No request waits for a connection any more, or those that do are counted up to now.
    fn note_room(&mut self, now: Instant) {
        if let Some(since) = self.full_since.take()
            && let Some(tally) = self.statistics.of(self.schedule.phase())
        {
            tally.full += now.saturating_duration_since(since);
        }
    }

    /// Gives those that wait what has become free.
    fn serve_waiting(&mut self, free: Option<Token>) {
        let Some(flight) = self.waiting.pop_front() else {
            self.note_room(Instant::now());
            if let Some(token) = free {
                self.connections.rest(token);
            }
            return;
        };
        match free.map_or_else(|| self.connection_for(flight.planned.robot), |token| Ok(Some(token))) {
            Ok(Some(token)) => self.send(token, flight),
            Ok(None) => self.waiting.push_front(flight),
            Err(fault) => {
                self.statistics.sent(&flight);
                self.statistics.failed(&flight, fault);
            }
        }
    }

    /// Ends what takes too long, and connections that have been idle too long.
    fn sweep(&mut self, now: Instant) {
        for token in self.connections.tokens() {
            let Some(client) = self.connections.of(token) else { continue };
            match &client.flight {
                Some(flight) if now.saturating_duration_since(flight.due) > self.config.timeout => {
                    self.broken(token, Fault::TimedOut, false);
                }
                Some(_) => {}
                None => self.connections.close_stale(token, now),
            }
        }
        while let Some(flight) = self.waiting.front()
            && now.saturating_duration_since(flight.due) > self.config.timeout
        {
            // Never sent: it counts as planned and never as answered.
            self.waiting.pop_front();
        }
    }

    /// Counts what is still unanswered; of a run that was cut short that is nobody's failure.
    fn give_up(&mut self, cut_short: bool) {
        for token in self.connections.tokens() {
            if let Some(flight) = self.connections.of(token).and_then(|client| client.flight.take()) {
                self.statistics.cancelled(&flight, cut_short);
            }
        }
    }
}
