//! Idle connections by upstream.
//!
//! Always holds: the most recently used connection to an upstream is taken first, so that surplus ones age. Their number is bounded
//! per upstream, where further ones are closed, and in total, where those idle for longest are closed first.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::config::{IdleMax, Upstream};

/// The idle connections of one loop.
pub struct IdlePool<L> {
    by_upstream: HashMap<Upstream, Vec<Idle<L>>>,
    count: usize,
}

struct Idle<L> {
    connection: L,
    since: Instant,
}

impl<L> IdlePool<L> {
    /// Empty.
    pub fn new() -> Self {
        Self { by_upstream: HashMap::new(), count: 0 }
    }

    /// Takes the most recently used connection that is younger than `age_max` and open. Closes those it passes over.
    pub fn take(
        &mut self,
        upstream: &Upstream,
        age_max: Duration,
        is_open: impl Fn(&mut L) -> bool,
    ) -> Option<L> {
        let parked = self.by_upstream.get_mut(upstream)?;
        let mut found = None;
        while let Some(Idle { mut connection, since }) = parked.pop() {
            self.count -= 1;
            if since.elapsed() < age_max && is_open(&mut connection) {
                found = Some(connection);
                break;
            }
        }
        if parked.is_empty() {
            self.by_upstream.remove(upstream);
        }
        found
    }

    /// Adds a connection that was just used.
    pub fn put(&mut self, upstream: Upstream, connection: L, limits: IdleMax) {
        let parked = self.by_upstream.entry(upstream).or_default();
        if parked.len() >= limits.per_origin {
            return;
        }
        parked.push(Idle { connection, since: Instant::now() });
        self.count += 1;
        if self.count > limits.in_all {
            // Close a quarter at once, as this examines all of them.
            self.evict_down_to(limits.in_all - limits.in_all / 4);
        }
    }

    /// Closes those idle for longest until `left` remain.
    fn evict_down_to(&mut self, left: usize) {
        let Some(last_to_go) = self.count.checked_sub(left + 1) else { return };
        let mut times: Vec<Instant> = self.by_upstream.values().flatten().map(|idle| idle.since).collect();
        let (_, until, _) = times.select_nth_unstable(last_to_go);
        let until = *until;
        self.retain(|idle| idle.since > until);
    }

    /// Closes those that are too old or no longer open.
    pub fn sweep(&mut self, age_max: Duration, is_open: impl Fn(&mut L) -> bool) {
        self.retain(|idle| idle.since.elapsed() < age_max && is_open(&mut idle.connection));
    }

    fn retain(&mut self, is_kept: impl Fn(&mut Idle<L>) -> bool) {
        self.by_upstream.retain(|_, parked| {
            parked.retain_mut(&is_kept);
            !parked.is_empty()
        });
        self.count = self.by_upstream.values().map(Vec::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn to(host: &str) -> Upstream {
        Upstream { host: host.to_owned(), port: 80, tls: false }
    }

    fn take(pool: &mut IdlePool<u32>, host: &str) -> Option<u32> {
        pool.take(&to(host), LONG, |_| true)
    }

    #[test]
    fn the_one_used_last_is_taken_first_and_those_that_are_gone_are_not() {
        let limits = IdleMax { per_origin: 3, in_all: 100 };
        let mut pool = IdlePool::new();
        (1..=4).for_each(|connection| pool.put(to("a"), connection, limits));
        assert_eq!(
            pool.take(&to("a"), LONG, |connection| *connection != 3),
            Some(2),
            "3 is gone, 4 was one too many"
        );
        assert_eq!(take(&mut pool, "b"), None);
        assert_eq!(pool.take(&to("a"), Duration::ZERO, |_| true), None, "too old");
        assert_eq!((pool.count, pool.by_upstream.len()), (0, 0));
    }

    #[test]
    fn those_unused_for_longest_go_first_wherever_they_lead() {
        let limits = IdleMax { per_origin: 100, in_all: 8 };
        let mut pool = IdlePool::new();
        for connection in 0..9 {
            pool.put(to(["a", "b", "c"][connection as usize % 3]), connection, limits);
            let then = Instant::now();
            while Instant::now() == then {}
        }
        assert_eq!(pool.count, 6, "a quarter less than the most");
        let mut left: Vec<u32> = ["a", "b", "c"]
            .into_iter()
            .flat_map(|host| std::iter::from_fn(|| take(&mut pool, host)).collect::<Vec<_>>())
            .collect();
        left.sort_unstable();
        assert_eq!(left, [3, 4, 5, 6, 7, 8]);
        pool.put(to("a"), 9, IdleMax { per_origin: 1, in_all: 0 });
        assert_eq!(take(&mut pool, "a"), None, "none is to be kept");
    }

    #[test]
    fn sweeping_counts_what_is_left() {
        let limits = IdleMax { per_origin: 100, in_all: 100 };
        let mut pool = IdlePool::new();
        (0..10)
            .for_each(|connection| pool.put(to(if connection < 5 { "a" } else { "b" }), connection, limits));
        pool.sweep(LONG, |connection| *connection < 3);
        assert_eq!((pool.count, pool.by_upstream.len()), (3, 1));
        pool.sweep(Duration::ZERO, |_| true);
        assert_eq!((pool.count, pool.by_upstream.len()), (0, 0));
    }
}
