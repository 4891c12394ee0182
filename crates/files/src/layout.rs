//! Where a layout keeps a name: huge directories spread over many small ones, by the digits of the name.
//!
//! | layout | 123456 is kept as | subdirectories | neighbours |
//! |---|---|---|---|
//! | `flat` | `123456` | none | all together |
//! | `345` | `345/123456` | 1,000 | ten together |
//! | `34/56` | `34/56/123456` | 100 of 100 | each elsewhere |
//! | `56/34` | `56/34/123456` | 100 of 100 | each elsewhere |
//! | `456` | `456/123456` | 1,000 | each elsewhere |
//!
//! A layout is called after the digits of 123456 that it takes; digits count from the right, and a short number
//! has zeros before it: in `345`, 7 lies in `000`. A name that is not all digits lies in `aaa`.
//!
//! Always holds: one name has one place, and the place tells the name (its last component).
//! Not here: any input or output, conversion of directories that are there.
//! Source: Zadok and Badulescu, "Usenetfs: A Stackable File System for Large Article Directories",
//! CUCS-022-98, sections 2 and 4.

use std::fmt;
use std::str::FromStr;

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
}

/// A text that names no layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no layout; the layouts are flat, 345, 34/56, 56/34 and 456")]
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
    pub const ALL: [Self; 5] = [Self::Flat, Self::D345, Self::D34D56, Self::D56D34, Self::D456];

    /// Where names lie that are not all digits, in every layout but the flat one.
    pub const OTHERS: &'static str = "aaa";

    /// As a user writes it: the digits of 123456 that it takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::D345 => "345",
            Self::D34D56 => "34/56",
            Self::D56D34 => "56/34",
            Self::D456 => "456",
        }
    }

    /// Levels of subdirectories above a number: 0, 1 or 2.
    pub fn levels(self) -> usize {
        self.steps().len()
    }

    /// Subdirectories that hold numbers, of the deepest level; 0 when there are none.
    pub fn leaves_max(self) -> u64 {
        match self.steps() {
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

    /// All subdirectories that numbers can lie in, in rising order, such as `000` to `999`; none when flat.
    pub fn leaves(&self) -> impl Iterator<Item = String> + use<> {
        let steps = self.steps();
        (0..self.leaves_max()).map(move |number| leaf(steps, number))
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
            Self::Flat => &[],
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
        [one] => format!("{number:0width$}", width = one.count),
        _ => format!("{:02}/{:02}", number / 100, number % 100),
    }
}

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
        assert_eq!(places, ["123456", "345/123456", "34/56/123456", "56/34/123456", "456/123456"]);
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
        fn every_number_lies_in_exactly_one_of_the_listed_leaves(number: u64, which in 1..5usize) {
            let layout = Layout::ALL[which];
            let at = subdirectory(layout, &number.to_string()).unwrap();
            prop_assert_eq!(layout.leaves().filter(|leaf| *leaf == at).count(), 1, "{} of {}", at, number);
        }

        #[test]
        fn the_last_component_of_a_place_is_the_name(name in "[0-9]{1,12}|[a-z0-9.]{1,12}", which in 0..5usize) {
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
