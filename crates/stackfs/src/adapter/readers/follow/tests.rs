use std::collections::BTreeMap;
use std::sync::Mutex;

use super::*;

const READER: i32 = 11;
const OTHER: i32 = 12;
const CALLER: u32 = 100;

/// A machine in which nothing runs: who is bound where is written down.
#[derive(Default)]
struct Paper {
    /// The thread that calls.
    running: AtomicI32,
    /// The CPU of every caller; none when it cannot be known.
    cpu: Mutex<Option<usize>>,
    looks: AtomicU32,
    bound: Mutex<BTreeMap<i32, usize>>,
    refuses: AtomicBool,
}

impl Placement for Paper {
    fn this_thread(&self) -> Pid {
        Pid::from_raw(self.running.load(SeqCst)).expect("a thread runs")
    }

    fn cpu_of(&self, _: u32) -> Option<usize> {
        self.looks.fetch_add(1, SeqCst);
        *self.cpu.lock().unwrap()
    }

    fn bind(&self, thread: Pid, cpu: usize) -> bool {
        self.bound.lock().unwrap().insert(thread.as_raw_nonzero().get(), cpu);
        !self.refuses.load(SeqCst)
    }

    fn release(&self, thread: Pid) {
        self.bound.lock().unwrap().remove(&thread.as_raw_nonzero().get());
    }
}

fn follower() -> Follower<Paper> {
    let follower = Follower::with(Paper::default());
    follower.placement.running.store(READER, SeqCst);
    *follower.placement.cpu.lock().unwrap() = Some(3);
    follower
}

impl Follower<Paper> {
    /// Requests of one caller alone, taken by one thread alone.
    fn lone(&self, requests: u32) -> &Self {
        for _ in 0..requests {
            self.taken(CALLER, true, false);
            self.done();
        }
        self
    }

    fn bound(&self) -> Vec<(i32, usize)> {
        self.placement.bound.lock().unwrap().iter().map(|(thread, cpu)| (*thread, *cpu)).collect()
    }
}

#[test]
fn the_reader_of_a_lone_caller_stays_on_its_cpu_and_moves_with_it() {
    let follower = follower();
    assert_eq!(follower.lone(LONE_MIN - 1).bound(), []);
    assert_eq!(follower.lone(1).bound(), [(READER, 3)]);
    *follower.placement.cpu.lock().unwrap() = Some(5);
    assert_eq!(follower.lone(LOOK_EVERY).bound(), [(READER, 5)]);
    let followed = follower.followed();
    assert_eq!((followed.begun, followed.moved, followed.stalled), (1, 1, 0));
    assert_eq!(followed.requests, u64::from(LOOK_EVERY));
    follower.leave();
    assert_eq!(follower.bound(), [], "it parks on all CPUs");
}

#[test]
fn a_request_for_which_no_program_waits_is_no_second_caller() {
    let follower = follower();
    for _ in 0..LONE_MIN {
        follower.taken(CALLER, true, false);
        // A RELEASE, with the next OPEN behind it.
        follower.taken(0, true, true);
    }
    assert_eq!(follower.bound(), [(READER, 3)]);
}

#[test]
fn it_lets_go_when_requests_of_two_callers_queue() {
    let follower = follower();
    follower.lone(LONE_MIN);
    follower.taken(CALLER, true, true);
    assert_eq!(follower.bound(), [(READER, 3)], "what is behind may be the caller's own");
    follower.taken(CALLER + 1, true, false);
    assert_eq!(follower.bound(), []);
}

#[test]
fn callers_one_after_another_are_followed() {
    let follower = follower();
    (0..LONE_MIN).for_each(|process| follower.taken(CALLER + process, true, false));
    assert_eq!(follower.bound(), [(READER, 3)]);
}

#[test]
fn another_thread_that_takes_a_request_releases_it_once() {
    let follower = follower();
    follower.lone(LONE_MIN);
    follower.placement.running.store(OTHER, SeqCst);
    follower.lone(LONE_MIN * 4);
    assert_eq!(follower.bound(), [], "and does not take its place while it does not know");
    follower.placement.running.store(READER, SeqCst);
    assert_eq!(follower.lone(1).bound(), []);
    assert_eq!(follower.lone(LONE_MIN).bound(), [(READER, 3)]);
}

#[test]
fn one_that_stalled_while_needed_waits_for_more_lone_requests_until_it_is_proven() {
    let follower = follower();
    follower.lone(LONE_MIN).stalled(true);
    assert_eq!(follower.bound(), []);
    follower.stalled(true);
    assert_eq!(follower.followed().stalled, 1, "the same");
    assert_eq!(follower.lone(1 + 4 * LONE_MIN - 1).bound(), []);
    assert_eq!(follower.lone(1).bound(), [(READER, 3)]);
    follower.lone(PROVEN).stalled(false);
    assert_eq!(follower.followed().stalled, 1, "it had nothing to do");
    assert_eq!(follower.lone(1 + LONE_MIN).bound(), [(READER, 3)]);
}

#[test]
fn one_that_stalls_over_a_request_was_needed_and_one_whose_caller_computes_was_not() {
    let follower = follower();
    follower.lone(LONE_MIN).stalled(false);
    assert_eq!((follower.bound(), follower.followed().stalled), (vec![], 0));
    follower.lone(1 + LONE_MIN).taken(CALLER, true, false);
    follower.stalled(false);
    assert_eq!((follower.bound(), follower.followed().stalled), (vec![], 1));
}

#[test]
fn where_the_callers_cpu_is_unknown_it_looks_seldom_and_follows_nobody() {
    let follower = follower();
    *follower.placement.cpu.lock().unwrap() = None;
    assert_eq!(follower.lone(10 * LONE_MIN).bound(), []);
    assert_eq!(follower.placement.looks.load(SeqCst), 10);
}

#[test]
fn a_thread_that_cannot_be_bound_is_left_as_it_was() {
    let follower = follower();
    follower.placement.refuses.store(true, SeqCst);
    assert_eq!(follower.lone(LONE_MIN).bound(), []);
    assert_eq!(follower.followed().begun, 0);
}

#[test]
fn without_a_thread_that_looks_after_it_none_follows() {
    let follower = follower();
    follower.lone(LONE_MIN);
    follower.taken(CALLER, false, false);
    assert_eq!(follower.bound(), []);
    (0..4 * LONE_MIN).for_each(|_| follower.taken(CALLER, false, false));
    assert_eq!(follower.bound(), []);
}

#[test]
fn the_cpu_is_found_behind_a_name_with_spaces_and_parentheses() {
    let stat = b"7 (a) S (b) R 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99 1 1 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 6 0 0 0";
    assert_eq!(cpu_in(stat), Some(6));
    assert_eq!(cpu_in(b"7 (a"), None);
    let own = std::fs::read("/proc/thread-self/stat").unwrap();
    assert!(cpu_in(&own).is_some());
}
