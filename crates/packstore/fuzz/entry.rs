//! The entries of the fuzz targets, shared with `src/fuzzing/tests.rs`.

use packstore::fuzzing;

/// An index file, whatever it holds.
#[allow(dead_code, reason = "each target uses one of the two")]
pub fn index(input: &[u8]) {
    fuzzing::index(input);
    fuzzing::volume(input);
    fuzzing::table(input);
}

/// An index record and a record; the first four bytes are the salt.
#[allow(dead_code, reason = "each target uses one of the two")]
pub fn control(input: &[u8]) {
    let (salt, bytes) = input.split_at(input.len().min(4));
    let salt = salt.iter().fold(0, |salt, &byte| salt << 8 | u32::from(byte));
    fuzzing::index_record(bytes, salt);
    fuzzing::record(bytes, salt);
    // The checksum made right, so that what lies behind it is reached too.
    if let Some(len) = bytes.get(4..6).map(|len| usize::from(u16::from_le_bytes([len[0], len[1]])) * 8)
        && let Some(whole) = bytes.get(..len).filter(|whole| whole.len() >= 24)
    {
        let mut whole = whole.to_vec();
        let sum = crc32c(&whole[4..]) ^ salt;
        whole[..4].copy_from_slice(&sum.to_le_bytes());
        fuzzing::index_record(&whole, salt);
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}
