//! The gate at which the ranks of a run wait for each other: what a rank passes to it, and what it does when the gate stops it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harness::{Entry, PhaseGate, RankState};
use netnews::feed::Feed;
use netnews::spool::{self, Keep, NetnewsConfig, Outcome, Storage};

use crate::spool_scene::{Scene, config};

/// A gate with other ranks behind it, which keeps what it hears and stops all at one phase, if at any.
#[derive(Default)]
struct Recording {
    entered: Vec<(String, RankState)>,
    stops_at: Option<&'static str>,
}

impl PhaseGate for Recording {
    fn is_joined(&self) -> bool {
        true
    }

    fn enter(&mut self, phase: &str, state: RankState) -> Entry {
        self.entered.push((phase.to_owned(), state));
        if self.stops_at == Some(phase) { Entry::Stop } else { Entry::Go }
    }
}

fn run(scene: &Scene, config: &NetnewsConfig, feed: &Feed, gate: &mut Recording) -> (Outcome, bool) {
    let stop = AtomicBool::new(false);
    let storage = Storage::of(scene.fs("spool"));
    let outcome = spool::run_as_rank(config, &storage, feed, gate, &stop, &mut |_| {});
    let left = std::fs::read_dir(scene.path("spool")).unwrap().count();
    assert_eq!(left, 0, "the spool is removed");
    (outcome, stop.load(Ordering::Relaxed))
}

#[test]
fn every_phase_is_followed_by_the_gate() {
    let scene = Scene::new();
    let feed = scene.feed(300, 30);
    let mut gate = Recording::default();
    let (outcome, stopped) = run(&scene, &config(2, 1, Keep::Remove), &feed, &mut gate);
    assert!(outcome.part.is_complete() && !stopped, "{:?}", outcome.error);
    let on = |phase: &str, pass: u32| (format!("what follows {phase} of pass {pass}"), RankState::On);
    let expected = [
        on("unbatch", 1),
        on("flush", 1),
        on("unbatch", 2),
        on("expire-scan", 2),
        on("expire", 2),
        on("flush", 2),
    ];
    assert_eq!(gate.entered, expected);
}

/// Symptom: the other ranks went on to the end of their phase, which may be an hour, when a spool had failed on one.
/// Cause: they heard of it at the next meeting. Fix: a failed rank says so at once, and only cleans up.
#[test]
fn a_rank_that_fails_says_so_at_the_gate_and_stops() {
    let scene = Scene::new();
    let feed = scene.feed(300, 30);
    std::fs::remove_file(feed.batch_path(9)).unwrap();
    let mut gate = Recording::default();
    let (outcome, stopped) = run(&scene, &config(2, 1, Keep::Remove), &feed, &mut gate);
    assert!(outcome.error.is_some() && !outcome.part.is_complete());
    assert!(stopped, "its own other work ends too");
    assert_eq!(
        gate.entered.last().unwrap(),
        &("what follows unbatch of pass 2".to_owned(), RankState::Failed)
    );
}

#[test]
fn time_that_is_up_is_not_a_failure() {
    let scene = Scene::new();
    let feed = scene.feed(300, 30);
    let mut gate = Recording::default();
    let limited = NetnewsConfig { time_limit: Some(Duration::from_nanos(1)), ..config(2, 1, Keep::Remove) };
    let (outcome, stopped) = run(&scene, &limited, &feed, &mut gate);
    assert!(outcome.error.is_none() && !outcome.part.is_complete() && !stopped);
    assert!(gate.entered.iter().all(|(_, state)| *state == RankState::TimeUp), "{:?}", gate.entered);
}

#[test]
fn a_rank_whose_gate_says_stop_does_no_further_phase() {
    let scene = Scene::new();
    let feed = scene.feed(300, 30);
    let mut gate = Recording { stops_at: Some("what follows unbatch of pass 1"), ..Recording::default() };
    let (outcome, stopped) = run(&scene, &config(2, 1, Keep::Remove), &feed, &mut gate);
    assert!(stopped && !outcome.part.is_complete() && outcome.error.is_none());
    assert_eq!(gate.entered.len(), 1, "{:?}", gate.entered);
}
