//! What counts once a change is where it must be: the table, the counts, and what is known for certain.

use std::sync::atomic::Ordering;

use crate::core::Core;
use crate::error::StoreError;
use crate::format::Name;
use crate::spot::Spot;
use crate::write_queue::group::{After, Change, Held};
use crate::write_queue::keys::locked;

impl Core {
    /// An object that is not there: an error when it is not known whether it is.
    pub(crate) fn is_missing(&self, name: Name<'_>, hash: u64) -> Result<(), StoreError> {
        let Some(doubt) = self.index.doubt_of(name.key, hash) else { return Ok(()) };
        let spot = Spot { file: doubt.file, block: doubt.block, blocks_max: 0 };
        Err(self.damaged(name, spot, "its control block is damaged"))
    }

    /// Makes a change count. Returns what is to be done after it, without locks.
    pub(crate) fn settle(&self, change: &Change) -> Option<After> {
        match change {
            Change::Put { new, old } => {
                self.index.make_certain(new.hash);
                let file = self.segments.file_at(new.place);
                if let Some(file) = file {
                    file.gain(new.blocks);
                }
                match old {
                    Some(old) if self.index.replace(old, new) => self.let_go(old),
                    _ => self.index.insert(new),
                }
            }
            Change::Remove(held) => {
                self.remove(held);
            }
            Change::Move { new, old } => {
                if self.index.replace(old, new) {
                    if let Some(file) = self.segments.file_at(new.place) {
                        file.gain(new.blocks);
                    }
                    self.let_go(old);
                }
            }
            Change::Pieces(manifest) => return Some(After::Pieces(manifest.clone())),
            Change::Link(id) => *locked(&self.links).entry(*id).or_insert(0) += 1,
            Change::Unlink(id) => {
                let mut links = locked(&self.links);
                let left = links.get_mut(id)?;
                *left = left.saturating_sub(1);
                if *left == 0 {
                    links.remove(id);
                    return Some(After::Forget(*id));
                }
            }
        }
        None
    }

    pub(crate) fn do_after(&self, after: &After) {
        match after {
            After::Forget(id) => self.forget_shared(*id),
            After::Pieces(manifest) => self.remove_pieces(manifest),
        }
    }

    /// False when it was not there any more.
    pub(crate) fn remove(&self, held: &Held) -> bool {
        let there = self.index.remove(held);
        if there {
            self.let_go(held);
        }
        there
    }

    /// The blocks of a record that counts no more.
    pub(crate) fn let_go(&self, held: &Held) {
        let Some(file) = self.segments.file_at(held.place) else { return };
        file.lose(held.blocks);
        self.segments.volume(file.volume).full.store(false, Ordering::SeqCst);
    }
}
