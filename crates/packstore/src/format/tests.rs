use super::*;

const TOMBSTONE_RECORD: IndexRecord<'static> = IndexRecord::Tombstone(Tombstone {
    sequence: 1,
    hash: 2,
    superseded: Superseded { file: 3, generation: 4 },
    deleted_s: 5,
});

fn put(key: &[u8]) -> Put<'_> {
    Put {
        kind: Kind::Manifest,
        name: Name::of(key),
        sequence: 7,
        superseded: Some(Superseded { file: 3, generation: 9 }),
        block: 12,
        meta_len: 13,
        body_len: 16,
        created_s: 15,
        expires_s: 16,
        id: 17,
        length: 18,
        recovered: true,
    }
}

#[test]
fn every_index_record_comes_back_as_it_was_and_no_flipped_bit_passes() {
    let long = vec![b'k'; KEY_BYTES_MAX];
    let all = [
        IndexRecord::Put(put(b"http://example.org/")),
        IndexRecord::Put(put(&long)),
        IndexRecord::Put(Put { kind: Kind::Whole, superseded: None, id: 0, length: 0, ..put(b"x") }),
        TOMBSTONE_RECORD,
        IndexRecord::Mark { durable_end: 99 },
    ];
    for index_record in all {
        let mut bytes = Vec::new();
        index_record.encode(5, &mut bytes);
        assert_eq!(decode_index_record(&bytes, 5), Some((index_record, bytes.len())));
        assert_eq!(decode_index_record(&bytes, 6), None, "another file's");
        for bit in (0..bytes.len() * 8).step_by(if bytes.len() > 1000 { 37 } else { 1 }) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_index_record(&bytes, 5), None, "{index_record:?} bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

/// As earlier versions of this program wrote it: its 4 bytes at 20 were 0, and they pass over what is there now.
#[test]
fn a_tombstone_without_a_time_is_read_as_one_whose_time_is_not_known() {
    let mut bytes = Vec::new();
    TOMBSTONE_RECORD.encode(5, &mut bytes);
    assert_eq!((bytes.len(), u32_at(&bytes, 20)), (TOMBSTONE_BYTES, 5));
    bytes[20..24].fill(0);
    let sum = crc(&bytes[4..]) ^ 5;
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    let Some((IndexRecord::Tombstone(old), _)) = decode_index_record(&bytes, 5) else { panic!("it is one") };
    let IndexRecord::Tombstone(new) = TOMBSTONE_RECORD else { unreachable!() };
    assert_eq!(old, Tombstone { deleted_s: 0, ..new });
}

#[test]
fn a_damaged_index_record_costs_only_itself() {
    let mut bytes =
        IndexHead { store: 1, file: 2, generation: 3, since: 3, queue_kind: 1, is_first: true, time_s: 4 }
            .encode()
            .to_vec();
    let mut ends = Vec::new();
    for key in [b"a", b"b", b"c"] {
        IndexRecord::Put(put(key)).encode(5, &mut bytes);
        ends.push(bytes.len());
    }
    bytes[ends[0] + 20] ^= 1;
    let mut index_records = IndexRecords::new(&bytes, 5);
    assert_eq!(index_records.by_ref().count(), 2);
    assert_eq!(index_records.damaged, std::slice::from_ref(&(ends[0] as u64..ends[1] as u64)));
}

#[test]
fn damage_behind_an_offset_is_told_with_its_ends_and_half_a_mark_is_none() {
    let mut bytes = vec![0; INDEX_HEAD_BYTES];
    TOMBSTONE_RECORD.encode(5, &mut bytes);
    let whole = bytes.len() as u64;
    IndexRecord::Mark { durable_end: u64::MAX }.encode(5, &mut bytes);
    bytes.resize(4096, 0);
    let damaged = |bytes: &[u8], offset| {
        let ranges = damaged_behind(bytes, 5, offset);
        ranges.iter().map(|damaged| (damaged.start, damaged.end)).collect::<Vec<_>>()
    };
    assert_eq!(damaged(&bytes, 0), []);
    bytes[whole as usize] ^= 0xff;
    assert_eq!(damaged(&bytes, 0), [], "a mark at the end");
    bytes[whole as usize + 24] = 1;
    assert_eq!(damaged(&bytes, 0), [(whole, whole + 25)]);
    assert_eq!(damaged(&bytes, whole + 32), []);
    bytes[INDEX_HEAD_BYTES] ^= 3;
    assert_eq!(damaged(&bytes, 0), [(INDEX_HEAD_BYTES as u64, whole + 25)]);
}

#[test]
fn one_flipped_bit_of_an_index_is_put_right_and_two_are_not() {
    let head =
        IndexHead { store: 1, file: 2, generation: 3, since: 3, queue_kind: 1, is_first: true, time_s: 4 };
    let salt = head.salt();
    let mut whole = head.encode().to_vec();
    IndexRecord::Put(put(b"a")).encode(salt, &mut whole);
    TOMBSTONE_RECORD.encode(salt, &mut whole);
    IndexRecord::Mark { durable_end: 99 }.encode(salt, &mut whole);
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (found, head_repaired) = IndexHead::decode_repairing(&mut bytes).expect("mended");
        assert_eq!(found, head, "bit {bit}");
        let repaired = repair_index_records(&mut bytes, salt);
        assert_eq!(repaired.len() + usize::from(head_repaired), 1, "bit {bit}");
        assert!(bytes == whole, "bit {bit}");
        // Another in the same block.
        let other = if bit % 64 < 32 { bit + 32 } else { bit - 32 };
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes[other / 8] ^= 1 << (other % 8);
        if IndexHead::decode_repairing(&mut bytes).is_ok() {
            assert_eq!(repair_index_records(&mut bytes, salt), [0u64; 0], "bits {bit} and {other}");
        }
    }
}

#[test]
fn a_records_head_covers_key_and_attributes_but_not_the_times() {
    let head = RecordHead {
        kind: Kind::Whole,
        internal: false,
        key_len: 3,
        sequence: 4,
        meta_len: 2,
        body_len: 6,
        body_crc: 7,
        created_s: 8,
        requested_s: 9,
        expires_s: 10,
    };
    let mut bytes = Vec::new();
    head.encode(b"key", b"me", 11, 5, &mut bytes);
    assert_eq!(RecordHead::decode(&bytes, 11), Some(head));
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = RecordHead::decode(&bytes, 11);
        if (32..44).contains(&(bit / 8)) {
            assert_eq!(found, Some(RecordHead { requested_s: 0, expires_s: 0, ..head }), "times are dropped");
        } else {
            assert_eq!(found, None, "bit {bit}");
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn zeros_before_an_index_record_and_a_second_copy_of_one_are_damage_and_what_fills_a_gap_is_not() {
    let head =
        IndexHead { store: 1, file: 2, generation: 3, since: 3, queue_kind: 1, is_first: true, time_s: 4 };
    let mut bytes = head.encode().to_vec();
    let damaged = |bytes: &[u8]| {
        let mut index_records = IndexRecords::new(bytes, 5);
        (index_records.by_ref().count(), index_records.damaged)
    };
    let one = bytes.len();
    IndexRecord::Put(put(b"a")).encode(5, &mut bytes);
    let two = bytes.len();
    IndexRecord::Put(Put { block: 99, ..put(b"b") }).encode(5, &mut bytes);
    // Between tombstones there may be zeros, and behind the last index record.
    TOMBSTONE_RECORD.encode(5, &mut bytes);
    bytes.resize(bytes.len() + TOMBSTONES_APART_BYTES, 0);
    TOMBSTONE_RECORD.encode(5, &mut bytes);
    bytes.resize(bytes.len() + 4_096, 0);
    assert_eq!(damaged(&bytes), (4, vec![]));
    assert!(!expose_copies(&mut bytes, 5));

    let mut copied = bytes.clone();
    copied.copy_within(one..two, two);
    assert_eq!(damaged(&copied), (4, vec![]));
    assert!(expose_copies(&mut copied, 5));
    let hole = two as u64..two as u64 * 2 - one as u64;
    assert_eq!(damaged(&copied), (3, vec![hole.clone()]));

    bytes[two..hole.end as usize].fill(0);
    assert_eq!(damaged(&bytes), (3, vec![hole]));
    fill_gaps(&mut bytes, 5);
    assert_eq!(damaged(&bytes).1, []);
    let named = IndexRecords::new(&bytes, 5).filter(|(_, found)| matches!(found, IndexRecord::Put(_)));
    assert_eq!(named.count(), 1);
}
