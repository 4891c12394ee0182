use super::*;

fn all_kinds() -> Vec<Record> {
    let name = |text: &str| text.as_bytes().into();
    let make = |kind| Record::Make { time: 1, directory: 2, name: name("n"), inode: 3, mode: 0o644, kind };
    vec![
        make(NodeKind::File),
        make(NodeKind::Directory),
        make(NodeKind::Symlink(vec![b'x'; 4095].into())),
        Record::Link { time: 4, directory: 5, name: name("twelve bytes"), inode: 6 },
        Record::Unlink { time: 7, directory: 8, name: vec![0xff; 255].into() },
        Record::Rename { time: 9, from: 1, old: name("a"), to: 2, new: name("b") },
        Record::Write {
            time: 9,
            inode: 7,
            offset: 1 << 40,
            pieces: vec![Piece { block: 1, bytes: 2, crc: 3 }; 9],
        },
        Record::Mark { durable: u64::MAX },
    ]
}

#[test]
fn every_kind_of_record_reads_back_and_no_other_room_s_record_counts() {
    let mut bytes = Vec::new();
    for (sequence, record) in (10..).zip(all_kinds()) {
        frame(&record, sequence, 77, &mut bytes);
        assert!(bytes.len().is_multiple_of(8));
    }
    let found: Vec<_> = records(&bytes, 77).collect();
    assert_eq!(found, (10..).zip(all_kinds()).collect::<Vec<_>>());
    assert_eq!(records(&bytes, 78).count(), 0);
}

#[test]
fn a_flipped_bit_costs_the_record_it_is_in_and_no_other() {
    let mut whole = Vec::new();
    for (sequence, record) in (0..).zip(all_kinds()) {
        frame(&record, sequence, 5, &mut whole);
    }
    for bit in (0..whole.len() * 8).step_by(7) {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(records(&bytes, 5).count(), all_kinds().len() - 1, "bit {bit}");
    }
}

#[test]
fn the_checksum_of_two_stretches_is_that_of_both_together() {
    let bytes: Vec<u8> = (0..1000_u32).map(|number| (number * 31) as u8).collect();
    for middle in [0, 1, 500, 1000] {
        let (first, second) = bytes.split_at(middle);
        assert_eq!(crc_of_both(crc(first), crc(second), second.len() as u64), crc(&bytes), "{middle}");
    }
}

#[test]
fn heads_read_back_and_a_flipped_bit_is_noticed() {
    let tree = TreeHead { id: 1 << 100, segment_bytes: 64 << 20, room_bytes: 1 << 20 };
    assert_eq!(TreeHead::decode(&tree.encode()), Some(Ok(tree)));
    let room = RoomHead { id: 5, number: 6, first_sequence: 7, salt: 8 };
    assert_eq!(RoomHead::decode(&room.encode(), 5), Some(room));
    assert_eq!(RoomHead::decode(&room.encode(), 6), None);
    let names = NamesHead { id: 5, sequence: 6, next_inode: 7, records: 8, salt: 9 };
    assert_eq!(NamesHead::decode(&names.encode(), 5), Some(names));
    for bit in 0..HEAD_BYTES * 8 {
        let mut bytes = tree.encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(TreeHead::decode(&bytes), None, "bit {bit}");
    }
}
