//! How far a spool has come: two records in one file, written in turns.
//!
//! ```text
//! | record 0, 192 B | record 1, 192 B |     text, blanks, LF: seq=12 pass=3 stage=unbatch … sum=HEX
//! ```
//!
//! Always holds: the record written last whole is the one that counts, so that a torn write costs one step and not
//! the state. Batches named done are in the history's text: the state is written behind it.

use std::path::Path;

use files::{Access, FileSystem, FsError, OpenFile, Status};

use crate::spool::history::index::hash_of;
use crate::spool::whole::{create_anew, read_whole, write_all};

/// Its name in the library directory.
pub(crate) const FILE: &str = "state";
const RECORD_BYTES: usize = 192;

/// What a spool is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Storing the pass's batches.
    Unbatch,
    /// Writing outgoing batches.
    Batch,
    /// Expiring; deletions may be half done.
    Expire,
    /// Everything of the pass is done.
    Done,
}

/// Where the work stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The pass under way, from 1.
    pub(crate) pass: u32,
    pub(crate) stage: Stage,
    /// Batches of the feed that have been stored, over all passes.
    pub(crate) batches_done: u64,
    /// Bytes of history's text when the last of them was done.
    pub(crate) history_bytes: u64,
    /// Passes that articles are kept.
    pub(crate) retention: u32,
    /// Closed in order: `active` and the index agree with the history.
    pub(crate) settled: bool,
}

/// The open file.
pub(crate) struct State {
    file: Box<dyn OpenFile>,
    sequence: u64,
    standing: Standing,
}

impl Stage {
    const ALL: [Self; 4] = [Self::Unbatch, Self::Batch, Self::Expire, Self::Done];

    fn name(self) -> &'static str {
        match self {
            Self::Unbatch => "unbatch",
            Self::Batch => "batch",
            Self::Expire => "expire",
            Self::Done => "done",
        }
    }
}

impl Standing {
    /// The stretch of history that is of a batch not done, when a text of `text_bytes` is found.
    pub(crate) fn cut_short(&self, text_bytes: u64) -> std::ops::Range<u64> {
        match self.stage {
            Stage::Unbatch => self.history_bytes..text_bytes,
            // Expiry has rewritten the text.
            _ => 0..0,
        }
    }

    /// Before the first batch.
    pub(crate) fn begin(retention: u32) -> Self {
        Self { pass: 1, stage: Stage::Unbatch, batches_done: 0, history_bytes: 0, retention, settled: false }
    }

    fn encode(&self, sequence: u64) -> Vec<u8> {
        let mut text = format!(
            "seq={sequence} pass={} stage={} batches={} history={} retention={} settled={} ",
            self.pass,
            self.stage.name(),
            self.batches_done,
            self.history_bytes,
            self.retention,
            u8::from(self.settled)
        );
        let sum = hash_of(text.as_bytes());
        text.push_str(&format!("sum={sum:016x}"));
        let mut record = text.into_bytes();
        assert!(record.len() < RECORD_BYTES, "all numbers at their greatest fit");
        record.resize(RECORD_BYTES - 1, b' ');
        record.push(b'\n');
        record
    }

    fn decode(record: &[u8]) -> Option<(u64, Self)> {
        let text = std::str::from_utf8(record).ok()?;
        let (head, sum) = text.split_at(text.find("sum=")?);
        if sum.trim_end() != format!("sum={:016x}", hash_of(head.as_bytes())) {
            return None;
        }
        let mut fields = head.split_whitespace();
        let mut next = |name: &str| fields.next()?.strip_prefix(name)?.strip_prefix('=');
        let sequence = next("seq")?.parse().ok()?;
        let pass = next("pass")?.parse().ok()?;
        let stage = next("stage")?;
        let standing = Self {
            pass,
            stage: Stage::ALL.into_iter().find(|known| known.name() == stage)?,
            batches_done: next("batches")?.parse().ok()?,
            history_bytes: next("history")?.parse().ok()?,
            retention: next("retention")?.parse().ok()?,
            settled: next("settled")? == "1",
        };
        Some((sequence, standing))
    }
}

impl State {
    pub(crate) fn create(lib: &dyn FileSystem, standing: Standing) -> Result<Self, FsError> {
        create_anew(lib, Path::new(FILE))?.close()?;
        let file = lib.open(Path::new(FILE), Access::ReadWrite)?;
        let mut state = Self { file, sequence: 0, standing };
        state.write(standing)?;
        Ok(state)
    }

    /// None when there is none, or no whole record in it: nothing had been done then.
    pub(crate) fn open(lib: &dyn FileSystem) -> Result<Option<Self>, FsError> {
        let Some((sequence, standing)) = newest(lib)? else { return Ok(None) };
        let file = lib.open(Path::new(FILE), Access::ReadWrite)?;
        Ok(Some(Self { file, sequence, standing }))
    }

    /// The same, only to look at.
    pub(crate) fn standing_in(lib: &dyn FileSystem) -> Result<Option<Standing>, FsError> {
        Ok(newest(lib)?.map(|(_, standing)| standing))
    }

    pub(crate) fn standing(&self) -> Standing {
        self.standing
    }

    pub(crate) fn write(&mut self, standing: Standing) -> Result<(), FsError> {
        self.sequence += 1;
        self.standing = standing;
        let record = standing.encode(self.sequence);
        self.file.seek(self.sequence % 2 * RECORD_BYTES as u64)?;
        write_all(&mut *self.file, &record)
    }
}

fn newest(lib: &dyn FileSystem) -> Result<Option<(u64, Standing)>, FsError> {
    let mut bytes = Vec::new();
    match read_whole(lib, Path::new(FILE), &mut bytes, 2 * RECORD_BYTES) {
        Err(error) if error.status() == Some(Status::NOENT) => return Ok(None),
        other => other?,
    };
    Ok(bytes.chunks(RECORD_BYTES).filter_map(Standing::decode).max_by_key(|(sequence, _)| *sequence))
}

#[cfg(test)]
mod tests {
    use super::*;
    use files::LocalFs;

    #[test]
    fn a_torn_write_leaves_the_record_before() {
        let folder = tempfile::tempdir().unwrap();
        let lib = LocalFs::open(folder.path()).unwrap();
        let mut state = State::create(&lib, Standing::begin(6)).unwrap();
        let step = |batches_done| Standing { batches_done, ..Standing::begin(6) };
        state.write(step(1)).unwrap();
        state.write(step(2)).unwrap();
        let whole = std::fs::read(folder.path().join(FILE)).unwrap();
        state.write(step(u64::MAX)).unwrap();
        let after = std::fs::read(folder.path().join(FILE)).unwrap();
        let differs = (0..384).filter(|at| whole[*at] != after[*at]).max().unwrap();
        for torn in 0..=384 {
            let bytes = [&after[..torn], &whole[torn..]].concat();
            std::fs::write(folder.path().join(FILE), bytes).unwrap();
            let found = State::open(&lib).unwrap().expect("one of the two is whole").standing().batches_done;
            assert!(found == if torn > differs { u64::MAX } else { 2 }, "torn at {torn}: {found}");
        }
        std::fs::write(folder.path().join(FILE), b"seq=9 pass=1").unwrap();
        assert!(State::open(&lib).unwrap().is_none());
    }
}
