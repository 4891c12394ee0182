//! Observes a run: progress for the user, the device's counters by phase, and what was done when.
//!
//! Always holds: what the device did while this rank waited for others is not counted.
//! Not here: what the figures say (see `figures`), adding up ranks (see `part`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use files::FileSystem;
use harness::ranks::Steps;
use harness::{Events, Step};
use measure::{DiskMeter, DiskUse, MachineLog, MachineMeter, MachineUse, MeterScope, Phase};

use crate::engine::{self, Event, Outcome};
use crate::figures::per_sec;

/// How much there is to do, of all threads together.
pub(super) struct Expected {
    pub files: u64,
    pub transactions: u64,
}

impl Expected {
    fn of(&self, phase: engine::Phase) -> Option<u64> {
        match phase {
            engine::Phase::Create | engine::Phase::Delete => Some(self.files),
            engine::Phase::Transactions => Some(self.transactions),
            engine::Phase::MakeDirectories | engine::Phase::RemoveDirectories => None,
        }
    }
}

pub(super) struct Watch {
    /// Laps at the end of each phase.
    lap: Option<DiskMeter>,
    /// Over the run as a whole.
    whole: Option<DiskMeter>,
    by_phase: Vec<(engine::Phase, DiskUse)>,
    scope: MeterScope,
    /// What else the machine did over the run, and in its phases.
    machine: MachineLog,
    /// How much was done at which moments, when others will ask.
    samples: Option<Vec<(Instant, u64)>>,
    sample_every: Duration,
}

/// How often progress is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// What was done until the first rank ended is known to within what is done in this time, at first.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);
/// With more samples than this, every other one goes.
const SAMPLES_MAX: usize = 1 << 16;

impl Watch {
    pub fn new(storage: &dyn FileSystem, samples: bool, scope: MeterScope) -> Self {
        let meter = storage.local_root().and_then(DiskMeter::start);
        Self {
            lap: meter.clone(),
            whole: meter,
            by_phase: Vec::new(),
            scope,
            machine: MachineLog::default(),
            samples: samples.then(Vec::new),
            sample_every: SAMPLE_EVERY,
        }
    }

    /// What else the machine did.
    pub fn machine(&self) -> MachineLog {
        self.machine.clone()
    }

    /// Notes what else the machine did from the begin of the run to its end.
    pub fn note_machine(&mut self, whole: MachineUse) {
        self.machine.set_whole(whole);
    }

    /// What the device did in the run; of a copy among others without the time in which it waited for them.
    pub fn disk(&self) -> Option<DiskUse> {
        if self.samples.is_some() {
            sum_of_uses(self.by_phase.iter().map(|(_, used)| used))
        } else {
            self.whole.as_ref().map(DiskMeter::used)
        }
    }

    fn sample(&mut self, done: &AtomicU64) {
        let Some(samples) = &mut self.samples else { return };
        if samples.len() >= SAMPLES_MAX {
            let mut keep = false;
            samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.sample_every *= 2;
        }
        samples.push((Instant::now(), done.load(Ordering::Relaxed)));
    }

    /// Until the run is over.
    pub fn listen(
        &mut self,
        heard: &mpsc::Receiver<Event>,
        done: &AtomicU64,
        expected: &Expected,
        events: &Events,
    ) {
        let (mut phase, mut done_before) = (None, 0);
        let mut shown = Instant::now();
        let mut meter = None;
        loop {
            let wait = if self.samples.is_some() { self.sample_every } else { LOOK_EVERY };
            match heard.recv_timeout(wait) {
                Ok(Event::Begins(begun)) => {
                    phase = Some(begun);
                    done_before = done.load(Ordering::Relaxed);
                    self.sample(done);
                    // While it was held up the device did nothing of ours.
                    self.lap.as_mut().map(DiskMeter::lap);
                    meter = expected.of(begun).map(|_| MachineMeter::start(self.scope.clone()));
                }
                Ok(Event::Ends { phase, .. }) => {
                    self.sample(done);
                    if let Some(meter) = &mut self.lap {
                        self.by_phase.push((phase, meter.lap()));
                    }
                    if let Some(meter) = meter.take() {
                        self.machine.push(name_of(phase), meter.stop());
                    }
                }
                Ok(Event::Trouble(error)) => {
                    events.send(harness::Event::Warning(measure::error_chain(&error)))
                }
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.sample(done);
                    if shown.elapsed() < LOOK_EVERY {
                        continue;
                    }
                    shown = Instant::now();
                    if let Some((phase, of)) = phase.and_then(|phase| Some((phase, expected.of(phase)?))) {
                        let done = done.load(Ordering::Relaxed) - done_before;
                        let (work, of) = (phase.to_string(), Some(of));
                        let step = Step { work, done, of, is_estimate: true, bytes: 0 };
                        events.send(harness::Event::Step(step));
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
    }

    /// How far a phase of a record had come when.
    pub fn steps(&self, phase: &Phase, outcome: &Outcome) -> Steps {
        let samples = self.samples.as_deref().unwrap_or_default();
        let Some(times) = outcome.phases.iter().find(|times| name_of(times.phase) == phase.name) else {
            return Steps::default();
        };
        // Counted on from the phases before.
        let at_begin = samples.iter().take_while(|(at, _)| *at <= times.started).last();
        let before = at_begin.map_or(0, |(_, done)| *done);
        let within = samples.iter().filter(|(at, _)| *at > times.started && *at <= times.ended);
        let step = |&(at, done): &(Instant, u64)| {
            let since_s = at.saturating_duration_since(times.started).as_secs_f64();
            (since_s, done.saturating_sub(before) as f64)
        };
        let mut done: Vec<(f64, f64)> = within.map(step).collect();
        done.push((times.wall().as_secs_f64(), phase.items as f64));
        Steps { done }
    }

    /// The phases of a record.
    pub fn phases(&self, outcome: &Outcome) -> Vec<Phase> {
        let counts = &outcome.counts;
        let of = |times: &engine::PhaseTimes| {
            let items = match times.phase {
                engine::Phase::Create => counts.created_alone,
                engine::Phase::Transactions => outcome.transactions_done,
                engine::Phase::Delete => counts.deleted_alone,
                engine::Phase::MakeDirectories | engine::Phase::RemoveDirectories => 0,
            };
            let used = self.by_phase.iter().find(|(phase, _)| *phase == times.phase);
            let wall_s = times.wall().as_secs_f64();
            Phase {
                name: name_of(times.phase).to_owned(),
                pass: 1,
                wall_s,
                user_s: times.cpu.user.as_secs_f64(),
                sys_s: times.cpu.sys.as_secs_f64(),
                items,
                bytes: 0,
                items_per_sec: per_sec(items, times.wall()),
                counters: used.map(|(_, used)| used.counters()).unwrap_or_default(),
                // Computed when the latencies of all ranks are together.
                time_series: None,
            }
        };
        // Directories are few; their phases would only blur the table.
        outcome.phases.iter().map(of).filter(|phase| phase.items > 0).collect()
    }
}

/// What a device did in several stretches of time.
fn sum_of_uses<'a>(uses: impl Iterator<Item = &'a DiskUse>) -> Option<DiskUse> {
    uses.cloned().reduce(|sum, more| {
        let elapsed = sum.elapsed + more.elapsed;
        let mean = |a: f64, b: f64| {
            let seconds = elapsed.as_secs_f64().max(1e-9);
            (a * sum.elapsed.as_secs_f64() + b * more.elapsed.as_secs_f64()) / seconds
        };
        DiskUse {
            elapsed,
            busy: mean(sum.busy, more.busy),
            queue_mean: mean(sum.queue_mean, more.queue_mean),
            reads: sum.reads + more.reads,
            writes: sum.writes + more.writes,
            read_bytes: sum.read_bytes + more.read_bytes,
            written_bytes: sum.written_bytes + more.written_bytes,
            flushes: sum.flushes + more.flushes,
            device: sum.device,
        }
    })
}

/// A phase's name in records.
pub(super) fn name_of(phase: engine::Phase) -> &'static str {
    match phase {
        engine::Phase::MakeDirectories => "make directories",
        engine::Phase::Create => "create",
        engine::Phase::Transactions => "transactions",
        engine::Phase::Delete => "delete",
        engine::Phase::RemoveDirectories => "remove directories",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: a rank that waited half of the time for others reported the disk as half as busy. Cause: its meter kept
    /// running while it waited. Fix: it adds up the use of the phases.
    #[test]
    fn what_a_device_did_in_phases_adds_up_without_the_time_between_them() {
        let used = |seconds, busy, writes| DiskUse {
            elapsed: Duration::from_secs(seconds),
            busy,
            writes,
            written_bytes: 512 * writes,
            ..DiskUse::default()
        };
        let watch = Watch {
            lap: None,
            whole: None,
            by_phase: vec![
                (engine::Phase::Create, used(1, 1.0, 10)),
                (engine::Phase::Transactions, used(3, 0.2, 30)),
            ],
            scope: MeterScope::of_threads(1),
            machine: MachineLog::default(),
            samples: Some(vec![]),
            sample_every: SAMPLE_EVERY,
        };
        let all = watch.disk().unwrap();
        assert_eq!((all.elapsed, all.writes, all.written_bytes), (Duration::from_secs(4), 40, 20480));
        assert!((all.busy - 0.4).abs() < 1e-9, "{all:?}");
    }
}
