//! Which records that no index names were superseded, as far as any index says: deleted, or replaced by something newer.

use std::collections::HashMap;

use super::cut::CutRecord;
use crate::error::StoreError;
use crate::format::{IndexRecord, IndexRecords};
use crate::objects::Objects;
use crate::store::iterate::index_of_live;

/// Keeps the records that nothing newer is known of. Reads all indexes, when there are any records.
pub(crate) fn drop_superseded<T>(
    objects: &Objects,
    records: &mut Vec<T>,
    record_of: impl Fn(&T) -> &CutRecord,
) -> Result<(), StoreError> {
    let hash_of = |record: &T| record_of(record).put().name.hash(objects.setup.hash_seed);
    let mut newest = records.iter().map(|record| (hash_of(record), 0)).collect::<HashMap<_, _>>();
    if newest.is_empty() {
        return Ok(());
    }
    for segment in objects.segments.all_files() {
        let Ok(Some(read)) = index_of_live(objects, &segment) else { continue };
        for (_, index_record) in IndexRecords::new(&read.bytes, read.salt) {
            // A tombstone supersedes what has its number, too.
            let (hash, sequence) = match index_record {
                IndexRecord::Put(put) if objects.index.is_torn(put.sequence) => continue,
                IndexRecord::Put(put) => (put.name.hash(objects.setup.hash_seed), put.sequence),
                IndexRecord::Tombstone(tombstone) => (tombstone.hash, tombstone.sequence + 1),
                IndexRecord::Mark { .. } => continue,
            };
            newest.entry(hash).and_modify(|newest| *newest = sequence.max(*newest));
        }
    }
    records.retain(|record| newest[&hash_of(record)] <= record_of(record).put().sequence);
    Ok(())
}
