//! External data representation: big-endian numbers and counted bytes, padded to four (RFC 4506).
//!
//! Always holds: [`XdrReader`] never looks beyond its slice and borrows what it returns from it.
//! Padding bytes are skipped unseen: RFC 4506 wants zeros, and nothing is gained by insisting.

/// Bytes that are not the message they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The message ends before its fields do.
    #[error("message too short: its fields go on beyond its end")]
    Short,
    /// A length exceeds what the protocol, or this end, allows.
    #[error("a length in the message exceeds its bound")]
    Long,
    /// A number stands where only some numbers mean something.
    #[error("a field of the message holds a value without meaning")]
    Value,
    /// Bytes are left when all fields were read.
    #[error("message too long: bytes follow its last field")]
    Excess,
}

/// Reads fields off the front of a message.
#[derive(Clone, Copy, Debug)]
pub struct XdrReader<'a> {
    rest: &'a [u8],
}

impl<'a> XdrReader<'a> {
    /// A reader of all of `message`.
    #[inline]
    pub fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// An unsigned number.
    ///
    /// # Errors
    /// `Short` at the end of the message, as for every method here.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, WireError> {
        self.fixed::<4>().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// An unsigned hyper.
    ///
    /// # Errors
    /// `Short`.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, WireError> {
        self.fixed::<8>().map(|bytes| u64::from_be_bytes(*bytes))
    }

    /// A truth value.
    ///
    /// # Errors
    /// `Short`, and `Value` for anything but 0 and 1.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, WireError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Value),
        }
    }

    /// `N` bytes; `N` is a multiple of four, as nothing is skipped behind them.
    ///
    /// # Errors
    /// `Short`.
    #[inline]
    pub fn fixed<const N: usize>(&mut self) -> Result<&'a [u8; N], WireError> {
        const { assert!(N.is_multiple_of(4), "fixed opaque without padding") };
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(WireError::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// `bytes_len` bytes and their padding.
    ///
    /// # Errors
    /// `Short`.
    #[inline]
    pub fn take(&mut self, bytes_len: usize) -> Result<&'a [u8], WireError> {
        let padded = bytes_len.checked_next_multiple_of(4).ok_or(WireError::Short)?;
        let (bytes, rest) = self.rest.split_at_checked(padded).ok_or(WireError::Short)?;
        self.rest = rest;
        Ok(&bytes[..bytes_len])
    }

    /// Counted bytes, `bytes_max` at most.
    ///
    /// # Errors
    /// `Short`, and `Long` when the count exceeds the bound.
    #[inline]
    pub fn opaque(&mut self, bytes_max: u32) -> Result<&'a [u8], WireError> {
        let bytes_len = self.u32()?;
        if bytes_len > bytes_max {
            return Err(WireError::Long);
        }
        self.take(bytes_len as usize)
    }

    /// What is still unread.
    #[inline]
    pub fn remaining(&self) -> &'a [u8] {
        self.rest
    }

    /// Checks that everything was read.
    ///
    /// # Errors
    /// `Excess`.
    #[inline]
    pub fn finish(self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Excess) }
    }
}

/// Appends a number.
#[inline]
pub fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// Appends a hyper.
#[inline]
pub fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_be_bytes());
}

/// Appends a truth value.
#[inline]
pub fn put_bool(out: &mut Vec<u8>, truth: bool) {
    put_u32(out, u32::from(truth));
}

/// Appends bytes of a length both ends know; the caller's length is a multiple of four.
#[inline]
pub fn put_fixed<const N: usize>(out: &mut Vec<u8>, bytes: &[u8; N]) {
    const { assert!(N.is_multiple_of(4), "fixed opaque without padding") };
    out.extend_from_slice(bytes);
}

/// Appends counted bytes and their padding.
#[inline]
pub fn put_opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    assert!(u32::try_from(bytes.len()).is_ok(), "an opaque of 4 GiB or more is asked for");
    put_u32(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[0; 3][..padding(bytes.len())]);
}

/// How many zeros follow that many bytes.
#[inline]
pub fn padding(bytes_len: usize) -> usize {
    bytes_len.wrapping_neg() & 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_bytes_come_back_and_their_padding_goes() {
        for len in 0..9_usize {
            let bytes: Vec<u8> = (1..=len as u8).collect();
            let mut out = Vec::new();
            put_opaque(&mut out, &bytes);
            put_u32(&mut out, 77);
            assert_eq!(out.len() % 4, 0);
            let mut reader = XdrReader::new(&out);
            assert_eq!(reader.opaque(8), Ok(&bytes[..]));
            assert_eq!(reader.u32(), Ok(77));
            assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn a_length_beyond_its_bound_or_its_message_is_an_error() {
        let mut reader = XdrReader::new(&[0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]);
        assert_eq!(reader.opaque(64), Err(WireError::Long));
        let mut reader = XdrReader::new(&[0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4]);
        assert_eq!(reader.opaque(u32::MAX), Err(WireError::Short));
        let mut reader = XdrReader::new(&[0, 0, 0, 1, 9, 0]);
        assert_eq!(reader.opaque(4), Err(WireError::Short), "padding is missing");
        assert_eq!(XdrReader::new(&[0, 0, 0, 2]).bool(), Err(WireError::Value));
        assert_eq!(XdrReader::new(&[0]).finish(), Err(WireError::Excess));
    }
}
