//! Where a chunked body ends, followed byte by byte without keeping any (RFC 9112 section 7.1).
//!
//! Always holds: strict where readers differ: a size is 1 to 15 hexadecimal digits, lines end in CRLF, an extension and
//! the trailer are bounded.

/// Longest line of a size with its extension, and longest trailer, in bytes.
const LINE_BYTES_MAX: usize = 4096;

/// How far a body has come.
#[derive(Debug, Default)]
pub struct Chunks {
    place: Place,
    size: u64,
    digits: usize,
    line_bytes: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Place {
    #[default]
    Size,
    Extension,
    SizeEnd,
    Bytes,
    BytesReturn,
    BytesEnd,
    /// At the beginning of a trailer line, or of the last, empty one.
    Line,
    InLine,
    LineEnd,
    LastEnd,
    Done,
}

/// Not a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Chunks {
    /// Whether the last chunk and the trailer have passed.
    pub fn is_done(&self) -> bool {
        self.place == Place::Done
    }

    /// Takes bytes up to the end of the body; gives how many those were.
    ///
    /// # Errors
    /// When it is no chunked body.
    pub fn follow(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < bytes.len() && self.place != Place::Done {
            if self.place == Place::Bytes {
                let taken = self.size.min((bytes.len() - at) as u64);
                self.size -= taken;
                at += taken as usize;
                if self.size == 0 {
                    self.place = Place::BytesReturn;
                }
                continue;
            }
            self.step(bytes[at])?;
            at += 1;
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8) -> Result<(), Malformed> {
        self.line_bytes += 1;
        if self.line_bytes > LINE_BYTES_MAX {
            return Err(Malformed);
        }
        let text = byte == b'\t' || (byte >= 0x20 && byte != 0x7f);
        self.place = match (self.place, byte) {
            (Place::Size, _) if byte.is_ascii_hexdigit() && self.digits < 15 => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                self.size = self.size << 4 | u64::from(digit);
                self.digits += 1;
                Place::Size
            }
            (Place::Size, b';' | b' ' | b'\t') if self.digits > 0 => Place::Extension,
            (Place::Size, b'\r') if self.digits > 0 => Place::SizeEnd,
            (Place::Extension, b'\r') => Place::SizeEnd,
            (Place::Extension, _) if text => Place::Extension,
            (Place::SizeEnd, b'\n') => {
                (self.digits, self.line_bytes) = (0, 0);
                if self.size == 0 { Place::Line } else { Place::Bytes }
            }
            (Place::BytesReturn, b'\r') => Place::BytesEnd,
            (Place::BytesEnd, b'\n') => {
                self.line_bytes = 0;
                Place::Size
            }
            (Place::Line, b'\r') => Place::LastEnd,
            // A line that is continued could hide one (RFC 9112 section 5.2).
            (Place::Line, _) if text && byte != b' ' && byte != b'\t' => Place::InLine,
            (Place::InLine, b'\r') => Place::LineEnd,
            (Place::InLine, _) if text => Place::InLine,
            (Place::LineEnd, b'\n') => Place::Line,
            (Place::LastEnd, b'\n') => Place::Done,
            _ => return Err(Malformed),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_ends_where_it_ends_however_it_is_cut() {
        let body = b"4\r\nwiki\r\n00A ; x=\"y\"\r\n0123456789\r\n0\r\nA: b\r\nC: d\r\n\r\n";
        for size in 1..body.len() {
            let mut chunks = Chunks::default();
            let taken: usize = body.chunks(size).map(|piece| chunks.follow(piece).expect("chunked")).sum();
            assert_eq!((taken, chunks.is_done()), (body.len(), true), "in pieces of {size}");
        }
        let mut chunks = Chunks::default();
        assert_eq!(chunks.follow(b"0\r\n\r\nGET /"), Ok(5), "what follows is not taken");
    }

    #[test]
    fn what_readers_read_differently_is_refused() {
        let long = [b"1;".to_vec(), vec![b'x'; 5000]].concat();
        let rows: [&[u8]; 9] = [
            b"\r\n",
            b"g\r\n",
            b"4\nwiki",
            b"4\r\nwikiX",
            b"4\r\nwiki\n",
            b"1000000000000000\r\n",
            b"-1\r\n",
            b"0\r\n A: b\r\n\r\n",
            &long,
        ];
        for row in rows {
            assert_eq!(Chunks::default().follow(row), Err(Malformed), "{}", String::from_utf8_lossy(row));
        }
    }
}
