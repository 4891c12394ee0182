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

    /// As it goes on the wire.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_still_fits_the_name() {
        assert_eq!(ObjectName::file(12_345).as_str(), "f0000012345");
        assert_eq!(ObjectName::directory(u32::MAX).as_str(), "d4294967295");
        assert_eq!(ObjectName::symlink(0).as_bytes(), b"s0000000000");
    }
}
