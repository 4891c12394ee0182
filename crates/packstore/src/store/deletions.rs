//! When an object was deleted, as its tombstone says.

use crate::error::StoreError;
use crate::format::{IndexRecord, IndexRecords};
use crate::store::Store;
use crate::store::iterate::index_of_live;

impl Store {
    /// When the object that had this key was deleted, in seconds since 1970. Known for as long as the deletion's tombstone is kept,
    /// which is until no index has an index record of the object any more. `None`: the key has an object, or nothing is known
    /// of a deletion. Reads all indexes.
    ///
    /// # Errors
    /// When what is there could not be learnt. An index that cannot be read is passed over: [`Store::check`] reports it.
    pub fn deleted_s(&self, key: &[u8]) -> Result<Option<u32>, StoreError> {
        if key.is_empty() || self.stat(key)?.is_some() {
            return Ok(None);
        }
        let hash = self.name_hash(key);
        let mut newest = None;
        for file in self.objects.segments.all_files() {
            let Ok(Some(read)) = index_of_live(&self.objects, &file) else { continue };
            for (_, index_record) in IndexRecords::new(&read.bytes, read.salt) {
                if let IndexRecord::Tombstone(tombstone) = index_record
                    && tombstone.hash == hash
                {
                    newest = newest.max(Some((tombstone.sequence, tombstone.deleted_s)));
                }
            }
        }
        Ok(newest.map(|(_, deleted_s)| deleted_s).filter(|&deleted_s| deleted_s != 0))
    }
}
