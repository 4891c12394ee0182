//! Lets a conversion wait until every operation that began before a moment has ended, and holds up none of them.
//!
//! ```text
//! pass:   count up in the current round's counter ... count down
//! drain:  begin the next round; wait until the last round's counter is zero
//! ```
//!
//! An operation passes the gate of the directory it works in before it looks up what that directory is (plain, managed,
//! being converted). A conversion publishes its next step, drains the gate, and then moves entries: by then no operation
//! relies on an earlier step. Passing never blocks, so gates can nest in any order.
//!
//! Always holds: of two drains of one gate the second begins after the first has ended.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::nodes::lock;

/// Directories share gates by their numbers: a drain also waits for operations in a few other directories.
const GATES: usize = 64;
/// How often a drain looks.
const LOOK_EVERY: Duration = Duration::from_micros(50);

/// The gates of a tree.
pub(crate) struct Gates {
    gates: Box<[Gate]>,
    draining: Mutex<()>,
}

/// On a cache line of its own: every operation counts here twice.
#[derive(Default)]
#[repr(align(64))]
struct Gate {
    round: AtomicUsize,
    inside: [AtomicUsize; 2],
}

/// An operation under way; it has ended when this is dropped.
pub(crate) struct Passed<'g>(&'g AtomicUsize);

impl Drop for Passed<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Gates {
    pub(crate) fn new() -> Self {
        Self { gates: (0..GATES).map(|_| Gate::default()).collect(), draining: Mutex::default() }
    }

    /// An operation in the directory of this number begins.
    pub(crate) fn pass(&self, id: u64) -> Passed<'_> {
        let gate = &self.gates[id as usize % GATES];
        loop {
            let round = gate.round.load(Ordering::SeqCst);
            let counter = &gate.inside[round & 1];
            counter.fetch_add(1, Ordering::SeqCst);
            // Counted before the next round began, so that its drain has seen it.
            if gate.round.load(Ordering::SeqCst) == round {
                return Passed(counter);
            }
            counter.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Waits until the operations in this directory that are under way have ended.
    pub(crate) fn drain(&self, id: u64) {
        let _one = lock(&self.draining);
        self.gates[id as usize % GATES].drain();
    }

    /// The same for all directories.
    pub(crate) fn drain_all(&self) {
        let _one = lock(&self.draining);
        self.gates.iter().for_each(Gate::drain);
    }
}

impl Gate {
    fn drain(&self) {
        let round = self.round.fetch_add(1, Ordering::SeqCst);
        while self.inside[round & 1].load(Ordering::SeqCst) > 0 {
            std::thread::park_timeout(LOOK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_drain_waits_for_those_inside_and_not_for_those_that_come_later() {
        let gates = Gates::new();
        let (first, ended) = (gates.pass(7), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gates.drain(7);
                assert!(ended.load(Ordering::SeqCst), "one that was inside had not ended");
            });
            // In the next round, however long it stays.
            while gates.gates[7].round.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let _later = gates.pass(7);
            let _nested = gates.pass(7);
            ended.store(true, Ordering::SeqCst);
            drop(first);
        });
    }

    #[test]
    fn what_was_published_before_a_drain_is_seen_by_all_that_pass_after_it() {
        let (gates, published, over) = (Gates::new(), AtomicUsize::new(0), AtomicBool::new(false));
        let seen: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(usize::MAX)).collect();
        std::thread::scope(|scope| {
            for seen in &seen {
                scope.spawn(|| {
                    while !over.load(Ordering::SeqCst) {
                        let _passed = gates.pass(3);
                        seen.store(published.load(Ordering::SeqCst), Ordering::SeqCst);
                        // What is at work now, for the drain's check.
                        std::hint::spin_loop();
                        seen.store(usize::MAX, Ordering::SeqCst);
                    }
                });
            }
            for step in 1..2000 {
                published.store(step, Ordering::SeqCst);
                gates.drain(3);
                for seen in &seen {
                    let at_work = seen.load(Ordering::SeqCst);
                    assert!(at_work == usize::MAX || at_work >= step, "{at_work} is at work after {step}");
                }
            }
            over.store(true, Ordering::SeqCst);
        });
    }
}
