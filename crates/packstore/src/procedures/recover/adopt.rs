//! Makes records count again that cut indexes lack, with their parts.
//!
//! 1. All data files are gone through for parts of objects that count for nothing, and for objects that did not count because a
//!    part was missing. After a rebuild, a part counts only when an index names the object that it belongs to: a cut index that
//!    kept the parts alone made them void, and so did one that lost the parts alone with the object.
//! 2. Each object that is the newest of its key, and whose parts are all there, counts again, and its parts with it.
//! 3. What lacks a part is reported as lost, unless something as new has its key.
//! 4. Before all that, parts count again that objects lack which count: their index records alone were lost.
//!
//! The indexes are rewritten after this.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::cut::CutRecord;
use super::records::each_record;
use super::superseded::drop_superseded;
use crate::error::StoreError;
use crate::format::{
    IndexRecord, IndexRecords, Kind, Manifest, Name, Put, SHARED, Tombstone, u32_at, u64_at,
};
use crate::index::address::location;
use crate::objects::Objects;
use crate::objects::read::Depth;
use crate::segments::segment::Segment;
use crate::store::iterate::{index_of_live, record_from_index};
use crate::write_queue::group::{Change, TableEntry};
use crate::write_queue::keys::Taken;

/// A record of a data file.
pub(crate) struct Stray {
    pub segment: Arc<Segment>,
    pub record: CutRecord,
}

/// What became of the records that cut indexes lack.
#[derive(Default)]
pub(crate) struct Adopted {
    /// What supersedes what they replaced. They are staged once the indexes are rewritten: before, they could be written into a
    /// segment whose index lacks records, and that would be rewritten without them.
    pub tombstones: Vec<Tombstone>,
    /// Keys of objects that lack a part.
    pub lost: Vec<Vec<u8>>,
}

/// Records that may count again.
#[derive(Default)]
pub(crate) struct Strays {
    cut: Vec<Stray>,
    torn: Vec<Stray>,
    parts: HashMap<PartName, Stray>,
}

impl Strays {
    /// What cut indexes lack, and what belongs to it. Nothing is put into the segments of any of it from now on: they are returned,
    /// and their indexes must be rewritten.
    pub(crate) fn hold(
        objects: &Objects,
        mut cut: Vec<Stray>,
    ) -> Result<(Self, Vec<Arc<Segment>>), StoreError> {
        if cut.is_empty() {
            return Ok((Self::default(), Vec::new()));
        }
        drop_superseded(objects, &mut cut, |stray| &stray.record)?;
        let (parts, torn) = strays(objects);
        let strays = Self { cut, torn, parts };
        let mut held = Vec::<Arc<Segment>>::new();
        for stray in strays.users() {
            let Some(missing) = missing_parts(objects, &strays.parts, stray) else { continue };
            for Stray { segment, .. } in missing.into_iter().chain([stray]) {
                if !held.iter().any(|other| other.number == segment.number) {
                    segment.never_fill();
                    held.push(segment.clone());
                }
            }
        }
        Ok((strays, held))
    }

    /// Keys that were deleted meanwhile: nothing older of them comes back.
    pub(crate) fn forget(&mut self, keys: &[Vec<u8>]) {
        let is_kept = |stray: &Stray| !keys.iter().any(|key| stray.record.put().name == Name::of(key));
        self.cut.retain(is_kept);
        self.torn.retain(is_kept);
    }

    /// Users' objects, the newest first: it may share its pieces with an older one, as a link does.
    fn users(&self) -> Vec<&Stray> {
        let users = self.cut.iter().chain(&self.torn).filter(|stray| !stray.record.put().name.internal);
        let mut users = users.collect::<Vec<_>>();
        users.sort_by_key(|stray| Reverse(stray.record.put().sequence));
        users
    }
}

/// Makes records count again that cut indexes lack, where they are the newest of their key.
pub(crate) fn adopt(objects: &Objects, strays: &Strays) -> Result<Adopted, StoreError> {
    let mut adopted = Adopted::default();
    let mut lacking = Vec::new();
    for stray in strays.users() {
        let put = stray.record.put();
        if objects.has_expired(put.expires_s) {
            continue;
        }
        let hash = put.name.hash(objects.setup.hash_seed);
        match missing_parts(objects, &strays.parts, stray) {
            Some(missing) => adopt_one(objects, stray, &missing, &mut adopted)?,
            None => lacking.push((put, hash)),
        }
    }
    for (put, hash) in lacking {
        let found = match objects.find(put.name, hash, Depth::Head) {
            // It is reported, and deleted, as that.
            Err(StoreError::Damaged { .. }) => continue,
            found => found?,
        };
        let is_lost = found.is_none_or(|found| found.head.sequence < put.sequence);
        if is_lost && !adopted.lost.iter().any(|key| key == put.name.key) {
            adopted.lost.push(put.name.key.to_vec());
        }
    }
    Ok(adopted)
}

/// Makes parts count again of objects that count and lack them. Returns the segments of these parts, whose indexes must be rewritten.
pub(crate) fn adopt_parts(objects: &Objects, strays: &Strays) -> Result<Vec<Arc<Segment>>, StoreError> {
    let mut held = Vec::<Arc<Segment>>::new();
    if strays.parts.is_empty() {
        return Ok(held);
    }
    for segment in objects.segments.all_files() {
        let Some(read) = index_of_live(objects, &segment)? else { continue };
        for (_, index_record) in IndexRecords::new(&read.bytes, read.salt) {
            let IndexRecord::Put(put) = index_record else { continue };
            let hash = put.name.hash(objects.setup.hash_seed);
            if put.kind == Kind::Whole || objects.index.location_of(hash, segment.number, put.block).is_none()
            {
                continue;
            }
            let owner = Stray { segment: segment.clone(), record: CutRecord::of_put(put) };
            for part in missing_parts(objects, &strays.parts, &owner).unwrap_or_default() {
                let Some(new) = entry_of(objects, part) else { continue };
                part.segment.never_fill();
                held.push(part.segment.clone());
                objects.apply_now(&[Change::Put { new, old: None }]);
            }
        }
    }
    Ok(held)
}

/// Forgets parts of objects that no object names. While it was not known what some keys name, all that were found counted.
/// Not those that were put since, perhaps for an object that is not complete yet.
pub(crate) fn forget_orphans(objects: &Objects) -> Result<(), StoreError> {
    let Some(sequence_end) = objects.index.take_orphans_end() else { return Ok(()) };
    let (mut owners, mut parts) = (HashSet::new(), Vec::new());
    for segment in objects.segments.all_files() {
        let Some(read) = index_of_live(objects, &segment)? else { continue };
        for (_, index_record) in IndexRecords::new(&read.bytes, read.salt) {
            let IndexRecord::Put(put) = index_record else { continue };
            let hash = put.name.hash(objects.setup.hash_seed);
            let Some(location) = objects.index.location_of(hash, segment.number, put.block) else { continue };
            if put.kind != Kind::Whole {
                owners.insert((put.id, put.kind == Kind::Alias));
            }
            if put.name.internal && put.name.key.len() == 12 && put.sequence < sequence_end {
                let blocks = objects.setup.shape.blocks(put.record_bytes());
                let name = (u64_at(put.name.key, 0), u32_at(put.name.key, 8) == SHARED);
                parts.push((name, TableEntry { hash, location, blocks, visible: false }));
            }
        }
    }
    for (_, entry) in parts.iter().filter(|(name, _)| !owners.contains(name)) {
        objects.remove(entry);
    }
    Ok(())
}

/// Number of the owner, and of the part.
type PartName = (u64, u32);

/// Whole records that do not count: parts of objects, the newest of each name, and objects that lacked a part. Not those of
/// segments that are being filled, as others may be written over them, nor of data files that cannot be read.
fn strays(objects: &Objects) -> (HashMap<PartName, Stray>, Vec<Stray>) {
    let (mut parts, mut torn) = (HashMap::<PartName, Stray>::new(), Vec::new());
    for segment in objects.segments.all_files() {
        if segment.filling.load(Ordering::SeqCst) && !segment.is_unfit() {
            continue;
        }
        let read = each_record(objects, &segment, |record| {
            let hash = record.name().hash(objects.setup.hash_seed);
            let is_part = record.head.internal && record.key.len() == 12;
            let is_torn = !record.head.internal
                && record.head.kind != Kind::Whole
                && objects.index.is_torn(record.head.sequence);
            if !is_part && !is_torn || objects.index.location_of(hash, segment.number, record.block).is_some()
            {
                return;
            }
            // The salt is of no matter, as it is not written so.
            let Some(found) = CutRecord::of(objects, record, 0) else { return };
            let stray = Stray { segment: segment.clone(), record: found };
            if is_torn {
                torn.push(stray);
                return;
            }
            let name = (u64_at(record.key, 0), u32_at(record.key, 8));
            if parts.get(&name).is_none_or(|other| other.record.put().sequence < record.head.sequence) {
                parts.insert(name, stray);
            }
        });
        if let Err(error) = read {
            tracing::warn!(%error, file = segment.number, "its data file was not looked through for parts of objects");
        }
    }
    (parts, torn)
}

/// The parts of an object that do not count yet, those of the object that it names included; `None` when one is not there.
fn missing_parts<'a>(
    objects: &Objects,
    parts: &'a HashMap<PartName, Stray>,
    stray: &Stray,
) -> Option<Vec<&'a Stray>> {
    let put = stray.record.put();
    let counts = |id, part| objects.find_internal(id, part, Depth::Head).ok().flatten();
    match put.kind {
        Kind::Whole => Some(Vec::new()),
        Kind::Alias if counts(put.id, SHARED).is_some() => Some(Vec::new()),
        Kind::Alias => {
            let shared =
                parts.get(&(put.id, SHARED)).filter(|shared| shared.record.put().kind != Kind::Alias)?;
            let mut missing = missing_parts(objects, parts, shared)?;
            missing.push(shared);
            Some(missing)
        }
        Kind::Manifest => {
            let manifest = manifest_of(objects, &stray.segment, &put)?;
            let mut missing = Vec::new();
            for (part, &len) in manifest.piece_lens.iter().enumerate() {
                if counts(manifest.id, part as u32).is_some_and(|piece| piece.head.body_len == len) {
                    continue;
                }
                let piece = parts.get(&(manifest.id, part as u32))?;
                missing.push(Some(piece).filter(|piece| piece.record.put().body_len == len)?);
            }
            Some(missing)
        }
    }
}

fn manifest_of(objects: &Objects, segment: &Segment, put: &Put<'_>) -> Option<Manifest> {
    let mut bytes = vec![0; put.record_bytes()];
    let read = segment.body().ok()?.read_at(&mut bytes, objects.setup.shape.offset(put.block)).ok()?;
    Manifest::decode(bytes[..read].get(put.record_bytes() - put.body_len as usize..)?)
}

/// Makes one object count, and the parts that it lacked.
fn adopt_one(
    objects: &Objects,
    stray: &Stray,
    missing: &[&Stray],
    adopted: &mut Adopted,
) -> Result<(), StoreError> {
    let put = stray.record.put();
    let Some(new) = entry_of(objects, stray) else { return Ok(()) };
    let _taken = Taken::one(objects.queue.keys(), new.hash);
    let old = match objects.find(put.name, new.hash, Depth::Whole) {
        // Its place is known, which is all that is needed.
        Err(StoreError::Damaged { file, block, .. }) => {
            record_from_index(objects, put.name, new.hash, file, block)?
        }
        found => found?,
    };
    if old.as_ref().is_some_and(|old| old.head.sequence >= put.sequence) {
        return Ok(());
    }
    let mut changes = Vec::new();
    for part in missing {
        let Some(new) = entry_of(objects, part) else { return Ok(()) };
        changes.push(Change::Put { new, old: None });
    }
    if let Some((old, superseded)) =
        old.as_ref().and_then(|old| Some((old, objects.segments.superseded_at(old.entry.location)?)))
    {
        let sequence = old.head.sequence;
        adopted.tombstones.push(Tombstone { sequence, hash: new.hash, superseded, deleted_s: 0 });
    }
    let ends = old.as_ref().map_or(Ok(Vec::new()), |old| objects.ends_with(old))?;
    changes.push(Change::Put { new, old: old.map(|old| old.entry) });
    if put.kind == Kind::Alias {
        changes.push(Change::Link(put.id));
    }
    let owner = owner_of(objects, &put, missing);
    changes.extend(
        ends.into_iter().filter(|end| !matches!(end, Change::Pieces(pieces) if Some(pieces.id) == owner)),
    );
    objects.apply_now(&changes);
    objects.index.not_torn(put.sequence);
    Ok(())
}

/// The number that an object's pieces have, its own or those of the object that it names. The object that it replaces may have had
/// the same: a link gives it to the object that both names share.
fn owner_of(objects: &Objects, put: &Put<'_>, missing: &[&Stray]) -> Option<u64> {
    match put.kind {
        Kind::Whole => None,
        Kind::Manifest => Some(put.id),
        Kind::Alias => {
            let shared = missing.last().map(|shared| shared.record.put());
            match shared {
                Some(shared) => (shared.kind == Kind::Manifest).then_some(shared.id),
                None => {
                    let shared = objects.find_internal(put.id, SHARED, Depth::Whole).ok()??;
                    Some(objects.manifest_of(&shared).ok()??.id)
                }
            }
        }
    }
}

fn entry_of(objects: &Objects, stray: &Stray) -> Option<TableEntry> {
    let put = stray.record.put();
    let blocks = objects.setup.shape.blocks(put.record_bytes());
    let location = location(stray.segment.number, put.block, blocks, objects.setup.shape)?;
    let hash = put.name.hash(objects.setup.hash_seed);
    Some(TableEntry { hash, location, blocks, visible: !put.name.internal })
}
