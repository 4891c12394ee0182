//! Where a layout keeps a name: huge directories spread over many small ones, by the digits of the name or by its hash.
//!
//! | layout | 123456 is kept as | subdirectories | neighbours |
//! |---|---|---|---|
//! | `flat` | `123456` | none | all together |
//! | `345` | `345/123456` | 1,000 | ten together |
//! | `34/56` | `34/56/123456` | 100 of 100 | each elsewhere |
//! | `56/34` | `56/34/123456` | 100 of 100 | each elsewhere |
//! | `456` | `456/123456` | 1,000 | each elsewhere |
//! | `hash:2` | `10/123456` | 256 | each elsewhere |
//!
//! A layout is called after the digits of 123456 that it takes; digits count from the right, and a short number
//! has zeros before it: in `345`, 7 lies in `000`. A name that is not all digits lies in `aaa`. `hash:2`, for mail
//! folders and caches, takes two hexadecimal digits of the name's 32-bit FNV-1a hash, whatever the name is made of,
//! and has no `aaa`; one level of 256 keeps a million names in directories of 4,000.
//!
//! Always holds: one name has one place, and the place contains the name (its last component).
//! Not here: any input or output, conversion of directories that are there.
//! Source: Zadok and Badulescu, "Usenetfs: A Stackable File System for Large Article Directories",
//! CUCS-022-98, sections 2 and 4; the hash: the Internet-Draft draft-eastlake-fnv.

use std::fmt;
use std::str::FromStr;

/// Directories with fewer files are in a block or two on any file system: no layout pays there, and no advice names one.
pub const LAYOUT_FILES_MIN: u64 = 512;

/// A way to spread the entries of one directory over subdirectories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Layout {
    /// No subdirectories: the directory as it is.
    Flat,
    /// The three digits left of the last one: ten neighbours share a subdirectory.
    D345,
    /// The two digits before the last two, then the last two below: 10,000 subdirectories.
    D34D56,
    /// The last two digits, then the two before them below: 10,000 subdirectories.
    D56D34,
    /// The last three digits: neighbours are split.
    D456,
    /// Two hexadecimal digits of the name's hash, for names that are not numbers: 256 subdirectories.
    Hash2,
}

/// A text that names no layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no layout; the layouts are flat, 345, 34/56, 56/34, 456 and hash:2")]
pub struct LayoutError {
    /// The text.
    pub text: String,
}

/// Some digits of a number: `count` of them, the last of which has `after` digits to its right.
#[derive(Clone, Copy)]
struct Digits {
    after: usize,
    count: usize,
}

impl Layout {
    /// All of them, the plain one first.
    pub const ALL: [Self; 6] = [Self::Flat, Self::D345, Self::D34D56, Self::D56D34, Self::D456, Self::Hash2];

    /// Where names lie that are not all digits, in the layouts that go by digits.
    pub const OTHERS: &'static str = "aaa";

    /// As a user writes it: the digits of 123456 that it takes, or the hash's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::D345 => "345",
            Self::D34D56 => "34/56",
            Self::D56D34 => "56/34",
            Self::D456 => "456",
            Self::Hash2 => "hash:2",
        }
    }

    /// Levels of subdirectories above a number: 0, 1 or 2.
    pub fn levels(self) -> usize {
        if self == Self::Hash2 { 1 } else { self.steps().len() }
    }

    /// Subdirectories that hold numbers (in `hash:2`, any name), of the deepest level; 0 when there are none.
    pub fn leaves_max(self) -> u64 {
        match self.steps() {
            [] if self == Self::Hash2 => 256,
            [] => 0,
            steps => steps.iter().map(|step| 10u64.pow(step.count as u32)).product(),
        }
    }

    /// Puts the place of `name`, relative to the directory, behind what `out` holds: subdirectories and name.
    ///
    /// `name` is one component: neither empty nor with a slash, as directories give them.
    pub fn place(&self, name: &[u8], out: &mut Vec<u8>) {
        if self.subdirectory(name, out) {
            out.push(b'/');
        }
        out.extend_from_slice(name);
    }

    /// Puts the subdirectory of `name` behind what `out` holds, without a slash at its end; false when the name
    /// lies in the directory itself.
    pub fn subdirectory(&self, name: &[u8], out: &mut Vec<u8>) -> bool {
        if *self == Self::Hash2 {
            let hash = fnv1a(name);
            // All four bytes folded into one: the last alone depends little on the first characters.
            let byte = (hash ^ hash >> 8 ^ hash >> 16 ^ hash >> 24) as usize & 0xff;
            out.extend_from_slice(&[HEX[byte >> 4], HEX[byte & 15]]);
            return true;
        }
        let steps = self.steps();
        if steps.is_empty() {
            return false;
        }
        if name.is_empty() || !name.iter().all(u8::is_ascii_digit) {
            out.extend_from_slice(Self::OTHERS.as_bytes());
            return true;
        }
        for (level, step) in steps.iter().enumerate() {
            if level > 0 {
                out.push(b'/');
            }
            for place in (step.after..step.after + step.count).rev() {
                out.push(name.len().checked_sub(place + 1).map_or(b'0', |at| name[at]));
            }
        }
        true
    }

    /// All subdirectories that numbers can lie in (in `hash:2`, any name), in rising order, such as `000` to `999`;
    /// none when flat.
    pub fn leaves(&self) -> impl Iterator<Item = String> + use<> {
        let steps = self.steps();
        (0..self.leaves_max()).map(move |number| leaf(steps, number))
    }

    /// Whether names that are not all digits lie apart from the numbers, in [`Layout::OTHERS`].
    pub fn keeps_others_apart(self) -> bool {
        !self.steps().is_empty()
    }

    /// The same and everything above them, in the order in which they can be made; without `aaa`.
    pub fn directories(&self) -> impl Iterator<Item = String> + use<> {
        let tops = if self.levels() == 2 { 100 } else { 0 };
        (0..tops).map(|top| format!("{top:02}")).chain(self.leaves())
    }

    fn steps(self) -> &'static [Digits] {
        const LAST_TWO: Digits = Digits { after: 0, count: 2 };
        const TWO_BEFORE: Digits = Digits { after: 2, count: 2 };
        match self {
            Self::Flat | Self::Hash2 => &[],
            Self::D345 => &[Digits { after: 1, count: 3 }],
            Self::D34D56 => &[TWO_BEFORE, LAST_TWO],
            Self::D56D34 => &[LAST_TWO, TWO_BEFORE],
            Self::D456 => &[Digits { after: 0, count: 3 }],
        }
    }
}

/// The leaf of this number in rising order.
fn leaf(steps: &[Digits], number: u64) -> String {
    match steps {
        [] => format!("{number:02x}"),
        [one] => format!("{number:0width$}", width = one.count),
        _ => format!("{:02}/{:02}", number / 100, number % 100),
    }
}

/// The 32-bit FNV-1a hash: what lies on disk depends on it, so it can never change.
fn fnv1a(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

const HEX: &[u8; 16] = b"0123456789abcdef";

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        let named = Self::ALL.into_iter().find(|layout| layout.name() == text);
        named.ok_or_else(|| LayoutError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn placed(layout: Layout, name: &str) -> String {
        let mut out = Vec::new();
        layout.place(name.as_bytes(), &mut out);
        String::from_utf8(out).unwrap()
    }

    fn subdirectory(layout: Layout, name: &str) -> Option<String> {
        let mut out = Vec::new();
        layout.subdirectory(name.as_bytes(), &mut out).then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn article_123456_lies_where_the_paper_puts_it() {
        let places: Vec<String> = Layout::ALL.iter().map(|layout| placed(*layout, "123456")).collect();
        assert_eq!(places[..5], ["123456", "345/123456", "34/56/123456", "56/34/123456", "456/123456"]);
    }

    #[test]
    fn the_hash_is_the_published_one_and_places_on_disk_never_change() {
        // Test vectors of the FNV draft, appendix C.
        assert_eq!([fnv1a(b""), fnv1a(b"a"), fnv1a(b"foobar")], [0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968]);
        assert_eq!(placed(Layout::Hash2, "a"), "ed/a");
        assert_eq!(placed(Layout::Hash2, "foobar"), "b2/foobar");
        assert_eq!(placed(Layout::Hash2, "1763790000.M1P2.host:2,S"), "2e/1763790000.M1P2.host:2,S");
    }

    #[test]
    fn hashed_names_spread_over_all_256_subdirectories_evenly() {
        let mut counts = std::collections::HashMap::new();
        for number in 0..25_600u32 {
            *counts
                .entry(subdirectory(Layout::Hash2, &format!("mail.{number}.host")).unwrap())
                .or_insert(0) += 1;
        }
        assert!(counts.keys().all(|at| Layout::Hash2.leaves().any(|leaf| leaf == *at)), "{counts:?}");
        assert_eq!(counts.len(), 256);
        assert!(counts.values().all(|count| (50..200).contains(count)), "{counts:?}");
    }

    #[test]
    fn short_numbers_have_zeros_before_them() {
        assert_eq!(placed(Layout::D345, "7"), "000/7");
        assert_eq!(placed(Layout::D345, "944"), "094/944");
        assert_eq!(placed(Layout::D345, "2600"), "260/2600");
        assert_eq!(placed(Layout::D34D56, "7"), "00/07/7");
        assert_eq!(placed(Layout::D456, "42"), "042/42");
    }

    #[test]
    fn names_with_anything_but_digits_lie_in_aaa_unless_flat() {
        for name in ["foo", ".overview", "12a", "12 ", "-1", "+1", "\u{664}"] {
            assert_eq!(placed(Layout::D345, name), format!("aaa/{name}"));
            assert_eq!(placed(Layout::D56D34, name), format!("aaa/{name}"));
            assert_eq!(placed(Layout::Flat, name), name);
        }
    }

    #[test]
    fn a_place_goes_behind_what_is_there_already() {
        let mut out = b"control/cancel/".to_vec();
        Layout::D345.place(b"123456", &mut out);
        assert_eq!(out, b"control/cancel/345/123456");
    }

    #[test]
    fn layouts_are_read_back_from_their_names_and_nothing_else_is_one() {
        for layout in Layout::ALL {
            assert_eq!(layout.to_string().parse(), Ok(layout));
        }
        let wrong = "789".parse::<Layout>().unwrap_err();
        assert!(wrong.to_string().contains("`789` is no layout; the layouts are flat, 345"), "{wrong}");
    }

    #[test]
    fn directories_come_parents_first_and_end_where_the_leaves_do() {
        assert_eq!(Layout::Flat.directories().count(), 0);
        assert_eq!(Layout::D345.directories().collect::<Vec<_>>(), Layout::D345.leaves().collect::<Vec<_>>());
        let mut seen = BTreeSet::new();
        for directory in Layout::D34D56.directories() {
            if let Some((parent, _)) = directory.split_once('/') {
                assert!(seen.contains(parent), "{directory} before {parent}");
            }
            assert!(seen.insert(directory));
        }
        assert_eq!(seen.len(), 10_100);
    }

    proptest! {
        #[test]
        fn every_number_lies_in_exactly_one_of_the_listed_leaves(number: u64, which in 1..6usize) {
            let layout = Layout::ALL[which];
            let at = subdirectory(layout, &number.to_string()).unwrap();
            prop_assert_eq!(layout.leaves().filter(|leaf| *leaf == at).count(), 1, "{} of {}", at, number);
        }

        #[test]
        fn the_last_component_of_a_place_is_the_name(name in "[0-9]{1,12}|[a-z0-9.]{1,12}", which in 0..6usize) {
            let layout = Layout::ALL[which];
            let place = placed(layout, &name);
            prop_assert_eq!(place.rsplit('/').next().unwrap(), &name);
        }

        #[test]
        fn ten_neighbours_share_a_subdirectory_in_345_and_the_next_ten_another(tens in 0u64..1 << 40) {
            let of = |number: u64| subdirectory(Layout::D345, &number.to_string()).unwrap();
            let first = of(tens * 10);
            prop_assert!((1..10).all(|last| of(tens * 10 + last) == first));
            prop_assert_ne!(of(tens * 10 + 10), first);
        }

        #[test]
        fn a_run_of_numbers_fills_all_leaves_evenly(begin in 0u64..1 << 40, which in 1..5usize) {
            let layout = Layout::ALL[which];
            // 10,000 numbers in a row go once round in every layout.
            let mut counts = std::collections::HashMap::new();
            for number in begin..begin + 10_000 {
                *counts.entry(subdirectory(layout, &number.to_string()).unwrap()).or_insert(0u64) += 1;
            }
            prop_assert_eq!(counts.len() as u64, layout.leaves_max());
            prop_assert!(counts.values().all(|count| *count == 10_000 / layout.leaves_max()));
        }
    }
}
