//! The statistics of one generator: the outcome of each request, by the phase and the moment in which it was due.
//!
//! Always holds: a request counts where it was due; only `ok_within` and `answered` count a reply where it came.
//! Not here: the counts themselves (see `tally`, `curves`), what they mean (see `judge`).

use std::time::{Duration, Instant};

use harness::open_loop::{ReplyTime, ReplyTimes, RunDelay, SendTimes, Sleep, WaitChoice};
use measure::{LatencyHistogram, ProcessWatch, TimeSeriesRecorder};

use super::Counted;
use super::client::{Fault, Flight, Reply};
use crate::plan::Planned;
use crate::plan::object::mix;
use crate::plan::phases::{Pace, Phase};
use crate::results::curves::Moments;
use crate::results::tally::{Good, Moment, Source, Tally};
use crate::run::{Live, PhaseProgress};

/// Up to this many latencies between two reports are all in their percentiles.
const RECENT_ALL: u64 = 4096;

pub(super) struct Statistics {
    begin: Instant,
    tallies: Vec<Tally>,
    /// Whether a phase is an open loop: only there is the generator's lateness a part of the latencies.
    is_open: Vec<bool>,
    moments: Moments,
    /// How each phase goes over its time, since its first request was due.
    time_series: Vec<Option<(Instant, TimeSeriesRecorder)>>,
    /// The proxy's own use, by phase.
    watch: Option<ProcessWatch>,
    /// Replies of the look under way, by the phase they were due in.
    times: ReplyTimes<Instant, u32>,
    run_delay: RunDelay,
    /// Latencies of good replies since the last report: all of the first [`RECENT_ALL`], then one in sixteen.
    recent: LatencyHistogram,
    recent_ok: u64,
    /// Lateness of sending since the last report.
    recent_late: LatencyHistogram,
    send_times: SendTimes<Instant>,
    last_report: LastReport,
}

/// The counts at the last report.
struct LastReport {
    at: Instant,
    planned: u64,
    ok: u64,
    hits: u64,
    /// Summed over the good replies since then.
    latency_sum: Duration,
}

impl Statistics {
    pub fn new(phases: &[Phase], begin: Instant, watch: Option<ProcessWatch>) -> Self {
        Self {
            begin,
            tallies: vec![Tally::default(); phases.len()],
            is_open: phases.iter().map(|phase| phase.pace != Pace::Closed).collect(),
            moments: Moments::default(),
            time_series: vec![None; phases.len()],
            watch,
            times: ReplyTimes::new(),
            run_delay: RunDelay::of_this_thread(),
            recent: LatencyHistogram::new(),
            recent_ok: 0,
            recent_late: LatencyHistogram::new(),
            send_times: SendTimes::new(),
            last_report: LastReport { at: begin, planned: 0, ok: 0, hits: 0, latency_sum: Duration::ZERO },
        }
    }

    /// The phase that a request counts in which is planned in this one: a phase may have been left while its last
    /// request was planned.
    pub fn phase_of(&self, phase: usize) -> usize {
        phase.min(self.tallies.len() - 1)
    }

    /// A phase's counts; none when all phases are over.
    pub fn of(&mut self, phase: usize) -> Option<&mut Tally> {
        self.tallies.get_mut(phase)
    }

    fn tally_of(&mut self, flight: &Flight) -> &mut Tally {
        &mut self.tallies[flight.phase as usize]
    }

    fn moment(&mut self, at: Instant) -> &mut Moment {
        self.moments.at(at.saturating_duration_since(self.begin))
    }

    /// A request is due.
    pub fn planned(&mut self, phase: usize, due: Instant, planned: &Planned) {
        let tally = &mut self.tallies[phase];
        tally.planned += 1;
        tally.digest = mix(tally.digest ^ planned.object.key() ^ planned.class as u64);
        self.moment(due).due += 1;
        self.time_series[phase].get_or_insert_with(|| (due, TimeSeriesRecorder::start()));
    }

    /// It goes out, at `now` and not at its moment.
    pub fn late(&mut self, flight: &Flight, now: Instant) {
        self.recent_late.record(now.saturating_duration_since(flight.due));
        let log = &mut self.tallies[flight.phase as usize].lateness;
        self.send_times.sent(flight.due, now, Some(log));
    }

    /// A look for replies begins, which may be a sleep.
    pub fn looks(&mut self, sleeps: bool) {
        self.times.look(Instant::now());
        if sleeps {
            self.run_delay.mark();
        }
    }

    /// All replies of a look are counted. `slept_to_the_end` is none for a look that was no sleep.
    pub fn looked(&mut self, slept_to_the_end: Option<bool>) {
        let Self { times, run_delay, tallies, .. } = self;
        let sleep = slept_to_the_end
            .filter(|_| times.is_delay_wanted())
            .map(|to_the_end| Sleep { run_delay: run_delay.since_last(), to_the_end });
        times.taken(sleep, |phase, reply| tallies[phase as usize].lateness.answered(reply));
    }

    /// It has gone out for the first time.
    pub fn sent(&mut self, flight: &Flight) {
        self.tally_of(flight).sent(&flight.planned);
    }

    /// It was lost with its connection and goes out once more.
    pub fn reconnects(&mut self, flight: &Flight) {
        self.tally_of(flight).reconnects += 1;
    }

    /// It has a good reply, which came in `phase`.
    pub fn succeeded(&mut self, flight: &Flight, reply: &Reply, phase: usize, now: Instant) {
        let made_for_it = reply.origin.filter(|note| note.request == flight.request);
        let source = match made_for_it {
            Some(note) if note.validated && !reply.not_modified => Source::Validated,
            Some(_) => Source::Origin,
            None => Source::Cache,
        };
        // In an open loop it ends when the reply arrived, by the kernel's stamp: how fast this thread wakes is its own affair.
        let is_open = self.is_open[flight.phase as usize];
        let stamp = reply.arrived.filter(|_| is_open);
        let done = stamp.map_or(now, |arrived| arrived.max(flight.sent).min(now));
        let from_planned = done.saturating_duration_since(flight.due);
        let latency = if flight.waited { from_planned } else { done.saturating_duration_since(flight.sent) };
        let think =
            made_for_it.map_or(Duration::ZERO, |note| Duration::from_micros(u64::from(note.think_us)));
        let good = Good { source, latency, think, body_bytes: reply.body_bytes };
        if let Some(tally) = self.of(phase) {
            tally.ok_within += 1;
        }
        self.tally_of(flight).good(&flight.planned, &good);
        if is_open {
            let waited_for_room_since = flight.waited.then_some(flight.due);
            let (lay, arrived) = (now.saturating_duration_since(done), stamp.map(|_| done));
            let time = ReplyTime { done, lay, arrived, sent: flight.sent, waited_for_room_since };
            self.times.reply(flight.phase, time);
            self.tally_of(flight).lateness.from_planned.record(from_planned);
        }
        self.moment(flight.due).good(&flight.planned, &good);
        self.moment(now).answered += 1;
        if let Some(Some((begin, time_series))) = self.time_series.get_mut(phase) {
            time_series.ok(done.saturating_duration_since(*begin), latency);
        }
        self.last_report.latency_sum += latency;
        if self.recent_ok < RECENT_ALL || self.recent_ok.is_multiple_of(16) {
            self.recent.record(latency);
        }
        self.recent_ok += 1;
    }

    /// It has none.
    pub fn failed(&mut self, flight: &Flight, fault: Fault) {
        if fault.is_false_content() {
            tracing::warn!("{}: {:?}", fault.name(), flight.planned.object);
        }
        if let Some((begin, time_series)) = &mut self.time_series[flight.phase as usize] {
            time_series.failed(begin.elapsed());
        }
        let tally = self.tally_of(flight);
        tally.fault(&flight.planned, fault);
        if fault == Fault::TimedOut {
            tally.timed_out(&flight.planned, flight.due.elapsed());
        }
        self.moment(flight.due).failed += 1;
    }

    /// It was still unanswered when all was over, or the run was cut short.
    pub fn cancelled(&mut self, flight: &Flight, cut_off: bool) {
        self.tally_of(flight).cancelled(&flight.planned, cut_off);
        if !cut_off {
            self.tally_of(flight).timed_out(&flight.planned, flight.due.elapsed());
            self.moment(flight.due).failed += 1;
        }
    }

    /// A phase that began then is over; one that is none has no end.
    pub fn end_phase(&mut self, phase: usize, began: Instant, ended: Instant) {
        let Some(tally) = self.tallies.get_mut(phase) else { return };
        tally.begin = Some(began.saturating_duration_since(self.begin));
        tally.wall = ended.saturating_duration_since(began);
        tally.proxy = self.watch.as_mut().and_then(ProcessWatch::lap);
    }

    /// A report of the rates since the last one, extrapolated to `of` generators.
    pub fn live(&mut self, now: Instant, progress: PhaseProgress, in_flight: usize, of: u64) -> Live {
        let sum = |count: &dyn Fn(&Tally) -> u64| self.tallies.iter().map(count).sum::<u64>();
        let (planned, ok) = (sum(&|tally| tally.planned), sum(&Tally::ok));
        let (hits, failed) = (sum(&|tally| tally.hits), sum(&Tally::failed));
        let this_report = LastReport { at: now, planned, ok, hits, latency_sum: Duration::ZERO };
        let before = std::mem::replace(&mut self.last_report, this_report);
        let seconds = now.saturating_duration_since(before.at).as_secs_f64().max(1e-9);
        let answered = ok - before.ok;
        let (p50, p99) = (self.recent.quantile(0.5), self.recent.quantile(0.99));
        self.recent.clear();
        self.recent_ok = 0;
        Live {
            progress,
            elapsed: now.saturating_duration_since(self.begin),
            offered_per_sec: (planned - before.planned) as f64 / seconds * of as f64,
            achieved_per_sec: answered as f64 / seconds * of as f64,
            response_mean: before
                .latency_sum
                .checked_div(answered.min(u64::from(u32::MAX)) as u32)
                .unwrap_or_default(),
            hit_share: (hits - before.hits) as f64 / answered.max(1) as f64,
            late_p99: std::mem::take(&mut self.recent_late).quantile(0.99),
            p50,
            p99,
            in_flight: in_flight as u64 * of,
            failed,
        }
    }

    /// All of it.
    pub fn close(mut self, waited: Option<WaitChoice>, stopped: bool) -> Counted {
        for (tally, of_phase) in self.tallies.iter_mut().zip(self.time_series) {
            tally.steps = of_phase.map(|(_, time_series)| time_series.stop()).unwrap_or_default();
        }
        Counted { tallies: self.tallies, moments: self.moments, waited, stopped }
    }
}
