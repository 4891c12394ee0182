//! Storage that answers after times drawn from a law, on a clock that only it moves.
//!
//! Waiting costs no time, so that a test sees hours of load in a second, and what a generator reports can be held
//! against the law itself. A stall stops all answers, and the generator with it, for a while: what a generator
//! that measures from the actual send would leave out.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use files::{
    Completion, Handle, HandleRef, Outcome, PlausibleReply, Request, Status, SubmitError, Ticket, Transport,
    TransportCounters, TransportError,
};
use quanta::{Clock, Instant, Mock};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How long an answer takes.
#[derive(Clone, Copy, Debug)]
pub enum Law {
    /// Always so long.
    Constant(Duration),
    /// Any time between the two, all with equal chance.
    Uniform(Duration, Duration),
    /// Exponential with this mean.
    Exponential(Duration),
    /// One server after the other: each answer takes so long of the one server there is.
    Queue(Duration),
}

const IN_FLIGHT_MAX: usize = 1 << 20;
const IO_BYTES_MAX: u32 = 1 << 20;
/// What a look for answers takes that finds none and does not wait.
const A_LOOK: Duration = Duration::from_nanos(500);

impl Law {
    /// The latency that `quantile` (0 to 1) of the answers do not exceed, for laws without a queue.
    pub fn quantile(self, quantile: f64) -> Duration {
        match self {
            Self::Constant(time) | Self::Queue(time) => time,
            Self::Uniform(from, to) => from + (to - from).mul_f64(quantile),
            Self::Exponential(mean) => mean.mul_f64(-(1.0 - quantile).ln()),
        }
    }
}

/// Something that goes wrong.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Nothing is answered from the one time (since the begin) for the other. Calls return at once, as those of a socket do
    /// that does not block.
    Stall(Duration, Duration),
    /// Every so-many-th request fails with this status.
    Fail(u64, Status),
    /// The storage is gone at this time.
    Vanish(Duration),
    /// There is no connection from the one time (since the begin) for the other: what was in flight is lost, and nothing is
    /// taken.
    Away(Duration, Duration),
    /// Every so-many-th request is never answered.
    Lose(u64),
}

/// What holds up the generator and not the storage, as a busy machine does.
#[derive(Clone, Copy, Debug)]
pub enum HeldUp {
    /// Every so-many-th request is sent this much later than it was to be.
    Sends(u64, Duration),
    /// Once in the first time, the generator stands still for the second one: it neither sends nor takes replies.
    Pauses(Duration, Duration),
    /// The same once, from the one time (since the begin) for the other.
    Once(Duration, Duration),
}

/// An answer to come; ordered by its time.
#[derive(Debug)]
struct Answer {
    at: Duration,
    number: u64,
    ticket: Ticket,
    reply: PlausibleReply,
}

impl PartialEq for Answer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Answer {}

impl PartialOrd for Answer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Answer {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// See the head of this file.
pub struct LawTransport {
    law: Law,
    faults: Vec<Fault>,
    clock: Clock,
    mock: Arc<Mock>,
    begun: Instant,
    rng: Xoshiro256PlusPlus,
    /// Answers to come, the soonest first.
    due: BinaryHeap<Reverse<Answer>>,
    root: Handle,
    zeros: Vec<u8>,
    requests: u64,
    server_free_at: Duration,
    in_flight_max: usize,
    lost: usize,
    held_up: Option<HeldUp>,
    /// How long the storage took for each request, in the order of sending; none for one it never answered.
    log: Vec<Option<Duration>>,
}

impl LawTransport {
    /// Storage under `law`, with the clock it moves.
    pub fn new(law: Law, faults: &[Fault], seed: u64) -> (Self, Clock) {
        let (clock, mock) = Clock::mock();
        mock.increment(Duration::from_secs(1000));
        let transport = Self {
            law,
            faults: faults.to_vec(),
            begun: clock.now(),
            root: Handle::new(&[0; 16]).expect("16 bytes are few enough"),
            zeros: vec![0; IO_BYTES_MAX as usize],
            clock: clock.clone(),
            mock,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            due: BinaryHeap::new(),
            requests: 0,
            server_free_at: Duration::ZERO,
            in_flight_max: IN_FLIGHT_MAX,
            lost: 0,
            held_up: None,
            log: Vec::new(),
        };
        (transport, clock)
    }

    /// The same with room for only this many requests in flight.
    pub fn with_in_flight_max(mut self, in_flight_max: usize) -> Self {
        self.in_flight_max = in_flight_max;
        self
    }

    /// The same with a generator that is held up. It takes replies when it gets to it, later than they arrived.
    pub fn with_generator_held_up(mut self, held_up: HeldUp) -> Self {
        self.held_up = Some(held_up);
        self
    }

    /// The storage's own log: how long it took for each request, in the order of sending; none for one it never answered.
    pub fn log(&self) -> &[Option<Duration>] {
        &self.log
    }

    /// The end of the pause of the generator that this moment is in; the moment itself in none.
    fn pause_over(&self, at: Duration) -> Duration {
        match self.held_up {
            Some(HeldUp::Pauses(every, length)) => {
                let into = Duration::from_nanos((at.as_nanos() % every.as_nanos()) as u64);
                if into < length { at + (length - into) } else { at }
            }
            Some(HeldUp::Once(from, length)) if at >= from => at.max(from + length),
            _ => at,
        }
    }

    fn now(&self) -> Duration {
        self.clock.now() - self.begun
    }

    fn stall_over(&self, at: Duration) -> Duration {
        self.faults.iter().fold(at, |at, fault| match *fault {
            Fault::Stall(from, length) if at >= from && at < from + length => from + length,
            _ => at,
        })
    }

    /// When the connection is there again; none while it is there.
    fn away_until(&self) -> Option<Duration> {
        let now = self.now();
        self.faults.iter().find_map(|fault| match *fault {
            Fault::Away(from, length) if now >= from && now < from + length => Some(from + length),
            _ => None,
        })
    }

    /// Gives back what was in flight as lost.
    fn lose_all(&mut self, deliver: &mut dyn FnMut(Completion<'_>)) -> usize {
        let done = self.clock.now();
        let lost: Vec<Reverse<Answer>> = self.due.drain().collect();
        for Reverse(answer) in &lost {
            let (ticket, outcome) = (answer.ticket, Outcome::Lost);
            deliver(Completion { ticket, outcome, retransmits: 0, done, arrived: None, began: None });
        }
        lost.len()
    }

    fn advance_to(&self, at: Duration) {
        self.mock.increment(at.saturating_sub(self.now()));
    }
}

impl Transport for LawTransport {
    fn submit(&mut self, ticket: Ticket, request: &Request<'_>) -> Result<(), SubmitError> {
        self.advance_to(self.pause_over(self.now()));
        if self.in_flight() >= self.in_flight_max || !self.is_connected() {
            return Err(SubmitError::Full);
        }
        if let Some(HeldUp::Sends(one_in, later)) = self.held_up
            && (self.requests + 1).is_multiple_of(one_in)
        {
            self.mock.increment(later);
        }
        let now = self.now();
        let takes = match self.law {
            Law::Queue(time) => {
                self.server_free_at = self.server_free_at.max(now) + time;
                self.server_free_at - now
            }
            law => law.quantile(self.rng.random()),
        };
        self.requests += 1;
        let (at, number) = (self.stall_over(now + takes), self.requests);
        let lose = |fault: &Fault| matches!(*fault, Fault::Lose(every) if number.is_multiple_of(every));
        if self.faults.iter().any(lose) {
            self.lost += 1;
            self.log.push(None);
            return Ok(());
        }
        self.log.push(Some(at - now));
        self.due.push(Reverse(Answer { at, number, ticket, reply: PlausibleReply::to(request) }));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    fn poll(
        &mut self,
        until: Option<Instant>,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> Result<usize, TransportError> {
        let (now, until_given) = (self.now(), until);
        let until = until.map_or(now, |until| until - self.begun).max(now);
        if self.faults.iter().any(|fault| matches!(*fault, Fault::Vanish(at) if until >= at)) {
            let source = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
            return Err(TransportError::Disconnected { target: "law:".to_owned(), waited_s: 30.0, source });
        }
        if let Some(back) = self.away_until() {
            let lost = self.lose_all(deliver);
            if lost == 0 {
                self.advance_to(until.min(back));
                self.mock.increment(A_LOOK);
            }
            return Ok(lost);
        }
        let until = self.faults.iter().fold(until, |until, fault| match *fault {
            Fault::Away(from, _) if from > now => until.min(from),
            _ => until,
        });
        let to = self.due.peek().map_or(until, |first| first.0.at.clamp(now, until));
        self.advance_to(self.pause_over(to));
        let to = self.now();
        let mut delivered = 0;
        while self.due.peek().is_some_and(|first| first.0.at <= to) {
            let Some(Reverse(answer)) = self.due.pop() else { break };
            let failed = self.faults.iter().find_map(|fault| match *fault {
                Fault::Fail(every, status) if answer.number.is_multiple_of(every) => Some(status),
                _ => None,
            });
            let outcome =
                failed.map_or_else(|| Outcome::Ok(answer.reply.reply(&self.zeros)), Outcome::Failed);
            deliver(Completion {
                ticket: answer.ticket,
                outcome,
                retransmits: 0,
                done: self.begun + if self.held_up.is_some() { to } else { answer.at },
                arrived: Some(self.begun + answer.at),
                began: None,
            });
            delivered += 1;
        }
        if delivered == 0 && until_given.is_none() {
            // Time advances for a caller that looks again and again instead of sleeping.
            self.mock.increment(A_LOOK);
        }
        Ok(delivered)
    }

    fn in_flight(&self) -> usize {
        self.due.len() + self.lost
    }

    fn is_connected(&self) -> bool {
        self.away_until().is_none()
    }

    fn root(&self) -> HandleRef<'_> {
        self.root.by_ref()
    }

    fn io_bytes_max(&self) -> u32 {
        IO_BYTES_MAX
    }

    fn counters(&self) -> TransportCounters {
        TransportCounters::default()
    }
}
