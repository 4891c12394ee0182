//! Look-ups of names and inodes: blocks that are not in memory are read without a lock, and then it is looked again.

use super::{Engine, State};
use crate::error::Refusal;
use crate::names::{BlockCache, Direct, MissingBlock};

/// After this many blocks a look-up reads the next ones under the lock: the cache may be too small to keep them.
const FETCHES_MAX: u32 = 64;

/// Blocks that one look-up needed.
pub(super) struct Fetches<'a> {
    engine: &'a Engine,
    count: u32,
    direct: Option<Direct>,
}

impl<'a> Fetches<'a> {
    pub(super) fn new(engine: &'a Engine) -> Self {
        Self { engine, count: 0, direct: None }
    }

    /// An error is for the next look, which meets it again: a listing passes over a damaged block.
    pub(super) fn fetch(&mut self, missing: &MissingBlock) {
        self.count += 1;
        let loaded = self.engine.blocks.load(missing);
        if self.direct.is_none() && (self.count >= FETCHES_MAX || loaded.is_err()) {
            self.direct = Some(BlockCache::directly(&self.engine.blocks));
        }
    }
}

impl Engine {
    /// Looks something up. `look` may run again once a block was read.
    pub(crate) fn look<T>(&self, mut look: impl FnMut(&State) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let mut fetches = Fetches::new(self);
        loop {
            let looked = look(&self.read());
            match looked {
                Err(Refusal::Block(missing)) => fetches.fetch(&missing),
                looked => return looked,
            }
        }
    }

    /// As [`Engine::look`], for what changes only in memory.
    pub(crate) fn look_mut<T>(
        &self,
        mut look: impl FnMut(&mut State) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut fetches = Fetches::new(self);
        loop {
            let looked = look(&mut self.write());
            match looked {
                Err(Refusal::Block(missing)) => fetches.fetch(&missing),
                looked => return looked,
            }
        }
    }
}
