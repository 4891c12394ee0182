//! Keys in order: of one run, and of several sources at once, the newest value of each key.

use std::cell::RefCell;
use std::sync::Arc;

use super::{Block, Loader, SortedRun};
use crate::error::Refusal;

/// Keys in order with their values. `None` as a value: the key was removed.
pub(crate) trait Source {
    /// The key it is at; `None` at the end.
    fn key(&self) -> Option<&[u8]>;
    fn value(&self) -> Option<&[u8]>;
    fn advance(&mut self) -> Result<(), Refusal>;
}

/// Where blocks that are damaged are reported, to be passed over.
pub(crate) type Faults = RefCell<Vec<Refusal>>;

/// A place in a run.
struct Cursor<'a> {
    run: Arc<SortedRun>,
    loader: &'a Loader<'a>,
    faults: Option<&'a Faults>,
    block: Option<Arc<Block>>,
    at_block: usize,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// At the first key that is not below `key`.
    fn at(
        run: &Arc<SortedRun>,
        key: &[u8],
        loader: &'a Loader<'a>,
        faults: Option<&'a Faults>,
    ) -> Result<Self, Refusal> {
        let at_block = run.block_of(key).unwrap_or(0);
        let mut cursor = Self { run: run.clone(), loader, faults, block: None, at_block, at: 0 };
        cursor.enter(at_block)?;
        if cursor.at_block == at_block
            && let Some(block) = &cursor.block
        {
            cursor.at = block.place_of(key);
            cursor.leave_at_end()?;
        }
        Ok(cursor)
    }

    /// Begins a block, or the next that can be read.
    fn enter(&mut self, mut at_block: usize) -> Result<(), Refusal> {
        self.block = None;
        while at_block < self.run.blocks() {
            match (self.loader.block(&self.run, at_block), self.faults) {
                (Ok(block), _) => {
                    self.block = Some(block);
                    break;
                }
                (Err(fault @ Refusal::Tree(_)), Some(faults)) => faults.borrow_mut().push(fault),
                (Err(refusal), _) => return Err(refusal),
            }
            at_block += 1;
        }
        (self.at_block, self.at) = (at_block, 0);
        Ok(())
    }

    fn leave_at_end(&mut self) -> Result<(), Refusal> {
        match &self.block {
            Some(block) if self.at >= block.len() => self.enter(self.at_block + 1),
            _ => Ok(()),
        }
    }

    fn entry(&self) -> Option<(&[u8], Option<&[u8]>)> {
        self.block.as_ref()?.entry(self.at)
    }
}

impl Source for Cursor<'_> {
    fn key(&self) -> Option<&[u8]> {
        self.entry().map(|(key, _)| key)
    }

    fn value(&self) -> Option<&[u8]> {
        self.entry().and_then(|(_, value)| value)
    }

    fn advance(&mut self) -> Result<(), Refusal> {
        self.at += 1;
        self.leave_at_end()
    }
}

/// Several sources as one, the newest first.
pub(crate) struct Merged<'a> {
    sources: Vec<Box<dyn Source + 'a>>,
    pub key: Vec<u8>,
    /// Of `key`; `None`: it was removed.
    pub value: Option<Vec<u8>>,
}

impl<'a> Merged<'a> {
    pub(crate) fn new(sources: Vec<Box<dyn Source + 'a>>) -> Self {
        Self { sources, key: Vec::new(), value: None }
    }

    /// Adds these runs, from `key` on, as sources. Without `faults` a damaged block is an error.
    pub(crate) fn add_runs(
        sources: &mut Vec<Box<dyn Source + 'a>>,
        runs: &[Arc<SortedRun>],
        key: &[u8],
        loader: &'a Loader<'a>,
        faults: Option<&'a Faults>,
    ) -> Result<(), Refusal> {
        for run in runs {
            sources.push(Box::new(Cursor::at(run, key, loader, faults)?));
        }
        Ok(())
    }

    /// Goes to the next key; `false` at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, Refusal> {
        let mut first: Option<usize> = None;
        for (at, source) in self.sources.iter().enumerate() {
            let Some(key) = source.key() else { continue };
            if first.is_none_or(|first| self.sources[first].key().is_some_and(|lowest| key < lowest)) {
                first = Some(at);
            }
        }
        let Some(first) = first else { return Ok(false) };
        let newest = &self.sources[first];
        self.key.clear();
        self.key.extend_from_slice(newest.key().unwrap_or_default());
        let mut value = self.value.take().unwrap_or_default();
        value.clear();
        self.value = newest.value().map(|found| {
            value.extend_from_slice(found);
            value
        });
        for source in &mut self.sources[first..] {
            if source.key() == Some(&self.key[..]) {
                source.advance()?;
            }
        }
        Ok(true)
    }
}
