//! What one load point counts: requests sent, replies in time, lateness, what stayed unanswered.
//!
//! Always holds: a request counts in the interval in which it was due, whenever it is sent or answered.
//!
//! Not here: when to send and to look for replies (see `metronome`), what the counts mean (see `judge`).

use std::time::Duration;

use files::{Completion, OpKind, Outcome, Reply, Status};
use harness::open_loop::{LatenessLog, ReplyTime, ReplyTimes, RunDelay, SendTimes, Sleep};
use harness::{Live, Stage};
use measure::{LatencyHistogram, TimeSeriesRecorder};
use quanta::Instant;

use super::Flight;
use crate::open_loop::planner::{Follow, Planned, Planner};
use crate::results::raw::Samples;
use crate::results::tally::{ChainTally, Tallies};

/// Up to this many latencies between two progress reports are all in their percentiles.
const RECENT_ALL: u64 = 4096;

/// Replies within the measured interval to the requests that were due in it.
///
/// Those that are under way at its end are answered after it, as those from the warm-up are in it. So a reply that comes late counts
/// as long as a reply to a request of the warm-up came in its stead: a storage that keeps up holds its rate, however short the
/// interval, and a backlog from the warm-up makes up for nothing that was lost, failed or never sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct InTime {
    /// Of the interval, answered in it.
    own: u64,
    /// Of the warm-up, answered in the interval.
    earlier: u64,
    /// Of the interval, answered after it.
    late: u64,
}

impl InTime {
    #[inline]
    fn count(&mut self, is_own: bool, is_within: bool) {
        match (is_own, is_within) {
            (true, true) => self.own += 1,
            (true, false) => self.late += 1,
            (false, true) => self.earlier += 1,
            (false, false) => {}
        }
    }

    pub fn total(self) -> u64 {
        self.own + self.earlier.min(self.late)
    }

    /// These and the others.
    pub fn and(self, others: Self) -> Self {
        Self {
            own: self.own + others.own,
            earlier: self.earlier + others.earlier,
            late: self.late + others.late,
        }
    }
}

/// A good reply whose latency waits for the others of the same look.
#[derive(Clone, Copy, Debug)]
pub struct Good {
    kind: OpKind,
    /// Since the interval began.
    due: Duration,
    /// What the latency from the planned moment has beyond the one that is reported.
    sent_late: Duration,
}

/// The counting of one load point.
pub struct Count<'a> {
    point: u32,
    samples: Option<&'a mut Samples>,
    begin: Instant,
    counted_from: Instant,
    end: Instant,
    /// How the level goes over its time, with the warm-up.
    pub time_series: TimeSeriesRecorder,
    pub tallies: Tallies,
    pub is_open: bool,
    pub lateness: LatenessLog,
    /// Replies of the look under way: their latencies count when all are there.
    times: ReplyTimes<Instant, Good>,
    run_delay: RunDelay,
    pub full: Duration,
    pub away: Duration,
    /// When the last answer to any request came.
    pub answered_at: Option<Instant>,
    /// Counted requests that were sent after it.
    pub sent_since_answer: u64,
    /// Since the last look at the progress; all operations, counted or not.
    recent: LatencyHistogram,
    recent_late: LatencyHistogram,
    send_times: SendTimes<Instant>,
    pub recent_sent: u64,
    recent_ok: u64,
    recent_errors: u64,
    told_at: Option<Instant>,
    pub sent: u64,
    pub unsent: u64,
    pub ok: InTime,
    /// Answers that are errors.
    pub refused: InTime,
    pub in_flight: u64,
    pub idle: Duration,
    /// The transport refused a request, and what was due meanwhile has not all gone out yet.
    pub behind: bool,
    in_flight_by_kind: [u64; OpKind::COUNT],
    /// In the order of the workload's chains.
    pub chains: Vec<ChainTally>,
}

impl<'a> Count<'a> {
    pub fn new(
        planner: &Planner,
        point: u32,
        samples: Option<&'a mut Samples>,
        [begin, counted_from, end]: [Instant; 3],
        is_open: bool,
    ) -> Self {
        Self {
            point,
            samples,
            begin,
            counted_from,
            end,
            time_series: TimeSeriesRecorder::start(),
            tallies: Tallies::new(planner.mix()),
            is_open,
            lateness: LatenessLog::default(),
            times: ReplyTimes::new(),
            run_delay: RunDelay::of_this_thread(),
            full: Duration::ZERO,
            away: Duration::ZERO,
            answered_at: None,
            sent_since_answer: 0,
            recent: LatencyHistogram::new(),
            recent_late: LatencyHistogram::new(),
            send_times: SendTimes::new(),
            recent_sent: 0,
            recent_ok: 0,
            recent_errors: 0,
            told_at: None,
            sent: 0,
            unsent: 0,
            ok: InTime::default(),
            refused: InTime::default(),
            in_flight: 0,
            idle: Duration::ZERO,
            behind: false,
            in_flight_by_kind: [0; OpKind::COUNT],
            chains: planner.chains().iter().map(|_| ChainTally::default()).collect(),
        }
    }

    pub fn flight(&mut self, planner: &mut Planner, due: Instant) -> Flight {
        let counted = due >= self.counted_from && due < self.end;
        let planned = planner.plan(due);
        if counted {
            self.in_flight += 1;
            self.in_flight_by_kind[planned.kind as usize] += 1;
        }
        let counted_in = if counted { self.point } else { 0 };
        Flight { planned, due, sent: due, waited_for_room: false, follows: false, counted_in }
    }

    /// The next request of a chain, due now; it counts where the first one counts.
    pub fn follower(&mut self, planned: Planned, due: Instant, counted_in: u32) -> Flight {
        if counted_in == self.point {
            self.in_flight += 1;
            self.in_flight_by_kind[planned.kind as usize] += 1;
        }
        Flight { planned, due, sent: due, waited_for_room: false, follows: true, counted_in }
    }

    /// A request that the transport took.
    #[inline]
    pub fn submitted(&mut self, flight: &Flight, planner: &Planner) {
        if flight.counted_in != self.point {
            return;
        }
        self.sent += u64::from(!flight.follows);
        self.sent_since_answer += 1;
        self.tallies.of(flight.planned.kind).attempted += 1;
        if let Some(which) = planner.chain_of(&flight.planned) {
            self.chains[which].begun += u64::from(!flight.follows);
            self.chains[which].requests += 1;
        }
    }

    /// A batch that goes out: the lateness of each request of it.
    pub fn late(
        &mut self,
        lateness: impl Iterator<Item = (Instant, Duration)>,
        sent: usize,
        caught_up: bool,
    ) {
        self.recent_sent += sent as u64;
        // What waited for room in the transport, or behind what waited, is late through the storage or the transport and not
        // through us.
        if self.behind {
            self.behind = !caught_up;
            return;
        }
        for (due, late) in lateness {
            self.recent_late.record(late);
            let log = (due >= self.counted_from).then_some(&mut self.lateness);
            self.send_times.sent(due, due + late, log);
        }
    }

    /// The transport took nothing from the one moment to the other: it had no room, or no connection.
    pub fn blocked(&mut self, from: Instant, to: Instant, is_away: bool) {
        let lasted = to.saturating_duration_since(from.max(self.counted_from));
        *(if is_away { &mut self.away } else { &mut self.full }) += lasted;
    }

    #[inline]
    pub fn settle(&mut self, flight: &Flight, completion: &Completion<'_>, follow: Option<&Follow>) {
        // An open loop's latency ends when the reply arrived, by the kernel's stamp: how fast this thread wakes is its own affair.
        let stamp = completion.arrived.filter(|_| self.is_open);
        let done = stamp.map_or(completion.done, |arrived| arrived.max(flight.sent).min(completion.done));
        let from_planned = done.saturating_duration_since(flight.due);
        let latency =
            if flight.waited_for_room { from_planned } else { done.saturating_duration_since(flight.sent) };
        let ok = matches!(completion.outcome, Outcome::Ok(_));
        let is_answer = ok || is_answer(&completion.outcome);
        let (is_over, is_complete) = self.settle_chain(flight, done, follow, ok, is_answer);
        if is_answer {
            let is_own = flight.counted_in == self.point;
            let is_within = completion.done >= self.counted_from && completion.done < self.end;
            if is_over {
                (if is_complete { &mut self.ok } else { &mut self.refused }).count(is_own, is_within);
            }
            self.answered_at = Some(completion.done);
            self.sent_since_answer = 0;
        }
        let since_begin = done.saturating_duration_since(self.begin);
        if ok {
            self.time_series.ok(since_begin, latency);
            // Only for the progress line: at high rates one in sixteen is enough, and saves a twentieth of the loop's time.
            if self.recent_ok < RECENT_ALL || self.recent_ok.is_multiple_of(16) {
                self.recent.record(latency);
            }
            self.recent_ok += 1;
        } else {
            self.time_series.failed(since_begin);
            self.recent_errors += 1;
        }
        if flight.counted_in == self.point {
            self.in_flight -= 1;
            self.in_flight_by_kind[flight.planned.kind as usize] -= 1;
            let kind = flight.planned.kind;
            let due = flight.due.saturating_duration_since(self.counted_from);
            let is_later = ok && self.is_open;
            let known = (!is_later).then_some(latency);
            self.tallies.of(kind).settle(&completion.outcome, completion.retransmits, known);
            match completion.outcome {
                Outcome::Ok(_) if self.is_open => {
                    // A call that began later than it was submitted waited for a thread.
                    let submitted = completion.began.map(|_| flight.sent);
                    let waited_for_room_since =
                        if flight.waited_for_room { Some(flight.due) } else { submitted };
                    let sent = completion.began.unwrap_or(flight.sent);
                    let lay = completion.done.saturating_duration_since(done);
                    let arrived = stamp.map(|_| done);
                    let good = Good { kind, due, sent_late: from_planned.saturating_sub(latency) };
                    self.times.reply(good, ReplyTime { done, lay, arrived, sent, waited_for_room_since });
                }
                Outcome::Cancelled if self.is_open => self.lateness.unanswered(latency, 1),
                _ => {}
            }
            if let (Some(samples), Some(latency)) = (&mut self.samples, known) {
                samples.push(kind, due, latency, &completion.outcome);
            }
        }
    }

    /// Counts what a reply, which came at `done`, means for the chain of its request. Whether what the schedule offered is over with it,
    /// and whether all of that succeeded: a chain is answered when its last request is.
    #[inline]
    fn settle_chain(
        &mut self,
        flight: &Flight,
        done: Instant,
        follow: Option<&Follow>,
        ok: bool,
        is_answer: bool,
    ) -> (bool, bool) {
        let (which, is_complete, begun) = match follow {
            None => return (true, ok),
            Some(Follow::Next(_)) => return (false, false),
            Some(Follow::Over { which, is_complete, begun }) => (*which, *is_complete, *begun),
        };
        if flight.counted_in == self.point {
            let chain = &mut self.chains[which];
            chain.complete += u64::from(is_complete);
            chain.failed += u64::from(!is_complete && is_answer);
            if is_complete {
                chain.histogram.record(done.saturating_duration_since(begun));
            }
        }
        (true, is_complete)
    }

    /// A look for replies of an open loop begins, which may be a sleep.
    #[inline]
    pub fn look(&mut self, now: Instant, sleeps: bool) {
        self.times.look(now);
        if sleeps {
            self.run_delay.mark();
        }
    }

    /// The replies of a look are all there. `slept_to_the_end` is none for a look that was no sleep.
    #[inline]
    pub fn taken(&mut self, slept_to_the_end: Option<bool>) {
        let Self { times, run_delay, lateness, tallies, samples, .. } = self;
        let sleep = slept_to_the_end
            .filter(|_| times.is_delay_wanted())
            .map(|to_the_end| Sleep { run_delay: run_delay.since_last(), to_the_end });
        times.taken(sleep, |Good { kind, due, sent_late }, reply| {
            let latency = reply.without_sending;
            tallies.of(kind).latency(latency);
            lateness.from_planned.record(latency + sent_late);
            lateness.answered(reply);
            if let Some(samples) = samples {
                samples.push(kind, due, latency, &Outcome::Ok(Reply::Null));
            }
        });
    }

    /// A request that was planned and never sent.
    pub fn take_back(&mut self, flight: &Flight) {
        if flight.counted_in == self.point {
            self.unsent += u64::from(!flight.follows);
            self.in_flight -= 1;
            self.in_flight_by_kind[flight.planned.kind as usize] -= 1;
        }
    }

    /// Counts what is still unanswered as cancelled: with the time that was waited for it, if that came to an end.
    pub fn give_up(&mut self, waited: Option<Duration>) {
        for kind in OpKind::ALL {
            let left = self.in_flight_by_kind[kind as usize];
            if left > 0 {
                let tally = self.tallies.of(kind);
                // One planned and held back for want of room was never attempted.
                let unanswered =
                    left.min(tally.attempted - tally.ok - tally.cancelled - tally.errors_total());
                tally.cancelled += unanswered;
                if let Some(waited) = waited {
                    tally.histogram.add_buckets(&[(waited.as_nanos() as u64, unanswered)]);
                    if self.is_open {
                        self.lateness.unanswered(waited, unanswered);
                    }
                }
            }
        }
    }

    pub fn live(&mut self, now: Instant, begin: Instant, counted_from: Instant, in_flight: usize) -> Live {
        let since =
            now.saturating_duration_since(self.told_at.replace(now).unwrap_or(begin)).as_secs_f64().max(1e-9);
        let live = Live {
            stage: if now < counted_from { Stage::Warm } else { Stage::Measure },
            elapsed: now.saturating_duration_since(begin),
            sent_per_sec: self.recent_sent as f64 / since,
            achieved_per_sec: self.recent_ok as f64 / since,
            p50: self.recent.quantile(0.5),
            p99: self.recent.quantile(0.99),
            late_p99: self.recent_late.quantile(0.99),
            in_flight: in_flight as u64,
            errors: self.recent_errors,
        };
        self.recent.clear();
        self.recent_late.clear();
        (self.recent_sent, self.recent_ok) = (0, 0);
        live
    }
}

/// Whether the storage did what it was asked for, or said that it will not.
fn is_answer(outcome: &Outcome<'_>) -> bool {
    match outcome {
        Outcome::Ok(_) | Outcome::Rejected(_) => true,
        Outcome::Failed(status) => *status != Status::JUKEBOX,
        Outcome::Cancelled | Outcome::Lost | Outcome::BadReply => false,
    }
}
