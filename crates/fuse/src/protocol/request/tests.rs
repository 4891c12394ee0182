use proptest::prelude::*;

use super::*;

/// The parts of a body, one after the other.
fn body(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn parsed(opcode: u32, body: &[u8]) -> Parsed<Operation<'_>> {
    Operation::parse(opcode, body)
}

#[test]
fn a_header_is_read_from_forty_bytes_and_from_no_fewer() {
    let bytes: Vec<u8> = (0..40).collect();
    let header = Header::parse(&bytes).unwrap();
    assert_eq!(header.bytes, u32::from_ne_bytes([0, 1, 2, 3]));
    assert_eq!(header.opcode, u32::from_ne_bytes([4, 5, 6, 7]));
    assert_eq!(header.unique, u64::from_ne_bytes([8, 9, 10, 11, 12, 13, 14, 15]));
    assert_eq!(header.id.0, u64::from_ne_bytes([16, 17, 18, 19, 20, 21, 22, 23]));
    assert_eq!(
        (header.uid, header.gid),
        (u32::from_ne_bytes([24, 25, 26, 27]), u32::from_ne_bytes([28, 29, 30, 31]))
    );
    assert_eq!(header.pid, u32::from_ne_bytes([32, 33, 34, 35]));
    assert_eq!(Header::parse(&bytes[..39]), Err(Malformed::Invalid));
}

#[test]
fn names_end_with_a_zero_and_are_not_empty_and_have_no_slash() {
    assert_eq!(parsed(1, b"foo\0"), Ok(Operation::Lookup { name: OsStr::new("foo") }));
    for wrong in [&b"foo"[..], b"", b"\0", b"a/b\0"] {
        assert_eq!(parsed(1, wrong), Err(Malformed::Invalid), "{wrong:?}");
    }
    let link = Operation::Symlink { name: OsStr::new("l"), target: Path::new("../to/here") };
    assert_eq!(parsed(6, b"l\0../to/here\0"), Ok(link));
    let to = 5u64.to_ne_bytes();
    let (name, new_name, flags) = (OsStr::new("a"), OsStr::new("b"), RenameFlags::empty());
    let renamed = Operation::Rename { name, to: INodeNo(5), new_name, flags };
    assert_eq!(parsed(12, &body(&[&to, b"a\0b\0"])), Ok(renamed));
    assert_eq!(parsed(12, &body(&[&to, b"a\0b"])), Err(Malformed::Invalid));
    let flags = RenameFlags::RENAME_EXCHANGE;
    let exchanged = Operation::Rename { name, to: INodeNo(5), new_name, flags };
    assert_eq!(parsed(45, &body(&[&to, &2u32.to_ne_bytes(), &[0; 4], b"a\0b\0"])), Ok(exchanged));
}

#[test]
fn what_is_created_has_its_mode_and_umask() {
    let fields: Vec<u8> = [0x42u32, 0o644, 0o22, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
    let created = Operation::Create { name: OsStr::new("foo"), flags: 0x42, mode: 0o644, umask: 0o22 };
    assert_eq!(parsed(35, &body(&[&fields, b"foo\0"])), Ok(created));
    let fields: Vec<u8> = [0o10644u32, 0x103, 0o22, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
    let made = Operation::Mknod { name: OsStr::new("bar"), mode: 0o10644, umask: 0o22, device: 0x103 };
    assert_eq!(parsed(8, &body(&[&fields, b"bar\0"])), Ok(made));
}

#[test]
fn access_has_a_mask_and_padding() {
    let fields: Vec<u8> = [4u32, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
    assert_eq!(parsed(34, &fields), Ok(Operation::Access { mask: 4 }));
    assert_eq!(argument_bytes(34), fields.len());
    assert_eq!(parsed(34, &fields[..3]), Err(Malformed::Invalid));
}

/// `struct fuse_write_in`.
fn write_in(handle: u64, offset: i64, bytes: u32, write_flags: u32) -> Vec<u8> {
    body(&[
        &handle.to_ne_bytes(),
        &offset.to_ne_bytes(),
        &bytes.to_ne_bytes(),
        &write_flags.to_ne_bytes(),
        &9u64.to_ne_bytes(),
        &1i32.to_ne_bytes(),
        &[0; 4],
    ])
}

#[test]
fn a_write_has_as_many_bytes_as_it_says_and_begins_where_a_file_may() {
    let written = body(&[&write_in(3, 4096, 5, 1 << 1 | 1 << 2), b"hello"]);
    let Ok(Operation::Write { transfer, flags, data }) = parsed(16, &written) else { panic!("{written:?}") };
    assert_eq!((transfer.handle, transfer.offset, data), (FileHandle(3), 4096, &b"hello"[..]));
    assert_eq!((transfer.lock_owner, transfer.flags), (Some(LockOwner(9)), OpenFlags(1)));
    assert!(flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID));
    for (offset, bytes) in [(0, 6), (0, u32::MAX), (-1, 5), (i64::MIN, 1)] {
        let wrong = body(&[&write_in(3, offset, bytes, 0), b"hello"]);
        assert_eq!(parsed(16, &wrong), Err(Malformed::Invalid), "{bytes} at {offset}");
    }
}

#[test]
fn attributes_are_set_by_the_bits_that_say_so() {
    let mut fields = vec![0; 88];
    let valid: u32 = 1 << 0 | 1 << 3 | 1 << 4 | 1 << 7 | 1 << 5 | 1 << 6;
    fields[..4].copy_from_slice(&valid.to_ne_bytes());
    fields[8..16].copy_from_slice(&7u64.to_ne_bytes());
    fields[16..24].copy_from_slice(&1234u64.to_ne_bytes());
    fields[40..48].copy_from_slice(&(-2i64).to_ne_bytes());
    fields[60..64].copy_from_slice(&250_000_000u32.to_ne_bytes());
    fields[68..72].copy_from_slice(&0o600u32.to_ne_bytes());
    let Ok(Operation::Setattr(set)) = parsed(4, &fields) else { panic!("{fields:?}") };
    assert_eq!((set.mode, set.uid, set.gid), (Some(0o600), None, None));
    assert_eq!((set.size, set.handle, set.changed), (Some(1234), Some(FileHandle(7)), None));
    assert_eq!(set.accessed, Some(TimeOrNow::Now));
    assert_eq!(set.modified, from_seconds(-2, 250_000_000).map(TimeOrNow::SpecificTime));
    fields[60..64].copy_from_slice(&1_000_000_000u32.to_ne_bytes());
    assert_eq!(parsed(4, &fields), Err(Malformed::Invalid), "a second has fewer nanoseconds");
    assert_eq!(parsed(4, &fields[..87]), Err(Malformed::Invalid));
}

#[test]
fn references_are_returned_in_batches_that_are_there_whole() {
    let one = |id: u64, lookups: u64| [id.to_ne_bytes(), lookups.to_ne_bytes()].concat();
    let batch = |count: u32| body(&[&count.to_ne_bytes(), &[0; 4], &one(2, 3), &one(4, 5)]);
    let nodes = vec![ForgetOne { id: INodeNo(2), lookups: 3 }, ForgetOne { id: INodeNo(4), lookups: 5 }];
    assert_eq!(parsed(42, &batch(2)), Ok(Operation::BatchForget { nodes }));
    for count in [3, u32::MAX] {
        assert_eq!(parsed(42, &batch(count)), Err(Malformed::Invalid), "{count} are not there");
    }
    assert_eq!(parsed(2, &9u64.to_ne_bytes()), Ok(Operation::Forget { lookups: 9 }));
    assert!(is_unanswered(2) && is_unanswered(42) && !is_unanswered(1));
}

#[test]
fn an_extended_attribute_has_as_many_bytes_as_it_says() {
    let head = |bytes: u32| [bytes.to_ne_bytes(), 1i32.to_ne_bytes()].concat();
    let set = Operation::Setxattr { name: OsStr::new("user.x"), value: b"val", flags: 1 };
    assert_eq!(parsed(21, &body(&[&head(3), b"user.x\0val"])), Ok(set));
    assert_eq!(parsed(21, &body(&[&head(4), b"user.x\0val"])), Err(Malformed::Invalid));
    assert_eq!(parsed(21, &body(&[&head(u32::MAX), b"user.x\0val"])), Err(Malformed::Invalid));
}

#[test]
fn the_upper_flags_of_init_count_only_where_there_are_any() {
    let fields = |flags: u32| -> Vec<u8> {
        [7u32, 45, 0x10_0000, flags, 1 << 5].into_iter().flat_map(u32::to_ne_bytes).collect()
    };
    let extended = fields(1 << 30 | 1 << 22);
    let Ok(Operation::Init { major, minor, flags, .. }) = parsed(26, &extended) else {
        panic!("{extended:?}")
    };
    assert_eq!((major, minor), (7, 45));
    assert!(flags.contains(InitFlags::FUSE_PASSTHROUGH | InitFlags::FUSE_MAX_PAGES));
    let old = fields(1 << 22);
    let Ok(Operation::Init { flags, .. }) = parsed(26, &old[..16]) else { panic!("{old:?}") };
    assert!(!flags.contains(InitFlags::FUSE_PASSTHROUGH));
}

#[test]
fn an_ioctl_that_could_reach_any_memory_is_not_taken() {
    let head = |flags: u32, given: u32| {
        body(&[
            &7u64.to_ne_bytes(),
            &flags.to_ne_bytes(),
            &0x6601u32.to_ne_bytes(),
            &[0; 8],
            &given.to_ne_bytes(),
            &[8, 0, 0, 0],
        ])
    };
    let plain = body(&[&head(0, 4), &[1, 2, 3, 4]]);
    let Ok(Operation::Ioctl { handle, command, data, bytes_max, .. }) = parsed(39, &plain) else {
        panic!("{plain:?}")
    };
    assert_eq!((handle, command, data, bytes_max), (FileHandle(7), 0x6601, &[1, 2, 3, 4][..], 8));
    assert_eq!(parsed(39, &body(&[&head(0, 5), &[1, 2, 3, 4]])), Err(Malformed::Invalid));
    assert_eq!(parsed(39, &body(&[&head(2, 4), &[1, 2, 3, 4]])), Err(Malformed::Unknown));
}

/// Every operation with as few bytes as it can have: the fixed arguments, and names where it has some.
#[test]
fn fixed_arguments_are_as_long_as_the_ring_hands_them_over() {
    for opcode in (1..=47).filter(|opcode| !matches!(opcode, 7 | 19 | 31..=33 | 37 | 40 | 41)) {
        let whole = body(&[&vec![0; argument_bytes(opcode)], b"a\0b\0"]);
        assert!(parsed(opcode, &whole).is_ok(), "{opcode}: {:?}", parsed(opcode, &whole));
        let bytes = argument_bytes(opcode);
        // The last field of some is padding, which is not looked at.
        if bytes > 8 && opcode != 26 {
            assert!(parsed(opcode, &whole[..bytes - 9]).is_err(), "{opcode} needs its arguments");
        }
    }
    for unknown in [0, 7, 19, 31, 32, 33, 37, 40, 41, 48, 4096, u32::MAX] {
        assert_eq!(parsed(unknown, &[0; 256]), Err(Malformed::Unknown), "{unknown}");
        assert_eq!(argument_bytes(unknown), 0);
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_parsed_or_refused_and_never_read_beyond(opcode in 0u32..60, bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = Header::parse(&bytes);
        match parsed(opcode, &bytes) {
            Ok(Operation::Write { data, .. }) => prop_assert!(data.len() + 40 <= bytes.len()),
            Ok(Operation::Setxattr { name, value, .. }) => prop_assert!(name.len() + value.len() < bytes.len()),
            Ok(Operation::BatchForget { nodes }) => prop_assert!(nodes.len() * 16 + 8 <= bytes.len()),
            Ok(Operation::Ioctl { data, .. }) => prop_assert!(data.len() + 32 <= bytes.len()),
            _ => {}
        }
    }

    /// Fields that hold small numbers, as lengths do: more of these bytes pass the first checks.
    #[test]
    fn small_numbers_are_parsed_or_refused(opcode in 0u32..60, fields in prop::collection::vec(0u32..40, 0..64), tail in "[a-c/]{0,6}\\PC{0,3}") {
        let mut bytes: Vec<u8> = fields.into_iter().flat_map(u32::to_ne_bytes).collect();
        bytes.extend_from_slice(tail.as_bytes());
        bytes.push(0);
        let _ = parsed(opcode, &bytes);
    }
}
