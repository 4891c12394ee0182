//! The loop that sends requests when they are due and takes replies in between.
//!
//! ```text
//!            begin          counted_from                    end        drained
//!              |---- warm ------|--------- measured ---------|--- drain ---|
//! due:         .  .  .  .  .  . |.  .  .  .  .  .  .  .  .  .|
//! ```
//!
//! Always holds: the schedule alone says when a request is due, and no reply is waited for before the next is sent, so that a
//! stall of the server or the network meets every request that is due in it (no coordinated omission). Latency counts from the
//! moment a request was really sent, and from the planned one if it waited for room in the transport; that this loop itself was
//! late is kept apart (`harness::open_loop`). What is due within the measured interval is counted, whenever it is sent or
//! answered. Later requests of a chain have no place in the schedule: they are due when the one before is answered, count where
//! the first one counts, and leave before what the schedule has due. In a closed loop there is no schedule: a request is due when it is sent, and the figures are labelled so.
//!
//! Not here: what to ask (see `planner`), what the figures mean (see `judge`).

mod count;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use files::{Outcome, SubmitError, Ticket, Transport, TransportCounters, TransportError};
use harness::Event;
use harness::open_loop::{GeneratorLimits, LatenessLog, Pacer, Waiter};
use measure::{MachineUse, StepCounts};
use quanta::{Clock, Instant};
use serde::{Deserialize, Serialize};

use self::count::Count;
use super::arrivals::Schedule;
use super::planner::{Follow, NameBuffers, Planned, Planner};
use crate::error::FstressError;
use crate::results::raw::Samples;
use crate::results::tally::{ChainTally, Tallies};

/// What sets the pace of a load point.
pub(crate) enum Pace {
    /// The schedule, all of it so much later.
    Open(Schedule, Duration),
    /// The replies: a new request for each, with this many outstanding.
    Closed(u32),
}

/// Lengths of the parts of a load point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spans {
    pub warm: Duration,
    pub measure: Duration,
    /// How long to wait, after the end, for replies to what was sent.
    pub drain: Duration,
}

/// A load point as measured, before it is judged.
pub(crate) struct Measured {
    pub tallies: Tallies,
    /// How late requests were sent and replies taken.
    pub lateness: LatenessLog,
    /// Ranks that were late by themselves, and how.
    pub late_ranks: Vec<(u32, String)>,
    /// Time in which requests waited for a thread, slot or connection of ours.
    pub full: Duration,
    /// When the storage could not be reached, or did not answer.
    pub absence: Absence,
    /// Due within the interval.
    pub planned: u64,
    /// Of those, sent.
    pub sent: u64,
    /// Successes within the interval, see [`count::InTime`].
    pub ok_within: u64,
    /// The same with errors that the server gave for an answer; one that asks to retry later is none.
    pub answered_within: u64,
    pub warmed: Duration,
    pub measured: Duration,
    /// Share of one core that was not spent on waiting, 0 to 1.
    pub busy: f64,
    pub counters: TransportCounters,
    /// Requests whose predecessor had not been answered when they were due, so that another was sent.
    pub overtaken: u64,
    /// What became of the workload's chains, in their order.
    pub chains: Vec<ChainTally>,
    /// Digest over all operations asked since the warm-up began: equal for equal seeds.
    pub digest: u64,
    /// Bytes that the file set was made with, as of this load.
    pub set_bytes_made: u64,
    /// Bytes that created files are still to get.
    pub set_bytes_to_come: u64,
    /// What else the machine did, from the warm-up to the last reply; nothing for a run that does not watch it.
    pub machine: MachineUse,
    /// Why the interval ended before its time, if it did.
    pub cut_short: Option<CutShort>,
    /// How it went over its time, from the begin of the warm-up.
    pub steps: StepCounts,
}

/// When the storage could not be reached, or did not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Absence {
    /// Time of the measured interval in which requests waited for a connection that was lost.
    pub away: Duration,
    /// There was none yet when it was no longer waited for.
    pub is_away_still: bool,
    /// How long nothing had been answered when it was no longer waited for; zero when it answered to the end.
    pub silent: Duration,
}

impl Measured {
    /// Whether the storage went away in the interval, so that this says nothing of what it holds. That it was away for a moment,
    /// and all was answered in time none the less, does not count.
    pub fn is_storage_gone(&self) -> bool {
        match self.cut_short {
            Some(CutShort::Gone(_)) => return true,
            Some(CutShort::Stopped) => return false,
            None => {}
        }
        let held_min = GeneratorLimits::default().held_min;
        let is_short = (self.answered_within as f64) < held_min * self.planned as f64;
        let Absence { away, is_away_still, silent } = self.absence;
        let was_away = away.as_secs_f64() > (1.0 - held_min) * self.measured.as_secs_f64();
        is_away_still || is_short && (was_away || !silent.is_zero())
    }
}

/// Why a load point ended early.
pub(crate) enum CutShort {
    /// The user asked to stop.
    Stopped,
    /// The storage is gone.
    Gone(FstressError),
}

impl From<TransportError> for CutShort {
    fn from(gone: TransportError) -> Self {
        Self::Gone(gone.into())
    }
}

/// Requests in flight, by ticket. Lives as long as the transport, as late replies cross load points.
#[derive(Default)]
pub(crate) struct Flights {
    slots: Vec<Flight>,
    free: Vec<u32>,
    /// Due now: later requests of chains whose earlier ones were answered.
    followers: VecDeque<Flight>,
}

#[derive(Clone, Copy)]
struct Flight {
    planned: Planned,
    due: Instant,
    sent: Instant,
    /// It waited for room in the transport, or behind others that did.
    waited_for_room: bool,
    /// It follows another request of its chain, and not the schedule.
    follows: bool,
    /// The load point whose interval it counts in; 0 in none.
    counted_in: u32,
}

impl Flights {
    fn board(&mut self, flight: Flight) -> Ticket {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = flight;
                Ticket(slot)
            }
            None => {
                self.slots.push(flight);
                Ticket(self.slots.len() as u32 - 1)
            }
        }
    }

    /// Notes when these were really sent. The moment the schedule had each for, and how late that is.
    fn sent<'f>(
        &'f mut self,
        batch: &'f [Ticket],
        sent: Instant,
        waited_for_room: bool,
    ) -> impl Iterator<Item = (Instant, Duration)> + 'f {
        for ticket in batch {
            let flight = &mut self.slots[ticket.0 as usize];
            (flight.sent, flight.waited_for_room) = (sent, waited_for_room);
        }
        let late = move |ticket: &Ticket| {
            let flight = &self.slots[ticket.0 as usize];
            (!flight.follows).then(|| (flight.due, sent.saturating_duration_since(flight.due)))
        };
        batch.iter().filter_map(late)
    }

    fn land(&mut self, ticket: Ticket) -> Flight {
        self.free.push(ticket.0);
        self.slots[ticket.0 as usize]
    }

    /// Takes in a reply that came after its load point was over. Tickets of others are left alone.
    pub fn settle_late(&mut self, ticket: Ticket, planner: &mut Planner, outcome: &Outcome<'_>) {
        if (ticket.0 as usize) < self.slots.len() {
            let flight = self.land(ticket);
            planner.settle(&flight.planned, outcome);
            planner.abandon(&flight.planned);
        }
    }
}

/// Everything a load point needs; the borrowed parts outlive it.
pub(crate) struct Metronome<'a> {
    pub transport: &'a mut dyn Transport,
    pub planner: &'a mut Planner,
    pub flights: &'a mut Flights,
    pub clock: &'a Clock,
    pub pacer: &'a mut Pacer,
    pub stop: &'a AtomicBool,
    /// Called a few times per second with the state of the run.
    pub tell: &'a mut dyn FnMut(Event),
    /// Number of the load point, from 1.
    pub point: u32,
    /// Bytes that the file set was made with.
    pub set_bytes_made: u64,
    /// Where each counted request is kept by itself, when it is to be.
    pub samples: Option<&'a mut Samples>,
}

/// The most requests between two looks at the replies: TCP needs 16 per write to be fast, and
/// 64 keeps replies from waiting.
const BATCH_MAX: usize = 64;
const WRITE_WORTH_WHILE: usize = 16;
/// How long before the measured interval to choose how to wait: as a share of the warm-up, and at most.
const SETTLE_SHARE: u32 = 10;
const SETTLE_MAX: Duration = Duration::from_millis(50);
/// How long to let replies come in when the transport takes no more requests.
const FULL_WAIT: Duration = Duration::from_micros(200);
const TELL_EVERY: Duration = Duration::from_millis(500);
/// How long to wait for the last replies once the user asked to stop, and how soon that is seen.
const DRAIN_STOPPED: Duration = Duration::from_secs(2);
const STOP_SEEN_WITHIN: Duration = Duration::from_millis(100);
/// This many requests due after the last answer, or more, say that the storage fell silent: fewer may have been lost on their way.
const SILENT_DUE_MIN: f64 = 10.0;

impl Metronome<'_> {
    /// Runs one load point from `begin`, which is now, to its end, or until stopped.
    pub fn run(&mut self, begin: Instant, mut pace: Pace, spans: Spans) -> Measured {
        let _precise = self.pacer.begin();
        let counted_from = begin + spans.warm;
        let mut settle_at = Some(begin + (spans.warm - (spans.warm / SETTLE_SHARE).min(SETTLE_MAX)));
        let end = counted_from + spans.measure;
        let is_open = matches!(pace, Pace::Open(..));
        let mut count =
            Count::new(self.planner, self.point, self.samples.take(), [begin, counted_from, end], is_open);
        self.planner.begin_point(begin, matches!(pace, Pace::Closed(_)));
        self.transport.stamp_arrivals(is_open);

        let mut cut_short = None;
        let mut counters_before = None;
        let mut next_tell = begin + TELL_EVERY;
        let mut next_due = match &mut pace {
            Pace::Open(schedule, later) => begin + *later + schedule.next_due(),
            Pace::Closed(_) => begin,
        };
        let mut held: Option<Flight> = None;
        let mut batch: Vec<Ticket> = Vec::with_capacity(BATCH_MAX);
        // Since when there is no room, and whether it is the connection that is missing.
        let mut blocked: Option<(Instant, bool)> = None;
        let mut names = NameBuffers::default();

        let stopped_at = loop {
            let now = self.clock.now();
            if now >= end {
                break end;
            }
            if self.stop.load(Ordering::Relaxed) {
                cut_short = Some(CutShort::Stopped);
                break now;
            }
            if settle_at.is_some_and(|at| now >= at) {
                settle_at = None;
                self.settle();
            }
            if counters_before.is_none() && now >= counted_from {
                counters_before = Some(self.transport.counters());
                count.idle = Duration::ZERO;
            }
            if now >= next_tell {
                next_tell = now + TELL_EVERY;
                let in_flight = self.transport.in_flight();
                (self.tell)(Event::Live(count.live(now, begin, counted_from, in_flight)));
            }

            let mut full = false;
            let mut caught_up = false;
            batch.clear();
            let room = match &pace {
                Pace::Closed(outstanding) => {
                    room_for_batch(*outstanding as usize, self.transport.in_flight())
                }
                Pace::Open(..) => BATCH_MAX,
            };
            while batch.len() < BATCH_MAX {
                let flight = match (&mut pace, held.take().or_else(|| self.flights.followers.pop_front())) {
                    (_, Some(flight)) => flight,
                    (Pace::Open(schedule, later), None) => {
                        if next_due > now || next_due >= end {
                            caught_up = true;
                            break;
                        }
                        let due = next_due;
                        next_due = begin + *later + schedule.next_due();
                        count.flight(self.planner, due)
                    }
                    (Pace::Closed(_), None) => {
                        if batch.len() >= room {
                            break;
                        }
                        count.flight(self.planner, now)
                    }
                };
                let ticket = self.flights.board(flight);
                match self.transport.submit(ticket, &self.planner.request(&flight.planned, &mut names)) {
                    Ok(()) => {
                        batch.push(ticket);
                        count.submitted(&flight, self.planner);
                    }
                    Err(SubmitError::Full) => {
                        held = Some(self.flights.land(ticket));
                        full = true;
                        count.behind = true;
                        break;
                    }
                }
            }
            if let Some((since, is_away)) = blocked.take() {
                count.blocked(since, now, is_away);
            }
            if full {
                blocked = Some((now, !self.transport.is_connected()));
            }
            if !batch.is_empty() {
                match &pace {
                    Pace::Open(..) => {
                        let sent = self.flights.sent(&batch, self.clock.now(), count.behind);
                        count.late(sent, batch.len(), caught_up);
                    }
                    // Due when it is sent: there is nothing to be late for.
                    Pace::Closed(_) => count.recent_sent += batch.len() as u64,
                }
                if let Err(gone) = self.transport.flush() {
                    cut_short = Some(gone.into());
                    break now;
                }
            }

            let until = match &pace {
                _ if full => Wake::AtMost((now + FULL_WAIT).min(end)),
                _ if batch.len() == BATCH_MAX => Wake::AtOnce,
                Pace::Open(..) => Wake::At(next_due.min(end).min(next_tell)),
                Pace::Closed(_) => Wake::At(end.min(next_tell)),
            };
            if let Err(gone) = self.poll(until, &mut count) {
                cut_short = Some(gone.into());
                break self.clock.now();
            }
        };

        let counters_before = counters_before.unwrap_or_else(|| self.transport.counters());
        let measured = stopped_at.min(end).saturating_duration_since(counted_from);
        let busy = 1.0 - count.idle.as_secs_f64() / measured.as_secs_f64().max(1e-9);
        if let Some((since, is_away)) = blocked {
            count.blocked(since, stopped_at.min(end), is_away);
        }
        // What was due and never sent: the one held back, and what the schedule still had.
        if let Some(flight) = held {
            self.take_back(&flight, &mut count);
        }
        if let Pace::Open(schedule, later) = &mut pace {
            while next_due < stopped_at {
                count.unsent += u64::from(next_due >= counted_from);
                next_due = begin + *later + schedule.next_due();
            }
        }
        let mut given_up = None;
        if !matches!(cut_short, Some(CutShort::Gone(_))) {
            let until = stopped_at + spans.drain;
            match self.drain(until, &mut count) {
                Ok(Drained::All) => {}
                Ok(Drained::GivenUp) => given_up = Some(until),
                Ok(Drained::Stopped) => cut_short = Some(CutShort::Stopped),
                Err(gone) => cut_short = Some(gone.into()),
            }
        }
        while let Some(flight) = self.flights.followers.pop_front() {
            self.take_back(&flight, &mut count);
        }
        // What the storage kept: a pause of the generator before the end leaves requests that were due and that it never saw.
        let kept_waiting = count.sent_since_answer + if count.full.is_zero() { 0 } else { count.unsent };
        // What was not waited for is not known to have taken long.
        let is_stopped = matches!(cut_short, Some(CutShort::Stopped));
        count.give_up((!is_stopped).then_some(spans.drain));
        let set_bytes_to_come = self.planner.bytes_to_come();
        let planned = count.sent + count.unsent;
        let absence = Absence {
            away: count.away,
            is_away_still: given_up.is_some() && !self.transport.is_connected(),
            silent: given_up.map_or(Duration::ZERO, |at| {
                let since = count.answered_at.unwrap_or(begin);
                let share = stopped_at.saturating_duration_since(since.max(counted_from)).as_secs_f64()
                    / measured.as_secs_f64().max(1e-9);
                let fell_silent = (share * planned as f64).min(kept_waiting as f64) >= SILENT_DUE_MIN;
                if fell_silent { at.saturating_duration_since(since) } else { Duration::ZERO }
            }),
        };

        let counters = difference(self.transport.counters(), counters_before);
        let mut measured = Measured {
            planned,
            sent: count.sent,
            ok_within: count.ok.total(),
            answered_within: count.ok.and(count.refused).total(),
            tallies: count.tallies,
            lateness: count.lateness,
            late_ranks: Vec::new(),
            full: count.full + counters.waited_for_thread,
            absence,
            warmed: stopped_at.min(counted_from).saturating_duration_since(begin),
            measured,
            busy: busy.clamp(0.0, 1.0),
            counters,
            overtaken: self.planner.overtaken(),
            chains: count.chains,
            digest: self.planner.digest(),
            set_bytes_made: self.set_bytes_made,
            set_bytes_to_come,
            machine: MachineUse::default(),
            cut_short,
            steps: count.time_series.stop(),
        };
        if measured.is_storage_gone() {
            let lost = measured.tallies.give_up_lost(spans.drain);
            if is_open {
                measured.lateness.unanswered(spans.drain, lost);
            }
        }
        measured
    }

    /// Chooses how to wait. The first choice of a run is reported.
    fn settle(&mut self) {
        let is_first = self.pacer.choice().is_none();
        let choice = self.pacer.settle();
        if is_first {
            (self.tell)(Event::Waits(choice));
        }
    }

    /// A request that was planned and will not be sent.
    fn take_back(&mut self, flight: &Flight, count: &mut Count<'_>) {
        // The planner has applied its effects already and waits for an end.
        self.planner.settle(&flight.planned, &Outcome::Cancelled);
        self.planner.abandon(&flight.planned);
        count.take_back(flight);
    }

    /// Sends what follows the replies so far, as far as there is room, when the schedule is over.
    fn send_followers(&mut self, count: &mut Count<'_>) -> Result<(), TransportError> {
        let mut names = NameBuffers::default();
        let mut batch = Vec::new();
        while let Some(flight) = self.flights.followers.pop_front() {
            let ticket = self.flights.board(flight);
            match self.transport.submit(ticket, &self.planner.request(&flight.planned, &mut names)) {
                Ok(()) => {
                    batch.push(ticket);
                    count.submitted(&flight, self.planner);
                }
                Err(SubmitError::Full) => {
                    let flight = self.flights.land(ticket);
                    self.flights.followers.push_front(flight);
                    break;
                }
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.flights.sent(&batch, self.clock.now(), false).for_each(drop);
        self.transport.flush()
    }

    fn poll(&mut self, until: Wake, count: &mut Count<'_>) -> Result<(), TransportError> {
        let waits_from = self.clock.now();
        let mut replies = Replies {
            clock: self.clock,
            transport: &mut *self.transport,
            planner: &mut *self.planner,
            flights: &mut *self.flights,
            count,
            first_done: None,
        };
        let delivered = match until {
            Wake::AtOnce => replies.look(None)?,
            Wake::AtMost(until) => replies.look(Some(until))?,
            Wake::At(until) => self.pacer.wait(Some(until), &mut replies)?,
        };
        let first_done = replies.first_done;
        let waited_to = if delivered == 0 { self.clock.now() } else { first_done.unwrap_or(waits_from) };
        count.idle += waited_to.saturating_duration_since(waits_from);
        Ok(())
    }

    /// Takes replies until all counted requests are answered or the time is over; the user's wish to stop leaves little. A connection
    /// that was lost is waited for, too.
    fn drain(&mut self, until: Instant, count: &mut Count<'_>) -> Result<Drained, TransportError> {
        let mut until = until;
        let mut stopped = false;
        let is_lost = !count.away.is_zero();
        while count.in_flight > 0 && (self.transport.in_flight() > 0 || !self.flights.followers.is_empty())
            || is_lost && !self.transport.is_connected()
        {
            let now = self.clock.now();
            if !stopped && self.stop.load(Ordering::Relaxed) {
                stopped = true;
                until = until.min(now + DRAIN_STOPPED);
            }
            if now >= until {
                return Ok(if stopped { Drained::Stopped } else { Drained::GivenUp });
            }
            self.send_followers(count)?;
            self.poll(Wake::At(until.min(now + STOP_SEEN_WITHIN)), count)?;
        }
        Ok(Drained::All)
    }
}

/// When to come back from taking replies, other than for a reply.
enum Wake {
    /// After one look.
    AtOnce,
    /// At this moment, as exactly as the pacer can.
    At(Instant),
    /// About then: nothing is due.
    AtMost(Instant),
}

/// The replies of one wait, for the pacer.
struct Replies<'r, 'c> {
    clock: &'r Clock,
    transport: &'r mut dyn Transport,
    planner: &'r mut Planner,
    flights: &'r mut Flights,
    count: &'r mut Count<'c>,
    first_done: Option<Instant>,
}

impl Waiter for Replies<'_, '_> {
    type Moment = Instant;
    type Error = TransportError;

    #[inline]
    fn now(&mut self) -> Instant {
        self.clock.now()
    }

    #[inline]
    fn look(&mut self, until: Option<Instant>) -> Result<usize, TransportError> {
        let Self { clock, transport, planner, flights, count, first_done } = self;
        if count.is_open {
            count.look(clock.now(), until.is_some());
        }
        let taken = transport.poll(until, &mut |completion| {
            first_done.get_or_insert(completion.done);
            // No one waits any more for a reply to the builder that comes now.
            if completion.ticket.0 as usize >= flights.slots.len() {
                return;
            }
            let flight = flights.land(completion.ticket);
            planner.settle(&flight.planned, &completion.outcome);
            let from = if flight.waited_for_room { flight.due } else { flight.sent };
            let follow = planner.follow(&flight.planned, &completion.outcome, from);
            count.settle(&flight, &completion, follow.as_ref());
            if let Some(Follow::Next(planned)) = follow {
                flights.followers.push_back(count.follower(planned, completion.done, flight.counted_in));
            }
        });
        // What came before the connection broke counts as well.
        if count.is_open {
            count.taken(until.map(|until| clock.now() >= until));
        }
        taken
    }
}

/// How waiting for the last replies ended.
enum Drained {
    /// There is nothing left to wait for.
    All,
    /// The time was over.
    GivenUp,
    /// The user asked to stop, and some replies had not come.
    Stopped,
}

/// How many requests a closed loop sends now: all there is room for, but not fewer than are worth a write
/// (16, or a quarter of a small `outstanding`), so at times up to that many fewer are in flight.
fn room_for_batch(outstanding: usize, in_flight: usize) -> usize {
    let room = outstanding.saturating_sub(in_flight);
    if room < WRITE_WORTH_WHILE.min(outstanding.div_ceil(4)) { 0 } else { room }
}

fn difference(after: TransportCounters, before: TransportCounters) -> TransportCounters {
    TransportCounters {
        reconnects: after.reconnects - before.reconnects,
        bad_replies: after.bad_replies - before.bad_replies,
        garbage: after.garbage - before.garbage,
        retransmits: after.retransmits - before.retransmits,
        sent_bytes: after.sent_bytes - before.sent_bytes,
        received_bytes: after.received_bytes - before.received_bytes,
        waited_for_thread: after.waited_for_thread.saturating_sub(before.waited_for_thread),
    }
}
