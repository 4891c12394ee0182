//! What counts once a change is where it must be: the table, the counts, and what is known for certain.

use std::sync::Arc;

use crate::core::Core;
use crate::error::StoreError;
use crate::format::Name;
use crate::locks::locked;
use crate::options::Mode;
use crate::spot::Spot;
use crate::volume::Volume;
use crate::write_queue::Apply;
use crate::write_queue::group::{After, Change, Gate, Held};
use crate::write_queue::keys::Taken;
use crate::write_queue::staging::{NewRecord, Operation, Patience};

impl Core {
    /// An object that is not there: an error when it is not known whether it is.
    pub(crate) fn is_missing(&self, name: Name<'_>, hash: u64) -> Result<(), StoreError> {
        let Some(doubt) = self.index.doubt_of(name.key, hash) else { return Ok(()) };
        let spot = Spot { file: doubt.file, block: doubt.block, blocks_max: 0 };
        Err(self.damaged(name, spot, "its control block is damaged"))
    }

    /// Stages records, and removals of objects, all on one volume and in one group. Cache mode: they count at once. The keys
    /// that are `taken` are given back when the changes count.
    pub(crate) fn stage(
        &self,
        records: &[NewRecord<'_>],
        voids: &[(u64, Held)],
        more: &[Change],
        taken: Option<Taken<'_>>,
        patience: Patience,
    ) -> Result<Arc<Gate>, StoreError> {
        let keys = taken.as_ref().map_or(&[][..], Taken::hashes);
        let operation = Operation { records, voids, more, keys, patience };
        let (gate, after) = self.queue.stage(&operation, &self.policy, self)?;
        after.iter().for_each(|after| self.do_after(after));
        if let Some(taken) = taken.filter(|_| self.mode == Mode::Store) {
            // By the volume's writer.
            taken.hand_over();
        }
        Ok(gate)
    }

    /// Writes what is staged on a volume. Any thread may call it, a writer too.
    pub(crate) fn write_group(&self, volume: &Volume, sync: bool) {
        let after = self.queue.write_group(volume, sync, self);
        after.iter().for_each(|after| self.do_after(after));
    }

    /// Makes all that counts durable, on all volumes. A cache's changes count before they are: what they made void must not
    /// leave the disk before this. Any thread may call it, a writer too: turns are held for a volume's own writes alone.
    pub(crate) fn make_durable(&self) {
        self.segments.all_volumes().iter().for_each(|volume| self.write_group(volume, true));
    }

    /// Makes changes count that need no writing. The caller holds no locks but the keys'.
    pub(crate) fn apply_now(&self, changes: &[Change]) {
        let after = changes.iter().filter_map(|change| self.apply(change)).collect::<Vec<_>>();
        after.iter().for_each(|after| self.do_after(after));
    }

    fn do_after(&self, after: &After) {
        match after {
            After::Forget(id) => self.forget_shared(*id),
            After::Pieces(manifest) => self.remove_pieces(manifest),
        }
    }

    /// False when it was not there any more.
    pub(crate) fn remove(&self, held: &Held) -> bool {
        let there = self.index.remove(held);
        if there {
            self.segments.lose(held.place, held.blocks);
        }
        there
    }
}

impl Apply for Core {
    fn apply(&self, change: &Change) -> Option<After> {
        match change {
            Change::Put { new, old } => {
                self.index.make_certain(new.hash);
                self.segments.gain(new.place, new.blocks);
                match old {
                    Some(old) if self.index.replace(old, new) => self.segments.lose(old.place, old.blocks),
                    _ => self.index.insert(new),
                }
            }
            Change::Remove(held) => {
                self.remove(held);
            }
            Change::Move { new, old } => {
                if self.index.replace(old, new) {
                    self.segments.gain(new.place, new.blocks);
                    self.segments.lose(old.place, old.blocks);
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

    fn undo(&self, change: &Change) {
        // Wherever it was before, it counts no more.
        if let Change::Put { new, .. } | Change::Move { new, .. } = change {
            self.remove(new);
        }
    }
}
