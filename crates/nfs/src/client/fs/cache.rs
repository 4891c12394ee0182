//! Handles and attributes remembered for a while.
//!
//! ```text
//! names:       directory handle, name -> handle, kind, when the server said so
//! attributes:  handle                 -> attributes,   when the server said so
//! ```
//!
//! Always holds: what is older than the agreed time is not handed out; own changes are applied before their call
//! returns; at most 2 x [`GENERATION`] entries of each sort (some 15 MB), the oldest half forgotten when full.
//! The lock is a leaf.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use files::{Attributes, FileKind, Handle, Wcc};

/// Entries before the older generation is forgotten.
const GENERATION: usize = 16 << 10;

pub(super) struct Cache {
    keep: Duration,
    inner: Mutex<Inner>,
}

struct Inner {
    names: Generations<Name>,
    attributes: Generations<Seen>,
    /// Where keys are put together.
    key: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Name {
    handle: Handle,
    kind: FileKind,
    seen: Instant,
}

#[derive(Clone, Copy)]
struct Seen {
    attributes: Attributes,
    seen: Instant,
}

impl Cache {
    pub(super) fn new(keep: Duration) -> Self {
        let inner =
            Inner { names: Generations::new(), attributes: Generations::new(), key: Vec::with_capacity(512) };
        Self { keep, inner: Mutex::new(inner) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a name stands for, with its attributes when these are known, too.
    pub(super) fn name(&self, dir: &Handle, name: &[u8]) -> Option<(Handle, FileKind, Option<Attributes>)> {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let known = *inner.names.get(name_key(&mut inner.key, dir, name))?;
        if known.seen.elapsed() > self.keep {
            return None;
        }
        let attributes = inner.attributes.get(known.handle.as_bytes());
        let attributes = attributes.filter(|a| a.seen.elapsed() <= self.keep).map(|a| a.attributes);
        Some((known.handle, known.kind, attributes))
    }

    /// Whether a name stood for `handle` when it was last seen, however long ago that is.
    pub(super) fn is_name_of(&self, dir: &Handle, name: &[u8], handle: &Handle) -> bool {
        let mut inner = self.lock();
        let inner = &mut *inner;
        inner.names.get(name_key(&mut inner.key, dir, name)).is_some_and(|known| known.handle == *handle)
    }

    pub(super) fn saw_name(&self, dir: &Handle, name: &[u8], handle: Handle, kind: FileKind) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let key = name_key(&mut inner.key, dir, name);
        inner.names.put(key, Name { handle, kind, seen: Instant::now() });
    }

    pub(super) fn forget_name(&self, dir: &Handle, name: &[u8]) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        if let Some(known) = inner.names.take(name_key(&mut inner.key, dir, name)) {
            inner.attributes.take(known.handle.as_bytes());
        }
    }

    /// A name moved; what was at its new place is gone.
    pub(super) fn renamed(&self, from: (&Handle, &[u8]), to: (&Handle, &[u8])) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        let moved = inner.names.take(name_key(&mut inner.key, from.0, from.1));
        let replaced = inner.names.take(name_key(&mut inner.key, to.0, to.1));
        for known in moved.iter().chain(&replaced) {
            inner.attributes.take(known.handle.as_bytes());
        }
        // Only what was a name of something else has taken the place: two names of one file both stay, and which
        // the server kept is not worth guessing.
        if let Some(moved) = moved.filter(|moved| replaced.is_none_or(|gone| gone.handle != moved.handle)) {
            inner.names.put(name_key(&mut inner.key, to.0, to.1), moved);
        }
    }

    pub(super) fn attributes(&self, object: &Handle) -> Option<Attributes> {
        let inner = self.lock();
        let known = inner.attributes.get(object.as_bytes())?;
        (known.seen.elapsed() <= self.keep).then_some(known.attributes)
    }

    pub(super) fn saw_attributes(&self, object: &Handle, attributes: Attributes) {
        let mut inner = self.lock();
        // Replies overtake each other when several threads ask: an older state must not replace a newer one.
        let newer_known = inner.attributes.get(object.as_bytes()).is_some_and(|known| {
            known.attributes.ctime > attributes.ctime && known.seen.elapsed() <= self.keep
        });
        if !newer_known {
            inner.attributes.put(object.as_bytes(), Seen { attributes, seen: Instant::now() });
        }
    }

    pub(super) fn forget_attributes(&self, object: &Handle) {
        self.lock().attributes.take(object.as_bytes());
    }

    /// An object was changed, and the server reported its new state or did not.
    pub(super) fn changed(&self, object: &Handle, wcc: &Wcc) {
        match wcc.after {
            Some(attributes) => self.saw_attributes(object, attributes),
            None => self.forget_attributes(object),
        }
    }
}

/// The directory's handle behind its length, then the name: no two pairs have the same.
fn name_key<'a>(key: &'a mut Vec<u8>, dir: &Handle, name: &[u8]) -> &'a [u8] {
    key.clear();
    key.push(dir.as_bytes().len() as u8);
    key.extend_from_slice(dir.as_bytes());
    key.extend_from_slice(name);
    key
}

/// A bounded map: new entries join the young; when these are enough, the old ones are dropped and the young are old.
struct Generations<V> {
    young: HashMap<Box<[u8]>, V>,
    old: HashMap<Box<[u8]>, V>,
}

impl<V> Generations<V> {
    fn new() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }

    fn get(&self, key: &[u8]) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    fn put(&mut self, key: &[u8], value: V) {
        if let Some(known) = self.young.get_mut(key) {
            *known = value;
            return;
        }
        let (key, _) =
            self.old.remove_entry(key).map_or_else(|| (key.into(), None), |(key, v)| (key, Some(v)));
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    fn take(&mut self, key: &[u8]) -> Option<V> {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(number: u64) -> Handle {
        Handle::new(&number.to_be_bytes()).expect("short")
    }

    #[test]
    fn what_was_seen_last_outlives_what_was_seen_first_and_no_more_is_kept_than_agreed() {
        let cache = Cache::new(Duration::from_secs(3600));
        let dir = handle(0);
        let seen = 5 * GENERATION as u64;
        for number in 1..=seen {
            cache.saw_name(&dir, &number.to_le_bytes(), handle(number), FileKind::Regular);
        }
        assert!(cache.name(&dir, &1_u64.to_le_bytes()).is_none());
        let last = cache.name(&dir, &seen.to_le_bytes()).expect("just seen");
        assert_eq!(last.0, handle(seen));
        let inner = cache.lock();
        assert!(inner.names.young.len() <= GENERATION && inner.names.old.len() <= GENERATION);
    }

    #[test]
    fn a_rename_takes_the_handle_along_and_a_name_is_forgotten_at_once() {
        let cache = Cache::new(Duration::from_secs(3600));
        let dir = handle(0);
        cache.saw_name(&dir, b"a", handle(1), FileKind::Regular);
        cache.saw_name(&dir, b"b", handle(2), FileKind::Regular);
        cache.renamed((&dir, b"a"), (&dir, b"b"));
        assert!(cache.name(&dir, b"a").is_none());
        assert_eq!(cache.name(&dir, b"b").expect("moved there").0, handle(1));
        assert!(cache.is_name_of(&dir, b"b", &handle(1)));
        cache.forget_name(&dir, b"b");
        assert!(cache.name(&dir, b"b").is_none());
    }

    #[test]
    fn nothing_is_handed_out_beyond_its_time() {
        let cache = Cache::new(Duration::ZERO);
        cache.saw_name(&handle(0), b"a", handle(1), FileKind::Regular);
        let seen = Instant::now();
        while seen.elapsed().is_zero() {
            std::hint::spin_loop();
        }
        assert!(cache.name(&handle(0), b"a").is_none());
    }
}
