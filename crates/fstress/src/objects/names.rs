//! Names made from numbers, without allocation: `f0000012345`, `d0000000007`, `s0000000003`.

use std::fmt;

/// Name of a file, directory or symbolic link in its directory: a letter for the kind and ten digits. Fixed
/// width, so that a request has the same length whichever object it names.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ObjectName([u8; ObjectName::LEN]);

impl ObjectName {
    /// Length of every name, bytes.
    pub const LEN: usize = 11;

    /// Name of the file of this number.
    pub fn file(number: u32) -> Self {
        Self::made(b'f', number)
    }

    /// Name of the directory of this number.
    pub fn directory(number: u32) -> Self {
        Self::made(b'd', number)
    }

    /// Name of the symbolic link of this number.
    pub fn symlink(number: u32) -> Self {
        Self::made(b's', number)
    }

    /// Name of something made beside the set: a second name of a file, a special file.
    pub fn extra(number: u32) -> Self {
        Self::made(b'x', number)
    }

    #[inline]
    fn made(kind: u8, mut number: u32) -> Self {
        let mut name = [kind; Self::LEN];
        for digit in name[1..].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        Self(name)
    }

    /// The bytes on the wire.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a letter and digits")
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Who makes a name: the builder always makes the same ones, whatever operations made in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maker {
    /// The file set.
    #[default]
    Builder,
    /// Operations of a run.
    Operations,
}

/// Numbers from here on are in names that operations made.
const OPERATIONS_FROM: u32 = 1 << 31;

/// The numbers of names of one kind, those of the file set apart from those that operations make.
// Two billion of these last for 35 minutes of a million creations a second; after that old ones may repeat, of files long
// removed.
#[derive(Debug, Default)]
pub(super) struct NameNumbers {
    maker: Maker,
    builder: u32,
    operations: u32,
}

impl NameNumbers {
    pub fn of(&mut self, maker: Maker) {
        self.maker = maker;
    }

    #[inline]
    pub fn next(&mut self) -> u32 {
        let (next, from) = match self.maker {
            Maker::Builder => (&mut self.builder, 0),
            Maker::Operations => (&mut self.operations, OPERATIONS_FROM),
        };
        let number = from | (*next % OPERATIONS_FROM);
        *next = next.wrapping_add(1);
        number
    }
}

impl ObjectName {
    /// Whether operations of a run made this name, and not the builder of a file set or anybody else.
    pub fn is_of_operations(name: &[u8]) -> bool {
        let [kind @ (b'f' | b'd' | b's' | b'x'), digits @ ..] = name else { return false };
        let number = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == Self::LEN - 1);
        let number = number.and_then(|digits| digits.parse::<u32>().ok());
        number.is_some_and(|number| *kind == b'x' || number >= OPERATIONS_FROM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_operations_make_is_told_from_the_set_by_its_name() {
        let mut numbers = NameNumbers::default();
        assert_eq!((numbers.next(), numbers.next()), (0, 1));
        numbers.of(Maker::Operations);
        let made = ObjectName::file(numbers.next());
        assert_eq!(made.as_str(), "f2147483648");
        assert!(ObjectName::is_of_operations(made.as_bytes()));
        assert!(ObjectName::is_of_operations(ObjectName::extra(3).as_bytes()));
        numbers.of(Maker::Builder);
        assert_eq!(numbers.next(), 2, "whatever operations made");
        for other in
            ["f0000000002", "crumb-set", "f9999999999", "g4294967295", "f21474836480", "f214748364x", ""]
        {
            assert!(!ObjectName::is_of_operations(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn the_largest_number_still_fits_the_name() {
        assert_eq!(ObjectName::file(12_345).as_str(), "f0000012345");
        assert_eq!(ObjectName::directory(u32::MAX).as_str(), "d4294967295");
        assert_eq!(ObjectName::symlink(0).as_bytes(), b"s0000000000");
    }
}
