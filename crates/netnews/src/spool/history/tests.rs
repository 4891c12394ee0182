//! History on a directory: collisions, growth, tags, torn tails.

use std::collections::HashMap;
use std::fs;

use super::super::scratch;
use super::*;

const BOTH: [HistoryIndex; 2] = [HistoryIndex::Memory, HistoryIndex::File];

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
    for how in BOTH {
        let (_folder, lib) = scratch::folder();
        let mut history = History::create(&*lib, 0, how).unwrap();
        for number in 0..5000 {
            add(&mut history, &*lib, number);
            if number % 100 == 99 {
                history.flush().unwrap();
                history.end_batch(&*lib).unwrap();
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
}

#[test]
fn looked_up_in_its_file_each_id_costs_one_read_and_one_write_and_line_and_slot_are_there_at_once() {
    let (folder, lib) = scratch::folder();
    let mut history = History::create(&*lib, 10_000, HistoryIndex::File).unwrap();
    let size = || fs::metadata(folder.path().join(TEXT_FILE)).unwrap().len();
    for number in 0..2000 {
        assert_eq!(history.find(&id(number)).unwrap(), None);
        let before = size();
        add(&mut history, &*lib, number);
        assert!(size() > before, "the line of {number} waits");
    }
    let slots = history.counts().slots;
    assert_eq!(slots.writes, 2000);
    // 16 slots a read in a table filled to an eighth: hardly ever a second one.
    assert!((2000..2010).contains(&slots.reads), "{slots:?}");
    // Somebody else who opens the file as it is finds all of them.
    let table = Table::read(&*lib).unwrap().expect("a table");
    assert_eq!(table.used(), 2000);
}

#[test]
fn the_file_is_the_same_whichever_way_it_was_looked_up() {
    let written = BOTH.map(|how| {
        let (folder, lib) = scratch::folder();
        let mut history = History::create(&*lib, 100, how).unwrap();
        for number in 0..300 {
            history.find(&id(number)).unwrap();
            add(&mut history, &*lib, number);
        }
        let old = history.find(&id(7)).unwrap().unwrap();
        history.supersede(&id(7), old, |out| line::push_head(out, &id(7), 5, 5)).unwrap();
        // Turned to the other and back, as expiry does.
        for how in [HistoryIndex::Memory, HistoryIndex::File, how] {
            history.turn(&*lib, how).unwrap();
            assert!((0..300).all(|number| history.find(&id(number)).unwrap().is_some()));
        }
        history.settle().unwrap();
        drop(history);
        let history = History::open(&*lib, how).unwrap();
        assert_eq!(history.ids(), 300);
        let read = |name| fs::read(folder.path().join(name)).unwrap();
        (read(TEXT_FILE), read(INDEX_FILE))
    });
    assert!(written[0] == written[1]);
}

#[test]
fn a_file_that_is_damaged_under_our_hands_is_an_error_and_no_endless_search() {
    let (folder, lib) = scratch::folder();
    let mut history = History::create(&*lib, 10, HistoryIndex::File).unwrap();
    add(&mut history, &*lib, 1);
    let path = folder.path().join(INDEX_FILE);
    let len = fs::metadata(&path).unwrap().len() as usize;
    // Every slot taken, by tags without an offset and by ones of no line there is.
    for byte in [0xff, 0x80] {
        fs::write(&path, vec![byte; len]).unwrap();
        let error = history.find(&id(2)).unwrap_err();
        assert!(error.to_string().contains(INDEX_FILE), "{error}");
    }
    fs::write(&path, b"short").unwrap();
    assert!(history.find(&id(2)).is_err());
}

#[test]
fn an_id_that_is_not_there_hardly_ever_costs_a_read_of_the_text() {
    let (_folder, lib) = scratch::folder();
    let mut history = History::create(&*lib, 20_000, HistoryIndex::Memory).unwrap();
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
    let mut table = Table::in_memory(10);
    let hash = 0xdead_beef_0000_0003;
    for offset in [0, 100, 200] {
        table.add(hash, offset);
    }
    // Another place in the table, the same tag; and the same place, another tag.
    table.add(hash + 1, 300);
    table.add(hash ^ (1 << 63), 400);
    let found = |hash, wanted| table.find(hash, |offset| Ok(offset == wanted)).unwrap();
    assert_eq!([found(hash, 0), found(hash, 100), found(hash, 200)], [Some(0), Some(100), Some(200)]);
    assert_eq!(found(hash ^ (1 << 63), 400), Some(400));
    let mut asked = Vec::new();
    let ask = |offset| {
        asked.push(offset);
        Ok(false)
    };
    table.find(hash, ask).unwrap();
    assert_eq!(asked, [0, 100, 200, 300], "a slot of another tag was taken for the same");
}

#[test]
fn the_end_of_the_table_is_followed_by_its_beginning() {
    let mut table = Table::in_memory(10);
    let last = u64::from(u16::MAX);
    (0..5).for_each(|offset| table.add(last, offset));
    assert_eq!(table.find(last, |offset| Ok(offset == 4)).unwrap(), Some(4));
    table.replace(last, 4, 77);
    assert_eq!(table.find(last, |offset| Ok(offset == 77)).unwrap(), Some(77));
}

#[test]
fn a_settled_index_is_read_back_and_one_that_is_not_is_made_anew() {
    let (folder, lib) = scratch::folder();
    let mut history = History::create(&*lib, 100, HistoryIndex::Memory).unwrap();
    (0..50).for_each(|number| add(&mut history, &*lib, number));
    history.settle().unwrap();
    let text_bytes = history.text_bytes();
    assert!(Table::open(&*lib, text_bytes).unwrap().is_some_and(|table| table.used() == 50));
    // Opening it marked it as in use.
    assert!(Table::open(&*lib, text_bytes).unwrap().is_none());
    for damaged in [&b""[..], b"crumbdbz", &[0xff; 4096]] {
        fs::write(folder.path().join(INDEX_FILE), damaged).unwrap();
        let mut history = History::open(&*lib, HistoryIndex::Memory).unwrap();
        assert!((0..50).all(|number| history.find(&id(number)).unwrap().is_some()));
    }
}

#[test]
fn a_later_line_takes_the_place_of_an_earlier_one_also_when_the_index_is_made_anew() {
    let (_folder, lib) = scratch::folder();
    let mut history = History::create(&*lib, 10, HistoryIndex::Memory).unwrap();
    (0..3).for_each(|number| add(&mut history, &*lib, number));
    let old = history.find(&id(1)).unwrap().unwrap();
    history.supersede(&id(1), old, |out| line::push_head(out, &id(1), 5, 5)).unwrap();
    history.flush().unwrap();
    drop(history);
    let mut history = History::open_with_new_index(&*lib, 0, HistoryIndex::Memory).unwrap();
    let offset = history.find(&id(1)).unwrap().unwrap();
    assert!(offset > old);
    assert_eq!(history.line_at(offset).unwrap().unwrap().files, None);
    assert_eq!(history.ids(), 3);
}

#[test]
fn a_torn_last_line_is_behind_what_the_scan_hands_over() {
    let (folder, lib) = scratch::folder();
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
    let (folder, lib) = scratch::folder();
    fs::write(folder.path().join(TEXT_FILE), vec![b'x'; 2 << 20]).unwrap();
    let end = text::scan::<FsError>(&*lib, Path::new(TEXT_FILE), |_, _| panic!("no line"));
    assert_eq!(end.unwrap(), 0);
    assert_eq!(Text::open(&*lib).unwrap().line_at(0).unwrap(), None);
}

#[test]
fn a_text_that_is_said_to_be_larger_than_the_index_can_say_is_an_error_that_names_it() {
    let (folder, lib) = scratch::folder();
    for how in BOTH {
        History::create(&*lib, 10, how).unwrap();
        // All hole: the size is what the storage says, whatever it holds.
        let text = fs::File::options().write(true).open(folder.path().join(TEXT_FILE)).unwrap();
        text.set_len(index::OFFSET_MAX + 1).unwrap();
        let error = measure::error_chain(&History::open(&*lib, how).map(|_| ()).unwrap_err());
        let named = folder.path().join(TEXT_FILE);
        assert!(error.starts_with(&format!("{}: ", named.display())), "{error}");
        assert!(error.contains("1099511627775 bytes"), "{error}");
        // The last offset that there is can be opened and used; the one behind it is refused, and nothing is added.
        text.set_len(index::OFFSET_MAX).unwrap();
        let mut history = History::open(&*lib, how).unwrap();
        add(&mut history, &*lib, 1);
        assert!(history.find(&id(1)).unwrap().is_some());
        let (ids, bytes) = (history.ids(), history.text_bytes());
        let more = history.add(&*lib, &id(2), |out| line::push_head(out, &id(2), 5, 5));
        assert!(more.is_err());
        assert_eq!((history.ids(), history.text_bytes()), (ids, bytes));
    }
}
