//! Replies on their way out, gathered so that one write sends many. Runs of zeros (READ of the null
//! responder) are noted and not copied; they go from a static buffer straight to the socket.

use std::io::{self, IoSlice, Write};

use crate::wire::record::{self, MARK_BYTES};

/// The longest run of zeros: the largest READ.
pub(super) const ZEROS_MAX: usize = 1 << 20;
static ZEROS: [u8; ZEROS_MAX] = [0; ZEROS_MAX];

/// More than this is sent before the next call is looked at: bounds memory.
const UNSENT_BYTES_MAX: usize = 256 * 1024;

/// Slices a write takes; on the stack.
const SLICES: usize = 64;

/// Encoded replies, with record marks when they go over a stream.
pub(super) struct Replies {
    pub bytes: Vec<u8>,
    /// Zeros that belong before `bytes[at]`.
    runs: Vec<Run>,
    run_bytes: usize,
    stream: bool,
}

#[derive(Clone, Copy)]
struct Run {
    at: usize,
    len: usize,
}

/// Where a reply began.
pub(super) struct Begun {
    start: usize,
    run_bytes: usize,
}

impl Replies {
    pub(super) fn for_stream() -> Self {
        Self { bytes: Vec::with_capacity(64 * 1024), runs: Vec::new(), run_bytes: 0, stream: true }
    }

    pub(super) fn for_datagrams() -> Self {
        Self { stream: false, ..Self::for_stream() }
    }

    pub(super) fn stream(&self) -> bool {
        self.stream
    }

    #[inline]
    pub(super) fn begin(&mut self) -> Begun {
        if self.stream {
            record::begin(&mut self.bytes);
        }
        Begun { start: self.bytes.len(), run_bytes: self.run_bytes }
    }

    #[inline]
    pub(super) fn end(&mut self, begun: &Begun) {
        if self.stream {
            let len = self.bytes.len() - begun.start + self.run_bytes - begun.run_bytes;
            let mark = record::mark(len).to_be_bytes();
            self.bytes[begun.start - MARK_BYTES..begun.start].copy_from_slice(&mark);
        }
    }

    /// What was encoded since; without the zeros.
    pub(super) fn since(&self, begun: &Begun) -> &[u8] {
        &self.bytes[begun.start..]
    }

    /// Appends zeros, at most [`ZEROS_MAX`].
    #[inline]
    pub(super) fn put_zeros(&mut self, len: usize) {
        if self.stream && len > 256 {
            self.runs.push(Run { at: self.bytes.len(), len });
            self.run_bytes += len;
        } else {
            self.bytes.extend_from_slice(&ZEROS[..len]);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() + self.run_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() > UNSENT_BYTES_MAX
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
        self.run_bytes = 0;
    }

    /// Sends everything.
    pub(super) fn send(&mut self, stream: &mut impl Write) -> io::Result<()> {
        if self.runs.is_empty() {
            stream.write_all(&self.bytes)?;
        } else {
            self.send_gathered(stream)?;
        }
        self.clear();
        Ok(())
    }

    fn send_gathered(&self, stream: &mut impl Write) -> io::Result<()> {
        let mut from = 0;
        for runs in self.runs.chunks(SLICES / 2 - 1) {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut used = 0;
            for run in runs {
                slices[used] = IoSlice::new(&self.bytes[from..run.at]);
                slices[used + 1] = IoSlice::new(&ZEROS[..run.len]);
                used += 2;
                from = run.at;
            }
            // What follows the last run; with more chunks to come it stops before their first.
            if runs.as_ptr_range().end == self.runs.as_ptr_range().end {
                slices[used] = IoSlice::new(&self.bytes[from..]);
                used += 1;
            }
            write_all_gathered(stream, &mut slices[..used])?;
        }
        Ok(())
    }
}

fn write_all_gathered(stream: &mut impl Write, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    // Drops empty slices at the front, so that an empty rest ends the loop.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match stream.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a few bytes at a time.
    struct Sip(Vec<u8>);

    impl Write for Sip {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let len = bytes.len().min(700);
            self.0.extend_from_slice(&bytes[..len]);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn runs_of_zeros_arrive_in_their_places_however_little_a_write_takes() {
        let mut replies = Replies::for_stream();
        let mut expected = Vec::new();
        for number in 0..100_u32 {
            let zeros = if number % 3 == 0 { 0 } else { 500 + number as usize };
            let begun = replies.begin();
            replies.bytes.extend_from_slice(&number.to_be_bytes());
            replies.put_zeros(zeros);
            replies.end(&begun);
            expected.extend_from_slice(&(0x8000_0000 + 4 + zeros as u32).to_be_bytes());
            expected.extend_from_slice(&number.to_be_bytes());
            expected.resize(expected.len() + zeros, 0);
        }
        let mut sip = Sip(Vec::new());
        assert_eq!(replies.len(), expected.len());
        replies.send(&mut sip).unwrap();
        assert!(sip.0 == expected, "{} bytes of {}", sip.0.len(), expected.len());
        assert!(replies.is_empty());
    }
}
