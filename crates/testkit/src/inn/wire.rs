//! Articles as a streaming peer sends them, made beforehand, so that the sender is not the limit.
//!
//! ```text
//! TAKETHIS <id> CRLF | lines with CRLF, a dot more where one begins with a dot | . CRLF       reply: 239 or 439
//! ```
//!
//! Source: RFC 4644; RFC 3977, section 3.1.1.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// The commands.
#[derive(Clone, Debug, Default)]
pub struct Wire {
    bytes: Vec<u8>,
    articles: u64,
}

/// What became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Stored (239).
    pub stored: u64,
    /// Refused (439).
    pub refused: u64,
    /// From the first byte sent to the last reply.
    pub wall: Duration,
}

impl Wire {
    /// Adds an article with LF line ends.
    pub fn push(&mut self, id: &[u8], article: &[u8]) {
        self.bytes.extend_from_slice(b"TAKETHIS ");
        self.bytes.extend_from_slice(id);
        self.bytes.extend_from_slice(b"\r\n");
        for line in article.strip_suffix(b"\n").unwrap_or(article).split(|byte| *byte == b'\n') {
            if line.starts_with(b".") {
                self.bytes.push(b'.');
            }
            self.bytes.extend_from_slice(line);
            self.bytes.extend_from_slice(b"\r\n");
        }
        self.bytes.extend_from_slice(b".\r\n");
        self.articles += 1;
    }

    /// How many there are.
    pub fn articles(&self) -> u64 {
        self.articles
    }

    pub(super) fn send_to(&self, port: u16) -> io::Result<Taken> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let mut replies = BufReader::with_capacity(64 << 10, stream.try_clone()?);
        let mut line = Vec::new();
        expected(&mut replies, &mut line, b"200")?;
        (&stream).write_all(b"MODE STREAM\r\n")?;
        expected(&mut replies, &mut line, b"203")?;
        let begun = Instant::now();
        thread::scope(|scope| {
            let sender = scope.spawn(|| (&stream).write_all(&self.bytes));
            let mut taken = Taken::default();
            let mut read_all = || -> io::Result<()> {
                for _ in 0..self.articles {
                    match code(&mut replies, &mut line)? {
                        b"239" => taken.stored += 1,
                        b"439" => taken.refused += 1,
                        _ => return Err(unexpected(&line)),
                    }
                }
                Ok(())
            };
            let read = read_all();
            taken.wall = begun.elapsed();
            if read.is_err() {
                // The sender may wait for room that will not come.
                let _gone_already = stream.shutdown(Shutdown::Both);
            }
            let sent = sender.join().expect("the sender does not panic");
            read.and(sent).map(|()| taken)
        })
    }
}

fn expected(replies: &mut impl BufRead, line: &mut Vec<u8>, wanted: &[u8]) -> io::Result<()> {
    if code(replies, line)? == wanted { Ok(()) } else { Err(unexpected(line)) }
}

fn code<'a>(replies: &mut impl BufRead, line: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
    line.clear();
    replies.read_until(b'\n', line)?;
    Ok(line.get(..3).unwrap_or_default())
}

fn unexpected(line: &[u8]) -> io::Error {
    io::Error::other(format!("innd answered {:?}", line.trim_ascii_end().escape_ascii().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_get_their_ends_and_a_leading_dot_another() {
        let mut wire = Wire::default();
        wire.push(b"<a@b>", b"Path: x\n\n.dot\nend\n");
        wire.push(b"<c@d>", b"Path: y\n\nno end");
        let expected = "TAKETHIS <a@b>\r\nPath: x\r\n\r\n..dot\r\nend\r\n.\r\n\
                        TAKETHIS <c@d>\r\nPath: y\r\n\r\nno end\r\n.\r\n";
        assert_eq!((wire.bytes.as_slice(), wire.articles()), (expected.as_bytes(), 2));
    }
}
