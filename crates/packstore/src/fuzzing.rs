//! What reads bytes from a disk, by itself: for the fuzz targets (`fuzz/`) and the test that runs the same on random bytes.
//!
//! Always holds: none of these panics, takes memory beyond its input's size, or runs on, whatever the bytes are.

use crate::fingerprints::FingerprintIndex;
#[cfg(test)]
mod tests;

use crate::format::{
    IndexHead, IndexRecord, IndexRecords, Manifest, RecordHead, VolumeHead, decode_index_record,
    repair_index_records,
};

/// An index file; also under the salt in its head. Returns how many index records it has.
pub fn index(bytes: &[u8]) -> usize {
    let mut repaired = bytes.to_vec();
    let salt = IndexHead::decode_repairing(&mut repaired).map_or(0, |(head, _)| head.salt());
    repair_index_records(&mut repaired, salt);
    let mut found = 0;
    let mut index_records = IndexRecords::new(&repaired, salt);
    for (at, index_record) in index_records.by_ref() {
        // What was read is written again as it was.
        let mut again = Vec::new();
        index_record.encode(salt, &mut again);
        assert!(
            decode_index_record(&again, salt).is_some_and(|(same, _)| same == index_record),
            "index record at {at}"
        );
        if let IndexRecord::Put(put) = index_record {
            assert!(put.record_bytes() >= put.name.key.len() && put.pieces() <= put.body_len);
        }
        found += 1;
    }
    found
}

/// One index record, under a salt.
pub fn index_record(bytes: &[u8], salt: u32) -> bool {
    decode_index_record(bytes, salt).is_some_and(|(_, len)| len <= bytes.len())
}

/// A record of a data file.
pub fn record(bytes: &[u8], salt: u32) -> bool {
    if let Some(manifest) = Manifest::decode(bytes) {
        assert_eq!(manifest.encode().len(), bytes.len());
    }
    RecordHead::decode(bytes, salt).is_some_and(|head| head.record_bytes() > 0)
}

/// A volume's head.
pub fn volume(bytes: &[u8]) -> bool {
    VolumeHead::decode(bytes).is_ok()
}

/// A table of fingerprints.
pub fn table(mut bytes: &[u8]) -> bool {
    let most = bytes.len().max(4096);
    FingerprintIndex::restore(&mut bytes, most).is_ok_and(|table| table.memory_bytes() <= most * 2 + 65_536)
}
