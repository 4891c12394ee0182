//! Which articles have been seen, when, and where they lie: a text of one line an article and an index into it.
//!
//! ```text
//! history       <id> TAB ARRIVED~EXPIRES~POSTED TAB group/number group/number      one line an article, appended
//! history.pag   a table of offsets into it, by a hash of the id                    (see `index`)
//! ```
//!
//! A line without the last field is of an article that is gone and must not come again. A later line of the same id
//! takes the place of an earlier one: that is how an article is cancelled without writing in the middle of the text.
//!
//! With the index in memory, lines wait until [`History::flush`], which writes the text; the slots of the index that
//! changed are written by [`History::end_batch`] when there are many. In between both are looked up as if they had been
//! written. With the index in its file, each line and each slot is written at once.
//!
//! Always holds: the index covers the text with what waits; the text is only ever appended to, and replaced whole by
//! expiry and recovery; a slot is written after its line, and nothing rests on it.
//! Source: history(5) and dbz(3) of INN 1.7.2; spec `netnews.md`, formats.

pub(crate) mod index;
pub(crate) mod line;
mod slot_file;
pub(crate) mod table;
pub(crate) mod text;

use std::path::Path;

use files::{FileSystem, FsError};

use self::index::{HistoryIndex, Index, SlotCounts, hash_of};
use self::line::HistoryLine;
use self::table::Table;
use self::text::Text;
use crate::NetnewsError;

/// Name of the text in the library directory.
pub(crate) const TEXT_FILE: &str = "history";
/// Name of the index.
pub(crate) const INDEX_FILE: &str = "history.pag";

/// What looking up cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LookupCounts {
    pub(crate) lookups: u64,
    /// Lines of the text read to be sure.
    pub(crate) text_reads: u64,
    /// Of these, the ones that were of another id.
    pub(crate) tag_misses: u64,
    /// Reads and writes of the index in its file.
    pub(crate) slots: SlotCounts,
}

/// The open history.
pub(crate) struct History {
    text: Text,
    index: Index,
    how: HistoryIndex,
    counts: LookupCounts,
}

impl History {
    /// An empty one, its index sized for `articles`.
    pub(crate) fn create(lib: &dyn FileSystem, articles: u64, how: HistoryIndex) -> Result<Self, FsError> {
        let text = Text::create(lib)?;
        let index = Index::of(Table::create(lib, articles)?, lib, how)?;
        Ok(Self { text, index, how, counts: LookupCounts::default() })
    }

    /// Opens what was closed in order.
    pub(crate) fn open(lib: &dyn FileSystem, how: HistoryIndex) -> Result<Self, NetnewsError> {
        let text = Text::open(lib)?;
        // Read whole once, also when it is to be looked up in the file: that is how it is known to be sound.
        let index = match Table::open(lib, text.end())? {
            Some(table) => Index::of(table, lib, how)?,
            None => return Self::open_with_new_index(lib, 0, how),
        };
        Ok(Self { text, index, how, counts: LookupCounts::default() })
    }

    /// Opens the text and rebuilds its index, with space for `articles` more than are in it.
    pub(crate) fn open_with_new_index(
        lib: &dyn FileSystem,
        articles: u64,
        how: HistoryIndex,
    ) -> Result<Self, NetnewsError> {
        let mut text = Text::open(lib)?;
        let index = Index::of(build_index(lib, &mut text, articles)?, lib, how)?;
        Ok(Self { text, index, how, counts: LookupCounts::default() })
    }

    /// Lets it be looked up as `how` says from now on. One that is scanned from end to end is so in memory, as
    /// dbz's `dbzincore` is for.
    pub(crate) fn turn(&mut self, lib: &dyn FileSystem, how: HistoryIndex) -> Result<(), FsError> {
        self.text.flush()?;
        self.counts.slots = self.counts.slots.and(self.index.counts());
        let index = std::mem::replace(&mut self.index, Index::Memory(Table::in_memory(0)));
        (self.index, self.how) = (index.turned(lib, how)?, how);
        Ok(())
    }

    /// Where the line of `id` begins.
    pub(crate) fn find(&mut self, id: &[u8]) -> Result<Option<u64>, FsError> {
        let (text, counts) = (&mut self.text, &mut self.counts);
        counts.lookups += 1;
        self.index.find(hash_of(id), |offset| confirm(text, offset, id, counts))
    }

    /// The line at an offset that [`Self::find`] gave.
    pub(crate) fn line_at(&mut self, offset: u64) -> Result<Option<HistoryLine<'_>>, FsError> {
        Ok(self.text.line_at(offset)?.and_then(HistoryLine::parse))
    }

    /// Appends a line for an id that is not there yet.
    pub(crate) fn add(
        &mut self,
        lib: &dyn FileSystem,
        id: &[u8],
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), NetnewsError> {
        if self.index.is_full() {
            let more = self.index.used();
            self.text.flush()?;
            self.counts.slots = self.counts.slots.and(self.index.counts());
            self.index = Index::of(build_index(lib, &mut self.text, more)?, lib, self.how)?;
        }
        let offset = self.append(write)?;
        Ok(self.index.add(hash_of(id), offset)?)
    }

    /// Appends a line that takes the place of the one at `old`.
    pub(crate) fn supersede(
        &mut self,
        id: &[u8],
        old: u64,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), FsError> {
        let offset = self.append(write)?;
        self.index.replace(hash_of(id), old, offset)
    }

    fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<u64, FsError> {
        let offset = self.text.append(write)?;
        match self.how {
            HistoryIndex::Memory => {}
            HistoryIndex::File => self.text.flush()?,
        }
        Ok(offset)
    }

    /// Writes the lines that wait.
    pub(crate) fn flush(&mut self) -> Result<(), FsError> {
        self.text.flush()
    }

    /// Writes the slots that changed, when there are many and they are not written already.
    pub(crate) fn end_batch(&mut self, lib: &dyn FileSystem) -> Result<(), FsError> {
        self.text.reopen_if_due(lib)?;
        self.index.end_batch(lib)
    }

    /// Writes what waits and says in the index how much of the text it covers, so that it can be opened again.
    pub(crate) fn settle(&mut self) -> Result<(), FsError> {
        self.text.flush()?;
        self.index.settle(self.text.end())
    }

    /// Bytes of text, with what waits.
    pub(crate) fn text_bytes(&self) -> u64 {
        self.text.end()
    }

    /// Ids in the index.
    pub(crate) fn ids(&self) -> u64 {
        self.index.used()
    }

    pub(crate) fn counts(&self) -> LookupCounts {
        LookupCounts { slots: self.counts.slots.and(self.index.counts()), ..self.counts }
    }
}

fn confirm(text: &mut Text, offset: u64, id: &[u8], counts: &mut LookupCounts) -> Result<bool, FsError> {
    counts.text_reads += 1;
    let same = text.line_at(offset)?.is_some_and(|line| line::id_of(line) == id);
    counts.tag_misses += u64::from(!same);
    Ok(same)
}

/// An index of the whole text; a later line of an id takes the place of an earlier one.
fn build_index(lib: &dyn FileSystem, text: &mut Text, more: u64) -> Result<Table, NetnewsError> {
    let mut lines = 0;
    text::scan::<FsError>(lib, Path::new(TEXT_FILE), |_, _| {
        lines += 1;
        Ok(())
    })?;
    let mut table = Table::in_memory(lines + more);
    let mut counts = LookupCounts::default();
    text::scan::<FsError>(lib, Path::new(TEXT_FILE), |offset, line| {
        let id = line::id_of(line);
        let hash = hash_of(id);
        match table.find(hash, |offset| confirm(text, offset, id, &mut counts))? {
            Some(old) => table.replace(hash, old, offset),
            None => table.add(hash, offset),
        }
        Ok(())
    })?;
    table.write_anew(lib, text.end())?;
    Ok(table)
}

#[cfg(test)]
mod tests;
