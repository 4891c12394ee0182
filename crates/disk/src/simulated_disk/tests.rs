use std::collections::HashSet;

use super::*;

fn disk() -> SimulatedDisk {
    SimulatedDisk::new("simulated")
}

fn kind(failed: Result<(), DiskError>) -> io::ErrorKind {
    failed.expect_err("it was to fail").kind()
}

#[test]
fn what_was_synced_survives_every_cut_and_the_rest_survives_in_many_ways() {
    let disk = disk();
    let file = disk.open("log", DiskOpen::New).expect("new");
    file.write_at(&[1; 2048], 0).expect("written");
    file.sync().expect("synced");
    disk.sync_names().expect("synced");
    file.write_at(&[2; 2048], 1024).expect("written");
    let mut images = HashSet::new();
    for seed in 0..300 {
        let bytes = disk.power_cut(seed).bytes("log").expect("its name was synced");
        assert!(bytes.len() == 2048 || bytes.len() == 3072, "seed {seed}: {}", bytes.len());
        assert_eq!(&bytes[..1024], [1; 1024], "seed {seed}");
        for (number, sector) in bytes[1024..].chunks(512).enumerate() {
            let old = if number < 2 { 1 } else { 0 };
            assert!(
                sector == [2; 512] || sector == [old; 512],
                "seed {seed}: sector {number} is torn inside"
            );
        }
        images.insert(bytes);
    }
    // Four sectors and two lengths; with the short one, two sectors.
    assert_eq!(images.len(), 20, "every way was seen");
    assert_eq!(disk.power_cut(7).bytes("log"), disk.power_cut(7).bytes("log"));
}

#[test]
fn a_sector_holds_what_it_held_at_some_moment_and_never_a_later_write_without_an_earlier_one() {
    let disk = disk();
    let file = disk.open("log", DiskOpen::New).expect("new");
    disk.sync_names().expect("synced");
    for step in 0..4_u8 {
        file.write_at(&[step + 1; 100], u64::from(step) * 100).expect("written");
    }
    let mut lengths = HashSet::new();
    for seed in 0..400 {
        let bytes = disk.power_cut(seed).bytes("log").expect("its name was synced");
        let held = bytes.chunks(100).take_while(|piece| piece[0] != 0).count();
        assert!(bytes[held * 100..].iter().all(|&byte| byte == 0), "seed {seed}: {bytes:?}");
        lengths.insert((bytes.len(), held));
    }
    assert!(lengths.contains(&(400, 0)) && lengths.contains(&(400, 3)) && lengths.contains(&(0, 0)));
}

#[test]
fn a_name_is_certain_only_after_its_sync_and_a_rename_is_whole_or_not_done() {
    let disk = disk();
    for (name, byte) in [("old", 1), ("kept", 2)] {
        let file = disk.open(name, DiskOpen::New).expect("new");
        file.write_at(&[byte], 0).expect("written");
        file.sync().expect("synced");
    }
    disk.sync_names().expect("synced");
    let file = disk.open("new", DiskOpen::New).expect("new");
    file.write_at(&[3], 0).expect("written");
    file.sync().expect("synced");
    disk.rename("new", "old").expect("renamed");
    let mut states = HashSet::new();
    for seed in 0..200 {
        let after = disk.power_cut(seed);
        assert_eq!(after.bytes("kept"), Some(vec![2]), "seed {seed}");
        let old = after.bytes("old").expect("one of the two")[0];
        let new = after.bytes("new").map(|bytes| bytes[0]);
        assert!(new.is_none() || (new, old) == (Some(3), 1), "seed {seed}: {new:?} {old}");
        states.insert((old, new));
    }
    assert_eq!(states.len(), 3);
    disk.sync_names().expect("synced");
    for seed in 0..50 {
        assert_eq!(disk.power_cut(seed).bytes("old"), Some(vec![3]));
        assert_eq!(disk.power_cut(seed).bytes("new"), None);
    }
}

#[test]
fn a_stopped_disk_acknowledges_nothing_and_may_keep_what_it_was_stopped_in() {
    let disk = disk();
    let file = disk.open("log", DiskOpen::New).expect("new");
    disk.sync_names().expect("synced");
    disk.stop_at(disk.operations() + 1);
    file.write_at(b"one", 0).expect("before the end");
    let stopped = file.write_at(b"two", 3).expect_err("the end");
    assert!(stopped.source.to_string().contains(STOPPED), "{stopped}");
    assert!(disk.has_stopped());
    assert!(file.sync().is_err());
    assert!(disk.names().is_err());
    let kept =
        (0..100).map(|seed| disk.power_cut(seed).bytes("log").expect("synced")).collect::<HashSet<_>>();
    assert!(kept.contains(&b"onetwo"[..]) && kept.contains(&b""[..]), "{kept:?}");
    // Only the process ended: the system keeps all that it took.
    assert_eq!(disk.process_end().bytes("log").as_deref(), Some(&b"onetwo"[..]));
}

#[test]
fn a_lost_sync_is_told_once_and_never_made_good() {
    let disk = disk();
    let file = disk.open("log", DiskOpen::New).expect("new");
    disk.sync_names().expect("synced");
    disk.fail(DiskOperation::Sync, Some("log"), 0, 1, DiskFault::SyncLost);
    file.write_at(b"lost", 0).expect("written");
    file.sync().expect_err("planned");
    file.sync().expect("and says that all is well");
    assert_eq!(disk.bytes("log").as_deref(), Some(&b"lost"[..]));
    for seed in 0..20 {
        assert_eq!(disk.power_cut(seed).bytes("log").as_deref(), Some(&b""[..]));
    }
}

#[test]
fn faults_strike_the_operation_and_the_file_they_were_planned_for() {
    let disk = disk();
    let (a, b) = (disk.open("a", DiskOpen::New).expect("new"), disk.open("b", DiskOpen::New).expect("new"));
    disk.fail(DiskOperation::Write, Some("b"), 1, 1, DiskFault::Refused(io::ErrorKind::StorageFull));
    disk.fail(DiskOperation::Write, Some("a"), 0, 1, DiskFault::Half);
    assert!(a.write_at(b"halved", 0).is_err());
    assert_eq!(disk.bytes("a").as_deref(), Some(&b"hal"[..]));
    b.write_at(b"well", 0).expect("spared");
    assert_eq!(kind(b.write_at(b"not", 0)), io::ErrorKind::StorageFull);
    b.write_at(b"good", 0).expect("once is enough");
    assert_eq!(disk.bytes("b").as_deref(), Some(&b"good"[..]));
    assert!(disk.flip("b", 1));
    assert_eq!(disk.bytes("b").as_deref(), Some(&b"eood"[..]));
    disk.vanish(true);
    assert!(b.read_at(&mut [0], 0).is_err() && disk.names().is_err());
    disk.vanish(false);
    assert!(b.read_at(&mut [0], 0).is_ok());
}

#[test]
fn a_full_disk_takes_what_was_reserved_and_no_more() {
    let disk = disk().with_room(4 * 4096);
    let file = disk.open("packed", DiskOpen::New).expect("new");
    file.reserve(0, 3 * 4096).expect("there is room");
    assert_eq!(file.length().expect("a length"), 0);
    let other = disk.open("other", DiskOpen::New).expect("new");
    other.write_at(&[1; 4096], 0).expect("the last page");
    assert_eq!(kind(other.write_at(&[1], 4096)), io::ErrorKind::StorageFull);
    file.write_at(&[1; 3 * 4096], 0).expect("reserved");
    assert_eq!(disk.room().expect("there").free_bytes, 0);
    file.release(4096, 4096).expect("given back");
    other.write_at(&[1], 4096).expect("there is room again");
    let mut bytes = [9; 4096];
    assert_eq!(file.read_at(&mut bytes, 4096).expect("reads"), 4096);
    assert_eq!(bytes, [0; 4096]);
}

#[test]
fn what_was_reserved_and_never_written_is_known() {
    let file = disk().open("packed", DiskOpen::New).expect("new");
    file.reserve(0, 4 * 4096).expect("there is room");
    file.write_at(&[0; 10], 2 * 4096).expect("written");
    let unwritten =
        [0, 100, 2 * 4096, 3 * 4096 + 6, 9 * 4096].map(|at| file.unwritten_at(at).expect("known"));
    assert_eq!(unwritten, [2 * 4096, 2 * 4096 - 100, 0, 4090, 0]);
}

#[test]
fn it_reads_as_a_plain_array_does_whatever_is_done() {
    use rand::{RngExt as _, SeedableRng as _};
    for seed in 0..50 {
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed);
        let disk = disk();
        let file = disk.open("f", DiskOpen::New).expect("new");
        disk.sync_names().expect("synced");
        let mut model = Vec::new();
        for step in 0..60_u8 {
            let (at, some) = (random.random_range(0..20_000_usize), random.random_range(0..9_000_usize));
            match random.random_range(0..6) {
                0 => {
                    model.resize(at, 0);
                    file.set_length(at as u64).expect("done");
                }
                1 => {
                    let end = model.len();
                    model[at.min(end)..(at + some).min(end)].fill(0);
                    file.release(at as u64, some as u64).expect("done");
                }
                2 => file.sync().expect("done"),
                _ => {
                    model.resize(model.len().max(if some > 0 { at + some } else { 0 }), 0);
                    model[at.min(at + some)..][..some].fill(step);
                    file.write_at(&vec![step; some], at as u64).expect("done");
                }
            }
            assert_eq!(disk.bytes("f").as_deref(), Some(&model[..]), "seed {seed} step {step}");
        }
        file.sync().expect("done");
        assert_eq!(disk.power_cut(seed).bytes("f"), Some(model), "seed {seed}");
    }
}

#[test]
fn disks_of_one_machine_stop_and_lose_power_together_but_vanish_and_sync_names_alone() {
    let one = disk();
    let two = one.beside("two");
    for disk in [&one, &two] {
        disk.open("f", DiskOpen::New).expect("each has its own").write_at(b"x", 0).expect("written");
    }
    one.sync_names().expect("synced");
    assert_eq!(one.names().expect("listed"), ["f"]);
    let kept = (0..60).map(|seed| {
        let cut = one.power_cut(seed);
        (cut.bytes("f").is_some(), cut.beside("two").bytes("f").is_some())
    });
    assert_eq!(kept.collect::<HashSet<_>>(), HashSet::from([(true, false), (true, true)]));
    two.vanish(true);
    assert!(two.names().is_err() && one.names().is_ok());
    two.vanish(false);
    two.stop_at(two.operations());
    assert!(one.open("g", DiskOpen::New).is_err() && two.names().is_err());
}
