use super::*;
use crate::table::{Body, Content, Directory, Extent, Extents, Kind, Node, Special};

fn all_kinds() -> Vec<Record> {
    let name = |text: &str| text.as_bytes().into();
    let owner = Owner { uid: 1000, gid: u32::MAX };
    let make =
        |kind| Record::Make { time: -1, directory: 2, name: name("n"), inode: 3, mode: 0o644, owner, kind };
    let piece = Piece { block: 1, bytes: 2, crc: 3 };
    let set = |change| Record::Set { time: 1, inode: 2, change };
    let all =
        Change { mode: Some(0o7777), uid: Some(1), gid: Some(2), atime: Some(i64::MIN), mtime: Some(-5) };
    vec![
        make(NodeKind::File),
        make(NodeKind::Directory),
        make(NodeKind::Symlink(vec![b'x'; 4095].into())),
        make(NodeKind::CharDevice { major: 5, minor: u32::MAX }),
        make(NodeKind::BlockDevice { major: 8, minor: 1 }),
        make(NodeKind::Fifo),
        make(NodeKind::Socket),
        Record::Link { time: 4, directory: 5, name: name("twelve bytes"), inode: 6 },
        Record::Unlink { time: 7, directory: 8, name: vec![0xff; 255].into() },
        Record::Rename { time: 9, from: 1, old: name("a"), to: 2, new: name("b") },
        Record::Exchange { time: 9, from: 1, old: name("a"), to: 2, new: name("b") },
        Record::Write { time: 9, inode: 7, offset: 1 << 40, pieces: vec![piece; 128] },
        Record::Reshape {
            time: 9,
            inode: 7,
            start: 1,
            end: u64::MAX,
            size: 3,
            pieces: vec![(1, piece); 128],
        },
        set(Change::default()),
        set(Change { gid: Some(7), ..Change::default() }),
        set(Change { mtime: Some(7), ..Change::default() }),
        set(all),
        Record::Xattr { time: 1, inode: 2, name: name("user.a"), value: None },
        Record::Xattr { time: 1, inode: 2, name: vec![b'n'; 255].into(), value: Some(vec![7; 4096].into()) },
        Record::Mark { durable: u64::MAX },
    ]
}

#[test]
fn every_kind_of_inode_reads_back_and_bytes_that_are_cut_are_none() {
    let piece = |block| Piece { block, bytes: 100, crc: 9 };
    let extents = vec![Extent { offset: 5, piece: piece(1 << 40) }, Extent { offset: 105, piece: piece(2) }];
    let directory = Directory { parent: 1, name: vec![b'd'; 255].into(), names: 1 << 40, subdirectories: 3 };
    let bodies = [
        Body::File(Content { size: 1 << 43, extents: Extents::from(extents) }),
        Body::Directory(Box::new(directory)),
        Body::Symlink(vec![b't'; 4095].into()),
        Body::Special(Special { kind: Kind::BlockDevice, major: 8, minor: 1 << 20 }),
        Body::Special(Special { kind: Kind::Fifo, major: 0, minor: 0 }),
    ];
    for body in bodies {
        let xattrs = vec![(b"user.a"[..].into(), b"1"[..].into()), (b"user.b"[..].into(), [][..].into())];
        let owner = Owner { uid: 1, gid: 2 };
        let (mode, links) = (0o4755, 3);
        let node = Node { mode, owner, atime: -1, mtime: i64::MAX, ctime: i64::MIN, links, xattrs, body };
        let mut bytes = Vec::new();
        encode_node(&node, &mut bytes);
        assert_eq!(decode_node(&bytes), Some(node));
        for length in 0..bytes.len() {
            assert_eq!(decode_node(&bytes[..length]), None, "{length} of {} bytes", bytes.len());
        }
    }
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
fn heads_read_back_and_a_flipped_bit_is_noticed() {
    let tree = TreeHead { id: 1 << 100, segment_bytes: 64 << 20, room_bytes: 1 << 20 };
    assert_eq!(TreeHead::decode(&tree.encode()), Some(Ok((tree, VERSION))));
    let room = RoomHead { id: 5, number: 6, first_sequence: 7, salt: 8 };
    assert_eq!(RoomHead::decode(&room.encode(), 5, VERSION), Some(room));
    assert_eq!(RoomHead::decode(&room.encode(), 6, VERSION), None);
    assert_eq!(RoomHead::decode(&room.encode(), 5, VERSION_1), None, "a room of another version");
    let names = NamesHead { id: 5, sequence: 6, next_inode: 7, records: 8, salt: 9 };
    assert_eq!(NamesHead::decode(&names.encode(), 5), Some(names));
    for bit in 0..HEAD_BYTES * 8 {
        let mut bytes = tree.encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(TreeHead::decode(&bytes), None, "bit {bit}");
    }
}
