//! Damaged bytes in every file: what they cost, and that opening and `check` say so.

use std::path::Path;
use std::sync::Arc;

use disk::{Disk as _, DiskOpen};
use files::{Access, FileSystem, Status};
use packtree::{PackTree, SalvageError, TreeError, TreeReport, begin_copy, check, end_copy, repair, salvage};
use testkit::{DiskFault, DiskOperation, SimulatedDisk};

use crate::scenario::{SMALL, There, all, files_of_names, opened, pattern, write};

/// A tree with a checkpoint and a journal behind it, stopped cleanly.
fn machine() -> SimulatedDisk {
    let machine = SimulatedDisk::new("machine");
    PackTree::create(&machine, &SMALL).unwrap();
    let tree = opened(Arc::new(machine.clone()));
    tree.mkdir(Path::new("directory")).unwrap();
    for number in 0..700 {
        write(&tree, &format!("directory/file-{number}"), &pattern(100 + number, number as u64));
    }
    tree.close().unwrap();
    assert_eq!(report(&machine).faults, []);
    machine
}

fn report(machine: &SimulatedDisk) -> TreeReport {
    check(&machine.process_end(), |_, _| ()).unwrap()
}

#[test]
fn a_flipped_bit_in_a_file_costs_that_file_and_check_names_it() {
    let machine = machine();
    let bytes = machine.bytes("space").unwrap();
    let wanted = pattern(100 + 333, 333);
    let at = bytes.windows(wanted.len()).position(|window| *window == *wanted).expect("stored as it is");
    assert!(machine.flip("space", at as u64 * 8 + 100));
    let found = report(&machine);
    let faults: Vec<_> = found.faults.iter().map(|fault| &fault.what[..]).collect();
    assert_eq!(faults, ["directory/file-333: bytes 0 to 433 are damaged"]);
    // Opening does not look at contents that are known to be durable; reading does.
    let tree = opened(Arc::new(machine));
    let mut file = tree.open(Path::new("directory/file-333"), Access::Read).unwrap();
    let error = file.read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.status(), Some(Status::IO));
    for number in (0..700).filter(|number| *number != 333) {
        let path = format!("directory/file-{number}");
        assert!(crate::scenario::read(&tree, &path) == pattern(100 + number, number as u64), "{path}");
    }
}

#[test]
fn a_damaged_record_of_the_journal_costs_its_change_and_the_rest_can_be_read() {
    let whole = machine();
    let before = all(&opened(Arc::new(whole.process_end())));
    let bytes = whole.bytes("space").unwrap();
    let mut lost_names = 0;
    // The head of every room, and some of its records.
    for room in (0..bytes.len()).step_by(SMALL.segment_bytes as usize) {
        for offset in [3, 64, 700, 1500, 4000] {
            let machine = whole.process_end();
            assert!(machine.flip("space", (room + offset) as u64 * 8));
            let found = report(&machine);
            let tree = opened(Arc::new(machine));
            assert_eq!(tree.faults().is_empty(), found.faults.is_empty(), "room at {room}, byte {offset}");
            let after = all(&tree);
            if found.faults.is_empty() {
                // A room that the checkpoint made superfluous, or bytes behind the last record.
                assert!(after == before, "room at {room}, byte {offset}: no fault, and another tree");
                continue;
            }
            lost_names += 1;
            assert!(
                found.faults.iter().any(|fault| fault.what.starts_with("journal: ")),
                "{:?}",
                found.faults
            );
            let status = tree.create(Path::new("new")).err().and_then(|error| error.status());
            assert_eq!(status, Some(Status::ROFS));
            // What is there is whole or, where its write was lost, empty.
            for (path, there) in &after {
                let same = before.get(path) == Some(there);
                let empty = matches!(there, There::File { bytes, .. } if bytes.is_empty());
                assert!(same || empty, "room at {room}, byte {offset}: {path}");
            }
            if offset > 64 {
                assert!(after.len() + 2 >= before.len(), "one record costs one name");
            }
        }
    }
    assert!(lost_names > 5, "{lost_names}");
}

/// What a look at each of the files finds, without a panic.
fn looked_at(tree: &PackTree) -> (usize, usize) {
    looked_at_but(tree, usize::MAX)
}

/// As [`looked_at`], without the file of one number.
fn looked_at_but(tree: &PackTree, left_out: usize) -> (usize, usize) {
    let (mut there, mut refused) = (0, 0);
    for number in (0..700).filter(|number| *number != left_out) {
        let path = format!("directory/file-{number}");
        match tree.stat(Path::new(&path)) {
            Ok(_) => {
                assert!(crate::scenario::read(tree, &path) == pattern(100 + number, number as u64), "{path}");
                there += 1;
            }
            // It is not said to be missing: it may be there.
            Err(error) => {
                assert_eq!(error.status(), Some(Status::IO), "{path}");
                refused += 1;
            }
        }
    }
    (there, refused)
}

#[test]
fn a_damaged_manifest_is_reported_and_the_runs_that_are_there_are_taken() {
    let whole = machine();
    let length = whole.bytes("manifest").unwrap().len() as u64;
    for byte in [9, 30, 70, length / 2, length - 1] {
        let machine = whole.process_end();
        assert!(machine.flip("manifest", byte * 8));
        let found = report(&machine);
        assert!(
            found.faults.iter().any(|fault| fault.what.starts_with("manifest: missing or damaged")),
            "{byte}: {:?}",
            found.faults
        );
        let tree = opened(Arc::new(machine));
        assert!(!tree.faults().is_empty());
        assert_eq!(all(&tree).len(), 701, "byte {byte}");
        assert_eq!(looked_at(&tree), (700, 0));
        assert_eq!(tree.create(Path::new("new")).err().and_then(|error| error.status()), Some(Status::ROFS));
    }
    let machine = whole.process_end();
    disk::Disk::remove(&machine, "manifest").unwrap();
    assert!(report(&machine).faults[0].what.starts_with("manifest: missing or damaged"));
    assert_eq!(looked_at(&opened(Arc::new(machine))), (700, 0));
}

#[test]
fn a_damaged_list_of_free_blocks_is_reported_and_everything_can_be_read() {
    let machine = machine();
    let names = files_of_names(&machine);
    let free = names.iter().find(|name| name.starts_with("free-")).expect("one");
    assert!(machine.flip(free, 64 * 8));
    assert!(report(&machine).faults[0].what.starts_with("free-"), "{:?}", report(&machine).faults);
    let tree = opened(Arc::new(machine));
    assert_eq!(looked_at(&tree), (700, 0));
    assert_eq!(tree.create(Path::new("new")).err().and_then(|error| error.status()), Some(Status::ROFS));
}

/// Names of the runs.
fn runs_of(machine: &SimulatedDisk) -> Vec<String> {
    files_of_names(machine).into_iter().filter(|name| name.starts_with("names-")).collect()
}

/// Where the index and the filter of a run of version 3 begin.
fn sections_of(run: &[u8]) -> (u64, u64) {
    let number = |at: usize| u64::from_le_bytes(run[at..at + 8].try_into().unwrap());
    (number(64 + 28), number(64 + 36))
}

/// Offset and length of each block of a run of version 3, without parity blocks.
fn blocks_of(run: &[u8]) -> Vec<(usize, usize)> {
    let number = |at: usize| u32::from_le_bytes(run[at..at + 4].try_into().unwrap()) as usize;
    let index_at = sections_of(run).0 as usize;
    let (mut blocks, mut at) = (Vec::new(), 128);
    while at < index_at {
        if number(at + 8) > 0 {
            blocks.push((at, number(at + 4)));
        }
        at += number(at + 4);
    }
    assert_eq!(at, index_at);
    blocks
}

/// Symptom: one flipped bit cost up to 160 names, and all names of a directory when it was in the directory's inode.
#[test]
fn a_flipped_bit_anywhere_in_a_run_of_names_costs_nothing_and_check_says_where_it_is() {
    let whole = machine();
    let runs = runs_of(&whole);
    assert!(runs.len() > 1, "{runs:?}");
    let (mut blocks, mut parity, mut indexes) = (0, 0, 0);
    for name in &runs {
        let bytes = whole.bytes(name).unwrap();
        let length = bytes.len() as u64;
        let (index_at, filter_at) = sections_of(&bytes);
        let heads = [5, 30, 70, 100, length - 100, length - 40];
        for byte in (128..length).step_by(617).chain(heads).chain([index_at + 3, filter_at + 9]) {
            let machine = whole.process_end();
            assert!(machine.flip(name, byte * 8 + byte % 8));
            let found = report(&machine);
            assert_eq!(found.faults.len(), 1, "{name}, byte {byte}: {:?}", found.faults);
            let fault = &found.faults[0];
            assert!(fault.what.starts_with(name) && fault.is_repairable, "byte {byte}: {fault:?}");
            blocks += usize::from(fault.what.contains("its names and inodes were rebuilt"));
            parity += usize::from(fault.what.contains("the parity block at byte"));
            indexes += usize::from(fault.what.contains("its index is damaged"));
            let tree = opened(Arc::new(machine));
            assert_eq!(looked_at(&tree), (700, 0), "{name}, byte {byte}");
            let mut listed = 0;
            tree.readdir(Path::new("directory"), &mut |_| listed += 1).unwrap();
            assert_eq!(listed, 700, "{name}, byte {byte}");
        }
    }
    assert!(
        blocks > 10 && parity > 10 && indexes > 1,
        "{blocks} blocks, {parity} parity blocks, {indexes} indexes"
    );
}

/// Symptom: one bit in the index of a short run made it look like a further block, and names were reported lost. Fix: blocks end where the
/// head says that the index begins.
#[test]
fn a_flipped_bit_anywhere_in_a_run_of_one_block_costs_nothing() {
    let whole = SimulatedDisk::new("machine");
    PackTree::create(&whole, &SMALL).unwrap();
    let name = runs_of(&whole).remove(0);
    for bit in 0..whole.bytes(&name).unwrap().len() as u64 * 8 {
        let machine = whole.process_end();
        assert!(machine.flip(&name, bit));
        let found = report(&machine).faults;
        assert!(!found.is_empty() && found.iter().all(|fault| fault.is_repairable), "bit {bit}: {found:?}");
        assert_eq!(repair(&machine, |_, _| ()).unwrap().left, [], "bit {bit}");
        assert_eq!(report(&machine).faults, [], "bit {bit}");
    }
}

/// What is damaged on a disk is often a whole page, and pages do not end where blocks do.
#[test]
fn a_page_that_is_all_zeros_costs_no_name_of_a_long_run() {
    let machine = SimulatedDisk::new("machine");
    PackTree::create(&machine, &SMALL).unwrap();
    let tree = opened(Arc::new(machine.clone()));
    tree.mkdir(Path::new("directory")).unwrap();
    for number in 0..5000 {
        drop(tree.create(Path::new(&format!("directory/file-{number}"))).unwrap());
    }
    tree.close().unwrap();
    let name = runs_of(&machine).into_iter().max_by_key(|name| machine.bytes(name).unwrap().len()).unwrap();
    let bytes = machine.bytes(&name).unwrap();
    let blocks = blocks_of(&bytes);
    assert!(blocks.len() > 15, "{} blocks", blocks.len());
    let end = blocks.last().map(|(at, length)| at + length).unwrap();
    let mut of_two_blocks = 0;
    for page in (4096..end).step_by(4096) {
        let machine = machine.process_end();
        let file = disk::Disk::open(&machine, &name, disk::DiskOpen::Write).unwrap();
        file.write_at(&[0; 4096], page as u64).unwrap();
        let found = report(&machine);
        assert!(found.faults.iter().all(|fault| fault.is_repairable), "{:?}", found.faults);
        assert!(!found.faults.is_empty() && found.files == 5000, "page {page}: {:?}", found.faults);
        of_two_blocks += usize::from(found.faults.len() > 1);
    }
    assert!(of_two_blocks > 10, "{of_two_blocks} pages");
}

#[test]
fn a_block_of_names_that_the_disk_cannot_read_is_rebuilt() {
    let machine = machine();
    let tree = opened(Arc::new(machine.clone()));
    let name = runs_of(&machine).into_iter().max_by_key(|name| machine.bytes(name).unwrap().len()).unwrap();
    machine.fail(DiskOperation::Read, Some(&name), 0, 1, DiskFault::Half);
    assert_eq!(looked_at(&tree), (700, 0));
    // Parity does not help where nothing can be read.
    let machine = machine.process_end();
    let tree = opened(Arc::new(machine.clone()));
    machine.fail(DiskOperation::Read, Some(&name), 0, 40, DiskFault::Half);
    assert!(looked_at(&tree).1 > 0, "no read failed");
}

#[test]
fn a_run_that_is_damaged_is_written_again_by_a_repair_also_one_that_loses_power() {
    let whole = machine();
    let before = all(&opened(Arc::new(whole.process_end())));
    for name in &runs_of(&whole) {
        let length = whole.bytes(name).unwrap().len() as u64;
        // A head, blocks and what is behind them.
        for byte in [40, 400, length / 2, length - 300, length - 90] {
            let machine = whole.process_end();
            assert!(machine.flip(name, byte * 8));
            let found = report(&machine).faults;
            for seed in 0..12 {
                let cut = machine.process_end();
                cut.stop_at(cut.operations() + seed);
                assert!(repair(&cut, |_, _| ()).is_err() || !cut.has_stopped());
                let after = cut.power_cut(seed);
                assert!(
                    report(&after).faults.iter().all(|fault| found.contains(fault)),
                    "{name}, {byte}, {seed}"
                );
                assert!(all(&opened(Arc::new(after))) == before, "{name}, byte {byte}, cut {seed}");
            }
            let done = repair(&machine, |_, _| ()).unwrap();
            assert_eq!((done.repaired, done.left), (found, vec![]), "{name}, byte {byte}");
            assert_eq!(report(&machine).faults, [], "{name}, byte {byte}");
            let tree = opened(Arc::new(machine));
            assert!(all(&tree) == before, "{name}, byte {byte}");
            write(&tree, "new", b"it takes more");
        }
    }
    let done = repair(&whole, |_, _| ()).unwrap();
    assert_eq!((done.repaired, done.left), (vec![], vec![]));
}

/// Damages two blocks of one parity group of a run, the first at `at`. Where there is no second one, it
/// damages the parity blocks.
fn lose_block(machine: &SimulatedDisk, name: &str, at: usize) {
    let bytes = machine.bytes(name).unwrap();
    let blocks = blocks_of(&bytes);
    let (offset, length) = blocks[at];
    assert!(machine.flip(name, (offset + length / 2) as u64 * 8));
    match blocks.get(at + 8) {
        Some((offset, length)) => assert!(machine.flip(name, (offset + length / 2) as u64 * 8)),
        // Every byte behind the blocks and before the index is parity: all of it.
        None => {
            let index_at = sections_of(&bytes).0;
            let parity_at = blocks.last().map(|(offset, length)| (offset + length) as u64).unwrap();
            (parity_at..index_at).step_by(50).for_each(|byte| assert!(machine.flip(name, byte * 8)));
        }
    }
}

#[test]
fn damage_to_two_blocks_of_a_group_costs_their_names_at_most_and_check_says_so() {
    let whole = machine();
    let mut blocks = 0;
    for name in &runs_of(&whole) {
        for at in 0..blocks_of(&whole.bytes(name).unwrap()).len() {
            let machine = whole.process_end();
            lose_block(&machine, name, at);
            let found = report(&machine);
            assert!(found.faults.iter().any(|fault| fault.what.starts_with(name)), "{:?}", found.faults);
            assert!(found.faults.iter().any(|fault| !fault.is_repairable), "{:?}", found.faults);
            let left = repair(&machine, |_, _| ()).unwrap().left;
            assert!(left.contains(&found.faults[0]), "{left:?}");
            let tree = opened(Arc::new(machine));
            if let Err(error) = tree.stat(Path::new("directory")) {
                // The block has the name or the inode of the directory.
                assert_eq!(error.status(), Some(Status::IO), "{error}");
                continue;
            }
            let (there, refused) = looked_at(&tree);
            assert!(there + refused == 700 && refused < 330, "{name}, block {at}: {refused} are lost");
            blocks += usize::from(refused > 0);
            let mut listed = 0;
            let end = tree.readdir(Path::new("directory"), &mut |_| listed += 1);
            assert!(listed >= there, "{name}, block {at}: {listed} names of {there}");
            assert!(listed == 700 || end.is_err(), "{name}, block {at}: {listed} names, and no error");
        }
    }
    assert!(blocks > 3, "{blocks}");
}

#[test]
fn a_damaged_head_of_a_run_is_reported_and_nothing_is_written() {
    let whole = machine();
    for name in files_of_names(&whole).iter().filter(|name| name.starts_with("names-")) {
        let machine = whole.process_end();
        assert!(machine.flip(name, 30 * 8));
        let found = report(&machine);
        let wanted = format!("{name}: its head is damaged");
        assert!(found.faults.iter().any(|fault| fault.what.starts_with(&wanted)), "{:?}", found.faults);
        let tree = opened(Arc::new(machine));
        assert_eq!(looked_at(&tree), (700, 0), "the copy of the head is read");
        let status = tree.create(Path::new("new")).err().and_then(|error| error.status());
        assert_eq!(status, Some(Status::ROFS));
        // Without the copy too, the run is as good as missing.
        let machine = whole.process_end();
        let length = machine.bytes(name).unwrap().len() as u64;
        assert!(machine.flip(name, 30 * 8) && machine.flip(name, (length - 100) * 8));
        let found = report(&machine);
        let wanted = format!("{name}: missing, or its head is damaged");
        assert!(found.faults.iter().any(|fault| fault.what.starts_with(&wanted)), "{:?}", found.faults);
        let tree = opened(Arc::new(machine));
        let status = tree.create(Path::new("new")).err().and_then(|error| error.status());
        assert!(matches!(status, Some(Status::ROFS | Status::NOENT)), "{status:?}");
    }
}

/// Symptom feared: a merge that leaves out what it cannot read would make damage to one block a loss for good.
#[test]
fn changes_over_a_damaged_block_lose_nothing_that_is_still_readable() {
    let whole = machine();
    let name =
        runs_of(&whole).into_iter().max_by_key(|name| whole.bytes(name).unwrap().len()).expect("a run");
    // A block that the opening does not need.
    let damaged = (0..blocks_of(&whole.bytes(&name).unwrap()).len()).find_map(|at| {
        let machine = whole.process_end();
        lose_block(&machine, &name, at);
        let tree = opened(Arc::new(machine.process_end()));
        let found = looked_at(&tree);
        (tree.faults().is_empty() && (1..200).contains(&found.1)).then_some((machine, found))
    });
    let (machine, before) = damaged.expect("one of them");
    let tree = opened(Arc::new(machine.clone()));
    tree.mkdir(Path::new("later")).unwrap();
    // Enough for checkpoints, and for merges if they were made.
    for number in 0..3000 {
        write(&tree, &format!("later/file-{number}"), &pattern(10, number));
    }
    tree.close().unwrap();
    let tree = opened(Arc::new(machine));
    assert_eq!(looked_at(&tree), before);
    for number in (0..3000).step_by(37) {
        assert!(crate::scenario::read(&tree, &format!("later/file-{number}")) == pattern(10, number));
    }
}

/// Symptom: after a kill a damaged head of the last room looked like a power cut, and `check` found nothing.
#[test]
fn a_damaged_head_of_a_room_is_noted_and_so_is_a_tree_that_was_not_closed() {
    let closed = machine();
    assert!(report(&closed).is_closed && report(&closed).notes.is_empty());
    let machine = SimulatedDisk::new("machine");
    PackTree::create(&machine, &SMALL).unwrap();
    assert!(report(&machine).is_closed, "it was never written");
    let tree = opened(Arc::new(machine.clone()));
    write(&tree, "file", b"1");
    let killed = machine.process_end();
    assert!(!report(&killed).is_closed && report(&killed).notes.is_empty());
    assert!(killed.flip("space", 20 * 8));
    let found = report(&killed);
    // As if nothing had been written: only the note is left to say otherwise.
    assert!(found.notes[0].contains("the last changes may be missing"), "{:?}", found.notes);
    assert_eq!((found.files, found.faults), (0, Vec::new()));
}

fn copied(from: &PackTree) -> (PackTree, Vec<String>) {
    let to = SimulatedDisk::new("copy");
    PackTree::create(&to, &SMALL).unwrap();
    let tree = opened(Arc::new(to.clone()));
    let faults = salvage(from, &tree, &mut |_, _| true).unwrap().faults;
    tree.close().unwrap();
    assert_eq!(report(&to).faults, []);
    (opened(Arc::new(to)), faults.into_iter().map(|fault| fault.what).collect())
}

/// A tree without the inode numbers, which a copy has of its own.
fn without_numbers(tree: &PackTree) -> Vec<(String, There)> {
    let numberless = |there| match there {
        There::File { links, mtime, bytes, .. } => There::File { inode: 0, links, mtime, bytes },
        other => other,
    };
    all(tree).into_iter().map(|(path, there)| (path, numberless(there))).collect()
}

#[test]
fn the_copy_of_a_tree_is_the_same_and_is_made_into_an_empty_one_only() {
    let machine = machine();
    let tree = opened(Arc::new(machine));
    tree.link(Path::new("directory/file-5"), Path::new("directory/another-name")).unwrap();
    tree.symlink(Path::new("directory/file-5"), Path::new("link")).unwrap();
    let mut file = tree.create(Path::new("holes")).unwrap();
    file.seek(100_000).unwrap();
    crate::scenario::write_all(&mut *file, b"behind a hole");
    drop(file);
    let (copy, faults) = copied(&tree);
    assert_eq!(faults, [""; 0]);
    assert!(without_numbers(&copy) == without_numbers(&tree), "the copy is another tree");
    let again = salvage(&tree, &copy, &mut |_, _| true);
    assert!(matches!(again, Err(SalvageError::NotEmpty { .. })));
}

/// Symptom: what a copy that was killed had made looked like a whole tree, and kept the next copy from being made there.
#[test]
fn a_copy_that_did_not_end_says_so_and_the_next_one_begins_anew() {
    let from = opened(Arc::new(machine()));
    let to = SimulatedDisk::new("copy");
    let copies = |stop_at: u64| {
        begin_copy(&to)?;
        PackTree::create(&to, &SMALL)?;
        let tree = PackTree::open_to_copy(Arc::new(to.clone()), &SMALL, "copy")?;
        let done = salvage(&from, &tree, &mut |done, _| done < stop_at);
        tree.close()?;
        done.map(drop)
    };
    assert!(matches!(copies(300), Err(SalvageError::Stopped)));
    let found = report(&to);
    assert!(found.faults.iter().any(|fault| fault.what.contains("did not end")), "{:?}", found.faults);
    assert!(found.files < 700);
    let tree = opened(Arc::new(to.clone()));
    assert!(tree.faults()[0].what.contains("run it again") && tree.create(Path::new("more")).is_err());
    drop(tree);
    copies(u64::MAX).unwrap();
    end_copy(&to).unwrap();
    assert_eq!(report(&to).faults, []);
    assert!(without_numbers(&opened(Arc::new(to.clone()))) == without_numbers(&from));
    // A whole tree, and what somebody else has there, are never removed.
    assert!(matches!(begin_copy(&to), Err(TreeError::NotEmpty { .. })));
    let others = SimulatedDisk::new("others");
    others.open("letter", DiskOpen::New).unwrap();
    assert!(matches!(begin_copy(&others), Err(TreeError::NotEmpty { .. })));
    assert_eq!(others.names().unwrap(), ["letter"]);
}

#[test]
fn a_list_of_free_blocks_that_is_too_long_to_be_one_is_not_read() {
    let machine = machine();
    let name = machine.names().unwrap().into_iter().find(|name| name.starts_with("free-")).unwrap();
    // Read into memory it would end the process.
    machine.open(&name, DiskOpen::Write).unwrap().set_length(1 << 42).unwrap();
    let found = report(&machine);
    assert!(found.faults.iter().any(|fault| fault.what.contains("not known what is free")), "{found:?}");
}

/// A tree with damage to one file, and to a block of names in the middle of the longest run; with `is_lost` to the block's parity too.
fn damaged_twice(is_lost: bool) -> SimulatedDisk {
    let machine = machine();
    let bytes = machine.bytes("space").unwrap();
    let wanted = pattern(100 + 333, 333);
    let at = bytes.windows(wanted.len()).position(|window| *window == *wanted).expect("stored as it is");
    assert!(machine.flip("space", at as u64 * 8 + 100));
    let run = runs_of(&machine).into_iter().max_by_key(|name| machine.bytes(name).unwrap().len()).unwrap();
    let blocks = blocks_of(&machine.bytes(&run).unwrap());
    match is_lost {
        true => lose_block(&machine, &run, blocks.len() / 2),
        false => assert!(machine.flip(&run, (blocks[blocks.len() / 2].0 + 100) as u64 * 8)),
    }
    machine
}

/// How many files of a copy have the right bytes; the others have zeros.
fn whole_in(copy: &PackTree) -> usize {
    let mut whole = 0;
    for (path, there) in all(copy) {
        let There::File { bytes, .. } = there else { continue };
        let number: usize = path.rsplit('-').next().and_then(|number| number.parse().ok()).expect("file-N");
        let is_zeros = bytes.iter().all(|byte| *byte == 0);
        assert!(bytes == pattern(100 + number, number as u64) || is_zeros, "{path}");
        whole += usize::from(!is_zeros);
    }
    whole
}

#[test]
fn a_copy_of_a_tree_with_a_damaged_block_of_names_has_every_name() {
    let machine = damaged_twice(false);
    let tree = opened(Arc::new(machine));
    assert_eq!(looked_at_but(&tree, 333), (699, 0));
    let (copy, faults) = copied(&tree);
    assert_eq!(faults, ["directory/file-333: bytes 0 to 433 are damaged, and zeros in the copy"]);
    let whole = whole_in(&copy);
    assert!(whole > 695, "{whole} whole");
}

#[test]
fn a_copy_has_all_that_can_be_read_of_a_damaged_tree_and_says_what_is_missing() {
    let machine = damaged_twice(true);
    let before = machine.bytes("space").unwrap();
    let tree = opened(Arc::new(machine.process_end()));
    let (there, refused) = looked_at_but(&tree, 333);
    assert!(refused > 0, "the run has no damage");
    let (copy, faults) = copied(&tree);
    let is_reported = |what: &str| faults.iter().any(|fault| fault.contains(what));
    // Unless it was in that block itself.
    let is_named = is_reported("file-333: bytes 0 to 433 are damaged");
    assert!(is_named || tree.stat(Path::new("directory/file-333")).is_err(), "{faults:?}");
    assert!(is_reported("the block of names at byte"), "{faults:?}");
    let whole = whole_in(&copy);
    assert_eq!(whole, there);
    assert!(whole > 450, "{whole} whole");
    assert!(machine.bytes("space").unwrap() == before, "the damaged tree was changed");
}

#[test]
fn a_damaged_head_of_the_tree_is_no_tree_and_nothing_is_made_in_its_place() {
    let machine = machine();
    let names = disk::Disk::names(&machine).unwrap();
    assert!(machine.flip("tree", 100));
    assert!(matches!(check(&machine, |_, _| ()), Err(TreeError::NoTree { .. })));
    let opened = PackTree::open(Arc::new(machine.clone()), &SMALL, "pack:test");
    assert!(matches!(opened.map(drop), Err(TreeError::NoTree { .. })));
    assert_eq!(disk::Disk::names(&machine).unwrap(), names);
}
