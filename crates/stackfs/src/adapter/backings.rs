//! Files registered for the kernel's pass-through: their data bypasses the daemon.
//!
//! ```text
//! open -> registered, users 1, 2 … -> last release -> idle -> opened again: no system call below
//!                                                       `-> forgotten, too many, or idle for long: ended
//! ```
//!
//! The kernel accepts one registration per inode, so all opens of a file share it; opens for reading
//! also share a descriptor. A file opened for reading stays registered for a while after its last release, because
//! a build's headers and popular articles are opened again and again.
//!
//! Always holds: an idle file was opened for reading only, so that it can still be executed. At most
//! `IDLE_MAX` files are idle, none for longer than `IDLE_FOR` plus the time between two calls of `expire`.
//! Lock: one, held over the registering call, which does no I/O, and over no other; registrations are dropped outside it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::tree::nodes::{ByInode, lock};

/// The registrations, by inode number.
pub(super) struct Backings<Registration> {
    backings: Mutex<Held<Registration>>,
    /// Whether the log already mentions that some data does not bypass the daemon.
    refusal_logged: AtomicBool,
}

struct Held<Registration> {
    by_inode: HashMap<u64, Backing<Registration>, ByInode>,
    /// Inodes in the order in which they became idle; some are in use again or gone.
    idle: VecDeque<(u64, Instant)>,
}

/// One registration.
struct Backing<Registration> {
    registration: Arc<Registration>,
    /// Opens that use it.
    users: usize,
    /// For opens that only read.
    for_reading: Option<Arc<OwnedFd>>,
    idle_since: Option<Instant>,
}

/// A registered file: its registration, and a descriptor for the requests that still reach the daemon.
pub(super) type Ready<Registration> = (Arc<Registration>, Arc<OwnedFd>);

/// Files kept after their last release.
const IDLE_MAX: usize = 256;
/// For how long: what was deleted below the mount frees its blocks after that.
pub(super) const IDLE_FOR: Duration = Duration::from_secs(5);

impl<Registration> Default for Backings<Registration> {
    fn default() -> Self {
        let held = Held { by_inode: HashMap::default(), idle: VecDeque::new() };
        Self { backings: Mutex::new(held), refusal_logged: AtomicBool::new(false) }
    }
}

impl<Registration> Backings<Registration> {
    /// Opens a file for reading that is registered already and was opened for reading.
    pub(super) fn open_again(&self, inode: u64) -> Option<Ready<Registration>> {
        let mut held = lock(&self.backings);
        let backing = held.by_inode.get_mut(&inode)?;
        let descriptor = Arc::clone(backing.for_reading.as_ref()?);
        Some((backing.joined(), descriptor))
    }

    /// Joins the registration of an inode just opened, or makes it; `None` when the kernel refuses: then its data
    /// goes through the daemon.
    pub(super) fn open(
        &self,
        inode: u64,
        for_reading: Option<&Arc<OwnedFd>>,
        register: impl FnOnce() -> io::Result<Registration>,
    ) -> Option<Arc<Registration>> {
        let mut held = lock(&self.backings);
        if let Some(backing) = held.by_inode.get_mut(&inode) {
            if backing.for_reading.is_none() {
                backing.for_reading = for_reading.cloned();
            }
            return Some(backing.joined());
        }
        match register() {
            Ok(registered) => {
                let registration = Arc::new(registered);
                let registered = Arc::clone(&registration);
                let for_reading = for_reading.cloned();
                held.by_inode
                    .insert(inode, Backing { registration, users: 1, for_reading, idle_since: None });
                Some(registered)
            }
            Err(error) => {
                if !self.refusal_logged.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "data of a file goes through the daemon: the kernel's pass-through says {error}"
                    );
                }
                None
            }
        }
    }

    /// An open file is closed.
    pub(super) fn release(&self, inode: u64) {
        let mut held = lock(&self.backings);
        let Some(backing) = held.by_inode.get_mut(&inode) else { return };
        backing.users -= 1;
        if backing.users > 0 {
            return;
        }
        let _ended_after_the_lock = if backing.for_reading.is_some() {
            let now = Instant::now();
            backing.idle_since = Some(now);
            held.idle.push_back((inode, now));
            if held.idle.len() > IDLE_MAX { held.end_oldest() } else { None }
        } else {
            held.by_inode.remove(&inode)
        };
        drop(held);
    }

    /// The kernel has forgotten an inode: nobody will open it again.
    pub(super) fn forget(&self, inode: u64) {
        let mut held = lock(&self.backings);
        if held.by_inode.get(&inode).is_some_and(|backing| backing.users == 0) {
            let ended = held.by_inode.remove(&inode);
            drop(held);
            drop(ended);
        }
    }

    /// Ends those that became idle before `limit`.
    pub(super) fn expire(&self, limit: Instant) {
        let mut held = lock(&self.backings);
        let mut ended = Vec::new();
        while held.idle.front().is_some_and(|(_, since)| *since < limit) {
            ended.extend(held.end_oldest());
        }
        drop(held);
        drop(ended);
    }

    /// Ends all that are idle; false when there were none.
    pub(super) fn give_up(&self) -> bool {
        let mut held = lock(&self.backings);
        let mut ended = Vec::new();
        while !held.idle.is_empty() {
            ended.extend(held.end_oldest());
        }
        drop(held);
        !ended.is_empty()
    }

    /// Inodes registered and open.
    pub(super) fn count(&self) -> usize {
        lock(&self.backings).by_inode.values().filter(|backing| backing.users > 0).count()
    }
}

impl<Registration> Backing<Registration> {
    fn joined(&mut self) -> Arc<Registration> {
        self.users += 1;
        self.idle_since = None;
        Arc::clone(&self.registration)
    }
}

impl<Registration> Held<Registration> {
    /// Takes out what has been idle for longest, unless it was used since.
    fn end_oldest(&mut self) -> Option<Backing<Registration>> {
        let (inode, since) = self.idle.pop_front()?;
        let still = self.by_inode.get(&inode).is_some_and(|backing| backing.idle_since == Some(since));
        if still { self.by_inode.remove(&inode) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> Arc<OwnedFd> {
        Arc::new(std::fs::File::open("/").unwrap().into())
    }

    fn opened(backings: &Backings<u64>, inode: u64, reading: bool) {
        let descriptor = descriptor();
        backings.open(inode, reading.then_some(&descriptor), || Ok(inode)).unwrap();
    }

    fn is_there(backings: &Backings<u64>, inode: u64) -> bool {
        lock(&backings.backings).by_inode.contains_key(&inode)
    }

    #[test]
    fn all_opens_of_an_inode_share_one_registration() {
        let backings = Backings::default();
        opened(&backings, 7, false);
        let shared = backings.open(7, None, || panic!("registered twice"));
        assert_eq!(shared, Some(Arc::new(7)));
        backings.release(7);
        assert_eq!(backings.count(), 1);
        backings.release(7);
        assert!(!is_there(&backings, 7), "what was open for writing is not kept");
    }

    #[test]
    fn a_file_read_lately_is_opened_again_and_one_that_the_kernel_forgot_is_not() {
        let backings = Backings::default();
        opened(&backings, 7, true);
        backings.release(7);
        assert_eq!(backings.count(), 0);
        assert!(backings.open_again(7).is_some());
        backings.forget(7);
        assert!(backings.open_again(7).is_some(), "it was open");
        backings.release(7);
        backings.release(7);
        backings.forget(7);
        assert!(backings.open_again(7).is_none());
    }

    #[test]
    fn idle_files_are_bounded_in_number_and_the_latest_stay() {
        let backings = Backings::default();
        for inode in 0..2 * IDLE_MAX as u64 {
            opened(&backings, inode, true);
            backings.release(inode);
        }
        assert_eq!(lock(&backings.backings).by_inode.len(), IDLE_MAX);
        assert!(is_there(&backings, 2 * IDLE_MAX as u64 - 1));
    }

    #[test]
    fn what_is_idle_expires_and_what_was_used_since_does_not() {
        let backings = Backings::default();
        for inode in [7, 8] {
            opened(&backings, inode, true);
            backings.release(inode);
        }
        let _ = backings.open_again(7);
        backings.expire(Instant::now() + IDLE_FOR);
        assert!(is_there(&backings, 7));
        assert!(!is_there(&backings, 8));
    }
}
