//! The bytes of an object, made from its key and version, and checked as they come in.
//!
//! ```text
//! block 0: version, masked by the key  8 B | tape  248 B
//! block n: stamp of (key, version, n)  8 B | tape  248 B, from a place that the stamp says
//! ```
//!
//! Always holds: no two objects, versions or places within one share a stamp, but by a chance of 2^-64, so a wrong,
//! mixed, shifted, stale or cut body is found; making and checking cost little more than a copy and a comparison.
//! Not here: what sizes and versions are (see `object`).

use std::sync::LazyLock;

use super::object::{Object, mix};

/// Bytes between two stamps.
const BLOCK: usize = 256;
const STAMP: usize = 8;
/// Small enough to stay in a core's own cache.
const TAPE: usize = 64 * 1024;

static RANDOM_TAPE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    (0..(TAPE + BLOCK) as u64 / 8).flat_map(|at| mix(at ^ 0x7a_7065).to_le_bytes()).collect()
});

/// The endless bytes of one object in one version.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    seed: u64,
    first: u64,
}

impl Body {
    /// Of an object as it is in a version.
    pub fn new(object: &Object, version: u64) -> Self {
        let key = object.key();
        Self { seed: mix(key ^ mix(version)), first: version ^ mask(key) }
    }

    fn block(&self, number: u64) -> ([u8; STAMP], &'static [u8]) {
        let stamp = mix(self.seed ^ number.wrapping_mul(0xd1b5_4a32_d192_ed03));
        let from = (stamp >> 17) as usize % TAPE;
        let head = if number == 0 { self.first } else { stamp };
        (head.to_le_bytes(), &RANDOM_TAPE[from..from + BLOCK - STAMP])
    }

    /// Writes the bytes from `offset` on.
    pub fn fill(&self, offset: u64, out: &mut [u8]) {
        self.walk(offset, out.len(), |at, expected| {
            out[at..at + expected.len()].copy_from_slice(expected);
            true
        });
    }

    /// Whether `bytes` are those from `offset` on.
    pub fn is_at(&self, offset: u64, bytes: &[u8]) -> bool {
        self.walk(offset, bytes.len(), |at, expected| bytes[at..at + expected.len()] == *expected)
    }

    /// Passes the bytes of a range piece by piece to `piece`, until it returns false.
    #[inline]
    fn walk(&self, offset: u64, len: usize, mut piece: impl FnMut(usize, &[u8]) -> bool) -> bool {
        let mut at = 0;
        let (mut number, mut skip) = (offset / BLOCK as u64, (offset % BLOCK as u64) as usize);
        while at < len {
            let (stamp, tape) = self.block(number);
            if skip < STAMP {
                let take = (STAMP - skip).min(len - at);
                if !piece(at, &stamp[skip..skip + take]) {
                    return false;
                }
                at += take;
                skip += take;
            }
            let take = (BLOCK - skip).min(len - at);
            if take > 0 && skip >= STAMP {
                if !piece(at, &tape[skip - STAMP..skip - STAMP + take]) {
                    return false;
                }
                at += take;
            }
            number += 1;
            skip = 0;
        }
        true
    }
}

fn mask(key: u64) -> u64 {
    mix(key ^ 0x6d61_736b)
}

/// What is wrong with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFault {
    /// Its first bytes belong to no version of this object.
    Wrong,
    /// It begins as this object and continues as something else.
    Mixed,
    /// An older version than a cache may still show.
    Stale,
    /// It ends too early.
    Cut,
    /// It continues after the object's end.
    TooLong,
}

/// Checks a body as it comes in.
#[derive(Clone, Copy, Debug)]
pub struct BodyCheck {
    object: Object,
    /// Versions that may be shown, the oldest and the newest.
    versions: (u64, u64),
    seen: u64,
    /// The first bytes, until they tell the version.
    begin: [u8; STAMP],
    body: Option<Body>,
    fault: Option<BodyFault>,
    /// Count only.
    lengths_only: bool,
}

impl BodyCheck {
    /// For an object of which versions from `oldest` to `newest` may be shown.
    pub fn new(object: Object, oldest: u64, newest: u64) -> Self {
        let begin = [0; STAMP];
        Self {
            object,
            versions: (oldest, newest),
            seen: 0,
            begin,
            body: None,
            fault: None,
            lengths_only: false,
        }
    }

    /// The same without a look at the bytes.
    pub fn length_alone(self) -> Self {
        Self { lengths_only: true, ..self }
    }

    /// Bytes seen.
    pub fn seen_bytes(&self) -> u64 {
        self.seen
    }

    /// Takes the next bytes.
    #[inline]
    pub fn feed(&mut self, bytes: &[u8]) {
        let offset = self.seen;
        self.seen += bytes.len() as u64;
        if self.seen > self.object.size_bytes {
            self.fault.get_or_insert(BodyFault::TooLong);
        }
        if self.fault.is_some() || self.lengths_only {
            return;
        }
        let mut rest = bytes;
        let mut at = offset;
        if self.body.is_none() {
            let have = offset as usize;
            let take = (STAMP - have).min(rest.len());
            self.begin[have..have + take].copy_from_slice(&rest[..take]);
            rest = &rest[take..];
            at += take as u64;
            if have + take < STAMP {
                return;
            }
            self.know_version();
        }
        if let Some(body) = &self.body
            && !body.is_at(at, rest)
        {
            // The version alone proves nothing: what follows it within the first block must fit too.
            self.fault = Some(if at < BLOCK as u64 { BodyFault::Wrong } else { BodyFault::Mixed });
            if at < BLOCK as u64 && rest.len() > BLOCK && body.is_at(at, &rest[..BLOCK - at as usize]) {
                self.fault = Some(BodyFault::Mixed);
            }
        }
    }

    fn know_version(&mut self) {
        let version = u64::from_le_bytes(self.begin) ^ mask(self.object.key());
        let (oldest, newest) = self.versions;
        if version > newest {
            self.fault = Some(BodyFault::Wrong);
        } else if version < oldest {
            self.fault = Some(BodyFault::Stale);
        } else {
            self.body = Some(Body::new(&self.object, version));
        }
    }

    /// What was wrong, all bytes being there.
    pub fn finish(mut self) -> Option<BodyFault> {
        if self.seen < self.object.size_bytes {
            self.fault.get_or_insert(BodyFault::Cut);
        }
        // Too short to tell its version in full: any that may be shown will do.
        if self.fault.is_none() && self.body.is_none() && !self.lengths_only {
            let (oldest, newest) = self.versions;
            let begin = &self.begin[..self.seen as usize];
            if !(oldest..=newest).any(|version| Body::new(&self.object, version).is_at(0, begin)) {
                self.fault = Some(BodyFault::Wrong);
            }
        }
        self.fault
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::object::Kind;

    fn bytes_of(object: &Object, version: u64) -> Vec<u8> {
        let mut bytes = vec![0; object.size_bytes as usize];
        Body::new(object, version).fill(0, &mut bytes);
        bytes
    }

    fn checked(object: &Object, bytes: &[u8], piece: usize) -> Option<BodyFault> {
        let mut check = BodyCheck::new(*object, 5, 7);
        bytes.chunks(piece.max(1)).for_each(|bytes| check.feed(bytes));
        check.finish()
    }

    #[test]
    fn each_way_of_being_wrong_has_its_name() {
        let (object, other) = (Object::fixed(1, 5000), Object::fixed(2, 5000));
        let (mine, theirs) = (bytes_of(&object, 6), bytes_of(&other, 6));
        for piece in [1, 7, 255, 256, 4096, 9999] {
            let fault = |bytes: &[u8]| checked(&object, bytes, piece);
            assert_eq!(fault(&mine), None, "in pieces of {piece}");
            assert_eq!(fault(&theirs), Some(BodyFault::Wrong));
            assert_eq!(fault(&bytes_of(&object, 4)), Some(BodyFault::Stale));
            assert_eq!(fault(&bytes_of(&object, 8)), Some(BodyFault::Wrong), "from the future");
            assert_eq!(fault(&mine[..4999]), Some(BodyFault::Cut));
            assert_eq!(fault(&[&mine[..], b"x"].concat()), Some(BodyFault::TooLong));
            assert_eq!(fault(&[&mine[..2048], &theirs[2048..]].concat()), Some(BodyFault::Mixed));
            assert_eq!(
                fault(&[&mine[..2048], &bytes_of(&object, 7)[2048..]].concat()),
                Some(BodyFault::Mixed)
            );
            assert_eq!(fault(&[&mine[..1024], &mine[1280..], &mine[..256]].concat()), Some(BodyFault::Mixed));
        }
    }

    #[test]
    fn the_smallest_bodies_are_checked_too() {
        for size in 1..20 {
            let object = Object { size_bytes: size, ..Object::by_law(Kind::Image, 9) };
            let mut bytes = bytes_of(&object, 5);
            assert_eq!(checked(&object, &bytes, 1), None);
            bytes[0] ^= 0x80;
            assert!(checked(&object, &bytes, 3).is_some(), "{size}");
        }
    }

    proptest! {
        #[test]
        fn a_stretch_is_what_the_whole_has_there(size in 1u64..3000, from in 0usize..3000, len in 0usize..700, flip in 0usize..700) {
            let object = Object::fixed(3, size);
            let whole = bytes_of(&object, 6);
            let from = from.min(whole.len());
            let stretch = whole[from..].iter().copied().take(len).collect::<Vec<_>>();
            let body = Body::new(&object, 6);
            prop_assert!(body.is_at(from as u64, &stretch));
            if let Some(byte) = stretch.clone().get_mut(flip) {
                *byte ^= 1;
                let mut wrong = stretch.clone();
                wrong[flip] = *byte;
                prop_assert!(!body.is_at(from as u64, &wrong));
            }
        }
    }
}
