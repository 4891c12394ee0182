//! History on a directory: collisions, growth, tags, torn tails.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use files::LocalFs;
use tempfile::TempDir;

use super::*;

fn lib() -> (TempDir, Arc<dyn FileSystem>) {
    let folder = tempfile::tempdir().unwrap();
    let fs = LocalFs::open(folder.path()).unwrap();
    (folder, Arc::new(fs))
}

fn id(number: u64) -> Vec<u8> {
    format!("<{number}@host.example>").into_bytes()
}

fn add(history: &mut History, lib: &dyn FileSystem, number: u64) {
    let id = id(number);
    let write = |out: &mut Vec<u8>| {
        line::push_head(out, &id, 807_235_200 + number, 807_235_200);
        line::push_file(out, true, b"a.b", number);
    };
    history.add(lib, &id, write).unwrap();
}

#[test]
fn a_table_grown_many_times_still_finds_every_id_and_no_other() {
    let (_folder, lib) = lib();
    let mut history = History::create(&*lib, 0).unwrap();
    for number in 0..5000 {
        add(&mut history, &*lib, number);
        if number % 100 == 99 {
            history.flush().unwrap();
            history.flush_index().unwrap();
        }
    }
    assert_eq!(history.ids(), 5000);
    for number in 0..5000 {
        let offset = history.find(&id(number)).unwrap().expect("it was added");
        let line = history.line_at(offset).unwrap().unwrap();
        assert_eq!((line.id, line.arrived), (&id(number)[..], 807_235_200 + number));
    }
    for number in 5000..15_000 {
        assert_eq!(history.find(&id(number)).unwrap(), None);
    }
}

#[test]
fn an_id_that_is_not_there_hardly_ever_costs_a_read_of_the_text() {
    let (_folder, lib) = lib();
    let mut history = History::create(&*lib, 20_000).unwrap();
    (0..20_000).for_each(|number| add(&mut history, &*lib, number));
    history.flush().unwrap();
    for number in 20_000..120_000 {
        history.find(&id(number)).unwrap();
    }
    let counts = history.counts();
    // 100,000 misses, each beside a few slots, with tags of 24 bits: about 0.02 reads are expected.
    assert!(counts.text_reads <= 2, "{counts:?}");
    assert_eq!(counts.text_reads, counts.tag_misses);
}

#[test]
fn ids_whose_hashes_collide_wholly_are_told_apart_by_the_text() {
    let mut index = Index::in_memory(10);
    let hash = 0xdead_beef_0000_0003;
    for offset in [0, 100, 200] {
        index.add(hash, offset);
    }
    // Another place in the table, the same tag; and the same place, another tag.
    index.add(hash + 1, 300);
    index.add(hash ^ (1 << 63), 400);
    let found = |hash, wanted| index.find(hash, |offset| Ok(offset == wanted)).unwrap();
    assert_eq!([found(hash, 0), found(hash, 100), found(hash, 200)], [Some(0), Some(100), Some(200)]);
    assert_eq!(found(hash ^ (1 << 63), 400), Some(400));
    let mut asked = Vec::new();
    let ask = |offset| {
        asked.push(offset);
        Ok(false)
    };
    index.find(hash, ask).unwrap();
    assert_eq!(asked, [0, 100, 200, 300], "a slot of another tag was taken for the same");
}

#[test]
fn the_end_of_the_table_is_followed_by_its_beginning() {
    let mut index = Index::in_memory(10);
    let last = u64::from(u16::MAX);
    (0..5).for_each(|offset| index.add(last, offset));
    assert_eq!(index.find(last, |offset| Ok(offset == 4)).unwrap(), Some(4));
    index.replace(last, 4, 77);
    assert_eq!(index.find(last, |offset| Ok(offset == 77)).unwrap(), Some(77));
}

#[test]
fn a_settled_index_is_read_back_and_one_that_is_not_is_made_anew() {
    let (folder, lib) = lib();
    let mut history = History::create(&*lib, 100).unwrap();
    (0..50).for_each(|number| add(&mut history, &*lib, number));
    history.settle().unwrap();
    let text_bytes = history.text_bytes();
    assert!(Index::open(&*lib, text_bytes).unwrap().is_some_and(|index| index.used() == 50));
    // Opening it marked it as in use.
    assert!(Index::open(&*lib, text_bytes).unwrap().is_none());
    for damaged in [&b""[..], b"crumbdbz", &[0xff; 4096]] {
        fs::write(folder.path().join(INDEX_FILE), damaged).unwrap();
        let mut history = History::open(&*lib).unwrap();
        assert!((0..50).all(|number| history.find(&id(number)).unwrap().is_some()));
    }
}

#[test]
fn a_later_line_takes_the_place_of_an_earlier_one_also_when_the_index_is_made_anew() {
    let (_folder, lib) = lib();
    let mut history = History::create(&*lib, 10).unwrap();
    (0..3).for_each(|number| add(&mut history, &*lib, number));
    let old = history.find(&id(1)).unwrap().unwrap();
    history.supersede(&id(1), old, |out| line::push_head(out, &id(1), 5, 5));
    history.flush().unwrap();
    drop(history);
    let mut history = History::open_with_new_index(&*lib, 0).unwrap();
    let offset = history.find(&id(1)).unwrap().unwrap();
    assert!(offset > old);
    assert_eq!(history.line_at(offset).unwrap().unwrap().files, None);
    assert_eq!(history.ids(), 3);
}

#[test]
fn a_torn_last_line_is_behind_what_the_scan_hands_over() {
    let (folder, lib) = lib();
    let whole = "<1@h>\t1~-~1\ta/1\n<2@h>\t2~-~2\ta/2\n";
    for torn in 0..16 {
        let tail = &"<3@h>\t3~-~3\ta/3\n"[..torn];
        fs::write(folder.path().join(TEXT_FILE), format!("{whole}{tail}")).unwrap();
        let mut lines = HashMap::new();
        let end = text::scan::<FsError>(&*lib, Path::new(TEXT_FILE), |offset, line| {
            lines.insert(offset, line.to_vec());
            Ok(())
        });
        assert_eq!((end.unwrap(), lines.len()), (whole.len() as u64, 2), "{torn} bytes of a third line");
    }
}

#[test]
fn a_text_that_never_ends_a_line_is_a_torn_tail_and_not_all_read_into_memory() {
    let (folder, lib) = lib();
    fs::write(folder.path().join(TEXT_FILE), vec![b'x'; 2 << 20]).unwrap();
    let end = text::scan::<FsError>(&*lib, Path::new(TEXT_FILE), |_, _| panic!("no line"));
    assert_eq!(end.unwrap(), 0);
    assert_eq!(Text::open(&*lib).unwrap().line_at(0).unwrap(), None);
}
