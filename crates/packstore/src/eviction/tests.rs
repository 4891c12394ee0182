//! Each policy beside one written down as plainly as can be, on lists that are searched from end to end.

use std::collections::{HashMap, HashSet};

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

/// Lists with holes; which list a newcomer joins and what happens at a list's old end differ.
#[derive(Default)]
struct Plain {
    small: Vec<u32>,
    main: Vec<u32>,
    held: HashSet<u32>,
    touches: HashMap<u32, u8>,
    hand: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Fifo,
    Lru,
    Clock,
    Sieve,
    S3Fifo,
}

impl Plain {
    fn insert(&mut self, order: Order, slot: u32, known: bool) {
        self.held.insert(slot);
        self.touches.insert(slot, 0);
        if order == Order::Lru {
            self.main.retain(|&other| other != slot);
        }
        if !self.main.contains(&slot) && !self.small.contains(&slot) {
            if order == Order::S3Fifo && !known { self.small.push(slot) } else { self.main.push(slot) }
        }
    }

    fn touch(&mut self, order: Order, slot: u32) {
        if self.held.contains(&slot) {
            let touches = self.touches.entry(slot).or_default();
            *touches = (*touches + 1).min(3);
            if order == Order::Lru {
                self.main.retain(|&other| other != slot);
                self.main.push(slot);
            }
        }
    }

    fn remove(&mut self, slot: u32) {
        self.held.remove(&slot);
        self.touches.insert(slot, 0);
    }

    /// And whether it is to be remembered.
    fn victim(&mut self, order: Order) -> Option<(u32, bool)> {
        while self.small.len() + self.main.len() > 0 {
            let (slot, remembered) = match order {
                Order::Fifo | Order::Lru => (self.main.remove(0), false),
                Order::Clock => {
                    let slot = self.main.remove(0);
                    let touches = self.touches[&slot];
                    if touches > 0 {
                        self.touches.insert(slot, touches - 1);
                        self.main.push(slot);
                        continue;
                    }
                    (slot, false)
                }
                Order::Sieve => {
                    if self.hand >= self.main.len() {
                        self.hand = 0;
                    }
                    let slot = self.main[self.hand];
                    if self.touches[&slot] > 0 {
                        self.touches.insert(slot, 0);
                        self.hand += 1;
                        continue;
                    }
                    (self.main.remove(self.hand), false)
                }
                Order::S3Fifo => {
                    let all = self.small.len() + self.main.len();
                    if self.small.len() > all / 5 || self.main.is_empty() {
                        let slot = self.small.remove(0);
                        if self.touches[&slot] >= 2 {
                            self.touches.insert(slot, 0);
                            self.main.push(slot);
                            continue;
                        }
                        (slot, true)
                    } else {
                        let slot = self.main.remove(0);
                        let touches = self.touches[&slot];
                        if touches > 0 {
                            self.touches.insert(slot, touches - 1);
                            self.main.push(slot);
                            continue;
                        }
                        (slot, false)
                    }
                }
            };
            if self.held.remove(&slot) {
                return Some((slot, remembered));
            }
        }
        None
    }
}

fn same_victims(order: Order, make: impl Fn(u32) -> Box<dyn Policy>) {
    for seed in 0..60 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let slots = random.random_range(1..80);
        // Now and then more slots than it was made for.
        let mut policy = make(slots / 2);
        let mut plain = Plain::default();
        let mut known = Recent::new(slots / 2 - slots / 2 / 10);
        let mut free = (0..slots).collect::<Vec<_>>();
        let mut keys = HashMap::new();
        for step in 0..2_000 {
            let slot = random.random_range(0..slots);
            match random.random_range(0..10) {
                0..4 if !free.is_empty() => {
                    let slot = free.swap_remove(random.random_range(0..free.len()));
                    let key = u64::from(random.random_range(0..200_u32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    policy.inserted(slot, key);
                    plain.insert(order, slot, known.take(key));
                    keys.insert(slot, key);
                }
                4..7 => {
                    policy.touched(slot);
                    plain.touch(order, slot);
                }
                7 => {
                    if plain.held.contains(&slot) {
                        policy.removed(slot);
                        plain.remove(slot);
                        free.push(slot);
                    }
                }
                _ => {
                    let victim = policy.victim();
                    let expected = plain.victim(order);
                    assert_eq!(victim, expected.map(|it| it.0), "{order:?} seed {seed} step {step}");
                    if let Some((slot, remembered)) = expected {
                        policy.evicted(slot, keys[&slot]);
                        if remembered {
                            known.note(keys[&slot]);
                        }
                        free.push(slot);
                    }
                }
            }
            assert_eq!(policy.len(), plain.held.len(), "{order:?} seed {seed} step {step}");
        }
    }
}

#[test]
fn fifo_lets_go_in_the_order_of_coming() {
    same_victims(Order::Fifo, |slots| Box::new(Fifo::new(slots)));
}

#[test]
fn lru_lets_go_of_what_was_asked_for_longest_ago() {
    same_victims(Order::Lru, |slots| Box::new(Lru::new(slots)));
}

#[test]
fn a_clock_lets_go_of_the_oldest_that_was_asked_for_no_oftener_than_it_was_spared() {
    same_victims(Order::Clock, |slots| Box::new(Clock::new(slots, 3)));
}

#[test]
fn sieve_lets_go_of_the_first_that_was_not_asked_for_since_the_hand_came_by() {
    same_victims(Order::Sieve, |slots| Box::new(Sieve::new(slots)));
}

#[test]
fn s3_fifo_lets_go_of_newcomers_first_unless_they_were_asked_for_or_had_been_there() {
    same_victims(Order::S3Fifo, |slots| Box::new(S3Fifo::new(slots)));
}

#[test]
fn all_but_lru_take_less_memory_than_lru() {
    let slots = 100_000;
    let lru = Lru::new(slots).memory_bytes();
    let others: [Box<dyn Policy>; 3] =
        [Box::new(Fifo::new(slots)), Box::new(Sieve::new(slots)), Box::new(S3Fifo::new(slots))];
    for mut policy in others {
        (0..slots).for_each(|slot| policy.inserted(slot, u64::from(slot)));
        assert!(policy.memory_bytes() < lru, "{} of {lru}", policy.memory_bytes());
    }
}

#[test]
fn touches_by_many_threads_at_once_spare_what_was_touched() {
    let mut sieve = Sieve::new(10_000);
    (0..10_000).for_each(|slot| sieve.inserted(slot, 0));
    std::thread::scope(|scope| {
        for part in 0..4 {
            let sieve = &sieve;
            scope.spawn(move || {
                (0..10_000).filter(|slot| slot % 8 == part * 2).for_each(|slot| sieve.touched(slot))
            });
        }
    });
    let gone = (0..5_000).map(|_| sieve.victim().expect("half were not touched"));
    assert!(gone.into_iter().all(|slot| slot % 2 == 1));
}

#[test]
fn what_was_noted_lately_is_known_once_and_what_was_noted_long_ago_is_not() {
    let mut recent = Recent::new(1_000);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let keys = (0..4_000).map(|_| random.random()).collect::<Vec<u64>>();
    assert!(!recent.admits(keys[0]));
    assert!(recent.admits(keys[0]));
    keys.iter().for_each(|&key| recent.note(key));
    let known = |keys: &[u64], recent: &mut Recent| keys.iter().filter(|&&key| recent.take(key)).count();
    assert!(known(&keys[..2_000], &mut recent) < 60, "few of those of long ago");
    assert!(known(&keys[3_500..], &mut recent) > 450, "most of the latest");
    assert!(known(&keys[3_500..], &mut recent) < 5, "each once");
}
