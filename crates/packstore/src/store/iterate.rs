//! Goes through all objects, by the index records of the index files: bodies are not touched.

use std::sync::Arc;

use crate::error::StoreError;
use crate::format::{IndexRecord, IndexRecords, Kind, Name};
use crate::index::address::Address;
use crate::objects::Objects;
use crate::objects::object::Stat;
use crate::objects::read::Record;
use crate::procedures::recover::index::index_or_records;
use crate::segments::index_file::IndexRead;
use crate::segments::segment::Segment;
use crate::store::Store;
use crate::write_queue::group::TableEntry;

/// An object without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Vec<u8>,
    /// Times are those of the put; [`Store::stat`] returns those of later touches. `meta_bytes` is 0 for a linked object.
    pub stat: Stat,
    /// Its index was lost, and it was found in the data file: it may be one that was deleted or replaced.
    pub recovered: bool,
}

/// All objects, in the order of segments. What is put or deleted meanwhile may be there or not, and so may what
/// [`Store::compact`] moves meanwhile.
pub struct Iter {
    objects: Arc<Objects>,
    files: std::vec::IntoIter<Arc<Segment>>,
    entries: std::vec::IntoIter<Entry>,
}

/// All objects in the order of their keys.
pub struct OrderedIter {
    entries: std::vec::IntoIter<Entry>,
    failures: Vec<StoreError>,
}

impl OrderedIter {
    /// Segments of which neither index nor body could be read: their objects are missing here.
    pub fn failures(&self) -> &[StoreError] {
        &self.failures
    }
}

impl Store {
    /// All objects, in no order.
    ///
    /// # Errors
    /// When what waits in memory cannot be written.
    pub fn iter(&self) -> Result<Iter, StoreError> {
        self.readiness.wait_ready()?;
        self.flush()?;
        let files = self.objects.segments.all_files().into_iter();
        Ok(Iter { objects: self.objects.clone(), files, entries: Vec::new().into_iter() })
    }

    /// Objects whose keys begin so, in the order of their keys' bytes. A scan of all index files, sorted in memory: about
    /// 100 bytes for each object that is returned.
    ///
    /// # Errors
    /// When what waits in memory cannot be written. Files that cannot be read are in [`OrderedIter::failures`].
    pub fn iter_ordered(&self, prefix: &[u8]) -> Result<OrderedIter, StoreError> {
        let (mut entries, mut failures) = (Vec::new(), Vec::new());
        for entry in self.iter()? {
            match entry {
                Ok(entry) if entry.key.starts_with(prefix) => entries.push(entry),
                Ok(_) => {}
                Err(error) => failures.push(error),
            }
        }
        entries.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        // An object that moved while we looked may have been seen twice.
        entries.dedup_by(|one, other| one.key == other.key);
        Ok(OrderedIter { entries: entries.into_iter(), failures })
    }
}

impl Iterator for Iter {
    type Item = Result<Entry, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Some(Ok(entry));
            }
            let file = self.files.next()?;
            match entries_of(&self.objects, &file) {
                Ok(entries) => self.entries = entries.into_iter(),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Iterator for OrderedIter {
    type Item = Entry;

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next()
    }
}

/// An index that is read while it is replaced by its next generation is read again.
pub(crate) fn index_of_live(objects: &Objects, segment: &Segment) -> Result<Option<IndexRead>, StoreError> {
    match index_or_records(objects, segment) {
        Err(_) if segment.removed.load(std::sync::atomic::Ordering::SeqCst) => Ok(None),
        read => read.map(Some),
    }
}

fn entries_of(objects: &Objects, segment: &Segment) -> Result<Vec<Entry>, StoreError> {
    let Some(IndexRead { salt, bytes, .. }) = index_of_live(objects, segment)? else { return Ok(Vec::new()) };
    let mut entries = Vec::new();
    for (_, index_record) in IndexRecords::new(&bytes, salt) {
        let IndexRecord::Put(put) = index_record else { continue };
        if put.name.internal
            || objects.has_expired(put.expires_s)
            || objects
                .index
                .location_of(put.name.hash(objects.setup.hash_seed), segment.number, put.block)
                .is_none()
        {
            continue;
        }
        let stat = Stat {
            length: put.object_bytes(),
            meta_bytes: put.meta_len,
            created_s: put.created_s,
            requested_s: put.created_s,
            expires_s: put.expires_s,
            sequence: put.sequence,
        };
        entries.push(Entry { key: put.name.key.to_vec(), stat, recovered: put.recovered });
    }
    Ok(entries)
}

/// A record that cannot be read, as its index record describes it: enough to delete or replace it.
pub(crate) fn record_from_index(
    objects: &Objects,
    name: Name<'_>,
    hash: u64,
    file: u32,
    block: u32,
) -> Result<Option<Box<Record>>, StoreError> {
    let Some(segment) = objects.segments.file(file) else { return Ok(None) };
    let Some(IndexRead { salt, bytes, .. }) = index_of_live(objects, &segment)? else {
        return Ok(None);
    };
    for (_, index_record) in IndexRecords::new(&bytes, salt) {
        let IndexRecord::Put(put) = index_record else { continue };
        let Some(location) = objects.index.location_of(hash, file, block) else { return Ok(None) };
        if put.block != block || put.name != name {
            continue;
        }
        // A list of pieces that cannot be read: the pieces come back on the next rebuild.
        let (kind, body) = match put.kind {
            Kind::Alias => (Kind::Alias, put.id.to_le_bytes().to_vec()),
            _ => (Kind::Whole, Vec::new()),
        };
        let mut record = vec![0; crate::format::RECORD_HEAD_BYTES];
        record.extend_from_slice(name.key);
        record.extend_from_slice(&body);
        let head = crate::format::RecordHead {
            kind,
            internal: name.internal,
            key_len: name.key.len() as u16,
            sequence: put.sequence,
            meta_len: 0,
            body_len: body.len() as u32,
            body_crc: 0,
            created_s: put.created_s,
            requested_s: 0,
            expires_s: put.expires_s,
        };
        let blocks = objects.setup.shape.blocks(put.record_bytes());
        let entry = TableEntry { hash, location, blocks, visible: !name.internal };
        let address = Address::of(location, objects.setup.shape);
        return Ok(Some(Box::new(Record {
            entry,
            head,
            bytes: record,
            address,
            generation: 0,
            compared: false,
        })));
    }
    Ok(None)
}
