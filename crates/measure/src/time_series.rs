//! How one load level or phase went over its time: operations, failures, median and 99th percentile in steps of equal length.
//!
//! ```text
//! reply, with the time since the begin -> TimeSeriesRecorder: the step's logarithmic buckets
//!                                          -> StepCounts: merged over threads and ranks -> TimeSeries: percentiles, in a record
//! ```
//!
//! 1. A recorder begins with steps of 10 ms. A run too long for them gets longer ones: 50 ms, 100 ms, 500 ms, 1 s, 5 s, ….
//! 2. Within a step a latency falls into one of 32 buckets for each power of two: percentiles are within 1.6%.
//! 3. At the end, steps with few operations are joined until a percentile of one means something.
//!
//! Always holds: recording reads no clock and allocates nothing but at the begin of a step; an operation counts in the step
//! in which it ended; merging is exact.
//! Not here: the whole level's percentiles (see `latency`), which are finer.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How one load level or phase went, step by step. Lists have one number a step, from the begin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeSeries {
    /// Begin of the first step, UTC.
    pub started: Timestamp,
    /// Length of a step, seconds.
    pub step_s: f64,
    /// Length of all steps, seconds; the last step is as long as is left.
    pub wall_s: f64,
    /// Where the measured interval begins, after the warm-up, seconds; 0 for a phase.
    #[serde(default)]
    pub measured_from_s: f64,
    /// Operations that ended with success.
    pub ok: Vec<u64>,
    /// Operations that failed; empty when none did.
    #[serde(default)]
    pub failed: Vec<u64>,
    /// Median latency of the successful ones, microseconds; 0 where there was none.
    pub p50_us: Vec<f64>,
    /// 99th percentile, likewise.
    pub p99_us: Vec<f64>,
}

/// One step of a [`TimeSeries`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeStep {
    /// Its begin, seconds since the begin of the first one.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
    /// Operations that ended with success.
    pub ok: u64,
    /// Operations that failed.
    pub failed: u64,
    /// `ok` a second.
    pub ok_per_sec: f64,
    /// Median and 99th percentile of the successful ones, microseconds; none where there was none.
    pub p50_p99_us: Option<(f64, f64)>,
}

/// Counts operations as they end, for one thread.
#[derive(Clone, Debug)]
pub struct TimeSeriesRecorder {
    started: Timestamp,
    step_ns: u64,
    /// The open step: its begin and its end.
    open_ns: [u64; 2],
    buckets: Box<[u32; BUCKETS]>,
    failed: u64,
    /// By step; the open one is in its place once it is closed.
    closed: Vec<Step>,
}

/// Counts a loop of one operation after the other: the clock is read once between two.
#[derive(Clone, Debug)]
pub struct LapRecorder {
    begin: Instant,
    last: Instant,
    recorder: TimeSeriesRecorder,
}

/// Counts of one thread or of many, by step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepCounts {
    started: Timestamp,
    step_ns: u64,
    steps: Vec<Step>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Step {
    /// Buckets in use by rising latency, and their counts.
    buckets: Vec<(u16, u32)>,
    failed: u64,
}

/// Buckets for each power of two, as a power of two.
const PRECISION: u32 = 5;
/// Up to 2^42 ns, more than an hour.
const HIGHEST: u32 = 42;
const BUCKETS: usize = ((HIGHEST - PRECISION + 1) as usize) << PRECISION;
const STEP_FIRST_NS: u64 = 10_000_000;
/// More steps than this are joined to longer ones.
const STEPS_MAX: usize = 600;
/// Steps are joined until they have this many operations on average, as a percentile of fewer says little.
const OPERATIONS_MIN: u64 = 20;
/// But not to fewer steps than this.
const STEPS_MIN: usize = 20;

/// Where a latency is counted.
#[inline]
fn bucket_of(ns: u64) -> usize {
    let ns = ns.min((1 << HIGHEST) - 1);
    // Below 2 << PRECISION each nanosecond has its own.
    let shift = (u64::BITS - 1 - (ns | 1 << PRECISION).leading_zeros()) - PRECISION;
    ((shift as usize) << PRECISION) + (ns >> shift) as usize
}

/// The middle of a bucket's latencies, nanoseconds.
fn latency_ns(bucket: usize) -> f64 {
    let (octave, within) = (bucket >> PRECISION, bucket & ((1 << PRECISION) - 1));
    // The first two octaves have buckets of one nanosecond.
    let shift = octave.saturating_sub(1);
    let lowest = if octave == 0 { within } else { (within + (1 << PRECISION)) << shift };
    lowest as f64 + ((1_u64 << shift) - 1) as f64 / 2.0
}

/// 10 ms, 50 ms, 100 ms, 500 ms, 1 s, …: how many steps make one of the next length.
fn joined_next(step_ns: u64) -> usize {
    let is_one = step_ns.to_string().starts_with('1');
    if is_one { 5 } else { 2 }
}

impl TimeSeriesRecorder {
    /// Begins now.
    pub fn start() -> Self {
        Self {
            started: Timestamp::now(),
            step_ns: STEP_FIRST_NS,
            open_ns: [0, STEP_FIRST_NS],
            buckets: Box::new([0; BUCKETS]),
            failed: 0,
            closed: Vec::new(),
        }
    }

    /// An operation that ended with success this long after the begin.
    #[inline]
    pub fn ok(&mut self, since: Duration, latency: Duration) {
        self.open(since);
        self.buckets[bucket_of(nanos(latency))] += 1;
    }

    /// An operation that failed this long after the begin.
    #[inline]
    pub fn failed(&mut self, since: Duration) {
        self.open(since);
        self.failed += 1;
    }

    #[inline]
    fn open(&mut self, since: Duration) {
        let ns = nanos(since);
        if ns < self.open_ns[0] || ns >= self.open_ns[1] {
            self.turn(ns);
        }
    }

    /// Closes the open step and opens that of another moment.
    #[cold]
    fn turn(&mut self, ns: u64) {
        self.close();
        let number = loop {
            let number = (ns / self.step_ns) as usize;
            if number < STEPS_MAX {
                break number;
            }
            let joined = joined_next(self.step_ns);
            self.step_ns *= joined as u64;
            self.closed = join(std::mem::take(&mut self.closed), joined);
        };
        self.open_ns = [number as u64 * self.step_ns, (number as u64 + 1) * self.step_ns];
        if let Some(step) = self.closed.get_mut(number) {
            // Threads take their replies a little out of order, and joined steps are open again.
            let Step { buckets, failed } = std::mem::take(step);
            buckets.iter().for_each(|(bucket, count)| self.buckets[usize::from(*bucket)] = *count);
            self.failed = failed;
        }
    }

    fn close(&mut self) {
        let number = (self.open_ns[0] / self.step_ns) as usize;
        if self.closed.len() <= number {
            self.closed.resize_with(number + 1, Step::default);
        }
        let used = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        let buckets = used.map(|(bucket, count)| (bucket as u16, *count)).collect();
        self.closed[number] = Step { buckets, failed: std::mem::take(&mut self.failed) };
        self.buckets.fill(0);
    }

    /// What was counted.
    pub fn stop(mut self) -> StepCounts {
        self.close();
        StepCounts { started: self.started, step_ns: self.step_ns, steps: self.closed }
    }
}

impl LapRecorder {
    /// Begins now.
    pub fn start() -> Self {
        let begin = Instant::now();
        Self { begin, last: begin, recorder: TimeSeriesRecorder::start() }
    }

    /// An operation has ended; it counts if `counts`. What is done until the next call is the next one.
    #[inline]
    pub fn lap(&mut self, counts: bool) {
        let now = Instant::now();
        let latency = now.saturating_duration_since(std::mem::replace(&mut self.last, now));
        if counts {
            self.recorder.ok(now.saturating_duration_since(self.begin), latency);
        }
    }

    /// What was counted.
    pub fn stop(self) -> StepCounts {
        self.recorder.stop()
    }
}

impl Default for StepCounts {
    fn default() -> Self {
        Self { started: Timestamp::UNIX_EPOCH, step_ns: STEP_FIRST_NS, steps: Vec::new() }
    }
}

impl StepCounts {
    /// Of a row of operations without a pause, which ended now: nanoseconds each.
    pub fn of_row(spent_ns: &[u64]) -> Self {
        let mut recorder = TimeSeriesRecorder::start();
        let mut since = Duration::ZERO;
        for ns in spent_ns {
            let latency = Duration::from_nanos(*ns);
            since += latency;
            recorder.ok(since, latency);
        }
        let before = jiff::SignedDuration::try_from(since).unwrap_or_default();
        recorder.started = recorder.started.checked_sub(before).unwrap_or(recorder.started);
        recorder.stop()
    }

    /// Operations that ended, with success or without.
    pub fn total(&self) -> u64 {
        let of_step =
            |step: &Step| step.failed + step.buckets.iter().map(|(_, count)| u64::from(*count)).sum::<u64>();
        self.steps.iter().map(of_step).sum()
    }

    /// Adds those of another thread or rank, which began at the same moment.
    pub fn merge(&mut self, mut other: Self) {
        if self.steps.is_empty() {
            *self = other;
            return;
        }
        while self.step_ns < other.step_ns {
            self.widen();
        }
        while other.step_ns < self.step_ns {
            other.widen();
        }
        if self.steps.len() < other.steps.len() {
            self.steps.resize_with(other.steps.len(), Step::default);
        }
        self.steps.iter_mut().zip(&other.steps).for_each(|(mine, theirs)| mine.add(theirs));
    }

    fn widen(&mut self) {
        let joined = joined_next(self.step_ns);
        self.step_ns *= joined as u64;
        self.steps = join(std::mem::take(&mut self.steps), joined);
    }

    /// The series over `wall`; what ended later, while the last replies came in, is left out. None without any operation.
    pub fn series(mut self, wall: Duration) -> Option<TimeSeries> {
        let wall_ns = nanos(wall);
        let whole = |of: &Self| wall_ns.div_ceil(of.step_ns) as usize;
        self.steps.truncate(whole(&self));
        let operations: u64 = self.steps.iter().map(|step| step.ok() + step.failed).sum();
        while operations < OPERATIONS_MIN * whole(&self) as u64 && whole(&self) > STEPS_MIN
            || whole(&self) > STEPS_MAX
        {
            self.widen();
        }
        self.steps.resize_with(whole(&self), Step::default);
        if operations == 0 {
            return None;
        }
        let step_s = self.step_ns as f64 / 1e9;
        let failed: Vec<u64> = self.steps.iter().map(|step| step.failed).collect();
        Some(TimeSeries {
            started: self.started,
            step_s,
            wall_s: wall.as_secs_f64(),
            measured_from_s: 0.0,
            ok: self.steps.iter().map(Step::ok).collect(),
            failed: if failed.iter().any(|failed| *failed > 0) { failed } else { vec![] },
            p50_us: self.steps.iter().map(|step| step.quantile_us(0.5)).collect(),
            p99_us: self.steps.iter().map(|step| step.quantile_us(0.99)).collect(),
        })
    }
}

impl Step {
    fn ok(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    fn add(&mut self, other: &Self) {
        self.failed += other.failed;
        let mut all: Vec<(u16, u32)> = self.buckets.iter().chain(&other.buckets).copied().collect();
        all.sort_by_key(|(bucket, _)| *bucket);
        all.dedup_by(|(bucket, count), (before, sum)| {
            let is_same = bucket == before;
            if is_same {
                *sum = sum.saturating_add(*count);
            }
            is_same
        });
        self.buckets = all;
    }

    /// To three digits, which is finer than the buckets; 0 without any.
    fn quantile_us(&self, quantile: f64) -> f64 {
        let wanted = (quantile * self.ok() as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let found = self.buckets.iter().find(|(_, count)| {
            below += u64::from(*count);
            below >= wanted
        });
        let us = found.map_or(0.0, |(bucket, _)| latency_ns(usize::from(*bucket)) / 1e3);
        if us <= 0.0 {
            return 0.0;
        }
        let digits = 10_f64.powi(2 - us.log10().floor() as i32);
        (us * digits).round() / digits
    }
}

/// Each `joined` steps as one.
fn join(steps: Vec<Step>, joined: usize) -> Vec<Step> {
    let one = |several: &[Step]| {
        let mut sum = Step::default();
        several.iter().for_each(|step| sum.add(step));
        sum
    };
    steps.chunks(joined).map(one).collect()
}

fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(time.subsec_nanos()))
}

impl TimeSeries {
    /// The steps in order; of an imported record as far as its lists go.
    pub fn steps(&self) -> impl Iterator<Item = TimeStep> {
        let number = |list: &[f64], at: usize| list.get(at).copied().filter(|us| *us > 0.0);
        self.ok.iter().enumerate().map(move |(at, &ok)| {
            let from_s = at as f64 * self.step_s;
            let to_s = (from_s + self.step_s).min(self.wall_s).max(from_s);
            let p50 = number(&self.p50_us, at);
            TimeStep {
                from_s,
                to_s,
                ok,
                failed: self.failed.get(at).copied().unwrap_or(0),
                ok_per_sec: ok as f64 / (to_s - from_s).max(1e-9),
                p50_p99_us: p50.zip(number(&self.p99_us, at)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_pause_of_two_seconds_is_where_it_was_and_what_waited_for_it_has_its_latency() {
        let mut recorder = TimeSeriesRecorder::start();
        for at in (0..10_000).filter(|at| !(4_000..6_000).contains(at)) {
            let latency = if (6_000..6_050).contains(&at) { ms(1_900) } else { Duration::from_micros(100) };
            recorder.ok(ms(at), latency);
        }
        let series = recorder.stop().series(ms(10_000)).unwrap();
        assert_eq!((series.step_s, series.ok.len(), series.ok.iter().sum::<u64>()), (0.05, 200, 8_000));
        let silent: Vec<TimeStep> = series.steps().filter(|step| step.ok == 0).collect();
        assert_eq!((silent[0].from_s, silent[silent.len() - 1].to_s), (4.0, 6.0));
        assert_eq!(silent[0].p50_p99_us, None);
        let (p50, p99) = series.steps().nth(120).unwrap().p50_p99_us.unwrap();
        assert!((p50 / 1.9e6 - 1.0).abs() < 0.02 && (p99 / 1.9e6 - 1.0).abs() < 0.02, "{p50} {p99}");
        assert!((series.p50_us[0] / 100.0 - 1.0).abs() < 0.02, "{}", series.p50_us[0]);
        assert!(series.failed.is_empty() && series.measured_from_s == 0.0);
    }

    #[test]
    fn a_run_of_hours_has_few_steps_and_loses_no_operation() {
        let mut recorder = TimeSeriesRecorder::start();
        for second in 0..20_000 {
            (0..3).for_each(|_| recorder.ok(Duration::from_secs(second), ms(1)));
            recorder.failed(Duration::from_secs(second));
        }
        let series = recorder.stop().series(Duration::from_secs(20_000)).unwrap();
        assert_eq!((series.step_s, series.ok.len()), (50.0, 400));
        assert_eq!(series.ok.iter().sum::<u64>(), 60_000);
        assert_eq!(series.failed.iter().sum::<u64>(), 20_000);
    }

    #[test]
    fn steps_with_few_operations_are_joined_and_a_level_without_any_has_no_series() {
        let mut recorder = TimeSeriesRecorder::start();
        (0..100).for_each(|at| recorder.ok(ms(100 * at), ms(1)));
        let series = recorder.stop().series(ms(10_000)).unwrap();
        assert_eq!((series.step_s, series.ok.len()), (0.5, 20));
        let last = series.steps().last().unwrap();
        assert_eq!((last.from_s, last.to_s, last.ok_per_sec), (9.5, 10.0, 10.0));
        assert_eq!(TimeSeriesRecorder::start().stop().series(ms(1_000)), None);
    }

    #[test]
    fn what_ends_after_the_end_is_left_out_and_the_last_step_is_as_long_as_is_left() {
        let mut recorder = TimeSeriesRecorder::start();
        (0..1_000).for_each(|at| recorder.ok(ms(at), ms(1)));
        (0..50).for_each(|at| recorder.ok(ms(1_005 + at), ms(1)));
        let series = recorder.stop().series(ms(1_005)).unwrap();
        let last = series.steps().last().unwrap();
        // Joined to steps of 50 ms, as ten operations are too few for a percentile.
        assert_eq!((series.ok.len(), last.ok), (21, 5));
        assert!((last.ok_per_sec - 1_000.0).abs() < 1e-3, "{last:?}");
    }

    proptest! {
        #[test]
        fn a_latency_is_within_its_bucket_to_a_sixtieth(ns in 0_u64..1 << HIGHEST) {
            let middle = latency_ns(bucket_of(ns));
            prop_assert!((middle - ns as f64).abs() <= ns as f64 / 62.0, "{} counts as {}", ns, middle);
        }

        #[test]
        fn two_threads_merged_are_as_one(left in prop::collection::vec((0_u64..40_000, 1_u64..10_000_000), 0..200),
            right in prop::collection::vec((0_u64..9_000, 1_u64..10_000_000), 0..200)) {
            let record = |samples: &[(u64, u64)]| {
                let mut recorder = TimeSeriesRecorder::start();
                samples.iter().for_each(|(at, ns)| recorder.ok(ms(*at), Duration::from_nanos(*ns)));
                recorder.stop()
            };
            let mut merged = record(&left);
            merged.merge(record(&right));
            let mut together = record(&[left, right].concat());
            together.started = merged.started;
            let wall = Duration::from_secs(40);
            prop_assert_eq!(merged.series(wall), together.series(wall));
        }
    }
}
