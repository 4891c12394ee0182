//! When the times of managed directories were last set, so that one tick of the kernel's clock sets them once.
//!
//! A change in a hidden directory does not touch the managed one, so the mount sets its time of modification. The time that a file
//! system gives to a change is that of the last tick (a few milliseconds): setting it again within a tick would change nothing. To
//! look whether it is still the time that was set costs less than to set it.
//!
//! Always holds: the setting is left out only where the directory has the time that was set within this tick. After somebody
//! has set it to something else, through the mount or below, the next change sets it again.
//! Locks: one a slot, each a leaf; held over the system calls that look and set.

use std::sync::Mutex;

use rustix::time::{ClockId, clock_gettime};

use super::nodes::lock;

/// Seconds and nanoseconds.
pub(super) type Time = (i64, i64);

/// The directories that were changed last.
#[derive(Default)]
pub(super) struct Stamps {
    slots: [Mutex<Option<Stamp>>; SLOTS],
}

struct Stamp {
    directory: u64,
    /// The kernel's clock before the time was set.
    tick: Time,
    /// What it was afterwards.
    time: Time,
}

const SLOTS: usize = 32;

impl Stamps {
    /// Sets a directory's time by `set`, unless it still has, by `look`, the one that was set within this tick.
    pub(super) fn once<E>(
        &self,
        directory: u64,
        look: impl Fn() -> Option<Time>,
        set: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut slot = lock(&self.slots[(directory % SLOTS as u64) as usize]);
        // Read under the lock and before the time is set, so that the time is not older.
        let tick = now(ClockId::RealtimeCoarse);
        let is_recent = slot.as_ref().is_some_and(|stamp| {
            stamp.directory == directory && stamp.tick == tick && look() == Some(stamp.time)
        });
        if !is_recent {
            *slot = None;
            set()?;
            // Unless somebody has set another one since.
            let time = look().filter(|time| (tick..=now(ClockId::Realtime)).contains(time));
            *slot = time.map(|time| Stamp { directory, tick, time });
        }
        Ok(())
    }
}

/// The coarse clock is that of changes.
fn now(clock: ClockId) -> Time {
    let now = clock_gettime(clock);
    (now.tv_sec, now.tv_nsec)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::*;

    /// Begins right after a tick and ends within it.
    fn within_a_tick(work: impl Fn(&Stamps) -> Vec<bool>) -> Vec<bool> {
        loop {
            let before = now(ClockId::RealtimeCoarse);
            while now(ClockId::RealtimeCoarse) == before {}
            let (begun, done) = (now(ClockId::RealtimeCoarse), work(&Stamps::default()));
            if now(ClockId::RealtimeCoarse) == begun {
                return done;
            }
        }
    }

    /// Whether a directory's time, `time`, was set.
    fn is_set(stamps: &Stamps, directory: u64, time: &Cell<Time>) -> bool {
        let mut set = false;
        let Ok(()) = stamps.once(
            directory,
            || Some(time.get()),
            || {
                set = true;
                time.set(now(ClockId::RealtimeCoarse));
                Ok::<_, Infallible>(())
            },
        );
        set
    }

    #[test]
    fn a_time_is_set_once_a_tick_and_again_when_it_is_another_by_then() {
        let of = within_a_tick(|stamps| {
            let (one, other) = (Cell::new((0, 0)), Cell::new((0, 0)));
            let mut set = vec![is_set(stamps, 7, &one), is_set(stamps, 7, &one)];
            for time in [(0, 1), (i64::MAX, 0)] {
                one.set(time);
                set.extend([is_set(stamps, 7, &one), is_set(stamps, 7, &one)]);
            }
            // Another directory takes the slot.
            set.extend([is_set(stamps, 7 + SLOTS as u64, &other), is_set(stamps, 7, &one)]);
            set
        });
        assert_eq!(of, [true, false, true, false, true, false, true, true]);
    }

    #[test]
    fn a_later_tick_sets_it_again_and_so_does_a_time_that_could_not_be_set_or_seen() {
        let (stamps, time) = (Stamps::default(), Cell::new((0, 0)));
        assert_eq!(stamps.once(7, || Some((1, 1)), || Err("refused")), Err("refused"));
        assert!(is_set(&stamps, 7, &time));
        let before = now(ClockId::RealtimeCoarse);
        while now(ClockId::RealtimeCoarse) == before {}
        assert!(is_set(&stamps, 7, &time));
        let unseen = |set: &Cell<u32>| {
            let counted = || {
                set.set(set.get() + 1);
                Ok::<_, Infallible>(())
            };
            let Ok(()) = stamps.once(7, || None, counted);
        };
        let set = Cell::new(0);
        unseen(&set);
        unseen(&set);
        assert_eq!(set.get(), 2);
    }
}
