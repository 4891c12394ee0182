//! When the times of managed directories were last set, so that one tick of the kernel's clock sets them once.
//!
//! A change in a hidden directory does not touch the managed one, so the mount sets its time of modification. The time that a file
//! system gives to a change is that of the last tick (a few milliseconds): setting it again within a tick would change nothing.
//!
//! Always holds: a directory noted here for a tick has had that time, or a later one, since it was noted, unless its times were set to
//! something else through the mount, which forgets it.
//! Locks: one a slot, each a leaf; held while a time is set, so that no other time set meanwhile is overlooked.

use std::sync::Mutex;

use rustix::time::{ClockId, clock_gettime};

use super::nodes::lock;

/// A time: seconds, nanoseconds.
type Tick = (i64, i64);

/// The directories that were changed last.
#[derive(Default)]
pub(crate) struct Stamps {
    slots: [Mutex<Option<(u64, Tick)>>; SLOTS],
}

const SLOTS: usize = 32;

impl Stamps {
    /// The time that a change would get now.
    fn now() -> Tick {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        (now.tv_sec, now.tv_nsec)
    }

    /// Sets a directory's time by `set`, unless that was done within this tick.
    pub(crate) fn once<E>(&self, directory: u64, set: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let mut slot = lock(self.slot(directory));
        // Read under the lock and before the time is set, so that the time is not older.
        let noted = Some((directory, Self::now()));
        if *slot != noted {
            set()?;
            *slot = noted;
        }
        Ok(())
    }

    /// A directory's times were set to something else.
    pub(crate) fn forget(&self, directory: u64) {
        let mut slot = lock(self.slot(directory));
        if slot.is_some_and(|(noted, _)| noted == directory) {
            *slot = None;
        }
    }

    fn slot(&self, directory: u64) -> &Mutex<Option<(u64, Tick)>> {
        &self.slots[(directory % SLOTS as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Begins right after a tick and ends within it.
    fn within_a_tick(work: impl Fn(&Stamps) -> Vec<bool>) -> Vec<bool> {
        loop {
            let before = Stamps::now();
            while Stamps::now() == before {}
            let (begun, done) = (Stamps::now(), work(&Stamps::default()));
            if Stamps::now() == begun {
                return done;
            }
        }
    }

    /// Whether the time was set.
    fn is_set(stamps: &Stamps, directory: u64) -> bool {
        let mut set = false;
        let Ok(()) = stamps.once(directory, || {
            set = true;
            Ok::<_, std::convert::Infallible>(())
        });
        set
    }

    #[test]
    fn a_time_is_set_once_a_tick_and_again_when_it_was_set_to_something_else() {
        let of = within_a_tick(|stamps| {
            let mut set = vec![is_set(stamps, 7), is_set(stamps, 7)];
            stamps.forget(7 + SLOTS as u64);
            set.push(is_set(stamps, 7));
            stamps.forget(7);
            set.push(is_set(stamps, 7));
            // Another directory takes the slot.
            set.extend([is_set(stamps, 7 + SLOTS as u64), is_set(stamps, 7)]);
            set
        });
        assert_eq!(of, [true, false, false, true, true, true]);
    }

    #[test]
    fn a_later_tick_sets_it_again_and_a_time_that_could_not_be_set_is_tried_again() {
        let stamps = Stamps::default();
        assert_eq!(stamps.once(7, || Err("refused")), Err("refused"));
        assert!(is_set(&stamps, 7));
        let before = Stamps::now();
        while Stamps::now() == before {}
        assert!(is_set(&stamps, 7));
    }
}
