//! Numbers and byte strings of records.

/// Takes fields from bytes that may end anywhere.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes(2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// A name: its length in a byte, then its bytes.
    pub(crate) fn name(&mut self) -> Option<Box<[u8]>> {
        let length = self.u8()?;
        let name = self.bytes(length.into())?;
        (!name.is_empty()).then(|| name.into())
    }
}

pub(crate) fn put_u16(into: &mut Vec<u8>, number: u16) {
    into.extend_from_slice(&number.to_le_bytes());
}

pub(crate) fn put_u32(into: &mut Vec<u8>, number: u32) {
    into.extend_from_slice(&number.to_le_bytes());
}

pub(crate) fn put_u64(into: &mut Vec<u8>, number: u64) {
    into.extend_from_slice(&number.to_le_bytes());
}

/// Seven bits a byte, the lowest first; the highest bit of a byte says that more follow.
pub(crate) fn put_varint(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

pub(crate) fn put_name(into: &mut Vec<u8>, name: &[u8]) {
    into.push(u8::try_from(name.len()).expect("names are at most 255 bytes"));
    into.extend_from_slice(name);
}
