//! Finds the end of a chunked body byte by byte, without storing any of it (RFC 9112 section 7.1).
//!
//! Always holds: it is strict where parsers differ. A chunk size has 1 to 15 hexadecimal digits, lines end in CRLF, and
//! extensions and the trailer are bounded.

/// Longest chunk-size line with its extension, and longest trailer, in bytes.
const LINE_BYTES_MAX: usize = 4096;

/// How far a body has been scanned.
#[derive(Debug, Default)]
pub struct ChunkScanner {
    state: ChunkState,
    size: u64,
    digits: usize,
    line_bytes: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Size,
    Extension,
    SizeEnd,
    Bytes,
    BytesReturn,
    BytesEnd,
    /// At the start of a trailer line, or of the empty line that ends the body.
    Line,
    InLine,
    LineEnd,
    LastEnd,
    Done,
}

/// The bytes are not a valid chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl ChunkScanner {
    /// Whether the last chunk and the trailer have passed.
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Scans bytes up to the end of the body; returns how many belong to it.
    ///
    /// # Errors
    /// When they are not a valid chunked body.
    pub fn scan(&mut self, bytes: &[u8]) -> Result<usize, Malformed> {
        let mut at = 0;
        while at < bytes.len() && self.state != ChunkState::Done {
            if self.state == ChunkState::Bytes {
                let taken = self.size.min((bytes.len() - at) as u64);
                self.size -= taken;
                at += taken as usize;
                if self.size == 0 {
                    self.state = ChunkState::BytesReturn;
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
        self.state = match (self.state, byte) {
            (ChunkState::Size, _) if byte.is_ascii_hexdigit() && self.digits < 15 => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                self.size = self.size << 4 | u64::from(digit);
                self.digits += 1;
                ChunkState::Size
            }
            (ChunkState::Size, b';' | b' ' | b'\t') if self.digits > 0 => ChunkState::Extension,
            (ChunkState::Size, b'\r') if self.digits > 0 => ChunkState::SizeEnd,
            (ChunkState::Extension, b'\r') => ChunkState::SizeEnd,
            (ChunkState::Extension, _) if text => ChunkState::Extension,
            (ChunkState::SizeEnd, b'\n') => {
                (self.digits, self.line_bytes) = (0, 0);
                if self.size == 0 { ChunkState::Line } else { ChunkState::Bytes }
            }
            (ChunkState::BytesReturn, b'\r') => ChunkState::BytesEnd,
            (ChunkState::BytesEnd, b'\n') => {
                self.line_bytes = 0;
                ChunkState::Size
            }
            (ChunkState::Line, b'\r') => ChunkState::LastEnd,
            // A continuation line could hide a field (RFC 9112 section 5.2).
            (ChunkState::Line, _) if text && byte != b' ' && byte != b'\t' => ChunkState::InLine,
            (ChunkState::InLine, b'\r') => ChunkState::LineEnd,
            (ChunkState::InLine, _) if text => ChunkState::InLine,
            (ChunkState::LineEnd, b'\n') => ChunkState::Line,
            (ChunkState::LastEnd, b'\n') => ChunkState::Done,
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
            let mut scanner = ChunkScanner::default();
            let taken: usize = body.chunks(size).map(|piece| scanner.scan(piece).expect("chunked")).sum();
            assert_eq!((taken, scanner.is_done()), (body.len(), true), "in pieces of {size}");
        }
        let mut scanner = ChunkScanner::default();
        assert_eq!(scanner.scan(b"0\r\n\r\nGET /"), Ok(5), "what follows is not taken");
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
            assert_eq!(ChunkScanner::default().scan(row), Err(Malformed), "{}", String::from_utf8_lossy(row));
        }
    }
}
