//! How many descriptors each user of a mount may hold, so that one with many open files leaves some for all others.
//!
//! ```text
//! free = limit - held by all
//! granted, while what the user holds is no more than what is free
//! ```
//!
//! So one user alone gets half of the limit, two that want all get a third each, and there is always something free for the
//! next one. The rule needs no setting and no knowledge of users (Choudhury and Hahne, "Dynamic queue length thresholds",
//! 1998, with their factor 1).
//!
//! Always holds: no more than `limit` are held. Lock: one, a leaf.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::nodes::lock;

/// What all users hold.
pub(crate) struct Shares {
    limit: u64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    total: u64,
    by_user: HashMap<u32, User>,
}

#[derive(Default)]
struct User {
    holds: u64,
    refusal_logged: bool,
}

/// Descriptors that a user holds until this is dropped.
pub(crate) struct Share {
    shares: Arc<Shares>,
    uid: u32,
    count: u64,
}

/// Users without open files that are remembered, so that a refusal is logged once.
const USERS_REMEMBERED_MAX: usize = 1000;

impl Shares {
    /// Of `descriptors` that the process may have, less those that it needs itself.
    pub(crate) fn new(descriptors: u64, needed: u64) -> Arc<Self> {
        let limit = descriptors.saturating_sub(needed).max(descriptors / 2);
        Arc::new(Self { limit, held: Mutex::default() })
    }

    /// Takes `count` for a user; EMFILE when it has its share.
    pub(crate) fn take(self: &Arc<Self>, uid: u32, count: u64) -> Result<Share, Errno> {
        let mut held = lock(&self.held);
        let free = self.limit.saturating_sub(held.total);
        let user = held.by_user.entry(uid).or_default();
        if user.holds + count > free {
            if !std::mem::replace(&mut user.refusal_logged, true) {
                tracing::warn!(
                    "user {uid} gets EMFILE: it holds {} descriptors by files open through the mount, and {free} of {} \
                     are free for all users; raise the hard limit of open files (LimitNOFILE=, ulimit -Hn)",
                    user.holds,
                    self.limit
                );
            }
            return Err(Errno::MFILE);
        }
        user.holds += count;
        held.total += count;
        Ok(Share { shares: Arc::clone(self), uid, count })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = lock(&self.shares.held);
        held.total -= self.count;
        let remembered = held.by_user.len() <= USERS_REMEMBERED_MAX;
        let Some(user) = held.by_user.get_mut(&self.uid) else { return };
        user.holds -= self.count;
        if user.holds == 0 && !(user.refusal_logged && remembered) {
            held.by_user.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(shares: &Arc<Shares>, uid: u32) -> Vec<Share> {
        std::iter::from_fn(|| shares.take(uid, 1).ok()).collect()
    }

    #[test]
    fn one_user_gets_half_and_the_next_ones_always_get_some() {
        let shares = Shares::new(1100, 100);
        let greedy = all(&shares, 1);
        assert_eq!(greedy.len(), 500);
        let second = all(&shares, 2);
        assert_eq!(second.len(), 250);
        assert!(shares.take(1, 1).is_err());
        assert_eq!(all(&shares, 3).len(), 125);
        drop(greedy);
        assert_eq!(all(&shares, 3).len(), 375);
        drop(second);
        assert_eq!(lock(&shares.held).total, 0);
        assert_eq!(all(&shares, 2).len(), 500, "what was given back is there for others");
    }

    #[test]
    fn where_few_descriptors_are_allowed_at_least_half_of_them_are_shared_out() {
        assert_eq!(all(&Shares::new(100, 5000), 1).len(), 25);
    }
}
