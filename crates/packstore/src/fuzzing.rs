//! What reads bytes from a disk, by itself: for the fuzz targets (`fuzz/`) and the test that runs the same on random bytes.
//!
//! Always holds: none of these panics, takes memory beyond its input's size, or runs on, whatever the bytes are.

use crate::format::{
    Control, Controls, IndexHead, Manifest, RecordHead, VolumeHead, decode_control, mend_controls,
};
use crate::signatures::Signatures;

/// An index file; also under the salt that its head tells. Returns how many control blocks it has.
pub fn index(bytes: &[u8]) -> usize {
    let mut mended = bytes.to_vec();
    let salt = IndexHead::decode_mending(&mut mended).map_or(0, |(head, _)| head.salt());
    mend_controls(&mut mended, salt);
    let mut found = 0;
    let mut controls = Controls::new(&mended, salt);
    for (at, control) in controls.by_ref() {
        // What was read is written again as it was.
        let mut again = Vec::new();
        control.encode(salt, &mut again);
        assert!(
            decode_control(&again, salt).is_some_and(|(same, _)| same == control),
            "control block at {at}"
        );
        if let Control::Put(put) = control {
            assert!(put.record_bytes() >= put.name.key.len() && put.pieces() <= put.body_len);
        }
        found += 1;
    }
    found
}

/// One control block, under a salt.
pub fn control(bytes: &[u8], salt: u32) -> bool {
    decode_control(bytes, salt).is_some_and(|(_, len)| len <= bytes.len())
}

/// A record of a body file.
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

/// A table of signatures.
pub fn table(mut bytes: &[u8]) -> bool {
    let most = bytes.len().max(4096);
    Signatures::restore(&mut bytes, most).is_ok_and(|table| table.memory_bytes() <= most * 2 + 65_536)
}
