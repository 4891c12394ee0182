//! Lines as the original reads them: at most 254 bytes at a time, the rest of a longer one as a line of its own.
//!
//! Always holds: a line's last byte is never lost, with a newline behind it or not (the original loses it without).

use std::io::{self, BufRead, Read as _};

/// Bytes of the longest line, its newline counted.
const LINE_BYTES_MAX: u64 = 254;

/// The next line without its newline; none at the end of the input.
pub(crate) fn next_line<'a>(input: &mut dyn BufRead, line: &'a mut Vec<u8>) -> io::Result<Option<&'a [u8]>> {
    line.clear();
    if input.take(LINE_BYTES_MAX).read_until(b'\n', line)? == 0 {
        return Ok(None);
    }
    Ok(Some(line.strip_suffix(b"\n").unwrap_or(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(mut input: &[u8]) -> Vec<usize> {
        let mut buffer = Vec::new();
        std::iter::from_fn(|| next_line(&mut input, &mut buffer).unwrap().map(<[u8]>::len)).collect()
    }

    #[test]
    fn a_long_line_is_split_where_the_original_splits_it_and_keeps_every_byte() {
        assert_eq!(lines(&[[b'x'; 253].as_slice(), b"\nshow"].concat()), [253, 4]);
        assert_eq!(lines(&[[b'x'; 254].as_slice(), b"\nshow\n"].concat()), [254, 0, 4]);
        assert_eq!(lines(&[b'x'; 400]), [254, 146]);
        assert_eq!(lines(b""), [0; 0]);
    }
}
