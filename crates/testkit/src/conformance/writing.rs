//! Cases about the bytes of files: reading, writing, cursors, appending, syncing.

use files::{Access, Status, SyncScope};

use super::{Case, Ground, UnlinkedOpen, assert_fails, cases, pattern, read_to_end, write_all};

pub(super) const CASES: &[Case] = cases![
    making_a_file_never_overwrites_one,
    a_file_holds_what_was_written_whatever_its_size,
    writing_and_reading_in_small_pieces_moves_one_cursor,
    writing_from_the_beginning_keeps_what_lies_behind,
    reading_past_the_end_brings_nothing_however_often,
    an_empty_read_or_write_does_nothing,
    a_seek_moves_the_cursor_and_a_write_behind_the_end_leaves_zeros,
    seek_end_tells_the_size_and_goes_there,
    an_impossible_offset_is_refused,
    appending_goes_behind_what_others_appended,
    appending_ignores_the_cursor,
    reading_and_writing_share_a_cursor,
    a_sync_of_either_scope_shows_the_bytes_to_others,
    a_file_that_is_dropped_keeps_what_was_written,
    a_file_opened_to_read_is_not_written_and_the_other_way_round,
    a_directory_is_not_opened_to_write_and_has_no_bytes,
    a_transfer_unit_is_a_sensible_one,
    an_open_file_that_is_renamed_stays_the_same,
    an_open_file_that_is_unlinked_does_as_its_kind_does,
    two_files_may_be_open_for_writing_at_once,
];

fn making_a_file_never_overwrites_one(g: &Ground<'_>) {
    let path = g.file("taken", b"kept");
    assert_fails(g.fs.create(&path), &[Status::EXIST]);
    assert_eq!(g.contents(&path), b"kept");
    let dir = g.dir("directory");
    assert_fails(g.fs.create(&dir), &[Status::EXIST]);
    g.fs.symlink("nowhere".as_ref(), &g.at("dangling")).expect("linked");
    assert_fails(g.fs.create(&g.at("dangling")), &[Status::EXIST]);
    assert!(g.is_missing(&g.at("nowhere")), "it was made through the link");
    assert_fails(g.fs.create(&g.at("no/such/place")), &[Status::NOENT]);
}

fn a_file_holds_what_was_written_whatever_its_size(g: &Ground<'_>) {
    for bytes in [0, 1, 511, 4096, 10_240, 65_536, 65_537, (1 << 20) + 1, 5_000_003] {
        let wanted = pattern(bytes, 7);
        let path = g.file(format!("file-{bytes}"), &wanted);
        assert!(g.contents(&path) == wanted, "{bytes} bytes came back different");
        assert_eq!(g.fs.stat(&path).expect("there").size, bytes as u64);
    }
}

fn writing_and_reading_in_small_pieces_moves_one_cursor(g: &Ground<'_>) {
    let wanted = pattern(100_000, 1);
    let mut file = g.fs.create(&g.at("file")).expect("made");
    for piece in wanted.chunks(333) {
        write_all(&mut *file, piece);
    }
    file.close().expect("closed");
    let mut file = g.fs.open(&g.at("file"), Access::Read).expect("opened");
    let (mut found, mut piece) = (Vec::new(), [0; 1021]);
    loop {
        match file.read(&mut piece).expect("read") {
            0 => break,
            bytes => found.extend_from_slice(&piece[..bytes]),
        }
    }
    assert!(found == wanted, "{} bytes came back different", found.len());
}

fn writing_from_the_beginning_keeps_what_lies_behind(g: &Ground<'_>) {
    let path = g.file("file", b"0123456789");
    let mut file = g.fs.open(&path, Access::Write).expect("opened");
    write_all(&mut *file, b"abc");
    file.close().expect("closed");
    assert_eq!(g.contents(&path), b"abc3456789");
}

fn reading_past_the_end_brings_nothing_however_often(g: &Ground<'_>) {
    let path = g.file("file", b"12345");
    let mut file = g.fs.open(&path, Access::Read).expect("opened");
    assert_eq!(read_to_end(&mut *file), b"12345");
    let mut buf = [0; 10];
    for _ in 0..3 {
        assert_eq!(file.read(&mut buf).expect("read"), 0);
    }
    file.seek(1_000_000).expect("moved");
    assert_eq!(file.read(&mut buf).expect("read"), 0);
    file.seek(4).expect("moved");
    assert_eq!((file.read(&mut buf).expect("read"), buf[0]), (1, b'5'));
    // A file that grows after its end was seen is read on.
    let mut writer = g.fs.open(&path, Access::Append).expect("opened");
    write_all(&mut *writer, b"678");
    writer.close().expect("closed");
    let grown = (0..2).map(|_| file.read(&mut buf).expect("read")).find(|bytes| *bytes > 0);
    assert_eq!((grown, &buf[..3]), (Some(3), &b"678"[..]));
}

fn an_empty_read_or_write_does_nothing(g: &Ground<'_>) {
    let path = g.file("file", b"12345");
    let mut file = g.fs.open(&path, Access::ReadWrite).expect("opened");
    assert_eq!(file.read(&mut []).expect("read"), 0);
    assert_eq!(file.write(&[]).expect("written"), 0);
    assert_eq!(read_to_end(&mut *file), b"12345");
    file.close().expect("closed");
    assert_eq!(g.contents(&path), b"12345");
}

fn a_seek_moves_the_cursor_and_a_write_behind_the_end_leaves_zeros(g: &Ground<'_>) {
    let path = g.file("file", b"12345");
    let mut file = g.fs.open(&path, Access::Write).expect("opened");
    file.seek(2).expect("moved");
    write_all(&mut *file, b"X");
    file.seek(9000).expect("moved");
    write_all(&mut *file, b"end");
    file.seek(0).expect("moved");
    write_all(&mut *file, b"Y");
    file.close().expect("closed");
    let mut wanted = b"Y2X45".to_vec();
    wanted.resize(9000, 0);
    wanted.extend_from_slice(b"end");
    assert!(g.contents(&path) == wanted);
}

fn seek_end_tells_the_size_and_goes_there(g: &Ground<'_>) {
    let path = g.file("file", &pattern(10_000, 2));
    let mut file = g.fs.open(&path, Access::Write).expect("opened");
    assert_eq!(file.seek_end().expect("moved"), 10_000);
    write_all(&mut *file, b"more");
    assert_eq!(file.seek_end().expect("moved"), 10_004);
    file.close().expect("closed");
    assert_eq!(&g.contents(&path)[10_000..], b"more");
    let mut empty = g.fs.create(&g.at("empty")).expect("made");
    assert_eq!(empty.seek_end().expect("moved"), 0);
    write_all(&mut *empty, b"12");
    assert_eq!(empty.seek_end().expect("moved"), 2);
}

fn an_impossible_offset_is_refused(g: &Ground<'_>) {
    let path = g.file("file", b"12345");
    let mut file = g.fs.open(&path, Access::Read).expect("opened");
    assert_fails(file.seek(u64::MAX), &[Status::INVAL]);
    assert_eq!(read_to_end(&mut *file), b"12345", "and the cursor did not move");
}

fn appending_goes_behind_what_others_appended(g: &Ground<'_>) {
    let path = g.file("file", b"0");
    let mut one = g.fs.open(&path, Access::Append).expect("opened");
    let mut other = g.fs.open(&path, Access::Append).expect("opened");
    for round in 0..4 {
        for (file, bytes) in [(&mut one, b"one"), (&mut other, b"two")] {
            write_all(&mut **file, bytes);
            if g.quirks.writes_are_held_back {
                file.sync(SyncScope::Data).expect("synced");
            }
        }
        assert_eq!(other.seek_end().expect("moved"), 1 + 6 * (round + 1));
    }
    one.close().expect("closed");
    other.close().expect("closed");
    assert_eq!(g.contents(&path), b"0onetwoonetwoonetwoonetwo");
}

fn appending_ignores_the_cursor(g: &Ground<'_>) {
    let path = g.file("file", b"12345");
    let mut file = g.fs.open(&path, Access::Append).expect("opened");
    file.seek(1).expect("moved");
    write_all(&mut *file, b"6");
    write_all(&mut *file, b"7");
    file.close().expect("closed");
    assert_eq!(g.contents(&path), b"1234567");
}

fn reading_and_writing_share_a_cursor(g: &Ground<'_>) {
    let path = g.file("file", b"0123456789");
    let mut file = g.fs.open(&path, Access::ReadWrite).expect("opened");
    let mut two = [0; 2];
    assert_eq!((file.read(&mut two).expect("read"), &two), (2, b"01"));
    write_all(&mut *file, b"AB");
    assert_eq!((file.read(&mut two).expect("read"), &two), (2, b"45"));
    write_all(&mut *file, b"CD");
    file.seek(0).expect("moved");
    assert_eq!(read_to_end(&mut *file), b"01AB45CD89");
    write_all(&mut *file, b"!");
    file.close().expect("closed");
    assert_eq!(g.contents(&path), b"01AB45CD89!");
}

fn a_sync_of_either_scope_shows_the_bytes_to_others(g: &Ground<'_>) {
    let mut file = g.fs.create(&g.at("file")).expect("made");
    let mut wanted = Vec::new();
    for scope in [SyncScope::Data, SyncScope::All, SyncScope::Data] {
        // More than one transfer, so that there is something to commit.
        let more = pattern(1_300_000, wanted.len() as u8);
        write_all(&mut *file, &more);
        wanted.extend_from_slice(&more);
        file.sync(scope).expect("synced");
        assert!(g.contents(&g.at("file")) == wanted, "not all of it is there");
        file.sync(scope).expect("nothing to do");
    }
    assert_eq!(g.fs.stat(&g.at("file")).expect("there").size, wanted.len() as u64);
}

fn a_file_that_is_dropped_keeps_what_was_written(g: &Ground<'_>) {
    let mut file = g.fs.create(&g.at("file")).expect("made");
    write_all(&mut *file, b"dropped");
    drop(file);
    assert_eq!(g.contents(&g.at("file")), b"dropped");
}

fn a_file_opened_to_read_is_not_written_and_the_other_way_round(g: &Ground<'_>) {
    let path = g.file("file", b"12345");
    let mut reader = g.fs.open(&path, Access::Read).expect("opened");
    assert_fails(reader.write(b"no"), &[Status::IO]);
    let mut writer = g.fs.open(&path, Access::Write).expect("opened");
    assert_fails(writer.read(&mut [0; 4]), &[Status::IO]);
    let mut maker = g.fs.create(&g.at("new")).expect("made");
    assert_fails(maker.read(&mut [0; 4]), &[Status::IO]);
    assert_eq!(g.contents(&path), b"12345");
}

fn a_directory_is_not_opened_to_write_and_has_no_bytes(g: &Ground<'_>) {
    let path = g.dir("directory");
    for access in [Access::Write, Access::Append, Access::ReadWrite] {
        assert_fails(g.fs.open(&path, access), &[Status::ISDIR]);
    }
    let read = g.fs.open(&path, Access::Read).and_then(|mut file| file.read(&mut [0; 4]));
    assert_fails(read, &[Status::ISDIR]);
    assert_fails(g.fs.open("".as_ref(), Access::Write), &[Status::ISDIR]);
}

fn a_transfer_unit_is_a_sensible_one(g: &Ground<'_>) {
    let path = g.file("file", b"12345");
    let bytes = g.fs.open(&path, Access::Read).expect("opened").block_bytes().expect("reported");
    assert!((512..=1 << 20).contains(&bytes), "{bytes}");
}

fn an_open_file_that_is_renamed_stays_the_same(g: &Ground<'_>) {
    let path = g.file("old", b"12345");
    let mut file = g.fs.open(&path, Access::ReadWrite).expect("opened");
    g.fs.rename(&path, &g.at("new")).expect("renamed");
    g.file("old", b"another");
    assert_eq!(read_to_end(&mut *file), b"12345");
    write_all(&mut *file, b"6");
    file.close().expect("closed");
    assert_eq!(g.contents(&g.at("new")), b"123456");
    assert_eq!(g.contents(&g.at("old")), b"another");
}

fn an_open_file_that_is_unlinked_does_as_its_kind_does(g: &Ground<'_>) {
    let path = g.file("file", b"12345");
    let mut file = g.fs.open(&path, Access::Read).expect("opened");
    g.fs.unlink(&path).expect("unlinked");
    assert!(g.is_missing(&path));
    // The file that takes the name is another one.
    g.file("file", b"another");
    let mut buf = [0; 10];
    match (g.quirks.unlinked_open, file.read(&mut buf)) {
        (UnlinkedOpen::Stays | UnlinkedOpen::Either, Ok(bytes)) => assert_eq!(&buf[..bytes], b"12345"),
        (UnlinkedOpen::Stays, Err(error)) => panic!("{error}"),
        (UnlinkedOpen::Stale | UnlinkedOpen::Either, outcome) => assert_fails(outcome, &[Status::STALE]),
    }
}

fn two_files_may_be_open_for_writing_at_once(g: &Ground<'_>) {
    let paths: Vec<_> = (0..20).map(|number| g.at(format!("file-{number}"))).collect();
    let mut open: Vec<_> = paths.iter().map(|path| g.fs.create(path).expect("made")).collect();
    for round in 0..10 {
        for (number, file) in open.iter_mut().enumerate() {
            write_all(&mut **file, &[number as u8, round]);
        }
    }
    for file in open {
        file.close().expect("closed");
    }
    for (number, path) in paths.iter().enumerate() {
        let wanted: Vec<u8> = (0..10).flat_map(|round| [number as u8, round]).collect();
        assert_eq!(g.contents(path), wanted);
    }
}
