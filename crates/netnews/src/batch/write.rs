//! Writing batches.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Writes articles into a batch; [`BatchWriter::finish`] ends it.
#[derive(Debug)]
pub struct BatchWriter<W: Write> {
    sink: Sink<W>,
    articles: u64,
    bytes: u64,
}

#[derive(Debug)]
enum Sink<W: Write> {
    Plain(W),
    Gzip(Box<GzEncoder<W>>),
}

impl<W: Write> BatchWriter<W> {
    /// A plain batch.
    pub fn new(sink: W) -> Self {
        Self { sink: Sink::Plain(sink), articles: 0, bytes: 0 }
    }

    /// A batch packed by gzip, fast rather than small.
    pub fn gzip(sink: W) -> Self {
        Self { sink: Sink::Gzip(Box::new(GzEncoder::new(sink, Compression::fast()))), articles: 0, bytes: 0 }
    }

    /// Adds an article.
    ///
    /// # Errors
    /// An error of the sink; the batch is then unusable.
    pub fn write(&mut self, article: &[u8]) -> io::Result<()> {
        self.write_parts(&[article])
    }

    /// Adds an article given in pieces.
    ///
    /// # Errors
    /// An error of the sink; the batch is then unusable.
    pub fn write_parts(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let sink: &mut dyn Write = match &mut self.sink {
            Sink::Plain(sink) => sink,
            Sink::Gzip(sink) => sink,
        };
        writeln!(sink, "#! rnews {bytes}")?;
        for part in parts {
            sink.write_all(part)?;
        }
        self.articles += 1;
        self.bytes += bytes as u64;
        Ok(())
    }

    /// Articles so far.
    pub fn articles(&self) -> u64 {
        self.articles
    }

    /// Bytes of articles so far, without count lines and not packed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the batch and returns the sink.
    ///
    /// # Errors
    /// An error of the sink.
    pub fn finish(self) -> io::Result<W> {
        let mut sink = match self.sink {
            Sink::Plain(sink) => sink,
            Sink::Gzip(sink) => sink.finish()?,
        };
        sink.flush()?;
        Ok(sink)
    }
}
