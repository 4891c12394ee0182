//! Storage that stops answering: requests end as cancelled or lost, and no reply ever comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use files::{Completion, Outcome, Transport, TransportError};
use fstress::{Arrivals, FileCount, FstressConfig, Keep, Load, Workload};
use harness::Event;
use quanta::{Clock, Instant};
use testkit::{Law, LawTransport};

/// How requests end that are not answered.
#[derive(Clone, Copy, Debug)]
enum Unanswered {
    /// As over UDP after the last retransmission.
    Cancelled,
    /// As over TCP when the server closes the connection.
    Lost,
    /// Not at all.
    Never,
}

/// Answers as many requests as it may, then nothing.
struct Mute {
    inner: LawTransport,
    clock: Clock,
    answers_left: Arc<AtomicU64>,
    unanswered: Unanswered,
}

impl Transport for Mute {
    left_to_inner!(submit flush in_flight root io_bytes_max counters);

    fn poll(
        &mut self,
        until: Option<Instant>,
        deliver: &mut dyn FnMut(Completion<'_>),
    ) -> Result<usize, TransportError> {
        let (mut delivered, left, unanswered) = (0, &self.answers_left, self.unanswered);
        loop {
            let took = self.inner.poll(until, &mut |completion| {
                let answered = left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                    .is_ok();
                let outcome = match unanswered {
                    _ if answered => completion.outcome,
                    Unanswered::Cancelled => Outcome::Cancelled,
                    Unanswered::Lost => Outcome::Lost,
                    Unanswered::Never => return,
                };
                delivered += 1;
                deliver(Completion { outcome, ..completion });
            })?;
            if delivered > 0 || took == 0 || until.is_none_or(|until| self.clock.now() >= until) {
                return Ok(delivered);
            }
        }
    }
}

fn mute(unanswered: Unanswered, answers: u64) -> (Mute, Clock, Arc<AtomicU64>) {
    let (inner, clock) = LawTransport::new(Law::Constant(Duration::from_millis(1)), &[], 7);
    let answers_left = Arc::new(AtomicU64::new(answers));
    let transport = Mute { inner, clock: clock.clone(), answers_left: Arc::clone(&answers_left), unanswered };
    (transport, clock, answers_left)
}

fn config(files: u64) -> FstressConfig {
    FstressConfig {
        workload: Workload::builtin("web-proxy").unwrap(),
        load: Load::Sweep(vec![500.0, 500.0]),
        arrivals: Arrivals::Uniform,
        warm: Duration::from_secs(1),
        measure: Duration::from_secs(5),
        drain: Duration::from_secs(10),
        wait: Default::default(),
        files: FileCount::Fixed(files.try_into().unwrap()),
        seed: 42,
        keep: Keep::Remove,
        set_name: "crumb-fstress-test".to_owned(),
        build_in_flight: 8,
        raw: None,
    }
}

/// Symptom: a run against a UDP server that had gone silent took 32 minutes instead of 7 seconds and then reported
/// NFS3ERR_JUKEBOX, which no server had said. Cause: cancelled requests counted as answers, and as requests to retry
/// later. Fix: only answers end a silence, and it has an error of its own.
#[test]
fn storage_that_answers_nothing_is_given_up_in_time_and_not_said_to_ask_for_patience() {
    for unanswered in [Unanswered::Cancelled, Unanswered::Lost, Unanswered::Never] {
        let (mut transport, clock, _) = mute(unanswered, 300);
        let begun = clock.now();
        let mut notes = Vec::new();
        let outcome =
            fstress::run(&config(5000), &mut transport, &clock, &AtomicBool::new(false), &mut |event| {
                if let Event::Note(note) = event {
                    notes.push(note);
                }
            });
        let told = outcome.error.expect("it cannot have gone well").to_string();
        assert!(told.contains("no answer"), "{unanswered:?}: {told}");
        assert!(!told.contains("JUKEBOX"), "{unanswered:?}: {told}");
        assert!(!notes.iter().any(|note| note.contains("JUKEBOX")), "{unanswered:?}: {notes:?}");
        assert!(
            outcome.phases.iter().all(|phase| phase.name != "remove"),
            "what was not removed has no rate"
        );
        // Twice two minutes: while building and while removing.
        let took = clock.now() - begun;
        assert!(took < Duration::from_secs(250), "{unanswered:?}: {took:?}");
    }
}

/// Symptom: Ctrl-C and SIGTERM were ignored while a server was silent. Cause: single requests never looked at the stop
/// flag, removing the file set had one that nobody set, and waiting for the last replies had none.
#[test]
fn a_stop_is_heeded_within_seconds_whatever_is_waited_for() {
    // Silent at the first request, while files are made, within a load point, at the removal.
    for answers in [0, 300, 20_000, u64::MAX] {
        for unanswered in [Unanswered::Cancelled, Unanswered::Lost, Unanswered::Never] {
            let (mut transport, clock, answers_left) = mute(unanswered, answers);
            let stop = AtomicBool::new(false);
            let mut stopped_at = None;
            let begun = clock.now();
            // Of the whole run's 17 s or so, stop at some moment in the thick of it.
            let watched = clock.clone();
            let outcome = std::thread::scope(|threads| {
                let run = threads.spawn(|| {
                    fstress::run(&config(5000), &mut transport, &clock, &stop, &mut |event| {
                        let stop_now = match event {
                            Event::Live(live) => live.elapsed > Duration::from_secs(4),
                            Event::Step(_) => answers <= 300,
                            _ => false,
                        };
                        if stop_now && stopped_at.is_none() {
                            stopped_at = Some(watched.now());
                            stop.store(true, Ordering::Relaxed);
                            // From here on there is no answer to anything.
                            answers_left.store(0, Ordering::Relaxed);
                        }
                    })
                });
                // With no answer to the very first request there is no event either.
                if answers == 0 {
                    while !run.is_finished() && watched.now() - begun < Duration::from_secs(1) {
                        std::thread::yield_now();
                    }
                    stop.store(true, Ordering::Relaxed);
                }
                run.join().unwrap()
            });
            assert!(!outcome.complete, "{answers} {unanswered:?}");
            let since = clock.now() - stopped_at.unwrap_or(begun);
            if answers > 0 {
                let limit = Duration::from_secs(8);
                assert!(since < limit, "{answers} {unanswered:?}: {since:?} after the stop");
            }
        }
    }
}

#[test]
fn what_was_measured_before_the_silence_is_kept() {
    let (mut transport, clock, answers_left) = mute(Unanswered::Cancelled, u64::MAX);
    let outcome =
        fstress::run(&config(1000), &mut transport, &clock, &AtomicBool::new(false), &mut |event| {
            if matches!(event, Event::LevelDone(_)) {
                answers_left.store(0, Ordering::Relaxed);
            }
        });
    assert!(!outcome.points.is_empty());
    assert!(outcome.points[0].verdict.valid || outcome.points[0].latency_us.count > 0);
    assert!(outcome.error.is_some());
}
