//! Connections that lie idle, by where they lead.
//!
//! Always holds: of those to one place the one used last is taken first, so that those there are too many of grow old; no more
//! than so many lie idle for one place, which takes no more then, nor in all: of these those unused for longest go first.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::config::{IdleMax, Upstream};

/// Idle connections of one loop.
pub struct IdlePool<L> {
    by_place: HashMap<Upstream, Vec<Idle<L>>>,
    count: usize,
}

struct Idle<L> {
    link: L,
    since: Instant,
}

impl<L> IdlePool<L> {
    /// None yet.
    pub fn new() -> Self {
        Self { by_place: HashMap::new(), count: 0 }
    }

    /// Takes the one used last, of those that are no older and still there. Others that come first are closed.
    pub fn take(
        &mut self,
        upstream: &Upstream,
        age_max: Duration,
        is_there: impl Fn(&mut L) -> bool,
    ) -> Option<L> {
        let kept = self.by_place.get_mut(upstream)?;
        let mut found = None;
        while let Some(Idle { mut link, since }) = kept.pop() {
            self.count -= 1;
            if since.elapsed() < age_max && is_there(&mut link) {
                found = Some(link);
                break;
            }
        }
        if kept.is_empty() {
            self.by_place.remove(upstream);
        }
        found
    }

    /// Keeps one that was just used.
    pub fn put(&mut self, upstream: Upstream, link: L, most: IdleMax) {
        let kept = self.by_place.entry(upstream).or_default();
        if kept.len() >= most.per_origin {
            return;
        }
        kept.push(Idle { link, since: Instant::now() });
        self.count += 1;
        if self.count > most.in_all {
            // A quarter at once, as all have to be looked at.
            self.leave(most.in_all - most.in_all / 4);
        }
    }

    /// Closes all but so many, those unused for longest.
    fn leave(&mut self, left: usize) {
        let Some(last_to_go) = self.count.checked_sub(left + 1) else { return };
        let mut times: Vec<Instant> = self.by_place.values().flatten().map(|idle| idle.since).collect();
        let (_, until, _) = times.select_nth_unstable(last_to_go);
        let until = *until;
        self.retain(|idle| idle.since > until);
    }

    /// Closes those that are older or not there any more.
    pub fn sweep(&mut self, age_max: Duration, is_there: impl Fn(&mut L) -> bool) {
        self.retain(|idle| idle.since.elapsed() < age_max && is_there(&mut idle.link));
    }

    fn retain(&mut self, findable: impl Fn(&mut Idle<L>) -> bool) {
        self.by_place.retain(|_, kept| {
            kept.retain_mut(&findable);
            !kept.is_empty()
        });
        self.count = self.by_place.values().map(Vec::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn to(host: &str) -> Upstream {
        Upstream { host: host.to_owned(), port: 80, tls: false }
    }

    fn take(kept: &mut IdlePool<u32>, host: &str) -> Option<u32> {
        kept.take(&to(host), LONG, |_| true)
    }

    #[test]
    fn the_one_used_last_is_taken_first_and_those_that_are_gone_are_not() {
        let most = IdleMax { per_origin: 3, in_all: 100 };
        let mut kept = IdlePool::new();
        (1..=4).for_each(|link| kept.put(to("a"), link, most));
        assert_eq!(kept.take(&to("a"), LONG, |link| *link != 3), Some(2), "3 is gone, 4 was one too many");
        assert_eq!(take(&mut kept, "b"), None);
        assert_eq!(kept.take(&to("a"), Duration::ZERO, |_| true), None, "too old");
        assert_eq!((kept.count, kept.by_place.len()), (0, 0));
    }

    #[test]
    fn those_unused_for_longest_go_first_wherever_they_lead() {
        let most = IdleMax { per_origin: 100, in_all: 8 };
        let mut kept = IdlePool::new();
        for link in 0..9 {
            kept.put(to(["a", "b", "c"][link as usize % 3]), link, most);
            let then = Instant::now();
            while Instant::now() == then {}
        }
        assert_eq!(kept.count, 6, "a quarter less than the most");
        let mut left: Vec<u32> = ["a", "b", "c"]
            .into_iter()
            .flat_map(|host| std::iter::from_fn(|| take(&mut kept, host)).collect::<Vec<_>>())
            .collect();
        left.sort_unstable();
        assert_eq!(left, [3, 4, 5, 6, 7, 8]);
        kept.put(to("a"), 9, IdleMax { per_origin: 1, in_all: 0 });
        assert_eq!(take(&mut kept, "a"), None, "none is to be kept");
    }

    #[test]
    fn sweeping_counts_what_is_left() {
        let most = IdleMax { per_origin: 100, in_all: 100 };
        let mut kept = IdlePool::new();
        (0..10).for_each(|link| kept.put(to(if link < 5 { "a" } else { "b" }), link, most));
        kept.sweep(LONG, |link| *link < 3);
        assert_eq!((kept.count, kept.by_place.len()), (3, 1));
        kept.sweep(Duration::ZERO, |_| true);
        assert_eq!((kept.count, kept.by_place.len()), (0, 0));
    }
}
