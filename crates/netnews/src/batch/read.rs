//! Reads batches into one buffer and lends articles from it.

use std::io::{Chain, Cursor, Read};

use flate2::read::MultiGzDecoder;

use super::BatchError;
use crate::article::Broken;

/// Default limit for the size of an article, bytes.
pub const ARTICLE_BYTES_MAX: usize = 16 << 20;
/// First size of a read, bytes. The buffer grows with the bytes received, never with a claimed count.
const CHUNK_BYTES: usize = 256 << 10;
/// `#! rnews ` and the longest count.
const LINE_BYTES_MAX: usize = 64;
const MARK: &[u8] = b"#! rnews ";
const GZIP: &[u8] = &[0x1f, 0x8b];
const COMPRESS: &[u8] = &[0x1f, 0x9d];

/// Articles of a batch, one at a time.
#[derive(Debug)]
pub struct BatchReader<R: Read> {
    input: Input<R>,
    /// Bytes `from..to` are read and not yet given out.
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    at_end: bool,
    /// Offset of `from` in the batch.
    offset_bytes: u64,
    /// Length of the article or damage lent last, which the next call consumes.
    lent: usize,
    state: State,
    article_bytes_max: usize,
    damaged: std::ops::Range<usize>,
    damaged_bytes: u64,
    resyncs: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    Within,
    Over,
}

#[derive(Debug)]
enum Input<R: Read> {
    Plain(R),
    Gzip(Box<MultiGzDecoder<Chain<Cursor<Vec<u8>>, R>>>),
    Gone,
}

impl<R: Read> BatchReader<R> {
    /// Articles of at most [`ARTICLE_BYTES_MAX`].
    pub fn new(input: R) -> Self {
        Self::with_limit(input, ARTICLE_BYTES_MAX)
    }

    /// Articles of at most `article_bytes_max`; larger ones are damage.
    pub fn with_limit(input: R, article_bytes_max: usize) -> Self {
        Self {
            input: Input::Plain(input),
            buffer: Vec::new(),
            from: 0,
            to: 0,
            at_end: false,
            offset_bytes: 0,
            lent: 0,
            state: State::Start,
            article_bytes_max,
            damaged: 0..0,
            damaged_bytes: 0,
            resyncs: 0,
        }
    }

    /// Starts reading another input with the same buffer.
    pub fn reuse<S: Read>(self, input: S) -> BatchReader<S> {
        BatchReader { buffer: self.buffer, ..BatchReader::with_limit(input, self.article_bytes_max) }
    }

    /// The next article, or none at the end.
    ///
    /// # Errors
    /// [`BatchError::Damaged`], after which the next call continues behind the damage; all others end the batch.
    #[expect(clippy::should_implement_trait, reason = "lends from the buffer, which Iterator cannot")]
    pub fn next(&mut self) -> Result<Option<&[u8]>, BatchError> {
        match self.advance() {
            Ok(Some(range)) => Ok(Some(&self.buffer[range])),
            Ok(None) => Ok(None),
            Err(error) => {
                if !matches!(error, BatchError::Damaged { .. }) {
                    self.state = State::Over;
                }
                Err(error)
            }
        }
    }

    /// The bytes that the last [`BatchError::Damaged`] reported, at most the size limit of an article.
    pub fn damaged(&self) -> &[u8] {
        &self.buffer[self.damaged.clone()]
    }

    /// Bytes skipped in all, count lines included.
    pub fn damaged_bytes(&self) -> u64 {
        self.damaged_bytes
    }

    /// How often a `#! rnews` line had to be looked for.
    pub fn resyncs(&self) -> u64 {
        self.resyncs
    }

    fn advance(&mut self) -> Result<Option<std::ops::Range<usize>>, BatchError> {
        let lent = std::mem::take(&mut self.lent);
        self.consume(lent);
        self.damaged = 0..0;
        if self.state == State::Start && self.begin()? {
            return self.whole_input();
        }
        if self.state == State::Over {
            return Ok(None);
        }
        self.want(LINE_BYTES_MAX)?;
        let there = &self.buffer[self.from..self.to];
        if there.is_empty() {
            self.state = State::Over;
            return Ok(None);
        }
        let Some((line_bytes, count)) = count_line(there) else { return self.damage(0, Broken::BadCount) };
        if count > self.article_bytes_max as u64 {
            return self.damage(line_bytes, Broken::TooLarge);
        }
        let end = line_bytes + count as usize;
        // Read two bytes more: a count that does not lead to the next `#!` is wrong, and so would be the article.
        self.want(end + 2)?;
        let there = &self.buffer[self.from..self.to];
        match there.get(end..) {
            None => self.damage(line_bytes, Broken::Truncated),
            Some(rest) if rest.is_empty() || rest.starts_with(b"#!") => {
                self.lent = end;
                Ok(Some(self.from + line_bytes..self.from + end))
            }
            Some(_) => self.damage(line_bytes, Broken::BadCount),
        }
    }

    /// Sets up decompression if needed; returns whether the input is a single bare article.
    fn begin(&mut self) -> Result<bool, BatchError> {
        self.state = State::Within;
        self.want(LINE_BYTES_MAX)?;
        let there = &self.buffer[self.from..self.to];
        if there.starts_with(GZIP) {
            self.unpack();
            self.want(LINE_BYTES_MAX)?;
        } else if there.starts_with(COMPRESS) {
            return Err(BatchError::Compressed);
        } else if let Some(line) = ["#! cunbatch\n", "#! gunbatch\n", "#! zunbatch\n"]
            .iter()
            .find(|line| there.starts_with(line.as_bytes()))
        {
            if !there[line.len()..].starts_with(GZIP) {
                return Err(BatchError::Compressed);
            }
            self.consume(line.len());
            self.unpack();
            self.want(LINE_BYTES_MAX)?;
        }
        let there = &self.buffer[self.from..self.to];
        Ok(!there.is_empty() && !there.starts_with(b"#!"))
    }

    fn unpack(&mut self) {
        let read = Cursor::new(self.buffer[self.from..self.to].to_vec());
        if let Input::Plain(input) = std::mem::replace(&mut self.input, Input::Gone) {
            self.input = Input::Gzip(Box::new(MultiGzDecoder::new(read.chain(input))));
        }
        (self.from, self.to, self.at_end, self.offset_bytes) = (0, 0, false, 0);
    }

    fn whole_input(&mut self) -> Result<Option<std::ops::Range<usize>>, BatchError> {
        self.want(self.article_bytes_max.saturating_add(1))?;
        if self.to - self.from > self.article_bytes_max {
            return self.damage(0, Broken::TooLarge);
        }
        self.lent = self.to - self.from;
        Ok(Some(self.from..self.to))
    }

    /// Skips to the next count line after the first `tried` bytes, and keeps as much of the damage as fits.
    fn damage<T>(&mut self, tried: usize, why: Broken) -> Result<T, BatchError> {
        let offset_bytes = self.offset_bytes;
        let mut skipped = 0_u64;
        // Looked through up to here; a line may begin at the very place where a wrong line ended.
        let mut seen = tried;
        let end = loop {
            if let Some(at) = count_line_within(&self.buffer[self.from..self.to], seen) {
                break at;
            }
            let there = self.to - self.from;
            if self.at_end {
                break there;
            }
            // The last bytes may be the beginning of a count line.
            seen = there.saturating_sub(LINE_BYTES_MAX).max(tried.min(there));
            if there > self.article_bytes_max {
                let gone = there - LINE_BYTES_MAX.min(there);
                self.consume(gone);
                skipped += gone as u64;
                seen = 0;
                self.want(self.to - self.from + CHUNK_BYTES)?;
            } else {
                self.want(there + CHUNK_BYTES)?;
            }
        };
        self.lent = end;
        self.damaged = self.from..self.from + end.min(self.article_bytes_max);
        let bytes = skipped + end as u64;
        self.damaged_bytes += bytes;
        self.resyncs += 1;
        Err(BatchError::Damaged { offset_bytes, bytes, why })
    }

    fn consume(&mut self, bytes: usize) {
        self.from += bytes;
        self.offset_bytes += bytes as u64;
    }

    /// Fills the buffer with at least `bytes`, or all that remain.
    fn want(&mut self, bytes: usize) -> Result<(), BatchError> {
        while self.to - self.from < bytes && !self.at_end {
            if self.to == self.buffer.len() {
                if self.from > 0 {
                    self.buffer.copy_within(self.from..self.to, 0);
                    (self.from, self.to) = (0, self.to - self.from);
                } else {
                    let grown = (self.buffer.len() * 2).max(CHUNK_BYTES);
                    self.buffer.resize(grown, 0);
                }
            }
            let free = &mut self.buffer[self.to..];
            let read = match &mut self.input {
                Input::Plain(input) => input.read(free),
                Input::Gzip(input) => input.read(free),
                Input::Gone => Ok(0),
            };
            match read {
                Ok(0) => self.at_end = true,
                Ok(read) => self.to += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let offset_bytes = self.offset_bytes + (self.to - self.from) as u64;
                    return Err(BatchError::Io { offset_bytes, source });
                }
            }
        }
        Ok(())
    }
}

/// Length of the count line at the front, and its count.
fn count_line(bytes: &[u8]) -> Option<(usize, u64)> {
    let rest = bytes.strip_prefix(MARK)?;
    let end = rest.iter().take(LINE_BYTES_MAX - MARK.len()).position(|byte| *byte == b'\n')?;
    let digits = rest[..end].trim_ascii();
    if digits.is_empty() || digits.len() > 15 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let count = digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Some((MARK.len() + end + 1, count))
}

/// Where the first count line begins at or after `from`, at the beginning of a line.
fn count_line_within(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    // A count line that was tried and found wrong begins at 0 and must not be found again.
    if at == 0 {
        at = 1;
    }
    while let Some(found) = bytes.get(at..)?.iter().position(|byte| *byte == b'#') {
        let place = at + found;
        if bytes[place - 1] == b'\n' && count_line(&bytes[place..]).is_some() {
            return Some(place);
        }
        at = place + 1;
    }
    None
}
