//! Writes outgoing rnews batches from a batch file: reads every article named in it, a new batch when one is full.
//!
//! Blank lines, lines that begin with `#` and files that are gone are skipped and counted, as batcher(8) does.
//!
//! Not here: the form of batches (see `batch`), when it runs (see `passes`).
//! Source: batcher(8) of INN; spec `netnews.md`, formats.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use files::Status;

use super::history::text;
use super::unbatch::Spool;
use super::whole::{ARTICLE_FILE_BYTES_MAX, path_of, read_whole};
use crate::NetnewsError;
use crate::batch::BatchWriter;
use crate::spool::results::counts::counts;
use crate::spool::unbatch::outgoing;

/// Where outgoing batches go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BatchSink {
    /// Nowhere: reading the spool is what is measured.
    #[default]
    Discard,
    /// Files `PASS-NUMBER.rnews` in this directory, made when missing. Outside of the storage under test.
    Folder(PathBuf),
}

counts! {
    /// What a pass's batching did.
    pub struct BatchCounts {
        /// Articles written.
        pub articles: u64,
        /// Their bytes.
        pub bytes: u64,
        /// Batches written.
        pub batches: u64,
        /// Named and gone.
        pub missing: u64,
        /// Blank lines, comments, and lines that are no path in the spool.
        pub skipped: u64,
    }
}

/// Writes the batches of the articles that arrived in `named_in`; a batch ends when it has `batch_bytes` or more, at
/// the end only when that is 0. `go_on` is asked after each article, with how many there were.
pub(crate) fn batch(
    spool: &Spool,
    named_in: u32,
    sink: &BatchSink,
    batch_bytes: u64,
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<BatchCounts, NetnewsError> {
    let mut counts = BatchCounts::default();
    let mut article = Vec::new();
    let mut group_name = Vec::new();
    let mut writer: Option<(BatchWriter<Box<dyn Write>>, PathBuf)> = None;
    let mut stopped = false;
    text::scan::<NetnewsError>(&*spool.lib, &outgoing::file_of(named_in), |_, line| {
        if stopped {
            return Ok(());
        }
        let Some(path) = path_in(line) else {
            counts.skipped += 1;
            return Ok(());
        };
        let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        group_name.clear();
        group_name.extend(path[..slash].iter().map(|&byte| if byte == b'/' { b'.' } else { byte }));
        let Some(group) = spool.groups.find(&group_name) else {
            counts.skipped += 1;
            return Ok(());
        };
        let root = spool.places.root(spool.groups.get(group).place);
        article.clear();
        match read_whole(root, path_of(path), &mut article, ARTICLE_FILE_BYTES_MAX) {
            Err(error) if error.status() == Some(Status::NOENT) => counts.missing += 1,
            Err(error) => return Err(error.into()),
            Ok(_) => {
                if writer.is_none() {
                    counts.batches += 1;
                    writer = Some(open_sink(sink, named_in, counts.batches)?);
                }
                let (batch, to) = writer.as_mut().expect("opened above");
                batch.write(&article).map_err(|source| NetnewsError::io("write a batch", to, source))?;
                counts.articles += 1;
                counts.bytes += article.len() as u64;
                if batch_bytes > 0 && batch.bytes() >= batch_bytes {
                    end(writer.take())?;
                }
            }
        }
        stopped = !go_on(counts.articles);
        Ok(())
    })?;
    end(writer)?;
    Ok(counts)
}

/// The path of a line, without the size that may follow it; none of a line that batcher skips.
fn path_in(line: &[u8]) -> Option<&[u8]> {
    let path = line.split(|byte| *byte == b' ').next()?;
    (!path.is_empty() && !path.starts_with(b"#") && !path.starts_with(b"/")).then_some(path)
}

fn open_sink(
    sink: &BatchSink,
    pass: u32,
    number: u64,
) -> Result<(BatchWriter<Box<dyn Write>>, PathBuf), NetnewsError> {
    match sink {
        BatchSink::Discard => Ok((BatchWriter::new(Box::new(io::sink())), PathBuf::new())),
        BatchSink::Folder(folder) => {
            fs::create_dir_all(folder)
                .map_err(|source| NetnewsError::io("make the directory for batches", folder, source))?;
            let path = folder.join(format!("{pass:03}-{number:06}.rnews"));
            let file =
                File::create(&path).map_err(|source| NetnewsError::io("make a batch", &path, source))?;
            Ok((BatchWriter::new(Box::new(BufWriter::with_capacity(256 << 10, file))), path))
        }
    }
}

fn end(writer: Option<(BatchWriter<Box<dyn Write>>, PathBuf)>) -> Result<(), NetnewsError> {
    let Some((batch, path)) = writer else { return Ok(()) };
    let path: &Path = &path;
    batch.finish().map(drop).map_err(|source| NetnewsError::io("write a batch", path, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_comments_and_whole_paths_are_skipped_and_sizes_cut_off() {
        assert_eq!(path_in(b"comp/os/g42/1"), Some(&b"comp/os/g42/1"[..]));
        assert_eq!(path_in(b"comp/os/g42/1 2048"), Some(&b"comp/os/g42/1"[..]));
        for line in [&b""[..], b" ", b"# dropped", b"/etc/passwd"] {
            assert_eq!(path_in(line), None);
        }
    }
}
